"""Training subsets: nested, class-balanced, hashed, fixed by (data set, draw) on any machine.

Every image gets a rank from a keyed hash of its number, not from a random generator, whose stream
may change with a library's version. Images are then dealt out class by class in rounds: any prefix
of that order is balanced to within one image, and prefixes are nested. Validation is dealt first.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vision_attn.errors import UserError

__all__ = ["Subset", "deal", "subset"]


@dataclass(frozen=True)
class Subset:
    """Indices into the training pool, and a short hash of the training indices (order ignored)."""

    train: NDArray[np.int64]
    val: NDArray[np.int64]
    hash: str


def deal(labels: NDArray[np.int64], *, name: str, draw: int) -> NDArray[np.int64]:
    """The order of all images for (data set, draw), classes in turn: (n,) -> (n,)."""
    keys = np.array(
        [
            int.from_bytes(hashlib.blake2b(f"{name}/{draw}/{i}".encode(), digest_size=8).digest())
            for i in range(len(labels))
        ],
        dtype=np.uint64,
    )
    by_class = np.lexsort((keys, labels))
    round_of = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        members = by_class[labels[by_class] == label]
        round_of[members] = np.arange(len(members))
    return np.lexsort((keys, round_of))


def subset(
    labels: NDArray[np.int64],
    *,
    name: str,
    draw: int,
    size: int | None,
    num_classes: int,
    val_fraction: float = 0.1,
) -> Subset:
    """`size` training images (None is all that validation leaves), and validation no larger.

    Args:
        labels: class of each image of the pool, (n,).
        name: data set, part of the key.
        draw: which of the many possible subsets.
        val_fraction: share of the pool held out before any subset is taken.

    Raises:
        UserError: fewer images than classes, more than there are, or a class that runs out before
            the subset is balanced; with the counts.
    """
    counts = np.bincount(labels, minlength=num_classes)
    if not 0 < val_fraction < 1:
        raise UserError(f"data.val_fraction {val_fraction} is not between 0 and 1")
    order = deal(labels, name=name, draw=draw)
    held = max(round(len(labels) * val_fraction), 1)
    val, pool = order[:held], order[held:]
    if size is None:
        size = len(pool)
    elif size < num_classes:
        raise UserError(f"size {size} is smaller than the {num_classes} classes of {name}")
    elif size > len(pool):
        raise UserError(
            f"size {size} is larger than the {len(pool)} training images of {name}"
            f" ({len(labels)} less {held} for validation)"
        )
    elif size < len(pool):
        left = np.bincount(labels[pool], minlength=num_classes)
        least = int(left.argmin())
        if left[least] < size // num_classes:
            raise UserError(
                f"size {size} cannot be balanced: class {least} of {name} has"
                f" {counts[least]} images, {left[least]} after validation, and"
                f" {size // num_classes} are wanted; the largest balanced size is"
                f" {min(len(pool), left[least] * num_classes)}, or take all"
            )
    train = np.sort(pool[:size])
    digest = hashlib.blake2b(train.astype("<i8").tobytes(), digest_size=8).hexdigest()
    return Subset(train=train, val=np.sort(val[: min(held, size)]), hash=digest)
