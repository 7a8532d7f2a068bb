"""Attention of queries over other tokens, each with its own positions (Carion et al. 2020)."""

from collections.abc import Callable, Sequence
from typing import Literal

from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.layers.base import (
    HeadedAttention,
    check_heads,
    projection_layer,
    used_tokens,
)
from vision_attn.ops.absent import present, surely_finite
from vision_attn.ops.attention import Score
from vision_attn.ops.checks import check_whole

__all__ = ["MultiHeadAttention"]


class MultiHeadAttention(HeadedAttention):
    """Multi-head attention of queries over other tokens: inputs, widths and positions apart.

    Args:
        dim: width D of queries and output.
        num_heads: number of heads H; must divide `dim`, and with `per_head` the other widths.
        kdim, vdim: widths of key and value tokens; None is `dim`.
        others: as in `MultiHeadSelfAttention`; registers are further keys here too.

    Raises:
        UserError: (a ValueError) heads that do not divide the width, an unknown option.
    """

    q: nn.Module
    k: nn.Module
    v: nn.Module

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        kdim: int | None = None,
        vdim: int | None = None,
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
        kdim, vdim = (dim if width is None else width for width in (kdim, vdim))
        check_whole(kdim=kdim, vdim=vdim)
        widths = {"q": dim, "k": kdim, "v": vdim}
        super().__init__(
            dim,
            num_heads,
            {
                name: projection_layer(projection, dim, num_heads, 1, qkv_bias, width)
                for name, width in widths.items()
            },
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
        self.kdim, self.vdim = widths["k"], widths["v"]

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        query_pos: Tensor | None = None,
        key_pos: Tensor | None = None,
        mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        bias: Tensor | None = None,
        causal: bool = False,
        return_weights: bool = False,
        weight_heads: Sequence[int] | None = None,
        weight_queries: Sequence[int] | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(B, Nq, D), (B, Nk, kdim), (B, Nk, vdim) -> (B, Nq, D), and (B, H, Nq, Nk) if asked for.

        Args:
            query_pos, key_pos: added to queries and keys before their projection, never to values:
                (Nq, D) and (Nk, kdim), or with B in front (Carion et al. 2020).
            mask: bool (Nq, Nk), (B, Nq, Nk) or (B, H, Nq, Nk), True = may attend.
            key_mask: bool (B, Nk), True = may be attended to.
            bias: added to the scores; shapes as `mask`.
            causal: no query attends to a later key, the last query being the last key.
            return_weights: also give the weights, before dropout. The output stays the same.
                Registers are further keys, in front: (B, H, Nq, registers + Nk).
            weight_heads, weight_queries: compute the weights of these heads and queries only.
        """
        for name, t, width in (
            ("query", query, self.dim), ("key", key, self.kdim), ("value", value, self.vdim)
        ):  # fmt: skip
            if t.ndim != 3 or t.shape[-1] != width or t.shape[0] != query.shape[0]:
                raise UserError(
                    f"{name} has shape {tuple(t.shape)}, wanted"
                    f" (B, N, {width}) with B = {query.shape[0]}"
                )
        query, key = _add(query, query_pos, "query_pos"), _add(key, key_pos, "key_pos")
        if (mask is not None or key_mask is not None) and not surely_finite(query, key, value):
            queries, keys = used_tokens(mask, key_mask)
            key, value = present(key, keys), present(value, keys)
            query = query if self.registers is not None else present(query, queries)
        q, k, v = (self.split_heads(t) for t in (self.q(query), self.k(key), self.v(value)))
        return self.mix(
            self.q_norm(q),
            self.k_norm(k),
            v,
            mask=mask,
            key_mask=key_mask,
            bias=bias,
            causal=causal,
            return_weights=return_weights,
            weight_heads=weight_heads,
            weight_queries=weight_queries,
        )


def _add(x: Tensor, pos: Tensor | None, name: str) -> Tensor:
    if pos is None:
        return x
    if pos.ndim not in (2, 3) or pos.shape[-2:] != x.shape[-2:]:
        raise UserError(
            f"{name} has shape {tuple(pos.shape)}, wanted {tuple(x.shape[1:])}"
            f" or {tuple(x.shape)}, as its tokens"
        )
    return x + pos.to(x.dtype)
