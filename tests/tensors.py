"""Tensors of tests: random ones, each by a seed of its own, and the largest one that was made."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers that hang on shape, seed and dtype alone."""
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


class Largest(TorchDispatchMode):
    """The most elements that any operation gave, and the most bytes behind one of its tensors.

    A view has as many bytes as what it looks into.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for t in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(t, Tensor):
                self.count = max(self.count, t.numel())
                self.bytes = max(self.bytes, t.untyped_storage().nbytes())
        return out
