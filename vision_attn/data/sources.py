"""Named data sets as uint8 arrays: scikit-learn's digits, torchvision's sets, folders of images."""

import hashlib
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vision_attn.data.config import NAMES, DataConfig
from vision_attn.data.folder import Files, read_folder
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

    @property
    def img_size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return (self.train_images.shape[2], self.train_images.shape[3])

    @property
    def in_chans(self) -> int:
        """Channels C."""
        return self.train_images.shape[1]

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
    elif name == "folder":
        root = Path(str(config.root))
        parts = read_folder(root, config.size, config.memory_mb, config.test_fraction)
        label = label or one_line(printable(root.resolve().name)).strip()
    else:
        parts = _torchvision(name, Path(config.root or "data"))
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
