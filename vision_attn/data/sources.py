"""Data sets as uint8 arrays: by name, from folders and files, or from Python."""

import hashlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from vision_attn.data.arrays import of_arrays, of_items, read_npz
from vision_attn.data.config import NAMES, DataConfig
from vision_attn.data.folder import Files, read_folder
from vision_attn.data.libraries import read_class, read_hub
from vision_attn.data.relational import relational_parts
from vision_attn.errors import UserError, printable
from vision_attn.texts import one_line

__all__ = ["NAMES", "DataConfig", "Source", "load"]

_TORCHVISION = {
    "cifar10": ("CIFAR10", True),
    "cifar100": ("CIFAR100", True),
    "mnist": ("MNIST", False),
    "fashion_mnist": ("FashionMNIST", True),
    "svhn": ("SVHN", False),
}  # class, and whether a mirrored image is still one of its class


@dataclass(frozen=True)
class Source:
    """A data set: images uint8 (n, C, h, w) in memory or left as `Files`, labels int64 (n,).

    `train_*` is the pool that validation and all subsets come out of; `flip` says whether a
    mirrored image keeps its class; `fingerprint` identifies the content; `notes` are remarks on the
    files for the user, a line each; `label` is the name to show, `name` if it is empty.
    """

    name: str
    classes: tuple[str, ...]
    flip: bool
    train_images: Tensor | Files
    train_labels: NDArray[np.int64]
    test_images: Tensor | Files
    test_labels: NDArray[np.int64]
    fingerprint: str = field(default="")
    notes: tuple[str, ...] = ()
    label: str = ""

    def __post_init__(self) -> None:
        if not self.label:
            object.__setattr__(self, "label", self.name)

    @classmethod
    def from_arrays(
        cls,
        x_train: ArrayLike,
        y_train: ArrayLike,
        x_test: ArrayLike | None = None,
        y_test: ArrayLike | None = None,
        *,
        name: str = "arrays",
        classes: Sequence[str] | None = None,
        flip: bool = True,
        test_fraction: float = 0.2,
    ) -> "Source":
        """A data set of arrays or tensors.

        Args:
            x_train, x_test: uint8 (n, h, w), (n, C, h, w), or with 1 or 3 channels (n, h, w, C).
            y_train, y_test: (n,) or (n, 1): whole numbers or text.
            name: what to call it; subsets are drawn by it.
            classes: their names, by number; None takes what stands in the labels.
            flip: whether a mirrored image keeps its class.
            test_fraction: share of the images that are held out where there are no test images.

        Raises:
            UserError: (a ValueError) another type or shape, other counts.
        """
        _check_name(name)
        parts = of_arrays(
            x_train, y_train, x_test, y_test, what=name, classes=classes,
            test_fraction=test_fraction,
        )  # fmt: skip
        return _source(name, {**parts, "flip": flip})

    @classmethod
    def from_dataset(
        cls,
        train: Any,
        test: Any | None = None,
        *,
        name: str = "dataset",
        classes: Sequence[str] | None = None,
        flip: bool = True,
        img_size: int | tuple[int, int] | None = None,
        test_fraction: float = 0.2,
    ) -> "Source":
        """A `torch.utils.data.Dataset`, or whatever has a length and items (image, label).

        Images are Pillow's, or arrays and tensors of 1 or 3 channels, uint8 or numbers from 0 to 1:
        leave transforms that shuffle, crop or normalise out.

        Args:
            train, test: None in place of `test` holds some of `train` out.
            name, classes, flip, test_fraction: as in `from_arrays`; `classes` of None are those of
                `train`, if it has such.
            img_size: side in pixels or (h, w); None is their own if it is small and the same.

        Raises:
            UserError: (a ValueError) items of another kind, with their number.
        """
        _check_name(name)
        size = DataConfig(name="folder", root=".", img_size=img_size).size
        classes = getattr(train, "classes", None) if classes is None else classes
        parts = of_items(
            train, test, what=name, classes=classes, img_size=size, test_fraction=test_fraction
        )
        return _source(name, {**parts, "flip": flip})

    @property
    def img_size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return (self.train_images.shape[2], self.train_images.shape[3])

    @property
    def in_chans(self) -> int:
        """Channels C."""
        return self.train_images.shape[1]

    def with_fingerprint(self) -> "Source":
        """The same with a fingerprint of its images in memory and its labels."""
        parts = {
            k: np.asarray(v) for k, v in vars(self).items() if k.endswith(("images", "labels"))
        }
        return replace(self, fingerprint=_fingerprint(parts))

    def tell(self) -> None:
        """Print the notes to stderr, a line each; commands do so once."""
        for note in self.notes:
            print(f"note: {note}", file=sys.stderr)


