"""Two arms on the same images: differences, ratios and their change, paired by (draw, seed).

`runs` is a table of finished runs of one kind: columns model, size, draw, seed and the measures.
Every interval is Student's t over draws. Seeds of a draw share its images, so they are averaged
first; one draw gives its point and NaN for the interval.
"""

import numpy as np
import pandas as pd

from vision_attn.stats.intervals import interval_table

__all__ = ["changes", "changes_of", "differences", "error_ratio", "protocol_split"]

_PAIR = ["size", "draw", "seed"]


def differences(runs: pd.DataFrame, a: str, b: str, measure: str = "test_acc") -> pd.DataFrame:
    """`a - b` at each size.

    `fitted` is the share of fitted runs among those of both models.
    """
    pairs = _pairs(runs, measure, a, b)
    table = _over_draws({"mean": pairs[a] - pairs[b]})
    fit = _pairs(runs, "fitted", a, b).loc[pairs.index]
    table["fitted"] = ((fit[a] + fit[b]) / 2).groupby("size").mean().to_numpy()
    return table.rename(columns={"mean_low": "low", "mean_high": "high"})


def error_ratio(runs: pd.DataFrame, a: str, b: str) -> pd.DataFrame:
    """Geometric mean of error(b) / error(a) at each size; t on logarithms.

    A constant ratio is two parallel lines in error on log-log axes, however the difference in
    points shrinks. Where a run makes no error at all there is no ratio: NaN.
    """
    errors = 1 - _pairs(runs, "test_acc", a, b)
    logs = np.log(errors.where(errors > 0))
    table = _over_draws({"ratio": logs[b] - logs[a]})
    names = ["ratio", "ratio_low", "ratio_high"]
    table[names] = np.exp(table[names])
    return table.rename(columns={"ratio_low": "low", "ratio_high": "high"})


def protocol_split(
    epochs: pd.DataFrame, steps: pd.DataFrame, a: str, b: str, measure: str = "test_acc"
) -> pd.DataFrame:
    """The difference `a - b` under equal epochs as a sum of two parts, at each size.

    `total` (under epochs) = `generalisation` (under equal updates) + `undertraining` (what equal
    epochs add to it). Only the (draw, seed) that both models have under both protocols count.
    Each part has an interval of its own, `_low` and `_high`.

    Args:
        epochs, steps: the runs under either protocol.
    """
    pairs = _pairs(epochs, measure, a, b).join(
        _pairs(steps, measure, a, b), lsuffix=" epochs", rsuffix=" steps", how="inner"
    )
    total = pairs[f"{a} epochs"] - pairs[f"{b} epochs"]
    same = pairs[f"{a} steps"] - pairs[f"{b} steps"]
    return _over_draws({"total": total, "undertraining": total - same, "generalisation": same})


def changes(runs: pd.DataFrame, a: str, b: str, small: int, large: int) -> pd.DataFrame:
    """How the difference of two models changes from one size to another, a row a draw.

    Columns `points`, the change of accuracy(a) - accuracy(b), and `log_ratio`, that of the
    logarithm of error(b) / error(a), NaN where a run makes no error. Only the (draw, seed) that
    both models have at both sizes count.
    """
    errors = 1 - _pairs(runs, "test_acc", a, b)
    logs = np.log(errors.where(errors > 0))
    apart = pd.DataFrame({"points": errors[b] - errors[a], "log_ratio": logs[b] - logs[a]})
    return _between(apart, small, large)


def changes_of(
    runs: pd.DataFrame, a: str, b: str, measure: str, small: int, large: int
) -> pd.Series:
    """How `a - b` in a measure changes from one size to another, a value a draw, as `changes`."""
    pairs = _pairs(runs, measure, a, b)
    return _between(pd.DataFrame({measure: pairs[a] - pairs[b]}), small, large)[measure]


def _between(apart: pd.DataFrame, small: int, large: int) -> pd.DataFrame:
    """Differences at the large size minus those at the small one, a row a draw that has both."""
    sizes = apart.index.get_level_values("size")
    before, after = (apart[sizes == size].droplevel("size") for size in (small, large))
    both = before.index.intersection(after.index)
    return _draw_means(after.loc[both] - before.loc[both], ["draw"])


def _pairs(runs: pd.DataFrame, measure: str, a: str, b: str) -> pd.DataFrame:
    """One row a (size, draw, seed) that both models have, one column a model."""
    runs = runs[runs["model"].isin((a, b))].astype({measure: float})
    wide = runs.pivot_table(index=_PAIR, columns="model", values=measure, aggfunc="mean")
    return wide.reindex(columns=list(dict.fromkeys((a, b)))).dropna()


def _over_draws(parts: dict[str, pd.Series]) -> pd.DataFrame:
    """Each part's mean over draws with `_low` and `_high`, one row a size, and their count."""
    draws = _draw_means(pd.DataFrame(parts), ["size", "draw"])
    table = interval_table(draws.reset_index(), ["size"], list(parts))
    ends = [f"{name}_{end}" for name in parts for end in ("mean", "low", "high")]
    return table[["size", "count", *ends]].rename(columns={f"{n}_mean": n for n in parts})


def _draw_means(pairs: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Means over the seeds of a draw; NaN where one of them has no value."""
    return pairs.groupby(by).mean().mask(pairs.isna().groupby(by).any())
