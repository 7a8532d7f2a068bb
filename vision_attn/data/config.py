"""Settings of images and their augmentation, and their checks; nothing heavy is imported."""

import math
import re
from dataclasses import dataclass
from typing import Literal

from vision_attn.errors import UserError
from vision_attn.names import near

__all__ = ["NAMES", "AugmentConfig", "Control", "DataConfig", "check_recipe"]

Control = Literal["none", "permuted", "shuffled"]

NAMES = (
    "digits", "relational", "cifar10", "cifar100", "mnist", "fashion_mnist", "svhn",
    "folder", "npz",
)  # fmt: skip

IMAGE_MB = 1024
"""Most memory that one image may take, in MiB: several are decoded at once."""

MOST_ALPHA = 100
"""Of mixup and cutmix: from there on all shares are 1/2."""

_RECIPE = {"m": 30, "n": 10, "p": 1, "mstd": math.inf, "mmax": 30, "inc": 1}
"""The numbers in a recipe of RandAugment, each with its largest sensible value; the least is 0."""
_OPERATIONS = {"tweights", "t3a", "t3aw"}
"""timm's sets of operations; it reads any other name as the usual set."""


@dataclass(kw_only=True)
class AugmentConfig:
    """Augmentation of training images; all off by default.

    Args:
        pad: zero pixels all round, then a random crop of the old size; 0 is off.
        flip: mirror half of the images, where the data set allows it (digits do not).
        randaugment: timm's string, e.g. rand-m9-n2-mstd0.5; null is off.
        mixup: alpha of mixup (Zhang et al. 2018); 0 is off.
        cutmix: alpha of cutmix (Yun et al. 2019); 0 is off.
    """

    pad: int = 0
    flip: bool = False
    randaugment: str | None = None
    mixup: float = 0.0
    cutmix: float = 0.0

    @property
    def mixes(self) -> bool:
        """Whether labels become soft."""
        return bool(self.mixup or self.cutmix)

    def check_batch(self, batch: int) -> None:
        """Raise UserError on an odd batch: mixup pairs image i with image n-1-i."""
        if self.mixes and batch % 2:
            raise UserError(
                f"augment.mixup and cutmix mix images of a batch in pairs: a batch of {batch}"
                f" is odd; try {batch + 1}, or turn both off"
            )

    def check_size(self, img_size: tuple[int, int]) -> None:
        """Raise UserError where a crop of (h, w) pixels could lie in the padding alone."""
        h, w = img_size
        if self.pad >= min(h, w):
            raise UserError(
                f"augment.pad is {self.pad}, and a crop of {h} x {w} pixels could miss the image;"
                f" wanted 0 to {min(h, w) - 1}"
            )

    def check(self) -> None:
        """Raise UserError on values out of range, before any work starts."""
        if self.pad < 0:
            raise UserError(f"augment.pad is {self.pad}; wanted 0 or more pixels")
        for name in ("mixup", "cutmix"):
            if not 0 <= getattr(self, name) <= MOST_ALPHA:
                raise UserError(
                    f"augment.{name} is {getattr(self, name)}; wanted alpha >= 0, at most"
                    f" {MOST_ALPHA}"
                )
        if self.randaugment:
            check_recipe(self.randaugment)


def check_recipe(recipe: str) -> None:
    """UserError for what is no recipe of RandAugment; timm ignores parts that it does not know."""
    first, *parts = recipe.split("-")
    read = [
        re.fullmatch(r"(m|n|mmax|inc)([0-9]+)|(p|mstd)([0-9]+(?:\.[0-9]+)?)", part)
        for part in parts
        if part not in _OPERATIONS
    ]
    numbers = {part[1] or part[3]: float(part[2] or part[4]) for part in read if part}
    if first != "rand" or len(numbers) < len(read):  # a part that is none, or stands twice
        raise UserError(
            f"augment.randaugment {recipe!r} is not a recipe of timm's; try rand-m9-n2-mstd0.5"
        )
    most = {**_RECIPE, "m": numbers.get("mmax", 10)}  # above which timm cuts
    for name, number in numbers.items():
        if number > most[name]:
            raise UserError(
                f"augment.randaugment {recipe!r} has {name} {number:g}; wanted 0 to {most[name]:g}"
            )


