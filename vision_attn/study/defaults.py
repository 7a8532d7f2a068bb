"""Arguments and sizes that a study leaves open, taken from its images; memory looked at ahead."""

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vision_attn.data.subsets import subset
from vision_attn.errors import UserError
from vision_attn.study.config import Study

if TYPE_CHECKING:
    from vision_attn.data.sources import Source  # which imports torch

__all__ = ["follow_images", "large_attention", "patch_for", "start_args"]

FEWEST, MOST = 36, 64
"""Tokens that a patch is chosen for, where one divides the image so."""

BEARABLE = (16, 256)
"""Tokens that are taken where no patch gives `FEWEST` to `MOST`."""

BATCH = 64
"""Images of an update, half as many where they have more than `SMALL` pixels."""

SMALL = 32 * 32

MANY = 1024
"""Tokens above which full attention is named with its memory."""

_PATCHES = ("vit", "conv_stem_vit", "conv_init_vit", "local_vit")
_FULL = {"vit": 3, "pixel_vit": 3, "conv_stem_vit": 3, "conv_init_vit": 9}
"""Models whose tokens all attend to each other, with their heads where none are given."""


def start_args(dataset: str, archs: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Arguments where a study gives none; a patch_size of None is to follow the images.

    Args:
        dataset: its name; digits have arguments of their own.
        archs: model of each label.
    """
    width: dict[str, Any] = {"embed_dim": 64, "depth": 4, "num_heads": 4}
    if dataset == "digits":
        return {"vit": {"patch_size": 2, **width}}
    labels = [label for label, arch in archs.items() if arch in _PATCHES]
    patches: dict[str, dict[str, Any]] = {label: {"patch_size": None} for label in labels}
    return {**patches, "vit": {"patch_size": None, **width}}


def follow_images(study: Study, source: "Source") -> tuple[Study, str | None]:
    """The study with nothing left open, and a line on what was chosen for its images, if anything.

    Raises:
        UserError: images that no patch divides well.
    """
    args = start_args(source.name, study.archs) if study.args is None else dict(study.args)
    h, w = source.img_size
    chosen = []
    open_labels = [k for k, v in args.items() if v.get("patch_size", 0) is None]
    if open_labels:
        patch = patch_for(h, w)
        args |= {label: {**args[label], "patch_size": patch} for label in open_labels}
        chosen.append(f"patch_size {patch}, {h * w // patch**2} tokens")
    sizes = study.sizes
    if sizes is None:
        sizes = _sizes(study, source)
        if source.name != "digits":
            chosen.append(f"sizes {', '.join(map(str, sizes))}")
    batch_size = study.batch_size
    if batch_size is None:
        batch_size = BATCH if h * w <= SMALL else BATCH // 2
        if batch_size != BATCH:
            chosen.append(f"batch_size {batch_size}")
    data = replace(study.data, name=source.name, label=source.label)
    line = f"{h} x {w} pixels: {'; '.join(chosen)}" if chosen else None
    study = replace(study, data=data, args=args, sizes=sizes, batch_size=batch_size)
    return study, line


def patch_for(h: int, w: int) -> int:
    """A patch that divides h x w pixels into 36 to 64 tokens, or as near to that as there is.

    A power of two is taken first, since convolutions in front of the tokens want one.
    """
    both = math.gcd(h, w)
    tokens = {p: h * w // p**2 for p in range(1, both + 1) if both % p == 0}
    good = [p for p, n in tokens.items() if FEWEST <= n <= MOST]
    if good:
        return min(good, key=lambda p: (p & (p - 1) > 0, p))
    middle = math.sqrt(FEWEST * MOST)
    patch = min(tokens, key=lambda p: abs(math.log(tokens[p] / middle)))
    if BEARABLE[0] <= tokens[patch] <= BEARABLE[1]:
        return patch
    side = max(min(h, w, 224) // 8 * 8, 8)
    raise UserError(
        f"no patch_size divides images of {h} x {w} pixels into {BEARABLE[0]} to {BEARABLE[1]}"
        f" tokens; add --data.img_size {side}, or give --args.vit.patch_size"
    )


def _sizes(study: Study, source: "Source") -> list[Any]:
    """20, 50, 100, 200 ... while every draw can be balanced, then all; digits have their own."""
    if source.name == "digits":
        return [20, 50, 100, 200, 400, "all"]
    classes = len(source.classes)
    whole = largest = len(source.train_labels)
    for draw in range(study.first_draw + study.draws):
        pool = subset(
            source.train_labels,
            name=source.name,
            draw=draw,
            size=None,
            num_classes=classes,
            val_fraction=study.data.val_fraction,
            classes=source.classes,
            label=source.label,
        ).train
        whole = min(whole, len(pool))
        counts = np.bincount(source.train_labels[pool], minlength=classes)
        largest = min(largest, int(counts.min()) * classes)
    series = [m * 10**e for e in range(1, 10) for m in (1, 2, 5)][1:]
    # one that is nearly all of the images would say the same twice
    return [n for n in series if classes <= n <= largest and n <= 0.8 * whole] + ["all"]


def large_attention(study: Study, source: "Source") -> list[str]:
    """A line on each model with more than 1,024 tokens that all attend to each other.

    The memory is that of the scores while FLOPs of one image are counted, before the first run.

    Raises:
        UserError: more than half of this machine's memory.
    """
    lines = []
    for label, arch in study.archs.items():
        args: Mapping[str, Any] = (study.args or {}).get(label, {})
        patch = args.get("patch_size", 1 if arch == "pixel_vit" else 4)
        depth, heads = args.get("depth", 4), args.get("num_heads", _FULL.get(arch, 1))
        sides = list(patch) if isinstance(patch, list | tuple) else [patch, patch]
        if arch not in _FULL or not all(type(n) is int and n > 0 for n in (*sides, depth, heads)):
            continue  # what is no number is refused when the model is built
        tokens = (source.img_size[0] // sides[0]) * (source.img_size[1] // sides[-1])
        if tokens <= MANY:
            continue
        scores = 4 * heads * tokens**2 * (depth + 2)  # a layer's are kept, two more are in work
        line = (
            f"{label}: {tokens:,} tokens that all attend to each other,"
            f" {scores / 2**30:,.1f} GiB for the scores of one image; smaller:"
            f" {_smaller(label, arch, source)}"
        )
        memory = _memory()
        if memory is not None and 2 * scores > memory:
            raise UserError(f"{line} (this machine has {memory / 2**30:,.0f} GiB)")
        lines.append(line)
    return lines


def _smaller(label: str, arch: str, source: "Source") -> str:
    """Options that give fewer tokens."""
    h, w = source.img_size
    ways, side = [], 32 if arch == "pixel_vit" else 64
    if arch != "pixel_vit":
        with suppress(UserError):
            ways.append(f"--args.{label}.patch_size {patch_for(h, w)}")
    if source.name == "folder" and min(h, w) > side:
        ways.append(f"--data.img_size {side}")
    return " or ".join(ways) or "another model"


def _memory() -> int | None:
    """Bytes that this process may have: the machine's, or its container's; None if not known."""
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text(encoding="utf-8").strip() if limit.is_file() else ""
    return min(memory, int(text)) if text.isdigit() else memory
