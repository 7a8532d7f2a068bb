"""The commands fit, validate, test and predict, by LightningCLI; a mistake becomes one line.

Without a class path the model is a `Classifier` and the data `ImageData`. A configuration may name
other classes by `class_path`, as configs/dense.yaml does. Sizes and classes come from the data.
"""

import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from pydoc import locate
from typing import Any

import lightning as L
import torch
from jsonargparse import ArgumentError, Namespace
from jsonargparse.typing import register_type
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from vision_attn.commands.arguments import checked, one_line
from vision_attn.commands.ends import (
    ROOT,
    RUN,
    find_checkpoint,
    measures,
    next_commands,
    without_noise,
)
from vision_attn.commands.options import names_class
from vision_attn.commands.strict_yaml import config_files, set_strict_yaml
from vision_attn.data.module import ImageData
from vision_attn.errors import UserError
from vision_attn.names import SHAPE
from vision_attn.texts import program
from vision_attn.training.base import Optimised
from vision_attn.training.checkpoint import Checkpoint, read_checkpoint
from vision_attn.training.classifier import Classifier, PredictionsCSV
from vision_attn.training.run import check_precision, refusing

__all__ = ["AnyCLI", "ClassifierCLI", "lightning"]

SEEDS = 2**32
"""The limit is NumPy's; Lightning's message does not name the option."""

LEAST = {
    "accumulate_grad_batches": 1,
    "check_val_every_n_epoch": 1,
    "gradient_clip_val": 0,
    "log_every_n_steps": 0,
    "num_sanity_val_steps": -1,
}
"""Least values of what Lightning does not check, and divides by."""

LOGGER = {
    "class_path": "lightning.pytorch.loggers.CSVLogger",
    "init_args": {"save_dir": ROOT, "name": RUN},
}


