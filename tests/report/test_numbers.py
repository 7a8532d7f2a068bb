"""Numbers as text."""

import numpy as np
import pytest

from vision_attn.report.numbers import images, number, short, times, times_cell


def test_sizes_as_words() -> None:
    assert images([20]) == "20 images"
    assert images([20, 1000]) == "20 and 1,000 images"
    assert images([20, 50, 1000]) == "20, 50 and 1,000 images"


def test_short_numbers_and_no_minus_before_zero() -> None:
    assert [short(n) for n in (7, 1234, 1234567)] == ["7", "1.23 k", "1.23 M"]
    assert [number(v, ".1f") for v in (-0.04, -0.06, 0.04)] == ["0.0", "-0.1", "0.0"]


@pytest.mark.parametrize(
    ("row", "words", "cell"),
    [
        ((2.5, 2.0, 3.0, "", np.nan), "2.5 times (2 to 3)", "2.50 (2.00 to 3.00)"),
        ((2.5, 2.0, np.inf, "", np.nan), "2.5 times (2 to beyond the data)",
         "2.50 (2.00 to beyond the data)"),
        ((2.5, 0.0, np.inf, "", np.nan), "2.5 times (not bounded by these draws)",
         "2.50 (not bounded)"),
        ((2.5, np.nan, np.nan, "", np.nan), "2.5 times", "2.50"),
        ((np.nan, 1.0, np.inf, "> 4", 4.0), "more than 4 times", "> 4"),
        ((np.nan, 1.0, np.inf, "> 1", 1.0), "more than 1 times", ""),
        ((np.nan, 0.0, 0.5, "< 0.5", 0.5), "less than 0.5 times", "< 0.5"),
    ],
)  # fmt: skip
def test_the_multiple_of_images(row: tuple[float, ...], words: str, cell: str) -> None:
    names = ("multiplier", "low", "high", "bound", "limit")
    made = dict(zip(names, row, strict=True))
    assert times(made) == words
    assert times_cell(made) == cell
