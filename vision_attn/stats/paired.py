"""Curves over the size of the training set: means, paired differences and ratios, with intervals.

Every interval is Student's t over draws. Seeds of a draw share its images, so they are averaged
first; one draw gives its point and NaN for the interval.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

__all__ = [
    "MEASURES",
    "complete",
    "differences",
    "error_ratio",
    "interval",
    "protocol_split",
    "select",
    "summarise",
]

MEASURES = ("test_acc", "train_acc", "gap", "test_loss", "train_loss", "loss_gap")

_LATER = {"protocol": "steps", "control": "none"}
"""Columns that results of an earlier version lack, and what such runs were."""


def complete(results: pd.DataFrame) -> pd.DataFrame:
    """A copy with the columns `protocol` and `control`; where they lack, `steps` and `none`."""
    results = results.copy()
    for name, default in _LATER.items():
        if name not in results:
            results[name] = default
        else:
            held = results[name].astype(object)
            results[name] = held.where(held.notna() & (held != ""), default)
    return results


def select(results: pd.DataFrame, protocol: str, control: str) -> pd.DataFrame:
    """The finished runs of one protocol and control."""
    full = complete(results)
    return full[
        (full["status"] == "ok") & (full["protocol"] == protocol) & (full["control"] == control)
    ]


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
    """One row a (model, protocol, control, size): draws, share of fitted runs, each measure.

    Seeds of a draw are averaged first, since they share its images. Failed cells do not count.
    `gap` and `loss_gap` are train minus test. A measure that the results lack is left out.
    """
    good = complete(results)
    good = good[good["status"] == "ok"]
    if {"train_loss", "test_loss"} <= set(good):
        good = good.assign(loss_gap=good["train_loss"] - good["test_loss"])
    measures = [m for m in MEASURES if m in good]
    keys = ["model", "protocol", "control", "size"]
    rows = []
    for names, cell in good.groupby(keys, sort=True):
        draws = cell.groupby("draw")[measures].mean()
        row = dict(zip(keys, names, strict=True)) | {
            "count": len(draws),
            "fitted": float(cell["fitted"].astype(bool).mean()),
            "params": cell["params"].iloc[0],
            "flops": cell["flops"].iloc[0],
        }
        for name in measures:
            values = dict(zip(("mean", "low", "high", "std"), interval(draws[name]), strict=True))
            row |= {f"{name}_{k}": v for k, v in values.items()}
        rows.append(row)
    return pd.DataFrame(rows)


def differences(
    results: pd.DataFrame,
    a: str,
    b: str,
    measure: str = "test_acc",
    *,
    protocol: str = "steps",
    control: str = "none",
) -> pd.DataFrame:
    """`a - b` at each size, paired by (draw, seed): the two saw the same images.

    `fitted` is the share of fitted runs among those of both models.
    """
    rows = []
    for size, cell in _at_sizes(select(results, protocol, control)):
        pairs = _pairs(cell, "model", measure, (a, b))
        if len(pairs):
            row = _row("", (pairs[a] - pairs[b]).groupby("draw").mean())
            fit = _pairs(cell, "model", "fitted", (a, b)).loc[pairs.index, [a, b]]
            row["fitted"] = float(fit.to_numpy().mean())
            rows.append({"size": size, **row})
    return pd.DataFrame(rows, columns=["size", "count", "mean", "low", "high", "fitted"])


def error_ratio(
    results: pd.DataFrame, a: str, b: str, *, protocol: str = "steps", control: str = "none"
) -> pd.DataFrame:
    """Geometric mean of error(b) / error(a) at each size, paired by (draw, seed); t on logarithms.

    A constant ratio is two parallel lines in error on log-log axes, however the difference in
    points shrinks. Where a run makes no error at all there is no ratio: NaN.
    """
    rows = []
    for size, cell in _at_sizes(select(results, protocol, control)):
        pairs = 1 - _pairs(cell, "model", "test_acc", (a, b))
        if not len(pairs):
            continue
        logs = np.log(pairs.where(pairs > 0))
        row = _row("ratio", (logs[b] - logs[a]).groupby("draw").mean(skipna=False))
        values = {k: float(np.exp(row[k])) for k in ("ratio", "ratio_low", "ratio_high")}
        rows.append({"size": size, "count": row["count"], **values})
    table = pd.DataFrame(rows, columns=["size", "count", "ratio", "ratio_low", "ratio_high"])
    return table.rename(columns={"ratio_low": "low", "ratio_high": "high"})


def protocol_split(
    results: pd.DataFrame, a: str, b: str, measure: str = "test_acc", *, control: str = "none"
) -> pd.DataFrame:
    """The difference `a - b` under equal epochs as a sum of two parts, at each size.

    `total` (under epochs) = `generalisation` (under equal updates) + `undertraining` (what equal
    epochs add to it). Only the (draw, seed) that both models have under both protocols count.
    Each part has an interval of its own, `_low` and `_high`.
    """
    good = complete(results)
    good = good[(good["status"] == "ok") & (good["control"] == control)]
    good = good.assign(arm=good["model"] + " " + good["protocol"])
    arms = [f"{model} {protocol}" for model in (a, b) for protocol in ("epochs", "steps")]
    parts = ("total", "undertraining", "generalisation")
    rows = []
    for size, cell in _at_sizes(good):
        pairs = _pairs(cell, "arm", measure, arms)
        if not len(pairs):
            continue
        total, same = pairs[arms[0]] - pairs[arms[2]], pairs[arms[1]] - pairs[arms[3]]
        row: dict[str, float] = {"size": size}
        for name, value in zip(parts, (total, total - same, same), strict=True):
            row |= _row(name, value.groupby("draw").mean())
        rows.append(row)
    columns = [f"{p}{end}" for p in parts for end in ("", "_low", "_high")]
    return pd.DataFrame(rows, columns=["size", "count", *columns])


def _at_sizes(good: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    for size in sorted(set(good["size"].tolist())):
        yield int(size), good[good["size"] == size]


def _pairs(cell: pd.DataFrame, column: str, measure: str, arms: Sequence[str]) -> pd.DataFrame:
    """One row a (draw, seed) that every arm has, one column an arm."""
    cell = cell[cell[column].isin(arms)].astype({measure: float})
    wide = cell.pivot_table(index=["draw", "seed"], columns=column, values=measure, aggfunc="mean")
    return wide.reindex(columns=list(dict.fromkeys(arms))).dropna()


def _row(name: str, draws: pd.Series) -> dict[str, float]:
    mean, low, high, _ = interval(draws)
    keys = (name, f"{name}_low", f"{name}_high") if name else ("mean", "low", "high")
    return {"count": len(draws), **dict(zip(keys, (mean, low, high), strict=True))}