@dataclass(kw_only=True)
class DataConfig:
    """Which images.

    Args:
        name: digits, relational, cifar10, cifar100, mnist, fashion_mnist, svhn, folder, npz,
            hf:NAME of Hugging Face, torchvision:NAME, or the path of a class of yours; null is npz
            for such a root, folder for another, else digits.
        root: your images, DIR/<class>/* or DIR/train/<class>/* and DIR/test/<class>/*; FILE.npz
            with x_train, y_train, x_test, y_test (or train_images, ...); for hf: a folder of
            parquet files; of other names, where downloads are kept.
        label: what figures and tables call the data; null is the folder's own name.
        img_size: side in pixels to which images of files are resized, or [height, width]; null
            is as they are, or 64 where they are larger, and a square where they differ.
        val_fraction: share of the training pool kept for validation; the rest is `all` images.
        test_fraction: share of the images that become the test set, by a hash of their content;
            for a folder without test/, and other data without test images.
        memory_mb: a folder that needs more than this as uint8 is streamed from disk.
        relation: of relational images, the share with a second object, where only a cue elsewhere
            in the image tells which of the two is asked for; null is all of them.
    """

    name: str | None = None
    root: str | None = None
    label: str | None = None
    img_size: int | tuple[int, int] | None = None
    val_fraction: float = 0.1
    test_fraction: float = 0.2
    memory_mb: int = 4096
    relation: float | None = None

    @property
    def dataset(self) -> str:
        """`name`, or what stands for null."""
        if self.name or self.root is None:
            return self.name or "digits"
        return "npz" if self.root.lower().endswith(".npz") else "folder"

    @property
    def library(self) -> bool:
        """Whether the name is of a data set that other code holds."""
        kind, _, rest = self.dataset.partition(":")
        path = all(part.isidentifier() for part in kind.split(".")) and "." in kind
        return bool(rest) if kind in ("hf", "torchvision") else path and not rest

    @property
    def size(self) -> tuple[int, int] | None:
        """`img_size` as (h, w)."""
        n = self.img_size
        return (n, n) if isinstance(n, int) else n

    def check(self) -> None:
        """Raise UserError on values out of range, before anything is read."""
        dataset = self.dataset
        if self.name is not None and self.name not in NAMES and not self.library:
            raise UserError(
                f"data.name {self.name!r} is not known; {near(self.name, NAMES)} (others are"
                " hf:NAME, torchvision:NAME or package.module.Class)"
            )
        if dataset in ("digits", "relational") and self.root is not None:
            origin = "digits come with scikit-learn"
            if dataset == "relational":
                origin = "relational images are made, not read"
            raise UserError(
                f"data.root is {self.root}, but {origin}; add"
                " --data.name folder for your own images, or take it out"
            )
        if self.relation is not None and dataset != "relational":
            raise UserError(f"data.relation is for relational images; data.name is {dataset}")
        if self.relation is not None and not 0 <= self.relation <= 1:
            raise UserError(f"data.relation {self.relation} is not between 0 and 1")
        if dataset in ("folder", "npz") and not self.root:
            what = "folder of your images" if dataset == "folder" else "file of your arrays"
            raise UserError(f"data.name {dataset} needs data.root, the {what}")
        if self.label is not None and (not self.label.strip() or not self.label.isprintable()):
            raise UserError(f"data.label is {self.label!r}; wanted printable text, or null")
        for name in ("val_fraction", "test_fraction"):
            if not 0 < getattr(self, name) < 1:
                raise UserError(f"data.{name} {getattr(self, name)} is not between 0 and 1")
        if self.memory_mb < 0:
            raise UserError(
                f"data.memory_mb is {self.memory_mb}; wanted 0, to read images when they are"
                " needed, or more"
            )
        if self.size is None:
            return
        if dataset != "folder" and not self.library:
            raise UserError(f"data.img_size is for folders; {dataset} has a size of its own")
        h, w = self.size
        if min(h, w) < 1:
            raise UserError(f"data.img_size is {self.img_size}; wanted 1 or more pixels")
        needed = 3 * h * w / 2**20
        if needed > IMAGE_MB:
            raise UserError(
                f"data.img_size {self.img_size} makes one colour image of {needed:,.0f} MiB, in"
                f" memory or streamed; wanted at most {int((IMAGE_MB * 2**20 / 3) ** 0.5)} pixels"
                f" ({IMAGE_MB:,} MiB)"
            )
