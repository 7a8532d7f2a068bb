"""Full batches in training, every image once in evaluation, shares of several processes."""

from collections import Counter
from itertools import chain
from math import gcd

import numpy as np
import pytest

from vision_attn.data.batches import Batches, Stream
from vision_attn.errors import UserError


@pytest.mark.parametrize(
    ("n", "batch"), [(12, 8), (35, 32), (33, 32), (7, 8), (5, 1), (13, 13), (3, 64)]
)
def test_stream_has_full_batches_and_uses_images_equally(n: int, batch: int) -> None:
    full = min(n, batch)
    rounds = n // gcd(n, full)
    batches = [index for index, _ in Stream(n, batch, 5, batches=rounds)]
    assert [len(b) for b in batches] == [full] * rounds
    every = np.concatenate(batches)
    assert Counter(every.tolist()) == dict.fromkeys(range(n), full // gcd(n, full))
    for one_pass in every.reshape(-1, n):
        assert sorted(one_pass.tolist()) == list(range(n))
    assert len(Stream(n, batch, 5)) == n // full


def flat(stream: Stream) -> list[tuple[list[int], int]]:
    return [(index.tolist(), seed) for index, seed in stream]


def test_stream_of_an_epoch_is_part_of_one_long_stream() -> None:
    whole = flat(Stream(11, 3, 5, batches=12))
    parts = Stream(11, 3, 5, batches=4)
    for number in (2, 0, 1, 2):
        parts.set_epoch(number)
        assert flat(parts) == whole[4 * number : 4 * number + 4]
    assert len({seed for _, seed in whole}) == 12
    assert flat(Stream(11, 3, 6, batches=12)) != whole
    assert flat(Stream(11, 11, 5))[0][0] != list(range(11))


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_out_each_batch(world: int) -> None:
    whole = flat(Stream(17, 6, 5, batches=5))
    ranks = [flat(Stream(17, 6, 5, batches=5, rank=r, world=world)) for r in range(world)]
    for number, (index, _) in enumerate(whole):
        for r in range(world):
            assert ranks[r][number][0] == index[r::world]
        assert len({ranks[r][number][1] for r in range(world)}) == world
    with pytest.raises(UserError, match=f"batch of 7 images cannot be shared equally by {world} "):
        Stream(17, 7, 5, rank=0, world=world)


@pytest.mark.parametrize(("n", "world"), [(13, 1), (13, 3), (11, 2), (31, 3), (3, 3)])
def test_evaluation_batches_cover_every_image_once_in_order(n: int, world: int) -> None:
    ranks = [Batches(n, 5, rank=r, world=world) for r in range(world)]
    for r, batches in enumerate(ranks):
        parts = [index.tolist() for index, _ in batches]
        assert list(chain(*parts)) == list(range(n))[r::world]
        # as many on every process, or one waits for the others for ever; none without an image
        assert len(parts) == len(batches) == len(ranks[0])
        assert all(1 <= len(p) <= 5 for p in parts)
        assert all(len(p) == 5 for p in parts[:-2])
    with pytest.raises(
        UserError, match=f"{world - 1} images cannot be divided among {world} devices"
    ):
        Batches(world - 1, 5, world=world)
