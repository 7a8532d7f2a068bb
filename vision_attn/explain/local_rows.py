"""What a local layer allows and adds, as rows of the mask and the bias of full attention."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vision_attn.layers.local import NeighborhoodAttention, WindowAttention
from vision_attn.ops.masks import row_index
from vision_attn.ops.positions import grid_positions

__all__ = ["local_rows"]


def local_rows(
    layer: NeighborhoodAttention | WindowAttention,
    grid: tuple[int, int],
    queries: Sequence[int] | None,
    device: torch.device,
) -> tuple[Tensor, Tensor | None]:
    """Rows of the mask that a local layer equals, bool (Nq, N), and of its bias (H, Nq, N)."""
    at = grid_positions(grid, device=device)
    rows = slice(None) if queries is None else row_index("queries", queries, len(at), device)
    away = at[rows, None] - at
    if isinstance(layer, NeighborhoodAttention):
        step = torch.tensor(layer.dilation, device=device)
        size = torch.tensor(layer.kernel_size, device=device)
        radius = size // 2
        mask = ((away.abs() <= step * radius) & (away % step == 0)).all(-1)
        away = away.div(step, rounding_mode="floor") + radius
    else:
        small = [n <= m for n, m in zip(grid, layer.window_size, strict=True)]
        covered, whole, cells = _pairs(device, small, grid, layer.window_size)
        window = torch.where(covered, whole, cells)
        shift = torch.tensor(layer.shift_size, device=device).masked_fill(covered, 0)
        home = (at - shift).div(window, rounding_mode="floor")
        mask = (home[rows, None] == home).all(-1)
        size = 2 * torch.tensor(layer.window_size, device=device) - 1
        away = away + size // 2
    table = layer.relative_position_bias_table
    if table is None:
        return mask, None
    index = torch.where(mask, away[..., 0] * size[1] + away[..., 1], 0)
    return mask, table[index].permute(2, 0, 1)


def _pairs(device: torch.device, *pairs: Sequence[int]) -> list[Tensor]:
    return [torch.tensor(pair, device=device) for pair in pairs]
