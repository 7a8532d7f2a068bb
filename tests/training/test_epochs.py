"""Runs stopped between epochs, finished and started again; rates and the loss of every epoch."""

import math
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from shared import TINY_VIT, quiet
from torch.testing import assert_close

from vision_attn.data.augment import AugmentConfig
from vision_attn.data.module import ImageData
from vision_attn.errors import UserError
from vision_attn.training.classifier import Classifier

# Lightning's advice on worker counts and log intervals
pytestmark = pytest.mark.filterwarnings("ignore:::lightning")

DIGITS: dict[str, Any] = {"img_size": (8, 8), "in_chans": 1, "num_classes": 10}


class Rates(Callback):
    """Learning rate of each group at the time of each update."""

    def __init__(self) -> None:
        self.seen: list[list[float]] = []

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        self.seen.append([g["lr"] for g in optimizer.param_groups])


class Interrupt(Callback):
    """Ends training after an epoch, as a crash would, the trainer's aim unchanged."""

    def __init__(self, epoch: int, path: Path) -> None:
        self.epoch, self.path = epoch, path

    def on_train_epoch_end(self, trainer: L.Trainer, module: Any) -> None:
        if trainer.current_epoch + 1 == self.epoch:
            trainer.should_stop = True

    def on_train_end(self, trainer: L.Trainer, module: Any) -> None:
        trainer.save_checkpoint(self.path)


class Epochs(Callback):
    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_train_epoch_start(self, trainer: L.Trainer, module: Any) -> None:
        self.seen.append(trainer.current_epoch)


def expected_rates(steps: int, warmup: float, lr: float) -> list[float]:
    """A straight line from lr / (w + 1) over w updates, then the cosine of all the updates."""
    w = min(round(steps * warmup), steps - 1)
    low = lr / (w + 1)
    return [
        low + t * (lr - low) / w if t < w else lr * (1 + math.cos(math.pi * t / steps)) / 2
        for t in range(steps)
    ]


@pytest.mark.parametrize(
    ("size", "accumulate", "steps"),
    [(20, 1, 2), (53, 1, 8), (211, 1, 32), (211, 3, 12)],
)
def test_rate_follows_the_updates(tmp_path: Path, size: int, accumulate: int, steps: int) -> None:
    rates, lr = Rates(), 0.013
    module = Classifier("cnn", {"widths": [2]}, lr=lr, warmup=0.25, **DIGITS)
    fit = quiet(
        tmp_path, max_epochs=2, callbacks=[rates], accumulate_grad_batches=accumulate,
        limit_val_batches=0,
    )  # fmt: skip
    fit.fit(module, datamodule=ImageData("digits", size=size, batch_size=13))
    assert len(rates.seen) == fit.global_step == steps
    one = [r[0] for r in rates.seen]
    assert all(set(r) == {r[0]} for r in rates.seen)
    assert_close(one, expected_rates(steps, 0.25, lr))
    top = round(steps * 0.25)
    assert one[:top] == sorted(one[:top])
    assert one[top:] == sorted(one[top:], reverse=True)
    assert one[-1] < lr * 2.5 / steps**2
    optimizer: Any = fit.optimizers[0]
    assert [g["lr"] for g in optimizer.param_groups] == [0.0, 0.0]


def test_no_end_of_training_is_an_error(tmp_path: Path) -> None:
    module = Classifier("cnn", {"widths": [2]}, **DIGITS)
    with pytest.raises(UserError, match="max_steps"):
        quiet(tmp_path, max_epochs=-1).fit(module, datamodule=ImageData("digits", size=20))


def start(root: Path, epochs: int, *callbacks: Callback, ckpt: Path | None = None) -> Classifier:
    """Train a tiny ViT on 47 digits, shifted at random."""
    L.seed_everything(11, verbose=False)
    data = ImageData("digits", size=47, batch_size=13, seed=3, augment=AugmentConfig(pad=1))
    module = Classifier("vit", TINY_VIT, lr=0.01, **DIGITS)
    fit = quiet(root, max_epochs=epochs, callbacks=list(callbacks), limit_val_batches=0)
    fit.fit(module, datamodule=data, ckpt_path=ckpt, weights_only=True)
    return module


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Classifier, list[float]]:
    """Four epochs without a stop, and their rates."""
    rates = Rates()
    module = start(tmp_path_factory.mktemp("whole"), 4, rates)
    return module, [r[0] for r in rates.seen]


def test_stopped_and_resumed_is_the_same_run(
    tmp_path: Path, whole: tuple[Classifier, list[float]]
) -> None:
    rates, epochs = Rates(), Epochs()
    half = start(tmp_path, 4, Interrupt(2, tmp_path / "half.ckpt"))
    resumed = start(tmp_path, 4, rates, epochs, ckpt=tmp_path / "half.ckpt")
    assert epochs.seen == [2, 3]
    assert [r[0] for r in rates.seen] == whole[1][6:]
    for name, value in whole[0].state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name
    weight = "model.head.weight"
    assert not torch.equal(half.state_dict()[weight], resumed.state_dict()[weight])


def test_finished_run_goes_on_for_the_epochs_that_are_new(
    tmp_path: Path, whole: tuple[Classifier, list[float]]
) -> None:
    path = tmp_path / "two.ckpt"
    start(tmp_path, 2, Interrupt(2, path))
    rates, epochs = Rates(), Epochs()
    start(tmp_path, 4, rates, epochs, ckpt=path)
    assert epochs.seen == [2, 3]
    assert_close([r[0] for r in rates.seen], whole[1][6:])


def test_finished_run_started_again_trains_nothing(tmp_path: Path) -> None:
    path, epochs, save = tmp_path / "two.ckpt", Epochs(), ModelCheckpoint(tmp_path / "again")
    done = start(tmp_path, 2, Interrupt(2, path))
    L.seed_everything(12, verbose=False)
    module = Classifier("vit", TINY_VIT, lr=0.01, **DIGITS)
    fit = quiet(
        tmp_path, max_epochs=2, callbacks=[epochs, save], enable_checkpointing=True,
        logger=CSVLogger(tmp_path, name="", version="log"),
    )  # fmt: skip
    fit.fit(module, datamodule=ImageData("digits", size=47, batch_size=13), ckpt_path=path)
    assert epochs.seen == []
    assert not (tmp_path / "log" / "metrics.csv").exists()
    assert not list(tmp_path.glob("again/*"))
    for name, value in done.state_dict().items():
        assert torch.equal(module.state_dict()[name], value), name
