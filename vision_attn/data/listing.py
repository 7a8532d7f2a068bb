"""Which files of a folder are images, of which class, and which of them are the test set."""

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vision_attn.data.images import endings, named
from vision_attn.errors import UserError

__all__ = ["content_of", "counted", "digest_of", "in_test", "list_images", "parts", "split"]

_Listed = tuple[list[str], list[list[str]], list[NDArray[np.int64]]]

_NO_DATA = {"__MACOSX"}
"""Folders that a Mac puts into archives; names that begin with a dot are ignored too."""


def parts(root: Path) -> list[Path]:
    """The folders that hold class folders: train/ and test/, train/ alone, or the root itself."""
    either = "wanted <class>/*, or train/<class>/* and test/<class>/*"
    if not root.exists():
        raise UserError(f"data.root {root} does not exist; {either}")
    if not root.is_dir():
        raise UserError(f"data.root {root} is a file; {either}")
    train, test = root / "train", root / "test"
    if train.is_dir():
        return [train, test] if test.is_dir() else [train]
    if test.is_dir():
        raise UserError(f"data.root {root} has no folder train/; {either}")
    folders = [e.name for e in _entries(str(root)) if e.is_dir()]
    if len(folders) < 2:
        only = f"one folder, {folders[0]!r}" if folders else "no folders"
        raise UserError(f"data.root {root} has {only}; {either}")
    return [root]


def list_images(places: list[Path], skipped: Counter[str]) -> _Listed:
    """Classes of the first place, and paths and class numbers of each."""
    folders: list[list[str]] = []
    for place in places:
        folders.append([])
        for entry in _entries(str(place)):
            if entry.is_dir():
                folders[-1].append(entry.name)
            else:
                skipped["beside the class folders"] += 1
    classes = folders[0]
    if len(classes) < 2:
        raise UserError(f"{places[0]} has {len(classes)} class folders; wanted 2 or more")
    extra = sorted(set(folders[-1]) - set(classes))
    if extra:
        raise UserError(f"class {extra[0]!r} is in {places[-1]} and not in {places[0]}")
    ends = endings()
    paths: list[list[str]] = []
    labels = []
    for place, names in zip(places, folders, strict=True):
        paths.append([])
        numbers: list[int] = []
        for i, name in enumerate(classes):
            if name not in names:
                continue
            here, others = place / name, Counter[str]()
            images = sorted(_images(str(here), ends, others), key=os.fsencode)
            if not images and place == places[0]:
                more = f"; {counted(here, others)}" if others else ""
                raise UserError(f"class {name!r} has no images: {here} is empty{more}")
            skipped.update(others)
            paths[-1] += images
            numbers += [i] * len(images)
        labels.append(np.array(numbers, np.int64))
    if not paths[-1]:
        raise UserError(f"{places[-1]} has no images of any class")
    return classes, paths, labels


def split(
    place: Path, classes: list[str], paths: list[str], labels: NDArray[np.int64], fraction: float
) -> tuple[list[list[str]], list[NDArray[np.int64]]]:
    """Paths and class numbers of train and of test; an image's part hangs on its bytes alone.

    Raises:
        UserError: a class without a test image, or with fewer than 2 others, with the counts.
    """
    with ThreadPoolExecutor() as pool:
        digests = pool.map(lambda path: digest_of(content_of(path))[:8], paths)
        shares = np.array([int.from_bytes(d, "big") / 2**64 for d in digests])
    chosen = in_test(shares, labels, classes, str(place), fraction, "make folders train/ and test/")
    sides = [[p for p, t in zip(paths, chosen, strict=True) if t == test] for test in (False, True)]
    return sides, [labels[~chosen], labels[chosen]]


def in_test(
    shares: NDArray[np.float64],
    labels: NDArray[np.int64],
    classes: Sequence[str],
    place: str,
    fraction: float,
    way: str,
) -> NDArray[np.bool_]:
    """Which images are test images: those whose share is below `fraction`.

    Args:
        shares: a number from 0 to 1 of each image, (n,).
        place, way: for messages: where the images are, and how to give a test set.

    Raises:
        UserError: a class without a test image, or with fewer than 2 others, with the counts.
    """
    for i, name in enumerate(classes):
        mine = np.sort(shares[labels == i])
        count, least = int((mine < fraction).sum()), 2  # one to train and one to validate on
        if len(mine) <= least:
            raise UserError(
                f"class {name!r} of {place} has {len(mine)} image{'s' * (len(mine) != 1)}; wanted"
                f" {least + 1} or more, to be split into train and test"
            )
        if 0 < count <= len(mine) - least:
            continue
        raise UserError(
            f"class {name!r} of {place} has {len(mine)} images, of which {count} fall into the"
            f" test set (data.test_fraction {fraction:g}); wanted 1 to {len(mine) - least}: add"
            " images, try another fraction"
            f"{_fraction_for(shares, labels, least)}, or {way}"
        )
    return shares < fraction


def _fraction_for(shares: NDArray[np.float64], labels: NDArray[np.int64], least: int) -> str:
    """` such as 0.3`: the smallest of 0.05, 0.1 ... that gives each class to both parts."""
    for percent in range(5, 100, 5):
        rest = [shares[labels == i] >= percent / 100 for i in np.unique(labels)]
        if all(least <= r.sum() < len(r) for r in rest):
            return f" such as {percent / 100:g}"
    return ""


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """Entries of a folder that may be data, in the order of the names' bytes."""
    try:
        with os.scandir(folder) as entries:
            data = [e for e in entries if not e.name.startswith(".") and e.name not in _NO_DATA]
    except OSError as e:
        raise UserError(f"{folder} cannot be read: {e.strerror}") from e
    return sorted(data, key=lambda e: os.fsencode(e.name))


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


def counted(root: Path, skipped: Counter[str]) -> str:
    """One line on the files that are no images."""
    kinds = ", ".join(f"{kind} {n}" for kind, n in sorted(skipped.items()))
    n = skipped.total()
    return f"{n} file{'s' * (n != 1)} in {root} skipped as no image that Pillow reads: {kinds}"


def content_of(path: str) -> bytes:
    """A file's bytes, or a UserError that names it."""
    with named(path), open(path, "rb") as file:
        return file.read()


def digest_of(content: bytes) -> bytes:
    """What tells files apart: equal for equal bytes alone."""
    return blake2b(content, digest_size=16).digest()
