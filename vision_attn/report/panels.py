"""Figures of several panels: training curves, capacity, how far attention looks."""

from collections.abc import Mapping

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vision_attn.report.plotting import (
    FONT,
    NAMES,
    SIZE,
    handle,
    legend,
    line,
    note,
    percent,
    plain,
    sizes,
)
from vision_attn.report.styles import NONE, family, looks, short

__all__ = ["attention_distance", "capacity", "training_curves"]


def training_curves(log: pd.DataFrame) -> Figure | None:
    """Loss against update, a panel a (model, protocol): training dashed, validation solid."""
    if log.empty or "val_loss" not in log:
        return None
    order = log["protocol"].map({p: i for i, p in enumerate(NAMES)})
    groups = list(log.assign(order=order).groupby(["model", "order", "protocol"], sort=True))
    columns = min(2, len(groups))
    lines = -(-len(groups) // columns)
    figure = Figure(figsize=(2.9 * columns + 0.6, 2.3 * lines + 1.1), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(lines, columns, sharey=True, squeeze=False).flatten()
    sizes = sorted(log["size"].unique())
    shades = matplotlib.colormaps["viridis"](np.linspace(0, 0.88, len(sizes)))
    colours = dict(zip(sizes, shades, strict=True))
    two = log["protocol"].nunique() > 1
    for axes, ((model, _, protocol), rows) in zip(panels, groups, strict=False):
        for size, run in rows.groupby("size"):
            for measure, style in (("val_loss", "-"), ("train_loss", "--")):
                seen = run[run[measure].notna() & (run[measure] > 0)] if measure in run else run[:0]
                axes.plot(seen["step"] + 1, seen[measure], style, color=colours[size], lw=1.3)
        name = f"{model}, {NAMES[str(protocol)]}" if two else str(model)
        axes.set_title(name, fontsize=FONT)
        axes.set_yscale("log")
        plain(axes)
    for axes in panels[len(groups) :]:
        axes.remove()
    for axes in panels[max(len(groups) - columns, 0) : len(groups)]:
        axes.set_xlabel("update", fontsize=FONT)
    figure.supylabel("loss", fontsize=FONT)
    handles = [Line2D([], [], color=c, label=f"{s:,}") for s, c in colours.items()]
    handles += [Line2D([], [], color="0.3", ls=s, label=t) for s, t in _LOSSES]
    legend(figure, panels[0], handles, "", outside=True, columns=4)
    return figure


_LOSSES = (("-", "validation"), ("--", "training"))


def capacity(summary: pd.DataFrame, archs: Mapping[str, str] = NONE) -> Figure | None:
    """Accuracy and gap against parameters, a line a (family, size); None where nothing varies.

    A family varies where the study holds variants of it with 1.5 times as many parameters.
    """
    rows = summary.assign(family=[family(m, archs) for m in summary["model"]])
    params = rows.groupby(["family", "size"])["params"]
    rows = rows[params.transform("max") > VARIED * params.transform("min")]
    if rows.empty:
        return None
    figure = Figure(figsize=(SIZE[0], 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 1, sharex=True)
    look = looks(rows["family"])
    lines = dict(zip(sorted(rows["size"].unique()), ("-", "--", "-.", ":") * 9, strict=False))
    for axes, (measure, label) in zip(panels, _CAPACITY, strict=True):
        for (name, size), at in rows.groupby(["family", "size"], sort=True):
            at = at.sort_values("params").assign(size=lambda t: t["params"])
            line(axes, at, measure, look[str(name)], lines[size])
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda v, _: short(v))
        axes.xaxis.set_minor_formatter(lambda v, _: short(v) if f"{v:.0e}"[0] in "25" else "")
        percent(axes, label)
        plain(axes)
    panels[1].set_xlabel("parameters")
    handles = [handle(look[m], m) for m in sorted(look)]
    handles += [Line2D([], [], color="0.3", ls=s, label=f"{n:,} images") for n, s in lines.items()]
    legend(figure, panels[0], handles, note(rows.assign(model=rows["family"])), outside=True)
    return figure


VARIED = 1.5

_CAPACITY = (("test_acc", "test accuracy"), ("gap", "train minus test accuracy"))


def attention_distance(measures: pd.DataFrame) -> Figure | None:
    """How far attention looks, mean over heads, against training size: a line a layer."""
    if measures.empty or "distance" not in measures:
        return None
    groups = list(measures.groupby("model", sort=True))
    figure = Figure(figsize=(SIZE[0], 0.7 + 2.6 * len(groups)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(groups), 1, squeeze=False, sharex=True).flatten()
    layers = sorted(measures["layer"].unique())
    shades = matplotlib.colormaps["plasma"](np.linspace(0, 0.85, len(layers)))
    for axes, (model, rows) in zip(panels, groups, strict=True):
        for layer, colour in zip(layers, shades, strict=True):
            at = rows[rows["layer"] == layer].sort_values("size")
            axes.plot(at["size"], at["distance"], marker="o", ms=4, color=colour)
        axes.set_title(str(model), fontsize=FONT)
        sizes(axes, measures["size"], "")
        axes.set_ylabel("distance, pixels", fontsize=FONT)
        plain(axes)
    panels[-1].set_xlabel("training images", fontsize=FONT)
    handles = [
        Line2D([], [], color=c, marker="o", ms=4, label=f"layer {n}")
        for n, c in zip(layers, shades, strict=True)
    ]
    legend(figure, panels[0], handles, "", outside=True, columns=4)
    return figure
