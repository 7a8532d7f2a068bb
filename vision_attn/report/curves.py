"""Figures against the size of the training set, each a bare matplotlib Figure.

No display is needed, and nothing is left open.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import StrMethodFormatter

from vision_attn.report.analysis import CONTROLS, Comparison
from vision_attn.report.plotting import (
    LINES,
    MANY,
    Look,
    legend,
    line,
    log_percent,
    model_handles,
    note,
    percent,
    points,
    rotation,
    sizes,
    style_handles,
    styled,
)
from vision_attn.texts import in_figure

__all__ = [
    "against_size",
    "controls",
    "error_loglog",
    "multiplier",
    "protocol_split",
]


def _canvas() -> tuple[Figure, Axes]:
    figure = Figure()
    return figure, figure.add_subplot()


@styled
def against_size(
    summary: pd.DataFrame, measure: str, label: str, looks: Mapping[str, Look]
) -> Figure:
    """One line a model and protocol with its 95 % band; hollow where not all of its runs fitted."""
    figure, axes = _canvas()
    shade = 0.15 if summary["model"].nunique() <= MANY else 0.07
    for (model, protocol), rows in summary.groupby(["model", "protocol"], sort=True):
        line(axes, rows, measure, looks[str(model)], LINES[str(protocol)], shade)
    sizes(axes, summary["size"])
    percent(axes, label)
    handles = model_handles(summary, looks)
    if summary["protocol"].nunique() > 1:
        handles += style_handles(summary["protocol"])
    legend(figure, axes, handles, note(summary))
    return figure


@styled
def controls(summary: pd.DataFrame, looks: Mapping[str, Look]) -> Figure | None:
    """Test accuracy under each control beside that without; None where no control was run."""
    tested = summary.loc[summary["control"] != "none", "model"]
    summary = summary[summary["model"].isin(tested)]
    if summary.empty:
        return None
    figure, axes = _canvas()
    handles, text = model_handles(summary, looks), note(summary)
    if summary["size"].nunique() > 1:
        for (model, control), rows in summary.groupby(["model", "control"], sort=True):
            line(axes, rows, "test_acc", looks[str(model)], LINES[str(control)])
        sizes(axes, summary["size"])
        handles += style_handles(summary["control"])
    else:
        _side_by_side(axes, summary, looks)
        text = text.replace("band:", "bar:")
    percent(axes, "test accuracy")
    legend(figure, axes, handles, text)
    return figure


def _side_by_side(axes: Axes, summary: pd.DataFrame, looks: Mapping[str, Look]) -> None:
    """The controls of one size: a place each, and in it a point a model."""
    names = [name for name in CONTROLS if name in set(summary["control"])]
    count = summary["model"].nunique()
    for i, (model, rows) in enumerate(summary.groupby("model", sort=True)):
        x = rows["control"].map(names.index) + 0.1 * (i - (count - 1) / 2)
        look = looks[str(model)]
        axes.vlines(x, rows["test_acc_low"], rows["test_acc_high"], color=look.colour, lw=2)
        points(axes, x, rows["test_acc_mean"], rows["fitted"], look)
    axes.set_xticks(range(len(names)), [CONTROLS[name] for name in names])
    axes.set_xlim(-0.5, len(names) - 0.5)


@styled
def error_loglog(
    summary: pd.DataFrame, laws: Mapping[str, Any], looks: Mapping[str, Look]
) -> Figure:
    """Test error on log-log axes; `err = a n^-b + c` drawn through, dashed where it forecasts.

    Args:
        summary: rows of one protocol and control.
        laws: the law of each model that has one.
        looks: the look of each model.
    """
    figure, axes = _canvas()
    for model, rows in summary.groupby("model", sort=True):
        look, x = looks[str(model)], rows["size"].to_numpy(float)
        error = 1 - rows["test_acc_mean"].to_numpy(float)
        low, high = (1 - rows[f"test_acc_{k}"].to_numpy(float) for k in ("high", "low"))
        law = laws.get(str(model))
        if law is None:
            axes.plot(x, error, color=look.colour, lw=1, alpha=0.6, zorder=1)
        else:
            fitted = [s for s in x if s not in law.held_out]
            for start, end, line in ((min(fitted), max(fitted), "-"), (max(fitted), max(x), "--")):
                n = np.geomspace(start, end, 60)
                axes.plot(n, law(n), color=look.colour, ls=line, lw=1.4, zorder=2)
        axes.fill_between(x, np.maximum(low, 1e-4), high, color=look.colour, alpha=0.13, lw=0)
        points(axes, x, error, rows["fitted"], look)
    axes.set_yscale("log")
    sizes(axes, summary["size"])
    log_percent(axes)
    axes.set_ylabel("test error")
    handles = model_handles(summary, looks)
    if laws:
        handles += [Line2D([], [], color="0.3", ls=ls, label=t) for ls, t in _LAW_LINES]
    legend(figure, axes, handles, note(summary))
    return figure


_LAW_LINES = (("-", "power law, fitted"), ("--", "its forecast"))


@styled
def multiplier(comparison: Comparison, looks: Mapping[str, Look]) -> Figure | None:
    """How many times `first`'s images `second` needs for the same error, against those images.

    Triangles are bounds: `second` reaches that error at none of its sizes. A bar that ends at the
    frame goes on beyond what the data can show.
    """
    table = comparison.multiplier
    if table.empty:
        return None
    figure, axes = _canvas()
    colour = looks[comparison.second].colour
    n, exact = table["n"].to_numpy(float), table["multiplier"].notna().to_numpy()
    value = table["multiplier"].where(exact, table["limit"]).to_numpy(float)
    low, high = (table[k].to_numpy(float)[exact] for k in ("low", "high"))
    seen = np.concatenate([value, low[low > 0], high[np.isfinite(high)], [0.8, 1.25]])
    bottom, top = seen.min() / 1.3, seen.max() * 1.3
    axes.axhline(1, color="0.5", lw=1, zorder=1)
    axes.plot(n[exact], value[exact], color=colour, marker="o", zorder=3)
    known = np.isfinite(low)
    ends = (np.maximum(low, bottom)[known], np.minimum(high, top)[known])
    axes.vlines(n[exact][known], *ends, color=colour, alpha=0.5, lw=3, zorder=2)
    for sign, marker in ((">", "^"), ("<", "v")):
        at = table["bound"].str.startswith(sign).to_numpy()
        axes.scatter(n[at], value[at], marker=marker, s=60, c="white", edgecolors=colour, zorder=3)
    axes.set_yscale("log")
    axes.set_ylim(bottom, top)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(lambda v, _: f"{v:g}" if f"{v:.0e}"[0] in "235" else "")
    sizes(axes, table["n"], f"training images of {in_figure(comparison.first)}")
    axes.set_ylabel(f"times the images that {in_figure(comparison.second, 20)} needs")
    return figure


@styled
def protocol_split(comparison: Comparison) -> Figure | None:
    """`first - second` under equal epochs as a bar of two parts, and its total with interval."""
    split = comparison.split
    if split.empty:
        return None
    figure, axes = _canvas()
    at = np.arange(len(split))
    up, down = np.zeros(len(split)), np.zeros(len(split))
    for name, (label, colour) in _PARTS.items():
        value = 100 * split[name].to_numpy(float)
        axes.bar(at, value, 0.62, np.where(value >= 0, up, down), color=colour, label=label)
        up, down = up + np.maximum(value, 0), down + np.minimum(value, 0)
    total = 100 * split["total"].to_numpy(float)
    reach = np.abs(100 * split[["total_low", "total_high"]].to_numpy(float).T - total)
    axes.errorbar(
        at, total, np.nan_to_num(reach), fmt="D", color="black", capsize=3, ms=5,
        label="total: under equal epochs",
    )  # fmt: skip
    axes.axhline(0, color="black", lw=0.8)
    axes.set_xticks(at, [f"{s:,}" for s in split["size"]], rotation=rotation(len(at)))
    axes.set_xlabel("training images")
    first, second = (in_figure(m, 20) for m in (comparison.first, comparison.second))
    axes.set_ylabel(f"{first} minus {second}, points")
    handles, _ = axes.get_legend_handles_labels()
    legend(figure, axes, handles, "", outside=True, columns=1)
    return figure


_PARTS = {
    "generalisation": ("generalisation: the difference under equal updates", "#4477aa"),
    "undertraining": ("undertraining: what equal epochs add", "#ccbb44"),
}
