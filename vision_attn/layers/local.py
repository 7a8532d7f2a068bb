"""Attention to a near field: windows (Liu et al. 2021), neighbourhoods (Ramachandran et al. 2019).

Tokens are (B, h*w, D) with the grid they lie on, as the rest of the package has tokens; the grid
may change from call to call.
"""

from collections.abc import Callable
from typing import Literal

import torch
from timm.layers import to_2tuple
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.layers.attention import MultiHeadSelfAttention
from vision_attn.layers.base import (
    HeadedAttention,
    check_heads,
    projection_layer,
    split_heads,
)
from vision_attn.layers.tables import GridTables
from vision_attn.ops.attention import Score
from vision_attn.ops.neighborhood import neighborhood_attend
from vision_attn.ops.positions import rotate
from vision_attn.ops.windows import window_attend

__all__ = ["LocalAttention", "NeighborhoodAttention", "Pair", "WindowAttention"]

Pair = tuple[int, int]


class LocalAttention(GridTables, HeadedAttention):
    """Projections and options that both layers share; a subclass says who attends to whom."""

    qkv: nn.Module
    relative_position_bias_table: Tensor | None

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        qkv_bias: bool = False,
        qk_norm: bool = False,
        proj_bias: bool = True,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        norm_layer: Callable[[int], nn.Module] = nn.LayerNorm,
        scale: float | None = None,
        projection: Literal["full", "per_head"] = "full",
        score: Score = "softmax",
        fused: bool = True,
        table_grid: Pair | None = None,
    ) -> None:
        check_heads(dim, num_heads)
        super().__init__(
            dim,
            num_heads,
            {"qkv": projection_layer(projection, dim, num_heads, 3, qkv_bias)},
            qk_norm=qk_norm,
            proj_bias=proj_bias,
            attn_drop=attn_drop,
            proj_drop=proj_drop,
            norm_layer=norm_layer,
            scale=scale,
            score=score,
            num_registers=0,
            fused=fused,
        )
        self.relative_position_bias_table = None
        self.table_grid = table_grid
        if table_grid is not None:
            shape = (table_grid[0] * table_grid[1], num_heads)
            self.relative_position_bias_table = nn.Parameter(torch.empty(shape))
            nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def forward(
        self, x: Tensor, grid_size: tuple[int, int], *, rotary: Tensor | None = None
    ) -> Tensor:
        """(B, h*w, D) -> (B, h*w, D), grid_size (h, w); rotary as in `MultiHeadSelfAttention`."""
        h, w = grid_size
        if x.ndim != 3 or x.shape[-1] != self.dim or x.shape[1] != h * w or min(h, w) < 1:
            raise UserError(
                f"tokens have shape {tuple(x.shape)}, but dim {self.dim} and grid_size {h} x {w}"
                f" want (B, {h * w}, {self.dim})"
            )
        q, k, v = split_heads(self.qkv(x), 3, self.num_heads)
        q, k = self.q_norm(q), self.k_norm(k)
        if rotary is not None:
            q, k = rotate(q, rotary), rotate(k, rotary)
        y = self._near(q, k, v, (h, w))
        if self.observer is not None:
            self.observer(q=q, k=k, v=v, y=y, grid_size=(h, w))
        return self.proj_drop(self.proj(y.transpose(1, 2).reshape(x.shape)))

    def _near(self, q: Tensor, k: Tensor, v: Tensor, grid_size: Pair) -> Tensor:
        raise NotImplementedError


