"""What each query's row of weights looks like, without ever holding the N x N matrix."""

from typing import NamedTuple

import torch
from torch import Tensor

from vision_attn.errors import UserError
from vision_attn.ops.attention import attention_weights

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
    away = None
    if grid_size is not None:
        h, w = grid_size
        if not Nq == Nk == num_prefix_tokens + h * w:
            raise UserError(
                f"grid_size {h} x {w} with {num_prefix_tokens} prefix tokens makes"
                f" {num_prefix_tokens + h * w} tokens, but there are {Nq} queries and {Nk} keys"
            )
        away = _distances(grid_size, q.device)
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
        if away is not None:
            distance[..., rows] = _mean_distance(weights, away, num_prefix_tokens, start)
        tiny = torch.finfo(weights.dtype).tiny
        entropy[..., rows] = -weights.mul(weights.clamp_min(tiny).log_()).sum(-1)
    return AttentionStatistics(
        entropy, largest, own if Nq == Nk else None, None if away is None else distance
    )


def _distances(grid_size: tuple[int, int], device: torch.device) -> Tensor:
    """Distance of all pairs as a view of a (2h-1, 2w-1) table: (h, w, h, w), queries backwards."""
    h, w = grid_size
    row, col = (torch.arange(1 - n, n, device=device, dtype=torch.float64) for n in (h, w))
    return torch.hypot(row[:, None], col).unfold(0, h, 1).unfold(1, w, 1)


def _mean_distance(weights: Tensor, away: Tensor, prefix: int, start: int) -> Tensor:
    """(B, H, c, Nk) of the queries from start on, `_distances` -> (B, H, c)."""
    h, w = away.shape[:2]
    count = weights.shape[-2]
    first = min(max(prefix - start, 0), count)  # prefix tokens among the queries
    at = torch.arange(start + first, start + count, device=weights.device) - prefix
    here = away[h - 1 - at // w, w - 1 - at % w].flatten(1).to(weights.dtype)
    on_grid = weights[..., first:, prefix:]
    total = on_grid.sum(-1)
    mean = torch.where(total > 0, on_grid.mul(here).sum(-1) / total, 0)
    return torch.nn.functional.pad(mean, (first, 0), value=torch.nan)
