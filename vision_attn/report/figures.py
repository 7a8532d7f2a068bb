"""Every figure that a study's results allow, with the words that stand beside it on the page."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from difflib import get_close_matches

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vision_attn.errors import UserError
from vision_attn.report import curves, overfit, panels
from vision_attn.report.analysis import Analysis
from vision_attn.report.chart import Chart
from vision_attn.report.looks import looks
from vision_attn.report.style import aslant, settle, style
from vision_attn.texts import in_figure

__all__ = ["Picture", "draw", "figures", "only"]

_FIGURES = {
    "accuracy_vs_size": curves.accuracy,
    "gap_vs_size": curves.gap,
    "senses_vs_size": overfit.senses,
    "online_vs_size": overfit.online,
    "error_loglog": curves.error,
    "multiplier": curves.multiplier,
    "protocol_split": curves.protocol_split,
    "training_curves": panels.training_curves,
    "capacity": panels.capacity,
    "controls": curves.controls,
    "attention_distance": panels.attention_distance,
}
_PANELS = ("senses_vs_size", "training_curves", "capacity", "attention_distance")

_MANY = 3
"""Curves that are emphasised at most: thick, with their intervals."""


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure with its words.

    Args:
        name: of its files.
        words: what stands beside it.
        chart: drawn, not yet rendered.
    """

    name: str
    words: curves.Words
    chart: Chart

    @property
    def figure(self) -> Figure:
        """As matplotlib has it."""
        return self.chart.figure


def figures(analysis: Analysis) -> list[Picture]:
    """Every figure that the results allow, in the order of the page, with the name of the data.

    They are drawn in the style that is on, as of `style.style`.
    """
    made = [_picture(analysis, name) for name in _FIGURES]
    drawn = [picture for picture in made if picture is not None]
    for picture in drawn if analysis.data else ():
        picture.figure.suptitle(in_figure(analysis.data), x=0.995, ha="right", color="0.35")
    return drawn


def draw(analysis: Analysis, name: str, ax: Axes | None = None) -> Figure:
    """One figure, in the user's axes if they are given and it needs no more than one.

    Args:
        analysis: what is shown.
        name: of the figure: `accuracy_vs_size`, or a word that only one name begins with.
        ax: where to draw; a new figure by default.

    Raises:
        UserError: no such figure, results that do not allow it, axes for one of several panels.
    """
    names = [n for n in _FIGURES if n == name] or [n for n in _FIGURES if n.startswith(name)]
    if len(names) != 1:
        raise UserError(f"there is no figure {name!r}; choose one of {', '.join(_FIGURES)}")
    if ax is not None and names[0] in _PANELS:
        raise UserError(f"{names[0]} has several panels and cannot be drawn into one axes")
    with style() if ax is None else nullcontext():
        picture = _picture(analysis, names[0], ax)
        if picture is None:
            raise UserError(f"these results do not allow the figure {names[0]}")
        if ax is None:
            settle(picture.figure)
        else:
            aslant(ax)
    return picture.figure


def _picture(analysis: Analysis, name: str, ax: Axes | None = None) -> Picture | None:
    """A figure; the two models that are compared and the best of the others are emphasised."""
    order = curves.by_last(analysis.main) or curves.by_last(analysis.summary)
    strong = [*dict.fromkeys([*(analysis.pair or ()), *order])][:_MANY]
    chart = Chart(looks(analysis.archs, analysis.archs, analysis.args), strong, ax)
    words = _FIGURES[name](analysis, chart)
    return None if words is None else Picture(name, words, chart)


def only(analysis: Analysis, models: Sequence[str]) -> Analysis:
    """The analysis as figures of some models need it; the models keep their looks.

    Raises:
        UserError: a model without results.
    """
    known = [str(m) for m in analysis.summary["model"].unique()]
    for model in models:
        if model not in known:
            near = get_close_matches(model, known, n=1)
            asked = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
            raise UserError(f"model {model!r} has no results; {asked}")

    def rows(table: pd.DataFrame) -> pd.DataFrame:
        return table[table["model"].isin(models)] if len(table) else table

    pair = analysis.pair if set(analysis.pair or ()) <= set(models) else None
    comparisons = {
        setting: {model: c for model, c in others.items() if model in models}
        for setting, others in analysis.comparisons.items()
    }
    return replace(
        analysis,
        summary=rows(analysis.summary),
        training=rows(analysis.training),
        attention=rows(analysis.attention),
        rises=rows(analysis.rises),
        online=rows(analysis.online),
        comparisons=comparisons,
        laws={model: law for model, law in analysis.laws.items() if model in models},
        pair=pair,
    )