class WindowAttention(LocalAttention):
    """Attention inside M_h x M_w windows with a relative bias: (B, N, D) -> (B, N, D).

    The grid is padded to whole windows, then shifted; pads take no weight, and tokens that only the
    cyclic shift brings together do not attend to each other. An axis that one window covers is not
    shifted. The same as attention under `ops.windows.window_mask`. Parameters have the names and
    the order of timm's `swin_transformer.WindowAttention`, so its weights load as they are.

    Args:
        dim: width D of a token.
        num_heads: heads H; must divide `dim`.
        window_size: tokens, one number or (rows, columns).
        shift_size: how far the windows are moved, one number or a pair, 0 to window - 1; Swin takes
            0 and half a window in turn.
        rel_bias: a learned bias for each head and difference of positions.
        qkv_bias: as timm's, True here.
        others: as in `MultiHeadSelfAttention`.

    Raises:
        UserError: (a ValueError) heads that do not divide the width, sizes out of range, tokens
            that do not fill the grid.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        window_size: int | Pair = 7,
        shift_size: int | Pair = 0,
        rel_bias: bool = True,
        qkv_bias: bool = True,
        qk_norm: bool = False,
        proj_bias: bool = True,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        norm_layer: Callable[[int], nn.Module] = nn.LayerNorm,
        scale: float | None = None,
        projection: Literal["full", "per_head"] = "full",
        score: Score = "softmax",
        fused: bool = True,
    ) -> None:
        window, shift = to_2tuple(window_size), to_2tuple(shift_size)
        for m, s in zip(window, shift, strict=True):
            if m < 1 or not 0 <= s < m:
                raise UserError(
                    f"window_size {window_size} with shift_size {shift_size}: wanted windows of at"
                    f" least 1 and shifts from 0 to window - 1; try shift_size {max(m, 1) // 2}"
                )
        super().__init__(
            dim,
            num_heads,
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
            proj_bias=proj_bias,
            attn_drop=attn_drop,
            proj_drop=proj_drop,
            norm_layer=norm_layer,
            scale=scale,
            projection=projection,
            score=score,
            fused=fused,
            table_grid=(2 * window[0] - 1, 2 * window[1] - 1) if rel_bias else None,
        )
        self.window_size: Pair = window
        self.shift_size: Pair = shift

    def _near(self, q: Tensor, k: Tensor, v: Tensor, grid_size: Pair) -> Tensor:
        return window_attend(
            q,
            k,
            v,
            grid_size,
            self.window_size,
            shift_size=self.shift_size,
            bias_table=self.relative_position_bias_table,
            scale=self.scale,
            score=self.score,
            dropout_p=self.attn_drop.p if self.training else 0.0,
            fused=self.fused,
        )


class NeighborhoodAttention(LocalAttention):
    """Each token attends to a k x k neighbourhood of it: (B, N, D) -> (B, N, D).

    At the border keys outside the image are masked, so a corner has fewer keys. NATTEN (Hassani et
    al. 2023) instead moves the neighbourhood inside: its border tokens differ from these. The same
    as `MultiHeadSelfAttention` under `ops.neighborhood.neighborhood_mask`, in memory and time that
    are linear in N.

    Args:
        dim: width D of a token.
        num_heads: heads H; must divide `dim`.
        kernel_size: k, odd, one number or (rows, columns); 2 r + 1 reaches r tokens each way.
        dilation: steps between the keys, one number or a pair.
        rel_bias: a learned bias for each head and tap, (k*k, H).
        others: as in `MultiHeadSelfAttention`.

    Raises:
        UserError: (a ValueError) heads that do not divide the width, an even kernel, tokens that do
            not fill the grid.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        kernel_size: int | Pair = 7,
        dilation: int | Pair = 1,
        rel_bias: bool = False,
        qkv_bias: bool = False,
        qk_norm: bool = False,
        proj_bias: bool = True,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        norm_layer: Callable[[int], nn.Module] = nn.LayerNorm,
        scale: float | None = None,
        projection: Literal["full", "per_head"] = "full",
        score: Score = "softmax",
        fused: bool = True,
    ) -> None:
        kernel, steps = to_2tuple(kernel_size), to_2tuple(dilation)
        for k, d in zip(kernel, steps, strict=True):
            if k < 1 or k % 2 == 0 or d < 1:
                raise UserError(
                    f"kernel_size {kernel_size} with dilation {dilation}: wanted odd kernels, such"
                    f" as {max(k, 1) // 2 * 2 + 1}, and dilations of at least 1"
                )
        super().__init__(
            dim,
            num_heads,
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
            proj_bias=proj_bias,
            attn_drop=attn_drop,
            proj_drop=proj_drop,
            norm_layer=norm_layer,
            scale=scale,
            projection=projection,
            score=score,
            fused=fused,
            table_grid=kernel if rel_bias else None,
        )
        self.kernel_size: Pair = kernel
        self.dilation: Pair = steps

    @classmethod
    def from_attention(
        cls,
        attn: MultiHeadSelfAttention,
        *,
        kernel_size: int | Pair = 7,
        dilation: int | Pair = 1,
        rel_bias: bool = False,
    ) -> "NeighborhoodAttention":
        """The local form of a global layer, which gives it its own projections and norms.

        Raises:
            UserError: a layer with registers, which have no place on the grid.
        """
        if attn.num_registers:
            raise UserError(
                f"num_registers is {attn.num_registers}; a neighbourhood has none, wanted 0"
            )
        local = cls(
            attn.dim,
            attn.num_heads,
            kernel_size=kernel_size,
            dilation=dilation,
            rel_bias=rel_bias,
            scale=attn.scale,
            score=attn.score,
            fused=attn.fused,
        )
        for name, part in attn.named_children():
            setattr(local, name, part)
        if local.relative_position_bias_table is not None:
            local.relative_position_bias_table.data = local.relative_position_bias_table.data.to(
                attn.proj.weight
            )
        return local.train(attn.training)

    def _near(self, q: Tensor, k: Tensor, v: Tensor, grid_size: Pair) -> Tensor:
        return neighborhood_attend(
            q,
            k,
            v,
            grid_size,
            self.kernel_size,
            dilation=self.dilation,
            bias_table=self.relative_position_bias_table,
            scale=self.scale,
            score=self.score,
            dropout_p=self.attn_drop.p if self.training else 0.0,
            fused=self.fused,
        )
