"""One model through LightningCLI: fit, validate, test, predict; sizes and classes from the data."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
import pandas as pd
import torch
from lightning.pytorch.callbacks import BasePredictionWriter
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from vision_attn.data.module import ImageData
from vision_attn.data.sources import Files
from vision_attn.errors import UserError
from vision_attn.training.classifier import Classifier

__all__ = ["ClassifierCLI", "PredictionsCSV"]


class PredictionsCSV(BasePredictionWriter):
    """Writes `predictions.csv` into the run's log directory: image, label, probabilities."""

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
        if trainer.world_size > 1:
            raise UserError(f"predict on {trainer.world_size} devices; use --trainer.devices 1")
        data: ImageData = trainer.datamodule  # type: ignore[attr-defined]
        source = data.source
        p = torch.cat(list(predictions)).float().cpu()
        table = pd.DataFrame(p.numpy(), columns=[f"p_{c}" for c in source.classes])
        table.insert(0, "predicted", [source.classes[i] for i in p.argmax(1)])
        table.insert(0, "label", [source.classes[i] for i in source.test_labels])
        images = source.test_images
        table.insert(0, "image", list(images.paths) if isinstance(images, Files) else range(len(p)))
        out = Path(trainer.log_dir or ".")
        out.mkdir(parents=True, exist_ok=True)
        table.to_csv(out / "predictions.csv", index=False)
        print(f"predictions of {len(p)} images are in {out / 'predictions.csv'}")


class ClassifierCLI(LightningCLI):
    """LightningCLI over `Classifier` and `ImageData`.

    Checkpoints are loaded with `weights_only=True`, whatever their origin.
    """

    def __init__(self, args: Sequence[str]) -> None:
        super().__init__(
            Classifier,
            ImageData,
            args=list(args),
            parser_kwargs={"exit_on_error": False, "parser_mode": "strict_yaml"},
            trainer_defaults={
                "logger": {
                    "class_path": "lightning.pytorch.loggers.CSVLogger",
                    "init_args": {"save_dir": "runs", "name": "fit"},
                },
                "max_epochs": 50,
                "callbacks": [PredictionsCSV()],
                "use_distributed_sampler": False,  # ImageData deals out its own batches
            },
            seed_everything_default=0,
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The model takes its shape from the data."""
        for name in ("img_size", "in_chans", "num_classes"):
            parser.link_arguments(f"data.{name}", f"model.{name}", apply_on="instantiate")

    def before_instantiate_classes(self) -> None:
        """Nothing but tensors and plain values is ever unpickled."""
        config = self.config[self.subcommand]
        config.weights_only = True
        path = config.get("ckpt_path")
        if path not in (None, "best", "last", "hpc", "registry") and not Path(path).is_file():
            raise UserError(f"ckpt_path {path} is no file")
