"""One configured run, one result: train, then evaluate train, validation and test images once."""

import logging
import math
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.utils.data import DataLoader

from vision_attn.data.augment import AugmentConfig
from vision_attn.data.controls import Control
from vision_attn.data.module import ImageData
from vision_attn.data.sources import Source
from vision_attn.errors import UserError
from vision_attn.training.classifier import Classifier
from vision_attn.training.optim import OptimConfig

__all__ = [
    "Control", "RunConfig", "Tracker", "check_precision", "check_tracker", "evaluate", "quiet",
    "refusing", "run",
]  # fmt: skip

Tracker = Literal["tensorboard", "wandb"]


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that a result depends on, beside the images themselves.

    Args:
        model, args: as in `models.create_model`, all sizes solved for.
        size: training images; None is all.
        draw, seed: which subset, and which initialisation and order.
        steps: updates.
        rows: number of log rows and of validations in a run.
        select: `last`, the weights of the last update; `best`, those of the lowest validation loss.
        control: `permuted`, pixels in another, fixed order; `shuffled`, training labels at random.
    """

    model: str
    args: dict[str, Any]
    size: int | None
    draw: int
    seed: int
    steps: int
    val_fraction: float
    batch_size: int
    optim: OptimConfig
    augment: AugmentConfig
    precision: str
    threads: int
    rows: int
    select: Literal["last", "best"]
    control: Control = "none"


def run(
    config: RunConfig,
    source: Source,
    out: Path,
    *,
    checkpoint: bool = False,
    test: bool = True,
    logger: Tracker | None = None,
    finish: Callable[[Classifier, ImageData], dict[str, Any]] | None = None,
    progress: Callable[[int, int], None] = lambda step, steps: None,
) -> dict[str, Any]:
    """Train and evaluate; writes metrics.csv (and last.ckpt when asked for) under `out`.

    Returns plain values for result.json, and those that `finish` returns for the trained model.
    Without `test`, as in tuning, the test images are not used and have no values. With it,
    test.npz holds the `logits` (N, classes) of all test images in float16, their `labels` and
    which are `correct`, and the result has the test accuracy and loss of the weights with the
    lowest validation loss too, as `best_test_acc` and `best_test_loss`. A `logger` gets what
    metrics.csv gets, and writes beside it.

    Raises:
        FloatingPointError: the loss is no longer finite.
        Exception: any error of training.
    """
    with quiet(), _tracked(logger, out, config) as trackers:
        seed = config.draw * 1000 + config.seed
        L.seed_everything(seed, verbose=False)
        data = ImageData(
            source=source,
            val_fraction=config.val_fraction,
            size=config.size,
            draw=config.draw,
            batch_size=config.batch_size,
            augment=config.augment,
            seed=seed,
            batches_per_epoch=math.ceil(config.steps / config.rows),
            control=config.control,
        )
        n = len(data.subset.train)
        batch = min(config.batch_size, n)
        module = Classifier(
            config.model,
            config.args,
            img_size=data.img_size,
            in_chans=data.in_chans,
            num_classes=data.num_classes,
            **asdict(config.optim),
        )
        best = ModelCheckpoint(out / "best", monitor="val_loss", save_weights_only=True)
        keep_best = test or config.select == "best"
        trainer = L.Trainer(
            max_steps=config.steps,
            max_epochs=-1,
            devices=1,
            precision=config.precision,  # type: ignore[arg-type]
            deterministic="warn" if torch.cuda.is_available() else None,
            logger=[CSVLogger(out, name="", version=""), *trackers],
            callbacks=[_Watch(progress, n / batch), *([best] if keep_best else [])],
            enable_checkpointing=keep_best,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        check_precision(config.precision, trainer)
        started = time.perf_counter()
        trainer.fit(module, datamodule=data)
        seconds = time.perf_counter() - started
        if trainer.global_step != config.steps:
            raise RuntimeError(f"{trainer.global_step} of {config.steps} updates were made")
        if config.select == "best":
            module.load_state_dict(_saved(best)["state_dict"])
        train = evaluate(trainer, module, data.clean_train_dataloader())
        val = evaluate(trainer, module, data.val_dataloader())
        if not math.isfinite(train["loss"]):
            raise FloatingPointError(f"training diverged: loss {train['loss']}; try a lower lr")
        tested = _test(trainer, module, data, out / "test.npz") if test else {}
        more = {} if finish is None else finish(module, data)
        if checkpoint:
            trainer.save_checkpoint(out / "last.ckpt")
        if test and best.best_model_path:
            tested |= _test_best(trainer, module, data, best, tested, config)
        shutil.rmtree(out / "best", ignore_errors=True)
        (out / "hparams.yaml").unlink(missing_ok=True)  # result.json says more
        if tested:
            tested["gap"] = train["acc"] - tested["test_acc"]
            for tracker in trackers:
                tracker.log_metrics({k: tested[k] for k in ("test_acc", "gap")}, config.steps)
    return {
        "steps": config.steps,
        "epochs": config.steps * batch / n,
        "train_acc": train["acc"],
        "val_acc": val["acc"],
        "train_loss": train["loss"],
        "val_loss": val["loss"],
        "seconds": seconds,
        "images_per_second": config.steps * batch / seconds,
        "size": n,
        "subset": data.subset.hash,
        **more,
        **tested,
    }


def check_tracker(logger: Tracker | None) -> None:
    """UserError where the package of a logger is not installed."""
    packages = {"tensorboard": ("tensorboard", "tensorboardX"), "wandb": ("wandb",)}
    if logger is not None and not any(map(find_spec, packages[logger])):
        raise UserError(
            f"logger {logger} needs the package {logger}: pip install 'vision-attn[loggers]'"
        )


@contextmanager
def _tracked(kind: Tracker | None, out: Path, config: RunConfig) -> Iterator[list[Logger]]:
    """The logger beside the CSV file; it is closed at the end, also of a run that fails."""
    if kind is None:
        yield []
    elif kind == "tensorboard":
        board = TensorBoardLogger(out, name="", version="", default_hp_metric=False)
        try:
            yield [board]
        finally:
            board.finalize("finished")  # "success" would write hparams.yaml again
    else:
        name = f"{config.model}-n{config.size}-d{config.draw}-s{config.seed}"
        run_log = WandbLogger(
            name, out, offline=True, project="vision-attn", settings={"silent": True}
        )
        try:
            yield [run_log]
        finally:
            run_log.experiment.finish()


def _saved(best: ModelCheckpoint) -> dict[str, Any]:
    """The checkpoint of the lowest validation loss."""
    return torch.load(best.best_model_path, weights_only=True)


def _test(trainer: L.Trainer, module: Classifier, data: ImageData, file: Path) -> dict[str, Any]:
    """Accuracy and loss on all test images; their logits go to a file."""
    parts: list[Tensor] = []
    hook = module.model.register_forward_hook(lambda *call: parts.append(call[2].detach().cpu()))
    try:
        result = evaluate(trainer, module, data.test_dataloader())
    finally:
        hook.remove()
    logits, labels = torch.cat(parts).float().numpy(), np.asarray(data.source.test_labels)
    with np.errstate(over="ignore"):  # a logit beyond 65,504 is infinite in float16
        half = logits.astype(np.float16)
    np.savez_compressed(file, logits=half, labels=labels, correct=logits.argmax(1) == labels)
    return {"test_acc": result["acc"], "test_loss": result["loss"]}


def _test_best(
    trainer: L.Trainer,
    module: Classifier,
    data: ImageData,
    best: ModelCheckpoint,
    tested: dict[str, Any],
    config: RunConfig,
) -> dict[str, Any]:
    """Test accuracy and loss of the weights with the lowest validation loss.

    Args:
        tested: those of the weights that the module has, used where these are the same.
    """
    assert best.best_model_score is not None
    saved = _saved(best)
    if config.select == "last" and saved["global_step"] < config.steps:
        module.load_state_dict(saved["state_dict"])
        result = evaluate(trainer, module, data.test_dataloader())
        tested = {"test_acc": result["acc"], "test_loss": result["loss"]}
    return {
        "best_step": saved["global_step"],
        "best_val_loss": float(best.best_model_score),
        "best_test_acc": tested["test_acc"],
        "best_test_loss": tested["test_loss"],
    }


def check_precision(precision: str, trainer: L.Trainer | None = None) -> None:
    """Refuse a precision that the device of the trainer, or of a study's runs, does not have.

    On a CPU Lightning replaces 16-mixed by bf16-mixed, and on an old GPU torch emulates bf16.

    Raises:
        UserError: names the precision and the device.
    """
    if trainer is None:
        with refusing():
            trainer = L.Trainer(precision=precision, devices=1, logger=False)  # type: ignore[arg-type]
    device, bf16 = trainer.strategy.root_device.type, trainer.precision.startswith("bf16")
    emulated = device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False)
    if bf16 and (emulated or not str(precision).startswith("bf16")):
        raise UserError(
            f"precision {precision} is not available on this {device}; choose"
            f" {'16-mixed' if emulated else 'bf16-mixed'} or 32-true"
        )


def evaluate(trainer: L.Trainer, module: Classifier, loader: DataLoader[Any]) -> dict[str, float]:
    """Accuracy and loss of a model in eval mode on the images of a loader."""
    logger, trainer.loggers = trainer.loggers, []  # not a row of the training log
    result = trainer.test(module, dataloaders=loader, verbose=False)[0]
    trainer.loggers = logger
    return {"acc": result["test_acc"], "loss": result["test_loss"]}


class _Watch(Callback):
    """Reports the step twice a second, and logs passes over the data as `epoch`."""

    def __init__(self, progress: Callable[[int, int], None], batches_per_pass: float) -> None:
        self.progress, self.batches_per_pass = progress, batches_per_pass
        self.reported = 0.0

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any, **__: Any) -> None:
        now = time.monotonic()
        if now - self.reported > 0.5:
            self.reported = now
            self.progress(trainer.global_step, int(trainer.max_steps))

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        pl_module.log("epoch", trainer.global_step / self.batches_per_pass)

    on_train_epoch_end = on_validation_epoch_end


@contextmanager
def quiet() -> Iterator[None]:
    """Without Lightning's advice on hardware and workers, which would hide the progress."""
    loggers = [logging.getLogger(n) for n in ("lightning.pytorch", "lightning.fabric")]
    levels = [log.level for log in loggers]
    for log in loggers:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="lightning")
            yield
    finally:
        for log, level in zip(loggers, levels, strict=True):
            log.setLevel(level)


@contextmanager
def refusing() -> Iterator[None]:
    """Raise Lightning's errors in making a trainer as UserError."""
    with quiet():
        try:
            yield
        except (MisconfigurationException, ModuleNotFoundError, ValueError) as e:
            raise UserError(f"trainer: {e}") from e
