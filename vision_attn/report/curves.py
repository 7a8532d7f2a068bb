"""Figures of a study, each a bare matplotlib Figure: no display, nothing left open."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vision_attn.report.plotting import (
    FONT,
    MANY,
    NAMES,
    canvas,
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
)
from vision_attn.report.styles import LINES, NONE, looks

__all__ = [
    "against_size",
    "controls",
    "error_loglog",
    "multiplier",
    "protocol_split",
]


def against_size(
    summary: pd.DataFrame, measure: str, label: str, archs: Mapping[str, str] = NONE
) -> Figure:
    """One line a model and protocol with its 95 % band; hollow where not all of its runs fitted."""
    figure, axes = canvas()
    look = looks(summary["model"], archs)
    shade = 0.15 if len(look) <= MANY else 0.07
    for (model, protocol), rows in summary.groupby(["model", "protocol"], sort=True):
        line(axes, rows, measure, look[str(model)], LINES[str(protocol)], shade)
    sizes(axes, summary["size"])
    percent(axes, label)
    handles = model_handles(summary, look)
    if summary["protocol"].nunique() > 1:
        handles += style_handles(summary["protocol"])
    legend(figure, axes, handles, note(summary))
    return figure


def controls(summary: pd.DataFrame, archs: Mapping[str, str] = NONE) -> Figure | None:
    """Test accuracy under each control beside that without; None where no control was run."""
    tested = summary.loc[summary["control"] != "none", "model"]
    summary = summary[summary["model"].isin(tested)]
    if summary.empty:
        return None
    figure, axes = canvas()
    look = looks(summary["model"], archs)
    handles, text = model_handles(summary, look), note(summary)
    if summary["size"].nunique() > 1:
        for (model, control), rows in summary.groupby(["model", "control"], sort=True):
            line(axes, rows, "test_acc", look[str(model)], LINES[str(control)])
        sizes(axes, summary["size"])
        handles += style_handles(summary["control"])
    else:  # the controls side by side
        held = [name for name in NAMES if name in set(summary["control"])]
        for i, (model, rows) in enumerate(summary.groupby("model", sort=True)):
            x = rows["control"].map(held.index) + 0.1 * (i - (len(look) - 1) / 2)
            colour = look[str(model)].colour
            axes.vlines(x, rows["test_acc_low"], rows["test_acc_high"], color=colour, lw=2)
            points(axes, x, rows["test_acc_mean"], rows["fitted"], look[str(model)])
        axes.set_xticks(range(len(held)), [NAMES[name] for name in held])
        axes.set_xlim(-0.5, len(held) - 0.5)
        text = text.replace("band:", "bar:")
    percent(axes, "test accuracy")
    legend(figure, axes, handles, text)
    return figure


def error_loglog(
    summary: pd.DataFrame, laws: Mapping[str, Any], archs: Mapping[str, str] = NONE
) -> Figure:
    """Test error on log-log axes; `err = a n^-b + c` drawn through, dashed where it forecasts.

    Args:
        summary: rows of one protocol and control.
        laws: the law of each model that has one.
        archs: which model a label stands for.
    """
    figure, axes = canvas()
    look = looks(summary["model"], archs)
    for model, rows in summary.groupby("model", sort=True):
        style, x = look[str(model)], rows["size"].to_numpy(float)
        error = 1 - rows["test_acc_mean"].to_numpy(float)
        low, high = (1 - rows[f"test_acc_{k}"].to_numpy(float) for k in ("high", "low"))
        law = laws.get(str(model))
        if law is None:
            axes.plot(x, error, color=style.colour, lw=1, alpha=0.6, zorder=1)
        else:
            fitted = [s for s in x if s not in law.held_out]
            for start, end, line in ((min(fitted), max(fitted), "-"), (max(fitted), max(x), "--")):
                n = np.geomspace(start, end, 60)
                axes.plot(n, law(n), color=style.colour, ls=line, lw=1.4, zorder=2)
        axes.fill_between(x, np.maximum(low, 1e-4), high, color=style.colour, alpha=0.13, lw=0)
        points(axes, x, error, rows["fitted"], style)
    axes.set_yscale("log")
    sizes(axes, summary["size"])
    log_percent(axes)
    axes.set_ylabel("test error", fontsize=FONT)
    handles = model_handles(summary, look)
    if laws:
        handles += [Line2D([], [], color="0.3", ls=ls, label=t) for ls, t in _LAW_LINES]
    legend(figure, axes, handles, note(summary))
    return figure


_LAW_LINES = (("-", "power law, fitted"), ("--", "its forecast"))


def multiplier(table: pd.DataFrame, first: str, second: str) -> Figure | None:
    """How many times `first`'s images `second` needs for the same error, against those images.

    Triangles are bounds: `second` reaches that error at none of its sizes. A bar that ends at the
    frame goes on beyond what the data can show.
    """
    if table.empty:
        return None
    figure, axes = canvas()
    colour = looks([first, second])[second].colour
    n, count = table["n"].to_numpy(float), table["multiplier"].notna().to_numpy()
    value = table["multiplier"].where(count, table["limit"]).to_numpy(float)
    low, high = (table[k].to_numpy(float)[count] for k in ("low", "high"))
    seen = np.concatenate([value, low[low > 0], high[np.isfinite(high)], [0.8, 1.25]])
    bottom, top = seen.min() / 1.3, seen.max() * 1.3
    axes.axhline(1, color="0.5", lw=1, zorder=1)
    axes.plot(n[count], value[count], color=colour, marker="o", zorder=3)
    held = np.isfinite(low)
    ends = (np.maximum(low, bottom)[held], np.minimum(high, top)[held])
    axes.vlines(n[count][held], *ends, color=colour, alpha=0.5, lw=3, zorder=2)
    for sign, marker in ((">", "^"), ("<", "v")):
        at = table["bound"].str.startswith(sign).to_numpy()
        axes.scatter(n[at], value[at], marker=marker, s=60, c="white", edgecolors=colour, zorder=3)
    axes.set_yscale("log")
    axes.set_ylim(bottom, top)
    axes.yaxis.set_major_formatter(lambda v, _: f"{v:g}")
    axes.yaxis.set_minor_formatter(lambda v, _: f"{v:g}" if f"{v:.0e}"[0] in "235" else "")
    axes.tick_params(axis="y", which="minor", labelsize=FONT - 1)
    sizes(axes, table["n"], f"training images of {first}")
    axes.set_ylabel(f"times the images that {second} needs", fontsize=FONT)
    return figure


def protocol_split(split: pd.DataFrame, first: str, second: str) -> Figure | None:
    """`first - second` under equal epochs as a bar of two parts, and its total with interval."""
    if split.empty:
        return None
    figure, axes = canvas()
    at = np.arange(len(split))
    parts = {
        "generalisation": ("generalisation: the difference under equal updates", "#4477aa"),
        "undertraining": ("undertraining: what equal epochs add", "#ccbb44"),
    }
    up, down = np.zeros(len(split)), np.zeros(len(split))
    for name, (label, colour) in parts.items():
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
    axes.set_xlabel("training images", fontsize=FONT)
    axes.set_ylabel(f"{first} minus {second}, points", fontsize=FONT)
    handles, _ = axes.get_legend_handles_labels()
    legend(figure, axes, handles, "", outside=True, columns=1)
    return figure
