"""What each query's row of weights looks like, without ever holding the N x N matrix."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vision_attn.errors import UserError
from vision_attn.ops.attention import Score, attention_weights
from vision_attn.ops.masks import causal_mask

__all__ = ["AttentionStatistics", "Rows", "attention_statistics"]

Rows = Tensor | Callable[[Sequence[int]], Tensor | None]
"""A mask or a bias: whole, or a function that makes its rows for some queries, (..., c, Nk)."""


class AttentionStatistics(NamedTuple):
    """One number for each head and query, each (B, H, Nq), float32 or wider.

    entropy: of the row, in nats: 0 is one key, log Nk is all alike.
    largest: the largest weight of the row.
    self_weight: the token's weight on itself; None where queries are not the keys.
    distance: mean over the row's weights of the distance of query and key on the grid, in tokens or
        in the unit of `token_size`; None without a grid. Prefix tokens and registers are left out
        as keys; as queries they have NaN.
    field_share: share of the row's weights that lies inside a square field around the query, cut at
        the border; None and NaN as for the distance.
    """

    entropy: Tensor
    largest: Tensor
    self_weight: Tensor | None
    distance: Tensor | None
    field_share: Tensor | None


@torch.no_grad()
def attention_statistics(
    q: Tensor,
    k: Tensor,
    *,
    grid_size: tuple[int, int] | None = None,
    num_prefix_tokens: int = 0,
    num_registers: int = 0,
    token_size: tuple[float, float] = (1.0, 1.0),
    field: int = 3,
    mask: Rows | None = None,
    bias: Rows | None = None,
    causal: bool = False,
    scale: float | None = None,
    score: Score = "softmax",
    chunk: int | None = None,
) -> AttentionStatistics:
    """Statistics of attention: (B, H, Nq, K), (B, H, Nk, K) -> five times (B, H, Nq).

    A few queries at a time, so memory grows with N; masks and bias are as large as they are given,
    or made for those queries by a function. A query with nothing to attend to has zeros. Rows of
    `relu` and `sigmoid` scores are divided by their sum first. No gradients.

    Args:
        q, k: queries and keys of heads, with norms and rotary applied.
        grid_size: (rows, columns) of the tokens, row-major; wanted for distance and field.
        num_prefix_tokens: tokens in front of the grid, such as a class token.
        num_registers: keys in front of all tokens that are no queries.
        token_size: height and width of a token; pixels of a patch give the distance in pixels.
        field: side of the field in tokens, odd.
        mask, bias, causal, scale, score: as in `ops.attention.attend`.
        chunk: queries at a time; None takes as many as make about 4 million weights.

    Raises:
        UserError: a grid that does not have the tokens given, an even field, a chunk under 1, bad
            masks.
    """
    B, H, Nq, _ = q.shape
    Nk = k.shape[-2]
    own_keys = Nq == Nk - num_registers
    if grid_size is not None:
        h, w = grid_size
        if not own_keys or Nq != num_prefix_tokens + h * w:
            beside = f" and {num_registers} registers" * (num_registers > 0)
            raise UserError(
                f"grid_size {h} x {w} with {num_prefix_tokens} prefix tokens makes"
                f" {num_prefix_tokens + h * w} tokens, but there are {Nq} queries and {Nk} keys"
                f"{beside}"
            )
    if field < 1 or field % 2 == 0:
        raise UserError(
            f"field is {field}; wanted an odd side, such as {max(field, 0) // 2 * 2 + 1}"
        )
    if chunk is None:
        chunk = max(1, 2**22 // max(1, B * H * Nk))
    if chunk < 1:
        raise UserError(f"chunk is {chunk}; wanted 1 or more queries at a time")
    exact = torch.promote_types(q.dtype, torch.float32)
    q, k = q.to(exact), k.to(exact)
    entropy, largest, own, distance, share = (q.new_zeros(B, H, Nq) for _ in range(5))
    for start in range(0, Nq, chunk):
        part = range(start, min(start + chunk, Nq))
        rows = slice(part.start, part.stop)
        allowed = _some(mask, part)
        if causal:
            late = causal_mask(Nq, Nk, rows=part, device=q.device)
            allowed = late if allowed is None else allowed & late
        weights = attention_weights(
            q[..., rows, :], k, mask=allowed, bias=_some(bias, part), scale=scale, score=score
        )
        if score != "softmax":
            total = weights.sum(-1, keepdim=True)
            weights = torch.where(total > 0, weights / total, 0)
        if Nk:
            largest[..., rows] = weights.amax(-1)
        if own_keys:
            own[..., rows] = weights.diagonal(start + num_registers, -2, -1)
        if grid_size is not None:
            tokens = weights[..., num_registers:]
            distance[..., rows], share[..., rows] = _on_grid(
                tokens, part, grid_size, num_prefix_tokens, token_size, field // 2
            )
        tiny = torch.finfo(weights.dtype).tiny
        entropy[..., rows] = -weights.mul(weights.clamp_min(tiny).log_()).sum(-1)
    on_grid = (None, None) if grid_size is None else (distance, share)
    return AttentionStatistics(entropy, largest, own if own_keys else None, *on_grid)


def _some(t: Rows | None, part: range) -> Tensor | None:
    """The rows of these queries; an axis of broadcasting stays."""
    if t is None or not isinstance(t, Tensor):
        return t and t(part)
    if t.ndim < 2 or (t.shape[-2] == 1 and len(part)):
        return t
    return t[..., part.start : part.stop, :]


def _on_grid(
    weights: Tensor,
    part: range,
    grid_size: tuple[int, int],
    prefix: int,
    token_size: tuple[float, float],
    reach: int,
) -> tuple[Tensor, Tensor]:
    """(B, H, c, prefix + h*w) of some queries -> mean distance and share in the field, (B, H, c).

    Differences of rows and of columns are small tables, gathered for these queries only.
    """
    h, w = grid_size
    first = min(max(prefix - part.start, 0), len(part))  # prefix tokens among the queries
    at = torch.arange(part.start + first, part.stop, device=weights.device) - prefix
    row = torch.arange(h, device=weights.device) - (at // w)[:, None]
    col = torch.arange(w, device=weights.device) - (at % w)[:, None]
    away = torch.hypot(
        (row * token_size[0]).to(weights.dtype)[:, :, None],
        (col * token_size[1]).to(weights.dtype)[:, None],
    ).flatten(1)
    near = ((row.abs() <= reach)[:, :, None] & (col.abs() <= reach)[:, None]).flatten(1)
    on_grid = weights[..., first:, prefix:]
    total = on_grid.sum(-1)
    means = []
    for values in (away, near.to(weights.dtype)):
        mean = torch.where(total > 0, torch.einsum("bhqk,qk->bhq", on_grid, values) / total, 0)
        means.append(torch.nn.functional.pad(mean, (first, 0), value=torch.nan))
    return means[0], means[1]
