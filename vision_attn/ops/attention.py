"""Scaled dot-product attention as pure functions (Vaswani et al. 2017), with one meaning.

`attend` is the output, `attention_weights` the matrix behind it. Both take the same mask (bool,
True = may attend) and the same additive bias. A query with nothing to attend to gives zeros, with
finite gradients, on every path: its row is opened before the softmax and emptied after it, so no
kernel ever sees a row without keys.
"""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from vision_attn.errors import UserError

__all__ = ["Score", "attend", "attention_weights"]

Score = Literal["softmax", "relu", "sigmoid"]


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    score: Score = "softmax",
    dropout_p: float = 0.0,
    fused: bool = True,
) -> Tensor:
    """Weighted sum `y_i = sum_j w_ij v_j`: (B, H, Nq, K), (B, H, Nk, K) twice -> (B, H, Nq, K).

    Args:
        q, k, v: queries, keys, values; values may have another width than keys.
        mask: bool, broadcastable to (B, H, Nq, Nk), True = may attend.
        bias: added to the scores, broadcastable to (B, H, Nq, Nk); -inf forbids, as a mask does.
        scale: factor on q.k; None is 1/sqrt(K), K the width of a head.
        score: what turns scores into weights; `relu` and `sigmoid` as in `attention_weights`.
        dropout_p: dropout on the weights. A pure function knows no train mode: give 0 to evaluate.
        fused: use `F.scaled_dot_product_attention` where the score is softmax.

    Raises:
        UserError: a mask that is not bool (0/1 floats would be *added* to the scores by torch),
            a bias that is, or shapes that do not fit.
    """
    _check(q, k, mask, bias)
    if not fused or score != "softmax":
        w = attention_weights(q, k, mask=mask, bias=bias, scale=scale, score=score)
        return F.dropout(w, dropout_p) @ v
    if mask is None and bias is None:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_p, scale=scale)
    opened, bias, alive = _open_empty_rows(mask, bias)
    if bias is None:
        attn_mask = opened
    elif opened is None:
        attn_mask = bias.to(q.dtype)
    else:
        attn_mask = bias.to(q.dtype).masked_fill(~opened, float("-inf"))
    attn_mask = torch.atleast_2d(attn_mask)  # the kernel takes no mask of keys alone
    y = F.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, scale=scale)
    return torch.where(alive, y, 0)


def attention_weights(
    q: Tensor,
    k: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    score: Score = "softmax",
) -> Tensor:
    """The weights w, (B, H, Nq, K), (B, H, Nk, K) -> (B, H, Nq, Nk), without dropout.

    `softmax`: rows sum to 1. `relu`: `relu(s)/N_allowed`. `sigmoid`: `sigmoid(s - log N_allowed)`.
    A forbidden key weighs exactly 0 under each; a row without allowed keys is all zeros. Half
    precision is computed in float32 and returned in the dtype of q.
    """
    _check(q, k, mask, bias)
    exact = torch.promote_types(q.dtype, torch.float32)
    s = (q.to(exact) * (q.shape[-1] ** -0.5 if scale is None else scale)) @ k.to(exact).mT
    opened, bias, alive = _open_empty_rows(mask, bias)
    if bias is not None:
        s = s + bias.to(exact)
    allowed = opened if bias is None else _and(opened, ~torch.isneginf(bias))
    if score == "softmax":
        w = (s if opened is None else s.masked_fill(~opened, float("-inf"))).softmax(-1)
    elif score in ("relu", "sigmoid"):
        if allowed is None:
            count = torch.tensor(float(s.shape[-1]), dtype=exact, device=s.device)
        else:
            count = allowed.expand(*allowed.shape[:-1], s.shape[-1]).sum(-1, keepdim=True).to(exact)
            s = s.masked_fill(~allowed, 0.0)
        w = s.relu() / count if score == "relu" else torch.sigmoid(s - count.log())
    else:
        raise UserError(f"score={score!r} is not known; choose one of {', '.join(get_args(Score))}")
    if allowed is not None:
        w = w.masked_fill(~(allowed & alive), 0.0)
    return w.to(q.dtype)


def _open_empty_rows(
    mask: Tensor | None, bias: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """Mask and bias whose empty rows allow every key, and a (..., Nq, 1) flag of the other rows.

    A softmax over nothing is 0/0, and its gradient NaN even where the result is thrown away. So the
    caller computes the opened row and replaces its result by zero, which also stops its gradient.
    """
    finite = None if bias is None else ~torch.isneginf(bias)
    allowed = _and(mask, finite)
    if allowed is None:
        return None, None, torch.ones((), dtype=torch.bool)
    alive = allowed.any(-1, keepdim=True)
    opened = None if mask is None else mask | ~alive
    if bias is not None:
        bias = torch.where(alive, bias, 0)
    return opened, bias, alive


def _and(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    return a & b


def _check(q: Tensor, k: Tensor, mask: Tensor | None, bias: Tensor | None) -> None:
    if q.shape[-1] != k.shape[-1]:
        raise UserError(
            f"queries have width {q.shape[-1]}, keys {k.shape[-1]}; give both one width"
        )
    if mask is not None and mask.dtype != torch.bool:
        raise UserError(
            f"mask has dtype {mask.dtype}, wanted torch.bool with True = may attend;"
            " for values to add to the scores use bias"
        )
    if bias is not None and not bias.is_floating_point():
        raise UserError(f"bias has dtype {bias.dtype}, wanted floating point; for bool use mask")
    want = (*q.shape[:-1], k.shape[-2])
    for name, t in (("mask", mask), ("bias", bias)):
        if t is not None and (
            t.ndim > len(want)
            or any(a not in (1, b) for a, b in zip(t.shape[::-1], want[::-1], strict=False))
        ):
            raise UserError(f"{name} has shape {tuple(t.shape)}, not broadcastable to {want}")
