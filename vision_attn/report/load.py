"""A stored study for a notebook: its tables, and its figures in axes of one's own."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

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
            name: as of its file, or the word it begins with: accuracy, gap, error, multiplier.
            ax: axes of one's own; a new figure without.
            models: labels to show; all by default.

        Raises:
            UserError: a name or a label that is not there, or nothing to draw.
        """
        from vision_attn.report.figures import draw, only

        return draw(self.analysis if models is None else only(self.analysis, models), name, ax)


def load_study(*roots: "str | PathLike[str]") -> LoadedStudy:
    """A study read back from its directory, or from several that are joined.

    Raises:
        UserError: no results there, or directories that do not fit together.
    """
    if not roots:
        raise UserError("no directory is given; give the --out of a compare")
    return LoadedStudy(analyse(join([Path(root) for root in roots])))
