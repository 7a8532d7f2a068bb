"""Attention modules (Vaswani et al. 2017), thin over `ops.attention`, with timm's names."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.layers.base import (
    HeadedAttention,
    check_heads,
    check_scale,
    merge_masks,
    projection_layer,
    split_heads,
    used_tokens,
)
from vision_attn.ops.absent import present, surely_finite
from vision_attn.ops.attention import Score, attend, attention_weights
from vision_attn.ops.checks import check_flag, check_real, check_whole
from vision_attn.ops.positions import rotate

__all__ = ["LocalitySelfAttention", "MultiHeadSelfAttention", "SelfAttention"]


class SelfAttention(nn.Module):
    """One head, as the formula stands: `y_i = sum_j softmax_j(q_i . k_j / sqrt(K)) v_j`.

    Args:
        dim: width D of a token.
        head_dim: width K of queries, keys and values; None is D.
        qkv_bias: bias in the three projections.
        attn_drop: dropout on the weights while training.
        scale: factor on the scores; None is 1/sqrt(K). 1.0 shows what the scale is for.
        fused: use torch's fused kernel where it can; False can be differentiated twice.

    Raises:
        UserError: (a ValueError) a width below 1, numbers out of their range.
    """

    def __init__(
        self,
        dim: int,
        head_dim: int | None = None,
        *,
        qkv_bias: bool = False,
        attn_drop: float = 0.0,
        scale: float | None = None,
        fused: bool = True,
    ) -> None:
        super().__init__()
        head_dim = dim if head_dim is None else head_dim
        check_whole(dim=dim, head_dim=head_dim)
        check_real(0, 1, attn_drop=attn_drop)
        check_scale(scale)
        check_flag(qkv_bias=qkv_bias, fused=fused)
        self.fused = fused
        self.qkv = nn.Linear(dim, 3 * head_dim, bias=qkv_bias)
        self.attn_drop = attn_drop
        self.scale = scale

    def forward(self, x: Tensor, *, return_weights: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """(B, N, D) -> (B, N, K), and the weights (B, N, N) when asked for."""
        q, k, v = self.qkv(x)[:, None].chunk(3, dim=-1)
        drop = self.attn_drop if self.training else 0.0
        y = attend(q, k, v, scale=self.scale, dropout_p=drop, fused=self.fused)[:, 0]
        if not return_weights:
            return y
        return y, attention_weights(q, k, scale=self.scale)[:, 0]


class MultiHeadSelfAttention(HeadedAttention):
    """Multi-head self-attention: H heads of width K = D/H, concatenated, then projected.

    Parameter names are those of timm's `Attention`, so its weights load as they are.

    Args:
        dim: width D of a token.
        num_heads: number of heads H; must divide `dim`.
        qkv_bias: bias in the query, key and value projections.
        qk_norm: normalise queries and keys over K with `norm_layer`.
        proj_bias: bias in the output projection.
        attn_drop: dropout on the weights, while training only.
        proj_drop: dropout after the output projection.
        norm_layer: the norm of `qk_norm`.
        scale: factor on the scores; None is 1/sqrt(K).
        projection: `full`, each head projects the whole token; `per_head`, head h projects its own
            K channels (3 D^2 / H parameters instead of 3 D^2).
        score: `softmax`, `relu` or `sigmoid`; see `ops.attention.attention_weights`.
        num_registers: learned keys and values beside the tokens' own, in each head, which every
            query may attend to whatever the masks say (Sukhbaatar et al. 2019).
        fused: use torch's fused kernel where it can; False can be differentiated twice.

    Raises:
        UserError: (a ValueError) heads that do not divide the width, an unknown option.
    """

    qkv: nn.Module

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
        num_registers: int = 0,
        fused: bool = True,
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
            num_registers=num_registers,
            fused=fused,
        )

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
        rotary: Tensor | None = None,
        return_weights: bool = False,
        weight_heads: Sequence[int] | None = None,
        weight_queries: Sequence[int] | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(B, N, D) -> (B, N, D), and the weights (B, H, N, N) when asked for.

        Args:
            mask: bool (N, N), (B, N, N) or (B, H, N, N), True = may attend.
            key_mask: bool (B, N), True = may be attended to.
            bias: added to the scores; shapes as `mask`.
            causal: no token attends to a later one.
            rotary: turns queries and keys; (2, N, K) or (2, B, N, K) of `ops.positions.rotary_2d`.
            return_weights: also give the weights, before dropout. The output stays the same.
                Registers are further keys, in front: (B, H, N, registers + N).
            weight_heads, weight_queries: compute the weights of these heads and queries only.
        """
        if x.ndim != 3 or x.shape[-1] != self.dim:
            raise UserError(
                f"tokens have width {x.shape[-1]}, but this layer has dim {self.dim};"
                f" wanted (B, N, {self.dim}), got {tuple(x.shape)}"
            )
        if (mask is not None or key_mask is not None) and not surely_finite(x):
            queries, keys = used_tokens(mask, key_mask)
            used = queries | keys if self.registers is None else torch.ones_like(keys)
            x = present(x, used if key_mask is None else used & key_mask)
        q, k, v = split_heads(self.qkv(x), 3, self.num_heads)
        q, k = self.q_norm(q), self.k_norm(k)
        if rotary is not None:
            q, k = rotate(q, rotary), rotate(k, rotary)
        return self.mix(
            q,
            k,
            v,
            mask=mask,
            key_mask=key_mask,
            bias=bias,
            causal=causal,
            return_weights=return_weights,
            weight_heads=weight_heads,
            weight_queries=weight_queries,
        )


class LocalitySelfAttention(MultiHeadSelfAttention):
    """`softmax_j(q_i . k_j / T) v_j` over j != i: (B, N, D) -> (B, N, D).

    The temperature T is one learned number a layer that starts at sqrt(K), so the layer starts as
    `MultiHeadSelfAttention` under a mask of the diagonal. A lone token has nothing to attend to and
    gets zeros before the output projection (Lee et al. 2021, "Vision Transformer for Small-Size
    Datasets").

    Args:
        dim, num_heads, options: those of `MultiHeadSelfAttention`.

    Raises:
        UserError: (a ValueError) what `MultiHeadSelfAttention` refuses, and a scale.
    """

    def __init__(
        self, dim: int, num_heads: int = 8, *, scale: float | None = None, **options: Any
    ) -> None:
        if scale is not None:
            raise UserError(f"scale is {scale}, but lsa learns it; leave the scale at None")
        super().__init__(dim, num_heads, scale=1.0, **options)
        # without axes, so that half precision stays half; and so that it does not decay
        self.temperature = nn.Parameter(torch.tensor(self.head_dim**0.5))

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None, **more: Any
    ) -> Tensor | tuple[Tensor, Tensor]:
        """As the base class, with the queries divided by T and each token hidden from itself."""
        others = ~torch.eye(q.shape[-2], dtype=torch.bool, device=q.device)
        mask = merge_masks(mask, None)
        mask = others if mask is None else mask & others
        return super().mix(q / self.temperature, k, v, mask=mask, **more)
