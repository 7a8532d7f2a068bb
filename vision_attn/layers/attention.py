"""Attention modules (Vaswani et al. 2017), thin over `ops.attention`, with timm's names."""

from typing import TYPE_CHECKING, Literal, overload

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from vision_attn.errors import UserError
from vision_attn.layers.base import (
    AttentionOptions,
    HeadedAttention,
    check_scale,
    check_tokens,
)
from vision_attn.layers.pairs import Beside, Chosen, read_pairs, used_tokens
from vision_attn.ops.absent import present, surely_finite
from vision_attn.ops.attention import Pairs, attend, attention_weights
from vision_attn.ops.checks import check_flag, check_real, check_whole
from vision_attn.ops.names import plain_names

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

    @plain_names
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

    @overload
    def forward(self, x: Tensor, *, return_weights: Literal[False] = ...) -> Tensor: ...
    @overload
    def forward(self, x: Tensor, *, return_weights: Literal[True]) -> tuple[Tensor, Tensor]: ...
    @overload
    def forward(self, x: Tensor, *, return_weights: bool) -> Tensor | tuple[Tensor, Tensor]: ...
    @plain_names
    def forward(self, x: Tensor, *, return_weights: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """(B, N, D) -> (B, N, K), and the weights (B, N, N) when asked for."""
        check_tokens(x, self.qkv.in_features)
        q, k, v = self.qkv(x)[:, None].chunk(3, dim=-1)
        drop = self.attn_drop if self.training else 0.0
        y = attend(q, k, v, scale=self.scale, dropout_p=drop, fused=self.fused)[:, 0]
        if not return_weights:
            return y
        return y, attention_weights(q, k, scale=self.scale)[:, 0]

    if TYPE_CHECKING:  # nn.Module's takes and gives anything
        __call__ = forward


class MultiHeadSelfAttention(HeadedAttention):
    """Multi-head self-attention: H heads of width K = D/H, concatenated, then projected.

    Parameter names are those of timm's `Attention`, so its weights load as they are.

    Args:
        dim: width D of a token.
        num_heads: number of heads H; must divide `dim`.
        options: see `AttentionOptions`.

    Raises:
        UserError: (a ValueError) heads that do not divide the width, an unknown option.
    """

    @plain_names
    def __init__(self, dim: int, num_heads: int = 8, **options: Unpack[AttentionOptions]) -> None:
        super().__init__(dim, num_heads, {"qkv": (3, dim)}, options)

    @overload
    def forward(self, x: Tensor, attn_mask: Tensor | None = ..., is_causal: bool = ..., *,
                rotary: Tensor | None = ..., return_weights: Literal[False] = ...,
                **beside: Unpack[Beside]) -> Tensor: ...  # fmt: skip
    @overload
    def forward(self, x: Tensor, attn_mask: Tensor | None = ..., is_causal: bool = ..., *,
                rotary: Tensor | None = ..., return_weights: Literal[True],
                **beside: Unpack[Beside]) -> tuple[Tensor, Tensor]: ...  # fmt: skip
    @overload
    def forward(self, x: Tensor, attn_mask: Tensor | None = ..., is_causal: bool = ..., *,
                rotary: Tensor | None = ..., return_weights: bool,
                **beside: Unpack[Beside]) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
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
        return_weights: bool = False,
        weight_heads: Chosen = None,
        weight_queries: Chosen = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(B, N, D) -> (B, N, D), and the weights (B, H, N, N) when asked for.

        Args:
            attn_mask, is_causal: as timm's `Attention` and `F.scaled_dot_product_attention` take
                them: bool, True = may attend, or floats added to the scores, (N, N) or
                (B, H, N, N); beside `mask` and `bias` both count.
            mask: bool (N, N), (B, N, N) or (B, H, N, N), True = may attend.
            key_mask: bool (B, N), True = may be attended to.
            bias: added to the scores; shapes as `mask`.
            causal: no token attends to a later one.
            rotary: turns queries and keys; (2, N, K) or (2, B, N, K) of `ops.positions.rotary_2d`.
            return_weights: also give the weights, before dropout. The output stays the same.
                Registers are further keys, in front: (B, H, N, registers + N).
            weight_heads, weight_queries: compute the weights of these heads and queries only.
        """
        check_tokens(x, self.dim)
        pairs = read_pairs(attn_mask, is_causal, mask, key_mask, bias, causal)
        if pairs["mask"] is not None and not surely_finite(x):
            queries, keys = used_tokens(pairs["mask"])
            used = queries | keys if self.registers is None else torch.ones_like(keys)
            x = present(x, used if key_mask is None else used & key_mask)
        q, k, v = self.project(x, rotary)
        return self.mix(q, k, v, pairs, return_weights, heads=weight_heads, queries=weight_queries)

    if TYPE_CHECKING:
        __call__ = forward


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

    @plain_names
    def __init__(self, dim: int, num_heads: int = 8, **options: Unpack[AttentionOptions]) -> None:
        if options.get("scale") is not None:
            raise UserError(
                f"scale is {options['scale']}, but lsa learns it; leave the scale at None"
            )
        options["scale"] = 1.0
        super().__init__(dim, num_heads, **options)
        # without axes, so that half precision stays half; and so that it does not decay
        self.temperature = nn.Parameter(torch.tensor(self.head_dim**0.5))

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, pairs: Pairs, return_weights: bool, **which: Chosen
    ) -> Tensor | tuple[Tensor, Tensor]:
        """As the base class, with the queries divided by T and each token hidden from itself."""
        others = ~torch.eye(q.shape[-2], dtype=torch.bool, device=q.device)
        mask = others if pairs["mask"] is None else pairs["mask"] & others
        pairs = {**pairs, "mask": mask}
        return super().mix(q / self.temperature, k, v, pairs, return_weights, **which)
