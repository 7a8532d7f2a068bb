"""Images to tokens with positions: patch projection (Dosovitskiy et al. 2021), position tables."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.layers.state import GridTables
from vision_attn.ops.checks import check_choice
from vision_attn.ops.masks import relative_index
from vision_attn.ops.positions import resize_positions, resize_relative, rotary_2d, sincos_2d
from vision_attn.ops.tokens import check_patch_size, image_to_patches

__all__ = ["PatchEmbed", "PositionEmbed", "Positions", "RelativeBias", "RotaryEmbed"]

Positions = Literal["learn", "sincos2d", "none", "rel_bias", "rotary"]


class PatchEmbed(nn.Module):
    """Each p x q patch, one linear map: (B, C, h*p, w*q) -> (B, h*w, D). p = q = 1 is pixels.

    `dynamic_img_size` allows images of other sizes that the patch divides.
    """

    views = 1  # images side by side in a patch

    def __init__(
        self,
        img_size: tuple[int, int],
        patch_size: tuple[int, int],
        in_chans: int,
        embed_dim: int,
        *,
        dynamic_img_size: bool = False,
    ) -> None:
        super().__init__()
        self.img_size, self.patch_size, self.in_chans = img_size, patch_size, in_chans
        self.dynamic_img_size = dynamic_img_size
        self.grid_size = check_patch_size(img_size, patch_size)
        width = self.views * in_chans * patch_size[0] * patch_size[1]
        self.proj: nn.Module = nn.Linear(width, embed_dim)
        self.build(width, embed_dim)

    def build(self, width: int, embed_dim: int) -> None:
        """What a subclass has beside the map of `width` numbers to D, or in its place."""

    def grid_of(self, x: Tensor) -> tuple[int, int]:
        """(rows, columns) of tokens of images (B, C, h, w); a UserError where they do not fit.

        Whole patches only: a convolution would leave the last pixels out in silence.
        """
        want = (self.in_chans, *self.img_size)
        if x.shape[1:] != want and not (self.dynamic_img_size and x.shape[1:2] == want[:1]):
            raise UserError(
                f"images of shape {tuple(x.shape[1:])} (C, h, w) given, this model takes {want}"
            )
        return check_patch_size((x.shape[-2], x.shape[-1]), self.patch_size)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h*p, w*q) -> (B, h*w, D)."""
        self.grid_of(x)
        return self.embed(x)

    def embed(self, x: Tensor) -> Tensor:
        """The same, for images of a size that fits."""
        return self.proj(image_to_patches(x, self.patch_size))


class PositionEmbed(GridTables):
    """Adds a position to every token of a grid: (B, h*w, D) -> (B, h*w, D).

    `rel_bias` and `rotary` act inside attention (`RelativeBias`, `RotaryEmbed`): nothing is added.
    """

    def __init__(self, kind: Positions, grid_size: tuple[int, int], embed_dim: int) -> None:
        super().__init__()
        check_choice(get_args(Positions), pos_embed=kind)
        n = grid_size[0] * grid_size[1]
        self.kind, self.grid_size, self.embed_dim = kind, grid_size, embed_dim
        self.pos_embed: Tensor | None
        if kind == "learn":
            self.pos_embed = nn.Parameter(torch.empty(1, n, embed_dim))
            nn.init.trunc_normal_(self.pos_embed, std=0.02)
            self.table_grid = grid_size
        elif kind == "sincos2d":
            self.fixed_table("pos_embed", sincos_2d(grid_size, embed_dim)[None])
        else:
            self.pos_embed = None

    def forward(self, x: Tensor, grid_size: tuple[int, int] | None = None) -> Tensor:
        """(B, N, D) -> (B, N, D). Another grid: the learned table resized, sines computed."""
        if self.pos_embed is None:
            return x
        if grid_size is None or grid_size == self.grid_size:
            return x + self.pos_embed
        if self.kind == "learn":
            return x + resize_positions(self.pos_embed, self.grid_size, grid_size)
        return x + sincos_2d(grid_size, self.embed_dim).to(self.pos_embed)


class RelativeBias(GridTables):
    """A learned bias for each head and each difference of positions: -> (1, H, N, N) (Swin).

    The table, ((2h-1)(2w-1), H), has the name and the order of timm's.

    Args:
        grid_size: rows and columns of tokens.
        num_heads: heads H.
        num_prefix_tokens: tokens in front of the grid, such as a class token; their bias is 0.
    """

    index: Tensor

    def __init__(
        self, grid_size: tuple[int, int], num_heads: int, *, num_prefix_tokens: int = 0
    ) -> None:
        super().__init__()
        self.grid_size, self.num_prefix_tokens = grid_size, num_prefix_tokens
        self.table_grid = (2 * grid_size[0] - 1, 2 * grid_size[1] - 1)
        shape = (self.table_grid[0] * self.table_grid[1], num_heads)
        self.relative_position_bias_table = nn.Parameter(torch.empty(shape))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)
        self.fixed_table("index", relative_index(grid_size))

    def forward(self, grid_size: tuple[int, int] | None = None) -> Tensor:
        """The grid, None is the own one -> (1, H, N, N); for another grid the table is resized."""
        table: Tensor = self.relative_position_bias_table
        index = self.index
        if grid_size is not None and grid_size != self.grid_size:
            table = resize_relative(table, self.grid_size, grid_size)
            index = relative_index(grid_size, device=table.device)
        bias = table[index].permute(2, 0, 1)[None]
        return nn.functional.pad(bias, (self.num_prefix_tokens, 0) * 2)


class RotaryEmbed(GridTables):
    """The turns of `ops.positions.rotary_2d` for a grid: -> (2, N, K), no parameters.

    Args:
        grid_size: rows and columns of tokens.
        head_dim: width K of a head; divisible by 4.
        num_prefix_tokens: tokens in front of the grid; they are not turned.
    """

    table: Tensor

    def __init__(
        self, grid_size: tuple[int, int], head_dim: int, *, num_prefix_tokens: int = 0
    ) -> None:
        super().__init__()
        self.grid_size, self.num_prefix_tokens = grid_size, num_prefix_tokens
        self.head_dim = head_dim
        self.fixed_table("table", self._compute(grid_size))

    def _compute(self, grid_size: tuple[int, int]) -> Tensor:
        sin, cos = rotary_2d(grid_size, self.head_dim)
        still = sin.new_zeros(self.num_prefix_tokens, self.head_dim)
        return torch.stack((torch.cat((still, sin)), torch.cat((still + 1, cos))))

    def forward(self, grid_size: tuple[int, int] | None = None) -> Tensor:
        """The grid, None is the own one -> (2, N, K)."""
        if grid_size is None or grid_size == self.grid_size:
            return self.table
        return self._compute(grid_size).to(self.table)
