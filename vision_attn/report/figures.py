"""Every figure that a study's results allow, with the words that stand beside it on the page."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from vision_attn.report import curves, panels
from vision_attn.report.analysis import Analysis
from vision_attn.report.plotting import Look, looks

__all__ = ["Picture", "figures"]


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


Looks = Mapping[str, Look]

_HOLLOW = "Bands are 95 % t intervals over draws; at hollow points not every run fitted."


def figures(analysis: Analysis) -> list[Picture]:
    """Every figure that the results allow, in the order of the page."""
    look = looks(analysis.archs, analysis.archs)
    pictures = (draw(analysis, look) for draw in _FIGURES)
    return [picture for picture in pictures if picture is not None]


def _picture(
    name: str, figure: Figure | None, title: str, caption: str, shows: str
) -> Picture | None:
    if figure is None:
        return None
    return Picture(name, title, caption, f"{title}. {shows}.", figure)


def _accuracy(analysis: Analysis, look: Looks) -> Picture | None:
    return _picture(
        "accuracy_vs_size",
        curves.against_size(analysis.plain, "test_acc", "test accuracy", look),
        "Test accuracy against training images",
        f"{_HOLLOW}{_dashes(analysis)}",
        _ends(analysis.main, "test_acc"),
    )


def _gap(analysis: Analysis, look: Looks) -> Picture | None:
    return _picture(
        "gap_vs_size",
        curves.against_size(analysis.plain, "gap", "train minus test accuracy", look),
        "Gap against training images",
        "Train minus test accuracy, both on unaugmented images in eval mode. Only filled points"
        f" speak of overfitting in accuracy. Where both reach 100 % on train images, a larger gap"
        f" is a lower test accuracy and nothing else.{_dashes(analysis)}",
        _ends(analysis.main, "gap"),
    )


def _error(analysis: Analysis, look: Looks) -> Picture | None:
    return _picture(
        "error_loglog",
        curves.error_loglog(analysis.main, analysis.laws, look),
        "Error on log-log axes",
        "A constant ratio of errors is two parallel lines here, however the difference in"
        " points shrinks.",
        _ends(analysis.main, "test_acc", error=True),
    )


def _multiplier(analysis: Analysis, look: Looks) -> Picture | None:
    comparison = analysis.comparison
    if comparison is None:
        return None
    return _picture(
        "multiplier",
        curves.multiplier(comparison, look),
        "Data multiplier",
        f"How many times {comparison.first}'s images {comparison.second} needs for the same error."
        " Bars are 95 % intervals. Open triangles are bounds: that error is not reached at any"
        " size.",
        "; ".join(
            f"at {r['n']:,} images {r['bound'] or format(r['multiplier'], '.2f')}"
            for r in comparison.multiplier.to_dict("records")
        ),
    )


def _protocol_split(analysis: Analysis, look: Looks) -> Picture | None:
    comparison = analysis.comparison
    if comparison is None:
        return None
    return _picture(
        "protocol_split",
        curves.protocol_split(comparison),
        "What the protocol does",
        f"{comparison.first} minus {comparison.second} when both train for equal epochs, split into"
        " what is left under equal updates and what equal epochs add.",
        "; ".join(
            f"at {r['size']:,} images {100 * r['total']:.1f} points, of which"
            f" {100 * r['undertraining']:.1f} from undertraining"
            for r in comparison.split.to_dict("records")
        ),
    )


def _training(analysis: Analysis, look: Looks) -> Picture | None:
    return _picture(
        "training_curves",
        panels.training_curves(analysis.training),
        "Training curves",
        "Loss against update, mean over draws and seeds: validation solid, training dashed, a"
        " colour a training size.",
        "Loss of validation and training images against updates, a panel a model",
    )


def _capacity(analysis: Analysis, look: Looks) -> Picture | None:
    return _picture(
        "capacity",
        panels.capacity(analysis.main, analysis.archs),
        "Capacity",
        f"Test accuracy and gap of one family's variants against parameters. {_HOLLOW}",
        _ends(analysis.main, "gap"),
    )


def _controls(analysis: Analysis, look: Looks) -> Picture | None:
    return _picture(
        "controls",
        curves.controls(analysis.tested, look),
        "Controls",
        "Permuted pixels take locality away; with shuffled labels nothing can be learned that"
        " holds on test images.",
        "; ".join(
            f"{control}: {_ends(rows, 'test_acc')}"
            for control, rows in analysis.tested.groupby("control")
        ),
    )


def _attention(analysis: Analysis, look: Looks) -> Picture | None:
    return _picture(
        "attention_distance",
        panels.attention_distance(analysis.attention),
        "How far attention looks",
        "Mean distance between a query and what it attends to, by layer, against training"
        " images; mean over heads, draws and seeds.",
        "Attention distance in pixels by layer against training images",
    )


_FIGURES: tuple[Callable[[Analysis, Looks], Picture | None], ...] = (
    _accuracy,
    _gap,
    _error,
    _multiplier,
    _protocol_split,
    _training,
    _capacity,
    _controls,
    _attention,
)


def _dashes(analysis: Analysis) -> str:
    several = analysis.plain["protocol"].nunique() > 1
    return " Dashed lines: equal epochs." if several else ""


def _ends(summary: pd.DataFrame, measure: str, *, error: bool = False) -> str:
    """What a line chart shows, in words: each model at its smallest and its largest size."""
    parts = []
    for model, rows in summary.groupby("model", sort=True):
        first, last = rows.iloc[0], rows.iloc[-1]
        a, b = (
            100 * (1 - r[f"{measure}_mean"] if error else r[f"{measure}_mean"])
            for r in (first, last)
        )
        parts.append(
            f"{model}: {a:.1f} % at {first['size']:,} images, {b:.1f} % at {last['size']:,}"
        )
    return "; ".join(parts)
