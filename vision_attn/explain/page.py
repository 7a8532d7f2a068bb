"""One self-contained HTML page: point at a token and see what it attends to, in every head.

The page holds all weights, so it opens from disk without a network: two bytes for each weight as a
share of its row's largest, and that largest as a float32.
"""

import base64
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vision_attn.errors import UserError
from vision_attn.explain.colour import COVER, FLOOR, LESS, MORE, Scale
from vision_attn.explain.inspection import Inspection
from vision_attn.files import write_text

__all__ = ["MAX_BYTES", "write"]

MAX_BYTES = 24 * 2**20
"""Of weights in one page; base64 makes four thirds of it, and a phone must hold it."""

_CLASSES = 10
"""Of the most likely ones that are listed."""


def write(inspection: Inspection, out: Path, token: int | None, scale: Scale = "even") -> None:
    """Write the page.

    Args:
        token: that asks first; None is the class token, or the middle of the image.
        scale: of the colours at first; see `overview.draw`.

    Raises:
        UserError: more weights than a page holds.
    """
    shown, (h, w), prefix = inspection, inspection.tokens.grid, inspection.tokens.prefix
    n, rows, cols = len(shown.names), len(shown.layers), len(shown.heads)
    size = 2 * n * rows * cols * shown.tokens.count * h * w
    size += 0 if shown.similarity is None else (h * w) ** 2
    if size > MAX_BYTES:
        raise UserError(
            f"{n} images x {rows} layers x {cols} heads x {shown.tokens.count} x {h * w} weights"
            f" take {size / 2**20:.0f} MB; a page holds {MAX_BYTES / 2**20:.0f} MB: give fewer"
            " images, --layers or --heads, or a .png"
        )
    layers = shown.weights()
    parts = [_levels(torch.stack([weights[i] for weights, _ in layers])) for i in range(n)]
    data = {
        "model": shown.title,
        "grid": [h, w],
        "size": list(shown.pixels.shape[2:]),
        "unit": shown.unit,
        "prefix": prefix,
        "front": [f"Extra token {i}" if i else "Class token" for i in range(prefix)],
        "outside": any(float((1 - p[2]).abs().max()) > 5e-4 for p in parts),
        "layers": list(shown.layers),
        "heads": list(shown.heads),
        "query": (0 if prefix else (h // 2) * w + w // 2) if token is None else token,
        "scale": scale,
        "more": [round(255 * c) for c in MORE],
        "less": [round(255 * c) for c in LESS],
        "cover": COVER,
        "floor": FLOOR,
        "even": _text(np.stack([even.amax(-1) for _, even in layers]), "<f4"),
        "places": None
        if shown.similarity is None
        else _text(np.rint((shown.similarity.numpy().clip(-1, 1) + 1) * 127.5), "u1"),
        "images": [
            {
                "name": shown.names[i],
                "pixels": _text(shown.pixels[i].expand(3, -1, -1).permute(1, 2, 0).numpy(), "u1"),
                "scores": _best(shown, i),
                "rollout": _text(shown.rollout[i].numpy(), "<f4"),
                "flow": shown.flow[i],
                "weights": _text(level, "<u2"),
                "tops": _text(top.numpy(), "<f4"),
                "sums": _text(total.numpy(), "<f4"),
            }
            for i, (level, top, total) in enumerate(parts)
        ],
    }
    page = _beside("page.html")
    for part in ("page.css", "page.js"):
        page = page.replace(f"{{{{{part}}}}}", _beside(part))
    # a class or a file may be called </script>
    write_text(out, page.replace("{{data}}", json.dumps(data).replace("<", "\\u003c")))


def _beside(name: str) -> str:
    """The text of a file in this folder."""
    return files("vision_attn.explain").joinpath(name).read_text(encoding="utf-8")


def _levels(rows: Tensor) -> tuple[Any, Tensor, Tensor]:
    """Weights (..., N) to shares of the row's largest, 0 to 65,535, the largest, and the sum."""
    top = rows.amax(-1, keepdim=True)
    level = (rows / top.clamp_min(torch.finfo(rows.dtype).tiny) * 65_535).round()
    return level.numpy(), top[..., 0], rows.sum(-1)


def _best(inspection: Inspection, i: int) -> list[tuple[str, float]]:
    """The most likely classes of an image, and their probabilities."""
    p = inspection.probabilities[i]
    order = p.argsort(descending=True, stable=True)[:_CLASSES].tolist()
    return [(inspection.trained.classes[c], round(float(p[c]), 6)) for c in order]


def _text(values: Any, dtype: str) -> str:
    """Numbers, row-major, as base64 of a little-endian type."""
    return base64.b64encode(np.ascontiguousarray(values).astype(dtype).tobytes()).decode("ascii")
