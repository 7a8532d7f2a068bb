"""A short form of `python tests/fuzz.py --calls 1000`."""

from fuzzing.operators import run


def test_random_calls_equal_a_float64_loop() -> None:
    run(100, start=0)
