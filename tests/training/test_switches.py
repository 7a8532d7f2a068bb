"""Lightning's own switches: each does what it says, or is refused in one line with exit code 2."""

import shlex
from pathlib import Path
from typing import Any

import lightning as L
import pandas as pd
import pytest
import torch
from lightning.pytorch.callbacks import (
    Callback,
    LearningRateFinder,
    LearningRateMonitor,
    StochasticWeightAveraging,
)
from torch import nn

from vision_attn.cli import main
from vision_attn.data.module import ImageData
from vision_attn.errors import UserError
from vision_attn.training.classifier import Classifier
from vision_attn.training.run import check_precision

# Lightning's advice on worker counts, log intervals and modes
pytestmark = [
    pytest.mark.filterwarnings("ignore:::lightning"),
    pytest.mark.filterwarnings("ignore:.*:UserWarning:torch"),
]

TINY: dict[str, Any] = {"patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 3}
LINE = (
    "--model.args '{patch_size: 4, embed_dim: 12, depth: 1, num_heads: 3}' --data.size 40"
    " --data.batch_size 10 --trainer.accelerator cpu --trainer.enable_progress_bar false"
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Options that name the weights of one update."""
    root = tmp_path_factory.mktemp("trained")
    line = f"fit --trainer.max_steps 1 --trainer.default_root_dir {root} --trainer.logger false"
    assert command(line) == 0
    (path,) = root.rglob("last.ckpt")
    return f"--ckpt_path {path}"


def command(line: str) -> int:
    return main(shlex.split(f"{line} {LINE}"))


def files(root: Path) -> set[str]:
    return {p.name for p in root.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("fit --trainer.precision 16-mixed", "precision 16-mixed is not available on this cpu"),
        ("test {trained} --trainer.precision 16", "precision 16 is not available on this cpu"),
        ("fit --trainer.precision transformer-engine", "trainer: Requirement"),
        ("fit --trainer.limit_train_batches 0", "trainer.limit_train_batches is 0"),
        ("fit --trainer.max_epochs 0", "trainer.max_epochs is 0"),
        ("fit --trainer.max_steps 0", "trainer.max_steps is 0"),
        ("predict {trained} --trainer.devices 2", "predict on 2 devices; use --trainer.devices 1"),
        ("fit --trainer.barebones true", "trainer: `Trainer(barebones=True"),
    ],
)
def test_case_54_63_what_cannot_be_is_one_line(
    here: Path, trained: str, capsys: pytest.CaptureFixture[str], line: str, wanted: str
) -> None:
    capsys.readouterr()
    assert command(line.format(trained=trained)) == 2
    said = capsys.readouterr().err
    assert wanted in said.splitlines()[-1]
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("test", "test has no weights to measure; give --ckpt_path"),
        ("validate", "validate has no weights to measure; give --ckpt_path"),
        ("predict", "predict has no weights to measure; give --ckpt_path"),
        ("fit --ckpt_path hpc", "ckpt_path hpc names no file; give a checkpoint"),
        ("fit --ckpt_path last", "ckpt_path last: no run of fit has left one in runs/fit"),
        ("fit --ckpt_path registry:a", "ckpt_path registry:a names no file; give a checkpoint"),
        ("test --ckpt_path best", "ckpt_path best: no run of fit has left one in runs/fit"),
    ],
)
def test_weights_come_from_a_file(
    here: Path, capsys: pytest.CaptureFixture[str], line: str, wanted: str
) -> None:
    capsys.readouterr()
    assert command(line) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert wanted in said
    assert list(here.iterdir()) == []


def test_case_54_compare_refuses_a_precision_before_any_work(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # a GPU has 16-mixed
    capsys.readouterr()
    assert main(["compare", "--precision", "16-mixed", "--out", "out"]) == 2
    said = capsys.readouterr()
    wanted = "precision 16-mixed is not available on this cpu; choose bf16-mixed or 32-true"
    assert (said.out, said.err) == ("", f"error: {wanted}\n")
    assert list(here.iterdir()) == []
    for precision in ("32-true", "bf16-mixed", "64-true"):
        check_precision(precision)


def test_case_54_an_old_gpu_has_no_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    trainer = L.Trainer(precision="bf16-mixed", accelerator="cpu", logger=False, barebones=True)
    monkeypatch.setattr(trainer.strategy, "_root_device", torch.device("cuda"), raising=False)
    monkeypatch.setattr(type(trainer.strategy), "root_device", torch.device("cuda"))
    with pytest.raises(UserError, match="bf16-mixed is not available on this cuda; choose 16"):
        check_precision("bf16-mixed", trainer)


class Counts(Callback):
    """What was trained and validated on."""

    def __init__(self) -> None:
        self.train: list[float] = []
        self.val = 0
        self.rates: list[float] = []

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, at: int) -> None:
        self.train.append(batch[0].double().sum().item())
        self.rates.append(trainer.optimizers[0].param_groups[1]["lr"])

    def on_validation_batch_start(self, *_: Any) -> None:
        self.val += 1


def fit(root: Path, *callbacks: Callback, **more: Any) -> tuple[Counts, Classifier]:
    counts = Counts()
    L.seed_everything(3, verbose=False)
    more = {"max_epochs": 3, **more}
    ema = more.pop("ema", None)
    trainer = L.Trainer(
        default_root_dir=root, accelerator="cpu", devices=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0, callbacks=[*callbacks, counts], **more,
    )  # fmt: skip
    module = Classifier("vit", TINY, img_size=(8, 8), in_chans=1, ema=ema)
    trainer.fit(module, datamodule=ImageData("digits", size=40, batch_size=10))
    return counts, module


def test_case_63_overfit_batches_are_the_same_ones(tmp_path: Path) -> None:
    counts, _ = fit(tmp_path, overfit_batches=2)
    assert len(counts.train) == 6
    assert counts.train == counts.train[:2] * 3
    assert len(set(counts.train)) == 2
    assert counts.val == 3  # validation has one batch in all


def test_case_63_limits(tmp_path: Path) -> None:
    counts, _ = fit(tmp_path, limit_train_batches=1, limit_val_batches=0)
    assert (len(set(counts.train)), counts.val) == (3, 0)
    counts, _ = fit(tmp_path, limit_train_batches=0.5, limit_val_batches=1)
    assert (len(counts.train), counts.val) == (6, 3)
    counts, _ = fit(tmp_path, fast_dev_run=1)
    assert (len(counts.train), counts.val) == (1, 1)


def test_case_63_the_rate_that_was_looked_for_is_trained_with(tmp_path: Path) -> None:
    finder = LearningRateFinder(num_training_steps=30, early_stop_threshold=None)
    counts, module = fit(tmp_path, finder, max_epochs=12)
    lr = finder.optimal_lr.suggestion()
    assert lr is not None
    assert lr != 1e-3
    assert module.hparams["lr"] == lr
    assert counts.rates[:6] == pytest.approx([lr * i / 6 for i in range(1, 7)], rel=0.03)
    plain, _ = fit(tmp_path, max_epochs=12)
    assert counts.train == plain.train
    assert list(tmp_path.iterdir()) == []


def test_case_63_stochastic_weight_averaging(tmp_path: Path) -> None:
    callback = StochasticWeightAveraging(swa_lrs=0.017, swa_epoch_start=2, annealing_epochs=1)
    counts, module = fit(tmp_path, callback, max_epochs=4)
    assert len(counts.train) == 16
    assert counts.rates[-1] == pytest.approx(0.017)
    plain, other = fit(tmp_path, max_epochs=4)
    assert counts.rates[:4] == plain.rates[:4]
    assert not torch.equal(module.model.head.weight, other.model.head.weight)


def test_case_63_on_the_command_line(here: Path) -> None:
    assert command("fit --trainer.max_epochs 2 --trainer.overfit_batches 1") == 0
    finder = "--trainer.callbacks LearningRateFinder --trainer.callbacks.num_training_steps 9"
    assert command(f"fit --trainer.max_epochs 2 {finder}") == 0
    average = "--trainer.callbacks StochasticWeightAveraging --trainer.callbacks.swa_lrs 0.01"
    assert command(f"fit --trainer.max_epochs 2 {average}") == 0
    assert command("fit --trainer.max_epochs 1 --trainer.reload_dataloaders_every_n_epochs 1") == 0


def test_case_63_predictions_of_the_first_images(
    here: Path, trained: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(f"predict {trained} --trainer.limit_predict_batches 1") == 0
    (path,) = here.glob("runs/predictions.csv")
    table = pd.read_csv(path)
    assert table["image"].tolist() == list(range(500))
    labels = ImageData("digits").source.test_labels
    assert table["label"].tolist() == labels[:500].tolist()
    before = files(here)
    assert command(f"predict {trained} --trainer.fast_dev_run true") == 0
    assert (
        "predictions of 500 images; with fast_dev_run no file is written" in capsys.readouterr().out
    )
    assert command(f"predict {trained} --trainer.limit_predict_batches 0") == 0
    assert files(here) == before
    assert command("fit --trainer.max_steps 1 --trainer.logger.version 0") == 0
    capsys.readouterr()
    assert command("fit --trainer.logger.version 0") == 2
    said = capsys.readouterr().err
    assert "version_0 holds a run already; choose another trainer.logger version" in said


def test_case_63_no_logger_no_files_however_often(here: Path, trained: str) -> None:
    for part in ("test", "test", "validate"):
        assert command(f"{part} {trained} --trainer.logger false") == 0
    assert command(f"test {trained} --trainer.limit_test_batches 0 --trainer.logger false") == 0
    assert command(f"test {trained} --trainer.fast_dev_run true") == 0
    assert list(here.iterdir()) == []


def test_case_64_an_average_in_bfloat16(tmp_path: Path) -> None:
    counts, module = fit(tmp_path, precision="bf16-true", ema=0.9)
    assert len(counts.train) == 12
    weight = module.model.head.weight
    assert weight.dtype == torch.bfloat16
    plain, last = fit(tmp_path, precision="bf16-true")
    assert counts.rates == plain.rates
    assert not torch.equal(weight, last.model.head.weight)
    assert weight.isfinite().all()


@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
def test_means_in_every_precision(tmp_path: Path, precision: Any) -> None:
    def loss(precision: Any) -> float:
        torch.manual_seed(5)
        module = Classifier("vit", TINY, img_size=(8, 8), in_chans=1)
        trainer = L.Trainer(
            default_root_dir=tmp_path, accelerator="cpu", devices=1, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, precision=precision,
        )  # fmt: skip
        return trainer.test(module, ImageData("digits", size=40), verbose=False)[0]["test_loss"]

    assert loss(precision) == pytest.approx(loss("32-true"), rel=5e-3)


def test_case_54_a_model_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[nn.Module] = []
    monkeypatch.setattr(nn.Module, "compile", lambda self, *_, **__: calls.append(self))
    module = Classifier("vit", TINY, img_size=(8, 8), in_chans=1, compile=True)
    trainer = L.Trainer(
        default_root_dir=tmp_path, accelerator="cpu", devices=1, logger=False, max_epochs=1,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    data = ImageData("digits", size=40)
    trainer.fit(module, datamodule=data)
    for loader in (data.clean_train_dataloader(), data.val_dataloader(), data.test_dataloader()):
        trainer.test(module, loader, verbose=False)
    assert calls == [module.model]


def test_the_rates_can_be_watched(tmp_path: Path) -> None:
    trainer = L.Trainer(
        default_root_dir=tmp_path, accelerator="cpu", devices=1, max_epochs=1,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[LearningRateMonitor("step")], log_every_n_steps=1,
        logger=L.pytorch.loggers.CSVLogger(tmp_path, name="", version="log"),
    )  # fmt: skip
    module = Classifier("vit", TINY, img_size=(8, 8), in_chans=1, warmup=0.0)
    trainer.fit(module, datamodule=ImageData("digits", size=40, batch_size=10))
    table = pd.read_csv(tmp_path / "log" / "metrics.csv")
    rates = table.filter(like="pg2").dropna().iloc[:, 0].tolist()
    assert rates == pytest.approx([1e-3, 8.536e-4, 5e-4, 1.464e-4], rel=1e-3)


def test_one_copy_of_the_training_images() -> None:
    data = ImageData("digits", size=40)
    train, clean = data.train_dataloader().dataset, data.clean_train_dataloader().dataset
    assert train.images.data_ptr() == clean.images.data_ptr()  # type: ignore[attr-defined]
    assert len(train.images) == 40  # type: ignore[attr-defined]
