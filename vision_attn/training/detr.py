"""Training of set prediction (Carion et al. 2020): losses of every layer, mAP, count."""

from typing import Any, cast

import torch
from torch import Tensor
from torchmetrics import MeanMetric
from torchmetrics.detection import MeanAveragePrecision

from vision_attn.models.detr import SetPredictor
from vision_attn.training.base import Optimised
from vision_attn.training.optim import OptimConfig
from vision_attn.training.set_loss import LossWeights, Targets, detections, set_loss

__all__ = ["Detector"]

_WEIGHTS = LossWeights()


class Detector(Optimised):
    """A `SetPredictor` in training; logs train_loss and {val,test}_{loss,map,map50,count} an epoch.

    `map` is COCO's mean average precision over IoU 0.5 to 0.95, `map50` that at 0.5; `count` is the
    share of images with the right number of detections. The training loss
    is the sum over decoder layers of `set_loss`.

    Args:
        lr, weight_decay, warmup: see `OptimConfig`.
        label, l1, giou, nothing: weights of the losses, see `LossWeights`.
        model: arguments of `SetPredictor`; img_size, in_chans and num_classes come from the data.
    """

    model: SetPredictor

    def __init__(
        self,
        *,
        lr: float = OptimConfig.lr,
        weight_decay: float = OptimConfig.weight_decay,
        warmup: float = OptimConfig.warmup,
        label: float = _WEIGHTS.label,
        l1: float = _WEIGHTS.l1,
        giou: float = _WEIGHTS.giou,
        nothing: float = _WEIGHTS.nothing,
        **model: Any,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        OptimConfig(lr=lr, weight_decay=weight_decay, warmup=warmup).check()
        self.weights = LossWeights(label, l1, giou, nothing)
        self.model = SetPredictor(**model)
        self.average_precision = MeanAveragePrecision(box_format="cxcywh", sync_on_compute=False)
        self.count = MeanMetric()
        self._answers: list[tuple[Targets, Targets]] = []

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, h, w) -> logits (B, Nq, classes+1), boxes (B, Nq, 4)."""
        return cast("tuple[Tensor, Tensor]", self.model(x))

    def training_step(self, batch: tuple[Tensor, Targets], batch_idx: int) -> Tensor:
        """Sum of the losses after every decoder layer."""
        x, targets = batch
        layers = zip(*self.model.decode(self.model.encode(x)), strict=True)
        loss = torch.stack([set_loss(*answer, targets, self.weights).total for answer in layers])
        return self.note_loss(loss.sum(), len(x))

    def validation_step(self, batch: tuple[Tensor, Targets], batch_idx: int) -> None:
        """Loss of the last layer, and the answers for the metrics."""
        self._evaluate("val", batch)

    def test_step(self, batch: tuple[Tensor, Targets], batch_idx: int) -> None:
        """Loss of the last layer, and the answers for the metrics."""
        self._evaluate("test", batch)

    def _evaluate(self, part: str, batch: tuple[Tensor, Targets]) -> None:
        x, targets = batch
        logits, boxes = self(x)
        loss = set_loss(logits, boxes, targets, self.weights).total
        self.log_loss(part, loss, len(x))
        self._answers.append((detections(logits, boxes, every=True), targets))
        number = [len(f["labels"]) for f in detections(logits, boxes)]
        right = [n == len(t["labels"]) for n, t in zip(number, targets, strict=True)]
        self.count.update(torch.tensor(right, dtype=torch.float32, device=x.device))

    def on_validation_epoch_end(self) -> None:
        """Log and reset the metrics."""
        self._report("val")

    def on_test_epoch_end(self) -> None:
        """Log and reset the metrics."""
        self._report("test")

    def _report(self, part: str) -> None:
        for answers in self._of_all_processes():
            self.average_precision.update(*answers)
        result = self.average_precision.compute()
        for name, value in (
            ("map", result["map"]), ("map50", result["map_50"]), ("count", self.count.compute())
        ):  # fmt: skip
            self.log(f"{part}_{name}", value, prog_bar=True)
        self.average_precision.reset()
        self.count.reset()

    def _of_all_processes(self) -> list[tuple[Targets, Targets]]:
        """Answers and targets of all processes; torchmetrics only gathers lists of equal length."""
        mine, self._answers = self._answers, []
        if self.trainer.world_size == 1:
            return mine
        every: list[Any] = [None] * self.trainer.world_size
        torch.distributed.all_gather_object(every, [tuple(map(_on_cpu, pair)) for pair in mine])
        return [answers for of_one in every for answers in of_one]

    def predict_step(self, batch: tuple[Tensor, Targets], batch_idx: int) -> Targets:
        """The detections of each image: boxes (n, 4), scores (n,), labels (n,)."""
        return detections(*self(batch[0]))


def _on_cpu(things: Targets) -> Targets:
    return [{name: value.cpu() for name, value in thing.items()} for thing in things]
