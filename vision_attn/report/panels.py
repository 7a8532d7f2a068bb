"""Figures of several panels: training curves, capacity, how far attention looks."""

from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vision_attn.report.looks import Look, looks
from vision_attn.report.marks import mark
from vision_attn.report.numbers import short
from vision_attn.report.plotting import (
    NAMES,
    curve,
    handle,
    in_points,
    legend,
    note,
    percent,
    sizes,
)
from vision_attn.report.style import styled, width_and_height
from vision_attn.texts import in_figure

__all__ = ["attention_distance", "capacity", "even_distance", "training_curves"]


@styled
def training_curves(log: pd.DataFrame) -> Figure | None:
    """Loss against update, a panel a (model, protocol): training dashed, validation solid."""
    if log.empty or "val_loss" not in log:
        return None
    order = log["protocol"].map({p: i for i, p in enumerate(NAMES)})
    groups = list(log.assign(order=order).groupby(["model", "order", "protocol"], sort=True))
    columns = min(2, len(groups))
    lines = -(-len(groups) // columns)
    width, height = width_and_height()
    figure = Figure(figsize=(width * (0.6 + 0.6 * columns), height * (0.3 + 0.55 * lines)))
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
    width, height = width_and_height()
    figure = Figure(figsize=(width, 1.5 * height))
    panels = figure.subplots(2, 1, sharex=True)
    look = looks(rows["family"], archs)
    lines = dict(zip(sorted(rows["size"].unique()), ("-", "--", "-.", ":") * 9, strict=False))
    for axes, measure in zip(panels, ("test_acc", "gap"), strict=True):
        for (name, size), at in rows.groupby(["family", "size"], sort=True):
            at = at.sort_values("params")
            _variants(axes, at, measure, look[str(name)], str(name), lines[size])
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda v, _: short(v))
        axes.xaxis.set_minor_formatter(lambda v, _: short(v) if f"{v:.0e}"[0] in "25" else "")
        axes.tick_params(axis="x", which="minor", labelsize="small")
    percent(panels[0], "test accuracy")
    in_points(panels[1], "train minus test accuracy")
    panels[1].set_xlabel("parameters")
    handles = [handle(look[m], in_figure(m)) for m in sorted(look)]
    handles += [Line2D([], [], color="0.3", ls=s, label=f"{n:,} images") for n, s in lines.items()]
    legend(figure, panels[0], handles, note(rows, rows["model"].nunique()))
    return figure


VARIED = 1.5


def _variants(
    axes: Axes, rows: pd.DataFrame, measure: str, look: Look, name: str, dashes: str
) -> None:
    """One family at one size, against parameters."""
    unit = " points" if measure == "gap" else " %"
    curve(axes, rows, measure, look, in_figure(name), x="params", style=dashes, unit=unit)


@styled
def attention_distance(
    measures: pd.DataFrame, even: Mapping[str, float] | None = None
) -> Figure | None:
    """How far attention looks, mean over heads, against training size: a line a layer.

    Args:
        measures: a row a (model, size, layer).
        even: the distance of each model whose attention is spread evenly, in pixels; see
            `even_distance`.
    """
    if measures.empty or "distance" not in measures:
        return None
    groups = list(measures.groupby("model", sort=True))
    width, height = width_and_height()
    figure = Figure(figsize=(width, height * (0.2 + 0.65 * len(groups))))
    panels = figure.subplots(len(groups), 1, squeeze=False, sharex=True).flatten()
    for axes, (model, rows) in zip(panels, groups, strict=True):
        share = (even or {}).get(str(model))
        title = in_figure(model)
        if share is not None:
            axes.axhline(share, color="0.35", ls="--", lw=1.2)
            title += f" (dashed: even share, {share:.1f})"
        axes.set_ylim(0, 1.15 * max(rows["distance"].max(), share or 0))
        axes.set_title(title)
        axes.set_ylabel("distance, pixels")
        _distances(axes, rows)
    handles, _ = panels[0].get_legend_handles_labels()
    one = measures["size"].nunique() == 1
    panels[-1].set_xlabel("layer" if one else "training images")
    images = f", {int(measures['size'].iloc[0]):,} training images" if one else ""
    text = f"mean over heads, draws and seeds{images}"
    legend(figure, panels[0], [] if one else handles, text, columns=4)
    return figure


def _distances(axes: Axes, rows: pd.DataFrame) -> None:
    """A line a layer against images; with one size the layers side by side."""
    layers = sorted(rows["layer"].unique())
    shades = matplotlib.colormaps["plasma"](np.linspace(0, 0.7, len(layers)))
    one = rows["size"].nunique() == 1
    for layer, colour, marker in zip(layers, shades, "osD^v<>ph" * len(layers), strict=False):
        at = rows[rows["layer"] == layer].sort_values("size")
        x = at["layer" if one else "size"]
        name = f"layer {layer}"
        (line,) = axes.plot(x, at["distance"], marker=marker, ms=4.5, color=colour, label=name)
        words = [
            (float(a), float(d), f"{name}, {n:,.0f} images: {d:.1f} pixels")
            for a, n, d in zip(x, at["size"], at["distance"], strict=True)
        ]
        mark(line, name, colour, words)
    if one:
        axes.set_xticks(layers)
    else:
        sizes(axes, rows["size"], "")


def even_distance(
    img_size: tuple[int, int], patch: tuple[int, int], radius: int | None = None
) -> float:
    """The mean distance of two tokens in pixels, where each token attends to all alike.

    Args:
        img_size: height and width in pixels.
        patch: of a token, in pixels.
        radius: only keys that are at most so many rows and columns away count.
    """
    places = [np.arange(length // side) for length, side in zip(img_size, patch, strict=True)]
    grid = np.stack(np.meshgrid(*places, indexing="ij"), -1).reshape(-1, 2)
    steps = grid[:, None] - grid
    apart = np.hypot(*(steps * np.array(patch)).transpose(2, 0, 1))
    near = np.abs(steps).max(-1) <= (max(img_size) if radius is None else radius)
    return float(((apart * near).sum(1) / near.sum(1)).mean())
