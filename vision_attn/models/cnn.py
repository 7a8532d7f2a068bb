"""The small CNN: stages of 3 x 3 convolution, batch norm and ReLU, halving the map in between."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

from timm.layers import SqueezeExcite, to_2tuple
from timm.models import generate_default_cfgs, register_model
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.models.base import ImageClassifier, build, small_cfg
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


class SmallCNN(ImageClassifier):
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
        attn_layer: `se`, a squeeze-and-excitation after each stage (Hu et al. 2018): channels are
            weighted by the mean of the whole map, so that every pixel is told what is elsewhere.
        drop_rate: dropout before the head.
        global_pool: `avg`, the mean of the map; empty, the map itself, with `num_classes=0`.
    """

    architecture = "vision_attn_cnn"
    layer_names = ("stages",)
    first_conv = "stages.0.0"
    fixed_input_size = False

    def __init__(
        self,
        img_size: int | tuple[int, int] = 32,
        in_chans: int = 3,
        num_classes: int = 10,
        *,
        widths: Sequence[int] = (24, 48, 96),
        depth: int = 2,
        pool: Literal["stride", "max"] = "stride",
        attn_layer: Literal["se"] | None = None,
        drop_rate: float = 0.0,
        global_pool: Literal["avg", ""] = "avg",
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
        if attn_layer not in (None, "se"):
            raise UserError(f"attn_layer={attn_layer!r} is not known; choose se, or None")
        self.check_head(num_classes, global_pool)
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
            if attn_layer:
                layers.append(SqueezeExcite(width))
            stages.append(nn.Sequential(*layers))
        self.img_size, self.in_chans, self.pool_size = sizes[0], in_chans, sizes[-1]
        self.num_classes, self.num_features, self.global_pool = num_classes, chans, global_pool
        self.stages = nn.Sequential(*stages)
        self.head_drop = nn.Dropout(drop_rate)
        self.head = nn.Linear(chans, num_classes) if num_classes else nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.describe()

    @property
    def feature_info(self) -> list[dict[str, Any]]:
        """Name, channels and pixels a cell of each stage, for timm's `FeatureInfo`."""
        rows: list[dict[str, Any]] = []
        pixels = 1
        for i, stage in enumerate(self.stages):
            parts: list[Any] = list(stage)  # type: ignore[call-overload]
            pixels *= 2 if any(getattr(m, "stride", 1) in (2, (2, 2)) for m in parts) else 1
            width = next(m.out_channels for m in parts if isinstance(m, nn.Conv2d))
            rows.append({"module": f"stages.{i}", "num_chs": width, "reduction": pixels})
        return rows

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """Layers of parameters by name, for timm's decay of the learning rate by layer."""
        return {"blocks": r"^stages\.(\d+)"}

    def enter(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Images as they are; a map shows its own grid."""
        return x, self.img_size

    def pool(self, x: Tensor) -> Tensor:
        """(B, D, h', w') -> (B, D)."""
        return x.mean((2, 3)) if self.global_pool else x


default_cfgs = generate_default_cfgs({"vision_attn_cnn": small_cfg(first_conv="stages.0.0")})


@register_model
def vision_attn_cnn(pretrained: bool = False, **kwargs: Any) -> SmallCNN:
    """The small CNN; arguments of `SmallCNN`."""
    return build(SmallCNN, "vision_attn_cnn", pretrained, **kwargs)
