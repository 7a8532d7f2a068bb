"""Images that are no files: arrays, and data sets of PyTorch whose items are (image, label)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from vision_attn.data.folder import Unread, common_size
from vision_attn.data.images import channels, fitted
from vision_attn.data.listing import digest_of, in_test
from vision_attn.errors import UserError

__all__ = ["Items", "of_arrays", "of_items", "read_npz"]

_NAMES = (
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
)
"""Arrays of an .npz file: Keras' names, and MedMNIST's."""


def read_npz(path: Path, test_fraction: float) -> dict[str, Any]:
    """Parts of a `Source` from the arrays of an .npz file; nothing is unpickled.

    Raises:
        UserError: no such file, other arrays, and what `of_arrays` refuses.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for names in _NAMES for name in names if name in file}
            found = ", ".join(file.files)
    except (OSError, ValueError, EOFError, BadZipFile, AttributeError, TypeError) as e:
        raise UserError(f"{path} is no .npz file of arrays that can be read: {e}") from e
    for names in _NAMES:
        x, y, x_test, y_test = (arrays.get(name) for name in names)
        if x is not None and y is not None and (x_test is None) == (y_test is None):
            return of_arrays(x, y, x_test, y_test, what=str(path), test_fraction=test_fraction)
    raise UserError(
        f"{path} has {found or 'no arrays'}; wanted {', '.join(_NAMES[0])} (or {_NAMES[1][0]}, ...)"
    )


def of_arrays(
    x_train: ArrayLike,
    y_train: ArrayLike,
    x_test: ArrayLike | None,
    y_test: ArrayLike | None,
    *,
    what: str,
    classes: Sequence[str] | None = None,
    test_fraction: float = 0.2,
) -> dict[str, Any]:
    """Parts of a `Source`; without test images some of the others become them, by their content.

    Args:
        x_train, x_test: uint8 (n, h, w), (n, C, h, w), or with 1 or 3 channels (n, h, w, C).
        y_train, y_test: (n,) or (n, 1): whole numbers or text.
        what: names them in messages.
        classes: their names, by number; None takes what stands in the labels.

    Raises:
        UserError: another type or shape, other counts, a class without images to hold out.
    """
    images, numbers = [_stack(x_train, what)], [np.asarray(y_train)]
    if x_test is not None and y_test is not None:
        images.append(_stack(x_test, what))
        numbers.append(np.asarray(y_test))
        if images[0].shape[1:] != images[1].shape[1:]:
            shapes = " and ".join(str(x.shape[1:]) for x in images)
            raise UserError(f"{what}: images of train and test differ: (C, h, w) is {shapes}")
    return _parts(images, numbers, what, classes, test_fraction)


def _parts(
    images: Sequence[NDArray[np.uint8] | Unread],
    numbers: list[NDArray[Any]],
    what: str,
    classes: Sequence[str] | None,
    test_fraction: float,
) -> dict[str, Any]:
    """Parts of a `Source` from images (n, C, h, w) and labels of train and, if given, of test."""
    notes: tuple[str, ...] = ()
    names, labels = _classes(images, numbers, classes, what)
    if len(images) == 1:
        digests = (digest_of(x.tobytes())[:8] for x in images[0])
        shares = np.array([int.from_bytes(d, "big") / 2**64 for d in digests])
        test = in_test(shares, labels[0], names, what, test_fraction, "give a test set")
        sides, whole = (~test, test), images[0]
        images = [
            whole.take(*s.nonzero()) if isinstance(whole, Unread) else whole[s] for s in sides
        ]
        labels = [labels[0][s] for s in sides]
        notes = (
            f"{what} has no test set: {len(labels[1]):,} of {len(test):,} images are it, by a hash"
            f" of their pixels (data.test_fraction {test_fraction:g})",
        )
    return {
        "classes": names,
        "flip": True,
        "train_images": images[0],
        "train_labels": labels[0],
        "test_images": images[1],
        "test_labels": labels[1],
        "notes": notes,
    }


def _stack(x: ArrayLike, what: str) -> NDArray[np.uint8]:
    """Images as uint8 (n, C, h, w)."""
    array = np.asarray(x)
    if array.dtype != np.uint8 or array.ndim not in (3, 4):
        raise UserError(
            f"{what}: images are {array.dtype} of shape {array.shape}; wanted uint8, (n, h, w),"
            " (n, C, h, w) or (n, h, w, C)"
        )
    if array.ndim == 3:
        array = array[:, None]
    elif array.shape[3] in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    return np.ascontiguousarray(array)


