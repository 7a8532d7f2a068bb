"""Subsets are nested, balanced, apart from validation, and the same on any machine."""

import hashlib
import random
import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from vision_attn.data.sources import DataConfig, load
from vision_attn.data.subsets import Subset, deal, subset
from vision_attn.errors import UserError

Labels = NDArray[np.int64]

DIGITS_20 = [58, 75, 133, 146, 164, 376, 429, 431, 514, 704, 835, 913, 970, 1021, 1024, 1050, 1057,
             1062, 1070, 1149]  # fmt: skip


@pytest.fixture(scope="module")
def digits() -> Labels:
    return load(DataConfig()).train_labels


def pool(counts: tuple[int, ...]) -> Labels:
    """Labels with so many images a class, in a mixed order."""
    labels = np.repeat(np.arange(len(counts)), counts)
    return labels[np.random.default_rng(17).permutation(len(labels))]


def take(labels: Labels, size: int | None, draw: int = 0, **more: Any) -> Subset:
    given: dict[str, Any] = {"name": "digits", "num_classes": int(labels.max()) + 1, **more}
    return subset(labels, size=size, draw=draw, **given)


def key(name: str, draw: int, i: int) -> int:
    return int(hashlib.blake2b(f"{name}/{draw}/{i}".encode(), digest_size=8).hexdigest(), 16)


def dealt(members: list[int], labels: Labels, name: str, draw: int) -> list[int]:
    """Each round takes the first image left of every class; in a round, by key."""
    hands: dict[int, list[int]] = {}
    for i in sorted(members, key=lambda i: key(name, draw, i)):
        hands.setdefault(int(labels[i]), []).append(i)
    order = []
    while any(hands.values()):
        table = [hand.pop(0) for hand in hands.values() if hand]
        order += sorted(table, key=lambda i: key(name, draw, i))
    return order


@pytest.mark.parametrize(
    ("size", "digest"), [(20, "de5648215dcb627e"), (100, "bfb2b6730481581b"),
                         (None, "6bfd734a6db82544")],
)  # fmt: skip
def test_digits_draw_0_are_these_images_for_ever(
    digits: Labels, size: int | None, digest: str
) -> None:
    taken = take(digits, size)
    assert taken.hash == digest
    assert set(DIGITS_20) <= set(taken.train.tolist())
    if size == 20:
        assert taken.train.tolist() == DIGITS_20
    if size == 100:
        assert taken.train[:10].tolist() == [37, 58, 66, 75, 79, 88, 99, 100, 111, 123]


@pytest.mark.parametrize("counts", [(11, 11, 11), (23, 5, 13, 2), (7, 59)])
@pytest.mark.parametrize("draw", [0, 7])
def test_equals_dealing_by_hand(counts: tuple[int, ...], draw: int) -> None:
    labels = pool(counts)
    order = dealt(list(range(len(labels))), labels, "x", draw)
    assert deal(labels, name="x", draw=draw).tolist() == order
    held = round(len(labels) * 0.1)
    left = dealt(order[held:], labels, "x", draw)
    size = len(counts) + 1
    taken = take(labels, size, draw, name="x")
    assert taken.train.tolist() == sorted(left[:size])
    assert taken.val.tolist() == sorted(order[: min(held, size)])


@pytest.mark.parametrize("draw", [0, 1, 2])
@pytest.mark.parametrize("fraction", [0.1, 0.29])  # of 7 classes neither holds out whole rounds
def test_nested_balanced_and_disjoint_at_every_size(draw: int, fraction: float) -> None:
    labels = pool((19,) * 7)
    whole = take(labels, None, draw, val_fraction=fraction)
    left = np.bincount(labels[whole.train])
    before: set[int] = set()
    for size in range(7, left.min() * 7 + 1):
        taken = take(labels, size, draw, val_fraction=fraction)
        now = set(taken.train.tolist())
        assert len(now) == len(taken.train) == size
        assert before <= now
        before = now
        for part in (taken.train, taken.val):
            assert np.ptp(np.bincount(labels[part], minlength=7)) <= 1
        assert not now & set(whole.val.tolist())
        assert set(taken.val.tolist()) <= set(whole.val.tolist())
        assert len(taken.val) == min(size, len(whole.val))


