"""Positions of tokens: sine-cosine (Vaswani et al. 2017), resize, rotary."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vision_attn.errors import UserError

__all__ = ["grid_positions", "resize_positions", "resize_relative", "rotary_2d",
           "rotate", "sincos_1d", "sincos_2d"]  # fmt: skip


def grid_positions(grid_size: tuple[int, int], *, device: torch.device | None = None) -> Tensor:
    """(row, column) of each token of a grid, row-major: (h, w) -> (h*w, 2), int64."""
    h, w = grid_size
    row = torch.arange(h, device=device).repeat_interleave(w)
    return torch.stack((row, torch.arange(w, device=device).repeat(h)), -1)


def sincos_1d(positions: Tensor, dim: int, *, temperature: float = 10_000.0) -> Tensor:
    """`p(pos, 2i) = sin(pos / temperature^(2i/D))`, `p(pos, 2i+1) = cos(same)`: (N,) -> (N, D)."""
    if dim % 2:
        raise UserError(f"dim {dim} is odd; sine-cosine positions need pairs: try {dim + 1}")
    angle = _angles(positions, dim // 2, temperature)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(-2).to(torch.get_default_dtype())


def sincos_2d(
    grid_size: tuple[int, int] | Tensor, dim: int, *, temperature: float = 10_000.0
) -> Tensor:
    """The first half of the channels encodes the row, the second the column: (h, w) -> (h*w, D).

    In place of a grid, positions (..., 2) of single tokens may be given: -> (..., D).
    """
    _check_divisible_by_4("dim", dim, "2-D sine-cosine positions")
    at = grid_size if isinstance(grid_size, Tensor) else grid_positions(grid_size)
    halves = [sincos_1d(x, dim // 2, temperature=temperature) for x in at.unbind(-1)]
    return torch.cat(halves, -1)


def rotary_2d(
    grid_size: tuple[int, int] | Tensor, head_dim: int, *, temperature: float = 100.0
) -> Tensor:
    """Sines and cosines that `rotate` takes: (h, w) -> (2, h*w, K) (Su et al. 2021; Heo et al.).

    The first half of K is turned by the row, the second by the column, in pairs (2i, 2i+1) by the
    angle `pos / temperature^(4i/K)`. The temperature is that of Heo et al. 2024, for small grids.
    In place of a grid, positions (..., 2) of single tokens may be given: -> (2, ..., K).
    """
    _check_divisible_by_4("head_dim", head_dim, "2-D rotary positions")
    at = grid_size if isinstance(grid_size, Tensor) else grid_positions(grid_size)
    angle = _angles(at, head_dim // 4, temperature).repeat_interleave(2, -1).flatten(-2)
    return torch.stack((angle.sin(), angle.cos())).to(torch.get_default_dtype())


def rotate(x: Tensor, rotary: Tensor) -> Tensor:
    """Turn queries or keys: (B, H, N, K) by (2, N, K), or by (2, B, N, K) -> (B, H, N, K).

    With queries and keys turned, a score depends on the difference of their positions only. Half
    precision is turned in float32 and returned in the dtype of x.
    """
    want = (x.shape[-2], x.shape[-1])
    if rotary.shape[0] != 2 or rotary.ndim not in (3, 4) or rotary.shape[-2:] != want:
        raise UserError(
            f"rotary has shape {tuple(rotary.shape)}, wanted (2, N, K) or (2, B, N, K) with"
            f" (N, K) = {want}; make it with rotary_2d for the same grid and head width"
        )
    sin, cos = (rotary if rotary.ndim == 3 else rotary[:, :, None]).unbind(0)
    turned = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return (x * cos + turned * sin).to(x.dtype)


def resize_positions(
    positions: Tensor, old: tuple[int, int], new: tuple[int, int], *, num_prefix_tokens: int = 0
) -> Tensor:
    """A learned table for another grid, bicubic with antialias: (1, N, D) -> (1, N', D).

    Args:
        positions: the table, N = num_prefix_tokens + old rows * columns.
        old, new: (rows, columns); two shapes of the same number of tokens differ too.
        num_prefix_tokens: tokens in front of the grid, such as a class token, that stay.

    Raises:
        UserError: a table that does not have the tokens of the old grid.
    """
    if positions.shape[1] != num_prefix_tokens + old[0] * old[1]:
        raise UserError(
            f"positions has {positions.shape[1]} tokens, but a grid of {old[0]} x {old[1]} with"
            f" {num_prefix_tokens} prefix tokens has {num_prefix_tokens + old[0] * old[1]}"
        )
    if old == new:
        return positions
    prefix, grid = positions[:, :num_prefix_tokens], positions[:, num_prefix_tokens:]
    image = grid.unflatten(1, old).permute(0, 3, 1, 2)
    image = image.to(torch.promote_types(positions.dtype, torch.float32))
    image = F.interpolate(image, size=new, mode="bicubic", antialias=True)
    return torch.cat((prefix, image.flatten(2).mT.to(positions.dtype)), 1)


def resize_relative(table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """A relative bias table for another grid: ((2h-1)(2w-1), H) -> ((2h'-1)(2w'-1), H).

    Bicubic over the differences, as `resize_positions` over the tokens.
    """
    spans = [(2 * h - 1, 2 * w - 1) for h, w in (old, new)]
    return resize_positions(table[None], spans[0], spans[1])[0]


def _angles(positions: Tensor, count: int, temperature: float) -> Tensor:
    """(...) -> (..., count), float64: a position times `temperature^(-i / count)`."""
    rate = torch.arange(count, dtype=torch.float64, device=positions.device) / count
    return positions.to(torch.float64)[..., None] * temperature**-rate


def _check_divisible_by_4(name: str, dim: int, what: str) -> None:
    if dim % 4:
        near = sorted({max(dim - dim % 4, 4), max(dim + 4 - dim % 4, 4)})
        raise UserError(
            f"{name} {dim} is not divisible by 4, which {what} need;"
            f" try {' or '.join(map(str, near))}"
        )
