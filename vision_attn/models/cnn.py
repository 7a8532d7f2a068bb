"""The small CNN: stages of 3 x 3 convolution, batch norm and ReLU, halving the map in between."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from timm.layers import to_2tuple
from timm.models import register_model
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.models.registry import no_pretrained
from vision_attn.ops.checks import check_memory, check_pair, check_real, check_whole

__all__ = ["SmallCNN", "stage_sizes", "vision_attn_cnn"]


def stage_sizes(img_size: tuple[int, int], stages: int) -> list[tuple[int, int]]:
    """Map size of each stage: halved (rounded up) from the second on, never below 2 x 2.

    A 1 x 1 map would leave batch norm a single value a channel when the batch is one image.
    """
    sizes = [img_size]
    while len(sizes) < stages:
        h, w = sizes[-1]
        sizes.append(((h + 1) // 2, (w + 1) // 2) if min(h, w) >= 3 else (h, w))
    return sizes


class SmallCNN(nn.Module):
    """(B, C, h, w) -> (B, classes), mean-pooled before the linear head.

    Args:
        img_size: pixels, one number or (height, width). It decides where the map is halved; images
            of other sizes are accepted too.
        in_chans: channels C.
        num_classes: outputs; 0 gives the pooled features.
        widths: channels of each stage; `models.cost.match_cnn` solves for them.
        depth: convolutions in each stage.
        pool: what halves the map: `stride`, of a stage's first convolution; `max`, the largest of
            3 x 3 at every second pixel before it, as in `PooledConvStem`. Both cost the same.
        drop_rate: dropout before the head.
    """

    def __init__(
        self,
        img_size: int | tuple[int, int] = 32,
        in_chans: int = 3,
        num_classes: int = 10,
        *,
        widths: Sequence[int] = (24, 48, 96),
        depth: int = 2,
        pool: Literal["stride", "max"] = "stride",
        drop_rate: float = 0.0,
    ) -> None:
        super().__init__()
        if isinstance(widths, str) or not isinstance(widths, Sequence) or not widths:
            raise UserError(f"widths is {widths!r}; wanted a list of whole numbers, one a stage")
        for width in widths:
            check_whole(widths=width)
        check_whole(1, 1000, depth=depth)
        check_pair(img_size=img_size)
        check_whole(in_chans=in_chans)
        check_whole(0, num_classes=num_classes)
        check_real(0, 1, open="high", drop_rate=drop_rate)
        if pool not in ("stride", "max"):
            raise UserError(f"pool={pool!r} is not known; choose one of stride, max")
        weights = (9 * a * b for a, b in pairwise((in_chans, *widths)))
        check_memory(
            f"widths {list(widths)} at depth {depth}: the weights",
            sum(weights) + (depth - 1) * 9 * sum(width**2 for width in widths),
            "take a narrower model",
        )
        sizes = stage_sizes(to_2tuple(img_size), len(widths))
        stages, chans = [], in_chans
        for i, width in enumerate(widths):
            layers: list[nn.Module] = []
            for j in range(depth):
                halves = i > 0 and j == 0 and sizes[i] != sizes[i - 1]
                if halves and pool == "max":
                    layers.append(nn.MaxPool2d(3, 2, 1))
                stride = 2 if halves and pool == "stride" else 1
                layers += [
                    nn.Conv2d(chans, width, 3, stride, 1, bias=False),
                    nn.BatchNorm2d(width),
                    nn.ReLU(inplace=True),
                ]
                chans = width
            stages.append(nn.Sequential(*layers))
        self.num_classes, self.num_features = num_classes, chans
        self.stages = nn.Sequential(*stages)
        self.head_drop = nn.Dropout(drop_rate)
        self.head = nn.Linear(chans, num_classes) if num_classes else nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def get_classifier(self) -> nn.Module:
        """The head."""
        return self.head

    def forward_features(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, widths[-1], h', w')."""
        return self.stages(x)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """(B, D, h', w') -> (B, classes), or the pooled features (B, D)."""
        x = self.head_drop(x.mean((2, 3)))
        return x if pre_logits else self.head(x)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, classes)."""
        return self.forward_head(self.forward_features(x))


@register_model
def vision_attn_cnn(pretrained: bool = False, **kwargs: Any) -> SmallCNN:
    """The small CNN; arguments of `SmallCNN`."""
    return SmallCNN(**no_pretrained(pretrained, kwargs))
