"""Figures of several panels: training curves, capacity, how far attention looks."""

from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from vision_attn.report.analysis import Analysis
from vision_attn.report.chart import Chart
from vision_attn.report.curves import Words, ends
from vision_attn.report.looks import attending, looks
from vision_attn.report.numbers import short
from vision_attn.texts import in_figure

__all__ = ["attention_distance", "capacity", "even_distance", "training_curves"]

_LOSSES = {"val_loss": ("-", "validation"), "train_loss": ("--", "training")}


def training_curves(analysis: Analysis, chart: Chart) -> Words | None:
    """Loss against update, a panel a model: training dashed, validation solid."""
    log = analysis.setting.of(analysis.training)
    if log.empty or "val_loss" not in log:
        return None
    groups = list(log.groupby("model", sort=True))
    columns = min(2, len(groups))
    lines = -(-len(groups) // columns)
    width, height = 0.6 + 0.6 * columns, 0.3 + 0.55 * lines
    panels = chart.grid(lines, columns, width, height, sharey=True).flatten()
    sizes = sorted(log["size"].unique())
    shades = matplotlib.colormaps["viridis"](np.linspace(0, 0.88, len(sizes)))
    colours = dict(zip(sizes, shades, strict=True))
    for axes, (model, rows) in zip(panels, groups, strict=False):
        _losses(axes, rows, colours)
        axes.set_title(in_figure(model))
    for axes in panels[len(groups) :]:
        axes.remove()
    for axes in panels[max(len(groups) - columns, 0) : len(groups)]:
        axes.set_xlabel("update")
    chart.figure.supylabel("loss")
    handles = [Line2D([], [], color=c, label=f"{s:,}") for s, c in colours.items()]
    handles += [Line2D([], [], color="0.3", ls=s, label=t) for s, t in _LOSSES.values()]
    chart.legend(panels[0], handles, "", columns=4)
    return Words(
        "Training curves",
        f"Loss against update under {analysis.setting.words}, mean over draws and seeds:"
        " validation solid, training dashed, a colour a training size.",
        "Loss of validation and training images against updates, a panel a model",
    )


def _losses(axes: Axes, log: pd.DataFrame, colours: dict[Any, Any]) -> None:
    """Both losses of one model, a colour a size, on a log axis; one artist, so that it is quick."""
    curves = [
        (run.loc[run[measure] > 0, ["step", measure]].to_numpy(float), colours[n], style)
        for n, run in log.assign(step=log["step"] + 1).groupby("size")
        for measure, (style, _) in _LOSSES.items()
        if measure in run
    ]
    places, shades, dashes = (list(part) for part in zip(*curves, strict=True))
    axes.add_collection(LineCollection(places, colors=shades, linestyles=dashes, linewidths=1.3))
    axes.set_yscale("log")
    axes.autoscale_view()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


VARIED = 1.5
"""From this ratio of parameters on, the variants of a model are of different capacity."""


def _family(model: str, analysis: Analysis) -> str:
    arch = analysis.archs[model]
    lost = attending(arch) and not attending(arch, analysis.args.get(model))
    return f"{arch} without attention" if lost else arch


def capacity(analysis: Analysis, chart: Chart) -> Words | None:
    """Accuracy and gap against parameters, a line a (family, size); None where nothing varies.

    A family is what the labels of one model are, those without its attention apart; it varies where
    the study holds variants of it with `VARIED` times as many parameters.
    """
    family = {m: _family(m, analysis) for m in analysis.main["model"]}
    rows = analysis.main.assign(family=analysis.main["model"].map(family))
    params = rows.groupby(["family", "size"])["params"]
    rows = rows[params.transform("max") > VARIED * params.transform("min")]
    if rows.empty:
        return None
    top, bottom = chart.grid(2, 1, 1, 1.5, sharex=True)[:, 0]
    chart.looks = looks(
        rows["family"],
        {family[m]: analysis.archs[m] for m in family},
        {family[m]: analysis.args.get(m, {}) for m in family},
    )
    chart.strong = [*chart.looks, *rows["model"]]
    lines = dict(zip(sorted(rows["size"].unique()), ("-", "--", "-.", ":") * 9, strict=False))
    for axes, measure in ((top, "test_acc"), (bottom, "gap")):
        for (name, size), at in rows.groupby(["family", "size"], sort=True):
            at = at.sort_values("params")
            chart.curve(axes, at, measure, str(name), lines[size], x="params")
        axes.set_xscale("log")
        chart.log_names(axes.xaxis, short, "25")
    chart.percent(top, "test accuracy")
    chart.in_points(bottom, "train minus test accuracy")
    bottom.set_xlabel("parameters")
    handles = [chart.handle(m) for m in sorted(chart.looks)]
    handles += [Line2D([], [], color="0.3", ls=s, label=f"{n:,} images") for n, s in lines.items()]
    chart.legend(top, handles, chart.note(rows))
    return Words(
        "Capacity",
        "Test accuracy and gap of one family's variants against parameters.",
        ends(analysis.main, "gap"),
    )


def attention_distance(analysis: Analysis, chart: Chart) -> Words | None:
    """How far attention looks, mean over heads, against training size: a line a layer."""
    measures = analysis.attention
    if measures.empty or "distance" not in measures:
        return None
    groups = list(measures.groupby("model", sort=True))
    panels = chart.grid(len(groups), 1, 1, 0.2 + 0.65 * len(groups), sharex=True)[:, 0]
    shares = {str(model): _even(analysis, str(model)) for model, _ in groups}
    for axes, (model, rows) in zip(panels, groups, strict=True):
        share, title = shares[str(model)], in_figure(model)
        if share is not None:
            axes.axhline(share, color="0.35", ls="--", lw=1.2)
            title += f" (dashed: even share, {share:.1f})"
        axes.set_ylim(0, 1.15 * max(rows["distance"].max(), share or 0))
        axes.set_title(title)
        axes.set_ylabel("distance, pixels")
        _distances(axes, rows, chart)
    handles, _ = panels[0].get_legend_handles_labels()
    one = measures["size"].nunique() == 1
    panels[-1].set_xlabel("layer" if one else "training images")
    images = f", {int(measures['size'].iloc[0]):,} training images" if one else ""
    text = f"mean over heads, draws and seeds{images}"
    chart.legend(panels[0], [] if one else handles, text, columns=4)
    dashed = (
        "The patches are not stored, so the distance of even attention is not known."
        if None in shares.values()
        else "The dashed line is the distance of attention that is spread evenly."
    )
    return Words(
        "How far attention looks",
        "Mean distance between a query and what it attends to, by layer, against training images."
        f" {dashed}",
        "Attention distance in pixels by layer against training images",
    )


def _distances(axes: Axes, rows: pd.DataFrame, chart: Chart) -> None:
    """A line a layer against images; with one size the layers side by side."""
    layers = sorted(rows["layer"].unique())
    shades = matplotlib.colormaps["plasma"](np.linspace(0, 0.7, len(layers)))
    one = rows["size"].nunique() == 1
    for layer, colour, marker in zip(layers, shades, "osD^v<>ph" * len(layers), strict=False):
        at = rows[rows["layer"] == layer].sort_values("size")
        x, name = at["layer" if one else "size"], f"layer {layer}"
        (line,) = axes.plot(x, at["distance"], marker=marker, ms=4.5, color=colour, label=name)
        texts = [
            f"{name}, {n:,.0f} images: {d:.1f} pixels"
            for n, d in zip(at["size"], at["distance"], strict=True)
        ]
        chart.mark(name, colour, line, [*zip(x, at["distance"], texts, strict=True)])
    if one:
        axes.set_xticks(layers)
    else:
        chart.sizes(axes, rows["size"], "")


def _even(analysis: Analysis, model: str) -> float | None:
    """The distance of even attention of a model whose patches are stored."""
    for study in analysis.stored.studies.values():
        args = study.get("args", {}).get(model) or {}
        size = study.get("identity", {}).get("data", {}).get("img_size")
        patch = args.get("patch_size")
        if size and patch and not analysis.archs[model].startswith("timm:"):
            side = (patch, patch) if isinstance(patch, int) else (patch[0], patch[1])
            return even_distance((size[0], size[1]), side, args.get("radius"))
    return None


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
