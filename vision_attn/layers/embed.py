"""Images to tokens with positions: patch projection (Dosovitskiy et al. 2021), position tables."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.ops.positions import sincos_2d
from vision_attn.ops.tokens import check_patch_size, image_to_patches

__all__ = ["PatchEmbed", "PositionEmbed", "Positions"]

Positions = Literal["learn", "sincos2d", "none"]


class PatchEmbed(nn.Module):
    """Each p x q patch, one linear map: (B, C, h*p, w*q) -> (B, h*w, D). p = q = 1 is pixels."""

    def __init__(
        self, img_size: tuple[int, int], patch_size: tuple[int, int], in_chans: int, embed_dim: int
    ) -> None:
        super().__init__()
        self.img_size, self.patch_size, self.in_chans = img_size, patch_size, in_chans
        self.grid_size = check_patch_size(img_size, patch_size)
        self.proj = nn.Linear(in_chans * patch_size[0] * patch_size[1], embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h*p, w*q) -> (B, h*w, D)."""
        want = (self.in_chans, *self.img_size)
        if x.shape[1:] != want:
            raise UserError(
                f"images of shape {tuple(x.shape[1:])} (C, h, w) given, this model takes {want}"
            )
        return self.proj(image_to_patches(x, self.patch_size))


class PositionEmbed(nn.Module):
    """Adds a position to every token of a grid: (B, h*w, D) -> (B, h*w, D)."""

    def __init__(self, kind: Positions, grid_size: tuple[int, int], embed_dim: int) -> None:
        super().__init__()
        n = grid_size[0] * grid_size[1]
        self.pos_embed: Tensor | None
        if kind == "learn":
            self.pos_embed = nn.Parameter(torch.empty(1, n, embed_dim))
            nn.init.trunc_normal_(self.pos_embed, std=0.02)
        elif kind == "sincos2d":
            self.register_buffer("pos_embed", sincos_2d(grid_size, embed_dim)[None])
        elif kind == "none":
            self.pos_embed = None
        else:
            raise UserError(
                f"pos_embed={kind!r} is not known; choose one of {', '.join(get_args(Positions))}"
            )

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, D) -> (B, N, D)."""
        return x if self.pos_embed is None else x + self.pos_embed
