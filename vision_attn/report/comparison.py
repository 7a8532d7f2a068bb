"""Two models in one setting: every difference, ratio and change, paired by draw and seed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vision_attn.stats.intervals import interval
from vision_attn.stats.multiplier import Crossing, crossing, data_multiplier
from vision_attn.stats.paired import changes, changes_of, differences, error_ratio, protocol_split
from vision_attn.study.results import select

__all__ = ["CONTROLS", "PROTOCOLS", "Change", "Comparison", "Setting", "compared"]

PROTOCOLS = {"steps": "equal updates", "epochs": "equal epochs"}
CONTROLS = {
    "none": "images as they are",
    "permuted": "pixels permuted",
    "shuffled": "labels shuffled",
}


class Setting(NamedTuple):
    """A protocol and a control: runs of two settings are not compared with each other."""

    protocol: str
    control: str

    @property
    def words(self) -> str:
        """`equal updates`, or `equal updates, labels shuffled`."""
        control = [] if self.control == "none" else [CONTROLS.get(self.control, self.control)]
        return ", ".join([PROTOCOLS.get(self.protocol, self.protocol), *control])

    @property
    def rank(self) -> tuple[Any, ...]:
        """Plain images come first, and equal updates before equal epochs."""
        return (_rank(CONTROLS, self.control), _rank(PROTOCOLS, self.protocol))

    def of(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of a table that are of this setting."""
        if table.empty:
            return table
        return table[(table["protocol"] == self.protocol) & (table["control"] == self.control)]


def _rank(names: Mapping[str, str], name: str) -> tuple[int, str]:
    return (list(names).index(name), "") if name in names else (len(names), name)


class Change(NamedTuple):
    """The change of a difference from the smallest shared size to the largest.

    Mean and 95 % interval over the draws that have both sizes; NaN where there are too few.
    """

    mean: float
    low: float
    high: float
    draws: int


NO_CHANGE = Change(np.nan, np.nan, np.nan, 0)
"""Of fewer than two sizes."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two models in one setting, paired by draw and seed.

    Args:
        first, second: the two models, the CNN first.
        setting: what they are compared in.
        points: test accuracy of `first` minus `second`, a row a size; as of `differences`.
        gap: gap of `second` minus `first`.
        loss: test loss of `second` minus `first`; empty where losses are not stored.
        ratio: error of `second` over `first`; as of `error_ratio`.
        rise: how far the validation loss of `second` ends above its minimum, minus that of
            `first`; empty where no logs are stored.
        multiplier: how many times the images `second` needs; as of `data_multiplier`.
        crossing: where the curves meet.
        change: of the difference in accuracy, from the smallest size to the largest.
        ratio_change: of the logarithm of the ratio of errors.
        loss_change, rise_change: of `loss` and `rise`.
        log_rows: validation losses in the shortest log of both; 0 where none are stored.
        split: the difference under equal epochs in two parts; as of `protocol_split`.
    """

    first: str
    second: str
    setting: Setting
    points: pd.DataFrame
    gap: pd.DataFrame
    loss: pd.DataFrame
    rise: pd.DataFrame
    ratio: pd.DataFrame
    multiplier: pd.DataFrame
    crossing: Crossing
    change: Change
    ratio_change: Change
    loss_change: Change
    rise_change: Change
    log_rows: int
    split: pd.DataFrame


def compared(results: pd.DataFrame, first: str, second: str, setting: Setting) -> Comparison:
    """Two models in one setting, by results that hold the runs of every setting."""
    runs = select(results, *setting)
    points = differences(runs, first, second)
    sizes = points["size"].tolist()
    change = ratio_change = NO_CHANGE
    if len(sizes) > 1:
        table = changes(runs, first, second, sizes[0], sizes[-1])
        change, ratio_change = _change(table["points"]), _change(table["log_ratio"])
    loss, loss_change = _of_measure(runs, first, second, "test_loss")
    rise, rise_change = _of_measure(runs, first, second, "val_loss_rise")
    both = runs[runs["model"].isin((first, second))]
    rows = both["rows"].min() if "rows" in both else np.nan
    epochs = select(results, "epochs", setting.control)
    steps = runs if setting.protocol == "steps" else runs[:0]  # elsewhere there is no second part
    return Comparison(
        first=first,
        second=second,
        setting=setting,
        points=points,
        gap=differences(runs, second, first, "gap"),
        loss=loss,
        rise=rise,
        ratio=error_ratio(runs, first, second),
        multiplier=data_multiplier(runs, first, second),
        crossing=crossing(runs, first, second),
        change=change,
        ratio_change=ratio_change,
        loss_change=loss_change,
        rise_change=rise_change,
        log_rows=0 if np.isnan(rows) else int(rows),
        split=protocol_split(epochs, steps, first, second),
    )


def _of_measure(
    runs: pd.DataFrame, first: str, second: str, measure: str
) -> tuple[pd.DataFrame, Change]:
    """`second - first` in a measure that not all results have, and its change over the sizes."""
    stored = measure in runs and runs[measure].notna().any()
    if not stored:
        return pd.DataFrame(columns=["size", "count", "mean", "low", "high", "fitted"]), NO_CHANGE
    table = differences(runs, second, first, measure)
    sizes = table["size"].tolist()
    if len(sizes) < 2:
        return table, NO_CHANGE
    return table, _change(changes_of(runs, second, first, measure, sizes[0], sizes[-1]))


def _change(draws: pd.Series) -> Change:
    values = draws.dropna()
    if len(values) < 2:
        return Change(np.nan, np.nan, np.nan, len(values))
    mean, low, high, _ = interval(values)
    return Change(mean, low, high, len(values))
