"""The LightningModule of a classifier: cross-entropy, overall accuracy."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from vision_attn.models import create_model
from vision_attn.training.optim import OptimConfig, Optimised

__all__ = ["Classifier"]


class Classifier(Optimised):
    """An image classifier in training: logs `{train,val,test}_{loss,acc}` once an epoch.

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
        super().__init__()
        self.save_hyperparameters()
        OptimConfig(
            lr=lr,
            weight_decay=weight_decay,
            warmup=warmup,
            label_smoothing=label_smoothing,
            ema=ema,
        ).check()
        self.model = create_model(
            name, img_size=img_size, in_chans=in_chans, num_classes=num_classes, args=args
        )
        if channels_last:
            self.model.to(memory_format=torch.channels_last)
        # micro: torchmetrics' own default is the mean over classes, which is another number
        accuracy = MulticlassAccuracy(num_classes, average="micro", validate_args=False)
        self.val_acc, self.test_acc = accuracy.clone(), accuracy.clone()

    def setup(self, stage: str) -> None:
        """Compile in place, so that the names in a checkpoint stay the same."""
        if self.hparams["compile"]:
            self.model.compile()

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, classes)."""
        if self.hparams["channels_last"]:
            x = x.contiguous(memory_format=torch.channels_last)
        return self.model(x)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Loss of a batch; labels are classes (B,) or, after mixup, shares (B, classes)."""
        x, y = batch
        loss = F.cross_entropy(self(x), y, label_smoothing=self.hparams["label_smoothing"])
        return self.note_loss(loss, len(x))

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Accuracy and loss on validation images."""
        self._evaluate("val", self.val_acc, batch)

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Accuracy and loss on whatever images are given."""
        self._evaluate("test", self.test_acc, batch)

    def _evaluate(self, part: str, accuracy: Metric, batch: tuple[Tensor, Tensor]) -> None:
        x, y = batch
        logits = self(x)
        accuracy.update(logits, y)
        # sync_dist: a loss that one process saw would be reported for all of them
        loss = F.cross_entropy(logits, y)
        self.log(f"{part}_loss", loss, on_epoch=True, batch_size=len(x), sync_dist=True)
        self.log(f"{part}_acc", accuracy, on_epoch=True, batch_size=len(x), prog_bar=True)

    def predict_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Class probabilities, (B, classes)."""
        return self(batch[0]).softmax(-1)
