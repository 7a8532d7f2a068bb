"""A short form of `python tests/fuzz_ops.py`."""

from fuzz_ops import run


def test_random_calls_equal_a_float64_loop() -> None:
    run(100, start=0)
