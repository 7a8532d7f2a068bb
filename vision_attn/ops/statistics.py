"""What each query's row of weights looks like, without ever holding the N x N matrix."""

from typing import NamedTuple

import torch
from torch import Tensor

from vision_attn.errors import UserError
from vision_attn.ops.attention import attention_weights
from vision_attn.ops.positions import grid_positions

__all__ = ["AttentionStatistics", "attention_statistics"]


class AttentionStatistics(NamedTuple):
    """One number for each head and query, each (B, H, Nq), float32 or wider.

    entropy: of the row, in nats: 0 is one key, log Nk is all alike.
    largest: the largest weight of the row.
    self_weight: the token's weight on itself; None where queries are not the keys (Nq != Nk).
    distance: mean over the row's weights of the distance of query and key on the grid, in tokens;
        None without a grid. Prefix tokens are left out as keys; as queries they have NaN.
    """

    entropy: Tensor
    largest: Tensor
    self_weight: Tensor | None
    distance: Tensor | None


@torch.no_grad()
def attention_statistics(
    q: Tensor,
    k: Tensor,
    *,
    grid_size: tuple[int, int] | None = None,
    num_prefix_tokens: int = 0,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    chunk: int | None = None,
) -> AttentionStatistics:
    """Statistics of softmax attention: (B, H, Nq, K), (B, H, Nk, K) -> four times (B, H, Nq).

    A few queries at a time, so memory grows with N; masks and bias are as large as they are given.
    A query with nothing to attend to has zeros. No gradients.

    Args:
        q, k: queries and keys of heads, with norms and rotary applied.
        grid_size: (rows, columns) of the tokens, row-major; wanted for the distance.
        num_prefix_tokens: tokens in front of the grid, such as a class token.
        mask, bias, causal, scale: as in `ops.attention.attend`.
        chunk: queries at a time; None takes as many as make about 4 million weights.

    Raises:
        UserError: a grid that does not have the tokens given, a chunk under 1, bad masks.
    """
    B, H, Nq, _ = q.shape
    Nk = k.shape[-2]
    at = None
    if grid_size is not None:
        h, w = grid_size
        if not Nq == Nk == num_prefix_tokens + h * w:
            raise UserError(
                f"grid_size {h} x {w} with {num_prefix_tokens} prefix tokens makes"
                f" {num_prefix_tokens + h * w} tokens, but there are {Nq} queries and {Nk} keys"
            )
        at = grid_positions(grid_size, device=q.device)
    if chunk is None:
        chunk = max(1, 2**22 // max(1, B * H * Nk))
    if chunk < 1:
        raise UserError(f"chunk is {chunk}; wanted 1 or more queries at a time")
    exact = torch.promote_types(q.dtype, torch.float32)
    q, k = q.to(exact), k.to(exact)
    entropy, largest, own, distance = (q.new_zeros(B, H, Nq) for _ in range(4))
    for start in range(0, Nq, chunk):
        rows = slice(start, min(start + chunk, Nq))
        part = range(rows.start, rows.stop)
        weights = attention_weights(
            q, k, mask=mask, bias=bias, causal=causal, scale=scale, queries=part
        )
        if Nk:
            largest[..., rows] = weights.amax(-1)
        if Nq == Nk:
            own[..., rows] = weights.diagonal(start, -2, -1)
        if at is not None:
            distance[..., rows] = _mean_distance(weights, at, num_prefix_tokens, start)
        entropy[..., rows] = torch.special.entr(weights).sum(-1)
    return AttentionStatistics(
        entropy, largest, own if Nq == Nk else None, None if at is None else distance
    )


def _mean_distance(weights: Tensor, at: Tensor, prefix: int, start: int) -> Tensor:
    """(B, H, c, Nk) of the queries from start on, grid positions (h*w, 2) -> (B, H, c)."""
    first = max(prefix - start, 0)  # prefix tokens among the queries
    stop = start + weights.shape[-2] - prefix
    here = at[max(start - prefix, 0) : max(stop, 0)].to(weights.dtype)
    away = torch.linalg.vector_norm(here[:, None] - at.to(weights.dtype), dim=-1)
    on_grid = weights[..., min(first, weights.shape[-2]) :, prefix:]
    total = on_grid.sum(-1)
    mean = torch.einsum("bhqk,qk->bhq", on_grid, away) / total
    mean = torch.where(total > 0, mean, 0)
    return torch.nn.functional.pad(mean, (weights.shape[-2] - mean.shape[-1], 0), value=torch.nan)
