"""Heads that start on the offsets of a kernel: a learned bias (Cordonnier et al. 2020)."""

import torch
from einops import rearrange
from torch import Tensor, nn

from vision_attn.ops.conv import Pair, check_alpha, nearest_offsets, offset_scores

__all__ = ["OffsetBias"]


class OffsetBias(nn.Module):
    """A learned additive bias -alpha |d - D_h|^2 for attention on a grid of tokens: (1, H, N, N).

    With no content in the scores, head h attends to the token at D_h: heads that start as a
    convolution and can leave it (Cordonnier et al. 2020; d'Ascoli et al. 2021 gate the same term).
    The best key of each row is given 0, which a softmax does not see and half precision needs.

    Args:
        num_heads: heads H; they take the H nearest offsets, 9 those of a 3 x 3 kernel.
        alpha: how sharp the heads start.

    Raises:
        UserError: an alpha that is not above 0.
    """

    def __init__(self, num_heads: int, alpha: float = 2.0) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.full((num_heads,), check_alpha(alpha)))
        self.centers = nn.Parameter(nearest_offsets(num_heads).to(self.alpha))

    def forward(self, grid_size: Pair) -> Tensor:
        """Rows and columns of tokens (h, w), any size -> (1, H, h*w, h*w), float32 or wider."""
        terms = []
        for axis, size in enumerate(grid_size):
            at = torch.arange(size, device=self.alpha.device)
            s = offset_scores(at, at, self.centers[:, axis], self.alpha)
            terms.append(s - s.detach().amax(-1, keepdim=True))
        both = terms[0][:, :, None, :, None] + terms[1][:, None, :, None, :]
        return rearrange(both, "H h w i j -> 1 H (h w) (i j)")
