"""One vector of all tokens by a learned query (MAP head: Lee et al. 2019, Zhai et al. 2022)."""

from timm.layers import AttentionPoolLatent
from torch import nn

__all__ = ["attention_pool"]


def attention_pool(
    dim: int, num_heads: int, mlp_ratio: float = 4.0, *, fused: bool = True
) -> AttentionPoolLatent:
    """Attention by one learned query, then an MLP: (B, N, D) -> (B, D); timm's module and names.

    Its maps start as Xavier's. A deviation of 0.02, as in the blocks, leaves little of the signal
    at small widths, and no norm comes after it: such a model starts to learn late.
    """
    pool = AttentionPoolLatent(
        dim, num_heads=num_heads, mlp_ratio=mlp_ratio, norm_layer=nn.LayerNorm
    )
    pool.fused_attn = pool.fused_attn and fused  # type: ignore[misc]
    for module in pool.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)
    return pool
