"""Settings of images and their augmentation, and their checks; nothing heavy is imported."""

import math
import re
from dataclasses import dataclass
from typing import Literal

from vision_attn.errors import UserError
from vision_attn.names import near

__all__ = ["NAMES", "AugmentConfig", "Control", "DataConfig", "check_recipe"]

Control = Literal["none", "permuted", "shuffled"]

NAMES = ("digits", "cifar10", "cifar100", "mnist", "fashion_mnist", "svhn", "folder")

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
        name: digits, cifar10, cifar100, mnist, fashion_mnist, svhn, or folder; null is folder
            where root is given, else digits.
        root: your images, DIR/<class>/* or DIR/train/<class>/* and DIR/test/<class>/*; of other
            names, where downloads are kept.
        label: what figures and tables call the data; null is the folder's own name.
        img_size: side in pixels to which a folder's images are resized, or [height, width]; null
            is as they are, or 64 where they are larger, and a square where they differ.
        val_fraction: share of the training pool kept for validation; the rest is `all` images.
        test_fraction: share of a folder's images that become the test set, by a hash of their
            content; for a folder without test/.
        memory_mb: a folder that needs more than this as uint8 is streamed from disk.
    """

    name: str | None = None
    root: str | None = None
    label: str | None = None
    img_size: int | tuple[int, int] | None = None
    val_fraction: float = 0.1
    test_fraction: float = 0.2
    memory_mb: int = 4096

    @property
    def dataset(self) -> str:
        """`name`, or what stands for null."""
        return self.name or ("digits" if self.root is None else "folder")

    @property
    def size(self) -> tuple[int, int] | None:
        """`img_size` as (h, w)."""
        n = self.img_size
        return (n, n) if isinstance(n, int) else n

    def check(self) -> None:
        """Raise UserError on values out of range, before anything is read."""
        dataset = self.dataset
        if self.name is not None and self.name not in NAMES:
            raise UserError(f"data.name {self.name!r} is not known; {near(self.name, NAMES)}")
        if dataset == "digits" and self.root is not None:
            raise UserError(
                f"data.root is {self.root}, but digits come with scikit-learn; add"
                " --data.name folder for your own images, or take it out"
            )
        if dataset == "folder" and not self.root:
            raise UserError("data.name folder needs data.root, the folder of your images")
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
        if dataset != "folder":
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
