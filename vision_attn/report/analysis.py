"""All that a report says, computed once from the stored results; the rest of the package renders.

Figures, tables, sentences and the page read an `Analysis` and compute no statistic of their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from vision_attn.errors import UserError
from vision_attn.models.registry import attends
from vision_attn.report.comparison import (
    CONTROLS,
    PROTOCOLS,
    Change,
    Comparison,
    Setting,
    compared,
)
from vision_attn.stats.power_law import PowerLaw, errors_of, fit_law
from vision_attn.study.result import RUN
from vision_attn.study.results import StoredStudy, select, summarise

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


@dataclass(frozen=True, eq=False)
class Analysis:
    """What the results of a study say.

    Args:
        stored: what was read: results, studies, tries of the tuning.
        archs: the model that each label stands for; a label without one is its own.
        settings: every protocol and control, the main one first.
        summary: mean and interval of each measure, a row a (model, protocol, control, size).
        pair: the two models that the study is about, the CNN first; None with one model.
        comparisons: in each setting the first of the pair with every other model, by its label.
        laws: the power law of each model that has one.
        refused: why a model has none.
        training: mean logs without a control.
        attention: mean measures of attention, in the main setting.
    """

    stored: StoredStudy
    archs: Mapping[str, str]
    settings: tuple[Setting, ...]
    summary: pd.DataFrame
    pair: tuple[str, str] | None
    comparisons: Mapping[Setting, Mapping[str, Comparison]]
    laws: Mapping[str, PowerLaw]
    refused: Mapping[str, str]
    training: pd.DataFrame
    attention: pd.DataFrame

    @property
    def setting(self) -> Setting:
        """What the conclusions are about: equal updates on plain images where there are any."""
        return self.settings[0]

    @property
    def comparison(self) -> Comparison | None:
        """The pair in the main setting; None with one model."""
        return self.comparisons[self.setting][self.pair[1]] if self.pair else None

    @property
    def accuracy(self) -> dict[Setting, pd.DataFrame]:
        """Test accuracy of the first of the pair minus the second, in each setting of both."""
        if self.pair is None:
            return {}
        second = self.pair[1]
        return {s: by[second].points for s, by in self.comparisons.items() if second in by}

    @property
    def others(self) -> dict[str, pd.DataFrame]:
        """Test accuracy of the first of the pair minus each other model, in the main setting."""
        return {model: c.points for model, c in self.comparisons[self.setting].items()}

    @property
    def data(self) -> str:
        """What the images are called; empty where no study.yaml is stored."""
        data = [study["identity"]["data"] for study in self.stored.studies.values()]
        return " and ".join(sorted({str(d.get("label") or d["name"]) for d in data}))

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


def analyse(stored: StoredStudy) -> Analysis:
    """Every statistic of a report, each computed once."""
    results = stored.results
    if len(stored.rises):
        results = results.merge(stored.rises, "left", list(RUN))
    archs = {str(m): stored.archs.get(str(m), str(m)) for m in results["model"].unique()}
    summary = summarise(results)
    kinds = set(zip(summary["protocol"], summary["control"], strict=True))
    settings = tuple(sorted((Setting(*kind) for kind in kinds), key=lambda s: s.rank))
    main = settings[0]
    models = sorted(main.of(summary)["model"].unique())
    args = {str(m): a for study in stored.studies.values() for m, a in study["args"].items()}
    pair = choose_pair(models, archs, args)
    comparisons = {s: _against(results, s, pair[0] if pair else None) for s in settings}
    laws, refused = _laws(select(results, *main), models)
    log = stored.training
    return Analysis(
        stored=stored,
        archs=archs,
        settings=settings,
        summary=summary,
        pair=pair,
        comparisons=comparisons,
        laws=laws,
        refused=refused,
        training=log[log["control"] == main.control] if len(log) else log,
        attention=main.of(stored.attention),
    )


def choose_pair(
    models: list[str], archs: Mapping[str, str], args: Mapping[str, Mapping[str, Any]]
) -> tuple[str, str] | None:
    """The two models that the study is about: the CNN and the attention classifier.

    `cnn` and `vit` where they are there, else the first of each kind, else the first two. A label
    is of a kind by the model that it stands for and by its arguments.
    """
    if len(models) < 2:
        return None

    def distance(model: str, name: str, attending: bool) -> tuple[Any, ...]:
        arch = archs.get(model, model)
        return model != name, arch != name, attends(arch, args.get(model)) is not attending, model

    first = min(models, key=lambda m: distance(m, "cnn", False))
    rest = [m for m in models if m != first]
    return first, min(rest, key=lambda m: distance(m, "vit", True))


def _against(
    results: pd.DataFrame, setting: Setting, reference: str | None
) -> dict[str, Comparison]:
    """The reference with every other model of a setting; nothing where it is not there."""
    models = sorted(select(results, *setting)["model"].unique())
    if reference is None or reference not in models:
        return {}
    return {m: compared(results, reference, m, setting) for m in models if m != reference}


def _laws(runs: pd.DataFrame, models: list[str]) -> tuple[dict[str, PowerLaw], dict[str, str]]:
    """The law of each model, or why it has none."""
    laws, refused = {}, {}
    for model in models:
        try:
            laws[model] = fit_law(*errors_of(runs, model))
        except UserError as e:
            refused[model] = str(e)
    return laws, refused
