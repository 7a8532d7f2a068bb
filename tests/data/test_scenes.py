"""Scenes of digits: the truth agrees with the pixels, digits never overlap, the seed decides."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from vision_attn.data.scene_data import INK, SceneData, Scenes, make_scenes
from vision_attn.data.sources import DataConfig, load
from vision_attn.errors import UserError


def blobs(n: int = 7, p: int = 3, q: int = 5) -> tuple[Any, Any]:
    """n images of p x q pixels, each with its own grey levels, and classes 0 to 3 in turn."""
    rng = np.random.default_rng(2)
    images = rng.integers(0, 256, (n, p, q)).astype(np.uint8)
    images[:, 0, 0] = 255
    return images, np.arange(n) % 4


def scenes(**more: Any) -> Scenes:
    given = {"canvas": (13, 17), "objects": (0, 4), "num_classes": 4, "seed": 5, **more}
    return make_scenes(*blobs(), 41, **given)


def test_one_scene_by_hand() -> None:
    image = np.array([[[0, INK], [200, INK - 1], [0, 0]]], np.uint8)
    made = make_scenes(image, np.array([2]), 1, canvas=(3, 2), objects=(1, 1), num_classes=3)
    assert made.images.tolist() == [[[[0, INK], [200, INK - 1], [0, 0]]]]
    assert made.labels.tolist() == [[[3, 2], [2, 3], [3, 3]]]  # 3 is background
    assert made.classes.tolist() == [[2]]
    # rows 0 and 1 of 3, both columns
    assert_close(made.boxes, torch.tensor([[[0.5, 1 / 3, 1.0, 2 / 3]]]))


def test_boxes_and_labels_agree_with_the_pixels() -> None:
    made = scenes()
    h, w = 13, 17
    for image, labels, boxes, classes in zip(
        made.images[:, 0], made.labels, made.boxes, made.classes, strict=True
    ):
        assert_close(labels != 4, image >= INK)  # 4 is background; no digit hides another
        inside = torch.zeros(h, w, dtype=torch.bool)
        for (cx, cy, bw, bh), c in zip(boxes.tolist(), classes.tolist(), strict=True):
            if c < 0:
                continue
            left, right = round((cx - bw / 2) * w), round((cx + bw / 2) * w)
            top, bottom = round((cy - bh / 2) * h), round((cy + bh / 2) * h)
            mine = labels[top:bottom, left:right] == c
            for edge in (mine[0], mine[-1], mine[:, 0], mine[:, -1]):
                assert edge.any()  # tight
            inside[top:bottom, left:right] |= mine
        assert_close(inside, labels != 4)  # nothing outside of a box


def test_every_digit_is_there_whole() -> None:
    images, labels = blobs()
    made = scenes()
    for s in range(len(made)):
        drawn = made.classes[s] >= 0
        ink = int(made.images[s].long().sum())
        ways = combinations(labels, made.classes[s][drawn].tolist())
        assert ink in [int(images[list(way)].astype(int).sum()) for way in ways]


def combinations(labels: Any, classes: list[int]) -> list[tuple[int, ...]]:
    """All ways to choose one image for each class of a list."""
    ways: list[tuple[int, ...]] = [()]
    for c in classes:
        ways = [(*way, int(i)) for way in ways for i in np.flatnonzero(labels == c)]
    return ways


def test_number_of_objects_is_uniform_and_padding_comes_last() -> None:
    made = make_scenes(*blobs(), 500, canvas=(13, 17), objects=(1, 3), num_classes=4)
    there = made.classes >= 0
    counts = there.sum(1).bincount(minlength=4)
    assert counts[0] == 0
    assert (counts[1:] - 500 / 3).abs().max() < 45  # more than four standard deviations
    assert_close(there, there.long().sort(1, descending=True).values.bool())
    assert_close(made.boxes[~there], torch.zeros(int((~there).sum()), 4))


def test_the_seed_decides() -> None:
    a, b, c = scenes(), scenes(), scenes(seed=6)
    for name in ("images", "labels", "boxes", "classes"):
        assert_close(getattr(a, name), getattr(b, name))
    assert (a.images != c.images).flatten(1).any(1).float().mean() > 0.7  # some of both are empty


@pytest.mark.parametrize("objects", [(4, 4), (2, 2)])
def test_a_full_canvas_can_be_filled(objects: tuple[int, int]) -> None:
    images, labels = blobs(p=2, q=2)
    h, w = (4, 4) if objects[0] == 4 else (2, 4)
    made = make_scenes(images, labels, 5, canvas=(h, w), objects=objects, num_classes=4)
    assert (made.classes >= 0).all()


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"objects": (0, 13)}, "0 to 13.*the 12 images of 3 x 5 that fit on a canvas of 13 x 17"),
        ({"objects": (3, 2)}, "3 to 2"),
        ({"objects": (-1, 2)}, "-1 to 2"),
        ({"canvas": (2, 17)}, "0 images of 3 x 5 that fit"),
    ],
)
def test_what_cannot_be_made_is_refused(more: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError, match=word):
        scenes(**more)


def test_an_image_without_ink_is_refused() -> None:
    with pytest.raises(UserError, match="grey level 64"):
        make_scenes(np.zeros((1, 2, 2), np.uint8), np.zeros(1, np.int64), 1)


@pytest.fixture(scope="module")
def data() -> dict[str, SceneData]:
    small: dict[str, Any] = {
        "train_scenes": 60, "eval_scenes": 30, "batch_size": 13, "canvas": (16, 25)
    }  # fmt: skip
    return {"labels": SceneData("labels", **small), "boxes": SceneData("boxes", **small)}


def test_parts_are_made_of_different_digits(data: dict[str, SceneData]) -> None:
    """Every digit of a part is looked for, as a whole cell, in the scenes of each part."""
    source = load(DataConfig())
    wanted = np.asarray(source.test_images)[:, 0]
    known = {image.tobytes() for image in wanted} - {
        image.tobytes() for image in np.asarray(source.train_images)[:, 0]
    }
    hits = {}
    for part, made in data["labels"].scenes.items():
        cells = np.lib.stride_tricks.sliding_window_view(made.images[:, 0].numpy(), (8, 8), (1, 2))
        found = {cell.tobytes() for cell in cells.reshape(-1, 8, 8)}
        hits[part] = len(found & known)
    assert hits["train"] == hits["val"] == 0
    assert hits["test"] > 20


def test_batches_hold_the_scenes(data: dict[str, SceneData]) -> None:
    made = data["boxes"].scenes["test"]
    x, labels = next(iter(data["labels"].test_dataloader()))
    assert x.dtype == torch.float32
    assert_close(labels, made.labels.long())
    train = torch.cat([x for x, _ in data["labels"].train_dataloader()])
    assert len(train) == 4 * 13  # an epoch of the largest number of whole batches
    assert abs(float(train.mean())) < 0.1
    assert abs(float(train.std()) - 1) < 0.1
    x2, targets = next(iter(data["boxes"].test_dataloader()))
    assert_close(x, x2)
    for i, target in enumerate(targets):
        n = int((made.classes[i] >= 0).sum())
        assert_close(target["labels"], made.classes[i, :n])
        assert_close(target["boxes"], made.boxes[i, :n])


def test_a_model_is_told_what_it_must_tell_apart(data: dict[str, SceneData]) -> None:
    assert (data["labels"].num_classes, data["boxes"].num_classes) == (11, 10)
    assert data["boxes"].img_size == (16, 25)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"target": "masks"}, "masks"),
        ({"train_scenes": 0}, "train_scenes is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_options_that_cannot_be_meant(given: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError, match=word):
        SceneData(**given)


def test_scenes_are_shown_as_in_training() -> None:
    small: dict[str, Any] = {"train_scenes": 5, "eval_scenes": 3}
    first, other = SceneData(**small), SceneData(**small, seed=1)
    before = next(iter(other.test_dataloader()))[0]
    assert first.state_dict() != other.state_dict()
    other.load_state_dict(first.state_dict())
    assert other.state_dict() == first.state_dict()
    assert not torch.equal(next(iter(other.test_dataloader()))[0], before)
