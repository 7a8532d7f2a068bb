"""Base classes of the LightningModules: means of losses and weights, AdamW by updates, resuming."""

import math
from functools import partial
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import WeightAveraging
from timm.optim import param_groups_weight_decay
from timm.scheduler import CosineLRScheduler
from timm.scheduler.scheduler import Scheduler
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from vision_attn.errors import UserError

__all__ = ["Optimised", "Supervised", "WeightEMA", "WeightedMean", "average"]


class WeightedMean(Metric):
    """Weighted mean over batches and processes; NaN and infinity are kept.

    torchmetrics' MeanMetric ignores the weights if it is told to keep NaN.
    """

    total: Tensor
    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("weight", torch.zeros(()), dist_reduce_fx="sum")

    def update(self, value: Tensor, weight: float) -> None:
        """Add a value, 0-dimensional, with its weight."""
        # a model in half precision converts its metrics too, and half cannot count
        wide = torch.promote_types(value.dtype, torch.float32)
        self.total = self.total.to(wide) + value.detach().to(wide) * weight
        self.weight = self.weight.to(wide) + weight

    def compute(self) -> Tensor:
        """The mean; NaN without values."""
        return self.total / self.weight


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


class Optimised(L.LightningModule):
    """A LightningModule that trains `self.model` by its hyperparameters lr, weight_decay, warmup.

    Norms, biases and the parameters in the model's `no_weight_decay` are not decayed. A subclass
    saves the three hyperparameters and calls `note_loss` with each training loss. With a
    hyperparameter `ema` the weights are averaged.
    """

    model: nn.Module

    def __init__(self) -> None:
        super().__init__()
        self.train_loss, self.val_loss, self.test_loss = (WeightedMean() for _ in range(3))
        self._stopped: dict[str, Any] = {}
        self._unit = 0  # images of weight 1 in the epoch's mean

    def configure_callbacks(self) -> list[WeightEMA]:
        """The average of the weights, if `ema` asks for it, in any trainer."""
        decay = self.hparams.get("ema")
        return [] if decay is None else [WeightEMA(decay)]

    def note_loss(self, loss: Tensor, batch: int) -> Tensor:
        """Add a training loss to the mean of the epoch; returns it unchanged."""
        if not self._unit:  # equal batches have weight 1, so the sum of their losses is exact
            alone = self._trainer is None or self._trainer.world_size == 1
            self._unit = batch if alone else 1
        self.train_loss.update(loss, batch / self._unit)
        return loss

    def log_loss(self, part: str, loss: Tensor, batch: int) -> None:
        """Add a validation or test loss of `batch` images and log the mean over all images."""
        mean = self.val_loss if part == "val" else self.test_loss
        mean.update(loss, batch)
        self.log(f"{part}_loss", mean, on_epoch=True, batch_size=batch)

    def on_train_epoch_end(self) -> None:
        """One row of the log an epoch, also of one batch; none if training resumes at its end."""
        if self.train_loss.weight:
            self.log("train_loss", self.train_loss.compute())
            self.train_loss.reset()
        self._unit = 0

    def configure_optimizers(self) -> Any:
        """AdamW in two groups, and a learning rate that changes with each update."""
        skip: set[str] = getattr(self.model, "no_weight_decay", set)()
        groups = param_groups_weight_decay(
            self.model, self.hparams["weight_decay"], no_weight_decay_list=skip
        )
        optimizer = torch.optim.AdamW(groups, lr=self.hparams["lr"])
        self._decays = [group["weight_decay"] for group in optimizer.param_groups]
        trainer = self.trainer
        for name in ("max_epochs", "max_steps", "limit_train_batches"):
            if getattr(trainer, name) == 0:
                raise UserError(f"trainer.{name} is 0, so fit would make no update; raise it")
        # the number of updates is only known in on_train_start: asking for it makes the loader, and
        # a loader that is made before a checkpoint's state is loaded starts from the beginning
        schedule = self._schedule(optimizer, steps=2)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def _schedule(self, optimizer: torch.optim.Optimizer, steps: int) -> CosineLRScheduler:
        """Warm-up and cosine over `steps` updates, with the hyperparameters' peak rate."""
        lr = self.hparams["lr"]
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"] = lr
        warmup = min(round(steps * self.hparams["warmup"]), steps - 1)
        return CosineLRScheduler(
            optimizer,
            t_initial=steps,
            warmup_t=warmup,
            warmup_lr_init=lr / (warmup + 1),
            t_in_epochs=False,
        )

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what resuming needs beside Lightning's own state: random numbers, the epoch's loss.

        A file of weights alone has the average too; for these Lightning does not call callbacks.
        """
        checkpoint["precision"] = self.trainer.precision
        cuda = self.device.type == "cuda"
        checkpoint["stopped"] = {
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state(self.device) if cuda else None,
            "train_loss": [self.train_loss.total.cpu(), self.train_loss.weight.cpu()],
            "unit": self._unit,
        }
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, WeightEMA) and "averaging_state" not in checkpoint:
                callback.on_save_checkpoint(self.trainer, self, checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """A resumed run with a new length follows the schedule of that length."""
        if "lr_schedulers" in checkpoint:
            checkpoint["lr_schedulers"] = []  # of the old length, after which the rate is 0
        self._stopped = checkpoint.get("stopped", {})
        if self._trainer is None or not self._trainer.training:
            return
        was, now = checkpoint["hyper_parameters"]["weight_decay"], self.hparams["weight_decay"]
        if (was == 0) != (now == 0):  # then timm makes other groups of parameters
            raise UserError(f"weight_decay was {was}; training cannot go on with {now}")
        if self.hparams.get("ema") is None and "current_model_state" in checkpoint:
            checkpoint["state_dict"] = checkpoint["current_model_state"]  # the average ends here
        self._reopen(checkpoint["loops"]["fit_loop"])

    def _reopen(self, loop: dict[str, Any]) -> None:
        """Correct Lightning's count of epochs, with which batches would be skipped.

        An epoch that max_steps or a stop cut short is counted as done, so its last batches would be
        skipped. With max_steps a finished epoch is counted twice, so the next one would be skipped.
        """
        if not loop["state_dict"].get("combined_loader"):  # a loader that cannot resume
            return
        batch, epoch = loop["epoch_loop.batch_progress"], loop["epoch_progress"]
        whole, counted = batch["is_last_batch"], epoch["current"]["processed"]
        if counted != epoch["current"]["started"] or (whole and self.trainer.max_steps == -1):
            return
        for count in (epoch["current"], epoch["total"]):
            count["processed"] = count["completed"] = count["started"] - 1

    def on_train_start(self) -> None:
        """Rate and decay from the hyperparameters, not from a checkpoint or a callback."""
        if isinstance(self.lr_schedulers(), Scheduler):
            (optimizer,), (config,) = self.trainer.optimizers, self.trainer.lr_scheduler_configs
            for group, decay in zip(optimizer.param_groups, self._decays, strict=True):
                group["weight_decay"] = decay
            steps = self.trainer.estimated_stepping_batches
            if math.isinf(steps):
                raise UserError(
                    "trainer.max_epochs is -1 without max_steps; the rate needs one of them"
                )
            schedule = self._schedule(optimizer, int(steps))
            config.scheduler = schedule  # type: ignore[assignment]
            schedule.step_update(self.global_step)
        self.train_loss.reset()
        self._unit = 0
        stopped, self._stopped = self._stopped, {}
        if stopped:
            torch.set_rng_state(stopped["rng"].cpu())
            if stopped["cuda_rng"] is not None and self.device.type == "cuda":
                torch.cuda.set_rng_state(stopped["cuda_rng"].cpu(), self.device)
            if self.trainer.world_size == 1:  # with several processes it is the first one's only
                total, weight = (t.to(self.device) for t in stopped["train_loss"])
                if weight:
                    self.train_loss.update(total, 1)
                    self.train_loss.weight, self._unit = weight, stopped["unit"]

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """timm's schedulers take the number of updates; a callback may install another kind."""
        if isinstance(scheduler, Scheduler):
            scheduler.step_update(self.global_step)
        else:
            super().lr_scheduler_step(scheduler, metric)


class Supervised(Optimised):
    """Cross-entropy on labels (B,) or (B, h, w); logs `train_loss`, `{val,test}_loss` and metrics.

    Args:
        metrics: of logits and labels, by the names that are logged after `val_` and `test_`.
    """

    def __init__(self, metrics: MetricCollection) -> None:
        super().__init__()
        self.val_metrics, self.test_metrics = metrics.clone("val_"), metrics.clone("test_")

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Mean loss of a batch; labels may also be shares (B, classes), as after mixup."""
        x, y = batch
        loss = F.cross_entropy(self(x), y, label_smoothing=self.hparams["label_smoothing"])
        return self.note_loss(loss, len(x))

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Loss and metrics on validation images."""
        self._evaluate("val", self.val_metrics, batch)

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Loss and metrics on the images of a test loader."""
        self._evaluate("test", self.test_metrics, batch)

    def _evaluate(self, part: str, metrics: MetricCollection, batch: tuple[Tensor, Tensor]) -> None:
        x, y = batch
        logits = self(x)
        metrics.update(logits, y)
        self.log_loss(part, F.cross_entropy(logits, y), len(x))
        self.log_dict(metrics, on_epoch=True, batch_size=len(x), prog_bar=True)
