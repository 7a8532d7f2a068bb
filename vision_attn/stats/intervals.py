"""Student's t: the interval of a mean over repeats, of many means at once, and of a slope.

One repeat gives its value and NaN for the interval.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

__all__ = ["Floats", "interval", "interval_table", "slope"]

Floats = NDArray[np.float64]

_ENDS = ("mean", "low", "high", "std")


def interval(values: ArrayLike, level: float = 0.95) -> tuple[float, float, float, float]:
    """Mean, low, high and standard deviation (ddof 1) of one number a repeat."""
    mean, low, high, std = _intervals(np.asarray(values, dtype=float), level).tolist()
    return mean, low, high, std


def interval_table(
    table: pd.DataFrame, by: Sequence[str], values: Sequence[str], *, sort: bool = True
) -> pd.DataFrame:
    """One row a group of rows that share `by`, as repeats of `values`.

    Returns:
        `by`, `count`, and of each value its `_mean`, `_low`, `_high` (95 %) and `_std`. Groups are
        sorted, or with `sort=False` in the order of their first rows.
    """
    groups = table.groupby(list(by), sort=sort)
    counts = groups.size()
    content = table[list(values)].to_numpy(float)[groups.ngroup().argsort(kind="stable")]
    names = [f"{value}_{end}" for value in values for end in _ENDS]
    ends = np.empty((len(counts), len(values), len(_ENDS)))
    size = counts.to_numpy()
    first = size.cumsum() - size
    for count in np.unique(size):  # those with as many repeats, all at once
        rows = first[size == count][:, None] + np.arange(count)
        ends[size == count] = _intervals(np.ascontiguousarray(content[rows].swapaxes(1, 2)))
    result = pd.DataFrame(ends.reshape(len(counts), len(names)), counts.index, names)
    result.insert(0, "count", size)
    return result.reset_index()


def slope(x: ArrayLike, y: ArrayLike, level: float = 0.95) -> tuple[float, float, float]:
    """Slope of a straight line by least squares, and its interval."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    from scipy.stats import linregress  # of which a report needs nothing, and that takes long

    fit: Any = linregress(x, y)
    half = _reach(level, len(x) - 2) * float(fit.stderr)
    return float(fit.slope), float(fit.slope) - half, float(fit.slope) + half


def _intervals(x: Floats, level: float = 0.95) -> Floats:
    """Repeats on the last axis (..., R) -> mean, low, high and deviation (..., 4)."""
    repeats = x.shape[-1]
    mean = x.mean(-1)
    if repeats < 2:
        nothing = np.full_like(mean, np.nan)
        return np.stack([mean, nothing, nothing, nothing], -1)
    std = x.std(-1, ddof=1)
    half = _reach(level, repeats - 1) * std / repeats**0.5
    return np.stack([mean, mean - half, mean + half, std], -1)


def _reach(level: float, freedoms: int) -> float:
    """Standard errors from the middle of an interval to its end."""
    return float(stdtrit(freedoms, (1 + level) / 2))
