"""The floor of the comparison: one linear map of all pixels."""

from math import prod
from typing import Any

from timm.layers import to_2tuple
from timm.models import register_model
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.models.registry import no_pretrained
from vision_attn.ops.checks import check_memory, check_pair, check_whole

__all__ = ["LinearClassifier", "vision_attn_linear"]


class LinearClassifier(nn.Module):
    """Softmax regression on pixels: (B, C, h, w) -> (B, classes), zero at the start.

    Args:
        img_size: pixels, one number or (height, width).
        in_chans: channels C.
        num_classes: outputs.

    Raises:
        UserError: (a ValueError) images of another shape.
    """

    def __init__(
        self, img_size: int | tuple[int, int] = 32, in_chans: int = 3, num_classes: int = 10
    ) -> None:
        super().__init__()
        check_pair(img_size=img_size)
        check_whole(in_chans=in_chans, num_classes=num_classes)
        self.shape = (in_chans, *to_2tuple(img_size))
        check_memory("the weights", prod(self.shape) * num_classes, "take smaller images")
        self.head = nn.Linear(prod(self.shape), num_classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def get_classifier(self) -> nn.Module:
        """The head, which is all there is."""
        return self.head

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, classes)."""
        if x.shape[1:] != self.shape:
            raise UserError(
                f"images of shape {tuple(x.shape[1:])} (C, h, w) given, this model takes"
                f" {self.shape}"
            )
        return self.head(x.flatten(1))


@register_model
def vision_attn_linear(pretrained: bool = False, **kwargs: Any) -> LinearClassifier:
    """Softmax regression on pixels."""
    return LinearClassifier(**no_pretrained(pretrained, kwargs))
