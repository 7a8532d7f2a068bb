"""Two models in one setting: every difference, ratio and change, paired by draw and seed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vision_attn.stats.multiplier import Crossing, crossing, data_multiplier
from vision_attn.stats.paired import RATIO, changes, differences, paired, protocol_split
from vision_attn.stats.resample import paired_bootstrap
from vision_attn.study.results import select

__all__ = [
    "CONTROLS",
    "MEASURES",
    "ON_IMAGES",
    "PROTOCOLS",
    "STOPPED",
    "Change",
    "Comparison",
    "Measure",
    "Setting",
    "compared",
    "turned",
    "whole",
]

PROTOCOLS = {"steps": "equal updates", "epochs": "equal epochs"}
CONTROLS = {
    "none": "images as they are",
    "permuted": "pixels permuted",
    "shuffled": "labels shuffled",
    "untuned": "not tuned",
}

STOPPED = ("best_test_acc", "best_test_loss")
"""Of the weights with the lowest validation loss; stored by later studies only."""

ON_IMAGES = "test_acc_images"
"""The difference in test accuracy with an interval for other test images too."""


class Measure(NamedTuple):
    """What two models are compared in.

    Args:
        name: in a sentence.
        title: of a column or row, with `a` and `b` for the two models.
        form: of its numbers; `%` stands for a share in points of per cent.
        verb: what the one with more of it does.
    """

    name: str
    title: str
    form: str
    verb: str = ""


MEASURES = {
    "test_acc": Measure("accuracy", "accuracy, {a} minus {b}, points", "%", "is ahead"),
    "gap": Measure("the gap in accuracy", "gap, {b} minus {a}, points", "%", "overfits more"),
    "test_loss": Measure("test loss", "test loss, {b} minus {a}", ".2f", "is worse"),
    "val_loss_rise": Measure(
        "the rise of validation loss",
        "rise of validation loss, {b} minus {a}",
        ".2f",
        "overfits more",
    ),
    "online_gap": Measure(
        "offline minus online error",
        "offline minus online error, {b} minus {a}, points",
        "%",
        "overfits more",
    ),
    RATIO: Measure("the ratio of errors", "test error, {b} over {a}", ".2f"),
    "best_test_acc": Measure("early-stopped accuracy", "accuracy, {a} minus {b}, points", "%"),
    "best_test_loss": Measure("early-stopped test loss", "test loss, {b} minus {a}", ".2f"),
    ON_IMAGES: Measure("accuracy", "the same, for other test images too", "%"),
}
_FIRST_MINUS_SECOND = ("test_acc", ON_IMAGES, "best_test_acc")


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
        names = ((CONTROLS, self.control), (PROTOCOLS, self.protocol))
        return tuple(([*known, name].index(name), name) for known, name in names)

    def of(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of a table that are of this setting."""
        if table.empty:
            return table
        return table[(table["protocol"] == self.protocol) & (table["control"] == self.control)]


