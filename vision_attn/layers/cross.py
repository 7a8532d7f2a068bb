"""Attention of queries over other tokens, each with its own positions (Carion et al. 2020)."""

from typing import TYPE_CHECKING, Literal, overload

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from vision_attn.errors import UserError
from vision_attn.layers.base import (
    AttentionOptions,
    HeadedAttention,
    check_heads,
    check_tokens,
    split_heads,
)
from vision_attn.layers.pairs import Beside, Chosen, read_pairs, used_tokens
from vision_attn.ops.absent import present, surely_finite
from vision_attn.ops.checks import check_whole
from vision_attn.ops.names import plain_names

__all__ = ["MultiHeadAttention"]


class _Beside(Beside, total=False):
    query_pos: Tensor | None
    key_pos: Tensor | None
    attn_mask: Tensor | None
    is_causal: bool


class MultiHeadAttention(HeadedAttention):
    """Multi-head attention of queries over other tokens: inputs, widths and positions apart.

    Args:
        dim: width D of queries and output.
        num_heads: number of heads H; must divide `dim`, and with `per_head` the other widths.
        kdim, vdim: widths of key and value tokens; None is `dim`.
        options: see `AttentionOptions`; registers are further keys here too.

    Raises:
        UserError: (a ValueError) heads that do not divide the width, an unknown option.
    """

    q: nn.Module
    k: nn.Module
    v: nn.Module

    @plain_names
    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        kdim: int | None = None,
        vdim: int | None = None,
        **options: Unpack[AttentionOptions],
    ) -> None:
        check_heads(dim, num_heads)
        kdim, vdim = (dim if width is None else width for width in (kdim, vdim))
        check_whole(kdim=kdim, vdim=vdim)
        super().__init__(dim, num_heads, {"q": (1, dim), "k": (1, kdim), "v": (1, vdim)}, options)
        self.kdim, self.vdim = kdim, vdim

    @overload
    def forward(self, query: Tensor, key: Tensor, value: Tensor, *,
                return_weights: Literal[False] = ...,
                **beside: Unpack[_Beside]) -> Tensor: ...  # fmt: skip
    @overload
    def forward(self, query: Tensor, key: Tensor, value: Tensor, *, return_weights: Literal[True],
                **beside: Unpack[_Beside]) -> tuple[Tensor, Tensor]: ...  # fmt: skip
    @overload
    def forward(self, query: Tensor, key: Tensor, value: Tensor, *, return_weights: bool,
                **beside: Unpack[_Beside]) -> Tensor | tuple[Tensor, Tensor]: ...  # fmt: skip
    @plain_names
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
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        return_weights: bool = False,
        weight_heads: Chosen = None,
        weight_queries: Chosen = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(B, Nq, D), (B, Nk, kdim), (B, Nk, vdim) -> (B, Nq, D), and (B, H, Nq, Nk) if asked for.

        Args:
            query_pos, key_pos: added to queries and keys before their projection, never to values:
                (Nq, D) and (Nk, kdim), or with B in front (Carion et al. 2020).
            mask: bool (Nq, Nk), (B, Nq, Nk) or (B, H, Nq, Nk), True = may attend.
            key_mask: bool (B, Nk), True = may be attended to.
            bias: added to the scores; shapes as `mask`.
            causal: no query attends to a later key, the last query being the last key.
            attn_mask, is_causal: torch's: floats added to the scores, (Nq, Nk) or (B, H, Nq, Nk);
                causal with as many keys as queries. A bool attn_mask is refused, as True forbids in
                `nn.MultiheadAttention` and allows in timm and in `mask`.
            return_weights: also give the weights, before dropout. The output stays the same.
                Registers are further keys, in front: (B, H, Nq, registers + Nk).
            weight_heads, weight_queries: compute the weights of these heads and queries only.
        """
        for name, t, width in (
            ("query", query, self.dim), ("key", key, self.kdim), ("value", value, self.vdim)
        ):  # fmt: skip
            if t.ndim == 4:
                check_tokens(t, width, name)
            if t.ndim != 3 or t.shape[-1] != width or t.shape[0] != query.shape[0]:
                raise UserError(
                    f"{name} has shape {tuple(t.shape)}, wanted"
                    f" (B, N, {width}) with B = {query.shape[0]}"
                )
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            raise UserError(
                "attn_mask is bool: torch.nn.MultiheadAttention forbids where it is True, timm"
                " allows; give it as mask, where True = may attend"
            )
        if is_causal and query.shape[1] != key.shape[1]:
            raise UserError(
                f"is_causal with {query.shape[1]} queries and {key.shape[1]} keys: torch counts"
                " from the first, causal from the last; give causal, or a mask"
            )
        pairs = read_pairs(attn_mask, is_causal, mask, key_mask, bias, causal)
        query, key = _add(query, query_pos, "query_pos"), _add(key, key_pos, "key_pos")
        if pairs["mask"] is not None and not surely_finite(query, key, value):
            queries, keys = used_tokens(pairs["mask"])
            key, value = present(key, keys), present(value, keys)
            query = query if self.registers is not None else present(query, queries)
        q, k, v = (
            split_heads(project(t), 1, self.num_heads)[0]
            for project, t in ((self.q, query), (self.k, key), (self.v, value))
        )
        q, k = self.q_norm(q), self.k_norm(k)
        return self.mix(q, k, v, pairs, return_weights, heads=weight_heads, queries=weight_queries)

    if TYPE_CHECKING:
        __call__ = forward


def _add(x: Tensor, pos: Tensor | None, name: str) -> Tensor:
    if pos is None:
        return x
    if pos.ndim not in (2, 3) or pos.shape[-2:] != x.shape[-2:]:
        raise UserError(
            f"{name} has shape {tuple(pos.shape)}, wanted {tuple(x.shape[1:])}"
            f" or {tuple(x.shape)}, as its tokens"
        )
    return x + pos.to(x.dtype)
