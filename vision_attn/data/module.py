"""The LightningDataModule: one subset of one data set, in memory where it fits."""

from typing import Any

import lightning as L
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from vision_attn.data.augment import AugmentConfig, Normalise
from vision_attn.data.batches import Batches, ImageBatches, Request, Stream, take
from vision_attn.data.folder import Files
from vision_attn.data.sources import DataConfig, Source, load
from vision_attn.data.subsets import Subset, subset
from vision_attn.errors import UserError

__all__ = ["ImageData"]


class ImageData(L.LightningDataModule):
    """A subset of a named data set for Lightning; one draw, one size.

    Args:
        name, root, img_size, val_fraction, memory_mb: which images; see `sources.DataConfig`.
        size: training images, balanced and nested; null is all of the pool.
        draw: which subset of that size.
        batch_size: images an update; no more than there are.
        augment: what training images go through.
        num_workers: processes that decode a folder too large for memory; unused otherwise.
        seed: of order and augmentation.
        batches_per_epoch: length of an epoch in batches; null is one pass.
        source: the data set itself, when it is loaded already.
    """

    def __init__(
        self,
        name: str = "digits",
        *,
        root: str | None = None,
        img_size: int | None = None,
        val_fraction: float = 0.1,
        memory_mb: int = 4096,
        size: int | None = None,
        draw: int = 0,
        batch_size: int = 64,
        augment: AugmentConfig | None = None,
        num_workers: int = 0,
        seed: int = 0,
        batches_per_epoch: int | None = None,
        source: Source | None = None,
    ) -> None:
        super().__init__()
        self.augment = augment or AugmentConfig()
        self.augment.check()
        for what, value, least in (
            ("batch_size", batch_size, 1), ("num_workers", num_workers, 0), ("seed", seed, 0),
            ("draw", draw, 0), ("batches_per_epoch", batches_per_epoch, 1),
        ):  # fmt: skip
            if value is not None and value < least:
                raise UserError(f"data.{what} is {value}; wanted {least} or more")
        self.batch_size, self.num_workers, self.seed = batch_size, num_workers, seed
        self.batches_per_epoch = batches_per_epoch
        self.source = source or load(
            DataConfig(
                name=name,
                root=root,
                img_size=img_size,
                val_fraction=val_fraction,
                memory_mb=memory_mb,
            )
        )
        self._told = source is not None  # by whoever read it
        self.subset: Subset = subset(
            self.source.train_labels,
            name=self.source.name,
            draw=draw,
            size=size,
            num_classes=len(self.source.classes),
            val_fraction=val_fraction,
            classes=self.source.classes,
        )
        self.augment.check_size(self.source.img_size)
        self.augment.check_batch(min(batch_size, len(self.subset.train)))
        self.mean, self.std = _statistics(self.source.train_images, self.subset.train)
        self._normalise = Normalise(self.mean, self.std)

    def prepare_data(self) -> None:
        """Say what is odd about the files, once and on one process, if they were read here."""
        if not self._told:
            self.source.tell()
        self._told = True

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps, so that its model can be shown other images."""
        return {
            "classes": list(self.source.classes),
            "mean": self.mean.tolist(),
            "std": self.std.tolist(),
        }

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
        rank, world = self._ranks()
        train = self.subset.train
        sampler = Stream(
            len(train), self.batch_size, self.seed,
            batches=self.batches_per_epoch, rank=rank, world=world,
        )  # fmt: skip
        return self._loader(train, sampler, self.augment)

    def clean_train_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        """The training images as they are, in order: what the gap is measured on."""
        return self._evaluate(self.subset.train)

    def val_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        """Validation images, disjoint from every subset of this draw."""
        return self._evaluate(self.subset.val)

    def test_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        """The test set, whole."""
        return self._evaluate(None)

    def predict_dataloader(self) -> DataLoader[tuple[Tensor, Tensor]]:
        """The test set, in file order."""
        return self._evaluate(None)

    def _evaluate(self, index: NDArray[np.int64] | None) -> DataLoader[tuple[Tensor, Tensor]]:
        n = len(self.source.test_labels) if index is None else len(index)
        rank, world = self._ranks()
        return self._loader(index, Batches(n, 500, rank=rank, world=world), None)

    def _loader(
        self, index: NDArray[np.int64] | None, sampler: Sampler[Request],
        config: AugmentConfig | None,
    ) -> DataLoader[tuple[Tensor, Tensor]]:  # fmt: skip
        if index is None:
            images, labels = self.source.test_images, self.source.test_labels
        else:
            images = take(self.source.train_images, index)
            labels = self.source.train_labels[index]
        workers = self.num_workers if isinstance(images, Files) else 0
        device = self._device() if isinstance(images, Tensor) else torch.device("cpu")
        batches = ImageBatches(
            images.to(device) if isinstance(images, Tensor) else images,
            torch.from_numpy(labels).to(device),
            self._normalise,
            self.num_classes,
            config,
            self.source.flip,
        )
        return DataLoader(
            batches,
            sampler=sampler,
            batch_size=None,
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=workers > 0 and torch.cuda.is_available(),
        )

    def _ranks(self) -> tuple[int, int]:
        return (self.trainer.global_rank, self.trainer.world_size) if self.trainer else (0, 1)

    def _device(self) -> torch.device:
        return self.trainer.strategy.root_device if self.trainer else torch.device("cpu")


def _statistics(images: Tensor | Files, index: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation a channel over the subset, in grey levels; in pieces."""
    total = square = torch.zeros(())
    count = 0
    for part in np.array_split(index, max(len(index) // 1000, 1)):
        taken = take(images, part)
        x = torch.from_numpy(taken[np.arange(len(part))]) if isinstance(taken, Files) else taken
        x = x.to(torch.float64)
        total = total + x.sum((0, 2, 3))
        square = square + x.square().sum((0, 2, 3))
        count += x.shape[0] * x.shape[2] * x.shape[3]
    mean = total / count
    return mean.float(), (square / count - mean.square()).clamp_min(0).sqrt().float()
