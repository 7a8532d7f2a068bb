"""Some rows of attention only: the causal mask, and heads or queries by index."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vision_attn.errors import UserError

__all__ = ["causal_mask", "pick", "row_index"]


def causal_mask(
    queries: int,
    keys: int,
    *,
    rows: Sequence[int] | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """True where a key is not later than the query, the last query being the last key: (Nq, Nk).

    So with Nq < Nk the queries are the newest tokens, as with cached keys; with Nq > Nk the first
    Nq - Nk queries have nothing to attend to. `rows` are the queries wanted; None is all.
    """
    if rows is None:
        at = torch.arange(queries, device=device)
    else:
        at = row_index("queries", rows, queries, device)
    return torch.arange(keys, device=device) <= at[:, None] + (keys - queries)


def row_index(name: str, chosen: Sequence[int], count: int, device: torch.device | None) -> Tensor:
    """Chosen indices of `count` as a tensor, negative ones from the end; UserError outside."""
    for i in chosen:
        if not -count <= i < count:
            raise UserError(f"{name} has {i}, but there are {count}; wanted 0 to {count - 1}")
    return torch.tensor([i % count for i in chosen], dtype=torch.long, device=device)


def pick(t: Tensor | None, dim: int, index: Tensor) -> Tensor | None:
    """The chosen slices along dim, counted from the end; an axis of broadcasting stays."""
    if t is None or t.ndim < -dim or (t.shape[dim] == 1 and len(index)):
        return t
    return t.index_select(dim, index)
