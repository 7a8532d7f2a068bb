"""One picture of what a model attends to: layers x heads over each image, with its rollout."""

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from vision_attn.errors import UserError
from vision_attn.explain.colour import (
    COVER,
    FLOOR,
    LESS,
    MORE,
    Floats,
    Scale,
    blend,
    reach,
    strength,
)
from vision_attn.explain.inspection import Inspection
from vision_attn.files import write_bytes
from vision_attn.texts import in_figure

__all__ = ["MAX_PANELS", "draw", "times"]


MAX_PANELS = 400
"""Maps in one picture; each is an inch and more on a side."""

_CELL = 1.35
"""Inches of a map's side."""


def times(ratio: float) -> str:
    """A ratio to the even share, with two decimals round 1 and never in powers of ten."""
    if ratio == 0 or ratio >= 9.95:
        return f"{ratio:.0f}"
    if ratio < 0.01:
        return "<0.01"
    return f"{ratio:.1f}" if ratio >= 1.95 else f"{ratio:.2f}"


def draw(inspection: Inspection, out: Path, token: int | None, scale: Scale = "even") -> None:
    """Write the picture, in the format of the ending of `out`.

    Args:
        token: that asks; None is the class token, or the mean over the tokens.
        scale: what the strongest colour is: `even`, the end of a map that lies farther from the
            even share; `max`, its largest weight, on a scale that begins at 0; `shared`, the end
            of all maps of the picture.

    Raises:
        UserError: more maps than one picture holds.
    """
    n, rows, cols = len(inspection.names), len(inspection.layers), len(inspection.heads)
    if n * rows * cols > MAX_PANELS:
        raise UserError(
            f"{n} images x {rows} layers x {cols} heads are {n * rows * cols} maps; one picture"
            f" holds {MAX_PANELS}: give fewer images, --layers or --heads"
        )
    maps = [ratio.double().numpy() for ratio in inspection.ratios(token)]
    top = max(reach(m, scale) for m in maps) if scale == "shared" else None
    aspect = inspection.pixels.shape[2] / inspection.pixels.shape[3]
    height = n * (max(rows, 2) * (_CELL * aspect + 0.24) + 0.25)
    figure = Figure(
        figsize=(_CELL * (max(cols, 2) + 2.6) + 0.5, height + 1.0), layout="constrained"
    )
    FigureCanvasAgg(figure)
    figure.suptitle(f"{in_figure(inspection.title)}, asked by {_asks(inspection, token)}", size=9)
    bands: Any = figure.subfigures(2, 1, height_ratios=(height, 0.62))
    above, below = bands
    parts: Any = above.subfigures(n, 1, squeeze=False)[:, 0]
    for i, part in enumerate(parts):
        left, right = part.subfigures(1, 2, width_ratios=(2.6, max(cols, 2)))
        _answer(left, inspection, i, token, scale)
        axes = right.subplots(rows, cols, squeeze=False)
        for r, layer in enumerate(inspection.layers):
            for c, head in enumerate(inspection.heads):
                _map(axes[r, c], inspection, i, maps[r][i, c], scale, top)
                if r == 0:
                    axes[r, c].set_title(f"head {head}", fontsize=8, pad=3)
                if c == 0:
                    axes[r, c].set_ylabel(f"layer {layer}", fontsize=8)
                if token is not None:
                    _mark(axes[r, c], inspection, token)
    _legend(below, scale, top)
    content = BytesIO()
    figure.savefig(content, format=out.suffix[1:], dpi=150)
    write_bytes(out, content.getvalue())


def _asks(inspection: Inspection, token: int | None) -> str:
    """Whose weights the maps show."""
    prefix = inspection.tokens.prefix
    if token is None:
        return "the class token" if prefix else f"all {inspection.unit}s (their mean)"
    row, col = divmod(token - prefix, inspection.tokens.grid[1])
    return f"the {inspection.unit} in row {row}, column {col}"


