"""Parts that the figures share: canvas, lines with bands and hollow points, axes, legend."""

import io
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from vision_attn.report.styles import LINES, Look, short

__all__ = [
    "FONT",
    "MANY",
    "NAMES",
    "SIZE",
    "canvas",
    "handle",
    "legend",
    "line",
    "log_percent",
    "model_handles",
    "note",
    "percent",
    "plain",
    "points",
    "render",
    "rotation",
    "sizes",
    "style_handles",
]

SIZE = (5.4, 4.2)
FONT = 10.5
NAMES = {
    "steps": "equal updates",
    "epochs": "equal epochs",
    "none": "images as they are",
    "permuted": "pixels permuted",
    "shuffled": "labels shuffled",
}


def render(figure: Figure, kind: str, name: str) -> bytes:
    """A figure as `png` or `svg`; the same figure gives the same bytes, without date or chance."""
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(content, format=kind, dpi=150, metadata=metadata)
    return content.getvalue()


def canvas() -> tuple[Figure, Axes]:
    """A figure of one pair of axes."""
    figure = Figure(figsize=SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    plain(axes)
    return figure, axes


MANY = 3
"""Models from which on a legend stands below, in fewer words."""


def plain(axes: Axes) -> None:
    """Grid, no box, our letter size."""
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=FONT - 1)


def line(
    axes: Axes, rows: pd.DataFrame, measure: str, look: Look, style: str, shade: float = 0.15
) -> None:
    """Mean, band and points; a point is hollow where not all runs fitted."""
    x, y = rows["size"], rows[f"{measure}_mean"]
    axes.plot(x, y, color=look.colour, ls=style, zorder=2)
    low, high = rows[f"{measure}_low"], rows[f"{measure}_high"]
    axes.fill_between(x, low, high, color=look.colour, alpha=shade, lw=0)
    points(axes, x, y, rows["fitted"], look)


def points(axes: Axes, x: Any, y: Any, fitted: Iterable[float], look: Look) -> None:
    """Markers, hollow where not all runs fitted."""
    faces = [look.colour if f == 1 else "white" for f in fitted]
    axes.scatter(x, y, marker=look.marker, s=36, c=faces, edgecolors=look.colour, zorder=3)


def sizes(axes: Axes, sizes: Iterable[float], label: str = "training images") -> None:
    """A log axis that names the sizes of the study and no others."""
    ticks = sorted({int(s) for s in sizes})
    axes.set_xscale("log")
    near = any(b / a < 1.6 for a, b in pairwise(ticks))
    axes.set_xticks(ticks, [f"{s:,}" for s in ticks], rotation=45 if near else rotation(len(ticks)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(label, fontsize=FONT)


def rotation(count: int) -> int:
    """Many labels stand aslant."""
    return 0 if count < 8 else 45


def percent(axes: Axes, label: str) -> None:
    """A share on the vertical axis, in per cent."""
    axes.set_ylabel(label, fontsize=FONT)
    axes.yaxis.set_major_formatter(lambda v, _: f"{100 * v:.3g} %")


def log_percent(axes: Axes) -> None:
    """Within a decade every tick is named, over more only 2 and 5 beside the tens."""
    low, high = axes.get_ylim()
    named = "23456789" if high / low < 4 else "23457" if high / low < 10 else "25"
    axes.yaxis.set_major_formatter(lambda v, _: f"{100 * v:g} %")
    axes.yaxis.set_minor_formatter(
        lambda v, _: f"{100 * v:.3g} %" if f"{v:.0e}"[0] in named else ""
    )
    axes.tick_params(axis="y", which="minor", labelsize=FONT - 1)


def handle(look: Look, label: str) -> Line2D:
    """A model's entry in a legend."""
    return Line2D([], [], color=look.colour, marker=look.marker, label=label)


def model_handles(summary: pd.DataFrame, look: dict[str, Look]) -> list[Line2D]:
    """Each model with its parameters."""
    params = summary.groupby("model")["params"].first()
    unit = "" if len(look) > MANY else " parameters"
    return [handle(look[m], f"{m} ({short(params[m])}{unit})") for m in sorted(look)]


def style_handles(kinds: pd.Series) -> list[Line2D]:
    """What a line style stands for, whatever the colour."""
    return [
        Line2D([], [], color="0.3", ls=LINES[k], label=NAMES[k]) for k in NAMES if k in set(kinds)
    ]


def legend(
    figure: Figure,
    axes: Axes,
    handles: list[Any],
    note: str,
    *,
    outside: bool = False,
    columns: int = 2,
) -> None:
    """In the axes while short, else below them, where it covers nothing; the note under all."""
    if len(handles) > MANY or outside:
        rows = -(-len(handles) // columns)
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + 0.2 * max(rows - 3, 0))  # the axes keep theirs
        figure.legend(
            handles=handles, loc="outside lower center", ncols=columns, frameon=False,
            fontsize=FONT - 1.5, title=note or None, title_fontproperties={"size": 8},
        )  # fmt: skip
    else:
        axes.legend(handles=handles, frameon=False, fontsize=FONT - 1)
        figure.supxlabel(note, fontsize=8, color="0.35")


def note(summary: pd.DataFrame) -> str:
    """How many draws a point stands for, and what bands and hollow points mean."""
    counts = sorted(summary["count"].unique())
    draws = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    note = f"mean of {draws} draw{'s' * (counts != [1])}"
    note += ", band: 95 % t interval" if counts[-1] > 1 else ""
    hollow = (summary["fitted"] < 1).any()
    note += ", hollow: not fitted (train accuracy under 99 %)" if hollow else ""
    return note + ("\nin brackets: parameters" if summary["model"].nunique() > MANY else "")
