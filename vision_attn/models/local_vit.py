"""A ViT that sees `radius` tokens each way: the scale between a CNN and full attention.

Its layers are neighbourhood attention (Ramachandran et al. 2019); with a radius that reaches over
the whole grid it is `VisionTransformer`, with the same names of weights.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from timm.models import generate_default_cfgs, register_model

from vision_attn.errors import UserError
from vision_attn.layers.embed import Positions
from vision_attn.layers.local import NeighborhoodAttention
from vision_attn.models.base import build, small_cfg
from vision_attn.models.vit import VisionTransformer
from vision_attn.ops.checks import check_whole

__all__ = ["LocalVisionTransformer", "vision_attn_local_vit"]


class LocalVisionTransformer(VisionTransformer):
    """`VisionTransformer` with neighbourhood attention: (B, C, h, w) -> (B, classes).

    Args:
        img_size, patch_size, in_chans, num_classes: those of `VisionTransformer`.
        global_pool: `avg` or `map`; a class token has no place on the grid.
        radius: tokens that a token sees each way, in each axis: 1 is a 3 x 3 field, and one less
            than the grid's longer side is full attention. One number, or one for each block.
        dilation: steps between the tokens that one attends to.
        pos_embed: as in `VisionTransformer`; `rel_bias` is one table a block over the field's taps,
            in the block's attention.
        others: further arguments of `VisionTransformer`; unknown ones are refused there.

    Raises:
        UserError: (a ValueError) what `VisionTransformer` refuses; a class token, registers, `lsa`,
            a radius below 1, or another number of them than blocks.
    """

    architecture = "vision_attn_local_vit"
    pools = ("avg", "map")

    def __init__(
        self,
        img_size: int | tuple[int, int] = 32,
        patch_size: int | tuple[int, int] = 4,
        in_chans: int = 3,
        num_classes: int = 10,
        global_pool: Literal["avg", "map", ""] = "avg",
        *,
        radius: int | Sequence[int] = 1,
        dilation: int = 1,
        depth: int = 4,
        pos_embed: Positions = "learn",
        **others: Any,
    ) -> None:
        if global_pool and global_pool not in self.pools:
            raise UserError(
                f"global_pool={global_pool!r}: local attention needs global_pool='avg' or 'map'"
            )
        check_whole(0, 1000, depth=depth)
        check_whole(dilation=dilation)
        for r in radius if isinstance(radius, list | tuple) else (radius,):
            check_whole(radius=r)
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
            attn_layer=[
                partial(
                    NeighborhoodAttention,
                    kernel_size=2 * r + 1,
                    dilation=dilation,
                    rel_bias=pos_embed == "rel_bias",
                )
                for r in radii
            ],
            **others,
        )

    def _check_tokens(self, grid: tuple[int, int]) -> None:
        """Memory is linear in the tokens here."""


default_cfgs = generate_default_cfgs({"vision_attn_local_vit": small_cfg()})


@register_model
def vision_attn_local_vit(pretrained: bool = False, **kwargs: Any) -> LocalVisionTransformer:
    """The attention classifier with a limited field; arguments of `LocalVisionTransformer`."""
    return build(LocalVisionTransformer, "vision_attn_local_vit", pretrained, **kwargs)
