"""The pre-norm transformer encoder block (Dosovitskiy et al. 2021, after Xiong et al. 2020)."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from timm.layers import DropPath, LayerScale, Mlp
from torch import Tensor, nn

from vision_attn.layers.attention import MultiHeadSelfAttention
from vision_attn.layers.base import check_tokens
from vision_attn.ops.checks import check_flag, check_real, check_whole
from vision_attn.ops.names import plain_names

__all__ = ["EncoderBlock"]

torch.fx.wrap("check_tokens")  # its control flow is a call in a traced graph

_timm_norm = partial(nn.LayerNorm, eps=1e-6)


class EncoderBlock(nn.Module):
    """`x + attn(norm(x))`, then `x + mlp(norm(x))`: (B, N, D) -> (B, N, D), timm's `Block`.

    Args:
        dim: width D.
        num_heads: heads H; must divide `dim`.
        mlp_ratio: hidden width of the MLP over D.
        attn_layer: makes what mixes tokens of `dim`, `num_heads` and options, as
            `MultiHeadSelfAttention` does; None is a block of the MLP alone.
        norm_layer: the norms in front of both branches, and that of `qk_norm`. As timm's, their eps
            is 1e-6, so that a timm block's weights give its output.
        act_layer: the MLP's activation.
        init_values: start of the layer scale (Touvron et al. 2021); None is no layer scale.
        drop_path: chance that a sample skips a branch (Huang et al. 2016).
        proj_bias: bias in the attention's output projection and, as in timm, in the MLP.
        proj_drop: dropout after the attention's projection and in the MLP.
        attn: further options of `attn_layer`, which refuses those that it does not know.

    Raises:
        UserError: (a ValueError) numbers out of their range, and what `attn_layer` refuses.
    """

    @plain_names
    def __init__(
        self,
        dim: int,
        num_heads: int,
        mlp_ratio: float = 4.0,
        *,
        attn_layer: Callable[..., nn.Module] | None = MultiHeadSelfAttention,
        norm_layer: Callable[[int], nn.Module] = _timm_norm,
        act_layer: type[nn.Module] = nn.GELU,
        init_values: float | None = None,
        drop_path: float = 0.0,
        proj_bias: bool = True,
        proj_drop: float = 0.0,
        **attn: Any,
    ) -> None:
        super().__init__()
        check_whole(dim=dim)
        check_real(0, 1024, open="low", mlp_ratio=mlp_ratio)
        check_real(0, 1, drop_path=drop_path)
        check_flag(proj_bias=proj_bias)
        if init_values is not None:
            check_real(-math.inf, init_values=init_values)
        self.dim, self.attn = dim, None
        if attn_layer is not None:
            self.norm1 = norm_layer(dim)
            if not proj_bias:  # not every layer has one
                attn["proj_bias"] = False
            self.attn = attn_layer(
                dim, num_heads, proj_drop=proj_drop, norm_layer=norm_layer, **attn
            )
        self.norm2 = norm_layer(dim)
        self.mlp = Mlp(
            dim, int(dim * mlp_ratio), act_layer=act_layer, bias=proj_bias, drop=proj_drop
        )
        self.ls1 = nn.Identity() if init_values is None else LayerScale(dim, init_values)
        self.ls2 = nn.Identity() if init_values is None else LayerScale(dim, init_values)
        self.drop_path1 = DropPath(drop_path) if drop_path else nn.Identity()
        self.drop_path2 = DropPath(drop_path) if drop_path else nn.Identity()

    @plain_names
    def forward(
        self,
        x: Tensor,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
        rotary: Tensor | None = None,
        grid_size: tuple[int, int] | None = None,
    ) -> Tensor:
        """(B, N, D) -> (B, N, D); masks, bias and rotary as in `MultiHeadSelfAttention`.

        `grid_size` is (h, w) of the tokens, for layers that work on a grid. What is left out is not
        passed to the attention.
        """
        if self.attn is not None:
            check_tokens(x, self.dim)
            beside = {
                "attn_mask": attn_mask, "is_causal": is_causal or None,
                "mask": mask, "key_mask": key_mask, "bias": bias, "causal": causal or None,
                "rotary": rotary, "grid_size": grid_size,
            }  # fmt: skip
            inputs = {name: value for name, value in beside.items() if value is not None}
            x = x + self.drop_path1(self.ls1(self.attn(self.norm1(x), **inputs)))
        return x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))
