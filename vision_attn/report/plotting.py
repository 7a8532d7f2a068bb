"""What figures share: one style, colours and markers of models, axes, legends, rendering."""

import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from vision_attn.models.families import attends
from vision_attn.report.analysis import CONTROLS, PROTOCOLS
from vision_attn.report.numbers import FIT, short
from vision_attn.texts import in_figure

__all__ = [
    "LINES",
    "MANY",
    "NAMES",
    "SIZE",
    "Look",
    "handle",
    "legend",
    "line",
    "log_percent",
    "looks",
    "model_handles",
    "note",
    "percent",
    "points",
    "render",
    "rotation",
    "sizes",
    "style_handles",
    "styled",
]

SIZE = (5.4, 4.2)

_STYLE: dict[Any, Any] = {
    "figure.figsize": SIZE,
    "figure.constrained_layout.use": True,
    "figure.labelsize": 10.5,
    "axes.labelsize": 10.5,
    "axes.titlesize": 10.5,
    "axes.titley": 1.0,  # found out anew at each draw otherwise
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "legend.title_fontsize": 8,
}

_DPI = 150

styled = matplotlib.rc_context(_STYLE)
"""Decorates a function that draws a figure; `render` applies the same style."""

LINES = {
    "steps": "-",
    "epochs": "--",
    "none": "-",
    "permuted": "-.",
    "shuffled": ":",
}
"""Line styles of protocols and controls."""

NAMES = PROTOCOLS | CONTROLS

MANY = 3
"""Models from which on a legend stands below, in fewer words."""


_CANVASES = {"svg": FigureCanvasSVG, "png": FigureCanvasAgg}


def render(figure: Figure, name: str, kinds: Sequence[str] = ("svg", "png")) -> dict[str, bytes]:
    """A figure as `svg` and `png`; the same figure gives the same bytes, without date or chance.

    The layout is made here, since `savefig` draws all once more to make it.
    """
    files = {}
    fixed = {"svg.hashsalt": name, "figure.constrained_layout.use": False}
    layout = figure.get_layout_engine()
    with matplotlib.rc_context(_STYLE | fixed):
        for kind in kinds:
            figure.set_layout_engine(layout)
            figure.set_dpi(_DPI)
            _CANVASES[kind](figure)
            if layout is not None:
                layout.execute(figure)
                figure.set_layout_engine(None)
            content = io.BytesIO()
            metadata = {"Date": None} if kind == "svg" else None
            figure.savefig(content, format=kind, dpi=_DPI, metadata=metadata)
            files[kind] = content.getvalue()
    figure.set_layout_engine(layout)
    return files


# Colours and markers


@dataclass(frozen=True)
class Look:
    """Colour as #rrggbb and a matplotlib marker."""

    colour: str
    marker: str


_KNOWN = {
    "cnn": ("#0072b2", "o"),
    "linear": ("#555555", "X"),
    "vit": ("#d55e00", "s"),
    "pixel_vit": ("#cc79a7", "D"),
    "conv_stem_vit": ("#e69f00", "^"),
    "conv_init_vit": ("#7f3c8d", "v"),
    "local_vit": ("#a6352b", "P"),
}
_CONVOLUTION = ("#56b4e9", "#009e73", "#1b4965", "#5a7d9a", "#66a182")
_ATTENTION = ("#f28e2b", "#b8336a", "#8c564b", "#e15759", "#9b5de5")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h")
_SHADES = (0.0, 0.35, -0.35)


def looks(models: Iterable[str], archs: Mapping[str, str]) -> dict[str, Look]:
    """A look for each label, warm colours for attention, cold ones for convolution.

    It depends on the label and on the model that it stands for. Only where two would look alike
    does the later one in alphabetical order take the next free marker.
    """
    chosen: dict[str, Look] = {}
    for model in sorted(set(models), key=lambda m: (m not in _KNOWN, m)):
        look = _look(model, archs.get(model, model))
        markers = _MARKERS[_MARKERS.index(look.marker) :] + _MARKERS
        taken = set(chosen.values())
        free = (Look(look.colour, m) for m in markers if Look(look.colour, m) not in taken)
        chosen[model] = next(free, look)
    return chosen


def _look(model: str, arch: str) -> Look:
    if model in _KNOWN:
        return Look(*_KNOWN[model])
    number = int.from_bytes(hashlib.blake2b(model.encode(), digest_size=4).digest(), "big")
    marker = _MARKERS[number // 64 % len(_MARKERS)]
    if arch in _KNOWN:
        return Look(_shade(_KNOWN[arch][0], _SHADES[number % len(_SHADES)]), marker)
    palette = _ATTENTION if attends(arch) else _CONVOLUTION
    return Look(palette[number % len(palette)], marker)


def _shade(colour: str, by: float) -> str:
    """Towards white (positive) or black (negative)."""
    r, g, b = (c + by * (1 - c) if by > 0 else c * (1 + by) for c in to_rgb(colour))
    return to_hex((r, g, b))


# Lines and points


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


# Axes


def sizes(axes: Axes, sizes: Iterable[float], label: str = "training images") -> None:
    """A log axis that names the sizes of the study and no others."""
    ticks = sorted({int(s) for s in sizes})
    axes.set_xscale("log")
    near = any(b / a < 1.6 for a, b in pairwise(ticks))
    axes.set_xticks(ticks, [f"{s:,}" for s in ticks], rotation=45 if near else rotation(len(ticks)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(label)


def rotation(count: int) -> int:
    """Many labels stand aslant."""
    return 0 if count < 8 else 45


def percent(axes: Axes, label: str) -> None:
    """A share on the vertical axis, in per cent."""
    axes.set_ylabel(label)
    axes.yaxis.set_major_formatter(lambda v, _: f"{100 * v:.3g} %")


def log_percent(axes: Axes) -> None:
    """Within a decade every tick is named, over more only 2 and 5 beside the tens."""
    low, high = axes.get_ylim()
    named = "23456789" if high / low < 4 else "23457" if high / low < 10 else "25"
    axes.yaxis.set_major_formatter(lambda v, _: f"{100 * v:g} %")
    axes.yaxis.set_minor_formatter(
        lambda v, _: f"{100 * v:.3g} %" if f"{v:.0e}"[0] in named else ""
    )


# Legends


def handle(look: Look, label: str) -> Line2D:
    """An entry in a legend; `label` as of `in_figure`."""
    return Line2D([], [], color=look.colour, marker=look.marker, label=label)


def model_handles(summary: pd.DataFrame, look: Mapping[str, Look]) -> list[Line2D]:
    """Each model with its parameters."""
    params = summary.groupby("model")["params"].first()
    unit = "" if len(params) > MANY else " parameters"
    return [
        handle(look[m], f"{in_figure(m)} ({short(params[m])}{unit})") for m in sorted(params.index)
    ]


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
            handles=handles, loc="outside lower center", ncols=columns, fontsize=9,
            title=note or None,
        )  # fmt: skip
    else:
        axes.legend(handles=handles)
        figure.supxlabel(note, fontsize=8, color="0.35")


def note(summary: pd.DataFrame) -> str:
    """How many draws a point stands for, and what bands and hollow points mean."""
    counts = sorted(summary["count"].unique())
    draws = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    note = f"mean of {draws} draw{'s' * (counts != [1])}"
    note += ", band: 95 % t interval" if counts[-1] > 1 else ""
    hollow = (summary["fitted"] < 1).any()
    note += f", hollow: not fitted (train accuracy under {FIT})" if hollow else ""
    return note + ("\nin brackets: parameters" if summary["model"].nunique() > MANY else "")
