"""One model through LightningCLI: fit, validate, test, predict; sizes and classes from the data.

Without a class path the model is a `Classifier` and the data `ImageData`. A configuration may name
other classes by `class_path`, as configs/dense.yaml does.
"""

import importlib
import inspect
import logging
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import lightning as L
import pandas as pd
import torch
import yaml
from jsonargparse import Namespace
from jsonargparse.typing import register_type
from lightning.pytorch.callbacks import BasePredictionWriter
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from vision_attn.data.folder import Files
from vision_attn.data.module import ImageData
from vision_attn.errors import UserError
from vision_attn.files import write_text
from vision_attn.texts import csv_text
from vision_attn.training.checkpoint import Checkpoint, read_checkpoint
from vision_attn.training.classifier import Classifier
from vision_attn.training.optim import OptimConfig
from vision_attn.training.run import check_precision, refusing
from vision_attn.training.set_loss import Weights

_SHAPE = ("in_chans", "img_size", "num_classes")
_TRAINING = {*Weights._fields, *(f.name for f in fields(OptimConfig))}
"""Arguments of a model that its weights do not hang on; a run that goes on may have others."""

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
        data: ImageData = trainer.datamodule  # type: ignore[attr-defined]
        source = data.source
        p = torch.cat(list(predictions)).float().cpu()
        n = len(p)  # the first ones, where there is a limit
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
        print(f"predictions of {n} images are in {out / 'predictions.csv'}")


class ClassifierCLI(LightningCLI):
    """LightningCLI over `Classifier` and `ImageData`.

    Checkpoints are loaded with `weights_only=True`, whatever their origin.
    """

    classes: tuple[type[L.LightningModule], type[L.LightningDataModule]] = (Classifier, ImageData)
    subclasses = False

    def __init__(self, args: Sequence[str]) -> None:
        model, data = self.classes
        # an argument of callbacks, which else is not text in the saved configuration
        register_type(torch.device, fail_already_registered=False)
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
        """Values of the command line, above those of the checkpoint, above the defaults.

        Lightning's own warns when the process has a command line, which ours has.
        """
        self.config = parser.parse_args(args)
        logging.getLogger("lightning.fabric").setLevel(logging.WARNING)  # `Seed set to 0`
        command = self.config.subcommand
        path = self.config[command].get("ckpt_path")
        self.saved = None if path in (None, "last", "hpc", "registry") else _read(path, command)
        if self.saved is None:
            return
        typed = parser.parse_args(args, defaults=False)[command].get("model", Namespace())
        model = self.saved_model(self.saved, typed)
        self.config = parser.parse_object({command: {"model": model}}, self.config)
        if self.config[command].trainer.precision is None:
            self.config[command].trainer.precision = self.saved.precision

    def saved_model(self, saved: Checkpoint, typed: Namespace) -> dict[str, Any]:
        """The checkpoint's arguments of the model, those of training as they were typed."""
        saved.check_classifier()
        given = typed.as_dict()
        args = given.pop("args", None) or {}
        _same_model(saved.path, args, saved.hparams.get("args") or {}, "model.args.")
        return _merged(saved, given, inspect.signature(Classifier).parameters)

    def _parse_ckpt_path(self) -> None:
        """Lightning lays a checkpoint's arguments above what was typed."""

    def before_instantiate_classes(self) -> None:
        """Nothing but tensors and plain values is ever unpickled; no logger, no files."""
        given = self.config[self.subcommand]
        given.weights_only = True
        if not given.trainer.logger:
            self.save_config_callback = None

    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:
        """A trainer with the precision that was asked; what Lightning cannot make is one line."""
        with refusing():
            trainer = super().instantiate_trainer(**kwargs)
        check_precision(self.config[self.subcommand].trainer.precision or "32-true", trainer)
        return trainer

    def after_instantiate_classes(self) -> None:
        """Refuse what would fail later, a checkpoint of other data first of all.

        Where `val_check_interval` is longer than an epoch, validate at its end.
        """
        trainer = self.trainer
        devices = trainer.num_devices * trainer.num_nodes
        if self.subcommand == "predict" and devices > 1:
            raise UserError(f"predict on {devices} devices; use --trainer.devices 1")
        log = None if trainer.log_dir is None else Path(trainer.log_dir)
        if self.save_config_callback is not None and log and (log / "config.yaml").exists():
            raise UserError(f"{log} holds a run already; choose another trainer.logger version")
        if self.saved is not None:
            for name in _SHAPE:
                was, now = self.saved.hparams.get(name), getattr(self.datamodule, name)
                if was not in (None, now):
                    raise UserError(f"ckpt_path: its model has {name} {was}, the data has {now}")
            if self.saved.data:
                self.datamodule.load_state_dict(self.saved.data)
        if self.subcommand == "fit":
            every = getattr(self.trainer, "val_check_interval", None)  # none where it is a time
            if isinstance(every, int) and self.trainer.check_val_every_n_epoch is not None:
                epoch = len(self.datamodule.train_dataloader())
                self.trainer.val_check_interval = min(every, epoch)


class AnyCLI(ClassifierCLI):
    """The same over the LightningModule and LightningDataModule that a `class_path` names.

    The model's arguments in_chans, img_size and num_classes come from the data's properties.
    """

    classes = (L.LightningModule, L.LightningDataModule)
    subclasses = True

    def saved_model(self, saved: Checkpoint, typed: Namespace) -> dict[str, Any]:
        """The same for the class that a checkpoint names, which must be the one typed."""
        path, was = typed.class_path, saved.hparams.get("_class_path", typed.class_path)
        if was != path:
            raise UserError(f"{saved.path}: its model is a {was}, not a {path}")
        given = typed.get("init_args", Namespace()).as_dict()
        merged = _merged(saved, given, inspect.signature(_class(path)).parameters)
        return {"class_path": path, "init_args": merged}

    def before_instantiate_classes(self) -> None:
        """Only a classifier's predictions have a table, and no shape is set by hand."""
        super().before_instantiate_classes()
        if self.subcommand == "predict":
            raise UserError("predict writes a classifier's table; call this model from Python")
        model = self.config[self.subcommand].model
        takes = inspect.signature(_class(model.class_path)).parameters
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


def _class(path: str) -> type:
    home, _, name = path.rpartition(".")
    kind: type = getattr(importlib.import_module(home), name)
    return kind


def _read(path: str, command: str) -> Checkpoint:
    saved = read_checkpoint(Path(path))
    if command == "fit" and not saved.resumable:
        raise UserError(f"{path} holds weights alone; training goes on from a whole checkpoint")
    return saved


def _merged(saved: Checkpoint, typed: dict[str, Any], takes: Iterable[str]) -> dict[str, Any]:
    """Saved arguments that a class takes, below those of training that were typed."""
    kept = {k: v for k, v in saved.hparams.items() if k in takes and k not in _SHAPE}
    free = {k: v for k, v in typed.items() if k in _TRAINING}
    built = {k: v for k, v in typed.items() if k not in (*_TRAINING, *_SHAPE)}
    _same_model(saved.path, built, kept, "model.")
    return {k: _plain(v) for k, v in {**kept, **free}.items()}


def _same_model(path: Path, typed: dict[str, Any], saved: dict[str, Any], prefix: str) -> None:
    """Refuse an argument that would build another model than the one that was saved."""
    for key, value in typed.items():
        if _plain(value) != _plain(saved.get(key)):
            was = repr(saved[key]) if key in saved else "as by default"
            raise UserError(f"{path}: its {prefix}{key} is {was}, not {value!r}; leave it out")


def _plain(value: Any) -> Any:
    """Tuples as lists, as they come from YAML."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value
