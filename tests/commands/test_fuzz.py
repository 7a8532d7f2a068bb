"""A short form of `python tests/fuzz.py --each`, the same inputs at each run."""

import pytest
from fuzzing.answers import fault
from fuzzing.lines import Case, each, noise, right, wrong
from fuzzing.options import BROKEN
from hypothesis import HealthCheck, given, settings

pytestmark = pytest.mark.filterwarnings("ignore")  # of Lightning, and of what noise makes

few = settings(
    max_examples=15,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@few
@given(right())
def test_right_lines_reach_the_work(case: Case) -> None:
    assert fault(case) is None


@few
@given(wrong())
def test_one_mistake_is_one_line(case: Case) -> None:
    assert fault(case) is None


@few
@given(noise())
def test_noise_ends_in_one_line(case: Case) -> None:
    assert fault(case) is None


def test_bad_values_of_compare() -> None:
    """Not at random, since it is the command that most people type; in files and on the line."""
    cases = [case for at, case in enumerate(each("compare")) if at % 4 in (0, 3)]
    assert len(cases) > 200
    assert {str(c): said for c in cases if (said := fault(c)) is not None} == {}


@pytest.mark.parametrize("command", ["compare", "fit", "diagnose"])
def test_files_that_no_command_can_take(command: str) -> None:
    cases = [
        Case("wrong", [command, "--config", "bad.yaml"], {"bad.yaml": text}) for text in BROKEN
    ]
    assert {str(c): said for c in cases if (said := fault(c)) is not None} == {}
