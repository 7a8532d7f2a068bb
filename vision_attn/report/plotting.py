"""What figures share: curves, points, intervals, axes, names at the ends of curves, legends."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from textwrap import fill
from typing import Any, cast

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from vision_attn.report.analysis import CONTROLS, PROTOCOLS
from vision_attn.report.looks import Look
from vision_attn.report.marks import mark
from vision_attn.report.numbers import FIT, number, short

__all__ = [
    "FEW",
    "LINES",
    "MANY",
    "NAMES",
    "by_last",
    "canvas",
    "curve",
    "draws",
    "end_labels",
    "handle",
    "in_points",
    "legend",
    "log_percent",
    "note",
    "percent",
    "points",
    "rotation",
    "said",
    "sizes",
    "style_handles",
]

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
"""Curves that are emphasised at most: thick, with their intervals."""

FEW = 3
"""Draws below which each is shown, since an interval of two says next to nothing."""

_T1 = 12.706204736174698
"""Student's t at 97.5 % for 1 degree of freedom."""


def canvas(ax: Axes | None) -> tuple[Figure, Axes]:
    """The user's axes with their figure, or new ones."""
    if ax is None:
        figure = Figure()
        return figure, figure.add_subplot()
    return cast(Figure, ax.figure), ax


def by_last(summary: pd.DataFrame, measure: str = "test_acc") -> list[str]:
    """The models, the one first that is highest at its largest size."""
    last = summary.sort_values("size").groupby("model")[f"{measure}_mean"].last()
    return [str(m) for m in last.sort_index().sort_values(ascending=False, kind="stable").index]


# Curves and points


def curve(
    axes: Axes,
    rows: pd.DataFrame,
    measure: str,
    look: Look,
    name: str,
    *,
    x: str = "size",
    style: str = "-",
    strong: bool = True,
    unit: str = " %",
) -> None:
    """Mean and points, with band if `strong`; a point is hollow where not all runs fitted.

    With two draws both are shown and no band.
    """
    at, y = rows[x].to_numpy(float), rows[f"{measure}_mean"].to_numpy(float)
    width = matplotlib.rcParams["lines.linewidth"] * (1.2 if strong else 0.6)
    (line,) = axes.plot(at, y, color=look.colour, ls=style, lw=width, zorder=2.2 if strong else 2)
    mark(line, name, look.colour)
    if strong:
        low, high = (rows[f"{measure}_{end}"].to_numpy(float) for end in ("low", "high"))
        many = rows["count"].to_numpy() >= FEW
        band = axes.fill_between(
            at, low, high, where=list(many), color=look.colour, alpha=0.15, lw=0
        )
        mark(band, name, look.colour)
        beside = np.concatenate([[False], many, [False]])
        alone = many & ~beside[:-2] & ~beside[2:]  # a band needs two
        if alone.any():
            bar = axes.vlines(at[alone], low[alone], high[alone], color=look.colour, alpha=0.5)
            mark(bar, name, look.colour)
        draws(axes, at, rows, measure, look, name)
    points(axes, at, y, rows, look, name, said(rows, measure, unit), strong=strong)


def draws(
    axes: Axes,
    x: Any,
    rows: pd.DataFrame,
    measure: str,
    look: Look,
    name: str,
    *,
    flat: bool = False,
) -> None:
    """The two draws of each mean that is of two; they lie at mean ± half of the interval / t."""
    two = (rows["count"] == 2).to_numpy()
    if not two.any():
        return
    mean, high = (rows[f"{measure}_{k}"].to_numpy(float)[two] for k in ("mean", "high"))
    half = (high - mean) / _T1
    place, value = np.tile(np.asarray(x, float)[two], 2), np.concatenate([mean - half, mean + half])
    at = (value, place) if flat else (place, value)
    mark(axes.scatter(*at, s=9, color=look.colour, alpha=0.7, lw=0, zorder=2.5), name, look.colour)