@pytest.mark.parametrize("draw", [0, 1])
def test_digits_are_nested_balanced_and_disjoint(digits: Labels, draw: int) -> None:
    parts = [take(digits, n, draw) for n in (10, 20, 53, 100, 401, 990, None)]
    for small, large in pairwise(parts):
        assert set(small.train.tolist()) < set(large.train.tolist())
        assert np.ptp(np.bincount(digits[small.train])) <= 1
        assert not set(small.train.tolist()) & set(parts[-1].val.tolist())


def test_all_is_what_validation_leaves(digits: Labels) -> None:
    taken = take(digits, None)
    assert (len(taken.train), len(taken.val)) == (1078, 120)
    assert sorted([*taken.train.tolist(), *taken.val.tolist()]) == list(range(1198))
    assert np.bincount(digits[taken.val]).tolist() == [12] * 10
    assert take(digits, 1078).hash == taken.hash


def test_draws_and_data_sets_differ(digits: Labels) -> None:
    parts = [take(digits, 100, draw) for draw in range(5)] + [take(digits, 100, name="other")]
    assert len({p.hash for p in parts}) == 6
    # 100 of 1,198 images at random share 8 with another 100; a shift or a reuse shares most
    shared = [len(np.intersect1d(parts[0].train, p.train)) for p in parts[1:]]
    assert max(shared) <= 20
    assert all((parts[0].val != p.val).any() for p in parts[1:])


def test_hash_is_of_the_indices(digits: Labels) -> None:
    taken = take(digits, 53)
    raw = b"".join(i.to_bytes(8, "little") for i in sorted(taken.train.tolist()))
    assert taken.hash == hashlib.blake2b(raw, digest_size=8).hexdigest()
    assert taken.hash != take(digits, 54).hash


def test_other_random_numbers_change_nothing(digits: Labels) -> None:
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    one = take(digits, 20)
    random.seed(6)
    np.random.seed(6)  # noqa: NPY002
    assert take(digits, 20).hash == one.hash


def test_another_process_with_another_hash_seed_agrees() -> None:
    labels = np.arange(59) % 3
    code = (
        "import numpy as np; from vision_attn.data.subsets import subset;"
        "print(subset(np.arange(59) % 3, name='x', draw=2, size=11, num_classes=3).hash)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONHASHSEED": "41"}, capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == take(labels, 11, 2, name="x").hash


def test_a_class_of_one_is_named_with_its_counts() -> None:
    labels = np.array([0] * 9 + [1])
    with pytest.raises(UserError, match=r"size 5 .*class 1 of digits has 1 images, 1 after"):
        take(labels, 5, draw=0)
    with pytest.raises(UserError, match=r"class 1 of digits has 1 images, 0 after .*take all 9"):
        take(labels, 5, draw=8)
    assert np.bincount(labels[take(labels, 3, draw=0).train]).tolist() == [2, 1]
    assert len(take(labels, None).train) == 9


def test_fewer_images_than_classes(digits: Labels) -> None:
    with pytest.raises(UserError, match="size 5 is smaller than the 10 classes of digits"):
        take(digits, 5)


def test_more_images_than_there_are(digits: Labels) -> None:
    wanted = r"size 1079 is larger than the 1078 training images of digits \(1198 less 120"
    with pytest.raises(UserError, match=wanted):
        take(digits, 1079)


def test_a_class_of_the_data_set_without_images() -> None:
    with pytest.raises(UserError, match="class 2 of digits has 0 images"):
        take(pool((11, 11)), 4, num_classes=3)


@pytest.mark.parametrize("draw", range(5))
@pytest.mark.parametrize("counts", [(23, 5, 11), (7, 7, 31, 7), (5, 53)])
def test_unbalanced_pool_is_balanced_as_far_as_it_goes(counts: tuple[int, ...], draw: int) -> None:
    labels = pool(counts)
    everything = take(labels, None, draw)
    left = np.bincount(labels[everything.train], minlength=len(counts))
    most = sum(min(n, left.min() + 1) for n in left)
    for size in range(len(counts), most + 1):
        got = np.bincount(labels[take(labels, size, draw).train], minlength=len(counts))
        assert got.sum() == size
        assert np.ptp(got) <= 1
    with pytest.raises(UserError, match=f"largest balanced size is {most}, or take all"):
        take(labels, int(most) + 1, draw)
    assert len(everything.train) == sum(counts) - round(sum(counts) * 0.1)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 0.99])
def test_validation_must_leave_something(fraction: float) -> None:
    with pytest.raises(UserError, match=f"data.val_fraction {fraction}"):
        take(pool((5, 6)), None, val_fraction=fraction)
