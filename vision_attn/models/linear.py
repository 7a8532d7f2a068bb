"""The floor of the comparison: one linear map of all pixels."""

from math import prod
from typing import Any, Literal

import torch
from timm.layers import to_2tuple
from timm.models import generate_default_cfgs, register_model
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.models.base import ImageClassifier, build, small_cfg
from vision_attn.ops.checks import check_memory, check_pair, check_whole

__all__ = ["LinearClassifier", "vision_attn_linear"]


@torch.fx.wrap
def all_pixels(x: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """(B, C, h, w) -> (B, C*h*w, 1, 1), or a UserError for images of another shape."""
    if x.shape[1:] != shape:
        raise UserError(
            f"images of shape {tuple(x.shape[1:])} (C, h, w) given, this model takes {shape}"
        )
    return x.flatten(1)[:, :, None, None]


class LinearClassifier(ImageClassifier):
    """Softmax regression on pixels: (B, C, h, w) -> (B, classes), zero at the start.

    Its features are the pixels, as channels of a map of 1 x 1; it has no layers.

    Args:
        img_size: pixels, one number or (height, width).
        in_chans: channels C.
        num_classes: outputs; 0 gives the pixels.
        global_pool: `avg`, or empty, the features as a map, with `num_classes=0`.

    Raises:
        UserError: (a ValueError) images of another shape.
    """

    architecture = "vision_attn_linear"
    first_conv = ()
    layers = nn.Sequential()
    pool_size = (1, 1)

    def __init__(
        self,
        img_size: int | tuple[int, int] = 32,
        in_chans: int = 3,
        num_classes: int = 10,
        global_pool: Literal["avg", ""] = "avg",
    ) -> None:
        super().__init__()
        check_pair(img_size=img_size)
        check_whole(in_chans=in_chans)
        check_whole(0, num_classes=num_classes)
        self.check_head(num_classes, global_pool)
        self.img_size, self.in_chans = to_2tuple(img_size), in_chans
        self.num_classes, self.global_pool = num_classes, global_pool
        self.num_features = prod((in_chans, *self.img_size))
        check_memory("the weights", self.num_features * num_classes, "take smaller images")
        self.head_drop = nn.Identity()
        self.head = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()
        self.start_head(self.head)
        self.describe()

    def start_head(self, head: nn.Module) -> None:
        """Zeros."""
        for p in head.parameters():
            nn.init.zeros_(p)

    def enter(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """(B, C, h, w) -> (B, C*h*w, 1, 1)."""
        return all_pixels(x, (self.in_chans, *self.img_size)), (1, 1)

    def pool(self, x: Tensor) -> Tensor:
        """(B, C*h*w, 1, 1) -> (B, C*h*w)."""
        return x.flatten(1) if self.global_pool else x


default_cfgs = generate_default_cfgs(
    {"vision_attn_linear": small_cfg(first_conv=(), pool_size=(1, 1))}
)


@register_model
def vision_attn_linear(pretrained: bool = False, **kwargs: Any) -> LinearClassifier:
    """Softmax regression on pixels."""
    return build(LinearClassifier, "vision_attn_linear", pretrained, **kwargs)
