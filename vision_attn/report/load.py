"""A stored study for a notebook: its tables, and its figures in axes of one's own."""

from collections.abc import Sequence
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from vision_attn.errors import UserError
from vision_attn.report.analysis import Analysis, analyse
from vision_attn.report.sentences import lines, verdict
from vision_attn.study.join import join

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LoadedStudy", "load_study"]


class LoadedStudy:
    """What a study has stored, and what that says.

    Args:
        analysis: every statistic of it.

    Its tables are `results`, one row a run; `summary`, mean and 95 % interval of each measure, a
    row a (model, protocol, control, size); `pairs`, every model against the reference, paired by
    draw; `multiplier`, how many times the reference's images each model needs for the same test
    error; `stopped`, weights of the lowest validation loss against the last ones. `answers` say who
    is better, who overfits more, whether the difference shrinks, and a line on each further model.
    """

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self.results, self.summary = analysis.stored.results, analysis.summary
        self.pairs, self.multiplier = analysis.pairs, analysis.multipliers
        self.stopped = analysis.stopped
        self.answers = [*verdict(analysis), *lines(analysis)]

    def _repr_html_(self) -> str:
        """What a notebook shows: the answers, then the means."""
        rows = ((a.question, f"{a.answer} {a.details}") for a in self.answers)
        said = "".join(f"<p><b>{escape(q)}</b> {escape(text)}</p>" for q, text in rows)
        return said + self.summary.to_html(float_format="{:.3g}".format)

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


def load_study(*roots: "str | PathLike[str]", reference: str | None = None) -> LoadedStudy:
    """A study read back from its directory, or from several that are joined.

    Args:
        roots: the directories.
        reference: label of the model that others are compared with; by default that of the
            study, else a CNN.

    Raises:
        UserError: no results there, directories that do not fit together, or no such label.
    """
    if not roots:
        raise UserError("no directory is given; give the --out of a compare")
    return LoadedStudy(analyse(join([Path(root) for root in roots]), reference))
