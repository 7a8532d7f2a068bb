"""Rows of results as the statistics take them: completed, picked by setting, summarised."""

import pandas as pd

from vision_attn.stats.intervals import interval_table

__all__ = ["MEASURES", "complete", "select", "summarise"]

MEASURES = ("test_acc", "train_acc", "gap", "test_loss", "train_loss", "loss_gap")

_LATER = {"protocol": "steps", "control": "none"}
"""Columns that are missing from results of an earlier version, and what such runs were."""


def complete(results: pd.DataFrame) -> pd.DataFrame:
    """A copy with the columns `protocol` and `control`; where missing, `steps` and `none`."""
    results = results.copy()
    for name, default in _LATER.items():
        if name not in results:
            results[name] = default
        else:
            stored = results[name].astype(object)
            results[name] = stored.where(stored.notna() & (stored != ""), default)
    return results


def select(results: pd.DataFrame, protocol: str, control: str) -> pd.DataFrame:
    """The finished runs of one protocol and control."""
    return results[
        (results["status"] == "ok")
        & (results["protocol"] == protocol)
        & (results["control"] == control)
    ]


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """One row a (model, protocol, control, size): draws, share of fitted runs, each measure.

    Seeds of a draw are averaged first, since they share its images. Failed cells do not count.
    `gap` and `loss_gap` are train minus test. A measure that the results do not have is left out.
    """
    good = results[results["status"] == "ok"]
    if {"train_loss", "test_loss"} <= set(good):
        good = good.assign(loss_gap=good["train_loss"] - good["test_loss"])
    measures = [m for m in MEASURES if m in good]
    good = good.astype(dict.fromkeys(measures, float) | {"fitted": bool})
    keys = ["model", "protocol", "control", "size"]
    draws = good.groupby([*keys, "draw"])[measures].mean().reset_index()
    table = interval_table(draws, keys, measures)
    facts = good.groupby(keys, as_index=False).agg(
        fitted=("fitted", "mean"), params=("params", "first"), flops=("flops", "first")
    )
    for place, name in enumerate(("fitted", "params", "flops"), len(keys) + 1):
        table.insert(place, name, facts[name])
    return table
