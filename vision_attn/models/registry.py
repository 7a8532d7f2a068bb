"""Image classifiers by name: ours (registered with timm as `vision_attn_*`) and any `timm:NAME`.

Which of them attend is told of ours by the name, of others by what they hold.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

import timm
import torch
from torch import nn

from vision_attn.errors import UserError
from vision_attn.layers.replace import is_attention
from vision_attn.models.probe import FAILURES, check_runs
from vision_attn.names import has_attention
from vision_attn.ops.checks import (
    arguments_of,
    check_known,
    check_memory,
    check_pair,
    check_whole,
    weight_sources,
)

__all__ = ["attends", "create_model", "known_models"]


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

    Nothing is fetched and no file is read, whatever `args` say: they may come from a checkpoint or
    a configuration that somebody else wrote. timm's own `create_model` gives trained weights. A
    model of timm is run once on a blank image.

    Args:
        name: one of `known_models()`, or `timm:NAME`.
        args: further arguments of the model; an unknown one is an error that names it.

    Raises:
        UserError: unknown name or argument, an argument out of its range or that names a source of
            weights, sizes that do not fit, a model that leaves pixels unseen or gives no logits.
    """
    entry = name.removeprefix("timm:") if name.startswith("timm:") else f"vision_attn_{name}"
    if not timm.is_model(entry):
        pool = [f"timm:{m}" for m in timm.list_models()] if "timm:" in name else known_models()
        near = get_close_matches(name, pool, n=3) or known_models()
        raise UserError(
            f"model {name!r} is not known; try {', '.join(near)}, or timm:NAME for any of timm"
        )
    sizes: dict[str, Any] = {"img_size": img_size, "in_chans": in_chans, "num_classes": num_classes}
    args = dict(args or {})
    try:
        _check_args(entry, sizes, args)
        if entry != name.removeprefix("timm:"):
            return timm.create_model(entry, **sizes, **args)
        model = _build_timm(entry, sizes, args)
        check_runs(model, **sizes)
    except UserError as e:
        raise UserError(f"model {name!r}: {e}") from e
    return model


def _build_timm(entry: str, sizes: dict[str, Any], args: dict[str, Any]) -> nn.Module:
    """A model of timm; its CNNs take images of any size and no `img_size`."""
    for arguments in (sizes, {k: v for k, v in sizes.items() if k != "img_size"}):
        try:
            return timm.create_model(entry, **arguments, **args)
        except TypeError as e:
            if "img_size" in arguments and "img_size" in str(e):
                continue
            raise UserError(_cannot_be_built(e)) from e
        except FAILURES as e:
            raise UserError(_cannot_be_built(e)) from e
    raise AssertionError("the second shape has no img_size")


def _cannot_be_built(e: BaseException) -> str:
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    return f"cannot be built: {lines[0] if lines else type(e).__name__}"


_OTHERS = ("features_only", "scriptable", "exportable", "no_jit")


def _check_args(entry: str, sizes: dict[str, Any], args: dict[str, Any]) -> None:
    """A UserError for what no model of a study may have, before anything is built."""
    for key in weight_sources(args):
        raise UserError(
            f"argument {key!r} names a source of trained weights, and models are built untrained;"
            " take it out"
        )
    for key in args:
        if key in sizes:
            raise UserError(f"{key} comes from the data, it is not set by hand")
        if key in _OTHERS:
            raise UserError(f"argument {key!r} makes something else than a classifier; take it out")
    check_pair(img_size=sizes["img_size"])
    check_whole(in_chans=sizes["in_chans"])
    check_whole(0, num_classes=sizes["num_classes"])
    (h, w), chans = sizes["img_size"], sizes["in_chans"]
    check_memory(
        f"img_size {h} x {w}: a batch of 64 images", 64 * h * w * chans, "take a smaller one"
    )
    model = timm.model_entrypoint(entry).__annotations__.get("return")
    known = None
    if entry.startswith("vision_attn_") and isinstance(model, type):
        known = arguments_of(model)
        check_known("argument", args, known)
    for key, value in args.items():
        if value is None and (known is None or not known[key]):  # timm drops it unread
            raise UserError(f"argument {key!r} is null; leave it out")


def attends(arch: str, args: Mapping[str, Any] | None = None) -> bool:
    """Whether a model has attention: `vit`, `cnn`, ... of this package, or `timm:NAME`.

    A model of timm is built once, without memory for its weights, and its modules are looked at. A
    name that is not registered attends to nothing, nor does a model of another `mixer`.

    Args:
        args: arguments of the model, as in `create_model`.
    """
    told = has_attention(arch, args)
    return _attends(arch) if told is None else told


@cache
def _attends(arch: str) -> bool:
    name = arch.removeprefix("timm:") if arch.startswith("timm:") else f"vision_attn_{arch}"
    if not timm.is_model(name):
        return False
    return any(is_attention(m) for m in _built(name).modules())


def _built(name: str) -> nn.Module:
    try:
        with torch.device("meta"):
            return timm.create_model(name)
    except (NotImplementedError, RuntimeError):  # a constructor that reads its own numbers
        return timm.create_model(name)
