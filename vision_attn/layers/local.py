"""Attention to a near field: windows (Liu et al. 2021), neighbourhoods (Ramachandran et al. 2019).

Tokens are (B, h*w, D) with the grid they lie on, as the rest of the package has tokens; the grid
may change from call to call.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from timm.layers import to_2tuple
from torch import Tensor, nn
from typing_extensions import Unpack

from vision_attn.errors import UserError
from vision_attn.layers.base import AttentionOptions, HeadedAttention, check_tokens
from vision_attn.layers.state import GridTables
from vision_attn.ops.checks import check_flag
from vision_attn.ops.masks import (
    Pair,
    check_kernel,
    check_window,
    neighborhood_mask,
    relative_index,
    window_mask,
)
from vision_attn.ops.names import plain_names
from vision_attn.ops.neighborhood import neighborhood_attend
from vision_attn.ops.windows import window_attend

__all__ = ["LocalAttention", "NeighborhoodAttention", "WindowAttention"]


class LocalAttention(GridTables, HeadedAttention):
    """Projections and options that both layers share; a subclass says who attends to whom.

    Args:
        reach: the largest difference of positions (rows, columns) in the table of the bias.
        rel_bias: a learned bias for each head and difference up to `reach`.
        others: as in `MultiHeadSelfAttention`, without registers.
    """

    on_grid = True  # forward takes grid_size
    allowed: Callable[..., Tensor]  # who may attend to whom, of `ops.masks`
    attend: Callable[..., Tensor]  # the attention under that mask
    relative_position_bias_table: Tensor | None
    dilation: Pair = (1, 1)

    def __init__(
        self, dim: int, num_heads: int, reach: Pair, rel_bias: bool, options: AttentionOptions
    ) -> None:
        if options.get("num_registers"):
            raise UserError(
                f"num_registers is {options['num_registers']}; registers have no place on the grid"
                " of local attention, wanted 0"
            )
        super().__init__(dim, num_heads, {"qkv": (3, dim)}, options)
        self.reach = reach
        self.relative_position_bias_table = None
        if rel_bias:
            self.table_grid = (2 * reach[0] + 1, 2 * reach[1] + 1)
            shape = (self.table_grid[0] * self.table_grid[1], num_heads)
            self.relative_position_bias_table = nn.Parameter(torch.empty(shape))
            nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    @plain_names
    def forward(
        self, x: Tensor, grid_size: tuple[int, int], *, rotary: Tensor | None = None
    ) -> Tensor:
        """(B, h*w, D) -> (B, h*w, D), grid_size (h, w); rotary as in `MultiHeadSelfAttention`."""
        h, w = grid_size
        if x.ndim == 4 or x.ndim == 2:
            check_tokens(x, self.dim)
        if x.ndim != 3 or x.shape[-1] != self.dim or x.shape[1] != h * w or min(h, w) < 1:
            raise UserError(
                f"tokens have shape {tuple(x.shape)}, but dim {self.dim} and grid_size {h} x {w}"
                f" want (B, {h * w}, {self.dim})"
            )
        full = self._filled((h, w))
        if full != (h, w):
            pads = (0, 0, 0, full[1] - w, 0, full[0] - h)
            x = F.pad(x.unflatten(1, (h, w)), pads).flatten(1, 2)
        q, k, v = self.project(x, rotary)
        table = self.relative_position_bias_table
        y = self.attend(q, k, v, full, **self.sizes, bias_table=table, **self.how)
        if self.observer is not None:
            self.observer(q=q, k=k, v=v, y=y, grid_size=full)
        if full != (h, w):
            y = y.unflatten(2, full)[:, :, :h, :w].flatten(2, 3)
        return self.proj_drop(self.proj(y.transpose(1, 2).flatten(2)))

    def _filled(self, grid_size: Pair) -> Pair:
        """The grid with the tokens of zeros that a layer adds to it."""
        return grid_size

    def mask(self, grid_size: Pair, rows: Sequence[int] | None = None) -> Tensor:
        """The mask under which full attention is this layer: (h, w) -> (Nq, h*w), bool.

        `rows` are the queries wanted; None is all.
        """
        device = self.proj.weight.device
        return self.allowed(grid_size, **self.sizes, rows=rows, device=device)

    def bias(self, grid_size: Pair, rows: Sequence[int] | None = None) -> Tensor | None:
        """The bias that goes with `mask`: (h, w) -> (H, Nq, h*w); None without a table."""
        table = self.relative_position_bias_table
        if table is None:
            return None
        index = relative_index(grid_size, self.reach, self.dilation, rows=rows, device=table.device)
        return table[index].permute(2, 0, 1)

    @property
    def sizes(self) -> dict[str, Pair]:
        """What `allowed` and `attend` want beside the grid."""
        raise NotImplementedError


class WindowAttention(LocalAttention):
    """Attention inside M_h x M_w windows with a relative bias: (B, N, D) -> (B, N, D).

    The grid is padded to whole windows, then shifted; pads are hidden, and tokens that only the
    cyclic shift brings together do not attend to each other. An axis that one window covers is not
    shifted. The same as attention under `ops.masks.window_mask`. Parameters have the names and the
    order of timm's `swin_transformer.WindowAttention`, so its weights load as they are.

    Args:
        dim: width D of a token.
        num_heads: heads H; must divide `dim`.
        window_size: tokens, one number or (rows, columns).
        shift_size: how far the windows are moved, one number or a pair, 0 to window - 1; Swin takes
            0 and half a window in turn.
        rel_bias: a learned bias for each head and difference of positions.
        pad_tokens: fill the grid up to whole windows with tokens of zeros that take weight, as Swin
            does (torchvision's `shifted_window_attention`); an observer and `mask` see them too.
        options: see `AttentionOptions`; `qkv_bias` is True here, as timm's, and there are no
            registers.

    Raises:
        UserError: (a ValueError) heads that do not divide the width, sizes out of range, tokens
            that do not fill the grid.
    """

    allowed, attend = staticmethod(window_mask), staticmethod(window_attend)

    @plain_names
    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        window_size: int | Pair = 7,
        shift_size: int | Pair = 0,
        rel_bias: bool = True,
        pad_tokens: bool = False,
        **options: Unpack[AttentionOptions],
    ) -> None:
        window, shift = to_2tuple(window_size), to_2tuple(shift_size)
        check_window(window, shift)
        check_flag(pad_tokens=pad_tokens)
        reach = (window[0] - 1, window[1] - 1)
        super().__init__(dim, num_heads, reach, rel_bias, {"qkv_bias": True, **options})
        self.window_size: Pair = window
        self.shift_size: Pair = shift
        self.pad_tokens = pad_tokens

    def _filled(self, grid_size: Pair) -> Pair:
        h, w = (-(-n // m) * m for n, m in zip(grid_size, self.window_size, strict=True))
        return (h, w) if self.pad_tokens else grid_size

    @property
    def sizes(self) -> dict[str, Pair]:
        """Window and shift."""
        return {"window_size": self.window_size, "shift_size": self.shift_size}


class NeighborhoodAttention(LocalAttention):
    """Each token attends to a k x k neighbourhood of it: (B, N, D) -> (B, N, D).

    At the border keys outside the image are masked, so a corner has fewer keys. NATTEN (Hassani et
    al. 2023) instead moves the neighbourhood inside: its border tokens differ from these. The same
    as `MultiHeadSelfAttention` under `ops.masks.neighborhood_mask`, in memory and time that are
    linear in N, and with the same names of weights.

    Args:
        dim: width D of a token.
        num_heads: heads H; must divide `dim`.
        kernel_size: k, odd, one number or (rows, columns); 2 r + 1 reaches r tokens each way.
        dilation: steps between the keys, one number or a pair.
        rel_bias: a learned bias for each head and tap, (k*k, H).
        options: see `AttentionOptions`; there are no registers.

    Raises:
        UserError: (a ValueError) heads that do not divide the width, an even kernel, tokens that do
            not fill the grid.
    """

    allowed, attend = staticmethod(neighborhood_mask), staticmethod(neighborhood_attend)

    @plain_names
    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        kernel_size: int | Pair = 7,
        dilation: int | Pair = 1,
        rel_bias: bool = False,
        **options: Unpack[AttentionOptions],
    ) -> None:
        kernel, steps = to_2tuple(kernel_size), to_2tuple(dilation)
        reach = check_kernel(kernel, steps)
        super().__init__(dim, num_heads, reach, rel_bias, options)
        self.kernel_size: Pair = kernel
        self.dilation = steps

    @property
    def sizes(self) -> dict[str, Pair]:
        """Kernel and dilation."""
        return {"kernel_size": self.kernel_size, "dilation": self.dilation}