def _answer(part: Any, inspection: Inspection, i: int, token: int | None, scale: Scale) -> None:
    """The image, its rollout, and the most likely classes."""
    pixels = inspection.pixels[i].numpy()
    rgb = np.broadcast_to(pixels, (3, *pixels.shape[1:])).transpose(1, 2, 0)
    rest = max(len(inspection.layers) - 3.0, 0.01)  # beside many layers it stays at the top
    grid = part.add_gridspec(3, 2, height_ratios=(1.5, 1.5, rest))
    first, second = part.add_subplot(grid[0, 0]), part.add_subplot(grid[0, 1])
    _image(first, rgb)
    first.set_title(in_figure(inspection.names[i], 18), fontsize=8, pad=3)
    if token is not None:
        _mark(first, inspection, token)
    flow = inspection.rollout[i].double().numpy()
    _map(second, inspection, i, flow, "even" if scale == "shared" else scale, None)
    second.set_title(f"rollout\n{in_figure(inspection.flow[i], 22)}", fontsize=7, pad=3)
    bars = part.add_subplot(grid[1, :])
    p = inspection.probabilities[i].numpy()
    best = np.argsort(-p, kind="stable")[:5]
    names = [in_figure(inspection.trained.classes[c], 14) for c in best]
    bars.barh(range(len(best)), p[best], color="0.55", height=0.7)
    bars.set_yticks(range(len(best)), names, fontsize=7)
    bars.set_ylim(len(best) - 0.4, -0.6)
    bars.set_xlim(0, 1.18)
    for at, value in enumerate(p[best]):
        chance = "<0.01" if value < 0.005 else f"{value:.2f}"
        bars.text(value + 0.02, at, chance, va="center", fontsize=7)
    bars.set_xticks([])
    for side in ("top", "right", "bottom"):
        bars.spines[side].set_visible(False)
    bars.set_title("class probability", fontsize=8, pad=3)


def _map(
    ax: Any, inspection: Inspection, i: int, ratios: Floats, scale: Scale, top: float | None
) -> None:
    """A map over its image, its least and largest ratio below."""
    most = reach(ratios, scale) if top is None else top
    _image(ax, blend(inspection.pixels[i].numpy(), strength(ratios, scale, most)))
    ends = f"{times(ratios.min())} to {times(ratios.max())} x even"
    ax.set_xlabel(ends, fontsize=7, labelpad=1)


def _legend(part: Any, scale: Scale, top: float | None) -> None:
    """A bar of the colours, and what the numbers below the maps are."""
    ax = part.add_axes((0.2, 0.72, 0.6, 0.16))
    grey = (0.75,) * 3
    ends = [[(1 - COVER) * g + COVER * c for g, c in zip(grey, end, strict=True)]
            for end in (LESS, MORE)]  # fmt: skip
    if scale == "max":
        colours, ticks = [grey, ends[1]], ["0", "the map's largest weight"]
    else:
        colours, ticks = [ends[0], grey, ends[1]], ["less", "even share", "more"]
        if top is not None:
            ticks = [f"{times(1 / top)} x even", "even share", f"{times(top)} x even"]
    shades = matplotlib.cm.ScalarMappable(
        Normalize(0, 1), LinearSegmentedColormap.from_list("", colours)
    )
    bar = part.colorbar(shades, cax=ax, orientation="horizontal")
    bar.set_ticks(list(np.linspace(0, 1, len(ticks))), labels=ticks)
    bar.ax.tick_params(labelsize=7, length=2)
    note = "below each map: its least and largest weight as a multiple of the even share"
    if scale == "even":
        note += f"\nfull colour: the end farther from even, at least {FLOOR:g} x; dark: no weight"
    part.text(0.5, 0.03, note, fontsize=7, ha="center", va="bottom")


def _image(ax: Any, rgb: NDArray[Any]) -> None:
    """An image without ticks, its pixels as squares."""
    ax.imshow(rgb, interpolation="nearest")
    ax.set_xticks([])
    ax.set_yticks([])


def _mark(ax: Any, inspection: Inspection, token: int) -> None:
    """A frame round the token that asks."""
    row, col = divmod(token - inspection.tokens.prefix, inspection.tokens.grid[1])
    size = zip(inspection.pixels.shape[2:], inspection.tokens.grid, strict=True)
    h, w = (n // m for n, m in size)
    for width, colour in ((2.6, "black"), (1.4, "#ffe14d")):
        frame = matplotlib.patches.Rectangle(
            (col * w - 0.5, row * h - 0.5), w, h, fill=False, ec=colour, lw=width, clip_on=False
        )
        ax.add_patch(frame)
