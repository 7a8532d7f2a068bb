"""Training of one label for every pixel: cross-entropy, mean IoU and pixel accuracy."""

from typing import Any

from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassJaccardIndex

from vision_attn.models.dense import DenseClassifier
from vision_attn.training.base import Supervised
from vision_attn.training.optim import OptimConfig

__all__ = ["Segmenter"]


class Segmenter(Supervised):
    """A `DenseClassifier` in training: logs `train_loss`, `{val,test}_{loss,iou,acc}` an epoch.

    `iou` is the mean over the classes, background among them, of intersection over union counted
    over all pixels of all scenes; `acc` is the share of pixels with the right label.

    Args:
        lr, weight_decay, warmup, label_smoothing: see `OptimConfig`.
        model: arguments of `DenseClassifier`; img_size, in_chans and num_classes come from the
            data.
    """

    def __init__(
        self,
        *,
        lr: float = OptimConfig.lr,
        weight_decay: float = OptimConfig.weight_decay,
        warmup: float = OptimConfig.warmup,
        label_smoothing: float = OptimConfig.label_smoothing,
        **model: Any,
    ) -> None:
        network = DenseClassifier(**model)
        classes = network.num_classes
        metrics = MetricCollection(
            {
                "iou": MulticlassJaccardIndex(classes, validate_args=False),
                "acc": MulticlassAccuracy(classes, average="micro", validate_args=False),
            }
        )
        super().__init__(metrics)
        self.save_hyperparameters()
        OptimConfig(
            lr=lr, weight_decay=weight_decay, warmup=warmup, label_smoothing=label_smoothing
        ).check()
        self.model = network

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, classes, h, w)."""
        return self.model(x)

    def predict_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """The label of every pixel, (B, h, w)."""
        return self(batch[0]).argmax(1)
