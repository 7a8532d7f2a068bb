"""Student's intervals of means and slopes, against numbers worked out by hand."""

import numpy as np
import pandas as pd
import pytest
from torch.testing import assert_close

from vision_attn.stats.intervals import interval, interval_table, slope

T1, T2 = 12.706204736432095, 4.302652729696142
"""Student's t at 97.5 % for 1 and 2 degrees of freedom, from printed tables."""


@pytest.mark.parametrize(
    ("values", "mean", "std", "half"),
    [
        ([0.4, 0.6], 0.5, 0.02**0.5, T1 * 0.1),
        ([0.4, 0.5, 0.9], 0.6, 0.07**0.5, T2 * (0.07 / 3) ** 0.5),
        ([0.25, 0.25, 0.25], 0.25, 0.0, 0.0),
    ],
)
def test_interval(values: list[float], mean: float, std: float, half: float) -> None:
    assert_close(interval(values), (mean, mean - half, mean + half, std))


def test_interval_at_another_level() -> None:
    mean, low, high, _ = interval([1.0, 2.0, 3.0], level=0.9)
    assert_close((mean, low, high), (2.0, 2 - 2.919985580 / 3**0.5, 2 + 2.919985580 / 3**0.5))


def test_one_value_has_no_spread() -> None:
    mean, *rest = interval([0.5])
    assert mean == 0.5
    assert np.isnan(rest).all()


def test_a_table_has_the_interval_of_each_group() -> None:
    """Groups of 3, 1 and 2 repeats, their rows mixed; each value as if it stood alone."""
    rows = [("y", 2, 0.4, 5.0), ("x", 3, 0.5, 7.0), ("y", 2, 0.6, 2.0), ("x", 2, 0.1, 1.0),
            ("x", 3, 0.8, 11.0), ("x", 3, 0.9, 13.0)]  # fmt: skip
    table = pd.DataFrame(rows, columns=["a", "b", "v", "w"])
    got = interval_table(table, ["a", "b"], ["v", "w"])
    assert got[["a", "b", "count"]].to_numpy().tolist() == [["x", 2, 1], ["x", 3, 3], ["y", 2, 2]]
    for value in ("v", "w"):
        for row in got.to_dict("records"):
            alone = table[(table["a"] == row["a"]) & (table["b"] == row["b"])][value]
            ends = [row[f"{value}_{end}"] for end in ("mean", "low", "high", "std")]
            np.testing.assert_array_equal(ends, interval(alone))
    by_row = interval_table(table, ["a", "b"], ["v"], sort=False)
    assert by_row[["a", "b"]].to_numpy().tolist() == [["y", 2], ["x", 3], ["x", 2]]
    assert_close(by_row["v_mean"].tolist(), [0.5, 2.2 / 3, 0.1])
    empty = interval_table(table[:0], ["a", "b"], ["v"])
    assert empty.empty
    assert empty.columns.tolist() == ["a", "b", "count", "v_mean", "v_low", "v_high", "v_std"]


def test_slope() -> None:
    assert slope([1, 2, 3], [3, 5, 7]) == pytest.approx((2, 2, 2))
    middle, low, high = slope([0, 1, 2, 3], [0, 1, 1, 2])  # residual variance 0.1, sum of squares 5
    assert middle == pytest.approx(0.6)
    assert high - middle == pytest.approx(middle - low) == pytest.approx(T2 * 0.02**0.5)
