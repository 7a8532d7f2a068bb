"""A ViT whose heads start as a convolution and can leave it (Cordonnier 2020, d'Ascoli 2021)."""

from typing import Any

import torch
from timm.models import generate_default_cfgs, register_model
from torch import nn

from vision_attn.errors import UserError
from vision_attn.layers.attention import MultiHeadSelfAttention
from vision_attn.layers.block import EncoderBlock
from vision_attn.layers.conv import OffsetBias
from vision_attn.models.base import build, small_cfg
from vision_attn.models.vit import VisionTransformer

__all__ = ["ConvInitVisionTransformer", "vision_attn_conv_init_vit"]


class ConvInitVisionTransformer(VisionTransformer):
    """`VisionTransformer` with heads that start as a convolution: (B, C, h, w) -> (B, classes).

    Scores are q.k / sqrt(K) - alpha |d - D_h|^2, alpha and the centres D_h learned in each block
    (`OffsetBias`). Queries start at 0 and keys do not, so the content is 0 at the start, but its
    gradient is not. The first attention is then a convolution over the tokens with replicate
    padding, blurred by the finite alpha.

    Args:
        img_size, patch_size, in_chans, num_classes, embed_dim, depth, num_heads: those of
            `VisionTransformer`. 9 heads are a 3 x 3 kernel; other numbers take the nearest offsets.
        alpha: how sharp heads start: the own token of a head has 0.32 of the weight at 1, 0.62 at
            2, 0.93 at 4.
        others: further arguments of `VisionTransformer`; unknown ones are refused there.

    Raises:
        UserError: (a ValueError) what `VisionTransformer` refuses; a class token, registers, scores
            other than softmax, `lsa`, whose mask would hide a head's own token, `mimetic_init`, or
            other positions inside attention; an alpha not above 0.
    """

    architecture = "vision_attn_conv_init_vit"

    def __init__(
        self,
        img_size: int | tuple[int, int] = 32,
        patch_size: int | tuple[int, int] = 4,
        in_chans: int = 3,
        num_classes: int = 10,
        *,
        embed_dim: int = 99,
        depth: int = 4,
        num_heads: int = 9,
        alpha: float = 2.0,
        **others: Any,
    ) -> None:
        for name, allowed in _ALLOWED.items():
            if others.get(name, allowed[0]) not in allowed:
                raise UserError(
                    f"{name}={others[name]!r} does not go with heads that start as a convolution;"
                    f" choose {' or '.join(map(str, allowed))}"
                )
        super().__init__(
            img_size,
            patch_size,
            in_chans,
            num_classes,
            embed_dim=embed_dim,
            depth=depth,
            num_heads=num_heads,
            **others,
        )
        self.rel_bias = nn.ModuleList(OffsetBias(num_heads, alpha) for _ in range(depth))
        for block in self.blocks:
            assert isinstance(block, EncoderBlock)
            _zero_queries(block)

    def no_weight_decay(self) -> set[str]:
        """Also alpha and the centres, which decay would blur and pull onto the head's own token."""
        names = (n for n, _ in self.named_parameters())
        return super().no_weight_decay() | {n for n in names if n.startswith("rel_bias.")}


_ALLOWED: dict[str, tuple[Any, ...]] = {
    "global_pool": ("avg", "map", ""),
    "score": ("softmax",),
    "num_registers": (0,),
    "lsa": (False,),
    "mixer": ("attention",),
    "mimetic_init": (False,),
    "pos_embed": ("learn", "sincos2d", "none"),
}


@torch.no_grad()
def _zero_queries(block: EncoderBlock) -> None:
    """Make the content scores 0: the norm's scale where queries are normalised, else their map."""
    attn = block.attn
    assert isinstance(attn, MultiHeadSelfAttention)
    if isinstance(attn.q_norm, nn.LayerNorm):
        attn.q_norm.weight.zero_()  # a zero before the norm would blow its gradient up
        return
    for p in attn.qkv.parameters():  # both kinds of projection: queries, keys, values on axis 0
        p[: p.shape[0] // 3].zero_()


default_cfgs = generate_default_cfgs({"vision_attn_conv_init_vit": small_cfg()})


@register_model
def vision_attn_conv_init_vit(pretrained: bool = False, **kwargs: Any) -> ConvInitVisionTransformer:
    """The attention classifier whose heads start as convolutions over patches."""
    return build(ConvInitVisionTransformer, "vision_attn_conv_init_vit", pretrained, **kwargs)
