"""Training of one label for every pixel: cross-entropy, mean IoU and pixel accuracy."""

import torch.nn.functional as F
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassJaccardIndex

from vision_attn.layers.embed import Positions
from vision_attn.models.dense import DenseClassifier
from vision_attn.training.optim import OptimConfig, Optimised

__all__ = ["Segmenter"]


class Segmenter(Optimised):
    """A `DenseClassifier` in training: logs `train_loss`, `{val,test}_{loss,iou,acc}` an epoch.

    `iou` is the mean over the classes, background among them, of intersection over union counted
    over all pixels of all scenes; `acc` is the share of pixels with the right label.

    Args:
        patch_size, embed_dim, depth, num_heads, mlp_ratio, pos_embed, drop_path_rate: see
            `DenseClassifier`.
        img_size, in_chans, num_classes: from the data.
        lr, weight_decay, warmup, label_smoothing: see `OptimConfig`.
    """

    def __init__(
        self,
        *,
        patch_size: int = 2,
        embed_dim: int = 64,
        depth: int = 4,
        num_heads: int = 4,
        mlp_ratio: float = 2.0,
        pos_embed: Positions = "learn",
        drop_path_rate: float = 0.0,
        img_size: tuple[int, int] = (24, 24),
        in_chans: int = 1,
        num_classes: int = 11,
        lr: float = 1e-3,
        weight_decay: float = 0.05,
        warmup: float = 0.1,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        OptimConfig(
            lr=lr, weight_decay=weight_decay, warmup=warmup, label_smoothing=label_smoothing
        ).check()
        self.model = DenseClassifier(
            img_size,
            patch_size,
            in_chans,
            num_classes,
            embed_dim,
            depth,
            num_heads,
            mlp_ratio,
            pos_embed=pos_embed,
            drop_path_rate=drop_path_rate,
        )
        metrics = MetricCollection(
            {
                "iou": MulticlassJaccardIndex(num_classes, validate_args=False),
                "acc": MulticlassAccuracy(num_classes, average="micro", validate_args=False),
            }
        )
        self.val_metrics, self.test_metrics = metrics.clone("val_"), metrics.clone("test_")

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, classes, h, w)."""
        return self.model(x)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Mean cross-entropy over all pixels; labels are (B, h, w)."""
        x, y = batch
        loss = F.cross_entropy(self(x), y, label_smoothing=self.hparams["label_smoothing"])
        return self.note_loss(loss, len(x))

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Loss, mean IoU and pixel accuracy on validation scenes."""
        self._evaluate("val", self.val_metrics, batch)

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Loss, mean IoU and pixel accuracy on whatever scenes are given."""
        self._evaluate("test", self.test_metrics, batch)

    def _evaluate(self, part: str, metrics: MetricCollection, batch: tuple[Tensor, Tensor]) -> None:
        x, y = batch
        logits = self(x)
        metrics.update(logits, y)
        loss = F.cross_entropy(logits, y)
        self.log(f"{part}_loss", loss, on_epoch=True, batch_size=len(x), sync_dist=True)
        self.log_dict(metrics, on_epoch=True, batch_size=len(x), prog_bar=True)

    def predict_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """The label of every pixel, (B, h, w)."""
        return self(batch[0]).argmax(1)
