"""Self-attention modules (Vaswani et al. 2017), thin over `ops.attention`, with timm's names."""

from collections.abc import Callable
from typing import Literal, overload

import torch
from einops import rearrange
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.ops.attention import Score, attend, attention_weights

__all__ = ["MultiHeadSelfAttention", "PerHeadLinear", "SelfAttention", "check_heads"]


def check_heads(dim: int, num_heads: int) -> int:
    """The width of a head, or a UserError that names both numbers and suggests others."""
    if num_heads < 1 or dim % num_heads:
        fits = [n for n in range(1, dim + 1) if dim % n == 0]
        near = sorted(sorted(fits, key=lambda n: abs(n - num_heads))[:2])
        raise UserError(
            f"dim {dim} is not divisible by num_heads {num_heads};"
            f" try num_heads {' or '.join(map(str, near))}"
        )
    return dim // num_heads


class SelfAttention(nn.Module):
    """One head, as the formula stands: `y_i = sum_j softmax_j(q_i . k_j / sqrt(K)) v_j`.

    Args:
        dim: width D of a token.
        head_dim: width K of queries, keys and values; None is D.
        qkv_bias: bias in the three projections.
        attn_drop: dropout on the weights while training.
        scale: factor on the scores; None is 1/sqrt(K). 1.0 shows what the scale is for.
    """

    def __init__(
        self,
        dim: int,
        head_dim: int | None = None,
        *,
        qkv_bias: bool = False,
        attn_drop: float = 0.0,
        scale: float | None = None,
    ) -> None:
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * (head_dim or dim), bias=qkv_bias)
        self.attn_drop = attn_drop
        self.scale = scale

    @overload
    def forward(self, x: Tensor, *, return_weights: Literal[False] = ...) -> Tensor: ...
    @overload
    def forward(self, x: Tensor, *, return_weights: Literal[True]) -> tuple[Tensor, Tensor]: ...
    def forward(self, x: Tensor, *, return_weights: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """(B, N, D) -> (B, N, K), and the weights (B, N, N) when asked for."""
        q, k, v = self.qkv(x)[:, None].chunk(3, dim=-1)
        drop = self.attn_drop if self.training else 0.0
        y = attend(q, k, v, scale=self.scale, dropout_p=drop)[:, 0]
        if not return_weights:
            return y
        return y, attention_weights(q, k, scale=self.scale)[:, 0]


class PerHeadLinear(nn.Module):
    """Projections in which head h sees only its own K channels: (B, N, D) -> (B, N, parts*D).

    The output is laid out as that of `nn.Linear(D, parts * D)`. It equals such a layer with
    block-diagonal weights, at 1/H of the parameters.
    """

    def __init__(self, dim: int, num_heads: int, parts: int, bias: bool = True) -> None:
        super().__init__()
        width = check_heads(dim, num_heads)
        self.weight = nn.Parameter(torch.empty(parts, num_heads, width, width))
        self.bias = nn.Parameter(torch.zeros(parts * dim)) if bias else None
        nn.init.uniform_(self.weight, -(width**-0.5), width**-0.5)  # nn.Linear's own range

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, parts*D)."""
        heads = rearrange(x, "B N (H K) -> B N H K", H=self.weight.shape[1])
        y = torch.einsum("bnhk,phjk->bnphj", heads, self.weight).flatten(2)
        return y if self.bias is None else y + self.bias


class MultiHeadSelfAttention(nn.Module):
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

    Raises:
        UserError: (a ValueError) heads that do not divide the width, an unknown option.
    """

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
    ) -> None:
        super().__init__()
        self.dim, self.num_heads, self.head_dim = dim, num_heads, check_heads(dim, num_heads)
        self.scale, self.score = scale, score
        self.qkv: nn.Module
        if projection == "full":
            self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        elif projection == "per_head":
            self.qkv = PerHeadLinear(dim, num_heads, 3, bias=qkv_bias)
        else:
            raise UserError(f"projection={projection!r} is not known; choose full or per_head")
        self.q_norm = norm_layer(self.head_dim) if qk_norm else nn.Identity()
        self.k_norm = norm_layer(self.head_dim) if qk_norm else nn.Identity()
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(dim, dim, bias=proj_bias)
        self.proj_drop = nn.Dropout(proj_drop)

    @overload
    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = ...,
        key_mask: Tensor | None = ...,
        bias: Tensor | None = ...,
        return_weights: Literal[False] = ...,
    ) -> Tensor: ...
    @overload
    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = ...,
        key_mask: Tensor | None = ...,
        bias: Tensor | None = ...,
        return_weights: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...
    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        bias: Tensor | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """(B, N, D) -> (B, N, D), and the weights (B, H, N, N) when asked for.

        Args:
            mask: bool (N, N), (B, N, N) or (B, H, N, N), True = may attend.
            key_mask: bool (B, N), True = may be attended to.
            bias: added to the scores; shapes as `mask`.
            return_weights: also give the weights, before dropout. The output stays the same.
        """
        if x.shape[-1] != self.dim:
            raise UserError(f"tokens have width {x.shape[-1]}, but this layer has dim {self.dim}")
        q, k, v = rearrange(self.qkv(x), "B N (P H K) -> P B H N K", P=3, H=self.num_heads)
        q, k = self.q_norm(q), self.k_norm(k)
        allowed = merge_masks(mask, key_mask)
        added = per_head(bias)
        drop = self.attn_drop.p if self.training else 0.0
        y = attend(
            q, k, v, mask=allowed, bias=added, scale=self.scale, score=self.score, dropout_p=drop
        )
        y = self.proj_drop(self.proj(rearrange(y, "B H N K -> B N (H K)")))
        if not return_weights:
            return y
        w = attention_weights(q, k, mask=allowed, bias=added, scale=self.scale, score=self.score)
        return y, w


def per_head(t: Tensor | None) -> Tensor | None:
    """(N, N), (B, N, N) or (B, H, N, N) to something that broadcasts to (B, H, N, N)."""
    return t[:, None] if t is not None and t.ndim == 3 else t


def merge_masks(mask: Tensor | None, key_mask: Tensor | None) -> Tensor | None:
    """One mask from (N, N), (B, N, N) or (B, H, N, N) pairs and (B, N) keys; both must allow."""
    mask = per_head(mask)
    if key_mask is None:
        return mask
    if key_mask.dtype != torch.bool or key_mask.ndim != 2:
        raise UserError(
            f"key_mask has dtype {key_mask.dtype} and shape {tuple(key_mask.shape)},"
            " wanted torch.bool of shape (B, N) with True = may be attended to"
        )
    keys = key_mask[:, None, None, :]
    return keys if mask is None else mask & keys