def _classes(
    images: Sequence[NDArray[np.uint8] | Unread],
    labels: list[NDArray[Any]],
    names: Sequence[str] | None,
    what: str,
) -> tuple[tuple[str, ...], list[NDArray[np.int64]]]:
    """Names of the classes, and numbers among them."""
    flat = [y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y for y in labels]
    for x, y in zip(images, flat, strict=True):
        if y.ndim != 1 or len(y) != len(x) or y.dtype.kind not in "iubUS":
            raise UserError(
                f"{what}: labels are {y.dtype} of shape {y.shape} for {len(x)} images; wanted one"
                " whole number or text for each"
            )
    known, numbers = np.unique(np.concatenate(flat), return_inverse=True)
    if names is None:
        names = [str(k.decode() if isinstance(k, bytes) else k) for k in known]
    elif known.dtype.kind in "iub" and known[0] >= 0 and known[-1] < len(names):
        numbers = known[numbers]
    elif len(known) != len(names) or known.dtype.kind in "iub":
        raise UserError(
            f"{what}: labels are {known[0]} to {known[-1]}, and there are {len(names)} names of"
            " classes"
        )
    parts = np.split(numbers.astype(np.int64), [len(flat[0])])
    return tuple(map(str, names)), parts[: len(labels)]


def of_items(
    train: Any,
    test: Any | None,
    *,
    what: str,
    classes: Sequence[str] | None = None,
    img_size: tuple[int, int] | None = None,
    memory_mb: int = 4096,
    test_fraction: float = 0.2,
) -> dict[str, Any]:
    """Parts of a `Source` from data sets by number, whose items are (image, label).

    Images are Pillow's, or arrays and tensors of (h, w), (C, h, w) or (h, w, C) with 1 or 3
    channels: uint8, or real numbers from 0 to 1. They are resized as those of a folder are.

    Args:
        train, test: with a length and items; None holds some of `train` out.
        img_size: (h, w) of the result; None is their own if it is small and the same for all.
        memory_mb: above which images are `Items`, each decoded once here as well.

    Raises:
        UserError: items of another kind, with their number; what `of_arrays` refuses.
    """
    parts = {"train": train} if test is None else {"train": train, "test": test}
    looks: list[tuple[int, tuple[int, int]]] = []
    labels: list[NDArray[Any]] = []
    places: list[str] = []
    for name, part in parts.items():
        numbers = []
        for i in range(len(part)):
            where = f"{what}: image {i} of {name}"
            image, label = _item(part, i, where)
            looks.append((channels(image), (image.height, image.width)))
            numbers.append(label)
            places.append(where)
        labels.append(np.array(numbers))
    if not looks:
        raise UserError(f"{what} has no images")
    chans = max(look[0] for look in looks)
    more: list[str] = []
    if img_size is None:
        img_size, more = common_size(places, [look[1] for look in looks])
    images: list[NDArray[np.uint8] | Unread] = []
    for name, part in parts.items():
        items = Items(part, what, name, range(len(part)), chans, img_size)
        if len(looks) * chans * img_size[0] * img_size[1] > memory_mb * 2**20:
            images.append(items)
            continue
        images.append(array := np.empty(items.shape, np.uint8))
        for i, pixels in enumerate(items):
            array[i] = pixels
    made = _parts(images, labels, what, classes, test_fraction)
    return {**made, "notes": (*more, *made["notes"])}


@dataclass(frozen=True)
class Items(Unread):
    """Images of a data set whose items are (image, label).

    Args:
        part: the data set.
        what, side: name an image in messages: the data set, train or test.
        numbers: of the images in `part`.
    """

    part: Any
    what: str
    side: str
    numbers: Sequence[int]
    chans: int
    img_size: tuple[int, int]

    def __len__(self) -> int:
        return len(self.numbers)

    def pixels(self, number: int) -> NDArray[np.uint8]:
        """One image, (C, h, w)."""
        i = self.numbers[number]
        where = f"{self.what}: image {i} of {self.side}"
        return fitted(_item(self.part, i, where)[0], where, self.chans, self.img_size)

    def take(self, index: NDArray[np.int64]) -> "Items":
        """The items with these numbers."""
        return replace(self, numbers=[self.numbers[i] for i in index])


def _item(part: Any, number: int, where: str) -> tuple[Image.Image, Any]:
    """One item as an image of Pillow and a plain label."""
    try:
        image, label = part[number]
    except (TypeError, ValueError) as e:
        raise UserError(f"{where} is no pair (image, label): {e}") from e
    if isinstance(label, torch.Tensor | np.ndarray | np.generic):
        label = label.tolist()
    if not isinstance(label, int | str):
        raise UserError(f"{where}: its label is {label!r}; wanted one whole number or text")
    return (image if isinstance(image, Image.Image) else _drawn(image, where)), label


def _drawn(image: Any, where: str) -> Image.Image:
    """An array or tensor of one image as one of Pillow."""
    array = np.asarray(image)
    if array.ndim == 3 and array.shape[0] in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    fits = array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 3)
    if fits and array.dtype.kind == "f" and array.min() >= 0 and array.max() <= 1:
        array = np.rint(array * 255).astype(np.uint8)
    if not fits or array.dtype != np.uint8:
        raise UserError(
            f"{where} is {array.dtype} of shape {array.shape}; wanted one of Pillow's, or 1 or 3"
            " channels of uint8 or of numbers from 0 to 1 (leave transforms such as Normalize out)"
        )
    return Image.fromarray(np.ascontiguousarray(array))
