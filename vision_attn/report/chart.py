"""A figure being drawn: curves, points, intervals, names at the ends of curves, legends.

No display is needed, and nothing is left open. In axes of the user's own it has the size and
letters that those have, and no note.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from textwrap import fill
from typing import Any, cast

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator
from scipy.optimize import isotonic_regression

from vision_attn.report.comparison import CONTROLS, PROTOCOLS
from vision_attn.report.looks import Look
from vision_attn.report.numbers import FIT, short, span, written
from vision_attn.study.result import UNTUNED
from vision_attn.texts import in_figure

__all__ = ["FEW", "LINES", "NAMES", "Chart", "names_of"]

LINES = {
    "steps": "-",
    "epochs": "--",
    "none": "-",
    "permuted": "-.",
    "shuffled": ":",
    "untuned": "--",
}
"""Line styles of protocols and controls."""

NAMES = PROTOCOLS | CONTROLS


def names_of(kinds: Iterable[str]) -> dict[str, str]:
    """Protocols and controls in words, in their order; beside untuned runs plain ones are tuned."""
    there = set(kinds)
    plain = {"none": "tuned"} if UNTUNED in there else {}
    return {kind: name for kind, name in (NAMES | plain).items() if kind in there}


FEW = 3
"""Draws below which each is shown, since an interval of two says next to nothing."""

_T1 = 12.706204736174698
"""Student's t at 97.5 % for 1 degree of freedom."""

_AREA = {"P": 1.9, "X": 1.9, "D": 0.85, "p": 1.3, "h": 1.3, "d": 1.5}
"""So that all markers look alike in size, and the thin ones show that they are hollow."""

_ROOM = 0.36
"""Share of a figure's width that names at the ends may take."""

_GREY = "0.35"


