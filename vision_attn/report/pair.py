"""Figures of the two models that a study compares: data multiplier, split by protocol."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from vision_attn.report.analysis import Comparison
from vision_attn.report.looks import Look
from vision_attn.report.marks import mark
from vision_attn.report.numbers import number, times
from vision_attn.report.plotting import canvas, legend, rotation, sizes
from vision_attn.report.style import styled
from vision_attn.texts import in_figure

__all__ = ["multiplier", "protocol_split"]


@styled
def multiplier(
    comparison: Comparison, looks: Mapping[str, Look], *, ax: Axes | None = None
) -> Figure | None:
    """How many times `first`'s images `second` needs for the same error, against those images.

    Triangles are bounds: `second` reaches that error at none of its sizes. An arrow is where an
    interval goes on beyond what the data can show. A bound of 1 says no more than who is ahead and
    is left out; None with one size, and where only bounds are left, or multiples that no draws
    bound.
    """
    table = comparison.multiplier
    if len(table) < 2:
        return None
    table = table[table["multiplier"].notna() | (table["limit"] != 1)]
    free = (table["low"] == 0) & (table["high"] == np.inf)
    if not (table["multiplier"].notna() & ~free).any():
        return None
    figure, axes = canvas(ax)
    look, name = looks[comparison.second], in_figure(comparison.second, 20)
    n, exact = table["n"].to_numpy(float), table["multiplier"].notna().to_numpy()
    value = table["multiplier"].where(exact, table["limit"]).to_numpy(float)
    low, high = (table[k].to_numpy(float)[exact] for k in ("low", "high"))
    seen = np.concatenate([value, low[low > 0], high[np.isfinite(high)], [0.8, 1.25]])
    bottom, top = seen.min() / 1.4, seen.max() * 1.4
    axes.axhline(1, color="0.5", lw=1, zorder=1)
    axes.plot(n[exact], value[exact], color=look.colour, marker=look.marker, zorder=3)
    known = np.isfinite(low)
    ends = (np.maximum(low, bottom)[known], np.minimum(high, top)[known])
    axes.vlines(n[exact][known], *ends, color=look.colour, alpha=0.5, lw=3, zorder=2)
    for cut, end, sign in ((high > top, top, "^"), (low < bottom, bottom, "v")):
        at = n[exact][known & cut]
        axes.scatter(
            at, np.full(len(at), end), marker=sign, s=70, color=look.colour, clip_on=False, zorder=3
        )
    for sign, marker in ((">", "^"), ("<", "v")):
        at = table["bound"].str.startswith(sign).to_numpy()
        axes.scatter(
            n[at], value[at], marker=marker, s=60, c="white", edgecolors=look.colour, zorder=3
        )
        for x, y, bound in zip(n[at], value[at], table["bound"][at], strict=True):
            axes.annotate(bound, (x, y), (0, 8 if sign == ">" else -8), fontsize="small",
                          textcoords="offset points", ha="center",
                          va="bottom" if sign == ">" else "top")  # fmt: skip
    texts = [f"{r['n']:,} images: {times(r)}" for r in table.to_dict("records")]
    unseen = axes.scatter(n, value, s=0)
    places = [(float(a), float(b), t) for a, b, t in zip(n, value, texts, strict=True)]
    mark(unseen, name, look.colour, places)
    axes.set_yscale("log")
    axes.set_ylim(bottom, top)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(lambda v, _: f"{v:g}" if f"{v:.0e}"[0] in "235" else "")
    axes.tick_params(
        axis="y", which="minor", labelsize=axes.yaxis.get_ticklabels()[0].get_fontsize()
    )
    first = in_figure(comparison.first, 20)
    sizes(axes, table["n"], f"training images of {first}")
    axes.set_ylabel(f"{name} needs … times the images of {first}")
    legend(figure, axes, [], _multiplier_note(table, high[known] > top), own=ax is None)
    return figure


def _multiplier_note(table: pd.DataFrame, cut: Any) -> str:
    parts = ["bar: 95 % interval"] if table["low"].notna().any() else []
    parts += ["arrow: the interval goes on"] if cut.any() else []
    parts += ["open triangle: a bound"] if (table["bound"] != "").any() else []
    return ", ".join(parts)


@styled
def protocol_split(comparison: Comparison, *, ax: Axes | None = None) -> Figure | None:
    """`first - second` under equal epochs and its two parts, side by side with 95 % intervals."""
    split = comparison.split
    if split.empty:
        return None
    figure, axes = canvas(ax)
    at = np.arange(len(split), dtype=float)
    for i, (name, (label, colour, marker)) in enumerate(_PARTS.items()):
        value = 100 * split[name].to_numpy(float)
        reach = np.abs(100 * split[[f"{name}_low", f"{name}_high"]].to_numpy(float).T - value)
        place = at + 0.24 * (i - 1)
        bars = axes.bar(place, value, 0.22, color=colour, alpha=0.35, lw=0)
        whisker = axes.errorbar(
            place, value, np.nan_to_num(reach), fmt=marker, color=colour, capsize=3, ms=5,
            label=label,
        )  # fmt: skip
        dots, caps, stems = whisker.lines
        for part in (*bars, dots, *caps, *stems):
            mark(part, label, colour)
        words = [
            f"{label}, {n:,} images: {number(v, '.1f')} points"
            for n, v in zip(split["size"], value, strict=True)
        ]
        unseen = axes.scatter(place, value, s=0)
        spots = [(float(a), float(b), t) for a, b, t in zip(place, value, words, strict=True)]
        mark(unseen, label, colour, spots)
    axes.axhline(0, color="black", lw=0.8)
    axes.set_xticks(at, [f"{s:,}" for s in split["size"]], rotation=rotation(len(at)))
    axes.set_xlabel("training images")
    first, second = (in_figure(m, 20) for m in (comparison.first, comparison.second))
    axes.set_ylabel(f"{first} minus {second}, points")
    handles, _ = axes.get_legend_handles_labels()
    text = "bar: 95 % t interval over draws" if split["total_low"].notna().any() else ""
    legend(figure, axes, handles, text, own=ax is None, columns=1)
    return figure


_PARTS = {
    "total": ("total: under equal epochs", "#111111", "D"),
    "generalisation": ("generalisation: the difference under equal updates", "#6b6b6b", "o"),
    "undertraining": ("undertraining: what equal epochs add", "#00796b", "^"),
}
"""Label, colour and marker; the colours are no model's."""
