"""A folder of images, train/<class>/* and test/<class>/*: in memory, or on disk until asked for."""

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vision_attn.data.images import channels, decode, endings, formats, named, upright_size
from vision_attn.errors import UserError, printable

__all__ = ["Files", "read_folder"]

_BLOCK = 2**22
"""Bytes of pixels that are decoded at a time, in each thread."""

_NO_DATA = {"__MACOSX"}
"""What a Mac puts into archives; names that begin with a dot are no data either."""


@dataclass(frozen=True)
class Files:
    """Images left on disk: decoded, resized and stacked when a batch asks for them."""

    paths: tuple[str, ...]
    chans: int
    img_size: tuple[int, int]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: NDArray[np.int64]) -> NDArray[np.uint8]:
        """(n,) indices -> uint8 (n, C, h, w)."""
        paths = [self.paths[i] for i in index]
        return np.stack([decode(p, _content(p), self.chans, self.img_size) for p in paths])


def read_folder(root: Path, img_size: int | None, memory_mb: int) -> dict[str, Any]:
    """Classes, images and labels under root/train/<class>/* and root/test/<class>/*.

    Images are uint8 (n, C, h, w), or `Files` where they need more than `memory_mb`; each is decoded
    once in either case. Folders inside a class belong to it, and links are followed. Names that
    begin with a dot are left out; `notes` count what else is, and what is odd, a line each.

    Raises:
        UserError: a missing folder or class, images of several sizes without `img_size`, a file
            that is no image.
    """
    for part in ("train", "test"):
        if not (root / part).is_dir():
            raise UserError(f"data.root {root} {_what(root)} train/<class>/* and test/<class>/*")
    skipped: Counter[str] = Counter()
    classes, paths, labels = _list(root, skipped)
    train, test = paths
    notes = [_counted(root, skipped)] if skipped else []
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
            for block in _blocks(some, shape, img_size is not None, array, digests[-1], pool):
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
    paths: list[str], shape: tuple[int, int, int, int], resize: bool,
    array: NDArray[np.uint8] | None, digests: list[bytes], pool: ThreadPoolExecutor,
) -> Iterator[NDArray[np.uint8]]:  # fmt: skip
    """The pixels of all images in order, in flat pieces, which are those of `array` if it is given.

    Without it too each file is decoded, so that no epoch dies of a broken one. Fills `digests`, of
    the files' bytes.
    """
    n, chans, *size = shape
    step = min(max(_BLOCK // (chans * size[0] * size[1]), 1), 256)

    def decoded(start: int) -> NDArray[np.uint8]:
        stop = min(start + step, n)
        block = (
            np.empty((stop - start, *shape[1:]), np.uint8) if array is None else array[start:stop]
        )
        for i in range(start, stop):
            content = _content(paths[i])
            digests[i] = blake2b(content, digest_size=16).digest()
            image = decode(paths[i], content, chans, (size[0], size[1]) if resize else None)
            if image.shape[1:] != shape[2:]:
                raise _differ("one before", shape[2:], paths[i])
            block[i - start] = image
        return block.reshape(-1)

    for first in range(0, n, 64 * step):  # so many pieces may wait to be used
        yield from pool.map(decoded, range(first, min(first + 64 * step, n), step))


def _what(root: Path) -> str:
    """What is wrong with a root, as part of a sentence that goes on with what was wanted."""
    if not root.exists():
        return "does not exist; wanted a folder with"
    if not root.is_dir():
        return "is a file; wanted a folder with"
    return f"has no folder {'train' if not (root / 'train').is_dir() else 'test'}/; wanted"


def _list(
    root: Path, skipped: Counter[str]
) -> tuple[list[str], tuple[list[str], list[str]], tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Classes of train, and paths and class numbers of train and of test."""
    folders: dict[str, list[str]] = {}
    for part in ("train", "test"):
        folders[part] = []
        for entry in _entries(str(root / part)):
            if entry.is_dir():
                folders[part].append(entry.name)
            else:
                skipped["beside the class folders"] += 1
    classes = folders["train"]
    if len(classes) < 2:
        raise UserError(f"{root / 'train'} has {len(classes)} class folders; wanted 2 or more")
    extra = sorted(set(folders["test"]) - set(classes))
    if extra:
        raise UserError(f"class {extra[0]!r} is in {root / 'test'} and not in {root / 'train'}")
    ends = endings()
    paths: list[list[str]] = []
    labels = []
    for part in ("train", "test"):
        paths.append([])
        numbers: list[int] = []
        for i, name in enumerate(classes):
            if name not in folders[part]:
                continue
            here, others = root / part / name, Counter[str]()
            images = sorted(_images(str(here), ends, others), key=os.fsencode)
            if not images and part == "train":
                more = f"; {_counted(here, others)}" if others else ""
                raise UserError(f"class {name!r} has no images: {here} is empty{more}")
            skipped.update(others)
            paths[-1] += images
            numbers += [i] * len(images)
        labels.append(np.array(numbers, np.int64))
    if not paths[1]:
        raise UserError(f"{root / 'test'} has no images of any class")
    return classes, (paths[0], paths[1]), (labels[0], labels[1])


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """What a folder holds that can be data, in the order of the names' bytes."""
    try:
        with os.scandir(folder) as entries:
            kept = [e for e in entries if not e.name.startswith(".") and e.name not in _NO_DATA]
    except OSError as e:
        raise UserError(f"{folder} cannot be read: {e.strerror}") from e
    return sorted(kept, key=lambda e: os.fsencode(e.name))


def _images(
    folder: str, ends: frozenset[str], skipped: Counter[str], above: tuple[str, ...] = ()
) -> list[str]:
    """Paths of all images in a folder and those inside it; counts what is skipped by ending."""
    place = os.path.realpath(folder)
    if place in above:
        raise UserError(f"{folder} is a link to a folder that it lies in")
    paths = []
    for entry in _entries(folder):
        ending = os.path.splitext(entry.name)[1].lower()
        if entry.is_dir():
            paths += _images(entry.path, ends, skipped, (*above, place))
        elif ending in ends and (entry.is_file() or entry.is_symlink()):  # to nowhere: named later
            paths.append(entry.path)
        else:
            skipped[ending or "no ending"] += 1
    return paths


def _counted(root: Path, skipped: Counter[str]) -> str:
    """One line on the files that are no images."""
    kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(skipped.items()))
    n = skipped.total()
    return f"{n} file{'s' * (n != 1)} in {root} skipped as no image that Pillow reads: {kinds}"


def _content(path: str) -> bytes:
    with named(path), open(path, "rb") as file:
        return file.read()


def _look(
    paths: list[str], img_size: int | None, pool: ThreadPoolExecutor
) -> tuple[int, tuple[int, int], list[str]]:
    """Channels and size of a folder's images from their headers, and a line on frames."""

    def headers(span: slice) -> list[tuple[int, tuple[int, int], bool]]:
        rows = []
        for path in paths[span]:
            with named(path), Image.open(path, formats=formats()) as image:
                # the second image of a phone's MPO is an aid to the first
                frames = image.format != "MPO" and getattr(image, "is_animated", False)
                rows.append((channels(image), image.size, frames))
        return rows

    spans = [slice(i, i + 256) for i in range(0, len(paths), 256)]
    rows = [row for part in pool.map(headers, spans) for row in part]
    if img_size is None:
        for path, (_, size, _) in zip(paths, rows, strict=True):
            if sorted(size) != sorted(rows[0][1]):  # turned images are seen when decoded
                raise _differ(paths[0], _size(paths[0]), path)
    moving = [path for path, row in zip(paths, rows, strict=True) if row[2]]
    notes = []
    if moving:
        notes.append(
            f"{len(moving)} file{'s' * (len(moving) != 1)} with several frames, of which the first"
            f" is read, as {moving[0]}"
        )
    size = (img_size, img_size) if img_size else _size(paths[0])
    return max(row[0] for row in rows), size, notes


def _size(path: str) -> tuple[int, int]:
    with named(path), Image.open(path, formats=formats()) as image:
        return upright_size(image)


def _differ(first: str, size: tuple[int, ...], other: str) -> UserError:
    one, two = (f"{h} x {w}" for h, w in (size, _size(other)))
    return UserError(
        f"images differ in size: {first} is {one}, {other} is {two}; give data.img_size to resize"
        " them"
    )


def _copies(
    paths: tuple[list[str], list[str]], digests: list[list[bytes]], labels: NDArray[np.int64]
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
