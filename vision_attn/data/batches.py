"""Batches by (indices, seed): what one holds depends on nothing else.

Not on the model, the number of workers or the machine. An in-memory batch is one gather from a
uint8 tensor that lies on the training device, then batched augmentation there.
"""

from collections.abc import Iterator
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from vision_attn.data.augment import AugmentConfig, Normalise, augment, mix
from vision_attn.data.folder import Files

__all__ = ["Batches", "ImageBatches", "Request", "Stream", "take"]

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


def take(images: Tensor | Files, index: NDArray[np.int64]) -> Tensor | Files:
    """The images with these indices, in memory or on disk as they were."""
    if isinstance(images, Files):
        return Files(tuple(images.paths[i] for i in index), images.chans, images.img_size)
    return images[torch.from_numpy(index)]
