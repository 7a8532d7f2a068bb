"""All that a report says, computed once from the stored results; the rest of the package renders.

Figures, tables, sentences and the page read an `Analysis` and compute no statistic of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vision_attn.errors import UserError
from vision_attn.models.families import attends
from vision_attn.stats.intervals import interval
from vision_attn.stats.multiplier import Crossing, crossing, data_multiplier
from vision_attn.stats.paired import changes, differences, error_ratio, protocol_split
from vision_attn.stats.power_law import PowerLaw, errors_of, fit_law
from vision_attn.study.results import Stored
from vision_attn.study.runs import select, summarise

__all__ = [
    "CONTROLS",
    "PROTOCOLS",
    "Analysis",
    "Change",
    "Comparison",
    "Setting",
    "analyse",
    "choose_pair",
]

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
        multiplier: how many times the images `second` needs; as of `data_multiplier`.
        crossing: where the curves meet.
        change: of the difference in accuracy, from the smallest size to the largest.
        ratio_change: of the logarithm of the ratio of errors.
        split: the difference under equal epochs in two parts; as of `protocol_split`.
    """

    first: str
    second: str
    setting: Setting
    points: pd.DataFrame
    gap: pd.DataFrame
    loss: pd.DataFrame
    ratio: pd.DataFrame
    multiplier: pd.DataFrame
    crossing: Crossing
    change: Change
    ratio_change: Change
    split: pd.DataFrame


@dataclass(frozen=True, eq=False)
class Analysis:
    """What the results of a study say.

    Args:
        stored: what was read: results, studies, tries of the tuning.
        archs: the model that each label stands for; a label without one is its own.
        settings: every protocol and control, the main one first.
        summary: mean and interval of each measure, a row a (model, protocol, control, size).
        comparison: of the two models that the study is about; None with one model.
        accuracy: test accuracy of the first of them minus the second, in each setting.
        others: test accuracy of the first minus each other model, in the main setting.
        laws: the power law of each model that has one.
        refused: why a model has none.
        training: mean logs without a control.
        attention: mean measures of attention, in the main setting.
    """

    stored: Stored
    archs: Mapping[str, str]
    settings: tuple[Setting, ...]
    summary: pd.DataFrame
    comparison: Comparison | None
    accuracy: Mapping[Setting, pd.DataFrame]
    others: Mapping[str, pd.DataFrame]
    laws: Mapping[str, PowerLaw]
    refused: Mapping[str, str]
    training: pd.DataFrame
    attention: pd.DataFrame

    @property
    def setting(self) -> Setting:
        """What the conclusions are about: equal updates on plain images where there are any."""
        return self.settings[0]

    @property
    def main(self) -> pd.DataFrame:
        """The summary of the main setting."""
        return self.setting.of(self.summary)

    @property
    def plain(self) -> pd.DataFrame:
        """The summary of the main control, under every protocol."""
        return self.summary[self.summary["control"] == self.setting.control]

    @property
    def tested(self) -> pd.DataFrame:
        """The summary of the main protocol, under every control."""
        return self.summary[self.summary["protocol"] == self.setting.protocol]

    @property
    def models(self) -> list[str]:
        """The models of the main setting."""
        return sorted(self.main["model"].unique())

    @property
    def failures(self) -> pd.DataFrame:
        """The runs that failed."""
        results = self.stored.results
        return results[results["status"] != "ok"]

    @property
    def costs(self) -> dict[str, dict[str, Any]]:
        """What study.yaml holds of each model's cost."""
        return {
            model: cost
            for study in self.stored.studies.values()
            for model, cost in study.get("costs", {}).items()
        }


def analyse(stored: Stored) -> Analysis:
    """Every statistic of a report, each computed once."""
    results = stored.results
    archs = {str(m): stored.archs.get(str(m), str(m)) for m in results["model"].unique()}
    summary = summarise(results)
    kinds = set(zip(summary["protocol"], summary["control"], strict=True))
    settings = tuple(sorted((Setting(*kind) for kind in kinds), key=lambda s: s.rank))
    runs = {setting: select(results, *setting) for setting in settings}
    main = settings[0]
    models = sorted(runs[main]["model"].unique())
    pair = choose_pair(models, archs)
    comparison, accuracy, others = None, {}, {}
    if pair:
        comparison = _compare(results, runs[main], *pair, main)
        accuracy = {main: comparison.points}
        for setting in settings[1:]:
            if set(pair) <= set(runs[setting]["model"]):
                accuracy[setting] = differences(runs[setting], *pair)
        others = {
            model: comparison.points if model in pair else differences(runs[main], pair[0], model)
            for model in models
            if model != pair[0]
        }
    laws, refused = _laws(runs[main], models)
    log = stored.training
    return Analysis(
        stored=stored,
        archs=archs,
        settings=settings,
        summary=summary,
        comparison=comparison,
        accuracy=accuracy,
        others=others,
        laws=laws,
        refused=refused,
        training=log[log["control"] == main.control] if len(log) else log,
        attention=main.of(stored.attention),
    )


def choose_pair(models: list[str], archs: Mapping[str, str]) -> tuple[str, str] | None:
    """The two models that the study is about: the CNN and the attention classifier.

    `cnn` and `vit` where they are there, else the first of each kind, else the first two.
    """
    if len(models) < 2:
        return None

    def distance(model: str, name: str, attending: bool) -> tuple[Any, ...]:
        arch = archs.get(model, model)
        return model != name, arch != name, attends(arch) is not attending, model

    first = min(models, key=lambda m: distance(m, "cnn", False))
    rest = [m for m in models if m != first]
    return first, min(rest, key=lambda m: distance(m, "vit", True))


def _compare(
    results: pd.DataFrame, runs: pd.DataFrame, first: str, second: str, setting: Setting
) -> Comparison:
    """Two models by the `runs` of one setting; `results` hold those of the other protocol too."""
    points = differences(runs, first, second)
    losses = "test_loss" in runs and runs["test_loss"].notna().any()
    change, ratio_change = _changes(runs, first, second, points["size"].tolist())
    epochs, steps = (select(results, name, setting.control) for name in ("epochs", "steps"))
    return Comparison(
        first=first,
        second=second,
        setting=setting,
        points=points,
        gap=differences(runs, second, first, "gap"),
        loss=differences(runs, second, first, "test_loss") if losses else points[:0],
        ratio=error_ratio(runs, first, second),
        multiplier=data_multiplier(runs, first, second),
        crossing=crossing(runs, first, second),
        change=change,
        ratio_change=ratio_change,
        split=protocol_split(epochs, steps, first, second),
    )


def _changes(
    runs: pd.DataFrame, first: str, second: str, sizes: list[int]
) -> tuple[Change, Change]:
    """The change of the difference in accuracy, and of the logarithm of the ratio of errors."""
    if len(sizes) < 2:
        none = Change(np.nan, np.nan, np.nan, 0)
        return none, none
    table = changes(runs, first, second, sizes[0], sizes[-1])
    return _change(table["points"]), _change(table["log_ratio"])


def _change(draws: pd.Series) -> Change:
    values = draws.dropna()
    if len(values) < 2:
        return Change(np.nan, np.nan, np.nan, len(values))
    mean, low, high, _ = interval(values)
    return Change(mean, low, high, len(values))


def _laws(runs: pd.DataFrame, models: list[str]) -> tuple[dict[str, PowerLaw], dict[str, str]]:
    """The law of each model, or why it has none."""
    laws, refused = {}, {}
    for model in models:
        try:
            laws[model] = fit_law(*errors_of(runs, model))
        except UserError as e:
            refused[model] = str(e)
    return laws, refused