class Chart:
    """A figure, and which of its parts belong to which curve.

    Args:
        looks: the look of each model.
        strong: the models with thick lines and 95 % bands.
        ax: axes of the user's own, where to draw.
    """

    def __init__(
        self, looks: Mapping[str, Look], strong: Collection[str] = (), ax: Axes | None = None
    ) -> None:
        self.looks, self.strong, self.ax = looks, strong, ax
        self.figure = Figure() if ax is None else cast(Figure, ax.figure)
        self._parts = 0
        self._curves: dict[str, str] = {}  # and their colours
        self._places: list[tuple[str, Axes, float, float, str]] = []

    def single(self) -> Axes:
        """The one axes of the figure."""
        return self.figure.add_subplot() if self.ax is None else self.ax

    def grid(self, lines: int, columns: int, width: float, height: float, **share: Any) -> Any:
        """Several axes (lines, columns), in a figure so many times as large as usual."""
        usual = self.figure.get_size_inches()
        self.figure.set_size_inches(width * usual[0], height * usual[1])
        return self.figure.subplots(lines, columns, squeeze=False, **share)

    def mark(
        self, name: str, colour: Any, artist: Artist, points: Sequence[tuple[Any, Any, str]] = ()
    ) -> None:
        """Say that an artist is part of a curve, and what its points mean: x, y in data, words.

        Its id in an SVG is `curve0.0` for the first part of the first curve, and so on.
        """
        name = in_figure(name)
        self._curves.setdefault(name, to_hex(colour))
        artist.set_gid(f"curve{[*self._curves].index(name)}.{self._parts}")
        self._parts += 1
        self._places += [(name, cast(Axes, artist.axes), x, y, words) for x, y, words in points]

    def tips(self) -> list[dict[str, Any]]:
        """Each curve as `name`, `colour` and `points`: x, y in the units of the SVG, and words.

        The figure is rendered, so its layout is done.
        """
        scale, height = 72 / self.figure.dpi, 72 * self.figure.get_size_inches()[1]
        points: dict[str, list[Any]] = {name: [] for name in self._curves}
        for name, axes, x, y, words in self._places:
            right, up = (float(v) * scale for v in axes.transData.transform((x, y)))
            points[name].append([round(right, 1), round(height - up, 1), words])
        return [
            {"name": name, "colour": colour, "points": points[name]}
            for name, colour in self._curves.items()
        ]

    # Curves and points

    def curve(
        self, axes: Axes, rows: pd.DataFrame, measure: str, name: str, style: str, x: str = "size"
    ) -> None:
        """Mean and points, with band if strong; a point is hollow where not all runs fitted.

        With two draws both are shown and no band.
        """
        colour, strong = self.looks[name].colour, name in self.strong
        at, y = rows[x].to_numpy(float), rows[f"{measure}_mean"].to_numpy(float)
        width = matplotlib.rcParams["lines.linewidth"] * (1.2 if strong else 0.6)
        order = 2.2 if strong else 2
        (line,) = axes.plot(at, y, color=colour, ls=style, lw=width, zorder=order)
        self.mark(name, colour, line)
        if strong:
            low, high = (rows[f"{measure}_{end}"].to_numpy(float) for end in ("low", "high"))
            many = rows["count"].to_numpy() >= FEW
            band = axes.fill_between(
                at, low, high, where=list(many), color=colour, alpha=0.15, lw=0
            )
            self.mark(name, colour, band)
            beside = np.concatenate([[False], many, [False]])
            alone = many & ~beside[:-2] & ~beside[2:]  # a band needs two
            if alone.any():
                bar = axes.vlines(at[alone], low[alone], high[alone], color=colour, alpha=0.5)
                self.mark(name, colour, bar)
            self.draws(axes, at, rows, measure, name)
        self.points(axes, at, y, rows, measure, name)

    def draws(
        self, axes: Axes, x: Any, rows: pd.DataFrame, measure: str, name: str, flat: bool = False
    ) -> None:
        """The two draws of each mean that is of two; they lie at mean ± half of the interval / t.

        Args:
            flat: along the horizontal axis, at heights `x`.
        """
        two = (rows["count"] == 2).to_numpy()
        if not two.any():
            return
        colour = self.looks[name].colour
        mean, high = (rows[f"{measure}_{k}"].to_numpy(float)[two] for k in ("mean", "high"))
        half = (high - mean) / _T1
        place, value = np.tile(np.asarray(x)[two], 2), np.concatenate([mean - half, mean + half])
        at = (value, place) if flat else (place, value)
        self.mark(name, colour, axes.scatter(*at, s=9, color=colour, alpha=0.7, lw=0, zorder=2.5))

    def points(
        self, axes: Axes, x: Any, y: Any, rows: pd.DataFrame, measure: str, name: str
    ) -> None:
        """Markers, hollow where not all runs fitted, each with its words."""
        look, strong = self.looks[name], name in self.strong
        faces = [look.colour if f == 1 else "white" for f in rows["fitted"]]
        scale = (matplotlib.rcParams["lines.markersize"] / 6) ** 2 * _AREA.get(look.marker, 1)
        dots = axes.scatter(
            x, y, marker=look.marker, s=(40 if strong else 22) * scale, c=faces,
            edgecolors=look.colour, lw=1.3 if strong else 1, zorder=3.2 if strong else 3,
        )  # fmt: skip
        self.mark(name, look.colour, dots, [*zip(x, y, _said(rows, measure), strict=True)])

    # Names and legends

    def name_ends(self, axes: Axes, ends: Mapping[str, tuple[float, float]]) -> list[Line2D]:
        """Each name at the right of its curve's end, none over another.

        Where they do not fit, or the axes are the user's, handles for a legend are returned.
        """
        names = [in_figure(name) for name in ends]
        size = _points("legend.fontsize")
        width, height = (
            side / self.figure.dpi for side in (self.figure.bbox.width, axes.bbox.height)
        )
        step = 1.25 * size / 72 / height
        longest = max(map(len, names)) * 0.6 * size / 72
        if self.ax or longest > _ROOM * width or step * len(names) > 1:
            return [self.handle(name) for name in ends]
        axes.get_ylim()  # brings the range up to date
        to_axes = axes.transData + axes.transAxes.inverted()
        heights = to_axes.transform([*ends.values()])[:, 1]
        order = np.argsort(heights, kind="stable")
        ranks = np.arange(len(order)) * step
        spread = isotonic_regression(heights[order] - ranks).x  # the nearest that keep the distance
        places = np.clip(spread, 0, 1 - ranks[-1]) + ranks
        for i, place in zip(order, places, strict=True):
            name, colour = [*ends][i], self.looks[[*ends][i]].colour
            text = axes.annotate(
                names[i], ends[name], (1.05, place), textcoords="axes fraction", va="center",
                color=colour, size=size, annotation_clip=False, zorder=2.9,
                arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.7, "ls": (0, (1, 3)),
                            "alpha": 0.8, "patchA": None,  # dots, so as not to look like a curve
                            "relpos": (0, 0.5), "shrinkA": 2, "shrinkB": 0},
            )  # fmt: skip
            self.mark(name, colour, text)
        return []

    def handle(self, name: str) -> Line2D:
        """The entry of a model in a legend."""
        look = self.looks[name]
        return Line2D([], [], color=look.colour, marker=look.marker, label=in_figure(name))

    def legend(self, axes: Axes, handles: Sequence[Any], note: str, columns: int = 2) -> None:
        """Below the axes, where it covers nothing, and the note under all."""
        if self.ax:
            if handles:
                axes.legend(handles=handles)
            return
        width, height = self.figure.get_size_inches()
        small = FontProperties(size="small").get_size_in_points()
        note = _folded(note.replace(" %", "\u00a0%"), width, small)  # a number keeps its unit
        if not handles:
            self.figure.supxlabel(note, fontsize="small", color=_GREY)
            return
        longest = max(len(h.get_label()) for h in handles)
        size = _points("legend.fontsize")
        fit = int(width * 72 / (size * (0.62 * longest + 4.5)))
        columns = max(1, min(columns, fit, len(handles)))
        more = size * 1.4 / 72 * max(-(-len(handles) // columns) - 2, 0)
        self.figure.set_size_inches(width, height + more)  # the axes keep theirs
        below = self.figure.legend(
            handles=handles, loc="outside lower center", ncols=columns, title=note or None
        )
        below.get_title().set(color=_GREY, multialignment="center")

    def styles(self, kinds: Iterable[str]) -> list[Line2D]:
        """What the line style of each kind stands for, whatever the colour."""
        return [
            Line2D([], [], color="0.3", ls=LINES[k], label=name)
            for k, name in names_of(kinds).items()
        ]

    def note(self, summary: pd.DataFrame, thin: str = "") -> str:
        """How many draws a point stands for, and what bands, dots and hollow points mean.

        Args:
            thin: what the thin lines have in place of bands.
        """
        counts = sorted(summary["count"].unique())
        few = "" if {*summary["model"]} <= {*self.strong} else " of the thick lines"
        params = summary.groupby("model")["params"].first()
        least = f"{short(params.min())} to " * bool(params.max() > 1.1 * params.min())
        parts = {
            f"mean of {span(counts)} draw{'s' * (counts != [1])}": True,
            f"band: 95 % t interval{few}": counts[-1] >= FEW,
            thin: bool(thin and few) and counts[-1] >= FEW,
            f"dots: the two draws{few}": 2 in counts,
            f"hollow: not fitted (train accuracy under {FIT})": (summary["fitted"] < 1).any(),
            f"{least}{short(params.max())} parameters": True,
        }
        return ", ".join(text for text, shown in parts.items() if shown)

    # Axes

    def sizes(self, axes: Axes, sizes: Iterable[float], label: str = "training images") -> None:
        """A log axis that names the sizes of the study and no others."""
        ticks = sorted({int(s) for s in sizes})
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{s:,}" for s in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(label)

    def upright(self, axes: Axes, label: str) -> None:
        """Name the vertical axis, in lines that are no longer than it."""
        size = _points("axes.labelsize")
        length = axes.bbox.height / axes.figure.dpi - 1.5 * size / 72  # what stands below has some
        axes.set_ylabel(_folded(label, length, size))

    def percent(self, axes: Axes, label: str) -> None:
        """A share on the vertical axis, in per cent; a wide band is cut where no share can be."""
        low, high = axes.get_ylim()
        if low < -0.03 or high > 1.03:  # else the axis goes on to follow what is drawn
            axes.set_ylim(max(low, -0.03), min(high, 1.03))
        axes.set_ylabel(label)
        axes.yaxis.set_major_formatter(lambda v, _: f"{100 * v:.3g} %")

    def in_points(self, axes: Axes, label: str) -> None:
        """A difference of shares on the vertical axis, in points."""
        axes.set_ylabel(f"{label}, points")
        axes.yaxis.set_major_formatter(lambda v, _: f"{100 * v:.3g}")

    def log_names(self, axis: Any, text: Any, named: str | None = None) -> None:
        """Name the ticks of a log axis, between the tens those that begin with a digit of `named`.

        By default every one within half a decade, within a whole one some, over more 2 and 5.
        """
        low, high = axis.get_view_interval()
        digits = "23456789" if high / low < 4 else "23457" if high / low < 10 else "25"
        digits = digits if named is None else named
        axis.set_major_formatter(lambda v, _: text(v))
        axis.set_minor_formatter(lambda v, _: text(v) if f"{v:.0e}"[0] in digits else "")
        axis.set_tick_params(which="minor", labelsize=_points(f"{axis.axis_name}tick.labelsize"))


def _points(name: str) -> float:
    """A size of letters in points, by its rcParam."""
    rules: Any = matplotlib.rcParams
    return FontProperties(size=rules[name]).get_size_in_points()


def _folded(text: str, inches: float, size: float) -> str:
    """Text in lines of some inches, with letters of so many points."""
    return fill(text, max(20, int(inches * 72 / (0.53 * size))))


_UNITS = dict.fromkeys(("gap", "behind", "online_gap"), ("%", " points"))
_UNITS["val_loss_rise"] = (".2f", " nats")


def _said(rows: pd.DataFrame, measure: str) -> list[str]:
    """Each point in words: model, images, mean with its interval, draws, what else is special."""
    texts = []
    form, unit = _UNITS.get(measure, ("%", " %"))
    for r in rows.to_dict("records"):
        mean, low, high = (r[f"{measure}_{k}"] for k in ("mean", "low", "high"))
        text = f"{r['model']}, {r['size']:,.0f} images: {written(mean, form)}{unit}"
        text += f" ({written(low, form)} to {written(high, form)})" if pd.notna(low) else ""
        text += f", {r['count']} draw{'s' * (r['count'] != 1)}"
        for kind, plain in (("protocol", "steps"), ("control", "none")):
            text += "" if r[kind] == plain else f", {NAMES.get(r[kind], r[kind])}"
        texts.append(text + ("" if r["fitted"] == 1 else ", not fitted"))
    return texts
