"""Small things that tests of several parts use: `from shared import draw`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from lightning import Trainer

    from vision_attn.data.sources import Source

TINY_VIT: dict[str, Any] = {"patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 3}
"""Arguments of a ViT that learns digits in a second."""


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal random numbers, the same for a seed whatever was drawn before."""
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def tree(root: Path) -> dict[str, tuple[int, bytes | None]]:
    """Everything under a path: when it was written, and its bytes."""
    return {
        str(p.relative_to(root)): (p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else None)
        for p in [root, *root.rglob("*")]
    }


def quiet(root: Path | None = None, **options: Any) -> "Trainer":
    """A Trainer on the CPU that prints and writes nothing."""
    from lightning import Trainer  # takes seconds, which tests of ops and layers need not spend

    still = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    options = {**still, "enable_model_summary": False, "num_sanity_val_steps": 0, **options}
    return Trainer(default_root_dir=root, accelerator="cpu", devices=1, **options)


def two_classes(n: int) -> "Source":
    """n training and 6 test images of 5 x 7 pixels, two classes in turn."""
    from vision_attn.data.sources import Source

    images = torch.randint(
        0, 256, (n + 6, 1, 5, 7), generator=torch.Generator().manual_seed(3), dtype=torch.uint8
    )
    labels = np.arange(n + 6) % 2
    return Source(
        "two", ("a", "b"), False, images[:n], labels[:n], images[n:], labels[n:], "two-print"
    )
