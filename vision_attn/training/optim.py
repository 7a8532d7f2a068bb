"""Settings of training: AdamW with warm-up and a cosine, memory format, compilation, averaging."""

import math
from dataclasses import dataclass

from vision_attn.errors import UserError

__all__ = ["OptimConfig"]


@dataclass(kw_only=True)
class OptimConfig:
    """How a model is trained; the same for every model of a study.

    Args:
        lr: peak learning rate of AdamW.
        weight_decay: of matrices and kernels; norms, biases, positions and class tokens have none.
        warmup: share of the updates over which the rate rises from near 0.
        label_smoothing: of the cross-entropy, training only.
        channels_last: memory format of images and kernels.
        compile: torch.compile the model.
        ema: decay of the average of the weights that is measured and saved, see `WeightEMA`; null
            takes the weights themselves.
    """

    lr: float = 1e-3
    weight_decay: float = 0.05
    warmup: float = 0.1
    label_smoothing: float = 0.0
    channels_last: bool = False
    compile: bool = False
    ema: float | None = None

    def check(self) -> None:
        """Raise UserError on values out of range, before any work starts."""
        for name, fits, wanted in (
            ("lr", lambda v: 0 < v < math.inf, "a number above 0"),
            ("weight_decay", lambda v: 0 <= v < math.inf, "0 or more"),
            ("warmup", lambda v: 0 <= v < 1, "0 to under 1"),
            ("label_smoothing", lambda v: 0 <= v < 1, "0 to under 1"),
            ("ema", lambda v: 0 <= v < 1, "0 to under 1, such as 0.999, or null"),
        ):
            value = getattr(self, name)
            if value is None and name == "ema":
                continue
            if value is None or not fits(value):
                raise UserError(f"{name} is {value}; wanted {wanted}")
