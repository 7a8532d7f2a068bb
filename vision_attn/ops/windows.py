"""Attention inside shifted windows of a grid of tokens (Liu et al. 2021).

One call of `attend` on all windows: time and memory are linear in the number of tokens. It equals
`attend` on the whole grid under `window_mask`. Pairs of numbers are (rows, columns).
"""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor
from typing_extensions import Unpack

from vision_attn.errors import UserError
from vision_attn.ops.attention import AttendOptions, attend
from vision_attn.ops.masks import Pair, fit_window, relative_index
from vision_attn.ops.names import plain_names

__all__ = ["attend_tiles", "check_grid", "check_table", "window_attend"]


@plain_names
def window_attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grid_size: Pair,
    window_size: Pair,
    *,
    shift_size: Pair = (0, 0),
    bias_table: Tensor | None = None,
    **how: Unpack[AttendOptions],
) -> Tensor:
    """Attention inside windows of the grid: (B, H, h*w, K) three times -> (B, H, h*w, K).

    The grid is padded to whole windows, rolled by the shift and cut; pads take no weight, and pairs
    that only the roll brings together are masked. Equal to `attend` with `window_mask`.

    Args:
        window_size: M_h x M_w; a window larger than the grid is cut to it.
        shift_size: how far windows are moved down and right, 0 to window - 1.
        bias_table: ((2 M_h - 1)(2 M_w - 1), H), added by `relative_index` of the window.
        how: scale, score, dropout_p and fused, as in `attend`.

    Raises:
        UserError: sizes below 1, a shift outside its range, tokens that do not fill the grid.
    """
    window, shift = fit_window(grid_size, window_size, shift_size)
    check_grid(q, grid_size)
    pads = [-size % m for size, m in zip(grid_size, window, strict=True)]
    full = (grid_size[0] + pads[0], grid_size[1] + pads[1])

    def cut(x: Tensor) -> Tensor:
        x = F.pad(x.unflatten(-2, grid_size), (0, 0, 0, pads[1], 0, pads[0]))
        x = torch.roll(x, (-shift[0], -shift[1]), (-3, -2)) if any(shift) else x
        return rearrange(x, "B H (i p) (j q) K -> (i j) B H (p q) K", p=window[0], q=window[1])

    mask = bias = None
    if any(pads) or any(shift):
        # one number for each region of the padded grid, another for the pads
        rows, cols = (
            torch.arange(n, device=q.device).sub(s).div(m, rounding_mode="floor") + 1
            for n, s, m in zip(full, shift, window, strict=True)
        )
        region = (rows[:, None] * (full[1] + 2) + cols)[: grid_size[0], : grid_size[1]] + 1
        region = cut(region.reshape(1, 1, -1, 1))[..., 0]
        mask = region[..., :, None] == region[..., None, :]
    if bias_table is not None:
        index = relative_index(window_size, device=q.device).view(*window_size, *window_size)
        index = index[: window[0], : window[1], : window[0], : window[1]]
        check_table(bias_table, (2 * window_size[0] - 1) * (2 * window_size[1] - 1), q.shape[1])
        bias = bias_table[index.flatten(2).flatten(0, 1)].permute(2, 0, 1)
    y = attend_tiles(cut(q), cut(k), cut(v), mask, bias, how)
    whole, sizes = full[0] // window[0], {"p": window[0], "q": window[1]}
    y = rearrange(y, "(i j) B H (p q) K -> B H (i p) (j q) K", i=whole, **sizes)
    y = torch.roll(y, shift, (-3, -2)) if any(shift) else y
    return y[..., : grid_size[0], : grid_size[1], :].flatten(2, 3)


def attend_tiles(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    how: AttendOptions,
) -> Tensor:
    """`attend` on (tiles, B, H, N, K), mask (tiles, 1, 1, Nq, Nk), bias (H, Nq, Nk).

    Fused kernels want four axes. B joins the axis on which the mask, or else the bias, is the same
    for all, so that neither is copied for each sample; with both there is no such axis. Then torch
    falls back on products, which an export writes out, as ONNX knows no attention of five axes.
    """
    if mask is not None and bias is not None and _is_exporting():
        how = {**how, "fused": False}
    lead = q.shape[:3]
    if mask is None:
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    elif bias is None:
        q, k, v = (x.flatten(1, 2) for x in (q, k, v))
        mask = mask[:, 0]
    y = attend(q, k, v, mask=mask, bias=bias, **how)
    return y.reshape(*lead, *y.shape[-2:])


def _is_exporting() -> bool:
    if torch.jit.is_tracing():
        return True
    # torch before 2.7 tells an export from a compiler only in private
    return getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)()


def check_grid(x: Tensor, grid: Pair) -> None:
    """A UserError unless queries (B, H, N, K) fill the grid."""
    if x.ndim != 4 or min(grid) < 1 or x.shape[-2] != grid[0] * grid[1]:
        raise UserError(
            f"queries of shape {tuple(x.shape)} do not fill grid_size {grid}; wanted"
            f" (B, H, {grid[0] * grid[1]}, K)"
        )


def check_table(table: Tensor, rows: int, heads: int) -> None:
    """A UserError unless the relative bias table is (rows, H)."""
    if table.shape != (rows, heads):
        raise UserError(
            f"bias_table has shape {tuple(table.shape)}, wanted ({rows}, {heads}) for these sizes"
        )
