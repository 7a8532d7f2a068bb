"""One model through LightningCLI: fit, validate, test, predict; sizes and classes from the data.

Without a class path the model is a `Classifier` and the data `ImageData`. A configuration may name
other classes by `class_path`, as configs/dense.yaml does.
"""

import importlib
import inspect
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lightning as L
import pandas as pd
import torch
import yaml
from lightning.pytorch.callbacks import BasePredictionWriter
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from vision_attn.data.folder import Files
from vision_attn.data.module import ImageData
from vision_attn.errors import UserError
from vision_attn.files import write_text
from vision_attn.texts import csv_text
from vision_attn.training.classifier import Classifier

_SHAPE = ("in_chans", "img_size", "num_classes")

__all__ = ["AnyCLI", "ClassifierCLI", "PredictionsCSV", "names_class"]


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
        write_text(out / "predictions.csv", csv_text(table))
        print(f"predictions of {len(p)} images are in {out / 'predictions.csv'}")


class ClassifierCLI(LightningCLI):
    """LightningCLI over `Classifier` and `ImageData`.

    Checkpoints are loaded with `weights_only=True`, whatever their origin.
    """

    classes: tuple[type[L.LightningModule], type[L.LightningDataModule]] = (Classifier, ImageData)
    subclasses = False

    def __init__(self, args: Sequence[str]) -> None:
        model, data = self.classes
        super().__init__(
            model,
            data,
            subclass_mode_model=self.subclasses,
            subclass_mode_data=self.subclasses,
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
                "callbacks": [] if self.subclasses else [PredictionsCSV()],
                "use_distributed_sampler": False,  # ImageData deals out its own batches
            },
            seed_everything_default=0,
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The model takes its shape from the data."""
        model = "model.init_args" if self.subclasses else "model"
        for name in _SHAPE:
            parser.link_arguments(f"data.{name}", f"{model}.{name}", apply_on="instantiate")

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
        for name in _SHAPE:
            was, now = self.saved.get(name), getattr(self.datamodule, name)
            if was not in (None, now):
                raise UserError(f"ckpt_path: its model has {name} {was}, the data has {now}")
        if self.subcommand == "fit":
            every = self.trainer.val_check_interval
            if isinstance(every, int) and self.trainer.check_val_every_n_epoch is not None:
                epoch = len(self.datamodule.train_dataloader())
                self.trainer.val_check_interval = min(every, epoch)


class AnyCLI(ClassifierCLI):
    """The same over the LightningModule and LightningDataModule that a `class_path` names.

    The model's arguments in_chans, img_size and num_classes come from the data's properties.
    """

    classes = (L.LightningModule, L.LightningDataModule)
    subclasses = True

    def before_instantiate_classes(self) -> None:
        """Only a classifier's predictions have a table, and no shape is set by hand."""
        super().before_instantiate_classes()
        if self.subcommand == "predict":
            raise UserError("predict writes a classifier's table; call this model from Python")
        if self.saved:  # Lightning took the arguments of the checkpoint's model
            return
        model = self.config[self.subcommand].model
        home, _, kind = model.class_path.rpartition(".")
        takes = inspect.signature(getattr(importlib.import_module(home), kind)).parameters
        for name in _SHAPE:
            if name in takes and model.init_args.get(name) != takes[name].default:
                raise UserError(f"model.{name} comes from the data, it is not set by hand")

    def after_fit(self) -> None:
        """The last measurement in one line, and where the weights are."""
        values = self.trainer.callback_metrics
        found = {k: f"{float(v):.4f}" for k, v in values.items() if k.startswith("val_")}
        print(" ".join(f"{k} {v}" for k, v in found.items()))
        saved = getattr(self.trainer.checkpoint_callback, "best_model_path", "")
        print(f"weights are in {saved}" if saved else "no weights were saved")


def names_class(args: Sequence[str]) -> bool:
    """Whether a command line, or a configuration that it names, gives `model` by its class."""
    for here, arg in enumerate(args):
        key, equals, value = arg.partition("=")
        if key in ("--model", "--model.class_path"):
            return True
        if key in ("--config", "-c"):
            path = Path(value if equals else "".join(args[here + 1 : here + 2]))
            if path.is_file() and _model_of(path).get("class_path"):
                return True
    return False


def _model_of(path: Path) -> dict[str, Any]:
    """The `model` of a configuration; a file that cannot be read is the parser's to refuse."""
    try:
        config = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError):
        return {}
    model = config.get("model") if isinstance(config, dict) else None
    return model if isinstance(model, dict) else {}


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
