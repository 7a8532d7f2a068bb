"""Exponential moving average of the weights, evaluated and saved in their place (Polyak 1992)."""

from functools import partial
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import WeightAveraging
from torch import Tensor

__all__ = ["WeightEMA", "average"]


def average(mean: Tensor, new: Tensor, count: Tensor, decay: float) -> Tensor:
    """`d mean + (1 - d) new` with d = min(decay, (1 + count) / (10 + count)); shapes as they are.

    The lower d of the first updates removes the initial weights, which would dominate the average
    of a short run. Integers, such as an index or batch norm's count, are not averaged: the new
    value is returned.

    Args:
        count: updates averaged so far, 0-dimensional.
    """
    if not mean.is_floating_point():
        return new
    share = (9 / (10 + count)).clamp(min=1 - decay).to(mean.dtype)
    return mean.lerp(new.to(mean.dtype), share)  # a model in bfloat16 has its mean in float32


class WeightEMA(WeightAveraging):
    """Lightning's weight averaging with `average`, after every update, of buffers too.

    Validation uses the average. After training the module's weights are the average. A checkpoint
    stores it as the weights, and the weights to resume from beside it.

    Args:
        decay: d of a long run, 0 to under 1; the average spans about 1 / (1 - d) updates.
    """

    def __init__(self, decay: float) -> None:
        super().__init__(avg_fn=partial(average, decay=decay))

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Resume the average in training only; for a test its weights are already loaded."""
        if trainer.training:
            super().on_load_checkpoint(trainer, pl_module, checkpoint)