class Change(NamedTuple):
    """The change of a difference from the smallest shared size to the largest.

    Mean and 95 % interval over the draws that have both sizes; NaN where there are too few.
    """

    mean: float = np.nan
    low: float = np.nan
    high: float = np.nan
    draws: int = 0


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two models in one setting, paired by draw and seed.

    Args:
        first, second: the two models, the reference first.
        setting: what they are compared in.
        rows: a row a `measure` and `size`, with `mean`, `low`, `high`, `count` and `fitted`. In
            accuracy the first minus the second, in other measures the second minus the first;
            `error_ratio` is the error of the second over the first's.
        changes: by measure, from the smallest size to the largest; of the ratio's logarithm.
        multiplier: how many times the images `second` needs; as of `data_multiplier`.
        log_rows: validation losses in the shortest log of both; 0 where none are stored.
        crossing: where the curves meet; only of the pair in the main setting.
        split: the difference under equal epochs in two parts, as of `protocol_split`; likewise.
    """

    first: str
    second: str
    setting: Setting
    rows: pd.DataFrame
    changes: Mapping[str, Change]
    multiplier: pd.DataFrame
    log_rows: int = 0
    crossing: Crossing | None = None
    split: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def points(self) -> pd.DataFrame:
        """Test accuracy of `first` minus `second`, a row a size."""
        return self.table("test_acc")

    def table(self, measure: str) -> pd.DataFrame:
        """The differences in a measure; empty where it is not stored."""
        return self.rows[self.rows["measure"] == measure]

    def change(self, measure: str) -> Change:
        """The change in a measure; of no draws where it has fewer than two sizes."""
        return self.changes.get(measure, Change())


def compared(
    results: pd.DataFrame, setting: Setting, first: str, correct: Mapping[tuple[Any, ...], Any]
) -> dict[str, Comparison]:
    """The first model with every other one of a setting; nothing where it is not there.

    Args:
        results: that hold the runs of every setting.
        correct: as of `StoredStudy`.
    """
    runs = select(results, *setting)
    runs = runs if "rows" in runs else runs.assign(rows=0)
    models = sorted(runs["model"].unique())
    if first not in models:
        return {}
    pairs = paired(runs, first, [m for m in MEASURES if m == RATIO or m in runs])
    rows, moved = turned(differences(pairs)), turned(changes(pairs))
    rows = pd.concat([rows, *_on_images(pairs, rows, first, setting, correct)])
    return {
        m: Comparison(
            first,
            m,
            setting,
            rows[rows["model"] == m].drop(columns="model"),
            {
                r["measure"]: Change(r["mean"], r["low"], r["high"], r["count"])
                for r in moved[moved["model"] == m].to_dict("records")
            },
            data_multiplier(runs, first, m),
            int(np.nan_to_num(runs.loc[runs["model"].isin((first, m)), "rows"].min())),
        )
        for m in models
        if m != first
    }


def turned(table: pd.DataFrame) -> pd.DataFrame:
    """Accuracies of the second model minus the first the other way round, and so back again."""
    rows = table["measure"].isin(_FIRST_MINUS_SECOND)
    table = table.copy()
    ends = -table.loc[rows, ["mean", "high", "low"]].to_numpy()
    table.loc[rows, ["mean", "low", "high"]] = ends
    return table


def _on_images(
    pairs: pd.DataFrame,
    rows: pd.DataFrame,
    first: str,
    setting: Setting,
    correct: Mapping[tuple[Any, ...], Any],
) -> Iterator[pd.DataFrame]:
    """The difference in accuracy where all its runs have stored which images they get right."""
    runs = pairs[pairs["measure"] == "test_acc"] if correct else pairs[:0]
    for (model, size), at in runs.groupby(["model", "size"], sort=False):
        draws: dict[int, list[Any]] = {}
        for draw, seed in at[["draw", "seed"]].itertuples(index=False):
            both = [correct.get((m, size, *setting, draw, seed)) for m in (first, model)]
            draws.setdefault(draw, []).append(both)
        if any(answers is None for seeds in draws.values() for both in seeds for answers in both):
            continue
        a, b = np.stack([np.mean(seeds, 0) for seeds in draws.values()], 1)
        ends = dict(zip(("mean", "low", "high"), paired_bootstrap(a, b), strict=True))
        same = (rows["measure"] == "test_acc") & (rows["model"] == model) & (rows["size"] == size)
        yield rows[same].assign(measure=ON_IMAGES, **ends)


def whole(comparison: Comparison, results: pd.DataFrame) -> Comparison:
    """With what is asked only of the two models that a study is about."""
    c, setting = comparison, comparison.setting
    runs = select(results, *setting)
    split = pd.DataFrame()
    if setting.protocol == "steps":  # elsewhere there is no second part
        epochs = select(results, "epochs", setting.control)
        split = protocol_split(epochs, runs, c.first, c.second)
    return replace(c, crossing=crossing(runs, c.first, c.second), split=split)
