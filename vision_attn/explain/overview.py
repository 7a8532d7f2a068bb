"""One picture of what a model attends to: layers x heads over each image, with its rollout."""

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from vision_attn.errors import UserError
from vision_attn.explain.inspection import View
from vision_attn.files import write_bytes
from vision_attn.texts import in_figure

__all__ = ["MAX_PANELS", "blend", "draw"]

MAX_PANELS = 400
"""Maps in one picture; each is an inch and more on a side."""

_ORANGE = np.array([1.0, 0.55, 0.1])
_CELL = 1.35
"""Inches of a map's side."""


def blend(pixels: NDArray[np.uint8], weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """Weights over a grey image: (C, h, w) and (rows, columns) of tokens -> RGB (h, w, 3), 0 to 1.

    The image is dim and grey, and orange covers it, wholly at the largest weight, not at all at 0:
    hue is attention, brightness is the image.
    """
    grey = 0.6 * pixels.mean(0) / 255
    scale = [n // m for n, m in zip(grey.shape, weights.shape, strict=True)]
    share = weights / max(float(weights.max()), 1e-12)
    share = np.repeat(np.repeat(share, scale[0], 0), scale[1], 1)[..., None]
    mixed: NDArray[np.float64] = share * _ORANGE + (1 - share) * grey[..., None]
    return mixed


def draw(view: View, out: Path, token: int | None) -> None:
    """Write the picture. Without a token, the class token asks, or the mean over the tokens."""
    n, rows, cols = len(view.names), len(view.layers), len(view.heads)
    if n * rows * cols > MAX_PANELS:
        raise UserError(
            f"{n} images x {rows} layers x {cols} heads are {n * rows * cols} maps; one picture"
            f" holds {MAX_PANELS}: give fewer images, --layers or --heads"
        )
    prefix = view.tokens.prefix
    if token is None:
        asks = "the class token" if prefix else "all tokens (their mean)"
    else:
        row, col = divmod(token - prefix, view.tokens.grid[1])
        asks = f"the token in row {row}, column {col}"

    def asked(w: Tensor) -> Tensor:
        if token is not None:
            return w[:, :, token]
        return w[:, :, 0] if prefix else w.mean(2)

    maps = [w.unflatten(-1, view.tokens.grid).numpy() for w in view.weights(asked)]
    aspect = view.pixels.shape[2] / view.pixels.shape[3]
    figure = Figure(
        figsize=(
            _CELL * (max(cols, 2) + 2.6) + 0.5,
            n * (max(rows, 2) * (_CELL * aspect + 0.24) + 0.25) + 0.4,
        ),
        layout="constrained",
    )
    FigureCanvasAgg(figure)
    figure.suptitle(
        f"{in_figure(view.trained.name)}, asked by {asks};"
        " below each map its largest weight, orange",
        fontsize=9,
    )
    parts: Any = figure.subfigures(n, 1, squeeze=False)[:, 0]
    for i, part in enumerate(parts):
        left, right = part.subfigures(1, 2, width_ratios=(2.6, max(cols, 2)))
        _answer(left, view, i, token)
        axes = right.subplots(rows, cols, squeeze=False)
        for r, layer in enumerate(view.layers):
            for c, head in enumerate(view.heads):
                weights = maps[r][i, c]
                _image(axes[r, c], blend(view.pixels[i].numpy(), weights))
                axes[r, c].set_xlabel(f"{weights.max():.2g}", fontsize=7, labelpad=1)
                if r == 0:
                    axes[r, c].set_title(f"head {head}", fontsize=8, pad=3)
                if c == 0:
                    axes[r, c].set_ylabel(f"layer {layer}", fontsize=8)
                if token is not None:
                    _mark(axes[r, c], view, token)
    content = BytesIO()
    figure.savefig(content, format="png", dpi=150)
    write_bytes(out, content.getvalue())


def _answer(part: Any, view: View, i: int, token: int | None) -> None:
    """The image, its rollout, and the most likely classes."""
    pixels = view.pixels[i].numpy()
    rgb = np.broadcast_to(pixels, (3, *pixels.shape[1:])).transpose(1, 2, 0)
    grid = part.add_gridspec(2, 2)
    top = [part.add_subplot(grid[0, 0]), part.add_subplot(grid[0, 1])]
    _image(top[0], rgb)
    top[0].set_title(in_figure(view.names[i], 18), fontsize=8, pad=3)
    if token is not None:
        _mark(top[0], view, token)
    _image(top[1], blend(pixels, view.rollout[i].float().numpy()))
    top[1].set_title("rollout", fontsize=8, pad=3)
    bars = part.add_subplot(grid[1, :])
    p = view.probabilities[i].numpy()
    best = np.argsort(-p, kind="stable")[:5]
    names = [in_figure(view.trained.classes[c], 14) for c in best]
    bars.barh(range(len(best)), p[best], color="0.55", height=0.7)
    bars.set_yticks(range(len(best)), names, fontsize=7)
    bars.set_ylim(len(best) - 0.4, -0.6)
    bars.set_xlim(0, 1.18)
    for at, value in enumerate(p[best]):
        bars.text(value + 0.02, at, f"{value:.2f}", va="center", fontsize=7)
    bars.set_xticks([])
    for side in ("top", "right", "bottom"):
        bars.spines[side].set_visible(False)
    bars.set_title("class probability", fontsize=8, pad=3)


def _image(ax: Any, rgb: NDArray[Any]) -> None:
    ax.imshow(rgb, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])


def _mark(ax: Any, view: View, token: int) -> None:
    """A frame round the token that asks."""
    row, col = divmod(token - view.tokens.prefix, view.tokens.grid[1])
    h, w = (n // m for n, m in zip(view.pixels.shape[2:], view.tokens.grid, strict=True))
    frame = matplotlib.patches.Rectangle(
        (col * w - 0.5, row * h - 0.5), w, h, fill=False, ec="#00e5ff", lw=1.2, clip_on=False
    )
    ax.add_patch(frame)
