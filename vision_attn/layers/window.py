"""Attention in windows, shifted and with a relative bias (Liu et al. 2021)."""

from collections.abc import Callable
from typing import Literal

from timm.layers import to_2tuple
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.layers.local import LocalAttention, Pair
from vision_attn.ops.attention import Score
from vision_attn.ops.windows import window_attend

__all__ = ["WindowAttention"]


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
