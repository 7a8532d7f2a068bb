"""Controls change what they say and nothing else, and each number is as it was first drawn."""

import hashlib
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from vision_attn.data.controls import controlled, permute
from vision_attn.data.folder import Files
from vision_attn.data.sources import DataConfig, Source, load
from vision_attn.data.subsets import subset
from vision_attn.errors import UserError


@pytest.fixture(scope="module")
def source() -> Source:
    return load(DataConfig())


@pytest.fixture(scope="module")
def index(source: Source) -> NDArray[np.int64]:
    return subset(source.train_labels, name="digits", draw=1, size=53, num_classes=10).train


def test_no_control_is_the_source_itself(source: Source, index: NDArray[np.int64]) -> None:
    assert controlled(source, "none", index, 1) is source


def test_permuted_is_numpys_permutation_seeded_by_the_name(
    source: Source, index: NDArray[np.int64]
) -> None:
    got: Any = controlled(source, "permuted", index, 1)
    order = np.random.default_rng(zlib.crc32(b"digits")).permutation(64)
    for part in ("train_images", "test_images"):
        images = np.asarray(getattr(source, part))
        wanted = images.reshape(len(images), 64)[:, order].reshape(images.shape)
        np.testing.assert_array_equal(np.asarray(getattr(got, part)), wanted)
    # the order of stored results; another one would make their checkpoints mean something else
    assert order[:7].tolist() == [10, 8, 48, 21, 2, 19, 23]
    assert got.train_labels is source.train_labels
    assert (got.name, got.fingerprint) == (source.name, source.fingerprint)
    other: Any = controlled(source, "permuted", index[:5], 3)
    assert torch.equal(other.train_images, got.train_images)


def test_permute_moves_all_channels_and_images_alike() -> None:
    images = torch.arange(2 * 3 * 5 * 7).view(2, 3, 5, 7)
    moved = permute(images, "x")
    first = images[0, 0].flatten()
    places = [first.tolist().index(v) for v in moved[0, 0].flatten().tolist()]
    assert sorted(places) == list(range(35)) != places
    for i in range(2):
        for c in range(3):
            assert torch.equal(moved[i, c].flatten(), images[i, c].flatten()[places])
    assert not torch.equal(permute(images, "y"), moved)


def test_shuffled_labels_are_dealt_by_draw(source: Source, index: NDArray[np.int64]) -> None:
    got = controlled(source, "shuffled", index, 1)
    wanted = source.train_labels.copy()
    wanted[index] = np.random.default_rng(1).permutation(wanted[index])
    np.testing.assert_array_equal(got.train_labels, wanted)
    dealt = hashlib.blake2b(got.train_labels[index].astype("<i8").tobytes()).hexdigest()
    assert dealt.startswith("cb6f9476df3107c1")
    assert got.train_images is source.train_images
    assert got.test_labels is source.test_labels
    other = controlled(source, "shuffled", index, 2)
    assert (other.train_labels != got.train_labels).any()


def test_streamed_images_cannot_be_permuted() -> None:
    files, labels = Files(("a", "b"), 1, (5, 7)), np.arange(2)
    source = Source("folder", ("a", "b"), True, files, labels, files, labels)
    with pytest.raises(UserError, match=r"control permuted .* raise data.memory_mb"):
        controlled(source, "permuted", labels, 0)
