"""Controls of a comparison: images without locality, labels without meaning."""

import zlib
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from vision_attn.data.folder import Files
from vision_attn.data.sources import Source
from vision_attn.errors import UserError

__all__ = ["permute_pixels", "shuffle_labels"]


def permute_pixels(source: Source) -> Source:
    """The source with the pixels of every image in another order, the same for all images.

    It takes locality from a CNN. Attention over pixels with learned positions is left as it was;
    over patches, a patch then holds pixels from anywhere. The order depends on the name of the data
    set alone. Images must be in memory.

    Raises:
        UserError: images that are read from files one by one.
    """
    height, width = source.img_size
    order = torch.from_numpy(
        np.random.default_rng(zlib.crc32(source.name.encode())).permutation(height * width)
    )

    def moved(images: torch.Tensor | Files) -> torch.Tensor:
        if isinstance(images, Files):
            raise UserError("control permuted wants images in memory; raise data.memory_mb")
        return images.flatten(2)[:, :, order].view(images.shape)

    return replace(
        source, train_images=moved(source.train_images), test_images=moved(source.test_images)
    )


def shuffle_labels(source: Source, index: NDArray[np.int64], seed: int) -> Source:
    """The source with the labels of the training images `index` dealt among these at random.

    Every class keeps its count; all other labels stay true.
    """
    labels = source.train_labels.copy()
    labels[index] = np.random.default_rng(seed).permutation(labels[index])
    return replace(source, train_labels=labels)
