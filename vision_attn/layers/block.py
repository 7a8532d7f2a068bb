"""The pre-norm transformer encoder block (Dosovitskiy et al. 2021, after Xiong et al. 2020)."""

import math
from collections.abc import Callable
from typing import Literal

from timm.layers import DropPath, LayerScale, Mlp
from torch import Tensor, nn

from vision_attn.layers.attention import LocalitySelfAttention, MultiHeadSelfAttention
from vision_attn.ops.attention import Score
from vision_attn.ops.checks import check_flag, check_real, check_whole

__all__ = ["EncoderBlock"]


class EncoderBlock(nn.Module):
    """`x + attn(norm(x))`, then `x + mlp(norm(x))`: (B, N, D) -> (B, N, D), timm's `Block`.

    Args:
        dim: width D.
        num_heads: heads H; must divide `dim`.
        mlp_ratio: hidden width of the MLP over D.
        qkv_bias, qk_norm, proj_bias, proj_drop, attn_drop, projection, score, scale,
            num_registers, fused: see `MultiHeadSelfAttention`; `proj_drop` is the MLP's dropout
            too.
        init_values: start of the layer scale (Touvron et al. 2021); None is no layer scale.
        lsa: `LocalitySelfAttention` in place of `MultiHeadSelfAttention`.
        drop_path: chance that a sample skips a branch (Huang et al. 2016).
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        mlp_ratio: float = 4.0,
        *,
        qkv_bias: bool = False,
        qk_norm: bool = False,
        proj_bias: bool = True,
        proj_drop: float = 0.0,
        attn_drop: float = 0.0,
        init_values: float | None = None,
        drop_path: float = 0.0,
        act_layer: type[nn.Module] = nn.GELU,
        norm_layer: Callable[[int], nn.Module] = nn.LayerNorm,
        projection: Literal["full", "per_head"] = "full",
        score: Score = "softmax",
        scale: float | None = None,
        num_registers: int = 0,
        lsa: bool = False,
        fused: bool = True,
    ) -> None:
        super().__init__()
        check_whole(dim=dim)
        check_real(0, 1024, open="low", mlp_ratio=mlp_ratio)
        check_real(0, 1, drop_path=drop_path)
        check_flag(lsa=lsa)
        if init_values is not None:
            check_real(-math.inf, init_values=init_values)
        self.norm1 = norm_layer(dim)
        attention = LocalitySelfAttention if lsa else MultiHeadSelfAttention
        self.attn = attention(
            dim,
            num_heads,
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
            proj_bias=proj_bias,
            attn_drop=attn_drop,
            proj_drop=proj_drop,
            norm_layer=norm_layer,
            projection=projection,
            score=score,
            scale=scale,
            num_registers=num_registers,
            fused=fused,
        )
        self.norm2 = norm_layer(dim)
        self.mlp = Mlp(dim, int(dim * mlp_ratio), act_layer=act_layer, drop=proj_drop)
        self.ls1 = nn.Identity() if init_values is None else LayerScale(dim, init_values)
        self.ls2 = nn.Identity() if init_values is None else LayerScale(dim, init_values)
        self.drop_path1 = DropPath(drop_path) if drop_path else nn.Identity()
        self.drop_path2 = DropPath(drop_path) if drop_path else nn.Identity()

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
        rotary: Tensor | None = None,
    ) -> Tensor:
        """(B, N, D) -> (B, N, D); masks, bias, rotary as in `MultiHeadSelfAttention`."""
        y = self.attn(
            self.norm1(x), mask=mask, key_mask=key_mask, bias=bias, causal=causal, rotary=rotary
        )
        return self.residual(x, y)

    def residual(self, x: Tensor, y: Tensor) -> Tensor:
        """Tokens x and what attention says of them, (B, N, D) twice -> the block's (B, N, D)."""
        x = x + self.drop_path1(self.ls1(y))
        return x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))
