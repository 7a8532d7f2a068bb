"""The LightningDataModule: one subset of one data set, in memory where it fits."""

from typing import Any, get_args

import lightning as L
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from vision_attn.data.augment import AugmentConfig, Normalise, Transform, transform_of
from vision_attn.data.batches import ImageBatches, TrainLoader, every_image, take, training_order
from vision_attn.data.controls import Control, controlled
from vision_attn.data.folder import Unread
from vision_attn.data.sources import DataConfig, Source, load
from vision_attn.data.subsets import Subset, subset
from vision_attn.errors import UserError

__all__ = ["ImageData"]


class ImageData(L.LightningDataModule):
    """A subset of a named data set for Lightning; one draw, one size.

    Args:
        name: as in `sources.DataConfig`; null is what `root` holds, else digits.
        size: training images, balanced and nested; null is all of the pool.
        draw: which subset of that size.
        batch_size: images an update; no more than there are.
        augment: what training images go through; in Python also a transform of torchvision's v2.
        num_workers: processes that decode images too large for memory; unused otherwise.
        seed: of order and augmentation.
        batches_per_epoch: length of an epoch in batches; null is one pass.
        control: `permuted`, pixels in another, fixed order; `shuffled`, training labels at random.
        source: the data set itself, when it is loaded already.
        images: further options of `sources.DataConfig`: root, img_size, val_fraction, ...
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        size: int | None = None,
        draw: int = 0,
        batch_size: int = 64,
        augment: AugmentConfig | Transform | None = None,
        num_workers: int = 0,
        seed: int = 0,
        batches_per_epoch: int | None = None,
        control: Control = "none",
        source: Source | None = None,
        **images: Any,
    ) -> None:
        super().__init__()
        self.augment = augment if isinstance(augment, AugmentConfig) else AugmentConfig()
        self.augment.check()
        for what, value, least in (
            ("batch_size", batch_size, 1), ("num_workers", num_workers, 0), ("seed", seed, 0),
            ("draw", draw, 0), ("batches_per_epoch", batches_per_epoch, 1),
        ):  # fmt: skip
            if value is not None and value < least:
                raise UserError(f"data.{what} is {value}; wanted {least} or more")
        if control not in get_args(Control):
            known = ", ".join(get_args(Control))
            raise UserError(f"data.control {control!r} is not known; choose one of {known}")
        self.batch_size, self.num_workers, self.seed = batch_size, num_workers, seed
        self.batches_per_epoch, self.draw = batches_per_epoch, draw
        config = DataConfig(name=name, **images)
        self.source = source or load(config)
        self._noted = source is not None  # whoever read it has printed its notes
        self.subset: Subset = subset(
            self.source.train_labels,
            name=self.source.name,
            draw=draw,
            size=size,
            num_classes=len(self.source.classes),
            val_fraction=config.val_fraction,
            classes=self.source.classes,
            label=self.source.label,
        )
        self.augment.check_size(self.source.img_size)
        self.augment.check_batch(min(batch_size, len(self.subset.train)))
        (first,) = self.source.train_images[torch.tensor([0])]
        self._transform = transform_of(self.augment if augment is None else augment, first)
        self._take_control(control)
        self._normalise_by(*_statistics(self.source.train_images, self.subset.train))

    def prepare_data(self) -> None:
        """Print the notes on the files, once and on one process, if they were read here."""
        if not self._noted:
            self.source.tell()
        self._noted = True

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint stores, so that its model gets images as it was trained on them."""
        return {
            "name": self.source.name,
            "classes": list(self.source.classes),
            "img_size": list(self.img_size),
            "in_chans": self.in_chans,
            "mean": self.mean.tolist(),
            "std": self.std.tolist(),
            "control": self.control,
            "subset": self.subset.hash,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take normalisation and control from the checkpoint, as its model was trained.

        A state from before there were controls has none.

        Raises:
            UserError: other classes or another order of them, another image size or channels,
                another control; going on with shuffled labels on other images.
        """
        mine, was = self.state_dict(), {"control": "none", **state_dict}
        for key, what in (
            ("classes", "classes"), ("in_chans", "channels"), ("img_size", "image size"),
        ):  # fmt: skip
            if was.get(key, mine[key]) != mine[key]:
                raise UserError(f"the checkpoint's {what}: {was[key]}; the data's: {mine[key]}")
        if self.control not in ("none", was["control"]):
            raise UserError(
                f"the checkpoint's control is {was['control']}, data.control is {self.control}"
            )
        if was["control"] == "permuted" and was["name"] != self.source.name:
            raise UserError(
                f"the checkpoint's pixels are permuted as those of {was['name']},"
                f" the data is {self.source.label}"
            )
        training = self.trainer is not None and self.trainer.training
        if was["control"] == "shuffled" and training and was["subset"] != self.subset.hash:
            raise UserError(
                f"the checkpoint's labels are shuffled within images {was['subset']}, the data's"
                f" images are {self.subset.hash}; give the same data.size, draw and val_fraction"
            )
        if self.control == "none":
            self._take_control(was["control"])
        self._normalise_by(*(torch.tensor(was[key]) for key in ("mean", "std")))

    def _take_control(self, control: Control) -> None:
        self.control = control
        self.source = controlled(self.source, control, self.subset.train, self.draw)
        self._train: tuple[Tensor | Unread, Tensor] | None = None

    def _normalise_by(self, mean: Tensor, std: Tensor) -> None:
        self.mean, self.std = mean, std
        self._normalise = Normalise(mean, std)

    @property
    def num_classes(self) -> int:
        """Classes of the data set."""
        return len(self.source.classes)

    @property
    def in_chans(self) -> int:
        """Channels C of an image."""
        return self.source.in_chans

    @property
    def img_size(self) -> tuple[int, int]:
        """Height and width of an image in pixels."""
        return self.source.img_size

    def train_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        """Augmented batches in shuffled order, the same for every model and worker count."""
        order = training_order(
            len(self.subset.train), self.batch_size, self.seed, self.batches_per_epoch, self.trainer
        )
        return self._loader(TrainLoader, *self._train_images(), order, self.augment)

    def clean_train_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        """The training images as they are, in order: what the gap is measured on."""
        return self._in_order(*self._train_images())

    def val_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        """Validation images, disjoint from every subset of this draw."""
        return self._in_order(*self._part(self.subset.val))

    def test_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        """The test set, whole."""
        return self._in_order(*self._on_device(self.source.test_images, self.source.test_labels))

    def predict_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        """The test set, in file order."""
        return self.test_dataloader()

    def _train_images(self) -> tuple[Tensor | Unread, Tensor]:
        """The subset's images and labels on the device; one copy for all loaders."""
        if self._train is None or self._train[1].device != self._device(self._train[0]):
            self._train = self._part(self.subset.train)
        return self._train

    def _part(self, index: NDArray[np.int64]) -> tuple[Tensor | Unread, Tensor]:
        """These images of the training pool and their labels, on the device."""
        labels = self.source.train_labels[index]
        return self._on_device(take(self.source.train_images, index), labels)

    def _in_order(self, images: Tensor | Unread, labels: Tensor) -> DataLoader[Any]:
        order = every_image(len(labels), 500, self.trainer)
        return self._loader(DataLoader, images, labels, order, None)

    def _loader(
        self,
        kind: type[DataLoader[Any]],
        images: Tensor | Unread,
        labels: Tensor,
        order: Sampler[Any],
        augment: AugmentConfig | None,
    ) -> DataLoader[Any]:
        """A loader whose items are batches; only decoding is worth other processes."""
        workers = self.num_workers if isinstance(images, Unread) else 0
        batches = ImageBatches(
            images, labels, self._normalise, self.num_classes, augment, self.source.flip,
            self._transform,
        )  # fmt: skip
        return kind(
            batches,
            sampler=order,
            batch_size=None,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=workers > 0 and torch.cuda.is_available(),
        )

    def _on_device(
        self, images: Tensor | Unread, labels: NDArray[np.int64]
    ) -> tuple[Tensor | Unread, Tensor]:
        device = self._device(images)
        moved = images.to(device) if isinstance(images, Tensor) else images
        return moved, torch.from_numpy(labels).to(device)

    def _device(self, images: Tensor | Unread) -> torch.device:
        """Where images and labels lie: those in memory on the training device."""
        if self.trainer is None or not isinstance(images, Tensor):
            return torch.device("cpu")
        return self.trainer.strategy.root_device


def _statistics(images: Tensor | Unread, index: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation a channel over the subset, in grey levels; in pieces."""
    total = square = torch.zeros(())
    count = 0
    for part in np.array_split(index, max(len(index) // 1000, 1)):
        x = images[torch.from_numpy(part)].to(torch.float64)
        total = total + x.sum((0, 2, 3))
        square = square + x.square().sum((0, 2, 3))
        count += x.shape[0] * x.shape[2] * x.shape[3]
    mean = total / count
    return mean.float(), (square / count - mean.square()).clamp_min(0).sqrt().float()
