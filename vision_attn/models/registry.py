"""Image classifiers by name: ours (registered with timm as `vision_attn_*`) and any `timm:NAME`."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import timm
from torch import nn

from vision_attn.errors import UserError
from vision_attn.models.probe import check_runs
from vision_attn.ops.checks import check_memory, check_pair, check_whole

__all__ = ["create_model", "known_models", "no_pretrained"]


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
    given: dict[str, Any] = {"img_size": img_size, "in_chans": in_chans, "num_classes": num_classes}
    args = dict(args or {})
    try:
        _check_args(entry, given, args)
        if entry != name.removeprefix("timm:"):
            return timm.create_model(entry, **given, **args)
        model = _build_timm(entry, given, args)
        check_runs(model, **given)
    except UserError as e:
        raise UserError(f"model {name!r}: {e}") from e
    return model


def _build_timm(entry: str, given: dict[str, Any], args: dict[str, Any]) -> nn.Module:
    """A model of timm; its CNNs take images of any size and no `img_size`."""
    for shape in (given, {k: v for k, v in given.items() if k != "img_size"}):
        try:
            return timm.create_model(entry, **shape, **args)
        except TypeError as e:
            if "img_size" in shape and "img_size" in str(e):
                continue
            raise UserError(_said(e)) from e
        except _FAILURES as e:
            raise UserError(_said(e)) from e
    raise AssertionError("the second shape has no img_size")


_FAILURES = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, NotImplementedError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What a builder of timm may raise for arguments that do not fit it."""


def _said(e: BaseException) -> str:
    lines = [line.strip() for line in str(e).splitlines() if line.strip()]
    return f"cannot be built: {lines[0] if lines else type(e).__name__}"


_SOURCES = ("pretrained", "checkpoint", "cache_dir", "hf_hub")
_OTHERS = ("features_only", "scriptable", "exportable", "no_jit")


def _check_args(entry: str, given: dict[str, Any], args: dict[str, Any]) -> None:
    """A UserError for what no model of a study may be given, before anything is built."""
    for key in _keys(args):
        if key.startswith(_SOURCES) or key.endswith("_overlay"):
            raise UserError(
                f"argument {key!r} names a source of trained weights, and models are built"
                " untrained; take it out"
            )
    for key in args:
        if key in given:
            raise UserError(f"{key} comes from the data, it is not set by hand")
        if key in _OTHERS:
            raise UserError(f"argument {key!r} makes something else than a classifier; take it out")
    check_pair(img_size=given["img_size"])
    check_whole(in_chans=given["in_chans"])
    check_whole(0, num_classes=given["num_classes"])
    (h, w), chans = given["img_size"], given["in_chans"]
    check_memory(
        f"img_size {h} x {w}: a batch of 64 images", 64 * h * w * chans, "take a smaller one"
    )
    known = _arguments(entry)
    for key, value in args.items():
        if known is not None and key not in known:
            near = get_close_matches(key, known, n=3, cutoff=0.5) or sorted(set(known) - set(given))
            raise UserError(f"there is no argument {key!r}; try {', '.join(near)}")
        if value is None and (known is None or known[key] is not None):  # timm drops it unread
            raise UserError(f"argument {key!r} is null; leave it out")


def _arguments(entry: str) -> dict[str, Any] | None:
    """All arguments of one of our models and their defaults, its bases' too; None for timm's."""
    model = timm.model_entrypoint(entry).__annotations__.get("return")
    if not entry.startswith("vision_attn_") or not isinstance(model, type):
        return None
    known: dict[str, Any] = {}
    for cls in model.__mro__:
        parameters = inspect.signature(vars(cls).get("__init__", cls)).parameters.values()
        for p in parameters:
            if p.name != "self" and p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD):
                known.setdefault(p.name, p.default)
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return known


def _keys(args: Any) -> Iterator[str]:
    """Every key of a tree of mappings and lists."""
    if isinstance(args, Mapping):
        for key, value in args.items():
            yield str(key)
            yield from _keys(value)
    elif isinstance(args, list | tuple):
        for value in args:
            yield from _keys(value)


def no_pretrained(pretrained: bool, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments without those that timm adds for weights from a hub; there are none."""
    if pretrained:
        raise UserError("pretrained=True: this package has no trained weights; use timm:NAME")
    return {k: v for k, v in given.items() if k not in _TIMM_ONLY}


_TIMM_ONLY: Sequence[str] = ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")
