"""Figures against the size of the training set: of all models, and of the two compared."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from vision_attn.report.analysis import Analysis
from vision_attn.report.chart import FEW, LINES, NAMES, Chart, names_of
from vision_attn.report.numbers import exact, number, times
from vision_attn.texts import in_figure

__all__ = [
    "Words", "accuracy", "by_last", "controls", "ends", "error", "gap", "last_points", "multiplier",
    "protocol_split",
]  # fmt: skip


class Words(NamedTuple):
    """What stands beside a figure: its name, how to read it, what it shows to those who listen."""

    title: str
    caption: str
    shows: str


def by_last(summary: pd.DataFrame, measure: str = "test_acc") -> list[str]:
    """The models, the one first that is highest at its largest size."""
    last = summary.sort_values("size").groupby("model")[f"{measure}_mean"].last()
    return [str(m) for m in last.sort_index().sort_values(ascending=False, kind="stable").index]


def ends(summary: pd.DataFrame, measure: str, sign: int = 1) -> str:
    """What a chart shows, in words: each model at its smallest and its largest size.

    Args:
        sign: -1 for what is missing to 100 %, an error.
    """
    unit = "points" if measure == "gap" else "%"
    parts = []
    for model, rows in summary.groupby("model", sort=True):
        values = [
            f"{exact((sign < 0) + sign * r[f'{measure}_mean'])} {unit} at {r['size']:,} images"
            for r in rows.iloc[[0, -1][: len(rows)]].to_dict("records")
        ]
        parts.append(f"{model}: {', '.join(values)}")
    return "; ".join(parts)


def accuracy(analysis: Analysis, chart: Chart) -> Words:
    """One line a model and protocol; with one size a row a model with its interval."""
    one = _against_size(analysis.plain, chart, "test_acc", "test accuracy")
    title = "Test accuracy of each model" if one else "Test accuracy against training images"
    caption = "Mean over draws. The note explains bands, dots and hollow points."
    return Words(title, caption, ends(analysis.main, "test_acc"))


def gap(analysis: Analysis, chart: Chart) -> Words:
    """The same of train minus test accuracy, in points."""
    one = _against_size(analysis.plain, chart, "gap", "train minus test accuracy")
    return Words(
        "Gap of each model" if one else "Gap against training images",
        "Train minus test accuracy, both on unaugmented images in eval mode. Only filled points"
        " speak of overfitting in accuracy. Where both reach 100 % on train images, a larger gap"
        " is a lower test accuracy and nothing else.",
        ends(analysis.main, "gap"),
    )


def _against_size(summary: pd.DataFrame, chart: Chart, measure: str, label: str) -> bool:
    """Draw a measure; whether there is only one size."""
    axes, order = chart.single(), by_last(summary, measure)
    if summary["size"].nunique() == 1:
        _rows(axes, summary, chart, measure, label)
        return True
    for model in order:
        of_model = summary[summary["model"] == model]
        for protocol, rows in of_model.groupby("protocol", sort=True):
            chart.curve(axes, rows, measure, model, LINES[str(protocol)])
    chart.sizes(axes, summary["size"])
    (chart.in_points if measure == "gap" else chart.percent)(axes, label)
    handles = _names(axes, summary, chart, measure, order)
    if summary["protocol"].nunique() > 1:
        handles += chart.styles(summary["protocol"])
    chart.legend(axes, handles, chart.note(summary))
    return False


def _names(
    axes: Axes, summary: pd.DataFrame, chart: Chart, measure: str, order: Sequence[str]
) -> list[Line2D]:
    """Names at the ends of the curves, of equal updates where there are any."""
    first = min(summary["protocol"].unique(), key=list(NAMES).index)
    chosen = {*summary.loc[summary["protocol"] == first, "model"]}
    rows = summary[(summary["protocol"] == first) | ~summary["model"].isin(chosen)]
    return chart.name_ends(axes, last_points(rows, measure, order))


def last_points(
    summary: pd.DataFrame, measure: str, order: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """The size and the mean of each model at its largest size."""
    last = summary.sort_values("size", kind="stable").groupby("model").last()
    x, y = (last[name].astype(float).to_dict() for name in ("size", f"{measure}_mean"))
    return {model: (x[model], y[model]) for model in order}


def _rows(axes: Axes, summary: pd.DataFrame, chart: Chart, measure: str, label: str) -> None:
    """A row a run's kind, of one size: mean, 95 % interval, and the draws where there are two."""
    table = summary.sort_values([f"{measure}_mean", "model"], ignore_index=True)
    kinds = {kind: names_of(summary[kind]) for kind in ("protocol", "control")}
    several = {kind: words for kind, words in kinds.items() if len(words) > 1}
    names = []
    for i, row in enumerate(table.to_dict("records")):
        model, at, y = row["model"], table.loc[[i]], np.array([float(i)])
        colour = chart.looks[model].colour
        if row["count"] >= FEW:
            low, high = at[f"{measure}_low"], at[f"{measure}_high"]
            chart.mark(model, colour, axes.hlines(y, low, high, color=colour, lw=2.5))
        chart.draws(axes, y, at, measure, model, flat=True)
        chart.points(axes, at[f"{measure}_mean"], y, at, measure, model)
        told = (words[row[kind]] for kind, words in several.items())
        names.append(", ".join([in_figure(model, 24), *told]))
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    gaps = measure == "gap"
    images = f"{int(table['size'].iloc[0]):,} training images"
    axes.set_xlabel(f"{label}{', points' * gaps}, {images}", wrap=True)
    axes.xaxis.set_major_formatter(lambda v, _: f"{100 * v:.3g}{' %' * (not gaps)}")
    axes.grid(visible=False, axis="y")
    chart.strong = table["model"].tolist()
    chart.legend(axes, [], chart.note(summary).replace("band:", "bar:"))


