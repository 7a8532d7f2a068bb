"""What attention layers over a near field share: projections, options, tokens on a grid.

Tokens are (B, h*w, D) with the grid they lie on, as the rest of the package has tokens; the grid
may change from call to call.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.layers.heads import (
    HeadedAttention,
    check_heads,
    projection_layer,
    split_heads,
)
from vision_attn.layers.tables import GridTables
from vision_attn.ops.attention import Score
from vision_attn.ops.positions import rotate

__all__ = ["LocalAttention", "Pair"]

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
