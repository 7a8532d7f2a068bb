"""Claim: a shift of sine-cosine positions is a rotation, whatever the position (Vaswani 2017)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from vision_attn.ops.positions import sincos_1d

__all__ = ["LENGTH", "shift_error", "shift_rows"]

LENGTH = 256


def shift_error(dim: int, length: int, shift: int) -> float:
    """Largest |p(pos) R_k - p(pos + k)| in float64, R_k the rotation of each pair of channels by k.

    `R_k` turns (sin a, cos a) by k times the pair's rate, whatever the position a.
    """
    with _float64():
        p = sincos_1d(torch.arange(length + shift), dim)
    turn = _rates(dim) * shift
    sin, cos = p[:length, 0::2], p[:length, 1::2]
    moved = torch.stack(
        (sin * turn.cos() + cos * turn.sin(), cos * turn.cos() - sin * turn.sin()), -1
    ).flatten(1)
    return float((moved - p[shift:]).abs().max())


def _rates(dim: int) -> Tensor:
    """Angle of one step for each pair of channels, `10000^(-2i/D)`: (D/2,), float64."""
    return 10_000.0 ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)


def shift_rows(dim: int) -> Iterator[dict[str, Any]]:
    """Largest errors over `LENGTH` positions, for shifts of 1 to 16: of the sin-cos table under its
    rotation, and of a table of random numbers under its best linear map.
    """
    for shift in range(1, 17):
        yield {"table": "sin-cos", "map": "rotation", "shift": shift,
               "error": shift_error(dim, LENGTH, shift)}  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    for shift in range(1, 17):
        p = torch.randn(LENGTH + shift, dim, generator=generator, dtype=torch.float64) / 2**0.5
        half = LENGTH // 2  # fitted on the first half of the positions, tried on the second
        fitted = torch.linalg.lstsq(p[:half], p[shift : half + shift]).solution
        error = float((p[half:LENGTH] @ fitted - p[half + shift :]).abs().max())
        yield {"table": "random", "map": "best linear", "shift": shift, "error": error}


@contextmanager
def _float64() -> Iterator[None]:
    """Tables of positions in float64; they come in the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
