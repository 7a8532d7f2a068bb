"""Curves over the size of the training set: means with 95 % t intervals over draws, differences."""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

__all__ = ["MEASURES", "differences", "interval", "summarise"]

MEASURES = ("test_acc", "train_acc", "gap", "test_loss")


def interval(values: ArrayLike, level: float = 0.95) -> tuple[float, float, float, float]:
    """Mean, low, high and standard deviation (ddof 1) of one number a draw, by Student's t.

    With one value there is no spread to speak of: low, high and deviation are NaN.
    """
    x = np.asarray(values, dtype=float)
    mean = float(x.mean())
    if len(x) < 2:
        return mean, np.nan, np.nan, np.nan
    std = float(x.std(ddof=1))
    half = float(stats.t.ppf((1 + level) / 2, len(x) - 1)) * std / len(x) ** 0.5
    return mean, mean - half, mean + half, std


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """One row a (model, size): count of draws, share of fitted runs, and each measure.

    Seeds of a draw are averaged first, since they share its images. Failed cells do not count.
    """
    good = results[results["status"] == "ok"]
    rows = []
    for (model, size), cell in good.groupby(["model", "size"], sort=True):
        draws = cell.groupby("draw")[list(MEASURES)].mean()
        row = {
            "model": model,
            "size": size,
            "count": len(draws),
            "fitted": float(cell["fitted"].astype(bool).mean()),
            "params": cell["params"].iloc[0],
            "flops": cell["flops"].iloc[0],
        }
        for name in MEASURES:
            values = dict(zip(("mean", "low", "high", "std"), interval(draws[name]), strict=True))
            row |= {f"{name}_{k}": v for k, v in values.items()}
        rows.append(row)
    return pd.DataFrame(rows)


def differences(results: pd.DataFrame, first: str, second: str, measure: str) -> pd.DataFrame:
    """`first - second` at each size, paired by draw: the two saw the same images."""
    good = results[results["status"] == "ok"]
    rows = []
    for size, cell in good.groupby("size", sort=True):
        wide = cell.pivot_table(index="draw", columns="model", values=measure, aggfunc="mean")
        if {first, second} <= set(wide.columns):
            pairs = (wide[first] - wide[second]).dropna()
            if len(pairs):
                mean, low, high, _ = interval(pairs)
                rows.append(
                    {"size": size, "count": len(pairs), "mean": mean, "low": low, "high": high}
                )
    return pd.DataFrame(rows, columns=["size", "count", "mean", "low", "high"])
