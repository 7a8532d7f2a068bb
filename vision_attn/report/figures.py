"""Every figure that a study's results allow, with the words that stand beside it on the page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vision_attn.errors import UserError
from vision_attn.report import curves, pair, panels
from vision_attn.report.analysis import Analysis
from vision_attn.report.looks import Look, looks
from vision_attn.report.plotting import FEW, MANY, by_last
from vision_attn.texts import in_figure

__all__ = ["Picture", "draw", "figures", "only"]


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure with its words.

    Args:
        name: of its files.
        title: its name, in words.
        caption: how to read it.
        alt: what it shows, for those who do not see it.
        figure: drawn, not yet rendered.
    """

    name: str
    title: str
    caption: str
    alt: str
    figure: Figure

    @property
    def tall(self) -> bool:
        """Higher than wide; two others have room beside it."""
        width, height = self.figure.get_size_inches()
        return bool(width < height)


class _Canvas(NamedTuple):
    """How to draw: the look of each model, the emphasised ones, the user's axes if any."""

    looks: Mapping[str, Look]
    strong: list[str]
    ax: Axes | None


def figures(analysis: Analysis) -> list[Picture]:
    """Every figure that the results allow, in the order of the page, with the name of the data."""
    how = _canvas(analysis)
    drawn = [
        replace(picture, name=name)
        for name, make in _FIGURES.items()
        if (picture := make(analysis, how)) is not None
    ]
    if data := analysis.data:
        for picture in drawn:
            picture.figure.suptitle(in_figure(data), x=0.995, ha="right", color="0.35")
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
    picture = _FIGURES[names[0]](analysis, _canvas(analysis)._replace(ax=ax))
    if picture is None:
        raise UserError(f"these results do not allow the figure {names[0]}")
    return picture.figure


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
    return replace(
        analysis,
        summary=rows(analysis.summary),
        training=rows(analysis.training),
        attention=rows(analysis.attention),
        laws={model: law for model, law in analysis.laws.items() if model in models},
        pair=pair,
    )


def _canvas(analysis: Analysis) -> _Canvas:
    """The two models that are compared and the best of the others are emphasised."""
    order = by_last(analysis.main) or by_last(analysis.summary)
    compared = analysis.comparison
    first = [compared.first, compared.second] if compared else []
    strong = [*first, *(m for m in order if m not in first)][:MANY]
    return _Canvas(looks(analysis.archs, analysis.archs), strong, None)


def _picture(figure: Figure | None, title: str, caption: str, shows: str) -> Picture | None:
    if figure is None:
        return None
    return Picture("", title, caption, f"{title}. {shows}.", figure)


def _accuracy(analysis: Analysis, how: _Canvas) -> Picture | None:
    figure = curves.against_size(
        analysis.plain, "test_acc", "test accuracy", how.looks, strong=how.strong, ax=how.ax
    )
    one = analysis.plain["size"].nunique() == 1
    return _picture(
        figure,
        "Test accuracy of each model" if one else "Test accuracy against training images",
        f"{_reading(analysis.plain)}{_dashes(analysis)}",
        _ends(analysis.main, "test_acc"),
    )


def _gap(analysis: Analysis, how: _Canvas) -> Picture | None:
    figure = curves.against_size(
        analysis.plain, "gap", "train minus test accuracy", how.looks, strong=how.strong, ax=how.ax
    )
    one = analysis.plain["size"].nunique() == 1
    return _picture(
        figure,
        "Gap of each model" if one else "Gap against training images",
        "Train minus test accuracy, both on unaugmented images in eval mode. Only filled points"
        " speak of overfitting in accuracy. Where both reach 100 % on train images, a larger gap"
        f" is a lower test accuracy and nothing else.{_dashes(analysis)}",
        _ends(analysis.main, "gap"),
    )


def _error(analysis: Analysis, how: _Canvas) -> Picture | None:
    figure = curves.error_loglog(
        analysis.main, analysis.laws, how.looks, strong=how.strong, ax=how.ax
    )
    return _picture(
        figure,
        "Error on log-log axes",
        "A constant ratio of errors is two parallel lines here, however the difference in"
        " points shrinks.",
        _ends(analysis.main, "test_acc", error=True),
    )


def _multiplier(analysis: Analysis, how: _Canvas) -> Picture | None:
    comparison = analysis.comparison
    if comparison is None:
        return None
    return _picture(
        pair.multiplier(comparison, how.looks, ax=how.ax),
        "Data multiplier",
        f"How many times {comparison.first}'s images {comparison.second} needs for the same error;"
        " a bound where that error is reached at no size.",
        "; ".join(
            f"at {r['n']:,} images {r['bound'] or format(r['multiplier'], '.2f')}"
            for r in comparison.multiplier.to_dict("records")
        ),
    )


