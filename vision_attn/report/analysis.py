"""All that a report says, computed once from the stored results; the rest of the package renders.

Figures, tables, sentences and the page read an `Analysis` and compute no statistic of their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from vision_attn.errors import UserError
from vision_attn.report.comparison import (
    CONTROLS,
    PROTOCOLS,
    STOPPED,
    Comparison,
    Setting,
    compared,
    turned,
    whole,
)
from vision_attn.report.looks import attending
from vision_attn.stats.intervals import interval_table
from vision_attn.stats.paired import online_gaps
from vision_attn.stats.power_law import PowerLaw, errors_of, fit_law
from vision_attn.study.result import RUN
from vision_attn.study.results import StoredStudy, select, summarise

__all__ = ["CONTROLS", "PROTOCOLS", "Analysis", "Comparison", "Setting", "analyse", "choose_pair"]


@dataclass(frozen=True, eq=False)
class Analysis:
    """What the results of a study say.

    Args:
        stored: what was read: results, studies, tries of the tuning.
        archs: the model that each label stands for; a label without one is its own.
        args: the arguments of each model, where they are stored.
        settings: every protocol and control, the main one first.
        summary: mean and interval of each measure, a row a (model, protocol, control, size).
        pair: the two models that the study is about, the reference first; None with one model.
        comparisons: in each setting the reference with every other model, by its label.
        rises: mean rise of the validation loss, a row a (model, size), in the main setting.
        online: offline minus online test error, likewise; empty where no run saw its images once.
        stopped: a row a (model, size): the weights of the lowest validation loss against the last
            ones of the same runs, in the main setting; empty where they are not stored.
        laws: the power law of each model that has one.
        refused: why a model has none.
        training: mean logs without a control.
        attention: mean measures of attention, in the main setting.
    """

    stored: StoredStudy
    archs: Mapping[str, str]
    args: Mapping[str, Mapping[str, Any]]
    settings: tuple[Setting, ...]
    summary: pd.DataFrame
    pair: tuple[str, str] | None
    comparisons: Mapping[Setting, Mapping[str, Comparison]]
    rises: pd.DataFrame
    online: pd.DataFrame
    stopped: pd.DataFrame
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
    def data(self) -> str:
        """What the images are called; empty where no study.yaml is stored."""
        data = [study["identity"]["data"] for study in self.stored.studies.values()]
        return " and ".join(sorted({str(d.get("label") or d["name"]) for d in data}))

    @property
    def pairs(self) -> pd.DataFrame:
        """Every model against the reference as a tidy table, a row a measure and size.

        `value` is the model minus the reference, and its error over the reference's in
        `error_ratio`.
        """
        tables = [turned(c.rows).rename(columns={"mean": "value"}) for c in self._all]
        return self._tidy(tables, "size measure value low high count fitted")

    @property
    def multipliers(self) -> pd.DataFrame:
        """How many times the images of the reference each model needs for the same test error."""
        tables = [c.multiplier.rename(columns={"n": "size"}) for c in self._all]
        return self._tidy(tables, "size multiplier low high bound count")

    @property
    def _all(self) -> list[Comparison]:
        return [c for models in self.comparisons.values() for c in models.values()]

    def _tidy(self, tables: list[pd.DataFrame], columns: str) -> pd.DataFrame:
        """Tables of all comparisons with what is compared."""
        who = ["reference", "model", "protocol", "control"]
        named = [
            table.assign(**dict(zip(who, (c.first, c.second, *c.setting), strict=True)))
            for c, table in zip(self._all, tables, strict=True)
            if len(table)
        ]
        empty = pd.DataFrame(columns=[*who, *columns.split()])
        return pd.concat(named, ignore_index=True)[list(empty)] if named else empty

    @property
    def main(self) -> pd.DataFrame:
        """The summary of the main setting."""
        return self.setting.of(self.summary)

    @property
    def plain(self) -> pd.DataFrame:
        """The summary of the main control, under every protocol."""
        return self.summary[self.summary["control"] == self.setting.control]


def analyse(stored: StoredStudy, reference: str | None = None) -> Analysis:
    """Every statistic of a report, each computed once.

    Args:
        stored: the results.
        reference: the model that others are compared with; by default the one that the study
            names, else as of `choose_pair`.

    Raises:
        UserError: a reference without results in the main setting.
    """
    results = online_gaps(stored.results)
    if len(stored.rises):
        results = results.merge(stored.rises, "left", list(RUN))
    archs = {str(m): stored.archs.get(str(m), str(m)) for m in results["model"].unique()}
    summary = summarise(results)
    kinds = set(zip(summary["protocol"], summary["control"], strict=True))
    settings = tuple(sorted((Setting(*kind) for kind in kinds), key=lambda s: s.rank))
    main = settings[0]
    models = sorted(main.of(summary)["model"].unique())
    args = {str(m): a for study in stored.studies.values() for m, a in study["args"].items()}
    if reference is not None and reference not in models:
        raise UserError(
            f"reference {reference!r} is no model of these results; choose one of"
            f" {', '.join(models)}"
        )
    if reference is None:
        reference = next((name for name in stored.references if name in models), None)
    pair = choose_pair(models, archs, args, reference)
    comparisons = {
        s: compared(results, s, pair[0], stored.correct) if pair else {} for s in settings
    }
    if pair:
        comparisons[main][pair[1]] = whole(comparisons[main][pair[1]], results)
    runs, log = select(results, *main), stored.training
    laws, refused = _laws(runs, models)
    return Analysis(
        stored=stored,
        archs=archs,
        args=args,
        settings=settings,
        summary=summary,
        pair=pair,
        comparisons=comparisons,
        rises=_means(runs, ["val_loss_rise"]),
        online=_means(runs, ["test_acc", "online_acc", "online_gap"], ["online_size"]),
        stopped=_stopped(runs),
        laws=laws,
        refused=refused,
        training=log[log["control"] == main.control] if len(log) else log,
        attention=main.of(stored.attention),
    )


def choose_pair(
    models: Sequence[str],
    archs: Mapping[str, str],
    args: Mapping[str, Mapping[str, Any]],
    reference: str | None = None,
) -> tuple[str, str] | None:
    """The two models that the study is about: the CNN and the attention classifier.

    `cnn` and `vit` where they are there, else the first of each kind, else the first two. A label
    is of a kind by the model that it stands for and by its arguments. With a `reference` the
    second is of the other kind, and of several the one that has most arguments in common with it.
    """
    if len(models) < 2:
        return None

    def attention(model: str) -> bool:
        return attending(archs.get(model, model), args.get(model))

    def alike(model: str) -> int:
        own, others = args.get(model, {}), args.get(reference or "", {})
        return sum(name in others and others[name] == value for name, value in own.items())

    def nearest(models: Sequence[str], name: str, kind: bool) -> str:
        if name in models:
            return name
        named = [m for m in models if archs.get(m, m) == name] or models
        right = [m for m in named if attention(m) is kind]
        return min(right or named, key=lambda m: (-alike(m), m))

    first = nearest(models, "cnn", False) if reference is None else reference
    others = [m for m in models if m != first]
    if reference is not None and attention(reference):
        return first, nearest(others, "cnn", False)
    return first, nearest(others, "vit", True)


def _stopped(runs: pd.DataFrame) -> pd.DataFrame:
    """Both weights of the runs that store both, and the earlier minus the last ones."""
    if not {*STOPPED} <= set(runs) or runs[[*STOPPED]].isna().all(axis=None):
        return pd.DataFrame()
    names = ["test_acc", "test_loss", *STOPPED]
    names += ["val_loss_rise"] * ("val_loss_rise" in runs)
    runs = runs.dropna(subset=[*STOPPED]).astype(dict.fromkeys(names, float))
    gains = {f"{m}_gain": runs[f"best_{m}"] - runs[m] for m in ("test_acc", "test_loss")}
    return _over_draws(runs.assign(**gains), ["model", "size"], [*names, *gains])


def _means(runs: pd.DataFrame, measures: list[str], also: Sequence[str] = ()) -> pd.DataFrame:
    """Means of measures with their intervals, a row a (model, size); empty where none is stored."""
    if not {*measures} <= set(runs) or runs[measures].isna().all(axis=None):
        return pd.DataFrame()
    kinds: dict[str, Any] = {
        **dict.fromkeys([*measures, "fitted"], float),
        **dict.fromkeys(also, int),
    }
    runs = runs.dropna(subset=measures).astype(kinds)
    by = ["model", "protocol", "control", "size", *also]
    facts = runs.groupby(by)[["fitted", "params"]].agg({"fitted": "mean", "params": "first"})
    return _over_draws(runs, by, measures).merge(facts.reset_index(), on=by)


def _over_draws(runs: pd.DataFrame, by: list[str], measures: list[str]) -> pd.DataFrame:
    """Means and intervals over draws, whose seeds are averaged first."""
    draws = runs.groupby([*by, "draw"])[measures].mean().reset_index()
    return interval_table(draws, by, measures)


def _laws(runs: pd.DataFrame, models: list[str]) -> tuple[dict[str, PowerLaw], dict[str, str]]:
    """The law of each model, or why it has none."""
    laws, refused = {}, {}
    for model in models:
        try:
            laws[model] = fit_law(*errors_of(runs, model))
        except UserError as e:
            refused[model] = str(e)
    return laws, refused