def points(
    axes: Axes,
    x: Any,
    y: Any,
    rows: pd.DataFrame,
    look: Look,
    name: str,
    texts: Sequence[str],
    *,
    strong: bool = True,
) -> None:
    """Markers, hollow where not all runs fitted, each with its words."""
    faces = [look.colour if f == 1 else "white" for f in rows["fitted"]]
    scale = (matplotlib.rcParams["lines.markersize"] / 6) ** 2
    area = (40 if strong else 22) * scale * _AREA.get(look.marker, 1)
    dots = axes.scatter(
        x, y, marker=look.marker, s=area, c=faces, edgecolors=look.colour, lw=1.3 if strong else 1,
        zorder=3.2 if strong else 3,
    )  # fmt: skip
    places = [(float(a), float(b)) for a, b in zip(x, y, strict=True)]
    mark(dots, name, look.colour, [(*p, t) for p, t in zip(places, texts, strict=True)])


_AREA = {"P": 1.9, "X": 1.9, "D": 0.85, "p": 1.3, "h": 1.3, "d": 1.5}
"""So that all look alike in size, and the thin ones show that they are hollow."""


def said(rows: pd.DataFrame, measure: str, unit: str = " %") -> list[str]:
    """Each point in words: model, images, mean with its interval, draws, what else is special."""
    texts = []
    for r in rows.to_dict("records"):
        mean, low, high = (100 * r[f"{measure}_{k}"] for k in ("mean", "low", "high"))
        text = f"{r['model']}, {r['size']:,.0f} images: {number(mean, '.1f')}{unit}"
        if pd.notna(low):
            text += f" ({number(low, '.1f')} to {number(high, '.1f')})"
        text += f", {r['count']} draw{'s' * (r['count'] != 1)}"
        for kind, plain in (("protocol", "steps"), ("control", "none")):
            text += "" if r[kind] == plain else f", {NAMES.get(r[kind], r[kind])}"
        texts.append(text + ("" if r["fitted"] == 1 else ", not fitted"))
    return texts


# Names at the ends of curves

_ROOM = 0.36
"""Share of a figure's width that names at the ends may take."""


def end_labels(
    axes: Axes, names: Sequence[str], ends: Sequence[tuple[float, float]], looks: Sequence[Look]
) -> bool:
    """Each name at the right of its curve's end, none over another; False where they do not fit."""
    figure = axes.figure
    size = FontProperties(size=matplotlib.rcParams["legend.fontsize"]).get_size_in_points()
    step = 1.25 * size / 72 / (axes.bbox.height / figure.dpi)
    longest = max(len(name) for name in names) * 0.6 * size / 72
    if longest > _ROOM * figure.bbox.width / figure.dpi or step * len(names) > 1:
        return False
    axes.get_ylim()  # brings the range up to date
    to_axes = axes.transData + axes.transAxes.inverted()
    heights = np.array([to_axes.transform(end)[1] for end in ends])
    order = np.argsort(heights, kind="stable")
    ranks = np.arange(len(order)) * step
    spread = _rising(heights[order] - ranks)  # the nearest that keeps the distance
    places = np.clip(spread, 0, 1 - ranks[-1]) + ranks
    for i, place in zip(order, places, strict=True):
        colour = looks[i].colour
        text = axes.annotate(
            names[i], ends[i], (1.05, place), textcoords="axes fraction", va="center",
            color=colour, size=size, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.7, "shrinkA": 1, "shrinkB": 4},
        )  # fmt: skip
        mark(text, names[i], colour)
    return True


def _rising(values: Sequence[float]) -> Any:
    """The nearest values (least squares) that nowhere fall: neighbours that do share their mean."""
    blocks: list[list[float]] = []
    for value in values:
        blocks.append([value])
        while len(blocks) > 1 and np.mean(blocks[-2]) > np.mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    return np.concatenate([np.full(len(block), np.mean(block)) for block in blocks])


# Axes


