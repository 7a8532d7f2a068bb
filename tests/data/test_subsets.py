"""Subsets are nested, balanced, apart from validation, and the same on any machine."""

import hashlib
import json
import random
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
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


def validation(order: list[int], labels: Labels, counts: tuple[int, ...]) -> list[int]:
    """A tenth of each class, in dealt order: rounded down, then up from the smallest number on."""
    wanted = round(len(labels) * 0.1)
    share = [wanted * n / len(labels) for n in counts]
    number = [max(int(x), 1) for x in share]
    hands = [[i for i in order if labels[i] == c] for c in range(len(counts))]
    while sum(number) < wanted:
        open_ones = [c for c in range(len(counts)) if number[c] < share[c]]
        fewest = min(number[c] for c in open_ones)
        nexts = [hands[c][fewest] for c in open_ones if number[c] == fewest]
        number[labels[min(nexts, key=order.index)]] += 1
    val = {i for hand, n in zip(hands, number, strict=True) for i in hand[:n]}
    return [i for i in order if i in val]


@pytest.mark.parametrize("counts", [(11, 11, 11), (23, 5, 13, 3), (7, 59), (3, 97, 37, 101)])
@pytest.mark.parametrize("draw", [0, 7])
def test_equals_dealing_by_hand(counts: tuple[int, ...], draw: int) -> None:
    labels = pool(counts)
    order = dealt(list(range(len(labels))), labels, "x", draw)
    assert deal(labels, name="x", draw=draw).tolist() == order
    val = validation(order, labels, counts)
    left = dealt([i for i in order if i not in val], labels, "x", draw)
    size = len(counts) + 1
    taken = take(labels, size, draw, name="x")
    assert taken.train.tolist() == sorted(left[:size])
    assert taken.val.tolist() == sorted(val[:size])


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


@pytest.mark.parametrize("draw", range(5))
@pytest.mark.parametrize(
    ("counts", "val"),
    [((20, 1000), [2, 100]), ((1000, 31, 20), [99, 4, 2]), ((4, 1000), [1, 99]), ((3, 2), [1, 1]),
     ((7, 7, 7, 1201), [1, 1, 1, 119])],
)  # fmt: skip
def test_case_39_rare_class_keeps_its_share(
    counts: tuple[int, ...], val: list[int], draw: int
) -> None:
    labels = pool(counts)
    taken = take(labels, None, draw)
    assert np.bincount(labels[taken.val]).tolist() == val
    rest = [n - v for n, v in zip(counts, val, strict=True)]
    assert np.bincount(labels[taken.train]).tolist() == rest
    assert sorted([*taken.train.tolist(), *taken.val.tolist()]) == list(range(sum(counts)))


@pytest.mark.parametrize("draw", range(3))
@pytest.mark.parametrize("fraction", [0.1, 0.23, 0.43])
@pytest.mark.parametrize("counts", [(20, 1000), (23, 11, 113, 59), (61, 67, 71)])
def test_case_39_every_class_is_within_one_image_of_its_share(
    counts: tuple[int, ...], fraction: float, draw: int
) -> None:
    labels = pool(counts)
    whole = take(labels, None, draw, val_fraction=fraction)
    got = np.bincount(labels[whole.val], minlength=len(counts))
    share = round(sum(counts) * fraction) * np.array(counts) / sum(counts)
    assert got.sum() == round(sum(counts) * fraction)
    assert (abs(got - share) < 1).all()
    for size in (len(counts), 2 * len(counts) + 1, 17):
        taken = take(labels, size, draw, val_fraction=fraction)
        assert np.ptp(np.bincount(labels[taken.train], minlength=len(counts))) <= 1
        assert not set(taken.train.tolist()) & set(whole.val.tolist())
        assert set(taken.val.tolist()) <= set(whole.val.tolist())
        assert len(taken.val) == min(size, len(whole.val))
        assert np.bincount(labels[taken.val], minlength=len(counts)).all()


@pytest.mark.parametrize("size", [None, 3, 5])
@pytest.mark.parametrize("draw", [0, 8])
def test_case_39_a_class_of_one_is_named_with_its_counts(size: int | None, draw: int) -> None:
    wanted = (
        "class 1 of digits has 1 image, and validation takes 1 (data.val_fraction 0.1): none is"
        " left to train on; wanted 2 or more images"
    )
    with pytest.raises(UserError, match=re.escape(wanted)):
        take(np.array([0] * 9 + [1]), size, draw)
    with pytest.raises(UserError, match="class rare of digits has 1 image, and"):
        take(np.array([0] * 9 + [1]), size, draw, classes=("often", "rare"))


def test_case_74_one_image_a_class() -> None:
    with pytest.raises(UserError, match="class 0 of digits has 1 image, and validation takes 1"):
        take(np.arange(10), None)
    both = take(np.arange(20) % 10, None)
    assert np.bincount(both.train % 10).tolist() == np.bincount(both.val % 10).tolist() == [1] * 10


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


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 0.99, float("nan")])
def test_validation_must_leave_something(fraction: float) -> None:
    with pytest.raises(UserError, match=rf"data\.val_fraction {fraction}"):
        take(pool((5, 6)), None, val_fraction=fraction)


RESULTS = Path(__file__).parents[2] / "docs/results"


def test_stored_subsets_are_dealt_as_they_were(digits: Labels) -> None:
    cells = [json.loads(p.read_text()) for p in RESULTS.glob("cifar*/cells/*/result.json")]
    given = {
        (c["size"], c["draw"], c["config"]["val_fraction"], c["subset"])
        for c in cells if c["status"] == "ok"
    }  # fmt: skip
    assert len(given) == 64
    cifar = np.repeat(np.arange(10), 5000)  # a folder of ten classes, in their order
    for size, draw, fraction, digest in given:
        taken = take(cifar, size, draw, name="folder", val_fraction=fraction)
        assert taken.hash == digest
        assert np.ptp(np.bincount(cifar[taken.val])) <= 1
    table = pd.read_csv(RESULTS / "digits/results.csv")
    rows = {(int(n), int(d), h) for n, d, h in table[["size", "draw", "subset"]].to_numpy()}
    assert len(rows) == 18
    assert {take(digits, size, draw).hash == digest for size, draw, digest in rows} == {True}
