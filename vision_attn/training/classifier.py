"""The LightningModule: cross-entropy, AdamW, warm-up and cosine over the real number of updates."""

import math
from dataclasses import dataclass
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from timm.optim import param_groups_weight_decay
from timm.scheduler import CosineLRScheduler
from torch import Tensor
from torchmetrics import MeanMetric, Metric
from torchmetrics.classification import MulticlassAccuracy

from vision_attn.errors import UserError
from vision_attn.models import create_model

__all__ = ["Classifier", "OptimConfig"]


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
    """

    lr: float = 1e-3
    weight_decay: float = 0.05
    warmup: float = 0.1
    label_smoothing: float = 0.0
    channels_last: bool = False
    compile: bool = False

    def check(self) -> None:
        """Refuse what cannot be meant, before any work begins."""
        for name, high in (
            ("lr", math.inf), ("weight_decay", math.inf), ("warmup", 1), ("label_smoothing", 1),
        ):  # fmt: skip
            value = getattr(self, name)
            if not 0 <= value <= high:
                raise UserError(f"{name} is {value}; wanted 0 to {high}")


class Classifier(L.LightningModule):
    """An image classifier in training: logs `{train,val,test}_{loss,acc}` once an epoch.

    Args:
        name: model, as in `models.create_model`.
        args: further arguments of the model.
        img_size, in_chans, num_classes: from the data.
        lr, weight_decay, warmup, label_smoothing, channels_last, compile: see `OptimConfig`.
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
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        OptimConfig(
            lr=lr, weight_decay=weight_decay, warmup=warmup, label_smoothing=label_smoothing
        ).check()
        self.model = create_model(
            name, img_size=img_size, in_chans=in_chans, num_classes=num_classes, args=args
        )
        if channels_last:
            self.model.to(memory_format=torch.channels_last)
        self.train_loss = MeanMetric(nan_strategy="disable")  # a diverged run must show it
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
        self.train_loss.update(loss.detach(), len(x))
        return loss

    def on_train_epoch_end(self) -> None:
        """One row of the log an epoch, however few batches it had."""
        self.log("train_loss", self.train_loss.compute())
        self.train_loss.reset()

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

    def configure_optimizers(self) -> Any:
        """AdamW in two groups, and a rate that is stepped once an update."""
        skip: set[str] = getattr(self.model, "no_weight_decay", set)()
        groups = param_groups_weight_decay(
            self.model, self.hparams["weight_decay"], no_weight_decay_list=skip
        )
        lr = self.hparams["lr"]
        optimizer = torch.optim.AdamW(groups, lr=lr)
        if math.isinf(self.trainer.estimated_stepping_batches):
            raise UserError(
                "trainer.max_epochs is -1 and there is no max_steps; the rate needs one"
            )
        steps = int(self.trainer.estimated_stepping_batches)
        warmup = min(round(steps * self.hparams["warmup"]), steps - 1)
        scheduler = CosineLRScheduler(
            optimizer,
            t_initial=steps,
            warmup_t=warmup,
            warmup_lr_init=lr / (warmup + 1),
            t_in_epochs=False,
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """A run that goes on for longer follows the schedule of its new length."""
        if "lr_schedulers" in checkpoint:
            checkpoint["lr_schedulers"] = []  # it holds the old length, after which the rate is 0

    def on_train_start(self) -> None:
        """The rate of the first update, also when it is not the first of all."""
        scheduler: Any = self.lr_schedulers()
        scheduler.step_update(self.global_step)

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """timm's schedulers are told the number of updates made."""
        scheduler.step_update(self.global_step)
