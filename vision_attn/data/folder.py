"""A folder of images, train/<class>/* and test/<class>/*: in memory, or on disk until asked for."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vision_attn.errors import UserError

__all__ = ["Files", "read_folder"]

_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}


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
        return np.stack([_decode(self.paths[i], self.chans, self.img_size) for i in index])


def read_folder(root: Path, img_size: int | None, memory_mb: int) -> dict[str, Any]:
    """Classes, images and labels under root/train/<class>/* and root/test/<class>/*.

    Images are uint8 (n, C, h, w), or `Files` where they need more than `memory_mb`; each is decoded
    once in either case.

    Raises:
        UserError: folders or classes that lack, images of several sizes without `img_size`, a file
            that is no image.
    """
    for part in ("train", "test"):
        if not (root / part).is_dir():
            raise UserError(f"data.root {root} has no folder {part}/; wanted {part}/<class>/*")
    classes = tuple(sorted(p.name for p in (root / "train").iterdir() if p.is_dir()))
    if len(classes) < 2:
        raise UserError(f"{root / 'train'} has {len(classes)} class folders; wanted 2 or more")
    extra = {p.name for p in (root / "test").iterdir() if p.is_dir()} - set(classes)
    if extra:
        raise UserError(f"class {min(extra)!r} is in {root / 'test'} and not in {root / 'train'}")
    paths: dict[str, list[str]] = {}
    labels: dict[str, NDArray[np.int64]] = {}
    for part in ("train", "test"):
        paths[part], ids = [], []
        for i, name in enumerate(classes):
            here = root / part / name
            found = sorted(
                str(p)
                for p in (here.rglob("*") if here.is_dir() else ())
                if p.suffix.lower() in _SUFFIXES and p.is_file()
            )
            if not found:
                raise UserError(f"class {name!r} has no images: {here} is empty or missing")
            paths[part] += found
            ids += [i] * len(found)
        labels[part] = np.array(ids, np.int64)
    chans, size = _look(paths["train"] + paths["test"], img_size)
    every = len(paths["train"]) + len(paths["test"])
    fits = every * chans * size[0] * size[1] <= memory_mb * 2**20
    images: dict[str, NDArray[np.uint8] | Files] = {}
    for part in ("train", "test"):
        files = Files(tuple(paths[part]), chans, size)
        spans = [slice(i, i + 256) for i in range(0, len(files), 256)]
        array = np.empty((len(files), chans, *size), np.uint8) if fits else None

        def decode(span: slice, files: Files = files, array: Any = array) -> None:
            for i in range(*span.indices(len(files))):  # opened in full even when not kept, so
                image = _decode(files.paths[i], chans, size)  # that no epoch dies of a broken file
                if array is not None:
                    array[i] = image

        with ThreadPoolExecutor() as pool:
            list(pool.map(decode, spans))
        images[part] = files if array is None else array
    return {
        "classes": classes,
        "flip": True,
        "train_images": images["train"],
        "train_labels": labels["train"],
        "test_images": images["test"],
        "test_labels": labels["test"],
    }


def _look(paths: list[str], img_size: int | None) -> tuple[int, tuple[int, int]]:
    """Channels and size of a folder's images, from their headers."""
    grey, first = True, ("", (0, 0))
    for path in paths:
        with _named(path), Image.open(path) as image:
            grey = grey and image.mode in ("1", "L", "I", "I;16", "F", "LA")
            if img_size is None and first[0] and image.size != first[1]:
                raise UserError(
                    f"images differ in size: {first[0]} is {first[1][1]} x {first[1][0]}, {path} is"
                    f" {image.size[1]} x {image.size[0]}; give data.img_size to resize them"
                )
            first = first if first[0] else (path, image.size)
    size = (img_size, img_size) if img_size else (first[1][1], first[1][0])
    return 1 if grey else 3, size


def _decode(path: str, chans: int, img_size: tuple[int, int]) -> NDArray[np.uint8]:
    """A file as uint8 (C, h, w): the middle, cut to the wanted shape, then resized."""
    with _named(path), Image.open(path) as image:
        if image.mode.startswith("I;16"):  # whose conversion to 8 bits clips where it should scale
            grey = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        elif image.mode in ("I", "F"):
            raise UserError(f"{path} has pixels of 32 bits in one channel; wanted 8 or 16")
        else:
            grey = image
        rgb = grey.convert("L" if chans == 1 else "RGB")
    h, w = img_size
    if rgb.size != (w, h):
        scale = max(w / rgb.width, h / rgb.height)
        cut_w, cut_h = w / scale, h / scale
        left, top = (rgb.width - cut_w) / 2, (rgb.height - cut_h) / 2
        box = (left, top, left + cut_w, top + cut_h)
        rgb = rgb.resize((w, h), Image.Resampling.BICUBIC, box=box)
    array = np.asarray(rgb, np.uint8)
    return array[None] if chans == 1 else np.ascontiguousarray(array.transpose(2, 0, 1))


class _named:
    """Turns a decoder's error, which does not say which file it was, into one that does."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, UserError):  # whatever it raises
            raise UserError(f"{self.path} is not an image that can be read: {error}") from error