def sizes(axes: Axes, sizes: Iterable[float], label: str = "training images") -> None:
    """A log axis that names the sizes of the study and no others."""
    ticks = sorted({int(s) for s in sizes})
    axes.set_xscale("log")
    width = axes.bbox.width / axes.figure.dpi
    letters = sum(len(f"{s:,}") + 2 for s in ticks) * 0.55 * _ticks() / 72
    near = any(b / a < 1.6 for a, b in pairwise(ticks)) or letters > width
    axes.set_xticks(ticks, [f"{s:,}" for s in ticks], rotation=45 if near else rotation(len(ticks)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(label)


def _ticks() -> float:
    return FontProperties(size=matplotlib.rcParams["xtick.labelsize"]).get_size_in_points()


def rotation(count: int) -> int:
    """Many labels stand aslant."""
    return 0 if count < 8 else 45


def percent(axes: Axes, label: str) -> None:
    """A share on the vertical axis, in per cent."""
    axes.set_ylabel(label)
    axes.yaxis.set_major_formatter(lambda v, _: f"{100 * v:.3g} %")


def in_points(axes: Axes, label: str) -> None:
    """A difference of shares on the vertical axis, in points."""
    axes.set_ylabel(f"{label}, points")
    axes.yaxis.set_major_formatter(lambda v, _: f"{100 * v:.3g}")


def log_percent(axes: Axes) -> None:
    """Within a decade every tick is named, over more only 2 and 5 beside the tens."""
    low, high = axes.get_ylim()
    named = "23456789" if high / low < 4 else "23457" if high / low < 10 else "25"
    axes.yaxis.set_major_formatter(lambda v, _: f"{100 * v:g} %")
    axes.yaxis.set_minor_formatter(
        lambda v, _: f"{100 * v:.3g} %" if f"{v:.0e}"[0] in named else ""
    )
    axes.tick_params(axis="y", which="minor", labelsize=_ticks())


# Legends


def handle(look: Look, label: str) -> Line2D:
    """An entry in a legend; `label` as of `in_figure`."""
    return Line2D([], [], color=look.colour, marker=look.marker, label=label)


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
    own: bool = True,
    outside: bool = True,
    columns: int = 2,
) -> None:
    """Below the axes, where it covers nothing, and the note under all.

    In the user's axes (not `own`) it stands inside and there is no note.
    """
    if not own:
        if handles:
            axes.legend(handles=handles)
        return
    if handles and not outside:
        axes.legend(handles=handles)
    elif handles:
        longest = max(len(h.get_label()) for h in handles)
        size = FontProperties(size=matplotlib.rcParams["legend.fontsize"]).get_size_in_points()
        width, height = figure.get_size_inches()
        fit = int(width * 72 / (size * (0.62 * longest + 4.5)))
        columns = max(1, min(columns, fit, len(handles)))
        rows = -(-len(handles) // columns)
        more = size * 1.4 / 72 * max(rows - 2, 0)
        figure.set_size_inches(width, height + more)  # the axes keep theirs
        title = _lines(figure, note) if note else None
        below = figure.legend(
            handles=handles, loc="outside lower center", ncols=columns, title=title
        )
        below.get_title().set(color="0.35", multialignment="center")
        return
    if note:
        figure.supxlabel(_lines(figure, note), fontsize="small", color="0.35")


def _lines(figure: Figure, text: str) -> str:
    """A text in lines that are as wide as the figure; a number keeps its unit."""
    size = FontProperties(size="small").get_size_in_points()
    width = max(20, int(figure.get_size_inches()[0] * 72 / (0.53 * size)))
    return fill(text.replace(" %", "\u00a0%"), width)


def note(summary: pd.DataFrame, strong: int) -> str:
    """How many draws a point stands for, and what bands, dots and hollow points mean."""
    counts = sorted(summary["count"].unique())
    span = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    note = f"mean of {span} draw{'s' * (counts != [1])}"
    few = "" if strong == summary["model"].nunique() else " of the thick lines"
    note += f", band: 95 % t interval{few}" if counts[-1] >= FEW else ""
    note += f", dots: the two draws{few}" if 2 in counts else ""
    hollow = (summary["fitted"] < 1).any()
    note += f", hollow: not fitted (train accuracy under {FIT})" if hollow else ""
    params = summary.groupby("model")["params"].first()
    if params.max() > 1.1 * params.min():
        return f"{note}, {short(params.min())} to {short(params.max())} parameters"
    return f"{note}, {short(params.max())} parameters"
