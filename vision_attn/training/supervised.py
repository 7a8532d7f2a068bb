"""What classifiers of images and of pixels share in training: cross-entropy and their metrics."""

import torch.nn.functional as F
from torch import Tensor
from torchmetrics import MetricCollection

from vision_attn.training.optim import Optimised

__all__ = ["Supervised"]


class Supervised(Optimised):
    """Cross-entropy on labels (B,) or (B, h, w); logs `{part}_loss` and its metrics once an epoch.

    Args:
        metrics: by the names that are logged after `val_` and `test_`; they take logits and labels.
    """

    def __init__(self, metrics: MetricCollection) -> None:
        super().__init__()
        self.val_metrics, self.test_metrics = metrics.clone("val_"), metrics.clone("test_")

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Mean loss of a batch; labels may be shares (B, classes) too, as after mixup."""
        x, y = batch
        loss = F.cross_entropy(self(x), y, label_smoothing=self.hparams["label_smoothing"])
        return self.note_loss(loss, len(x))

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Loss and metrics on validation images."""
        self._evaluate("val", self.val_metrics, batch)

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Loss and metrics on whatever images are given."""
        self._evaluate("test", self.test_metrics, batch)

    def _evaluate(self, part: str, metrics: MetricCollection, batch: tuple[Tensor, Tensor]) -> None:
        x, y = batch
        logits = self(x)
        metrics.update(logits, y)
        # sync_dist: a loss that one process saw would be reported for all of them
        loss = F.cross_entropy(logits, y)
        self.log(f"{part}_loss", loss, on_epoch=True, batch_size=len(x), sync_dist=True)
        self.log_dict(metrics, on_epoch=True, batch_size=len(x), prog_bar=True)
