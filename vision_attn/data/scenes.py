"""Scenes to segment, and to find and count things in: images placed on a larger canvas."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vision_attn.errors import UserError

__all__ = ["INK", "Scenes", "make_scenes"]

INK = 64
"""Grey level, of 255, from which a pixel belongs to its digit."""


@dataclass(frozen=True)
class Scenes:
    """S scenes with the truth about them; M is the most objects that any may hold.

    Args:
        images: uint8 (S, 1, h, w).
        labels: uint8 (S, h, w), the class of each pixel; `num_classes` is background.
        boxes: float32 (S, M, 4), centre x, centre y, width, height as shares of the canvas, tight
            around the labelled pixels.
        classes: int64 (S, M), class of each box; unused places hold -1 and come last.
        num_classes: classes of things, background apart.
    """

    images: Tensor
    labels: Tensor
    boxes: Tensor
    classes: Tensor
    num_classes: int

    def __len__(self) -> int:
        return len(self.images)


def make_scenes(
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    count: int,
    *,
    canvas: tuple[int, int] = (24, 24),
    objects: tuple[int, int] = (1, 4),
    num_classes: int = 10,
    seed: int = 0,
) -> Scenes:
    """Place images, uint8 (n, p, q) of classes (n,), at random without overlap.

    Args:
        count: scenes to make.
        canvas: height and width of a scene in pixels.
        objects: fewest and most objects of a scene; each number is equally likely.
        seed: decides everything.

    Raises:
        UserError: more objects than the canvas has room for, or an image without a pixel of `INK`.
    """
    (h, w), (p, q), (least, most) = canvas, images.shape[1:], objects
    room = (h // p) * (w // q)
    if not 0 <= least <= most <= room:
        raise UserError(
            f"objects {least} to {most}: wanted 0 or more, and no more than the {room} images of"
            f" {p} x {q} that fit on a canvas of {h} x {w}"
        )
    if not (images >= INK).any((1, 2)).all():
        raise UserError(f"an image has no pixel of grey level {INK} or more; it cannot be labelled")
    rng = np.random.default_rng(seed)
    scenes = np.zeros((count, 1, h, w), np.uint8)
    maps = np.full((count, h, w), num_classes, np.uint8)
    boxes = np.zeros((count, most, 4), np.float32)
    classes = np.full((count, most), -1, np.int64)
    for s in range(count):
        for m, (y, x) in enumerate(_places(rng, int(rng.integers(least, most + 1)), canvas, p, q)):
            i = int(rng.integers(len(images)))
            ink = images[i] >= INK
            scenes[s, 0, y : y + p, x : x + q] = images[i]
            maps[s, y : y + p, x : x + q][ink] = labels[i]
            rows, cols = ink.any(1).nonzero()[0], ink.any(0).nonzero()[0]
            top, bottom = y + rows[0], y + rows[-1] + 1
            left, right = x + cols[0], x + cols[-1] + 1
            middle = ((left + right) / 2 / w, (top + bottom) / 2 / h)
            boxes[s, m] = (*middle, (right - left) / w, (bottom - top) / h)
            classes[s, m] = labels[i]
    return Scenes(
        torch.from_numpy(scenes),
        torch.from_numpy(maps),
        torch.from_numpy(boxes),
        torch.from_numpy(classes),
        num_classes,
    )


def _places(
    rng: np.random.Generator, count: int, canvas: tuple[int, int], p: int, q: int
) -> list[tuple[int, int]]:
    """Corners of `count` cells of p x q that do not overlap, one after another among what is free.

    A placement that leaves no room for the rest is thrown away whole.
    """
    h, w = canvas
    for _ in range(10_000):
        places: list[tuple[int, int]] = []
        free = np.ones((h - p + 1, w - q + 1), bool)
        while len(places) < count and free.any():
            corners = free.ravel().nonzero()[0]
            y, x = divmod(int(corners[rng.integers(len(corners))]), free.shape[1])
            places.append((y, x))
            free[max(y - p + 1, 0) : y + p, max(x - q + 1, 0) : x + q] = False
        if len(places) == count:
            return places
    raise UserError(
        f"{count} images of {p} x {q} do not fit on a canvas of {h} x {w} in 10,000 tries;"
        " make the canvas larger"
    )
