"""A stored study for a notebook: its tables, and its figures in axes of one's own."""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from vision_attn.errors import UserError
from vision_attn.report.analysis import Analysis, analyse
from vision_attn.report.sentences import Answer, lines, verdict
from vision_attn.report.tidy import multipliers, pairs
from vision_attn.study.join import join

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LoadedStudy", "load_study"]


class LoadedStudy:
    """What a study has stored, and what that says.

    Args:
        analysis: every statistic of it.
    """

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis

    @property
    def results(self) -> pd.DataFrame:
        """One row a run."""
        return self.analysis.stored.results

    @property
    def summary(self) -> pd.DataFrame:
        """Mean and 95 % interval of each measure, a row a (model, protocol, control, size)."""
        return self.analysis.summary

    @property
    def pairs(self) -> pd.DataFrame:
        """Every model against the reference, paired by draw, a row a measure and size."""
        return pairs(self.analysis)

    @property
    def multiplier(self) -> pd.DataFrame:
        """How many times the reference's images each model needs for the same test error."""
        return multipliers(self.analysis)

    @property
    def answers(self) -> list[Answer]:
        """Who is better, who overfits more, whether the difference shrinks; a line a model."""
        return [*verdict(self.analysis), *lines(self.analysis)]

    def plot(
        self, name: str, ax: "Axes | None" = None, models: Sequence[str] | None = None
    ) -> "Figure":
        """A figure of the study, drawn into `ax` where it is given.

        Args:
            name: accuracy, gap, error or multiplier.
            ax: axes of one's own; a new figure without.
            models: labels to show; all by default.

        Raises:
            UserError: a name or a label that is not there, or nothing to draw.
        """
        if name not in _FIGURES:
            raise UserError(f"figure {name!r} is not known; choose one of {', '.join(_FIGURES)}")
        stored = self.analysis.models
        for model in models or ():
            if model not in stored:
                raise UserError(f"models has {model!r}; the study has {', '.join(stored)}")
        figure = _FIGURES[name](self.analysis, list(models or stored), ax)
        if figure is None:
            raise UserError(f"figure {name!r} has nothing to show in this study")
        return figure


def load_study(*roots: "str | PathLike[str]") -> LoadedStudy:
    """A study read back from its directory, or from several that are joined.

    Raises:
        UserError: no results there, or directories that do not fit together.
    """
    if not roots:
        raise UserError("no directory is given; give the --out of a compare")
    return LoadedStudy(analyse(join([Path(root) for root in roots])))


def _of(table: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    return table[table["model"].isin(models)]


def _against_size(measure: str, label: str) -> Callable[..., Any]:
    def draw(analysis: Analysis, models: list[str], ax: "Axes | None") -> Any:
        from vision_attn.report.curves import against_size
        from vision_attn.report.plotting import looks

        look = looks(analysis.archs, analysis.archs)
        return against_size(_of(analysis.plain, models), measure, label, look, ax=ax)

    return draw


def _error(analysis: Analysis, models: list[str], ax: "Axes | None") -> Any:
    from vision_attn.report.curves import error_loglog
    from vision_attn.report.plotting import looks

    laws = {model: law for model, law in analysis.laws.items() if model in models}
    look = looks(analysis.archs, analysis.archs)
    return error_loglog(_of(analysis.main, models), laws, look, ax=ax)


def _multiplier(analysis: Analysis, models: list[str], ax: "Axes | None") -> Any:
    from vision_attn.report.curves import multiplier
    from vision_attn.report.plotting import looks

    others = [c for m, c in analysis.comparisons[analysis.setting].items() if m in models]
    pair = analysis.comparison if analysis.comparison in others else next(iter(others), None)
    return pair and multiplier(pair, looks(analysis.archs, analysis.archs), ax=ax)


_FIGURES: dict[str, Callable[[Analysis, list[str], Any], Any]] = {
    "accuracy": _against_size("test_acc", "test accuracy"),
    "gap": _against_size("gap", "train minus test accuracy"),
    "error": _error,
    "multiplier": _multiplier,
}
