"""Which models attend: those of this package by their class, those of timm by what they hold."""

from collections.abc import Mapping
from functools import cache
from typing import Any, get_type_hints

import timm
import torch
from torch import nn

from vision_attn.models.vit import VisionTransformer

__all__ = ["attends"]


def attends(arch: str, args: Mapping[str, Any] | None = None) -> bool:
    """Whether a model has attention: `vit`, `cnn`, ... of this package, or `timm:NAME`.

    A model of timm is built once, without memory for its weights, and its modules are looked at.
    A name that is not registered attends to nothing, nor does a model of another `mixer`.

    Args:
        args: arguments of the model, as in `create_model`.
    """
    return (args or {}).get("mixer", "attention") == "attention" and _attends(arch)


@cache
def _attends(arch: str) -> bool:
    ours = not arch.startswith("timm:")
    name = f"vision_attn_{arch}" if ours else arch.removeprefix("timm:")
    if not timm.is_model(name):
        return False
    model = get_type_hints(timm.model_entrypoint(name)).get("return")
    if ours and isinstance(model, type) and model is not nn.Module:
        return issubclass(model, VisionTransformer)
    return any(_is_attention(m) for m in _built(name).modules())


def _is_attention(module: nn.Module) -> bool:
    """Timm's name for it, in every family: heads, or queries, keys and values from one layer."""
    heads = getattr(module, "num_heads", None)
    return isinstance(heads, int) or isinstance(getattr(module, "qkv", None), nn.Module)


def _built(name: str) -> nn.Module:
    try:
        with torch.device("meta"):
            return timm.create_model(name)
    except (NotImplementedError, RuntimeError):  # a constructor that reads its own numbers
        return timm.create_model(name)
