"""Training subsets: nested, class-balanced, hashed, fixed by (data set, draw) on any machine.

Every image gets a rank from a keyed hash of its number, not from a random generator, whose stream
may change with a library's version. Images are then dealt out class by class in rounds: any prefix
of that order is balanced to within one image, and prefixes are nested. Validation is dealt first,
and what it leaves is dealt anew.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache

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


@lru_cache(maxsize=4)
def _keys(name: str, draw: int, count: int) -> NDArray[np.uint64]:
    """The keyed hash of each image's number; the same for every size of a draw, so kept."""
    hashes = (hashlib.blake2b(f"{name}/{draw}/{i}".encode(), digest_size=8) for i in range(count))
    return np.array([int.from_bytes(h.digest(), "big") for h in hashes], np.uint64)


def deal(
    labels: NDArray[np.int64], *, name: str, draw: int, among: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """The order of all images, or of those in `among`, classes in turn: (n,) -> (n,)."""
    if among is None:
        among = np.arange(len(labels))
    count, labels = len(labels), labels[among]
    keys = _keys(name, draw, count)[among]
    by_class = np.lexsort((keys, labels))
    round_of = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        members = by_class[labels[by_class] == label]
        round_of[members] = np.arange(len(members))
    return among[np.lexsort((keys, round_of))]


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
    if not len(pool):
        raise UserError(
            f"data.val_fraction {val_fraction} takes all {len(labels)} training images of {name}"
        )
    # a round that validation cut in two would put two classes out of step
    pool = deal(labels, name=name, draw=draw, among=pool)
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
        most = left[least] * num_classes + np.count_nonzero(left > left[least])
        if size > most:
            fix = f"the largest balanced size is {most}, or take all {len(pool)}"
            raise UserError(
                f"size {size} cannot be balanced: class {least} of {name} has"
                f" {counts[least]} images, {left[least]} after validation, and"
                f" {-(-size // num_classes)} are wanted;"
                f" {fix if left[least] else f'take all {len(pool)}'}"
            )
    train = np.sort(pool[:size])
    digest = hashlib.blake2b(train.astype("<i8").tobytes(), digest_size=8).hexdigest()
    return Subset(train=train, val=np.sort(val[: min(held, size)]), hash=digest)
