"""Models on the same images: differences, ratios and their change, paired by (draw, seed).

`runs` is a table of finished runs of one kind: columns model, size, draw, seed, fitted and the
measures. Every interval is Student's t over draws. Seeds of a draw share its images, so they are
averaged first; one draw gives its point and NaN for the interval.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from vision_attn.stats.intervals import interval_table

__all__ = ["RATIO", "changes", "differences", "online_gaps", "paired", "protocol_split"]

RATIO = "error_ratio"
"""The measure whose difference is one of logarithms of the test error, so a ratio of errors.

A constant ratio is two parallel lines in error on log-log axes, however the difference in points
shrinks. Where a run makes no error at all there is no ratio.
"""

_RUN = ["size", "draw", "seed"]


def paired(
    runs: pd.DataFrame, reference: str, measures: Sequence[str] = ("test_acc",)
) -> pd.DataFrame:
    """Every other model minus the reference, a row a (model, measure, size, draw, seed) of both.

    `value` is the difference, infinite where a logarithm has none; `fitted` is the share of fitted
    runs among the two.
    """
    names = ["model", *_RUN, "fitted"]
    values = runs[names].astype({"fitted": float})
    for measure in measures:
        values[measure] = _log_errors(runs) if measure == RATIO else runs[measure].astype(float)
    long = values.melt(names, list(measures), "measure").dropna(subset="value")
    first = long["model"] == reference
    both = long[~first].merge(
        long[first].drop(columns="model"), on=["measure", *_RUN], suffixes=("", "_reference")
    )
    both["value"] = _minus(both["value"], both["value_reference"])
    both["fitted"] = (both["fitted"] + both["fitted_reference"]) / 2
    order = {measure: i for i, measure in enumerate(measures)}
    both = both.sort_values(
        ["model", "measure", *_RUN],
        key=lambda column: column.map(order) if column.name == "measure" else column,
    )
    return both[["model", "measure", *_RUN, "value", "fitted"]]


def differences(pairs: pd.DataFrame) -> pd.DataFrame:
    """Mean and interval of pairs, a row a (model, measure, size), with `count` of draws.

    That of `RATIO` is a geometric mean. `fitted` is the share of fitted runs.
    """
    by = ["model", "measure", "size"]
    table = _intervals(_draws(pairs, by), by)
    table["fitted"] = pairs.groupby(by, sort=False)["fitted"].mean().to_numpy()
    ends, ratio = ["mean", "low", "high"], table["measure"] == RATIO
    table.loc[ratio, ends] = np.exp(table.loc[ratio, ends])
    return table


def changes(pairs: pd.DataFrame) -> pd.DataFrame:
    """How pairs change from their smallest size to their largest, a row a (model, measure).

    Only the (draw, seed) that have both sizes count; that of `RATIO` is a difference of logarithms.
    """
    by = ["model", "measure"]
    sizes = pairs.groupby(by)["size"]
    small, large = sizes.transform("min"), sizes.transform("max")
    both = pairs[(pairs["size"] == large) & (large > small)].merge(
        pairs[pairs["size"] == small], on=[*by, "draw", "seed"], suffixes=("", "_small")
    )
    both["value"] = _minus(both["value"], both["value_small"])
    return _intervals(_draws(both, by).dropna(), by)


def protocol_split(epochs: pd.DataFrame, steps: pd.DataFrame, a: str, b: str) -> pd.DataFrame:
    """The difference `a - b` in test accuracy under equal epochs as a sum of two parts.

    `total` (under epochs) = `generalisation` (under equal updates) + `undertraining` (what equal
    epochs add to it), a row a size. Only the (draw, seed) that both models have under both
    protocols count. Each part has an interval of its own, `_low` and `_high`.

    Args:
        epochs, steps: the runs under either protocol.
        a, b: the two models.
    """
    under, same = (paired(runs[runs["model"].isin((a, b))], b) for runs in (epochs, steps))
    both = under.merge(same, on=_RUN, suffixes=("", "_steps"))
    parts = {
        "total": both["value"],
        "undertraining": both["value"] - both["value_steps"],
        "generalisation": both["value_steps"],
    }
    draws = both[_RUN].assign(**parts).groupby(["size", "draw"])[[*parts]].mean()
    table = interval_table(draws.reset_index(), ["size"], [*parts])
    ends = [f"{part}_{end}" for part in parts for end in ("mean", "low", "high")]
    return table[["size", "count", *ends]].rename(columns={f"{p}_mean": p for p in parts})


def online_gaps(results: pd.DataFrame) -> pd.DataFrame:
    """Results with offline minus online test error: what a run loses as it sees images again.

    A run is online where it sees each of its images once at most. Every other run is compared with
    the online one of the same model, draw, seed, protocol, control and number of updates, of
    several with that of the largest size: `online_size`, `online_acc` and `online_gap`, online
    minus offline test accuracy. The columns are missing where no run has an online one.
    """
    same = ["model", "protocol", "control", "draw", "seed", "steps"]
    runs = results[results["status"] == "ok"]
    once = runs["epochs"].astype(float) <= 1
    online = runs[once].sort_values("size").drop_duplicates(same, keep="last")
    names = {"size": "online_size", "test_acc": "online_acc"}
    online = online[[*same, *names]].rename(columns=names)
    both = runs[~once].reset_index().merge(online, on=same).set_index("index")
    if both.empty:
        return results
    both["online_gap"] = both["online_acc"].astype(float) - both["test_acc"].astype(float)
    return results.join(both[[*names.values(), "online_gap"]])


def _log_errors(runs: pd.DataFrame) -> pd.Series:
    """Infinite without errors, so that such a run is not left out as one without a value."""
    errors = 1 - runs["test_acc"].astype(float)
    logs = pd.Series(np.log(errors.where(errors > 0)), errors.index)
    return logs.where(errors != 0, np.inf)


def _minus(a: pd.Series, b: pd.Series) -> pd.Series:
    return (a - b).where(np.isfinite(a) & np.isfinite(b), np.inf)


def _draws(pairs: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Means over the seeds of a draw; NaN where one of them has no value."""
    means = pairs.groupby([*by, "draw"], sort=False)["value"].mean().reset_index()
    return means.assign(value=means["value"].where(np.isfinite(means["value"])))


def _intervals(draws: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    table = interval_table(draws, by, ["value"], sort=False)
    names = {f"value_{end}": end for end in ("mean", "low", "high")}
    return table[[*by, "count", *names]].rename(columns=names)
