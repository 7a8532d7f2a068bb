"""Training subsets: nested, class-balanced, hashed, fixed by (data set, draw) on any machine.

Every image gets a rank from a keyed hash of its number, not from a random generator, whose stream
may change with a library's version. Images are then dealt out class by class in rounds: any prefix
of that order is balanced to within one image, and prefixes are nested. Validation is taken first,
from each class in proportion to its images, and what it leaves is dealt anew.
"""

import hashlib
from collections.abc import Sequence
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
    """The keyed hash of each image's number; the same for every size of a draw, so cached."""
    hashes = (hashlib.blake2b(f"{name}/{draw}/{i}".encode(), digest_size=8) for i in range(count))
    return np.array([int.from_bytes(h.digest(), "big") for h in hashes], np.uint64)


def deal(
    labels: NDArray[np.int64], *, name: str, draw: int, among: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """The order of all images, or of those in `among`, classes in turn: (n,) -> (n,)."""
    return _rounds(labels, name, draw, among)[0]


def _rounds(
    labels: NDArray[np.int64], name: str, draw: int, among: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The order of `deal`, and the round in which each image of it is dealt: (n,) twice."""
    if among is None:
        among = np.arange(len(labels))
    count, labels = len(labels), labels[among]
    keys = _keys(name, draw, count)[among]
    by_class = np.lexsort((keys, labels))
    round_of = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        members = by_class[labels[by_class] == label]
        round_of[members] = np.arange(len(members))
    order = np.lexsort((keys, round_of))
    return among[order], round_of[order]


def _validation(
    labels: NDArray[np.int64], name: str, draw: int, fraction: float, counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The order of all images cut in two: validation and the rest.

    A class gives its share of the images that validation wants, rounded down or up, and one at
    least. Those with the fewest so far are rounded up first, then by key, as classes are dealt:
    where they are of one size, or nearly, validation is balanced to within one image.
    """
    order, round_of = _rounds(labels, name, draw)
    wanted = max(round(len(labels) * fraction), 1)
    share, rest = np.divmod(wanted * counts, len(labels))
    last = np.where(share > 0, share + (rest > 0), 1)  # rounded up
    share = np.maximum(share, 1)
    classes = labels[order]
    chosen = round_of < share[classes]
    up = np.flatnonzero((round_of == share[classes]) & (round_of < last[classes]))
    chosen[up[: max(wanted - int(share.sum()), 0)]] = True
    return order[chosen], order[~chosen]


def subset(
    labels: NDArray[np.int64],
    *,
    name: str,
    draw: int,
    size: int | None,
    num_classes: int,
    val_fraction: float = 0.1,
    classes: Sequence[str] = (),
    label: str = "",
) -> Subset:
    """`size` training images (None is all that validation leaves), and validation no larger.

    Validation holds each class in proportion, and one image of it at least. Where the subset is
    smaller, validation is cut to its size, classes in turn, as the subset itself is.

    Args:
        labels: class of each image of the pool, (n,).
        name: data set, part of the key.
        draw: which of the many possible subsets.
        val_fraction: share of the pool held out before any subset is taken.
        classes: their names, for messages; numbers without them.
        label: what messages call the data set; `name` without it.

    Raises:
        UserError: fewer images than classes, more than there are, a class with no image to train
            or to validate on, or one that runs out before the subset is balanced; with the counts.
    """

    shown = label or name

    def named(number: int) -> str:
        return f"class {classes[number] if classes else number} of {shown}"

    counts = np.bincount(labels, minlength=num_classes)
    if not 0 < val_fraction < 1:
        raise UserError(f"data.val_fraction {val_fraction} is not between 0 and 1")
    if not counts.all():
        raise UserError(f"{named(int(counts.argmin()))} has 0 images; wanted 2 or more")
    val, pool = _validation(labels, name, draw, val_fraction, counts)
    left = np.bincount(labels[pool], minlength=num_classes)
    if not left.all():
        least = int(left.argmin())
        had = int(counts[least])
        raise UserError(
            f"{named(least)} has {had} image{'s' * (had > 1)}, and validation takes {had}"
            f" (data.val_fraction {val_fraction}): none is left to train on;"
            f" wanted {'a smaller fraction' if had > 1 else '2 or more images'}"
        )
    # a round that validation cut in two would put two classes out of step
    pool = deal(labels, name=name, draw=draw, among=pool)
    if size is None:
        size = len(pool)
    elif size < num_classes:
        raise UserError(f"size {size} is smaller than the {num_classes} classes of {shown}")
    elif size > len(pool):
        raise UserError(
            f"size {size} is larger than the {len(pool)} training images of {shown}"
            f" ({len(labels)} less {len(val)} for validation)"
        )
    elif size < len(pool):
        least = int(left.argmin())
        most = left[least] * num_classes + np.count_nonzero(left > left[least])
        if size > most:
            raise UserError(
                f"size {size} cannot be balanced: {named(least)} has {counts[least]} images,"
                f" {left[least]} after validation, and {-(-size // num_classes)} are wanted;"
                f" the largest balanced size is {most}, or take all {len(pool)}"
            )
    train = np.sort(pool[:size])
    digest = hashlib.blake2b(train.astype("<i8").tobytes(), digest_size=8).hexdigest()
    return Subset(train=train, val=np.sort(val[:size]), hash=digest)
