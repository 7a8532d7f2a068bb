"""The LightningModule of a classifier, and the CSV file of its predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import lightning as L
import pandas as pd
import torch
from lightning.pytorch.callbacks import BasePredictionWriter
from torch import Tensor, nn
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from vision_attn.data.folder import Files
from vision_attn.data.module import ImageData
from vision_attn.errors import UserError
from vision_attn.files import write_text
from vision_attn.models.registry import create_model
from vision_attn.texts import csv_text, tally
from vision_attn.training.base import Supervised
from vision_attn.training.checkpoint import is_own
from vision_attn.training.optim import OptimConfig

__all__ = ["Classifier", "PredictionsCSV"]


class Classifier(Supervised):
    """An image classifier in training: logs `train_loss` and `{val,test}_{loss,acc}` once an epoch.

    A checkpoint holds the weights of any model, and what builds it only of a named one: to load
    that of a `model` give it again, `Classifier.load_from_checkpoint(path, model=Net())`.

    Args:
        name: model, as in `models.create_model`.
        args: further arguments of the model.
        img_size, in_chans, num_classes: from the data.
        model: a module of your own, (B, C, h, w) -> (B, classes), in place of the named one.
        optim: fields of `OptimConfig`.

    Raises:
        UserError: values out of range; arguments beside a `model`; a checkpoint of a model of
            your own without it.
    """

    def __init__(
        self,
        name: str = "vit",
        args: dict[str, Any] | None = None,
        *,
        img_size: tuple[int, int] = (32, 32),
        in_chans: int = 3,
        num_classes: int = 10,
        model: nn.Module | None = None,
        **optim: Any,
    ) -> None:
        if model is not None:
            if args:
                raise UserError(
                    f"args {args} are given beside a model that is built; leave them out"
                )
            name = f"{type(model).__module__}.{type(model).__qualname__}"
        elif is_own(name):
            raise UserError(
                f"model {name} is a module of your own, which a checkpoint does not hold; give it:"
                " Classifier.load_from_checkpoint(PATH, model=...)"
            )
        config = OptimConfig(**optim)
        config.check()
        # micro: the default of torchmetrics is the mean over classes, which is another number
        accuracy = MulticlassAccuracy(num_classes, average="micro", validate_args=False)
        super().__init__(MetricCollection({"acc": accuracy}))
        self.save_hyperparameters(ignore=["model"])
        self.save_hyperparameters(asdict(config))
        self._compiled = False
        if model is None:
            model = create_model(
                name, img_size=img_size, in_chans=in_chans, num_classes=num_classes, args=args
            )
        self.model = model
        if config.channels_last:
            self.model.to(memory_format=torch.channels_last)

    def setup(self, stage: str) -> None:
        """Compile in place, once, so that the names in a checkpoint stay the same."""
        data = getattr(self.trainer, "datamodule", None)
        if isinstance(data, ImageData):
            self._tell_model(data.state_dict())
        if self.hparams["compile"] and not self._compiled:
            self.model.compile()
            self._compiled = True

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, classes)."""
        if self.hparams["channels_last"]:
            x = x.contiguous(memory_format=torch.channels_last)
        return self.model(x)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """As in the base class; the model is told of the images that it was trained on."""
        super().on_load_checkpoint(checkpoint)
        for name, state in checkpoint.items():
            if name.endswith("ImageData"):
                self._tell_model(state)

    def _tell_model(self, data: Mapping[str, Any]) -> None:
        """Statistics of `ImageData` for `timm.data.resolve_model_data_config`, in shares of 255."""
        wanted = {"mean", "std", "img_size", "in_chans"}  # old states have less
        cfg: Any = getattr(self.model, "pretrained_cfg", None)
        if wanted <= data.keys() and cfg is not None:
            mean = tuple(m / 255 for m in data["mean"])
            std = tuple(max(s, 1.0) / 255 for s in data["std"])
            size = (data["in_chans"], *data["img_size"])
            cfg.update(input_size=size, mean=mean, std=std)

    def predict_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Class probabilities, (B, classes)."""
        return self(batch[0]).softmax(-1)


class PredictionsCSV(BasePredictionWriter):
    """Writes `predictions.csv` into the log or the root directory: image, label, probabilities."""

    def __init__(self) -> None:
        super().__init__("epoch")

    def write_on_epoch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        predictions: Sequence[Any],
        batch_indices: Sequence[Any],
    ) -> None:
        """One row a test image, in file order."""
        data: ImageData = trainer.datamodule  # type: ignore[attr-defined]
        source = data.source
        p = torch.cat(list(predictions)).float().cpu()
        n = len(p)  # with a limit, the first images only
        table = pd.DataFrame(p.numpy(), columns=[f"p_{c}" for c in source.classes])
        table.insert(0, "predicted", [source.classes[i] for i in p.argmax(1)])
        table.insert(0, "label", [source.classes[i] for i in source.test_labels[:n]])
        images = source.test_images
        table.insert(0, "image", images.paths[:n] if isinstance(images, Files) else range(n))
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            print(f"predictions of {n} images; with fast_dev_run no file is written")
            return
        out = Path(trainer.log_dir or ".")
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / "predictions.csv", csv_text(table))
        print(tally(table["predicted"]))
        print(f"predictions of {n} images are in {out / 'predictions.csv'}")
