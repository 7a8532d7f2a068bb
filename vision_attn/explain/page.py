"""One self-contained HTML page: point at a pixel and see what it attends to, in every head.

The page holds all weights, so it opens from disk without a network: a byte for each weight as a
share of its row's largest, and that largest as a float32.
"""

import base64
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from torch import Tensor

from vision_attn.errors import UserError
from vision_attn.explain.inspection import View
from vision_attn.files import write_text

__all__ = ["MAX_BYTES", "write"]

MAX_BYTES = 24 * 2**20
"""Of weights in one page; base64 makes four thirds of it, and a phone must hold it."""


def write(view: View, out: Path, token: int | None) -> None:
    """Write the page. `token` asks first; None is the class token, or the middle of the image.

    Raises:
        UserError: more weights than a page holds.
    """
    n, (h, w), prefix = len(view.names), view.tokens.grid, view.tokens.prefix
    size = n * len(view.layers) * len(view.heads) * view.tokens.count * h * w
    size += 0 if view.similarity is None else (h * w) ** 2
    if size > MAX_BYTES:
        raise UserError(
            f"{n} images x {len(view.layers)} layers x {len(view.heads)} heads x"
            f" {view.tokens.count} x {h * w} weights take {size / 2**20:.0f} MB; a page holds"
            f" {MAX_BYTES / 2**20:.0f} MB: give fewer images, --layers or --heads, or a .png"
        )
    layers = view.weights(lambda rows: rows)
    parts = [_levels(torch.stack([layer[i] for layer in layers])) for i in range(n)]
    first = (0 if prefix else (h // 2) * w + w // 2) if token is None else token
    data = {
        "model": view.trained.name,
        "grid": [h, w],
        "size": list(view.pixels.shape[2:]),
        "unit": (h, w) == tuple(view.pixels.shape[2:]),
        "prefix": prefix,
        "front": _front(prefix),
        "outside": any(float((1 - p[2]).abs().max()) > 5e-4 for p in parts),
        "layers": list(view.layers),
        "heads": list(view.heads),
        "classes": list(view.trained.classes),
        "query": first,
        "colours": _text(matplotlib.colormaps["inferno"](np.arange(256))[:, :3] * 255, np.uint8),
        "places": None
        if view.similarity is None
        else _text((view.similarity.numpy().clip(-1, 1) + 1) * 127.5, np.uint8),
        "images": [
            {
                "name": view.names[i],
                "pixels": _text(
                    view.pixels[i].expand(3, -1, -1).permute(1, 2, 0).numpy(), np.uint8
                ),
                "scores": [round(float(p), 6) for p in view.probabilities[i]],
                "rollout": _text(view.rollout[i].numpy(), np.float32),
                "weights": _text(level.numpy(), np.uint8),
                "tops": _text(top.numpy(), np.float32),
                "sums": _text(total.numpy(), np.float32),
            }
            for i, (level, top, total) in enumerate(parts)
        ],
    }
    template = files("vision_attn.explain").joinpath("page.html").read_text(encoding="utf-8")
    # a class or a file may be called </script>
    text = json.dumps(data).replace("<", "\\u003c")
    write_text(out, template.replace("{{data}}", text))


def _levels(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weights (..., N) to shares of the row's largest, 0 to 255, the largest, and the sum."""
    top = rows.amax(-1, keepdim=True)
    level = (rows / top.clamp_min(torch.finfo(rows.dtype).tiny) * 255).round()
    return level.to(torch.uint8), top[..., 0], rows.sum(-1)


def _front(prefix: int) -> list[str]:
    return (["Class token"] + [f"Extra token {i}" for i in range(1, prefix)])[:prefix]


def _text(values: Any, dtype: Any) -> str:
    """Numbers, row-major and little-endian, as base64; whole ones are rounded."""
    array = np.rint(values) if dtype is np.uint8 else np.asarray(values)
    array = np.ascontiguousarray(array.astype(np.dtype(dtype).newbyteorder("<")))
    return base64.b64encode(array.tobytes()).decode("ascii")
