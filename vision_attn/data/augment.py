"""Batched augmentation of uint8 images on their own device, and normalisation to float32."""

import math
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from vision_attn.errors import UserError

__all__ = ["AugmentConfig", "Normalise", "augment", "crop_flip", "mix"]


MOST_ALPHA = 100
"""Of mixup and cutmix: from there on all shares are 1/2."""

_RECIPE = {"m": 30, "n": 10, "p": 1, "mstd": math.inf, "mmax": 30, "inc": 1}
"""The numbers in a recipe of RandAugment, each with its largest sensible value; the least is 0."""
_OPERATIONS = {"tweights", "t3a", "t3aw"}
"""timm's sets of operations; it reads any other name as the usual set."""


@dataclass(kw_only=True)
class AugmentConfig:
    """Augmentation of training images; all off by default.

    Args:
        pad: zero pixels all round, then a random crop of the old size; 0 is off.
        flip: mirror half of the images, where the data set allows it (digits do not).
        randaugment: timm's string, e.g. rand-m9-n2-mstd0.5; null is off.
        mixup: alpha of mixup (Zhang et al. 2018); 0 is off.
        cutmix: alpha of cutmix (Yun et al. 2019); 0 is off.
    """

    pad: int = 0
    flip: bool = False
    randaugment: str | None = None
    mixup: float = 0.0
    cutmix: float = 0.0

    @property
    def mixes(self) -> bool:
        """Whether labels become soft."""
        return bool(self.mixup or self.cutmix)

    def check_batch(self, batch: int) -> None:
        """Raise UserError on an odd batch: mixup pairs image i with image n-1-i."""
        if self.mixes and batch % 2:
            raise UserError(
                f"augment.mixup and cutmix mix images of a batch in pairs: a batch of {batch}"
                f" is odd; try {batch + 1}, or turn both off"
            )

    def check_size(self, img_size: tuple[int, int]) -> None:
        """Raise UserError where a crop of (h, w) pixels could lie in the padding alone."""
        h, w = img_size
        if self.pad >= min(h, w):
            raise UserError(
                f"augment.pad is {self.pad}, and a crop of {h} x {w} pixels could miss the image;"
                f" wanted 0 to {min(h, w) - 1}"
            )

    def check(self) -> None:
        """Raise UserError on values out of range, before any work starts."""
        if self.pad < 0:
            raise UserError(f"augment.pad is {self.pad}; wanted 0 or more pixels")
        for name in ("mixup", "cutmix"):
            if not 0 <= getattr(self, name) <= MOST_ALPHA:
                raise UserError(
                    f"augment.{name} is {getattr(self, name)}; wanted alpha >= 0, at most"
                    f" {MOST_ALPHA}"
                )
        if self.randaugment:
            _transform(self.randaugment)


class Normalise:
    """uint8 (B, C, h, w) to float32 with zero mean and unit variance a channel of the subset."""

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        """Mean and standard deviation a channel, in grey levels 0 to 255."""
        scale = 1 / std.clamp_min(1.0)
        self.scale, self.shift = scale[:, None, None], (-mean * scale)[:, None, None]

    def __call__(self, x: Tensor) -> Tensor:
        """uint8 (B, C, h, w) -> float32 (B, C, h, w)."""
        scale, shift = self.scale.to(x.device), self.shift.to(x.device)
        return torch.addcmul(shift, x.to(torch.float32), scale)


def crop_flip(x: Tensor, pad: int, flip: bool, generator: torch.Generator) -> Tensor:
    """Pad by zeros, crop back at random, mirror half: uint8 (B, C, h, w) -> the same.

    One gather for the whole batch: each output pixel looks up its source row and column.
    """
    b, c, h, w = x.shape
    dev = x.device
    row = torch.arange(h, device=dev).expand(b, h)
    col = torch.arange(w, device=dev).expand(b, w)
    if flip:
        mirrored = torch.rand(b, 1, generator=generator, device=dev) < 0.5
        col = torch.where(mirrored, w - 1 - col, col)
    if pad:
        row = row + torch.randint(-pad, pad + 1, (b, 1), generator=generator, device=dev)
        col = col + torch.randint(-pad, pad + 1, (b, 1), generator=generator, device=dev)
    where = (row.clamp(0, h - 1) * w)[:, :, None] + col.clamp(0, w - 1)[:, None, :]
    out = x.flatten(2).gather(2, where.view(b, 1, -1).expand(-1, c, -1)).view(b, c, h, w)
    if not pad:
        return out
    inside = ((row >= 0) & (row < h))[:, :, None] & ((col >= 0) & (col < w))[:, None, :]
    return out * inside[:, None]


def augment(x: Tensor, config: AugmentConfig, flip_ok: bool, seed: int) -> Tensor:
    """RandAugment, then crop and flip, all drawn from `seed`: uint8 (B, C, h, w) -> the same."""
    if config.randaugment:
        x = _randaugment(x, config.randaugment, seed)
    flip = config.flip and flip_ok
    if config.pad or flip:
        generator = torch.Generator(x.device).manual_seed(seed)
        x = crop_flip(x, config.pad, flip, generator)
    return x


def _randaugment(x: Tensor, recipe: str, seed: int) -> Tensor:
    """timm's RandAugment (Cubuk et al. 2020), an image at a time on the CPU."""
    from torchvision.transforms.functional import pil_to_tensor, to_pil_image

    transform, mode = _transform(recipe), "RGB" if x.shape[1] == 3 else "L"
    with _seeded_globals(seed):
        images = [transform(to_pil_image(i).convert("RGB")).convert(mode) for i in x.cpu()]
    return torch.stack([pil_to_tensor(i) for i in images]).to(x.device)


def _transform(recipe: str) -> Callable[[Image], Image]:
    """timm's transform of a recipe; timm itself ignores parts that it does not know."""
    from timm.data.auto_augment import rand_augment_transform

    first, *parts = recipe.split("-")
    read = [
        re.fullmatch(r"([a-z]+)([0-9]+(?:\.[0-9]+)?)", p) for p in parts if p not in _OPERATIONS
    ]
    numbers = {part[1]: float(part[2]) for part in read if part}
    known = first == "rand" and numbers.keys() <= _RECIPE.keys() and len(numbers) == len(read)
    most = {**_RECIPE, "m": numbers.get("mmax", 10)}  # above which timm cuts
    for name, number in numbers.items() if known else ():
        if number > most[name]:
            raise UserError(
                f"augment.randaugment {recipe!r} has {name} {number:g}; wanted 0 to {most[name]:g}"
            )
    try:
        if known:
            return rand_augment_transform(recipe, {"img_mean": (128,) * 3})
    except ValueError:  # m9.5
        pass
    raise UserError(
        f"augment.randaugment {recipe!r} is not a recipe of timm's; try rand-m9-n2-mstd0.5"
    )


def mix(
    x: Tensor, y: Tensor, config: AugmentConfig, num_classes: int, seed: int
) -> tuple[Tensor, Tensor]:
    """timm's mixup and cutmix of a batch with its reverse: y (B,) becomes soft, (B, classes)."""
    if not config.mixes:
        return x, y
    from timm.data.mixup import Mixup

    mixup = Mixup(config.mixup, config.cutmix, label_smoothing=0.0, num_classes=num_classes)
    with _seeded_globals(seed):
        return mixup(x, y)


@contextmanager
def _seeded_globals(seed: int) -> Iterator[None]:
    """timm draws from the global generators; their state is restored afterwards."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
