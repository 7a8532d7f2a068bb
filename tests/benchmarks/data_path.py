"""Images a second of the in-memory training loader and of torchvision's usual way.

    python tests/benchmarks/data_path.py [--threads N]

Batch 256 of 32 x 32 colour images made up for the purpose, zero padding of 4 and random crop,
mirror, normalised float32 out. All run in this process in turns: whole passes over the images, the
workers already started. Medians, and the ratio of ours to each. Run it on a machine that has
nothing else to do; where it has, `--threads 1` keeps one thread from waiting for another.
"""

import argparse
import platform
import statistics
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import VisionDataset

from vision_attn.data.augment import AugmentConfig
from vision_attn.data.module import ImageData
from vision_attn.data.sources import Source

BATCH, OURS, THEIRS, REPEATS = 256, 100, 20, 7
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


class Pictures(VisionDataset):
    """An array of images behind PIL and transforms, as torchvision's CIFAR10 is."""

    def __init__(self, data: NDArray[np.uint8], targets: list[int], transform: Any) -> None:
        super().__init__("", transform=transform)
        self.data, self.targets = data, targets

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.data[i])), self.targets[i]


def ours(images: NDArray[np.uint8], labels: NDArray[np.int64]) -> DataLoader[Any]:
    """The subset is all images; an epoch is `OURS` batches."""
    x = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    classes = tuple(map(str, range(10)))
    source = Source("made up", classes, True, x, labels, x[:10], labels[:10])
    return ImageData(
        source=source, batch_size=BATCH, batches_per_epoch=OURS,
        augment=AugmentConfig(pad=4, flip=True),
    ).train_dataloader()  # fmt: skip


def theirs(images: NDArray[np.uint8], labels: NDArray[np.int64], workers: int) -> DataLoader[Any]:
    """`THEIRS` batches are enough: it is the slower one."""
    usual = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, STD),
        ]
    )
    n = THEIRS * BATCH
    return DataLoader(
        Pictures(images[:n], labels[:n].tolist(), usual),
        batch_size=BATCH,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


def speed(loader: DataLoader[Any]) -> float:
    """Images a second over one pass."""
    seen, start = 0, time.perf_counter()
    for x, _ in loader:
        assert x.dtype == torch.float32
        seen += len(x)
    return seen / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--threads", type=int, help="of this process; PyTorch's choice if not given"
    )
    threads = parser.parse_args().threads
    if threads:
        torch.set_num_threads(threads)
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (50_000, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(50_000) % 10
    ways = {
        "vision_attn, in memory": ours(images, labels),
        "torchvision, 2 workers": theirs(images, labels, 2),
        "torchvision, 0 workers": theirs(images, labels, 0),
    }
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.machine()};"
        f" batch {BATCH}, median of {REPEATS} passes in turns"
    )
    for loader in ways.values():
        speed(loader)
    runs: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(REPEATS):
        for name, loader in ways.items():
            runs[name].append(speed(loader))
    first = statistics.median(runs["vision_attn, in memory"])
    for name, values in runs.items():
        median = statistics.median(values)
        print(
            f"{name}: {median:9,.0f} images/s ({min(values):,.0f} to {max(values):,.0f}),"
            f" ratio {first / median:.1f}"
        )


if __name__ == "__main__":
    main()
