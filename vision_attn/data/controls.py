"""Controls of a comparison: images without locality, labels without meaning."""

import zlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from vision_attn.data.config import Control
from vision_attn.data.folder import Unread
from vision_attn.data.sources import Source
from vision_attn.errors import UserError

__all__ = ["Control", "controlled", "map_images", "permute", "permute_pixels", "shuffle_labels"]


def controlled(source: Source, control: Control, index: NDArray[np.int64], draw: int) -> Source:
    """The source under a control; `index` are the training images of this draw."""
    if control == "permuted":
        return permute_pixels(source)
    return shuffle_labels(source, index, draw) if control == "shuffled" else source


def permute(images: torch.Tensor, name: str) -> torch.Tensor:
    """Pixels in the fixed order of the data set `name`: (n, C, h, w) -> (n, C, h, w)."""
    pixels = images.shape[2] * images.shape[3]
    order = np.random.default_rng(zlib.crc32(name.encode())).permutation(pixels)
    return images.flatten(2)[:, :, torch.from_numpy(order)].view(images.shape)


def map_images(source: Source, change: Callable[[torch.Tensor], torch.Tensor]) -> Source:
    """The source with `change`, (n, C, h, w) -> (n, C, h, w), done to all of its images.

    Raises:
        UserError: images that are read one by one.
    """

    def of_memory(images: torch.Tensor | Unread) -> torch.Tensor:
        if isinstance(images, Unread):
            raise UserError("images to be permuted must be in memory; raise data.memory_mb")
        return change(images)

    return replace(
        source,
        train_images=of_memory(source.train_images),
        test_images=of_memory(source.test_images),
    )


def permute_pixels(source: Source) -> Source:
    """The source with the pixels of every image in another order, the same for all images.

    It takes locality from a CNN. Attention over pixels with learned positions is left as it was;
    over patches, a patch then holds pixels from anywhere. The order depends on the name of the data
    set alone. Images must be in memory, see `map_images`.
    """
    return map_images(source, lambda images: permute(images, source.name))


def shuffle_labels(source: Source, index: NDArray[np.int64], seed: int) -> Source:
    """The source with the labels of the training images `index` dealt among these at random.

    Every class keeps its count; all other labels stay true.
    """
    labels = source.train_labels.copy()
    labels[index] = np.random.default_rng(seed).permutation(labels[index])
    return replace(source, train_labels=labels)
