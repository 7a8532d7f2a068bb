"""Scaled dot-product attention as pure functions (Vaswani et al. 2017), with one meaning.

`attend` is the output, `attention_weights` the matrix behind it. Both take the same mask (bool,
True = may attend) and the same additive bias. A query with nothing to attend to gives zeros, with
finite gradients, on every path: its row is opened before the softmax and emptied after it, so no
kernel ever sees a row without keys. What a mask hides is absent, whatever stands there; see `hide`.
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import TypedDict

from vision_attn.errors import UserError
from vision_attn.ops.absent import hide, surely_finite
from vision_attn.ops.checks import check_choice
from vision_attn.ops.masks import causal_mask, pick, row_index
from vision_attn.ops.names import plain_names

__all__ = ["AttendOptions", "Pairs", "Score", "attend", "attention_weights", "check_mask"]

Score = Literal["softmax", "relu", "sigmoid"]

SCORES = get_args(Score)


class Pairs(TypedDict):
    """Who may attend to whom, and what is added to their scores; see `attend`."""

    mask: Tensor | None
    bias: Tensor | None
    causal: bool


class AttendOptions(TypedDict, total=False):
    """How attention is computed; see `attend`."""

    scale: float | None
    score: Score
    dropout_p: float
    fused: bool


@plain_names
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    score: Score = "softmax",
    dropout_p: float = 0.0,
    fused: bool = True,
) -> Tensor:
    """Weighted sum `y_i = sum_j w_ij v_j`: (B, H, Nq, K), (B, H, Nk, K) twice -> (B, H, Nq, K).

    Args:
        q, k, v: queries, keys, values; values may have another width than keys.
        mask: bool, broadcastable to (B, H, Nq, Nk), True = may attend. A query that may attend to a
            key or value with NaN or infinity gets NaN; others do not notice it.
        bias: added to the scores, broadcastable to (B, H, Nq, Nk); -inf forbids, as a mask does. It
            is rounded to the dtype of q, and what is finite stays finite.
        causal: a query attends to no later key; see `causal_mask`. Beside mask, both must allow.
        scale: factor on q.k; None is 1/sqrt(K), K the width of a head.
        score: what turns scores into weights; `relu` and `sigmoid` as in `attention_weights`.
        dropout_p: dropout on the weights. A pure function knows no train mode: give 0 to evaluate.
        fused: use `F.scaled_dot_product_attention` where the score is softmax, save for short
            rows on several CPU threads, where two matrix products are faster. False is always the
            matrix products, which can be differentiated twice.

    Raises:
        UserError: a mask that is not bool (0/1 floats would be *added* to the scores by torch),
            a bias that is, or shapes that do not fit.
    """
    bias = _checked(q, k, mask, bias, score)
    if k.shape[-2] != v.shape[-2]:
        raise UserError(f"{k.shape[-2]} keys but {v.shape[-2]} values; each key needs one value")
    free = mask is None and bias is None
    kernel = fused and score == "softmax" and not (free and not causal and _faster_products(q, k))
    if causal and not (kernel and free and q.shape[-2] == k.shape[-2]):  # the kernel counts so
        mask, causal = _and(mask, causal_mask(q.shape[-2], k.shape[-2], device=q.device)), False
    lost = None
    if (causal or mask is not None or bias is not None) and not surely_finite(q, k, v):
        q, k, v, lost = hide(q, k, v, _allowed(mask, bias))
    if kernel:
        y = _fused(q, k, v, mask, bias, is_causal=causal, scale=scale, dropout_p=dropout_p)
    else:
        y = F.dropout(_weights(q, k, mask, bias, scale, score), dropout_p) @ v
    return y if lost is None else y + lost.to(y.dtype)  # autocast may have changed it


@plain_names
def attention_weights(
    q: Tensor,
    k: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    score: Score = "softmax",
    heads: Sequence[int] | None = None,
    queries: Sequence[int] | None = None,
) -> Tensor:
    """The weights w, (B, H, Nq, K), (B, H, Nk, K) -> (B, H, Nq, Nk), without dropout.

    `softmax`: rows sum to 1. `relu`: `relu(s)/N_allowed`. `sigmoid`: `sigmoid(s - log N_allowed)`.
    A forbidden key weighs exactly 0 under each; a row without allowed keys is all zeros. Half
    precision is computed in float32, under autocast too, and returned in the dtype of q.

    Args:
        q, k, mask, bias, causal, scale, score: as in `attend`.
        heads, queries: indices of the heads and queries wanted, in the order of the result; only
            these are computed. None is all.
    """
    bias = _checked(q, k, mask, bias, score)
    late = None
    if causal:
        late = causal_mask(q.shape[-2], k.shape[-2], rows=queries, device=q.device)
    for dim, name, chosen in ((-3, "heads", heads), (-2, "queries", queries)):
        if chosen is not None:
            index = row_index(name, chosen, q.shape[dim], q.device)
            q, mask, bias = (pick(t, dim, index) for t in (q, mask, bias))  # type: ignore[assignment]
            k = k if name == "queries" else k.index_select(dim, index)
    mask = _and(mask, late)
    lost: Tensor | None = None
    if (mask is not None or bias is not None) and not surely_finite(q, k):
        q, k, _, lost = hide(q, k, k, _allowed(mask, bias))
    return _weights(q, k, mask, bias, scale, score, lost)


def _fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, **how: Any
) -> Tensor:
    """`attend` by torch's kernel, whose further arguments are `how`."""
    if k.shape[-2] == 0:
        nothing = torch.ones((), dtype=torch.bool, device=q.device)
        return q.masked_fill(nothing, 0) @ (k.mT @ v)  # zeros that have gradients
    if mask is None and bias is None:
        return F.scaled_dot_product_attention(q, k, v, **how)
    opened, bias, alive = _open_empty_rows(mask, bias)
    if opened is not None and bias is not None:
        opened = bias.masked_fill(~opened, float("-inf"))
    attn_mask = bias if opened is None else opened
    assert attn_mask is not None
    # the kernel takes no mask of keys alone
    y = F.scaled_dot_product_attention(q, k, v, torch.atleast_2d(attn_mask), **how)
    return torch.where(alive, y, 0)


