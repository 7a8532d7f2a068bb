"""ViTs by name for timm, and weights of timm's ViTs under their names."""

from collections.abc import Mapping
from typing import Any

from timm.layers import resample_patch_embed
from timm.models import adapt_input_conv, generate_default_cfgs, register_model
from torch import Tensor

from vision_attn.errors import UserError
from vision_attn.models.base import build, small_cfg
from vision_attn.models.pretrained import plain_names
from vision_attn.models.vit import VisionTransformer
from vision_attn.ops.positions import resize_positions

__all__ = ["checkpoint_filter_fn", "vision_attn_conv_stem_vit", "vision_attn_pixel_vit",
           "vision_attn_vit"]  # fmt: skip


def checkpoint_filter_fn(
    state_dict: Mapping[str, Any], model: VisionTransformer
) -> dict[str, Tensor]:
    """The state of a timm ViT as one of `model`; a state with our own names as it is.

    The patch convolution becomes the matrix that it is, resampled to the model's patch and summed
    or repeated over its channels; positions are resized to the model's grid, that of the class
    token added to it. With `norm_eps=1e-6`, and the same width, depth, heads and `global_pool`, the
    output is then that of timm's model. For `load_state_dict`, and timm's builder takes it.

    Args:
        state_dict: timm's, or a checkpoint with it under `state_dict` or `model`.
        model: what shall load it, with `stem="linear"` and learned positions.

    Raises:
        UserError: (a ValueError) parts that `VisionTransformer` has not, such as register tokens, a
            norm behind the pooling, or positions of a grid that is not square.
    """
    for key in ("model", "state_dict"):
        state_dict = state_dict.get(key, state_dict)
    state = dict(state_dict)
    plain_names(state)
    if "pos_embed" not in state:
        return state
    extra = sorted({k.split(".")[0] for k in state} - _PARTS)
    if extra:
        raise UserError(
            f"this ViT of timm has {', '.join(extra)}, which VisionTransformer has not; to look"
            " inside it take timm:NAME as it is"
        )
    weight, patch = state.pop("patch_embed.proj.weight"), model.patch_embed.patch_size
    if weight.shape[2:] != patch:
        weight = resample_patch_embed(weight, list(patch))
    if weight.shape[1] != model.in_chans:
        weight = adapt_input_conv(model.in_chans, weight)
    state["patch_embed.proj.weight"] = weight.flatten(1)
    positions, grid = state.pop("pos_embed"), model.patch_embed.grid_size
    n, own = positions.shape[1], grid[0] * grid[1]
    if "cls_token" in state and (n - 1 == own or (n != own and _is_square(n - 1))):
        state["cls_token"] = state["cls_token"] + positions[:, :1]
        positions = positions[:, 1:]
    if (n := positions.shape[1]) != own:
        if not _is_square(n):
            raise UserError(
                f"pos_embed is of {n} tokens, no square grid; the model has {grid[0]} x {grid[1]};"
                " build it with the grid of the weights"
            )
        side = round(n**0.5)
        positions = resize_positions(positions, (side, side), grid)
    state["positions.pos_embed"] = positions
    return state


_PARTS = {"cls_token", "pos_embed", "patch_embed", "blocks", "norm", "attn_pool", "head"}


def _is_square(n: int) -> bool:
    return n > 0 and round(n**0.5) ** 2 == n


default_cfgs = generate_default_cfgs(
    {
        "vision_attn_vit": small_cfg(),
        "vision_attn_pixel_vit": small_cfg(),
        "vision_attn_conv_stem_vit": small_cfg(first_conv="patch_embed.proj.0"),
    }
)


def _vit(variant: str, pretrained: bool, **kwargs: Any) -> VisionTransformer:
    return build(VisionTransformer, variant, pretrained, checkpoint_filter_fn, **kwargs)


@register_model
def vision_attn_vit(pretrained: bool = False, **kwargs: Any) -> VisionTransformer:
    """The attention classifier on patches; arguments of `VisionTransformer`."""
    return _vit("vision_attn_vit", pretrained, **kwargs)


@register_model
def vision_attn_pixel_vit(pretrained: bool = False, **kwargs: Any) -> VisionTransformer:
    """The attention classifier with every pixel a token."""
    return _vit("vision_attn_pixel_vit", pretrained, **{"patch_size": 1, **kwargs})


@register_model
def vision_attn_conv_stem_vit(pretrained: bool = False, **kwargs: Any) -> VisionTransformer:
    """The attention classifier with convolutions in front of the tokens (Xiao et al. 2021)."""
    return _vit("vision_attn_conv_stem_vit", pretrained, **{"stem": "conv", **kwargs})
