"""AdamW, and a rate that warms up and falls as a cosine over the real number of updates."""

import math
from dataclasses import dataclass
from typing import Any

import lightning as L
import torch
from timm.optim import param_groups_weight_decay
from timm.scheduler import CosineLRScheduler
from torch import Tensor, nn
from torchmetrics import MeanMetric

from vision_attn.errors import UserError
from vision_attn.training.ema import WeightEMA

__all__ = ["OptimConfig", "Optimised"]


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
            is off: the weights themselves.
    """

    lr: float = 1e-3
    weight_decay: float = 0.05
    warmup: float = 0.1
    label_smoothing: float = 0.0
    channels_last: bool = False
    compile: bool = False
    ema: float | None = None

    def check(self) -> None:
        """Refuse what cannot be meant, before any work begins."""
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


class Optimised(L.LightningModule):
    """A LightningModule that trains `self.model` by its hyperparameters lr, weight_decay, warmup.

    Norms, biases and what the model's `no_weight_decay` names are not decayed. A subclass saves the
    three hyperparameters, and tells `note_loss` each training loss. One that saves `ema` too has
    its weights averaged.
    """

    model: nn.Module

    def __init__(self) -> None:
        super().__init__()
        self.train_loss = MeanMetric(nan_strategy="disable")  # a diverged run must show it

    def configure_callbacks(self) -> list[WeightEMA]:
        """The average of the weights, where there is one, whoever made the trainer."""
        decay = self.hparams.get("ema")
        return [] if decay is None else [WeightEMA(decay)]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """A file of weights alone holds the average too; Lightning asks no callback for it."""
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, WeightEMA) and "averaging_state" not in checkpoint:
                callback.on_save_checkpoint(self.trainer, self, checkpoint)

    def note_loss(self, loss: Tensor, batch: int) -> Tensor:
        """The loss as it came, counted for the epoch's mean."""
        self.train_loss.update(loss.detach(), batch)
        return loss

    def on_train_epoch_end(self) -> None:
        """One row of the log an epoch, however few batches it had."""
        self.log("train_loss", self.train_loss.compute())
        self.train_loss.reset()

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
