"""Other ways to tokens: convolutions (Xiao et al. 2021), pooled ones (Hassani et al. 2021), shifted
patches (Lee et al. 2021).
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.layers.embed import PatchEmbed
from vision_attn.ops.tokens import image_to_patches

__all__ = ["ConvStem", "PooledConvStem", "ShiftedPatchEmbed"]


class ConvStem(PatchEmbed):
    """3 x 3 convolutions with batch norm and ReLU, then 1 x 1: (B, C, h*p, w*p) -> (B, h*w, D).

    Each convolution halves the map and doubles the channels until a token is p x p pixels, so p is
    a power of two; p = 1 is one convolution that halves nothing.

    Raises:
        UserError: a patch that is no square of a power of two, or does not divide the image; a
            width that cannot be halved so often.
    """

    kaiming: Literal["fan_in", "fan_out"] = "fan_out"

    def build(self, width: int, embed_dim: int) -> None:
        """Convolutions in place of the one map."""
        widths = _widths(self.patch_size, self.in_chans, embed_dim)
        self.proj = nn.Sequential(*self.layers(widths))
        for module in self.proj.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode=self.kaiming, nonlinearity="relu")

    def layers(self, widths: Sequence[tuple[int, int]]) -> list[nn.Module]:
        """From the image to tokens; `widths` are channels in and out of each convolution."""
        stride = 1 if self.patch_size == (1, 1) else 2
        convolutions = (m for pair in widths for m in _convolution(*pair, stride))
        return [*convolutions, nn.Conv2d(widths[-1][1], widths[-1][1], 1)]

    def embed(self, x: Tensor) -> Tensor:
        """(B, C, h*p, w*p) -> (B, h*w, D)."""
        return self.proj(x).flatten(2).mT


class PooledConvStem(ConvStem):
    """3 x 3 convolutions with batch norm and ReLU, each pooled: (B, C, h*p, w*p) -> (B, h*w, D).

    The tokens of Hassani et al. 2021, "Escaping the Big Data Paradigm with Compact Transformers":
    a convolution sees every pixel, and the largest of 3 x 3 at every second pixel halves the map,
    until a token is p x p pixels. The batch norm is not theirs. Widths and errors as in `ConvStem`;
    p = 1 is one convolution without a pool.
    """

    kaiming = "fan_in"

    def layers(self, widths: Sequence[tuple[int, int]]) -> list[nn.Module]:
        """From the image to tokens."""
        pools = [] if self.patch_size == (1, 1) else [nn.MaxPool2d(3, 2, 1)]
        return [m for pair in widths for m in (*_convolution(*pair, 1), *pools)]


class ShiftedPatchEmbed(PatchEmbed):
    """Patches of the image and of its four diagonal shifts: (B, C, h*p, w*q) -> (B, h*w, D).

    The image moved by half a patch, rounded down, to each corner, with zeros behind it, stands
    beside the image itself: 5 C channels, cut into patches, normalised, one linear map (Lee et al.
    2021, "Vision Transformer for Small-Size Datasets"). A token sees twice its own side each way.

    Raises:
        UserError: a patch that is 1 pixel high or wide, whose half is no shift, or that does not
            divide the image.
    """

    views = 5

    def build(self, width: int, embed_dim: int) -> None:
        """A norm in front of the map."""
        if min(self.patch_size) < 2:
            raise UserError(
                f"patch_size {self.patch_size} has no half to shift by; wanted 2 or more"
            )
        self.norm = nn.LayerNorm(width)

    def embed(self, x: Tensor) -> Tensor:
        """(B, C, h*p, w*q) -> (B, h*w, D)."""
        (h, w), (i, j) = x.shape[2:], (p // 2 for p in self.patch_size)
        wide = F.pad(x, (j, j, i, i))
        moved = [wide[:, :, a : a + h, b : b + w] for a in (0, 2 * i) for b in (0, 2 * j)]
        return self.proj(self.norm(image_to_patches(torch.cat((x, *moved), 1), self.patch_size)))


def _widths(patch_size: tuple[int, int], in_chans: int, embed_dim: int) -> list[tuple[int, int]]:
    """Channels in and out of each convolution: they double up to D, one for each halving."""
    p = patch_size[0]
    if patch_size[0] != patch_size[1] or p & (p - 1):
        raise UserError(f"patch_size {patch_size}: a conv stem wants 1, 2, 4, 8 ... both ways")
    widths = [embed_dim >> left for left in reversed(range(max(p.bit_length() - 1, 1)))]
    if widths[0] < 1:
        raise UserError(f"embed_dim {embed_dim} is too small for patch_size {p}")
    return list(pairwise([in_chans, *widths]))


def _convolution(chans: int, width: int, stride: int) -> list[nn.Module]:
    return [
        nn.Conv2d(chans, width, 3, stride, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(inplace=True),
    ]
