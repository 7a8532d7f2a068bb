"""What a call says about pairs of tokens: masks and biases, by our names and by torch's."""

from collections.abc import Sequence
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import TypedDict

from vision_attn.errors import UserError
from vision_attn.ops.attention import Pairs, check_mask

__all__ = ["Beside", "Chosen", "pad_keys", "read_pairs", "used_tokens"]

Chosen: TypeAlias = Sequence[int] | None


class Beside(TypedDict, total=False):
    """What a layer takes beside its tokens, for type checkers; see `MultiHeadSelfAttention`."""

    mask: Tensor | None
    key_mask: Tensor | None
    bias: Tensor | None
    causal: bool
    weight_heads: Chosen
    weight_queries: Chosen


def read_pairs(
    attn_mask: Tensor | None,
    is_causal: bool,
    mask: Tensor | None,
    key_mask: Tensor | None,
    bias: Tensor | None,
    causal: bool,
) -> Pairs:
    """One mask and one bias that broadcast to (B, H, Nq, Nk); all that is given counts.

    `attn_mask` and `is_causal` mean what they do in `F.scaled_dot_product_attention` and in timm's
    `Attention`: bool True = may attend, floats are added to the scores.

    Args:
        attn_mask: (Nq, Nk) or (B, H, Nq, Nk), each axis may be 1.
        mask, bias: (Nq, Nk), (B, Nq, Nk) or (B, H, Nq, Nk).
        key_mask: bool (B, Nk).

    Raises:
        UserError: another dtype or shape; tensors in the place of masks, as (query, key, value).
    """
    if not isinstance(is_causal, bool):
        raise UserError(
            f"is_causal is a {type(is_causal).__name__}, wanted true or false; self-attention takes"
            " its tokens once, for query, key and value use MultiHeadAttention"
        )
    check_mask(mask)
    mask, bias = _per_head(mask), _per_head(bias)
    if attn_mask is not None:
        floats = attn_mask.is_floating_point()
        if attn_mask.ndim not in (2, 4) and not (attn_mask.ndim == 3 and attn_mask.shape[0] == 1):
            raise UserError(
                f"attn_mask has shape {tuple(attn_mask.shape)}, wanted (Nq, Nk) or (B, H, Nq, Nk);"
                " (B, Nq, Nk) goes to mask, True = may attend, or to bias, added to the scores"
            )
        if attn_mask.dtype != torch.bool and not floats:
            raise UserError(
                f"attn_mask has dtype {attn_mask.dtype}, wanted torch.bool with True = may attend,"
                " or floats to add to the scores"
            )
        if floats:
            bias = attn_mask if bias is None else attn_mask + bias
        else:
            mask = attn_mask if mask is None else attn_mask & mask
    if key_mask is not None:
        if key_mask.dtype != torch.bool or key_mask.ndim != 2:
            raise UserError(
                f"key_mask has dtype {key_mask.dtype} and shape {tuple(key_mask.shape)},"
                " wanted torch.bool of shape (B, N) with True = may be attended to"
            )
        keys = key_mask[:, None, None, :]
        mask = keys if mask is None else mask & keys
    return {"mask": mask, "bias": bias, "causal": causal or is_causal}


def used_tokens(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Queries that attend to something, and keys that are attended to: bool (B or 1, N) each."""
    allowed = torch.atleast_2d(mask)
    both = (allowed.any(-1), allowed.any(-2))
    queries, keys = (t[None] if t.ndim == 1 else t.any(1) for t in both)
    return queries, keys


def pad_keys(pairs: Pairs, keys: int, count: int) -> Pairs:
    """Mask and bias of `keys` keys with `count` more in front, which they leave alone."""

    def pad(t: Tensor | None) -> Tensor | None:
        if t is None:
            return None
        t = t.expand(*t.shape[:-1], keys) if t.ndim and t.shape[-1] == 1 else t
        return F.pad(t, (count, 0), value=t.dtype == torch.bool)

    return {"mask": pad(pairs["mask"]), "bias": pad(pairs["bias"]), "causal": pairs["causal"]}


def _per_head(t: Tensor | None) -> Tensor | None:
    """(N, N), (B, N, N) or (B, H, N, N) to something that broadcasts to (B, H, N, N)."""
    return t[:, None] if t is not None and t.ndim == 3 else t
