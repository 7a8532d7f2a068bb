"""One model through LightningCLI: fit, validate, test, predict; sizes and classes from the data."""

import logging
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
            parser_kwargs={
                "exit_on_error": False,
                "parser_mode": "strict_yaml",
                "allow_abbrev": False,
            },
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

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Lightning's own warns when the process has a command line, which ours has."""
        self.config = parser.parse_args(args)
        path = self.config[self.config.subcommand].get("ckpt_path")
        self.saved = {} if path in (None, "last", "hpc", "registry") else _hparams(Path(path))
        logging.getLogger("lightning.fabric").setLevel(logging.WARNING)  # `Seed set to 0`

    def before_instantiate_classes(self) -> None:
        """Nothing but tensors and plain values is ever unpickled."""
        self.config[self.subcommand].weights_only = True

    def after_instantiate_classes(self) -> None:
        """Refuse a checkpoint of other data; validate at least once an epoch."""
        for name in ("in_chans", "img_size", "num_classes"):
            was, now = self.saved.get(name), getattr(self.datamodule, name)
            if was not in (None, now):
                raise UserError(f"ckpt_path: its model has {name} {was}, the data has {now}")
        if self.subcommand == "fit":
            every = self.trainer.val_check_interval
            if isinstance(every, int) and self.trainer.check_val_every_n_epoch is not None:
                epoch = len(self.datamodule.train_dataloader())
                self.trainer.val_check_interval = min(every, epoch)


def _hparams(path: Path) -> dict[str, Any]:
    """Arguments of the model in a checkpoint, or a UserError when the file is none."""
    if not path.is_file():
        raise UserError(f"ckpt_path {path} is no file")
    try:
        saved = torch.load(path, weights_only=True, map_location="cpu")
        return dict(saved["hyper_parameters"])
    except Exception as e:  # whatever a file of another kind makes torch raise
        raise UserError(
            f"ckpt_path {path} is no checkpoint of this program ({type(e).__name__})"
        ) from e