def _weights(
    q: Tensor,
    k: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    scale: float | None,
    score: Score,
    lost: Tensor | None = None,
) -> Tensor:
    """`attention_weights` by matrix products; `lost` is added to what a row may attend to."""
    exact = torch.promote_types(q.dtype, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        # no channels, no scores: any scale will do
        factor = max(q.shape[-1], 1) ** -0.5 if scale is None else scale
        s = (q.to(exact) * factor) @ k.to(exact).mT
    opened, bias, alive = _open_empty_rows(mask, bias)
    if bias is not None:
        s = s + bias.to(exact)
    allowed = _allowed(opened, bias)
    if score == "softmax":
        w = (s if opened is None else s.masked_fill(~opened, float("-inf"))).softmax(-1)
    else:
        if allowed is None:
            count = torch.tensor(float(s.shape[-1]), dtype=exact, device=s.device)
        else:
            count = allowed.expand(*allowed.shape[:-1], s.shape[-1]).sum(-1, keepdim=True).to(exact)
            s = s.masked_fill(~allowed, 0.0)
        w = s.relu() / count if score == "relu" else torch.sigmoid(s - count.log())
    if lost is not None:
        w = w + lost
    if allowed is not None:
        w = w.masked_fill(~(allowed & alive), 0.0)
    return w.to(q.dtype)


def _faster_products(q: Tensor, k: Tensor) -> bool:
    """Whether the fused kernel loses: it splits rows of up to 64 keys badly over CPU threads."""
    return (
        not torch.compiler.is_compiling()
        and q.is_cpu
        and q.dtype.itemsize > 2
        and 0 < k.shape[-2] <= 64
        and torch.get_num_threads() > 1
    )


def _open_empty_rows(
    mask: Tensor | None, bias: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Mask and bias whose empty rows allow every key, and a (..., Nq, 1) flag of the other rows.

    A softmax over nothing is 0/0, and its gradient NaN even where the result is thrown away. So the
    caller computes the opened row and replaces its result by zero, which also stops its gradient.
    """
    allowed = _allowed(mask, bias)
    if allowed is None:
        return None, None, torch.ones((), dtype=torch.bool)
    alive = allowed.any(-1, keepdim=True)
    opened = None if mask is None else mask | ~alive
    if bias is not None:
        bias = torch.where(alive, bias, 0)
    return opened, bias, alive


def _allowed(mask: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """Where mask and bias allow a query to attend to a key; None where there is neither."""
    return _and(mask, None if bias is None else ~torch.isneginf(bias))


def _and(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return a & b


def check_mask(mask: Tensor | None) -> None:
    """A UserError for a mask of numbers, which torch would add to the scores."""
    if mask is not None and mask.dtype != torch.bool:
        raise UserError(
            f"mask has dtype {mask.dtype}, wanted torch.bool with True = may attend;"
            " for values to add to the scores use bias"
        )


def _checked(
    q: Tensor, k: Tensor, mask: Tensor | None, bias: Tensor | None, score: str
) -> Tensor | None:
    """The bias in the dtype of q, a finite one finite and with room for a score beside it.

    A UserError for what does not fit.
    """
    check_choice(SCORES, score=score)
    if q.shape[-1] != k.shape[-1]:
        raise UserError(
            f"queries have width {q.shape[-1]}, keys {k.shape[-1]}; give both one width"
        )
    check_mask(mask)
    if bias is not None and not bias.is_floating_point():
        raise UserError(f"bias has dtype {bias.dtype}, wanted floating point; for bool use mask")
    for name, t in (("mask", mask), ("bias", bias)):
        want = (*q.shape[:-1], k.shape[-2])
        if t is not None and (
            t.ndim > len(want)
            or any(a not in (1, b) for a, b in zip(t.shape[::-1], want[::-1], strict=False))
        ):
            raise UserError(f"{name} has shape {tuple(t.shape)}, not broadcastable to {want}")
    if bias is None:
        return None
    dtype = q.dtype
    if dtype == torch.float32 and torch.is_autocast_enabled(q.device.type):
        dtype = torch.get_autocast_dtype(q.device.type)  # in which the kernel computes
    if dtype.itemsize < max(bias.dtype.itemsize, 4):
        most = torch.finfo(dtype).max / 2
        bias = torch.where(bias.isinf(), bias, bias.clamp(-most, most))
    return bias.to(q.dtype)
