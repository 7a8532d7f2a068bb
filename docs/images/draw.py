"""The drawings of docs/attention.md, beside this file:

python docs/images/draw.py
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from sklearn.datasets import load_digits

from vision_attn.ops.masks import causal_mask, neighborhood_mask, window_mask
from vision_attn.stats.intervals import interval

HERE = Path(__file__).parent
ORANGE, BLUE, GREEN = "#d55e00", "#0072b2", "#007a5a"
DIGIT = load_digits().images[3] / 16  # (8, 8), from 0 to 1


def bare(ax: Axes, title: str = "") -> Axes:
    """Axes without ticks."""
    ax.set(xticks=[], yticks=[])
    ax.set_title(title, fontsize=11)
    return ax


def tokens() -> Figure:
    """An image, its patches with their numbers, and the list of tokens."""
    figure = Figure((7.5, 2.9), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=[1, 1, 1.5])
    bare(left, "image, h x w = 8 x 8").imshow(DIGIT, cmap="gray")
    bare(middle, "16 patches of 2 x 2").imshow(DIGIT, cmap="gray")
    for i in range(16):
        row, column = divmod(i, 4)
        corner = (2 * column - 0.5, 2 * row - 0.5)
        middle.add_patch(Rectangle(corner, 2, 2, fill=False, ec=ORANGE, lw=2))
        at = (2 * column + 0.5, 2 * row + 0.5)
        middle.text(
            *at,
            str(i),
            color=ORANGE,
            ha="center",
            va="center",
            fontsize=12,
            weight="bold",
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )  # fmt: skip, color=ORANGE, ha="center", va="center", fontsize=12, weight="bold")
    patches = DIGIT.reshape(4, 2, 4, 2).swapaxes(1, 2).reshape(16, 4)
    bare(right, "N = 16 tokens of C p q = 4 numbers").imshow(patches.T, cmap="gray")
    right.set_xticks(range(16), [str(i) for i in range(16)], color=ORANGE, fontsize=9)
    right.set_xlabel("token: its place in the list is row by row", fontsize=10)
    return figure


def heads() -> Figure:
    """The width cut into heads, each with a matrix of weights, and laid together again."""
    figure = Figure((7.5, 3.1), layout="constrained")
    axes = figure.subplots(1, 5, width_ratios=[0.55, 1, 1, 1, 0.55])
    colours = (BLUE, ORANGE, GREEN)
    place = np.indices((4, 4)).reshape(2, 16).T.astype(float)
    grey = DIGIT.reshape(4, 2, 4, 2).mean((1, 3)).ravel()
    far = np.linalg.norm(place[:, None] - place[None], axis=-1)
    left = np.linalg.norm(place[:, None] - [0, 1] - place[None], axis=-1)
    scores = (-3 * left**2, -0.4 * far**2, -60 * (grey[:, None] - grey[None]) ** 2)
    names = ("the token to its left", "tokens near by", "tokens as bright")
    for ax, text in ((axes[0], "x\nN x D"), (axes[4], "y\nN x D")):
        bare(ax, text).set(xlim=(0, 3), ylim=(16, 0))
        for k, colour in enumerate(colours):
            ax.add_patch(Rectangle((k, 0), 1, 16, fc=colour, ec="white", lw=2, alpha=0.75))
        ax.spines[:].set_visible(False)
        ax.set_xlabel("H = 3 parts" if text[0] == "x" else "side by side,\nthen mixed")
    for k, (score, name) in enumerate(zip(scores, names, strict=True)):
        weights = np.exp(score) / np.exp(score).sum(-1, keepdims=True)
        ax = bare(axes[k + 1], f"head {k}: N x N")
        ax.imshow(weights, cmap="gray_r", vmin=0)
        ax.spines[:].set(color=colours[k], lw=3)
        ax.set_xlabel(name, color=colours[k], fontsize=10)
        ax.set_ylabel("who asks" if k == 0 else "", fontsize=10)
    return figure


def masks() -> Figure:
    """Who may attend to whom among 4 x 4 tokens, for five masks."""
    keep = np.ones((16, 16), bool)
    keep[:, 13:] = False
    shown = {
        "all": np.ones((16, 16), bool),
        "key_mask:\n3 are padding": keep,
        "causal": causal_mask(16, 16).numpy(),
        "window\n2 x 2": window_mask((4, 4), (2, 2)).numpy(),
        "neighbourhood\n3 x 3": neighborhood_mask((4, 4), (3, 3)).numpy(),
    }
    figure = Figure((7.5, 2.2), layout="constrained")
    for ax, (name, mask) in zip(figure.subplots(1, 5), shown.items(), strict=True):
        bare(ax).imshow(mask, cmap="Blues", vmin=0, vmax=1.3)
        ax.set_xticks(np.arange(15) + 0.5, [""] * 15, minor=True)
        ax.set_yticks(np.arange(15) + 0.5, [""] * 15, minor=True)
        ax.grid(which="minor", color="white", lw=0.5)
        ax.tick_params(which="both", length=0)
        ax.set_title(name, fontsize=10)
        ax.set_xlabel(f"{int(mask.sum())} of 256", fontsize=10)
    figure.supylabel("query", fontsize=10)
    return figure


def scale() -> Figure:
    """Variance of the scores and saturated rows against K, of independent inputs."""
    rows = pd.read_csv(HERE.parent / "results" / "diagnose" / "scale_scores.csv")
    rows = rows[rows["inputs"] == "independent"]
    figure = Figure((7.5, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    for of_scale, label, colour, style in (
        ("1", "q.k", ORANGE, "o--"),
        ("1/sqrt(K)", "q.k / sqrt(K)", BLUE, "s-"),
    ):
        for ax, measure in ((left, "variance"), (right, "saturated")):
            values = rows[rows["scale"] == of_scale].groupby("K")[measure]
            ends = pd.DataFrame([interval(v)[:3] for _, v in values], index=list(values.groups))
            ax.fill_between(ends.index, ends[1], ends[2], color=colour, alpha=0.2, lw=0)
            ax.plot(ends.index, ends[0], style, color=colour, label=label, lw=2)
    left.set(yscale="log", title="variance of the scores")
    right.set(title="rows with a weight over 0.99")
    right.yaxis.set_major_formatter(lambda v, _: f"{100 * v:.0f} %")
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ax.set_xticks([4, 16, 64, 256], ["4", "16", "64", "256"])
        ax.set_xlabel("width of a head, K")
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False)
    return figure


if __name__ == "__main__":
    for draw in (tokens, heads, masks, scale):
        draw().savefig(HERE / f"{draw.__name__}.png", dpi=120, metadata={"Software": None})
