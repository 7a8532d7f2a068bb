"""Scenes of real digits for Lightning, to train a label for every pixel, or a set of boxes.

Everything follows from the seed. Training, validation and test scenes are made of different digits:
the test images of `sources.load`, and the split of its training pool that `subsets.subset` makes.
"""

from typing import Any, Literal, get_args

import lightning as L
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vision_attn.data.augment import Normalise
from vision_attn.data.batches import Request, TrainLoader, every_image, training_order
from vision_attn.data.scenes import Scenes, make_scenes
from vision_attn.data.sources import DataConfig, load
from vision_attn.data.subsets import subset
from vision_attn.errors import UserError

__all__ = ["SceneBatches", "SceneData", "Target"]

Target = Literal["labels", "boxes"]


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
