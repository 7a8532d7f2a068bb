"""Folders of made-up images, and what is read of them."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from vision_attn.data.folder import Files
from vision_attn.data.images import decode
from vision_attn.data.sources import DataConfig, Source, load

Pixels = NDArray[Any]
RNG = np.random.default_rng(29)
H, W = 5, 7


def pixels(*shape: int) -> Pixels:
    """Random levels, in colour without a shape."""
    return RNG.integers(0, 256, shape or (H, W, 3), dtype=np.uint8)


def save(path: Path, array: Pixels, **options: Any) -> Path:
    """Write an image, and its folder; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)
    return path


def make(root: Path, *shape: int, classes: str = "ab", n: int = 3) -> dict[str, Pixels]:
    """n training and one test image of each class; returns the pixels by path."""
    names = [f"{part}/{name}/{i}.png" for part, count in (("train", n), ("test", 1))
             for name in classes for i in range(count)]  # fmt: skip
    made = {name: pixels(*shape) for name in names}
    for name, array in made.items():
        save(root / name, array)
    return made


def folder(root: Path, **more: Any) -> Source:
    """The data set in a folder."""
    return load(DataConfig(name="folder", root=str(root), **more))


def array_of(images: Tensor | Files) -> Pixels:
    """All images of a source, in memory or not."""
    return images[torch.arange(len(images))].numpy()


def read(path: Path, chans: int = 3, img_size: tuple[int, int] | None = None) -> Pixels:
    """The pixels of one file."""
    return decode(str(path), path.read_bytes(), chans, img_size)


def smooth(h: int = 64, w: int = 96) -> Pixels:
    """Pixels that survive a lossy format, no two corners alike."""
    y, x = np.mgrid[0:h, 0:w]
    return np.stack([255 * x / w, 255 * y / h, 128 + 0 * x], -1).astype(np.uint8)
