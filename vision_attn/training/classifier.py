"""The LightningModule of a classifier: cross-entropy, overall accuracy."""

from typing import Any

import torch
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from vision_attn.models.registry import create_model
from vision_attn.training.base import Supervised
from vision_attn.training.optim import OptimConfig

__all__ = ["Classifier"]


class Classifier(Supervised):
    """An image classifier in training: logs `train_loss` and `{val,test}_{loss,acc}` once an epoch.

    Args:
        name: model, as in `models.create_model`.
        args: further arguments of the model.
        img_size, in_chans, num_classes: from the data.
        lr, weight_decay, warmup, label_smoothing, channels_last, compile, ema: see `OptimConfig`.
    """

    def __init__(
        self,
        name: str = "vit",
        args: dict[str, Any] | None = None,
        *,
        img_size: tuple[int, int] = (32, 32),
        in_chans: int = 3,
        num_classes: int = 10,
        lr: float = 1e-3,
        weight_decay: float = 0.05,
        warmup: float = 0.1,
        label_smoothing: float = 0.0,
        channels_last: bool = False,
        compile: bool = False,
        ema: float | None = None,
    ) -> None:
        # micro: torchmetrics' own default is the mean over classes, which is another number
        accuracy = MulticlassAccuracy(num_classes, average="micro", validate_args=False)
        super().__init__(MetricCollection({"acc": accuracy}))
        self.save_hyperparameters()
        OptimConfig(
            lr=lr,
            weight_decay=weight_decay,
            warmup=warmup,
            label_smoothing=label_smoothing,
            ema=ema,
        ).check()
        self._compiled = False
        self.model = create_model(
            name, img_size=img_size, in_chans=in_chans, num_classes=num_classes, args=args
        )
        if channels_last:
            self.model.to(memory_format=torch.channels_last)

    def setup(self, stage: str) -> None:
        """Compile in place, once, so that the names in a checkpoint stay the same."""
        if self.hparams["compile"] and not self._compiled:
            self.model.compile()
            self._compiled = True

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, classes)."""
        if self.hparams["channels_last"]:
            x = x.contiguous(memory_format=torch.channels_last)
        return self.model(x)

    def predict_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Class probabilities, (B, classes)."""
        return self(batch[0]).softmax(-1)
