"""Figures of several panels: training curves, capacity, how far attention looks."""

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vision_attn.report.numbers import short
from vision_attn.report.plotting import (
    NAMES,
    SIZE,
    handle,
    legend,
    line,
    looks,
    note,
    percent,
    sizes,
    styled,
)
from vision_attn.texts import in_figure

__all__ = ["attention_distance", "capacity", "training_curves"]


@styled
def training_curves(log: pd.DataFrame) -> Figure | None:
    """Loss against update, a panel a (model, protocol): training dashed, validation solid."""
    if log.empty or "val_loss" not in log:
        return None
    order = log["protocol"].map({p: i for i, p in enumerate(NAMES)})
    groups = list(log.assign(order=order).groupby(["model", "order", "protocol"], sort=True))
    columns = min(2, len(groups))
    lines = -(-len(groups) // columns)
    figure = Figure(figsize=(2.9 * columns + 0.6, 2.3 * lines + 1.1))
    panels = figure.subplots(lines, columns, sharey=True, squeeze=False).flatten()
    sizes = sorted(log["size"].unique())
    shades = matplotlib.colormaps["viridis"](np.linspace(0, 0.88, len(sizes)))
    colours = dict(zip(sizes, shades, strict=True))
    two = log["protocol"].nunique() > 1
    for axes, ((model, _, protocol), rows) in zip(panels, groups, strict=False):
        _losses(axes, rows, colours)
        axes.set_title(in_figure(model) + (f", {NAMES[str(protocol)]}" if two else ""))
    for axes in panels[len(groups) :]:
        axes.remove()
    lowest = max(len(groups) - columns, 0)
    for axes in panels[:lowest]:
        axes.xaxis.set_label_coords(0, 0)
    for axes in panels[lowest : len(groups)]:
        axes.set_xlabel("update")
    figure.supylabel("loss")
    handles = [Line2D([], [], color=c, label=f"{s:,}") for s, c in colours.items()]
    handles += [Line2D([], [], color="0.3", ls=s, label=t) for s, t in _LOSSES]
    legend(figure, panels[0], handles, "", outside=True, columns=4)
    return figure


_LOSSES = (("-", "validation"), ("--", "training"))


def _losses(axes: Axes, log: pd.DataFrame, colours: Mapping[Any, Any]) -> None:
    """Both losses of one model, a colour a size, on a log axis."""
    for size, run in log.groupby("size"):
        for measure, dashes in (("val_loss", "-"), ("train_loss", "--")):
            if measure not in run:
                continue
            rows = run[run[measure].notna() & (run[measure] > 0)]
            axes.plot(rows["step"] + 1, rows[measure], dashes, color=colours[size], lw=1.3)
    axes.set_yscale("log")
    axes.yaxis.set_label_coords(0, 0)  # no label, so no time to find its place


@styled
def capacity(summary: pd.DataFrame, archs: Mapping[str, str]) -> Figure | None:
    """Accuracy and gap against parameters, a line a (family, size); None where nothing varies.

    A family is what the labels of one model are; it varies where the study holds variants of it
    with 1.5 times as many parameters.
    """
    rows = summary.assign(family=[archs.get(m, m) for m in summary["model"]])
    params = rows.groupby(["family", "size"])["params"]
    rows = rows[params.transform("max") > VARIED * params.transform("min")]
    if rows.empty:
        return None
    figure = Figure(figsize=(SIZE[0], 6.4))
    panels = figure.subplots(2, 1, sharex=True)
    look = looks(rows["family"], archs)
    lines = dict(zip(sorted(rows["size"].unique()), ("-", "--", "-.", ":") * 9, strict=False))
    for axes, (measure, label) in zip(panels, _CAPACITY, strict=True):
        for (name, size), at in rows.groupby(["family", "size"], sort=True):
            at = at.sort_values("params").assign(size=lambda t: t["params"])
            line(axes, at, measure, look[str(name)], lines[size])
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda v, _: short(v))
        axes.xaxis.set_minor_formatter(lambda v, _: short(v) if f"{v:.0e}"[0] in "25" else "")
        axes.tick_params(axis="x", which="minor", labelsize=10)
        percent(axes, label)
    panels[1].set_xlabel("parameters", fontsize=10)
    handles = [handle(look[m], in_figure(m)) for m in sorted(look)]
    handles += [Line2D([], [], color="0.3", ls=s, label=f"{n:,} images") for n, s in lines.items()]
    legend(figure, panels[0], handles, note(rows.assign(model=rows["family"])), outside=True)
    return figure


VARIED = 1.5

_CAPACITY = (("test_acc", "test accuracy"), ("gap", "train minus test accuracy"))


@styled
def attention_distance(measures: pd.DataFrame) -> Figure | None:
    """How far attention looks, mean over heads, against training size: a line a layer."""
    if measures.empty or "distance" not in measures:
        return None
    groups = list(measures.groupby("model", sort=True))
    figure = Figure(figsize=(SIZE[0], 0.7 + 2.6 * len(groups)))
    panels = figure.subplots(len(groups), 1, squeeze=False, sharex=True).flatten()
    layers = sorted(measures["layer"].unique())
    shades = matplotlib.colormaps["plasma"](np.linspace(0, 0.85, len(layers)))
    for axes, (model, rows) in zip(panels, groups, strict=True):
        for layer, colour in zip(layers, shades, strict=True):
            at = rows[rows["layer"] == layer].sort_values("size")
            axes.plot(at["size"], at["distance"], marker="o", ms=4, color=colour)
        axes.set_title(in_figure(model))
        sizes(axes, measures["size"], "")
        axes.set_ylabel("distance, pixels")
    panels[-1].set_xlabel("training images")
    handles = [
        Line2D([], [], color=c, marker="o", ms=4, label=f"layer {n}")
        for n, c in zip(layers, shades, strict=True)
    ]
    legend(figure, panels[0], handles, "", outside=True, columns=4)
    return figure
