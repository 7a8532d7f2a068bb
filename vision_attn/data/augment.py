"""Batched augmentation of uint8 images on their own device, and normalisation to float32."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import torch
from PIL.Image import Image
from torch import Tensor

from vision_attn.data.config import AugmentConfig, check_recipe
from vision_attn.errors import UserError

__all__ = [
    "AugmentConfig", "Normalise", "Transform", "augment", "crop_flip", "mix", "transform_of",
]  # fmt: skip

Transform = Callable[[Tensor], Tensor]
"""Of one image, uint8 (C, h, w) -> the same."""


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


def augment(
    x: Tensor, config: AugmentConfig, flip_ok: bool, seed: int, transform: Transform | None = None
) -> Tensor:
    """RandAugment, `transform`, then crop and flip: uint8 (B, C, h, w) -> the same.

    All is drawn from `seed`.
    """
    if config.randaugment:
        x = _randaugment(x, config.randaugment, seed)
    if transform is not None:
        with _seeded_globals(seed):
            x = torch.stack([_applied(transform, i) for i in x.cpu()]).to(x.device)
    flip = config.flip and flip_ok
    if config.pad or flip:
        generator = torch.Generator(x.device).manual_seed(seed)
        x = crop_flip(x, config.pad, flip, generator)
    return x


def transform_of(augment: AugmentConfig | Transform, image: Tensor) -> Transform | None:
    """`augment.transforms` one after the other, or None, tried on an image, uint8 (C, h, w).

    Raises:
        UserError: a class that there is not, other arguments, a failure, or another kind of image.
    """
    if not isinstance(augment, AugmentConfig):
        transform = augment
    elif not augment.transforms:
        return None
    else:
        from torchvision.transforms.v2 import Compose

        transform = Compose([_made(entry) for entry in augment.transforms])
    try:
        with _seeded_globals(0):
            _applied(transform, image)
    except (TypeError, ValueError, RuntimeError) as e:
        if isinstance(e, UserError):
            raise
        raise UserError(f"augment.transforms on an image of {tuple(image.shape)}: {e}") from e
    return transform


def _made(value: Any) -> Any:
    """The object that a mapping with a class_path describes; all else as it is."""
    if isinstance(value, list | tuple):
        return [_made(v) for v in value]
    if not isinstance(value, dict) or "class_path" not in value:
        return value
    path = value["class_path"]
    module, _, name = path.rpartition(".")
    given = {k: _made(v) for k, v in (value.get("init_args") or {}).items()}
    try:
        made = getattr(import_module(module or "torchvision.transforms.v2"), name)(**given)
    except (ImportError, AttributeError, TypeError, ValueError) as e:
        raise UserError(f"augment.transforms: {path}: {e}") from e
    return made


def _applied(transform: Transform, image: Tensor) -> Tensor:
    out = transform(image)
    if not isinstance(out, Tensor) or out.dtype != torch.uint8 or out.shape != image.shape:
        what = type(out).__name__
        if isinstance(out, Tensor):
            what = f"{str(out.dtype).removeprefix('torch.')} of {tuple(out.shape)}"
        raise UserError(
            f"augment.transforms make {what} of a uint8 image of {tuple(image.shape)}; wanted the"
            " same kind (normalisation comes after them)"
        )
    return out


def _randaugment(x: Tensor, recipe: str, seed: int) -> Tensor:
    """timm's RandAugment (Cubuk et al. 2020), an image at a time on the CPU."""
    from torchvision.transforms.functional import pil_to_tensor, to_pil_image

    transform, mode = _transform(recipe), "RGB" if x.shape[1] == 3 else "L"
    with _seeded_globals(seed):
        images = [transform(to_pil_image(i).convert("RGB")).convert(mode) for i in x.cpu()]
    return torch.stack([pil_to_tensor(i) for i in images]).to(x.device)


def _transform(recipe: str) -> Callable[[Image], Image]:
    """timm's transform of a recipe."""
    from timm.data.auto_augment import rand_augment_transform

    check_recipe(recipe)
    return rand_augment_transform(recipe, {"img_mean": (128,) * 3})


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
    """timm and torchvision draw from global generators; their state is restored afterwards."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(seed)
            yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