def _protocol_split(analysis: Analysis, how: _Canvas) -> Picture | None:
    comparison = analysis.comparison
    if comparison is None:
        return None
    return _picture(
        pair.protocol_split(comparison, ax=how.ax),
        "What the protocol does",
        f"{comparison.first} minus {comparison.second} when both train for equal epochs, split into"
        " what is left under equal updates and what equal epochs add.",
        "; ".join(
            f"at {r['size']:,} images {100 * r['total']:.1f} points, of which"
            f" {100 * r['undertraining']:.1f} from undertraining"
            for r in comparison.split.to_dict("records")
        ),
    )


def _training(analysis: Analysis, how: _Canvas) -> Picture | None:
    log = analysis.setting.of(analysis.training)
    return _picture(
        panels.training_curves(log),
        "Training curves",
        f"Loss against update under {analysis.setting.words}, mean over draws and seeds:"
        " validation solid, training dashed, a colour a training size.",
        "Loss of validation and training images against updates, a panel a model",
    )


def _capacity(analysis: Analysis, how: _Canvas) -> Picture | None:
    return _picture(
        panels.capacity(analysis.main, analysis.archs),
        "Capacity",
        "Test accuracy and gap of one family's variants against parameters."
        f" {_reading(analysis.main)}",
        _ends(analysis.main, "gap"),
    )


def _controls(analysis: Analysis, how: _Canvas) -> Picture | None:
    return _picture(
        curves.controls(analysis.tested, how.looks, ax=how.ax),
        "Controls",
        "Permuted pixels take locality away; with shuffled labels nothing can be learned that"
        " holds on test images.",
        "; ".join(
            f"{control}: {_ends(rows, 'test_acc')}"
            for control, rows in analysis.tested.groupby("control")
        ),
    )


def _attention(analysis: Analysis, how: _Canvas) -> Picture | None:
    even = {m: d for m in analysis.archs if (d := _even(analysis, m)) is not None}
    known = {str(m) for m in analysis.attention["model"]} if len(analysis.attention) else set()
    words = (
        "The dashed line is the distance of attention that is spread evenly."
        if known <= set(even)
        else "The patches are not stored, so the distance of even attention is not known."
    )
    return _picture(
        panels.attention_distance(analysis.attention, even),
        "How far attention looks",
        "Mean distance between a query and what it attends to, by layer, against training"
        f" images. {words}",
        "Attention distance in pixels by layer against training images",
    )


def _even(analysis: Analysis, model: str) -> float | None:
    """The distance of even attention of a model whose patches are stored."""
    for study in analysis.stored.studies.values():
        args = study.get("args", {}).get(model) or {}
        size = study.get("identity", {}).get("data", {}).get("img_size")
        patch = args.get("patch_size")
        if size and patch and not analysis.archs[model].startswith("timm:"):
            side = (patch, patch) if isinstance(patch, int) else (patch[0], patch[1])
            return panels.even_distance((size[0], size[1]), side, args.get("radius"))
    return None


_FIGURES: dict[str, Callable[[Analysis, _Canvas], Picture | None]] = {
    "accuracy_vs_size": _accuracy,
    "gap_vs_size": _gap,
    "error_loglog": _error,
    "multiplier": _multiplier,
    "protocol_split": _protocol_split,
    "training_curves": _training,
    "capacity": _capacity,
    "controls": _controls,
    "attention_distance": _attention,
}
_PANELS = ("training_curves", "capacity", "attention_distance")


def _reading(summary: pd.DataFrame) -> str:
    """What stands around the means, where anything does."""
    parts = []
    if summary["count"].max() >= FEW:
        parts.append("Bands and bars are 95 % t intervals over draws.")
    if (summary["count"] == 2).any():
        parts.append("Small dots are the two draws.")
    if (summary["fitted"] < 1).any():
        parts.append("At hollow points not every run fitted.")
    return " ".join(parts)


def _dashes(analysis: Analysis) -> str:
    several = analysis.plain["protocol"].nunique() > 1 and analysis.plain["size"].nunique() > 1
    return " Dashed lines: equal epochs." if several else ""


def _ends(summary: pd.DataFrame, measure: str, *, error: bool = False) -> str:
    """What a chart shows, in words: each model at its smallest and its largest size."""
    unit = "points" if measure == "gap" else "%"
    parts = []
    for model, rows in summary.groupby("model", sort=True):
        ends = rows if len(rows) == 1 else rows.iloc[[0, -1]]
        values = [
            f"{100 * (1 - r[f'{measure}_mean'] if error else r[f'{measure}_mean']):.1f} {unit}"
            f" at {r['size']:,} images"
            for _, r in ends.iterrows()
        ]
        parts.append(f"{model}: {', '.join(values)}")
    return "; ".join(parts)
