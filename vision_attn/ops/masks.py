"""Who may attend to whom: causal, window and neighbourhood masks, and the row of a relative bias.

Each makes the whole matrix, or only the `rows` of some queries, so that N x N is never needed at
once. Pairs of numbers are (rows, columns) of the grid.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from vision_attn.errors import UserError
from vision_attn.ops.positions import grid_positions

__all__ = ["Pair", "causal_mask", "check_kernel", "check_window", "fit_window",
           "neighborhood_mask", "pick", "relative_index", "row_index", "window_mask"]  # fmt: skip

Pair = tuple[int, int]


def causal_mask(
    queries: int,
    keys: int,
    *,
    rows: Sequence[int] | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """True where a key is not later than the query, the last query being the last key: (Nq, Nk).

    So with Nq < Nk the queries are the newest tokens, as with cached keys; with Nq > Nk the first
    Nq - Nk queries have nothing to attend to. `rows` are the queries wanted; None is all.
    """
    if rows is None:
        at = torch.arange(queries, device=device)
    else:
        at = row_index("queries", rows, queries, device)
    return torch.arange(keys, device=device) <= at[:, None] + (keys - queries)


def window_mask(
    grid_size: Pair,
    window_size: Pair,
    shift_size: Pair = (0, 0),
    *,
    rows: Sequence[int] | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """True where two tokens share a window and a region: (h, w) -> (Nq, h*w), bool.

    Token (row, column) is in window `(row - shift) // window`, rounded down, and so for columns.
    A shift thus cuts the windows at the border; nothing wraps round. As in Swin, an axis that one
    window covers is not shifted. `rows` are the queries wanted; None is all.
    """
    window, shift = fit_window(grid_size, window_size, shift_size)
    query, key = _queries_and_keys(grid_size, rows, device)
    size, moved = (torch.tensor(pair, device=device) for pair in (window, shift))
    home, homes = ((at - moved).div(size, rounding_mode="floor") for at in (query, key))
    return (home[:, None] == homes).all(-1)


def neighborhood_mask(
    grid_size: Pair,
    kernel_size: Pair,
    dilation: Pair = (1, 1),
    *,
    rows: Sequence[int] | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """True where a key is a tap of the dilated kernel on the query: (h, w) -> (Nq, h*w), bool.

    `rows` are the queries wanted; None is all.
    """
    radius = check_kernel(kernel_size, dilation)
    query, key = _queries_and_keys(grid_size, rows, device)
    step = torch.tensor(dilation, device=device)
    away = (query[:, None] - key).abs()
    near = away <= step * torch.tensor(radius, device=device)
    return (near & (away % step == 0)).all(-1)


def relative_index(
    grid_size: Pair,
    reach: Pair | None = None,
    step: Pair = (1, 1),
    *,
    rows: Sequence[int] | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """Row of a relative bias table for each (query, key): (h, w) -> (Nq, h*w), int64.

    `(row_q - row_k + r_h) * (2 r_w + 1) + (column_q - column_k + r_w)`, as Swin has it (Liu et al.
    2021): the table has (2 r_h + 1)(2 r_w + 1) rows. Pairs that it has no row for get row 0.

    Args:
        reach: the largest difference (r_h, r_w) in the table; None is the grid's, (h - 1, w - 1).
        step: differences are counted in these steps, the dilation of a neighbourhood.
        rows: the queries wanted; None is all.
    """
    r, c = (grid_size[0] - 1, grid_size[1] - 1) if reach is None else reach
    query, key = _queries_and_keys(grid_size, rows, device)
    down, right = (query[:, None] - key).unbind(-1)
    index = (down.div(step[0], rounding_mode="floor") + r) * (2 * c + 1)
    index = index + right.div(step[1], rounding_mode="floor") + c
    if reach is None and step == (1, 1):
        return index
    near = (down.abs() <= r * step[0]) & (right.abs() <= c * step[1])
    return torch.where(near & (down % step[0] == 0) & (right % step[1] == 0), index, 0)


def check_kernel(kernel_size: Pair, dilation: Pair) -> Pair:
    """How many taps a kernel reaches each way, or a UserError: wanted odd sides, dilations >= 1."""
    for k, d in zip(kernel_size, dilation, strict=True):
        if k < 1 or k % 2 == 0 or d < 1:
            raise UserError(
                f"kernel_size {kernel_size} with dilation {dilation}: wanted odd kernels, such as"
                f" {max(k, 1) // 2 * 2 + 1}, and dilations of at least 1"
            )
    return kernel_size[0] // 2, kernel_size[1] // 2


def check_window(window_size: Pair, shift_size: Pair) -> None:
    """A UserError unless windows are at least 1 and shifts from 0 to window - 1."""
    for m, s in zip(window_size, shift_size, strict=True):
        if m < 1 or not 0 <= s < m:
            raise UserError(
                f"window_size {window_size} with shift_size {shift_size}: wanted windows of at"
                f" least 1 and shifts from 0 to window - 1; try shift_size {max(m, 1) // 2}"
            )


def fit_window(grid: Pair, window: Pair, shift: Pair) -> tuple[Pair, Pair]:
    """Window and shift on this grid: a window that covers an axis is cut to it and stays put."""
    check_window(window, shift)
    small = [n <= m for n, m in zip(grid, window, strict=True)]
    return (
        (grid[0] if small[0] else window[0], grid[1] if small[1] else window[1]),
        (0 if small[0] else shift[0], 0 if small[1] else shift[1]),
    )


def row_index(name: str, chosen: Sequence[int], count: int, device: torch.device | None) -> Tensor:
    """Chosen indices of `count` as a tensor, negative ones from the end; UserError outside."""
    for i in chosen:
        if not -count <= i < count:
            raise UserError(f"{name} has {i}, but there are {count}; wanted 0 to {count - 1}")
    return torch.tensor([i % count for i in chosen], dtype=torch.long, device=device)


def pick(t: Tensor | None, dim: int, index: Tensor) -> Tensor | None:
    """The chosen slices along dim, counted from the end; an axis of broadcasting stays."""
    if t is None or t.ndim < -dim or (t.shape[dim] == 1 and len(index)):
        return t
    return t.index_select(dim, index)


def _queries_and_keys(
    grid: Pair, rows: Sequence[int] | None, device: torch.device | None
) -> tuple[Tensor, Tensor]:
    """(row, column) of the queries wanted and of all keys: (Nq, 2), (h*w, 2)."""
    key = grid_positions(grid, device=device)
    return key if rows is None else key[row_index("queries", rows, len(key), device)], key
