"""A ViT that sees `radius` tokens each way: the scale between a CNN and full attention.

Its layers are neighbourhood attention (Ramachandran et al. 2019); with a radius that reaches over
the whole grid it is `VisionTransformer`, with the same names of weights.
"""

from collections.abc import Sequence
from typing import Any, Literal

from timm.models import register_model
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.layers.block import EncoderBlock
from vision_attn.layers.embed import Positions
from vision_attn.layers.local import NeighborhoodAttention
from vision_attn.models.registry import no_pretrained
from vision_attn.models.vit import VisionTransformer
from vision_attn.ops.checks import check_whole

__all__ = ["LocalBlock", "LocalVisionTransformer", "vision_attn_local_vit"]


class LocalBlock(EncoderBlock):
    """An encoder block whose attention is a neighbourhood's; takes over the parts of the given one.

    Args:
        block: its norms, MLP and projections become this block's, under the same names.
        kernel_size, dilation, rel_bias: see `NeighborhoodAttention`.
    """

    def __init__(
        self, block: EncoderBlock, *, kernel_size: int, dilation: int = 1, rel_bias: bool = False
    ) -> None:
        nn.Module.__init__(self)  # its parts are there already
        for name, part in block.named_children():
            self.add_module(name, part)
        local = NeighborhoodAttention.from_attention(
            block.attn, kernel_size=kernel_size, dilation=dilation, rel_bias=rel_bias
        )
        self.add_module("attn", local)

    def forward(  # type: ignore[override]
        self, x: Tensor, grid_size: tuple[int, int], rotary: Tensor | None = None
    ) -> Tensor:
        """(B, h*w, D) -> (B, h*w, D), grid_size (h, w)."""
        return self.residual(x, self.attn(self.norm1(x), grid_size, rotary=rotary))


class LocalVisionTransformer(VisionTransformer):
    """`VisionTransformer` with neighbourhood attention: (B, C, h, w) -> (B, classes).

    Args:
        img_size, patch_size, in_chans, num_classes: those of `VisionTransformer`.
        global_pool: `avg` or `map`; a class token has no place on the grid.
        radius: tokens that a token sees each way, in each axis: 1 is a 3 x 3 field, and one less
            than the grid's longer side is full attention. One number, or one for each block.
        dilation: steps between the tokens seen.
        pos_embed: as in `VisionTransformer`; `rel_bias` is one table a block over the field's taps,
            in the block's attention.
        others: further arguments of `VisionTransformer`; unknown ones are refused there.

    Raises:
        UserError: (a ValueError) what `VisionTransformer` refuses; a class token, registers, `lsa`,
            a radius below 1, or another number of them than blocks.
    """

    def __init__(
        self,
        img_size: int | tuple[int, int] = 32,
        patch_size: int | tuple[int, int] = 4,
        in_chans: int = 3,
        num_classes: int = 10,
        global_pool: Literal["avg", "map"] = "avg",
        *,
        radius: int | Sequence[int] = 1,
        dilation: int = 1,
        depth: int = 4,
        pos_embed: Positions = "learn",
        **others: Any,
    ) -> None:
        if global_pool not in ("avg", "map"):
            raise UserError(
                f"global_pool={global_pool!r}: local attention needs global_pool='avg' or 'map'"
            )
        check_whole(0, 1000, depth=depth)
        check_whole(dilation=dilation)
        for r in radius if isinstance(radius, list | tuple) else (radius,):
            check_whole(radius=r)
        if others.get("lsa"):
            raise UserError("lsa=True masks pairs of all tokens; local attention needs lsa=False")
        radii = [radius] * depth if isinstance(radius, int) else list(radius)
        if len(radii) != depth:
            raise UserError(
                f"radius {radius} with depth {depth}: wanted one number of at least 1, or {depth}"
            )
        super().__init__(
            img_size,
            patch_size,
            in_chans,
            num_classes,
            global_pool,
            depth=depth,
            pos_embed="none" if pos_embed == "rel_bias" else pos_embed,
            **others,
        )
        for i, r in enumerate(radii):
            block = self.blocks[i]
            assert isinstance(block, EncoderBlock)
            self.blocks[i] = LocalBlock(
                block,
                kernel_size=2 * r + 1,
                dilation=dilation,
                rel_bias=pos_embed == "rel_bias",
            )

    def _check_tokens(self, grid: tuple[int, int]) -> None:
        """Memory is linear in the tokens here."""

    def forward_features(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> normalised tokens (B, N, D)."""
        grid = self.patch_embed.grid_of(x)
        x = self.pos_drop(self.positions(self.patch_embed(x), grid))
        rotary = None if self.rotary is None else self.rotary(grid)
        for block in self.blocks:
            x = block(x, grid, rotary)
        return self.norm(x)


@register_model
def vision_attn_local_vit(pretrained: bool = False, **kwargs: Any) -> LocalVisionTransformer:
    """The attention classifier with a limited field; arguments of `LocalVisionTransformer`."""
    return LocalVisionTransformer(**no_pretrained(pretrained, kwargs))
