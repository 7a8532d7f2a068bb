"""Figures of the two models that a study compares: data multiplier, split by protocol."""

import numpy as np

from vision_attn.report.analysis import Analysis
from vision_attn.report.chart import Chart
from vision_attn.report.curves import Words
from vision_attn.report.numbers import exact, number, times
from vision_attn.texts import in_figure

__all__ = ["multiplier", "protocol_split"]


def multiplier(analysis: Analysis, chart: Chart) -> Words | None:
    """How many times `first`'s images `second` needs for the same error, against those images.

    Triangles are bounds: `second` reaches that error at none of its sizes. An arrow is where an
    interval goes on beyond what the data can show. A bound of 1 says no more than who is ahead and
    is left out; None with one size, and where only bounds are left, or multiples that no draws
    bound.
    """
    c = analysis.comparison
    if c is None or len(c.multiplier) < 2:
        return None
    table = c.multiplier[c.multiplier["multiplier"].notna() | (c.multiplier["limit"] != 1)]
    known = table["multiplier"].notna().to_numpy()
    n, low, high = (table[name].to_numpy(float) for name in ("n", "low", "high"))
    if not (known & ~((low == 0) & (high == np.inf))).any():
        return None
    axes, colour, marker = (
        chart.single(),
        chart.looks[c.second].colour,
        chart.looks[c.second].marker,
    )
    value = table["multiplier"].fillna(table["limit"]).to_numpy(float)
    barred = known & np.isfinite(low)
    seen = np.concatenate([
        value, low[barred & (low > 0)], high[barred & np.isfinite(high)], [0.8, 1.25],
    ])  # fmt: skip
    bottom, top = seen.min() / 1.4, seen.max() * 1.4
    axes.axhline(1, color="0.5", lw=1, zorder=1)
    axes.plot(n[known], value[known], color=colour, marker=marker, zorder=3)
    axes.vlines(
        n[barred], np.maximum(low, bottom)[barred], np.minimum(high, top)[barred], color=colour,
        alpha=0.5, lw=3, zorder=2,
    )  # fmt: skip
    for cut, end, sign in ((high > top, top, "^"), (low < bottom, bottom, "v")):
        at = n[barred & cut]
        axes.scatter(
            at, np.full(len(at), end), marker=sign, s=70, color=colour, clip_on=False, zorder=3
        )
    for sign, shape, off, place in ((">", "^", 8, "bottom"), ("<", "v", -8, "top")):
        at = table["bound"].str.startswith(sign).to_numpy()
        axes.scatter(n[at], value[at], marker=shape, s=60, c="white", edgecolors=colour, zorder=3)
        for x, y, bound in zip(n[at], value[at], table["bound"][at], strict=True):
            axes.annotate(
                bound, (x, y), (0, off), fontsize="small", textcoords="offset points", ha="center",
                va=place,
            )  # fmt: skip
    texts = [f"{r['n']:,} images: {times(r)}" for r in table.to_dict("records")]
    tips = [*zip(n, value, texts, strict=True)]
    chart.mark(in_figure(c.second, 20), colour, axes.scatter(n, value, s=0), tips)
    axes.set_yscale("log")
    axes.set_ylim(bottom, top)
    chart.log_names(axes.yaxis, lambda v: f"{v:g}", "235")
    first, second = (in_figure(m, 20) for m in (c.first, c.second))
    chart.sizes(axes, table["n"], f"training images of {first}")
    axes.set_ylabel(f"{second} needs … times the images of {first}")
    parts = {
        "bar: 95 % interval": table["low"].notna().any(),
        "arrow: the interval goes on": (barred & (high > top)).any(),
        "open triangle: a bound": (table["bound"] != "").any(),
    }
    chart.legend(axes, [], ", ".join(text for text, shown in parts.items() if shown))
    return Words(
        "Data multiplier",
        f"How many times {c.first}'s images {c.second} needs for the same error; a bound where"
        " that error is reached at no size.",
        "; ".join(
            f"at {r['n']:,} images {r['bound'] or format(r['multiplier'], '.2f')}"
            for r in c.multiplier.to_dict("records")
        ),
    )


_PARTS = {
    "total": ("total: under equal epochs", "#111111", "D"),
    "generalisation": ("generalisation: the difference under equal updates", "#6b6b6b", "o"),
    "undertraining": ("undertraining: what equal epochs add", "#00796b", "^"),
}
"""Label, colour and marker; the colours are no model's."""


def protocol_split(analysis: Analysis, chart: Chart) -> Words | None:
    """`first - second` under equal epochs and its two parts, side by side with 95 % intervals."""
    c = analysis.comparison
    if c is None or c.split.empty:
        return None
    axes, split, at = chart.single(), c.split, np.arange(len(c.split), dtype=float)
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
            chart.mark(label, colour, part)
        texts = [
            f"{label}, {n:,} images: {number(v, '.1f')} points"
            for n, v in zip(split["size"], value, strict=True)
        ]
        tips = [*zip(place, value, texts, strict=True)]
        chart.mark(label, colour, axes.scatter(place, value, s=0), tips)
    axes.axhline(0, color="black", lw=0.8)
    axes.set_xticks(at, [f"{s:,}" for s in split["size"]], rotation=45 if len(at) > 7 else 0)
    axes.set_xlabel("training images")
    first, second = (in_figure(m, 20) for m in (c.first, c.second))
    axes.set_ylabel(f"{first} minus {second}, points")
    handles, _ = axes.get_legend_handles_labels()
    text = "bar: 95 % t interval over draws" if split["total_low"].notna().any() else ""
    chart.legend(axes, handles, text, columns=1)
    return Words(
        "What the protocol does",
        f"{c.first} minus {c.second} when both train for equal epochs, split into what is left"
        " under equal updates and what equal epochs add.",
        "; ".join(
            f"at {r['size']:,} images {exact(r['total'])} points, of which"
            f" {exact(r['undertraining'])} from undertraining"
            for r in split.to_dict("records")
        ),
    )
