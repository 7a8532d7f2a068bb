"""Where two models change places, over the size of the training set and over another axis."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vision_attn.stats.intervals import interval

__all__ = ["boundaries"]


def boundaries(draws: pd.DataFrame) -> pd.DataFrame:
    """Where the attention model and an opponent change places.

    Along p at each size, and along the logarithm of the size at each p, a straight line between
    neighbours gives the zero of each draw. There is a boundary where every draw has just one, and
    its interval is Student's t over draws; else `mean` is NaN.

    Args:
        draws: opponent, p, size, draw and `value`, the attention model minus the opponent.

    Returns:
        opponent, axis (`p` or `size`), `at` which place of the other one, mean, low, high, in how
        many draws (`crossed`) of how many (`count`), and `first` and `last`: the mean difference
        at both ends of the axis.
    """
    rows = []
    for (opponent, axis, at), curves in _curves(draws):
        zeros = [_zeros(x, y) for x, y in curves]
        once = [z[0] for z in zeros if len(z) == 1]
        mean = low = high = np.nan
        if len(once) == len(curves):
            mean, low, high, _ = interval(once)
            if axis == "size":
                mean, low, high = (float(np.exp(v)) for v in (mean, low, high))
        first, last = (float(np.mean([y[end] for _, y in curves])) for end in (0, -1))
        found = (mean, low, high, len(once), len(curves), first, last)
        rows.append((opponent, axis, at, *found))
    names = ["opponent", "axis", "at", "mean", "low", "high", "crossed", "count", "first", "last"]
    return pd.DataFrame(rows, columns=names)


Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


def _curves(draws: pd.DataFrame) -> Iterator[tuple[tuple[str, str, float], list[Curve]]]:
    """The curves of all draws along one axis at one place of the other, seeds averaged."""
    table = draws.groupby(["opponent", "p", "size", "draw"])["value"].mean().reset_index()
    for axis, other in (("p", "size"), ("size", "p")):
        for (opponent, _), rows in table.groupby(["opponent", other]):
            curves = []
            for _, curve in rows.groupby("draw"):
                x = curve.sort_values(axis)[axis].to_numpy(float)
                y = curve.sort_values(axis)["value"].to_numpy(float)
                curves.append((np.log(x) if axis == "size" else x, y))
            longest = max(len(x) for x, _ in curves)
            whole = [curve for curve in curves if len(curve[0]) == longest]
            if longest > 1:
                yield (str(opponent), axis, float(rows[other].iloc[0])), whole


def _zeros(x: NDArray[np.float64], y: NDArray[np.float64]) -> list[float]:
    """Where straight lines between neighbours cross zero."""
    steps = zip(pairwise(x.tolist()), pairwise(y.tolist()), strict=True)
    return [a + (b - a) * c / (c - d) for (a, b), (c, d) in steps if c * d < 0 or (c == 0 != d)]
