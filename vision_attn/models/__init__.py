"""Image classifiers by name: ours (registered with timm as `vision_attn_*`) and any `timm:NAME`."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import timm
from torch import nn

from vision_attn.errors import UserError
from vision_attn.models.cnn import SmallCNN
from vision_attn.models.conv_init_vit import ConvInitVisionTransformer
from vision_attn.models.dense import DenseClassifier
from vision_attn.models.detr import SetPredictor
from vision_attn.models.linear import LinearClassifier
from vision_attn.models.local_vit import LocalVisionTransformer
from vision_attn.models.vit import VisionTransformer

__all__ = [
    "ConvInitVisionTransformer",
    "DenseClassifier",
    "LinearClassifier",
    "LocalVisionTransformer",
    "SetPredictor",
    "SmallCNN",
    "VisionTransformer",
    "create_model",
    "known_models",
]


def known_models() -> list[str]:
    """Short names of the models of this package."""
    return [name.removeprefix("vision_attn_") for name in timm.list_models("vision_attn_*")]


def create_model(
    name: str,
    *,
    img_size: tuple[int, int],
    in_chans: int,
    num_classes: int,
    args: Mapping[str, Any] | None = None,
) -> nn.Module:
    """An untrained classifier, (B, C, h, w) -> (B, classes).

    Args:
        name: one of `known_models()`, or `timm:NAME`.
        args: further arguments of the model; an unknown one is an error that names it.

    Raises:
        UserError: unknown name or argument, or sizes that do not fit.
    """
    entry = name.removeprefix("timm:") if name.startswith("timm:") else f"vision_attn_{name}"
    if not timm.is_model(entry):
        pool = [f"timm:{m}" for m in timm.list_models()] if "timm:" in name else known_models()
        near = get_close_matches(name, pool, n=3) or known_models()
        raise UserError(
            f"model {name!r} is not known; try {', '.join(near)}, or timm:NAME for any of timm"
        )
    given: dict[str, Any] = {"img_size": img_size, "in_chans": in_chans, "num_classes": num_classes}
    clash = sorted(given.keys() & (args or {}).keys())
    if clash:
        raise UserError(f"model {name!r}: {clash[0]} comes from the data, it is not set by hand")
    try:
        try:
            return timm.create_model(entry, **given, **(args or {}))
        except TypeError as e:  # timm's CNNs take images of any size and no img_size
            if not name.startswith("timm:") or "img_size" not in str(e):
                raise
            del given["img_size"]
            return timm.create_model(entry, **given, **(args or {}))
    except UserError as e:
        raise UserError(f"model {name!r}: {e}") from e
    except (TypeError, AssertionError, RuntimeError) as e:
        if isinstance(e, TypeError) or name.startswith("timm:"):
            raise UserError(
                f"model {name!r} cannot be built with {given | dict(args or {})}: {e}"
            ) from e
        raise
