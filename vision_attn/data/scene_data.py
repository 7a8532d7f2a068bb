"""Scenes of real digits placed on a canvas, to train a label for every pixel, or a set of boxes.

Everything follows from the seed. Training, validation and test scenes are made of different digits:
the test images of `sources.load`, and the split of its training pool that `subsets.subset` makes.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import lightning as L
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vision_attn.data.augment import Normalise
from vision_attn.data.batches import Request, TrainLoader, every_image, training_order
from vision_attn.data.sources import DataConfig, load
from vision_attn.data.subsets import subset
from vision_attn.errors import UserError

__all__ = ["INK", "SceneBatches", "SceneData", "Scenes", "Target", "make_scenes"]

Target = Literal["labels", "boxes"]


INK = 64
"""Grey level, of 255, from which a pixel belongs to its digit."""


@dataclass(frozen=True)
class Scenes:
    """S scenes with the truth about them; M is the most objects that any may hold.

    Args:
        images: uint8 (S, 1, h, w).
        labels: uint8 (S, h, w), the class of each pixel; `num_classes` is background.
        boxes: float32 (S, M, 4), centre x, centre y, width, height as shares of the canvas, tight
            around the labelled pixels.
        classes: int64 (S, M), class of each box; unused places hold -1 and come last.
        num_classes: classes of things, background apart.
    """

    images: Tensor
    labels: Tensor
    boxes: Tensor
    classes: Tensor
    num_classes: int

    def __len__(self) -> int:
        return len(self.images)


def make_scenes(
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    count: int,
    *,
    canvas: tuple[int, int] = (24, 24),
    objects: tuple[int, int] = (1, 4),
    num_classes: int = 10,
    seed: int = 0,
) -> Scenes:
    """Place images, uint8 (n, p, q) of classes (n,), at random without overlap.

    Args:
        count: scenes to make.
        canvas: height and width of a scene in pixels.
        objects: fewest and most objects of a scene; each number is equally likely.
        seed: decides everything.

    Raises:
        UserError: more objects than the canvas has room for, or an image without a pixel of `INK`.
    """
    (h, w), (p, q), (least, most) = canvas, images.shape[1:], objects
    room = (h // p) * (w // q)
    if not 0 <= least <= most <= room:
        raise UserError(
            f"objects {least} to {most}: wanted 0 or more, and no more than the {room} images of"
            f" {p} x {q} that fit on a canvas of {h} x {w}"
        )
    if not (images >= INK).any((1, 2)).all():
        raise UserError(f"an image has no pixel of grey level {INK} or more; it cannot be labelled")
    rng = np.random.default_rng(seed)
    scenes = np.zeros((count, 1, h, w), np.uint8)
    maps = np.full((count, h, w), num_classes, np.uint8)
    boxes = np.zeros((count, most, 4), np.float32)
    classes = np.full((count, most), -1, np.int64)
    for s in range(count):
        for m, (y, x) in enumerate(_places(rng, int(rng.integers(least, most + 1)), canvas, p, q)):
            i = int(rng.integers(len(images)))
            ink = images[i] >= INK
            scenes[s, 0, y : y + p, x : x + q] = images[i]
            maps[s, y : y + p, x : x + q][ink] = labels[i]
            rows, cols = ink.any(1).nonzero()[0], ink.any(0).nonzero()[0]
            top, bottom = y + rows[0], y + rows[-1] + 1
            left, right = x + cols[0], x + cols[-1] + 1
            middle = ((left + right) / 2 / w, (top + bottom) / 2 / h)
            boxes[s, m] = (*middle, (right - left) / w, (bottom - top) / h)
            classes[s, m] = labels[i]
    return Scenes(
        torch.from_numpy(scenes),
        torch.from_numpy(maps),
        torch.from_numpy(boxes),
        torch.from_numpy(classes),
        num_classes,
    )


def _places(
    rng: np.random.Generator, count: int, canvas: tuple[int, int], p: int, q: int
) -> list[tuple[int, int]]:
    """Corners of `count` cells of p x q that do not overlap, one after another among what is free.

    A placement that leaves no room for the rest is thrown away whole.
    """
    h, w = canvas
    for _ in range(10_000):
        places: list[tuple[int, int]] = []
        free = np.ones((h - p + 1, w - q + 1), bool)
        while len(places) < count and free.any():
            corners = free.ravel().nonzero()[0]
            y, x = divmod(int(corners[rng.integers(len(corners))]), free.shape[1])
            places.append((y, x))
            free[max(y - p + 1, 0) : y + p, max(x - q + 1, 0) : x + q] = False
        if len(places) == count:
            return places
    raise UserError(
        f"{count} images of {p} x {q} do not fit on a canvas of {h} x {w} in 10,000 tries;"
        " make the canvas larger"
    )


class SceneBatches(Dataset[tuple[Tensor, Any]]):
    """A data set whose item is a batch: float32 (B, 1, h, w), and its targets.

    `labels`: int64 (B, h, w). `boxes`: a list of B dicts, boxes (T, 4) and labels (T,), as
    torchvision's and torchmetrics' detectors have it, in the units of `Scenes`.
    """

    def __init__(self, scenes: Scenes, target: Target, normalise: Normalise) -> None:
        self.scenes, self.target, self.normalise = scenes, target, normalise

    def __getitem__(self, request: Request) -> tuple[Tensor, Any]:
        i = torch.from_numpy(request[0])
        x = self.normalise(self.scenes.images[i])
        if self.target == "labels":
            return x, self.scenes.labels[i].long()
        pairs = zip(self.scenes.boxes[i], self.scenes.classes[i], strict=True)
        return x, [{"boxes": b[c >= 0], "labels": c[c >= 0]} for b, c in pairs]


class SceneData(L.LightningDataModule):
    """Scenes of scikit-learn's digits for Lightning.

    Args:
        target: `labels`, the class of each pixel, background last; `boxes`, what is where.
        canvas: height and width of a scene in pixels.
        objects: fewest and most digits of a scene.
        train_scenes, eval_scenes: scenes to train on, and for validation and test each.
        batch_size: scenes an update.
        batches_per_epoch: length of an epoch in batches; null is one pass.
        seed: of scenes and their order.
    """

    def __init__(
        self,
        target: Target = "labels",
        *,
        canvas: tuple[int, int] = (24, 24),
        objects: tuple[int, int] = (1, 4),
        train_scenes: int = 20_000,
        eval_scenes: int = 1000,
        batch_size: int = 64,
        batches_per_epoch: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if target not in get_args(Target):
            raise UserError(f"target={target!r} is not known; choose labels or boxes")
        for what, value in (
            ("train_scenes", train_scenes), ("eval_scenes", eval_scenes), ("batch_size", batch_size)
        ):  # fmt: skip
            if value < 1:
                raise UserError(f"data.{what} is {value}; wanted 1 or more")
        self.target, self.canvas, self.objects = target, tuple(canvas), tuple(objects)
        self.batch_size, self.batches_per_epoch, self.seed = batch_size, batches_per_epoch, seed
        source = load(DataConfig())
        pool, classes = np.asarray(source.train_images)[:, 0], len(source.classes)
        split = subset(
            source.train_labels, name=source.name, draw=0, size=None, num_classes=classes
        )
        parts = {
            "train": (pool[split.train], source.train_labels[split.train], train_scenes),
            "val": (pool[split.val], source.train_labels[split.val], eval_scenes),
            "test": (np.asarray(source.test_images)[:, 0], source.test_labels, eval_scenes),
        }
        self.scenes = {
            part: make_scenes(
                images, labels, count,
                canvas=(canvas[0], canvas[1]), objects=(objects[0], objects[1]),
                num_classes=classes, seed=3 * seed + i,
            )
            for i, (part, (images, labels, count)) in enumerate(parts.items())
        }  # fmt: skip
        pixels = self.scenes["train"].images.double()
        self.mean, self.std = pixels.mean()[None].float(), pixels.std()[None].float()
        self._normalise = Normalise(self.mean, self.std)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint stores, so that its model gets scenes as it was trained on them."""
        return {"mean": self.mean.tolist(), "std": self.std.tolist()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Normalise as in training."""
        self.mean, self.std = (torch.tensor(state_dict[key]) for key in ("mean", "std"))
        self._normalise = Normalise(self.mean, self.std)

    @property
    def num_classes(self) -> int:
        """Classes: the digits, and background where every pixel has a label."""
        return self.scenes["train"].num_classes + (self.target == "labels")

    @property
    def in_chans(self) -> int:
        """Channels C of a scene."""
        return 1

    @property
    def img_size(self) -> tuple[int, int]:
        """Height and width of a scene in pixels."""
        return (self.canvas[0], self.canvas[1])

    def train_dataloader(self) -> DataLoader[tuple[Tensor, Any]]:
        """Training scenes in shuffled order."""
        order = training_order(
            len(self.scenes["train"]), self.batch_size, self.seed, self.batches_per_epoch,
            self.trainer,
        )  # fmt: skip
        return TrainLoader(self._batches("train"), sampler=order, batch_size=None)

    def val_dataloader(self) -> DataLoader[tuple[Tensor, Any]]:
        """Scenes of digits that the training pool holds out."""
        return self._evaluate("val")

    def test_dataloader(self) -> DataLoader[tuple[Tensor, Any]]:
        """Scenes of test digits."""
        return self._evaluate("test")

    def _evaluate(self, part: str) -> DataLoader[tuple[Tensor, Any]]:
        order = every_image(len(self.scenes[part]), 250, self.trainer)
        return DataLoader(self._batches(part), sampler=order, batch_size=None)

    def _batches(self, part: str) -> SceneBatches:
        return SceneBatches(self.scenes[part], self.target, self._normalise)
