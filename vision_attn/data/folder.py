"""A folder of images, split into classes and parts: in memory, or on disk until asked for."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from vision_attn.data.images import channels, decode, formats, named, upright_size
from vision_attn.data.listing import content_of, counted, digest_of, list_images, parts, split
from vision_attn.errors import printable

__all__ = ["Files", "Unread", "common_size", "read_folder"]

_BLOCK = 2**22
"""Bytes of pixels that are decoded at a time, in each thread."""

SIDE = 64
"""Pixels of the shorter side from which images are resized where nothing else is asked for: so a
study of some hundred photos takes minutes on a CPU."""

LARGEST_ADVICE = 224
"""Most pixels of a side that a message proposes: what models of timm are usually made for."""

_Size = tuple[int, int]


class Unread(ABC):
    """Images left where they are: decoded, resized and stacked when a batch asks for them.

    A tensor of images by its `shape`, its length and its index of numbers.
    """

    chans: int
    img_size: tuple[int, int]

    @abstractmethod
    def __len__(self) -> int:
        """Images n."""

    @abstractmethod
    def pixels(self, number: int) -> NDArray[np.uint8]:
        """One image, (C, h, w)."""

    @abstractmethod
    def take(self, index: NDArray[np.int64]) -> "Unread":
        """The images with these numbers, unread."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(n, C, h, w)."""
        return (len(self), self.chans, *self.img_size)

    def __getitem__(self, index: Tensor) -> Tensor:
        """(n,) indices -> uint8 (n, C, h, w)."""
        return torch.from_numpy(np.stack([self.pixels(i) for i in index.tolist()]))

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return map(self.pixels, range(len(self)))


@dataclass(frozen=True)
class Files(Unread):
    """Images in files."""

    paths: tuple[str, ...]
    chans: int
    img_size: tuple[int, int]

    def __len__(self) -> int:
        return len(self.paths)

    def pixels(self, number: int) -> NDArray[np.uint8]:
        """One image, (C, h, w)."""
        path = self.paths[number]
        return decode(path, content_of(path), self.chans, self.img_size)

    def take(self, index: NDArray[np.int64]) -> "Files":
        """The files with these numbers."""
        return replace(self, paths=tuple(self.paths[i] for i in index))


def read_folder(
    root: Path, img_size: _Size | None, memory_mb: int, test_fraction: float = 0.2
) -> dict[str, Any]:
    """Classes, images and labels under root/train/<class>/* and root/test/<class>/*.

    Without test/, or for root/<class>/*, each image falls to train or test by a hash of its
    content: files of equal content to the same part, on any machine, whatever else is added.

    Images are uint8 (n, C, h, w), or `Files` where they need more than `memory_mb`; each is decoded
    once in either case. Without `img_size` they stay as they are if all are of one size whose
    shorter side is no more than `SIDE`; else they become squares of at most that, and a note says
    so.

    Folders inside a class belong to it, and links are followed. Names that begin with a dot are
    left out; `notes` count what else is, and what is odd, a line each.

    Raises:
        UserError: a missing folder or class, a file that is no image, a class of which the split
            leaves a part without images.
    """
    skipped: Counter[str] = Counter()
    places = parts(root)
    classes, paths, labels = list_images(places, skipped)
    notes = [counted(root, skipped)] if skipped else []
    if len(places) == 1:
        paths, labels = split(places[0], classes, paths[0], labels[0], test_fraction)
        whole = len(paths[0]) + len(paths[1])
        notes.append(
            f"{root} has no test/: {len(paths[1]):,} of {whole:,} images are the test set, by a"
            f" hash of their content (data.test_fraction {test_fraction:g})"
        )
    train, test = paths
    missing = [name for i, name in enumerate(classes) if i not in labels[1]]
    if missing:
        notes.append(f"{root / 'test'} has no images of class {', '.join(missing)}")
    fingerprint = blake2b(digest_size=8)
    with ThreadPoolExecutor() as pool:
        chans, size, more = _look([*train, *test], img_size, pool)
        notes += more
        fits = (len(train) + len(test)) * chans * size[0] * size[1] <= memory_mb * 2**20
        images: list[NDArray[np.uint8] | Files] = []
        digests: list[list[bytes]] = []
        for some, numbers in zip(paths, labels, strict=True):
            shape = (len(some), chans, *size)
            array = np.empty(shape, np.uint8) if fits else None
            digests.append([b""] * len(some))
            fingerprint.update(str(shape).encode())
            for block in _blocks(some, shape, array, digests[-1], pool):
                fingerprint.update(block.data)
            fingerprint.update(str(numbers.shape).encode() + numbers.tobytes())
            images.append(Files(tuple(some), chans, size) if array is None else array)
    notes += _copies(paths, digests, labels[0])
    return {
        "classes": tuple(map(printable, classes)),
        "flip": True,
        "train_images": images[0],
        "train_labels": labels[0],
        "test_images": images[1],
        "test_labels": labels[1],
        "fingerprint": fingerprint.hexdigest(),
        "notes": tuple(map(printable, notes)),
    }