def load(config: DataConfig) -> Source:
    """Read a named data set; each image of a folder is decoded once, so a broken one is named here.

    Raises:
        UserError: unknown name, missing or broken files, a download that fails.
    """
    config.check()
    name, label = config.dataset, config.label
    if name == "digits":
        parts = _digits()
    elif name == "relational":
        share = 1.0 if config.relation is None else config.relation
        parts = relational_parts(share)
        label = label or f"relational, p = {share:g}"
    elif name == "folder":
        root = Path(str(config.root))
        parts = read_folder(root, config.size, config.memory_mb, config.test_fraction)
        label = label or one_line(printable(root.resolve().name)).strip()
    elif name == "npz":
        root = Path(str(config.root))
        parts = read_npz(root, config.test_fraction)
        label = label or one_line(printable(root.stem)).strip()
    elif name in _TORCHVISION:
        parts = _torchvision(name, Path(config.root or "data"))
    else:
        options = {
            "img_size": config.size,
            "memory_mb": config.memory_mb,
            "test_fraction": config.test_fraction,
        }
        if name.startswith("hf:"):
            parts = read_hub(name.removeprefix("hf:"), config.root, **options)
        else:
            made = read_class(name, Path(config.root or "data"), **options)
            if isinstance(made, Source):
                return made if made.fingerprint else made.with_fingerprint()
            if not isinstance(made, dict):
                kind = type(made).__name__
                raise UserError(f"data.name {name} is a {kind}, which has no items by number")
            parts = made
        label = label or name.rpartition(":")[2]
    return _source(name, parts, label)


def _check_name(name: str) -> None:
    """UserError for the name of a data set that is known by it, or for no name."""
    if name in NAMES or not name.strip() or not name.isprintable():
        raise UserError(f"name is {name!r}; wanted printable text, none of {', '.join(NAMES)}")


def _source(name: str, parts: dict[str, Any], label: str | None = None) -> Source:
    if "fingerprint" not in parts:
        parts["fingerprint"] = _fingerprint(parts)
    for key, value in parts.items():
        if key.endswith("images") and not isinstance(value, Files):
            parts[key] = torch.from_numpy(value)
    return Source(name=name, label=label or name, **parts)


def _fingerprint(parts: dict[str, Any]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for key in ("train_images", "train_labels", "test_images", "test_labels"):
        value = parts[key]
        digest.update(str(value.shape).encode() + value.tobytes())
    return digest.hexdigest()


def _digits() -> dict[str, Any]:
    """1,797 scans of 8 x 8, 16 grey levels. Each third one in file order is a test image.

    scikit-learn's copy comes without a split of its own.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    labels = bunch.target.astype(np.int64)
    test = np.arange(len(labels)) % 3 == 2
    return {
        "classes": tuple(str(c) for c in bunch.target_names),
        "flip": False,
        "train_images": images[~test],
        "train_labels": labels[~test],
        "test_images": images[test],
        "test_labels": labels[test],
    }


def _torchvision(dataset: str, root: Path) -> dict[str, Any]:
    import torchvision

    name, flip = _TORCHVISION[dataset]
    absent = [p for p in (root / name / "raw", root / name, root, *root.parents) if not p.exists()]
    cls = getattr(torchvision.datasets, name)
    arrays: dict[str, Any] = {}
    classes: tuple[str, ...] = ()
    for part in ("train", "test"):
        split = {"split": part} if dataset == "svhn" else {"train": part == "train"}
        try:
            data = cls(str(root), download=True, **split)
        except (HTTPException, RuntimeError, OSError) as e:
            for p in absent:
                with suppress(OSError):  # something is in it
                    p.rmdir()
            raise UserError(_missing(dataset, cls, part, root, e)) from e
        images = np.asarray(data.data)
        labels = np.asarray(data.labels if dataset == "svhn" else data.targets, np.int64)
        if dataset != "svhn":  # which is stored (n, C, h, w) already
            images = images[:, None] if images.ndim == 3 else images.transpose(0, 3, 1, 2)
        arrays |= {f"{part}_images": np.ascontiguousarray(images), f"{part}_labels": labels}
        classes = tuple(getattr(data, "classes", None) or map(str, range(labels.max() + 1)))
    return {"classes": classes, "flip": flip, **arrays}


def _missing(name: str, cls: Any, part: str, root: Path, error: Exception) -> str:
    """Which file from where, and the two ways that need no download."""
    if hasattr(cls, "url"):
        what = f"{cls.filename} from {cls.url}"
    elif hasattr(cls, "mirrors"):
        root = root / cls.__name__ / "raw"
        files = [f for f, _ in cls.resources if not (root / f).exists()]
        what = f"{', '.join(files or ['a whole file'])} from {cls.mirrors[0]}"
    else:
        what = f"{cls.split_list[part][1]} from {cls.split_list[part][0]}"
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return (
        f"{name}: {what} is not under {root} and cannot be downloaded ({reason}); put the file"
        " there, or use --data.name folder --data.root DIR with <class>/* in it"
        " (--data.name digits needs no files at all)"
    )
