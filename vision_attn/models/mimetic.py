"""Attention that starts as a trained ViT has it: mimetic initialisation (Trockman, Kolter 2023)."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.layers.attention import MultiHeadSelfAttention
from vision_attn.layers.embed import PositionEmbed
from vision_attn.layers.local import LocalAttention
from vision_attn.ops.positions import sincos_2d

__all__ = ["mimetic_", "start_mimetic"]


@torch.no_grad()
def mimetic_(
    attn: MultiHeadSelfAttention | LocalAttention,
    *,
    qk: tuple[float, float] = (0.7, 0.7),
    vo: tuple[float, float] = (0.4, 0.4),
) -> None:
    """Set the weights so that `W_q W_k^T ~ a Z + b I` a head and `W_v W_proj = a Z - b I`.

    In the paper's layout, x W with W of (D, K): the query-key product is the best approximation of
    rank K of its target, split by the singular values' roots; the value-output product of all heads
    together is its target exactly. Each Z is new and has independent entries N(0, 1/D).

    Args:
        attn: a layer whose heads project the whole token; biases are left as they are.
        qk, vo: (a, b) of the two products; the defaults are the paper's for ViTs.

    Raises:
        UserError: a layer with `projection="per_head"`, whose products are not D x D.
    """
    if not isinstance(attn.qkv, nn.Linear):
        raise UserError("projection='per_head' has no D x D products; mimetic_init wants 'full'")
    D, K = attn.dim, attn.head_dim
    w_q, w_k, w_v = attn.qkv.weight.chunk(3)
    for rows in torch.arange(D).split(K):
        left, right = _split(w_q, *qk)
        w_q[rows], w_k[rows] = left[:, :K].T, right[:K]
    left, right = _split(w_v, vo[0], -vo[1])
    w_v.copy_(left.T)
    attn.proj.weight.copy_(right.T)


def _split(like: Tensor, a: float, b: float) -> tuple[Tensor, Tensor]:
    """L and R, both (D, D), with L R = a Z + b I, and the strongest directions first."""
    D = like.shape[-1]
    target = torch.randn_like(like) * (a / math.sqrt(D)) + b * torch.eye(D).to(like)
    u, s, vh = torch.linalg.svd(target)
    return u * s.sqrt(), s.sqrt()[:, None] * vh


def start_mimetic(blocks: Iterable[nn.Module], positions: PositionEmbed) -> None:
    """`mimetic_` in every encoder block; a learned table of positions starts as sines and cosines.

    The paper's products compare positions, which must then differ at the start as sines do.
    """
    for block in blocks:
        assert isinstance(block.attn, MultiHeadSelfAttention | LocalAttention)
        mimetic_(block.attn)
    if isinstance(positions.pos_embed, nn.Parameter):
        table = sincos_2d(positions.grid_size, positions.embed_dim)
        with torch.no_grad():
            positions.pos_embed.copy_(table[None])