_CONTROLS = {
    "permuted": "Permuted pixels take locality away.",
    "shuffled": "With shuffled labels nothing can be learned that holds on test images.",
    "untuned": "Runs that were not tuned have the same settings for all models.",
}


def controls(analysis: Analysis, chart: Chart) -> Words | None:
    """Test accuracy under each control beside that without; None where no control was run."""
    results = analysis.summary[analysis.summary["protocol"] == analysis.setting.protocol]
    tested = results.loc[results["control"] != "none", "model"]
    summary = results[results["model"].isin(tested)]
    if summary.empty:
        return None
    axes = chart.single()
    order = by_last(summary[summary["control"] == summary["control"].min()])
    order += [m for m in by_last(summary) if m not in order]
    handles = [chart.handle(m) for m in order]
    chart.strong = order
    if summary["size"].nunique() > 1:
        for model in order:
            for control, rows in summary[summary["model"] == model].groupby("control", sort=True):
                chart.curve(axes, rows, "test_acc", model, LINES[str(control)])
        chart.sizes(axes, summary["size"])
        chart.percent(axes, "test accuracy")
        handles += chart.styles(summary["control"])
        chart.legend(axes, handles, chart.note(summary))
    else:
        _rows(axes, summary, chart, "test_acc", "test accuracy")
    return Words(
        "Controls",
        " ".join(_CONTROLS[c] for c in sorted(set(results["control"])) if c in _CONTROLS),
        "; ".join(
            f"{control}: {ends(rows, 'test_acc')}" for control, rows in results.groupby("control")
        ),
    )


def error(analysis: Analysis, chart: Chart) -> Words | None:
    """Test error on log-log axes; `err = a n^-b + c` drawn through, dashed where it forecasts.

    None with one size, where it would say what the accuracy says.
    """
    summary, laws = analysis.main, analysis.laws
    if summary["size"].nunique() == 1:
        return None
    axes, order = chart.single(), by_last(summary)[::-1]
    flipped = {
        f"error_{a}": 1 - summary[f"test_acc_{b}"]
        for a, b in (("mean", "mean"), ("low", "high"), ("high", "low"))
    }
    errors = summary.assign(**flipped)
    errors["error_low"] = errors["error_low"].clip(lower=1e-4)
    errors = errors[errors["error_mean"] > 0]  # no error at all has no place on a log axis
    order = [model for model in order if model in {*errors["model"]}]
    for model in order:
        rows = errors[errors["model"] == model].sort_values("size")
        chart.curve(axes, rows, "error", model, "" if model in laws else "-")
        if model in laws:
            _law(axes, laws[model], rows["size"].to_numpy(float), chart, model)
    axes.set_yscale("log")
    chart.sizes(axes, summary["size"])
    chart.log_names(axes.yaxis, lambda v: f"{100 * v:.3g} %")
    axes.set_ylabel("test error")
    handles = _names(axes, errors, chart, "error", order)
    if laws:
        handles += [
            Line2D([], [], color="0.3", ls=style, label=text)
            for style, text in (("-", "power law, fitted"), ("--", "its forecast"))
        ]
    chart.legend(axes, handles, chart.note(summary))
    return Words(
        "Error on log-log axes",
        "A constant ratio of errors is two parallel lines here, however the difference in"
        " points shrinks.",
        ends(summary, "test_acc", -1),
    )


def _law(axes: Axes, law: Any, x: Any, chart: Chart, model: str) -> None:
    colour, width = chart.looks[model].colour, 1.6 if model in chart.strong else 0.9
    fitted = [s for s in x if s not in law.held_out]
    for start, end, dashes in ((min(fitted), max(fitted), "-"), (max(fitted), max(x), "--")):
        n = np.geomspace(start, end, 60)
        (line,) = axes.plot(n, law(n), color=colour, ls=dashes, lw=width)
        chart.mark(model, colour, line)


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
    chart.upright(axes, f"{second} needs … times the images of {first}")
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
    axes.set_xticks(at, [f"{s:,}" for s in split["size"]])
    axes.set_xlabel("training images")
    first, second = (in_figure(m, 20) for m in (c.first, c.second))
    chart.upright(axes, f"{first} minus {second}, points")
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
