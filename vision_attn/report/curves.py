"""Figures against the size of the training set, each a bare matplotlib Figure.

No display is needed, and nothing is left open. With `ax` they draw into the user's axes, with the
size and letters that those have, and the figure is that of the axes.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vision_attn.report.analysis import CONTROLS
from vision_attn.report.looks import Look
from vision_attn.report.marks import mark
from vision_attn.report.plotting import (
    LINES,
    MANY,
    NAMES,
    by_last,
    canvas,
    curve,
    draws,
    end_labels,
    handle,
    in_points,
    legend,
    log_percent,
    note,
    percent,
    points,
    said,
    sizes,
    style_handles,
)
from vision_attn.report.style import styled
from vision_attn.texts import in_figure

__all__ = [
    "against_size",
    "controls",
    "error_loglog",
]


@styled
def against_size(
    summary: pd.DataFrame,
    measure: str,
    label: str,
    looks: Mapping[str, Look],
    *,
    strong: Collection[str] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """One line a model and protocol; with one size a row a model with its interval.

    Args:
        summary: rows of one control.
        measure: `test_acc`, `gap` or another share; a gap is in points.
        label: of its axis.
        looks: the look of each model.
        strong: the models with thick lines and 95 % bands; by default the first three.
        ax: where to draw; a new figure by default.
    """
    figure, axes = canvas(ax)
    order = by_last(summary, measure)
    strong = order[:MANY] if strong is None else strong
    unit = " points" if measure == "gap" else " %"
    if summary["size"].nunique() == 1:
        _rows(axes, summary, measure, label, looks, unit)
        legend(figure, axes, [], _plain_note(summary), own=ax is None)
        return figure
    for model in order:
        of_model = summary[summary["model"] == model]
        for protocol, rows in of_model.groupby("protocol", sort=True):
            curve(
                axes, rows, measure, looks[model], in_figure(model), style=LINES[str(protocol)],
                strong=model in strong, unit=unit,
            )  # fmt: skip
    sizes(axes, summary["size"])
    (in_points if measure == "gap" else percent)(axes, label)
    handles = _named(axes, summary, measure, order, looks, own=ax is None)
    if summary["protocol"].nunique() > 1:
        handles += style_handles(summary["protocol"])
    text = note(summary, len(set(order) & set(strong)))
    legend(figure, axes, handles, text, own=ax is None)
    return figure


def _named(
    axes: Axes,
    summary: pd.DataFrame,
    measure: str,
    order: list[str],
    looks: Mapping[str, Look],
    *,
    own: bool,
    error: bool = False,
) -> list[Any]:
    """Names at the ends of the curves, or else handles for a legend, in the order of the ends."""
    names = [in_figure(m) for m in order]
    if own:
        first = min(summary["protocol"].unique(), key=list(NAMES).index)
        ends = []
        for model in order:
            rows = summary[summary["model"] == model]
            at = rows[rows["protocol"] == first] if (rows["protocol"] == first).any() else rows
            last = at.sort_values("size").iloc[-1]
            y = float(last[f"{measure}_mean"])
            ends.append((float(last["size"]), 1 - y if error else y))
        if end_labels(axes, names, ends, [looks[m] for m in order]):
            return []
    return [handle(looks[m], name) for m, name in zip(order, names, strict=True)]


def _rows(
    axes: Axes,
    summary: pd.DataFrame,
    measure: str,
    label: str,
    looks: Mapping[str, Look],
    unit: str,
) -> None:
    """A row a model and protocol: mean, 95 % interval, and the draws where there are two."""
    several = summary["protocol"].nunique() > 1
    table = summary.sort_values([f"{measure}_mean", "model"], ignore_index=True)
    for i, row in table.iterrows():
        model, at = str(row["model"]), table.loc[[i]]
        look, y = looks[model], np.array([float(str(i))])
        name = in_figure(model)
        if row["count"] > 2:
            ends = (at[f"{measure}_low"], at[f"{measure}_high"])
            mark(axes.hlines(y, *ends, color=look.colour, lw=2.5), name, look.colour)
        draws(axes, y, at, measure, look, name, flat=True)
        points(axes, at[f"{measure}_mean"], y, at, look, name, said(at, measure, unit))
    names = [
        in_figure(m, 24) + (f", {NAMES[p]}" if several else "")
        for m, p in zip(table["model"], table["protocol"], strict=True)
    ]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlabel(f"{label}{', points' * (unit == ' points')}, {_images(table)}")
    sign = "" if unit == " points" else " %"
    axes.xaxis.set_major_formatter(lambda v, _: f"{100 * v:.3g}{sign}")
    axes.grid(visible=False, axis="y")


def _images(table: pd.DataFrame) -> str:
    return f"{int(table['size'].iloc[0]):,} training images"


def _plain_note(summary: pd.DataFrame) -> str:
    """The note of a figure without lines."""
    return note(summary, summary["model"].nunique()).replace("band:", "bar:")


@styled
def controls(
    summary: pd.DataFrame, looks: Mapping[str, Look], *, ax: Axes | None = None
) -> Figure | None:
    """Test accuracy under each control beside that without; None where no control was run."""
    tested = summary.loc[summary["control"] != "none", "model"]
    summary = summary[summary["model"].isin(tested)]
    if summary.empty:
        return None
    figure, axes = canvas(ax)
    order = by_last(summary[summary["control"] == summary["control"].min()])
    order += [m for m in by_last(summary) if m not in order]
    handles = [handle(looks[m], in_figure(m)) for m in order]
    if summary["size"].nunique() > 1:
        for model in order:
            for control, rows in summary[summary["model"] == model].groupby("control", sort=True):
                curve(
                    axes, rows, "test_acc", looks[model], in_figure(model),
                    style=LINES[str(control)],
                )  # fmt: skip
        sizes(axes, summary["size"])
        handles += style_handles(summary["control"])
        text = note(summary, len(order))
    else:
        _side_by_side(axes, summary, order, looks)
        text = _plain_note(summary)
    percent(axes, "test accuracy")
    legend(figure, axes, handles, text, own=ax is None)
    return figure


def _side_by_side(
    axes: Axes, summary: pd.DataFrame, order: list[str], looks: Mapping[str, Look]
) -> None:
    """The controls of one size: a place each, and in it a point a model."""
    names = [name for name in CONTROLS if name in set(summary["control"])]
    step = min(0.14, 0.8 / len(order))
    for i, model in enumerate(order):
        rows = summary[summary["model"] == model]
        x = (rows["control"].map(names.index) + step * (i - (len(order) - 1) / 2)).to_numpy(float)
        look, name = looks[model], in_figure(model)
        many = (rows["count"] > 2).to_numpy()
        low, high = (rows[f"test_acc_{end}"].to_numpy(float)[many] for end in ("low", "high"))
        mark(axes.vlines(x[many], low, high, color=look.colour, lw=2), name, look.colour)
        draws(axes, x, rows, "test_acc", look, name)
        points(axes, x, rows["test_acc_mean"], rows, look, name, said(rows, "test_acc"))
    axes.set_xticks(range(len(names)), [CONTROLS[name] for name in names])
    axes.set_xlim(-0.5, len(names) - 0.5)


@styled
def error_loglog(
    summary: pd.DataFrame,
    laws: Mapping[str, Any],
    looks: Mapping[str, Look],
    *,
    strong: Collection[str] | None = None,
    ax: Axes | None = None,
) -> Figure | None:
    """Test error on log-log axes; `err = a n^-b + c` drawn through, dashed where it forecasts.

    None with one size, where it would say what the accuracy says.

    Args:
        summary: rows of one protocol and control.
        laws: the law of each model that has one.
        looks: the look of each model.
        strong: the models with thick lines and 95 % bands; by default the first three.
        ax: where to draw; a new figure by default.
    """
    if summary["size"].nunique() == 1:
        return None
    figure, axes = canvas(ax)
    order = by_last(summary)[::-1]
    strong = order[-MANY:] if strong is None else strong
    flipped = summary.assign(
        **{f"error_{a}": 1 - summary[f"test_acc_{b}"] for a, b in _FLIPPED.items()}
    )
    flipped["error_low"] = flipped["error_low"].clip(lower=1e-4)
    for model in order:
        rows = flipped[flipped["model"] == model].sort_values("size")
        thick = model in strong
        law = laws.get(model)
        curve(
            axes, rows, "error", looks[model], in_figure(model), strong=thick,
            style="-" if law is None else "",
        )  # fmt: skip
        if law is not None:
            _law(axes, law, rows["size"].to_numpy(float), looks[model], model, thick=thick)
    axes.set_yscale("log")
    sizes(axes, summary["size"])
    log_percent(axes)
    axes.set_ylabel("test error")
    handles = _named(axes, summary, "test_acc", order, looks, own=ax is None, error=True)
    if laws:
        handles += [Line2D([], [], color="0.3", ls=ls, label=t) for ls, t in _LAW_LINES]
    text = note(summary, len(set(order) & set(strong)))
    legend(figure, axes, handles, text, own=ax is None)
    return figure


_FLIPPED = {"mean": "mean", "low": "high", "high": "low"}
_LAW_LINES = (("-", "power law, fitted"), ("--", "its forecast"))


def _law(axes: Axes, law: Any, x: Any, look: Look, model: str, *, thick: bool) -> None:
    fitted = [s for s in x if s not in law.held_out]
    for start, end, dashes in ((min(fitted), max(fitted), "-"), (max(fitted), max(x), "--")):
        n = np.geomspace(start, end, 60)
        (line,) = axes.plot(n, law(n), color=look.colour, ls=dashes, lw=1.6 if thick else 0.9)
        mark(line, in_figure(model), look.colour)
