"""Locality self-attention: a learned temperature, no token attends to itself (Lee et al. 2021)."""

from typing import Any

import torch
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.layers.attention import MultiHeadSelfAttention
from vision_attn.layers.heads import merge_masks

__all__ = ["LocalitySelfAttention"]


class LocalitySelfAttention(MultiHeadSelfAttention):
    """`softmax_j(q_i . k_j / T) v_j` over j != i: (B, N, D) -> (B, N, D).

    The temperature T is one learned number a layer that starts at sqrt(K), so the layer starts as
    `MultiHeadSelfAttention` under a mask of the diagonal. A lone token has nothing to attend to and
    gets zeros before the output projection (Lee et al. 2021, "Vision Transformer for Small-Size
    Datasets").

    Args:
        dim, num_heads, options: those of `MultiHeadSelfAttention`.

    Raises:
        UserError: (a ValueError) what `MultiHeadSelfAttention` refuses, and a scale.
    """

    def __init__(
        self, dim: int, num_heads: int = 8, *, scale: float | None = None, **options: Any
    ) -> None:
        if scale is not None:
            raise UserError(f"scale is {scale}, but lsa learns it; leave the scale at None")
        super().__init__(dim, num_heads, scale=1.0, **options)
        # without axes, so that half precision stays half; and so that it does not decay
        self.temperature = nn.Parameter(torch.tensor(self.head_dim**0.5))

    def mix(
        self, q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None, **more: Any
    ) -> Tensor | tuple[Tensor, Tensor]:
        """As the base class, with the queries divided by T and each token hidden from itself."""
        others = ~torch.eye(q.shape[-2], dtype=torch.bool, device=q.device)
        mask = merge_masks(mask, None)
        mask = others if mask is None else mask & others
        return super().mix(q / self.temperature, k, v, mask=mask, **more)
