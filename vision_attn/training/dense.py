"""Training of one label for every pixel: cross-entropy, mean IoU and pixel accuracy."""

from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassJaccardIndex

from vision_attn.layers.embed import Positions
from vision_attn.models.dense import DenseClassifier
from vision_attn.training.base import Supervised
from vision_attn.training.optim import OptimConfig

__all__ = ["Segmenter"]


class Segmenter(Supervised):
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
        metrics = MetricCollection(
            {
                "iou": MulticlassJaccardIndex(num_classes, validate_args=False),
                "acc": MulticlassAccuracy(num_classes, average="micro", validate_args=False),
            }
        )
        super().__init__(metrics)
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

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, classes, h, w)."""
        return self.model(x)

    def predict_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """The label of every pixel, (B, h, w)."""
        return self(batch[0]).argmax(1)
