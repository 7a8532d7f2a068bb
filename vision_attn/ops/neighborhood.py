"""Attention to a k x k neighbourhood (Ramachandran et al. 2019), dilated too, on a grid of tokens.

The grid is cut into tiles of queries. A tile takes a halo of keys all round and masks, for each
query, those too far away; one call of `attend` does all tiles, so time and memory are linear in the
number of tokens. It equals `attend` on the whole grid under `neighborhood_mask`. With a dilation,
each remainder of rows and columns is a grid of its own. Pairs of numbers are (rows, columns).
"""

from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor
from typing_extensions import Unpack

from vision_attn.ops.attention import AttendOptions
from vision_attn.ops.masks import Pair, check_kernel
from vision_attn.ops.names import plain_names
from vision_attn.ops.windows import attend_tiles, check_grid, check_table

__all__ = ["neighborhood_attend"]

_TILE = 8  # queries on a side; more waste keys, fewer copy the halo more often
_CHUNK = 2**20  # numbers in the queries done at once: larger blocks fall out of a processor's cache


@plain_names
def neighborhood_attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grid_size: Pair,
    kernel_size: Pair,
    *,
    dilation: Pair = (1, 1),
    bias_table: Tensor | None = None,
    **how: Unpack[AttendOptions],
) -> Tensor:
    """Each query attends to the taps of a kernel on it: (B, H, h*w, K) thrice -> (B, H, h*w, K).

    Taps outside the grid are masked: a query at the border has fewer keys. (NATTEN, Hassani et al.
    2023, moves the kernel inside instead.) Equal to `attend` with `neighborhood_mask`.

    Args:
        kernel_size: odd (rows, columns); 2 r + 1 reaches r tokens each way, times the dilation.
        dilation: steps between taps.
        bias_table: (kernel rows * columns, H), added by query minus key: row
            `(row_q - row_k + r) * columns + column_q - column_k + r`, in steps of the dilation.
            At r = h - 1 this is the table of `relative_index`.
        how: scale, score, dropout_p and fused, as in `attend`.

    Raises:
        UserError: an even kernel, sizes below 1, tokens that do not fill the grid.
    """
    radius = check_kernel(kernel_size, dilation)
    check_grid(q, grid_size)
    if parts := _parts(q):
        one = partial(
            neighborhood_attend, grid_size=grid_size, kernel_size=kernel_size, dilation=dilation,
            bias_table=bias_table, **how,
        )  # fmt: skip
        return torch.cat(
            [one(*qkv) for qkv in zip(*(t.split(parts) for t in (q, k, v)), strict=True)]
        )
    rows, cols = (_Axis.plan(n, r, d) for n, r, d in zip(grid_size, radius, dilation, strict=True))

    def cut(x: Tensor, halo: bool) -> Tensor:
        pads = (0, 0, *cols.pads(halo), *rows.pads(halo))
        x = x.unflatten(-2, grid_size)
        x = F.pad(x, pads) if any(pads) else x
        x = cols.cut(rows.cut(x, 2, halo), 4, halo)
        return rearrange(x, "B H i a j b K p q -> (i a j b) B H (p q) K")

    mask = bias = None
    if not (rows.open and cols.open):
        down, right = (axis.allowed(q.device) for axis in (rows, cols))
        near = down[:, None, :, None, :, None] & right[:, None, :, None, :]
        mask = near.flatten(4).flatten(2, 3).flatten(0, 1)[:, None, None]
    if bias_table is not None:
        check_table(bias_table, kernel_size[0] * kernel_size[1], q.shape[1])
        down, right = (axis.offsets(q.device) for axis in (rows, cols))
        index = down[:, None, :, None] * kernel_size[1] + right[:, None, :]
        bias = bias_table[index.flatten(2).flatten(0, 1)].permute(2, 0, 1)
    y = attend_tiles(cut(q, False), cut(k, True), cut(v, True), mask, bias, how)
    y = rearrange(
        y, "(i a j b) B H (p q) K -> B H (i p a) (j q b) K", a=rows.step, b=cols.step, j=cols.tiles,
        p=rows.tile, q=cols.tile,
    )  # fmt: skip
    return y[..., : grid_size[0], : grid_size[1], :].flatten(2, 3)


def _parts(q: Tensor) -> int:
    """Samples that are done at once on a CPU; 0 is all. A traced program takes any batch."""
    if not q.is_cpu or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return 0
    share = max(1, _CHUNK // max(1, q[0].numel() if len(q) else 1))
    return share if share < len(q) else 0


class _Axis(NamedTuple):
    """How neighbourhoods cut one axis: for each remainder of the dilation, tiles with a halo."""

    size: int
    radius: int
    step: int
    tile: int
    tiles: int
    halo: int

    @classmethod
    def plan(cls, size: int, radius: int, step: int) -> "_Axis":
        """Tiles small enough to waste few keys and large enough to share the halo."""
        long = -(-size // step)  # tokens of a remainder
        tile = max(_TILE, radius)
        if tile + 2 * radius >= long:  # the halo would be all of them: one tile without
            return cls(size, radius, step, long, 1, 0)
        count = -(-long // tile)
        return cls(size, radius, step, -(-long // count), count, radius)

    @property
    def open(self) -> bool:
        """Every query sees every key of its tile."""
        long = self.tile * self.tiles
        return self.tiles == 1 and self.radius >= long - 1 and long * self.step == self.size

    def pads(self, halo: bool) -> Pair:
        """Tokens to add in front and behind, with the halo or without."""
        before = self.halo * self.step if halo else 0
        return before, self.tile * self.tiles * self.step - self.size + before

    def cut(self, x: Tensor, dim: int, halo: bool) -> Tensor:
        """(..., padded axis, ...) -> (..., tiles, remainders, ..., tokens of a tile)."""
        if halo and self.halo:
            keys = self.tile + 2 * self.halo
            return x.unflatten(dim, (-1, self.step)).unfold(dim, keys, self.tile)
        return x.unflatten(dim, (self.tiles, self.tile, self.step)).movedim(dim + 1, -1)

    def away(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Query minus key, counted in steps, (tile, keys), and the keys, (keys,)."""
        key = torch.arange(-self.halo, self.tile + self.halo, device=device)
        return torch.arange(self.tile, device=device)[:, None] - key, key

    def offsets(self, device: torch.device) -> Tensor:
        """Query minus key plus radius, cut to the kernel: (tile, keys)."""
        return (self.away(device)[0] + self.radius).clamp(0, 2 * self.radius)

    def allowed(self, device: torch.device) -> Tensor:
        """Near enough and inside the grid: (tiles * remainders, tile, keys)."""
        away, key = self.away(device)
        first = self.tile * torch.arange(self.tiles, device=device)
        at = (first[:, None] + key)[:, None] * self.step
        at = at + torch.arange(self.step, device=device)[:, None]  # (tiles, remainders, keys)
        inside = (at >= 0) & (at < self.size)
        return ((away.abs() <= self.radius) & inside[..., None, :]).flatten(0, 1)
