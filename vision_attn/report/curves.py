"""Figures against the size of the training set: accuracy, gap, error, controls."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from vision_attn.report.analysis import Analysis
from vision_attn.report.chart import FEW, LINES, NAMES, Chart
from vision_attn.report.numbers import exact
from vision_attn.texts import in_figure

__all__ = ["Words", "accuracy", "by_last", "controls", "ends", "error", "gap"]


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
    last = {}
    for model in order:
        rows = summary[summary["model"] == model].sort_values("size")
        at = rows[rows["protocol"] == first] if (rows["protocol"] == first).any() else rows
        last[model] = (float(at["size"].iloc[-1]), float(at[f"{measure}_mean"].iloc[-1]))
    return chart.name_ends(axes, last)


def _rows(axes: Axes, summary: pd.DataFrame, chart: Chart, measure: str, label: str) -> None:
    """A row a run's kind, of one size: mean, 95 % interval, and the draws where there are two."""
    table = summary.sort_values([f"{measure}_mean", "model"], ignore_index=True)
    several = [kind for kind in ("protocol", "control") if summary[kind].nunique() > 1]
    names = []
    for i, row in enumerate(table.to_dict("records")):
        model, at, y = row["model"], table.loc[[i]], np.array([float(i)])
        colour = chart.looks[model].colour
        if row["count"] >= FEW:
            low, high = at[f"{measure}_low"], at[f"{measure}_high"]
            chart.mark(model, colour, axes.hlines(y, low, high, color=colour, lw=2.5))
        chart.draws(axes, y, at, measure, model, flat=True)
        chart.points(axes, at[f"{measure}_mean"], y, at, measure, model)
        names.append(", ".join([in_figure(model, 24), *(NAMES[row[kind]] for kind in several)]))
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    gaps = measure == "gap"
    images = f"{int(table['size'].iloc[0]):,} training images"
    axes.set_xlabel(f"{label}{', points' * gaps}, {images}")
    axes.xaxis.set_major_formatter(lambda v, _: f"{100 * v:.3g}{' %' * (not gaps)}")
    axes.grid(visible=False, axis="y")
    chart.strong = table["model"].tolist()
    chart.legend(axes, [], chart.note(summary).replace("band:", "bar:"))


def controls(analysis: Analysis, chart: Chart) -> Words | None:
    """Test accuracy under each control beside that without; None where no control was run."""
    summary = analysis.tested
    tested = summary.loc[summary["control"] != "none", "model"]
    summary = summary[summary["model"].isin(tested)]
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
        "Permuted pixels take locality away; with shuffled labels nothing can be learned that"
        " holds on test images.",
        "; ".join(
            f"{control}: {ends(rows, 'test_acc')}"
            for control, rows in analysis.tested.groupby("control")
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
