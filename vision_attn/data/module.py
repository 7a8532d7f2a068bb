"""The LightningDataModule: one subset of one data set, in memory where it fits.

A batch is asked for by (indices, seed), so what it holds depends on nothing else: not on the model,
the number of workers or the machine. An in-memory batch is one gather from a uint8 tensor that lies
on the training device, then batched augmentation there.
"""

from collections.abc import Iterator
from typing import Any, cast

import lightning as L
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from vision_attn.data.augment import AugmentConfig, Normalise, augment, mix
from vision_attn.data.sources import DataConfig, Files, Source, load
from vision_attn.data.subsets import Subset, subset
from vision_attn.errors import UserError

__all__ = ["Batches", "ImageBatches", "ImageData", "Stream"]

Request = tuple[NDArray[np.int64], int]


class Stream(Sampler[Request]):
    """Shuffled passes laid end to end and cut into batches of equal size, with a seed for each.

    No image is dropped and no batch is short, so a batch of one never meets a batch norm. A batch
    is as large as the whole set where that is smaller. An epoch is `n // batch_size` batches.
    """

    def __init__(
        self, n: int, batch_size: int, seed: int, *, batches: int | None = None,
        rank: int = 0, world: int = 1,
    ) -> None:  # fmt: skip
        """Args: batches an epoch, None is one pass; rank and world of distributed training."""
        self.n, self.batch_size, self.seed = n, min(batch_size, n), seed
        self.batches = batches or max(n // self.batch_size, 1)
        self.rank, self.world, self.epoch = rank, world, 0

    def set_epoch(self, epoch: int) -> None:
        """Lightning calls this before each epoch, also after a resume."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Request]:
        start = self.epoch * self.batches
        for batch in range(start, start + self.batches):
            first = batch * self.batch_size
            spans, last = [], first + self.batch_size
            while first < last:
                which, offset = divmod(first, self.n)
                spans.append(self._pass(which)[offset : offset + last - first])
                first += len(spans[-1])
            seed = int(np.random.SeedSequence([self.seed, batch, self.rank]).generate_state(1)[0])
            yield np.concatenate(spans)[self.rank :: self.world], seed

    def _pass(self, which: int) -> NDArray[np.int64]:
        cached = getattr(self, "_cache", None)
        if cached is None or cached[0] != which:
            generator = torch.Generator().manual_seed((self.seed * 1_000_003 + which) % 2**63)
            self._cache = cached = (which, torch.randperm(self.n, generator=generator).numpy())
        return cast("NDArray[np.int64]", cached[1])


class Batches(Sampler[Request]):
    """Every image once, in order; for evaluation."""

    def __init__(self, n: int, batch_size: int, *, rank: int = 0, world: int = 1) -> None:
        self.n, self.batch_size, self.rank, self.world = n, batch_size, rank, world

    def __len__(self) -> int:
        return -(-len(range(self.rank, self.n, self.world)) // self.batch_size)

    def __iter__(self) -> Iterator[Request]:
        mine = np.arange(self.rank, self.n, self.world)
        for i in range(0, len(mine), self.batch_size):
            yield mine[i : i + self.batch_size], 0


class ImageBatches(Dataset[tuple[Tensor, Tensor]]):
    """A data set whose item is a batch: (indices, seed) -> float32 (B, C, h, w) and labels (B,).

    With mixup or cutmix, labels are (B, classes).
    """

    def __init__(
        self,
        images: Tensor | Files,
        labels: Tensor,
        normalise: Normalise,
        num_classes: int,
        config: AugmentConfig | None = None,
        flip_ok: bool = False,
    ) -> None:
        """`config` None is for evaluation: no augmentation."""
        self.images, self.labels, self.normalise = images, labels, normalise
        self.num_classes, self.config, self.flip_ok = num_classes, config, flip_ok

    def __getitem__(self, request: Request) -> tuple[Tensor, Tensor]:
        index, seed = request
        if isinstance(self.images, Files):
            x = torch.from_numpy(self.images[index])
        else:
            x = self.images[torch.from_numpy(index).to(self.images.device)]
        y = self.labels[torch.from_numpy(index).to(self.labels.device)]
        if self.config is None:
            return self.normalise(x), y
        x = self.normalise(augment(x, self.config, self.flip_ok, seed))
        return mix(x, y, self.config, self.num_classes, seed)


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
            ("batches_per_epoch", batches_per_epoch, 1),
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
        self.subset: Subset = subset(
            self.source.train_labels,
            name=self.source.name,
            draw=draw,
            size=size,
            num_classes=len(self.source.classes),
            val_fraction=val_fraction,
        )
        self.augment.check_batch(min(batch_size, len(self.subset.train)))
        self.mean, self.std = _statistics(self.source.train_images, self.subset.train)
        self._normalise = Normalise(self.mean, self.std)

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
            images = _take(self.source.train_images, index)
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


def _take(images: Tensor | Files, index: NDArray[np.int64]) -> Tensor | Files:
    if isinstance(images, Files):
        return Files(tuple(images.paths[i] for i in index), images.chans, images.img_size)
    return images[torch.from_numpy(index)]


def _statistics(images: Tensor | Files, index: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation a channel over the subset, in grey levels; in pieces."""
    total = square = torch.zeros(())
    count = 0
    for part in np.array_split(index, max(len(index) // 1000, 1)):
        taken = _take(images, part)
        x = torch.from_numpy(taken[np.arange(len(part))]) if isinstance(taken, Files) else taken
        x = x.to(torch.float64)
        total = total + x.sum((0, 2, 3))
        square = square + x.square().sum((0, 2, 3))
        count += x.shape[0] * x.shape[2] * x.shape[3]
    mean = total / count
    return mean.float(), (square / count - mean.square()).clamp_min(0).sqrt().float()
