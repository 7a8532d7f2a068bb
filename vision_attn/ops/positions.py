"""Sine-cosine positions in one and two dimensions (Vaswani et al. 2017)."""

import torch
from torch import Tensor

from vision_attn.errors import UserError

__all__ = ["sincos_1d", "sincos_2d"]


def sincos_1d(positions: Tensor, dim: int, *, temperature: float = 10_000.0) -> Tensor:
    """`p(pos, 2i) = sin(pos / temperature^(2i/D))`, `p(pos, 2i+1) = cos(same)`: (N,) -> (N, D)."""
    if dim % 2:
        raise UserError(f"dim {dim} is odd; sine-cosine positions need pairs: try {dim + 1}")
    rate = temperature ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = positions.to(torch.float64)[:, None] * rate.to(positions.device)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(1).to(torch.get_default_dtype())


def sincos_2d(grid_size: tuple[int, int], dim: int, *, temperature: float = 10_000.0) -> Tensor:
    """The first half of the channels tells the row, the second the column: (h, w) -> (h*w, D)."""
    if dim % 4:
        near = sorted({dim - dim % 4 or 4, dim + 4 - dim % 4})
        raise UserError(
            f"dim {dim} is not divisible by 4, which 2-D sine-cosine positions need;"
            f" try {' or '.join(map(str, near))}"
        )
    h, w = grid_size
    row, col = torch.arange(h).repeat_interleave(w), torch.arange(w).repeat(h)
    halves = [sincos_1d(x, dim // 2, temperature=temperature) for x in (row, col)]
    return torch.cat(halves, -1)