def _blocks(
    paths: list[str],
    shape: tuple[int, int, int, int],
    array: NDArray[np.uint8] | None,
    digests: list[bytes],
    pool: ThreadPoolExecutor,
) -> Iterator[NDArray[np.uint8]]:
    """The pixels of all images in order, in flat pieces, which are those of `array` if it is given.

    Without it too each file is decoded, so that no epoch dies of a broken one. Fills `digests`, of
    the files' bytes.
    """
    n, chans, h, w = shape
    step = min(max(_BLOCK // (chans * h * w), 1), 256)

    def decoded(start: int) -> NDArray[np.uint8]:
        stop = min(start + step, n)
        block = (
            np.empty((stop - start, *shape[1:]), np.uint8) if array is None else array[start:stop]
        )
        for i in range(start, stop):
            content = content_of(paths[i])
            digests[i] = digest_of(content)
            block[i - start] = decode(paths[i], content, chans, (h, w))
        return block.reshape(-1)

    for first in range(0, n, 64 * step):  # so many pieces may wait to be used
        yield from pool.map(decoded, range(first, min(first + 64 * step, n), step))


def _look(
    paths: list[str], img_size: _Size | None, pool: ThreadPoolExecutor
) -> tuple[int, _Size, list[str]]:
    """Channels and size of a folder's images from their headers, and lines on both."""

    def headers(span: slice) -> list[tuple[int, _Size, bool]]:
        rows = []
        for path in paths[span]:
            with named(path), Image.open(path, formats=formats()) as image:
                # the second image of a phone's MPO is an aid to the first
                frames = image.format != "MPO" and getattr(image, "is_animated", False)
                chans, (w, h) = channels(image), image.size
                if img_size is None and h != w and min(h, w) <= SIDE:
                    h, w = upright_size(image)
                rows.append((chans, (h, w), frames))
        return rows

    spans = [slice(i, i + 256) for i in range(0, len(paths), 256)]
    rows = [row for part in pool.map(headers, spans) for row in part]
    notes = []
    if img_size is None:
        img_size, more = common_size(paths, [row[1] for row in rows])
        notes += more
    moving = [path for path, row in zip(paths, rows, strict=True) if row[2]]
    if moving:
        notes.append(
            f"{len(moving)} file{'s' * (len(moving) != 1)} with several frames, of which the first"
            f" is read, as {moving[0]}"
        )
    return max(row[0] for row in rows), img_size, notes


def common_size(paths: list[str], sizes: list[_Size]) -> tuple[_Size, list[str]]:
    """The one small size that all images have, or a square; and a line on what that changes.

    Half of the images are as large as the square or larger.
    """
    (small, first), (large, last) = (
        end(zip(sizes, paths, strict=True), key=lambda pair: (pair[0][0] * pair[0][1], pair[0]))
        for end in (min, max)
    )
    if small == large and min(small) <= SIDE:
        return small, []
    middle = sorted(min(size) for size in sizes)[(len(sizes) - 1) // 2]
    side, more = (n // 8 * 8 or n for n in (min(middle, most) for most in (SIDE, LARGEST_ADVICE)))
    what = f"all images are {small[0]} x {small[1]} pixels and"
    if small != large:
        what = (
            f"images differ in size, from {small[0]} x {small[1]} pixels ({first}) to"
            f" {large[0]} x {large[1]} ({last}), and"
        )
    cut = "" if small == large and small[0] == small[1] else "cut to squares and "
    hint = f"; more detail, in more time: --data.img_size {more}" if more > side else ""
    return (side, side), [f"{what} are {cut}resized to {side} x {side}{hint}"]


def _copies(
    paths: list[list[str]], digests: list[list[bytes]], labels: NDArray[np.int64]
) -> list[str]:
    """Lines on files that are equal, byte for byte, where they should not be."""
    train, test = paths
    first: dict[bytes, int] = {}
    torn: set[bytes] = set()
    for i, digest in enumerate(digests[0]):
        if labels[first.setdefault(digest, i)] != labels[i]:
            torn.add(digest)
    both = [i for i, digest in enumerate(digests[1]) if digest in first]
    several = [i for i, digest in enumerate(digests[0]) if digest in torn]
    notes = []
    if both:
        notes.append(
            f"{len(both)} of {len(test)} test images are training images too, byte for byte:"
            f" {test[both[0]]} is {train[first[digests[1][both[0]]]]}"
        )
    if several:
        notes.append(
            f"{len(several)} of {len(train)} training images are in several classes, byte for"
            f" byte, as {train[several[0]]}"
        )
    return notes
