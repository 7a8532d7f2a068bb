"""Relational images: what lies where, who can tell the answer, and that they stay the same."""

import hashlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from vision_attn.data.relational import GLYPHS, SIDE, relational_images, relational_parts
from vision_attn.data.sources import DataConfig, load
from vision_attn.errors import UserError

CUE = (slice(None), slice(None), slice(0, 2), slice(0, 2))


def make(n: int, relation: float, seed: int = 7) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    return relational_images(n, relation, np.random.RandomState(seed))


def bright(images: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Pixels of red and green objects (n, 2, h, w), the cue taken away."""
    shown = images[:, :2] >= 160
    shown[CUE] = False
    return shown


def read(mask: NDArray[np.bool_]) -> int:
    """The glyph in a mask (h, w) that holds one object."""
    y, x = np.nonzero(mask)
    rows = ["".join("01"[int(v)] for v in row) for row in mask[y.min() :, x.min() :][:3, :3]]
    return list(GLYPHS.values()).index(tuple(rows))


@pytest.mark.parametrize("relation", [0.0, 0.25, 1.0])
def test_the_object_of_the_cues_colour_is_the_answer(relation: float) -> None:
    images, labels = make(500, relation)
    assert images.shape == (500, 3, SIDE, SIDE)
    assert (images[:, 2] < 64).all()
    colours = (images[CUE] >= 160).all((2, 3)).argmax(1)
    shown = bright(images)
    for mask, colour, label in zip(shown, colours, labels, strict=True):
        assert read(mask[colour]) == label
    both = shown.any((2, 3)).all(1)
    assert both.mean() == pytest.approx(relation, abs=4 * np.sqrt(relation * (1 - relation) / 500))
    assert not (shown[:, 0] & shown[:, 1]).any(), "objects lie on each other"


def test_nothing_but_the_cue_tells_the_answer() -> None:
    images, labels = make(4_001, 1.0)
    shown = bright(images)
    kinds = np.array([[read(mask) for mask in pair] for pair in shown])
    tossed = kinds[np.arange(len(kinds)), np.arange(len(kinds)) % 2]
    assert (tossed == labels).mean() == pytest.approx(0.625, abs=0.03)
    assert np.bincount(labels, minlength=4) / len(labels) == pytest.approx([0.25] * 4, abs=0.03)
    assert {int(np.count_nonzero(m)) for pair in shown for m in pair} == {5}


def test_objects_lie_everywhere_but_on_the_cue() -> None:
    shown = bright(make(4_001, 1.0)[0])
    covered = shown.any((0, 1))
    assert not covered[:2, :2].any()
    covered[:2, :2] = True
    assert covered.all()


def test_images_stay_the_same() -> None:
    images, labels = make(31, 0.5, seed=0)
    digest = hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
    assert digest[:16] == "03a758143c8d8394"
    parts = relational_parts(0.5, train=17, test=14)
    assert np.array_equal(np.concatenate([parts["train_images"], parts["test_images"]]), images)
    assert np.array_equal(np.concatenate([parts["train_labels"], parts["test_labels"]]), labels)
    assert (parts["classes"], parts["flip"]) == (tuple(GLYPHS), False)


def test_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relational_parts, "__defaults__", (13, 5))
    source = load(DataConfig(name="relational", relation=0.25))
    assert (source.name, source.label) == ("relational", "relational, p = 0.25")
    assert (len(source.train_labels), len(source.test_labels)) == (13, 5)
    whole = load(DataConfig(name="relational"))
    assert isinstance(whole.train_images, Tensor)
    assert (bright(whole.train_images.numpy()).any((2, 3)).all(1)).all()
    assert whole.fingerprint != source.fingerprint


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"relation": 0.5}, "data.relation is for relational images; data.name is digits"),
        ({"name": "relational", "relation": 1.5}, "data.relation 1.5 is not between 0 and 1"),
        ({"name": "relational", "root": "x"}, "relational images are made, not read"),
        ({"name": "relational", "img_size": 24}, "relational has a size of its own"),
    ],
)
def test_mistakes(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        DataConfig(**given).check()
