"""Batches by (indices, seed): what one holds depends on nothing else.

Not on the model, the number of workers or the machine. An in-memory batch is one gather from a
uint8 tensor that lies on the training device, then batched augmentation there.
"""

from collections.abc import Iterator
from typing import Any, cast

import lightning as L
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, SequentialSampler

from vision_attn.data.augment import AugmentConfig, Normalise, Transform, augment, mix
from vision_attn.data.folder import Unread
from vision_attn.errors import UserError

__all__ = [
    "Batches",
    "ImageBatches",
    "Request",
    "Stream",
    "TrainLoader",
    "every_image",
    "take",
    "training_order",
]

Request = tuple[NDArray[np.int64], int]


class Stream(Sampler[Request]):
    """Shuffled passes laid end to end and cut into batches of equal size, with a seed for each.

    No image is dropped and no batch is short, so a batch of one never meets a batch norm. A batch
    is as large as the whole set where that is smaller. An epoch is `n // batch_size` batches, of
    which those before `start` are left out.
    """

    def __init__(
        self, n: int, batch_size: int, seed: int, *, batches: int | None = None,
        rank: int = 0, world: int = 1,
    ) -> None:  # fmt: skip
        """Args: batches an epoch, None is one pass; rank and world of distributed training.

        Raises UserError where processes would get unequal shares: Lightning averages their
        gradients as if they were equal.
        """
        self.n, self.batch_size, self.seed = n, min(batch_size, n), seed
        if self.batch_size % world:
            raise UserError(
                f"a batch of {self.batch_size} images cannot be shared equally by {world} devices;"
                f" choose a data.batch_size or data.size that {world} divides"
            )
        self.batches = batches or max(n // self.batch_size, 1)
        self.rank, self.world, self.epoch, self.start = rank, world, 0, 0

    def set_epoch(self, epoch: int) -> None:
        """Lightning calls this before each epoch, also after a resume."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Request]:
        before = self._before()
        for batch in range(before + self.start, before + self.batches):
            first = batch * self.batch_size
            spans, last = [], first + self.batch_size
            while first < last:
                which, offset = divmod(first, self.n)
                spans.append(self._pass(which)[offset : offset + last - first])
                first += len(spans[-1])
            seed = int(np.random.SeedSequence([self.seed, batch, self.rank]).generate_state(1)[0])
            yield np.concatenate(spans)[self.rank :: self.world], seed

    def _before(self) -> int:
        """Batches in the epochs before this one."""
        return self.epoch * self.batches

    def _pass(self, which: int) -> NDArray[np.int64]:
        cached = getattr(self, "_cache", None)
        if cached is None or cached[0] != which:
            generator = torch.Generator().manual_seed((self.seed * 1_000_003 + which) % 2**63)
            self._cache = cached = (which, torch.randperm(self.n, generator=generator).numpy())
        return cast("NDArray[np.int64]", cached[1])


class _Repeated(Stream, SequentialSampler):  # type: ignore[misc]
    """The first epoch's batches again and again.

    Lightning's `overfit_batches` wants an order that stays, and knows it by torch's class.
    """

    def _before(self) -> int:
        return 0


class Batches(SequentialSampler):
    """Every image once, in order; for evaluation. All processes get as many batches."""

    def __init__(self, n: int, batch_size: int, *, rank: int = 0, world: int = 1) -> None:
        if n < world:
            raise UserError(
                f"{n} images cannot be divided among {world} devices; take fewer devices"
            )
        self.n, self.batch_size, self.rank, self.world = n, batch_size, rank, world

    def __len__(self) -> int:
        return -(-len(range(0, self.n, self.world)) // self.batch_size)

    def __iter__(self) -> Iterator[Request]:  # type: ignore[override]
        mine, count = np.arange(self.rank, self.n, self.world), len(self)
        # a process with one image less leaves one for its last batch
        cuts = [min(i * self.batch_size, len(mine) - count + i) for i in range(count)]
        for first, last in zip(cuts, [*cuts[1:], len(mine)], strict=True):
            yield mine[first:last], 0


class TrainLoader(DataLoader[Any]):
    """A loader over a `Stream` that resumes with the remaining batches of an epoch.

    Lightning saves and restores the state of a loader that has one.
    """

    sampler: Stream
    _done = 0
    _stopped: dict[str, int] | None = None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        # a generator, so that it starts after Lightning has set the sampler's epoch
        stopped, self._stopped = self._stopped, None
        stream = self.sampler
        stream.start = stopped["batches"] if stopped and stopped["epoch"] == stream.epoch else 0
        self._done = stream.start
        with torch.random.fork_rng([], enabled=stream.start > 0):  # a loader draws a seed
            batches = super().__iter__()
        for batch in batches:
            self._done += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """The epoch, and how many of its batches have been delivered."""
        return {"epoch": self.sampler.epoch, "batches": self._done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on after these."""
        self._stopped = state


def training_order(
    n: int, batch_size: int, seed: int, batches: int | None, trainer: L.Trainer | None
) -> Stream:
    """The `Stream` of this process; the first epoch's again and again with `overfit_batches`."""
    rank, world = _process(trainer)
    overfit = trainer is not None and trainer.overfit_batches > 0  # type: ignore[attr-defined]
    kind = _Repeated if overfit else Stream
    return kind(n, batch_size, seed, batches=batches, rank=rank, world=world)


def every_image(n: int, batch_size: int, trainer: L.Trainer | None) -> Batches:
    """The `Batches` of this process."""
    rank, world = _process(trainer)
    return Batches(n, batch_size, rank=rank, world=world)


def _process(trainer: L.Trainer | None) -> tuple[int, int]:
    """Rank and number of processes, which share out the images among themselves."""
    if trainer is None:
        return 0, 1
    if trainer.world_size > 1 and trainer._accelerator_connector.use_distributed_sampler:
        raise UserError(
            "the data is divided among the devices already; give the Trainer"
            " use_distributed_sampler=False, or it is divided twice"
        )
    return trainer.global_rank, trainer.world_size


class ImageBatches(Dataset[tuple[Tensor, Tensor]]):
    """A data set whose item is a batch: (indices, seed) -> float32 (B, C, h, w) and labels (B,).

    With mixup or cutmix, labels are (B, classes).
    """

    def __init__(
        self,
        images: Tensor | Unread,
        labels: Tensor,
        normalise: Normalise,
        num_classes: int,
        config: AugmentConfig | None = None,
        flip_ok: bool = False,
        transform: Transform | None = None,
    ) -> None:
        """`config` None is for evaluation: no augmentation."""
        self.images, self.labels, self.normalise = images, labels, normalise
        self.num_classes, self.config, self.flip_ok = num_classes, config, flip_ok
        self.transform = transform

    def __getitem__(self, request: Request) -> tuple[Tensor, Tensor]:
        index, seed = torch.from_numpy(request[0]).to(self.labels.device), request[1]
        x, y = self.images[index], self.labels[index]
        if self.config is None:
            return self.normalise(x), y
        x = self.normalise(augment(x, self.config, self.flip_ok, seed, self.transform))
        return mix(x, y, self.config, self.num_classes, seed)


def take(images: Tensor | Unread, index: NDArray[np.int64]) -> Tensor | Unread:
    """The images with these indices, in memory or unread as they were."""
    if isinstance(images, Unread):
        return images.take(index)
    return images[torch.from_numpy(index)]