class ClassifierCLI(LightningCLI):
    """LightningCLI over `Classifier` and `ImageData`.

    Checkpoints of any origin are loaded with `weights_only=True`.
    """

    classes: tuple[type[L.LightningModule], type[L.LightningDataModule]] = (Classifier, ImageData)
    subclasses = False

    def __init__(self, args: Sequence[str]) -> None:
        model, data = self.classes
        # callbacks have such arguments; without this the saved configuration cannot be written
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
                "logger": LOGGER,
                "default_root_dir": ROOT,
                "enable_model_summary": False,  # the metrics are modules, of which it has rows
                "max_epochs": 50,
                "callbacks": [] if self.subclasses else [PredictionsCSV()],
                "use_distributed_sampler": False,  # ImageData deals out its own batches
            },
            seed_everything_default=0,
        )

    def setup_parser(self, *args: Any) -> None:
        """One line of usage; results are shown by this class, in three digits."""
        super().setup_parser(*args)
        for command in self.subcommands():
            self._parser(command).usage = f"{program()} {command} [options]"
            if command in ("validate", "test"):
                self._parser(command).set_defaults(verbose=False)

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The model takes its shape from the data."""
        model = "model.init_args" if self.subclasses else "model"
        for name in SHAPE:
            parser.link_arguments(f"data.{name}", f"{model}.{name}", apply_on="instantiate")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """The command line comes before the checkpoint, the checkpoint before the defaults.

        Lightning's method would warn about the command line of the process.
        """
        command, *line = args
        options = checked(
            self._parser(command), line, lambda line: parser.parse_args([command, *line])[command]
        )
        _check_ranges(options)
        self.config, self.line = parser.parse_args(args), line
        trainer = self.config[command].trainer
        if _is_own(trainer.logger, trainer.default_root_dir):
            if command == "fit":
                trainer.logger.init_args.save_dir = trainer.default_root_dir
            else:
                trainer.logger = False  # which would make a folder of a run
        logging.getLogger("lightning.fabric").setLevel(logging.WARNING)  # `Seed set to 0`
        # without a class, as by default, the logger's options mean nothing
        words = [command, f"--trainer.logger={json.dumps(LOGGER)}", *line]
        typed = parser.parse_args(words, defaults=False)[command].get("model", Namespace())
        self.check_model(command, typed)
        self.saved = _checkpoint(options.get("ckpt_path"), command, trainer.default_root_dir)
        if self.saved is None:
            return
        self.config[command].ckpt_path = str(self.saved.path)
        model = self.saved_model(self.saved, typed, options["model"])
        self.config = parser.parse_object({command: {"model": model}}, self.config)
        if options.trainer.precision is None:
            self.config[command].trainer.precision = self.saved.precision

    def check_model(self, command: str, typed: Namespace) -> None:
        """UserError for a model that cannot be used; `typed` are its options without defaults."""

    def saved_model(
        self, saved: Checkpoint, typed: Namespace, options: Namespace
    ) -> dict[str, Any]:
        """Arguments of the model: those of the checkpoint, and typed ones of training.

        Args:
            typed: options of the model on the command line and in its files.
            options: the same with the defaults.
        """
        saved.check_classifier()
        rest = typed.as_dict()
        saved.check_same(rest.pop("args", None) or {}, saved.hparams.get("args") or {}, "args.")
        return saved.merge(rest, set(options.keys()))

    def _parse_ckpt_path(self) -> None:
        """Nothing: Lightning's method would prefer a checkpoint's arguments to typed ones."""

    def before_instantiate_classes(self) -> None:
        """Unpickle only tensors and plain values; without a logger write no files."""
        options = self.config[self.subcommand]
        model = locate(options.model.class_path) if self.subclasses else self.classes[0]
        for name in ("optimizer", "lr_scheduler"):  # before Lightning warns of it
            if options.get(name) and isinstance(model, type) and issubclass(model, Optimised):
                raise UserError(f"{name} comes with the model; take it out, and set model.lr")
        options.weights_only = True
        if not options.trainer.logger:
            self.save_config_callback = None

    def instantiate_trainer(self, **kwargs: Any) -> L.Trainer:
        """The trainer; a precision that the device does not have is refused."""
        options = self.config_init[self.subcommand].trainer
        given = options.callbacks or []
        callbacks = [*given] if isinstance(given, list) else [given]
        if (
            self.subcommand == "fit"
            and options.enable_checkpointing is not False
            and not (options.barebones or any(isinstance(c, ModelCheckpoint) for c in callbacks))
        ):
            callbacks.append(ModelCheckpoint(filename="last"))
            callbacks.append(ModelCheckpoint(filename="best", monitor="val_loss"))
        try:
            with refusing():
                trainer = super().instantiate_trainer(**{**kwargs, "callbacks": callbacks})
        except TypeError as e:
            raise UserError(f"trainer: {one_line(e)}") from e
        check_precision(self.config[self.subcommand].trainer.precision or "32-true", trainer)
        return trainer

    def after_instantiate_classes(self) -> None:
        """Refuse what would fail later, such as a checkpoint of other data.

        If `val_check_interval` is longer than an epoch, validate at the end of each.
        """
        trainer = self.trainer
        devices = trainer.num_devices * trainer.num_nodes
        if self.subcommand == "predict" and devices > 1:
            raise UserError(f"predict on {devices} devices; use --trainer.devices 1")
        log = None if trainer.log_dir is None else Path(trainer.log_dir)
        if self.save_config_callback is not None and log and (log / "config.yaml").exists():
            raise UserError(f"{log} holds a run already; choose another trainer.logger version")
        if self.saved is not None:
            for name in SHAPE:
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

    def before_fit(self) -> None:
        """Say how large the model is."""
        if self.trainer.is_global_zero:
            name = self.model.hparams.get("name", type(self.model).__name__)
            print(f"{name}: {sum(p.numel() for p in self.model.parameters()):,} parameters")

    def after_fit(self) -> None:
        """Print the last validation, where the weights are, and what to do with them."""
        path = getattr(self.trainer.checkpoint_callback, "best_model_path", "")
        self._tell("val", path)
        if not path and self.trainer.is_global_zero:
            print("no weights were saved")

    def after_validate(self) -> None:
        """Print what was measured."""
        self._tell("val", str(self.saved.path) if self.saved else "")

    def after_test(self) -> None:
        """Print what was measured, and what to do next."""
        self._tell("test", str(self.saved.path) if self.saved else "")

    def _tell(self, part: str, checkpoint: str) -> None:
        if not self.trainer.is_global_zero:
            return
        if said := measures(self.trainer.callback_metrics, part):
            print(said)
        if checkpoint:
            print(f"checkpoint: {checkpoint}")
            print(
                next_commands(
                    checkpoint, self.line, str(self.subcommand), classifier=not self.subclasses
                )
            )


class AnyCLI(ClassifierCLI):
    """The same over the LightningModule and LightningDataModule that a `class_path` names.

    The model's arguments in_chans, img_size and num_classes come from the data's properties.
    """

    classes = (L.LightningModule, L.LightningDataModule)
    subclasses = True

    def check_model(self, command: str, typed: Namespace) -> None:
        """Only a classifier's predictions make a table, and no shape is set by hand."""
        if command == "predict":
            raise UserError("predict writes a classifier's table; call this model from Python")
        for name in SHAPE:
            if name in typed.get("init_args", Namespace()):
                raise UserError(f"model.{name} comes from the data, it is not set by hand")

    def saved_model(
        self, saved: Checkpoint, typed: Namespace, options: Namespace
    ) -> dict[str, Any]:
        """The same for a class path, which must be that of the checkpoint."""
        path = typed.class_path
        was = saved.hparams.get("_class_path", path)
        if was != path:
            raise UserError(f"{saved.path}: its model is a {was}, not a {path}")
        rest = typed.get("init_args", Namespace()).as_dict()
        return {"class_path": path, "init_args": saved.merge(rest, set(options.init_args.keys()))}


def lightning(args: Sequence[str]) -> int:
    """Run one of LightningCLI's commands."""
    set_strict_yaml()
    try:
        with without_noise(args[0]):
            (AnyCLI if names_class(args, config_files(args)) else ClassifierCLI)(args)
    except (ArgumentError, MisconfigurationException) as e:
        raise UserError(one_line(e)) from e
    return 0


def _is_own(logger: Any, root: str) -> bool:
    """Whether it is the default logger, with nothing changed by hand."""
    if not isinstance(logger, Namespace) or logger.class_path != LOGGER["class_path"]:
        return False
    options = logger.init_args
    return options.save_dir in (ROOT, root) and (options.name, options.version) == (RUN, None)


def _check_ranges(options: Namespace) -> None:
    """Refuse numbers that Lightning accepts and fails on later."""
    seed = options.get("seed_everything")
    if isinstance(seed, int) and not 0 <= seed < SEEDS:
        raise UserError(f"seed_everything is {seed}; wanted 0 to {SEEDS - 1}")
    for name, least in LEAST.items():
        value = options.get(f"trainer.{name}")
        if value is not None and not least <= value < math.inf:
            raise UserError(f"trainer.{name} is {value}; wanted {least} or more")


def _checkpoint(path: str | None, command: str, root: str | None) -> Checkpoint | None:
    """The checkpoint of a command line; only `fit` can start without one."""
    if path is None:
        if command != "fit":
            raise UserError(f"{command} has no weights to measure; give --ckpt_path CHECKPOINT")
        return None
    saved = read_checkpoint(find_checkpoint(path, root))
    if command == "fit" and not saved.resumable:
        raise UserError(
            f"{saved.path} holds weights alone; training goes on from a whole checkpoint"
        )
    return saved
