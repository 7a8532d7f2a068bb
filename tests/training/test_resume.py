"""A run that is stopped and taken up again is the run that was not: batches, rates, weights."""

from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from PIL import Image

from vision_attn.data.augment import AugmentConfig
from vision_attn.data.module import ImageData
from vision_attn.training.classifier import Classifier

# Lightning's advice on worker counts and log intervals
pytestmark = [
    pytest.mark.filterwarnings("ignore:::lightning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker"),  # on one core
]

MODEL: dict[str, Any] = {
    "patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 3,
    "proj_drop_rate": 0.1, "drop_path_rate": 0.2,
}  # fmt: skip
EPOCHS: dict[str, Any] = {"max_epochs": 2}
STEPS: dict[str, Any] = {"max_epochs": -1, "max_steps": 20}
Run = tuple[list[tuple[int, ...]], dict[str, torch.Tensor]]


class Seen(Callback):
    """Each training batch by its content, the clock of Lightning beside."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, ...]] = []

    def on_train_batch_start(self, trainer: L.Trainer, module: Any, batch: Any, at: int) -> None:
        content = hash(batch[0].numpy().tobytes())
        self.batches.append((trainer.current_epoch, at, content))


class Stop(Callback):
    """Ends the run after an update, as Ctrl-C or an early stop does, and saves what there is."""

    def __init__(self, update: int, path: Path, gently: bool) -> None:
        self.update, self.path, self.gently = update, path, gently

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step == self.update:
            if not self.gently:
                raise KeyboardInterrupt
            trainer.should_stop = True

    def on_exception(self, trainer: L.Trainer, *_: Any) -> None:
        trainer.save_checkpoint(self.path)

    def on_train_end(self, trainer: L.Trainer, module: Any) -> None:
        trainer.save_checkpoint(self.path)


def fit(root: Path, *callbacks: Callback, ckpt: Path | None = None, **more: Any) -> Run:
    """Train on 130 digits in ten batches an epoch: the batches, and the weights at the end."""
    L.seed_everything(11, verbose=False)
    data = more.pop("data", None) or ImageData(
        "digits", size=130, batch_size=13, seed=3, augment=AugmentConfig(pad=1)
    )
    shape = {"img_size": data.img_size, "in_chans": data.in_chans, "num_classes": data.num_classes}
    module = Classifier("vit", MODEL, lr=0.01, **shape)
    seen = Seen()
    more = {"logger": False, "limit_val_batches": 0, **more}
    trainer = L.Trainer(
        default_root_dir=root, accelerator="cpu", devices=1, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0, callbacks=[seen, *callbacks],
        enable_checkpointing=any(isinstance(c, ModelCheckpoint) for c in callbacks), **more,
    )  # fmt: skip
    try:
        trainer.fit(module, datamodule=data, ckpt_path=ckpt, weights_only=True)
    except (KeyboardInterrupt, SystemExit):
        assert any(isinstance(c, Stop) for c in callbacks)
    return seen.batches, {k: v.clone() for k, v in module.state_dict().items()}


def same(whole: Run, resumed: Run, after: int) -> None:
    assert resumed[0] == whole[0][after:]
    for name, value in whole[1].items():
        assert torch.equal(resumed[1][name], value), name


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = fit(tmp_path_factory.mktemp("whole"), **EPOCHS)
    assert len({content for _, _, content in run[0]}) == 20
    return run


@pytest.mark.parametrize("gently", [False, True])
@pytest.mark.parametrize("length", [EPOCHS, STEPS], ids=["epochs", "steps"])
@pytest.mark.parametrize("update", [4, 14])
def test_case_45_stopped_in_the_middle_of_an_epoch(
    tmp_path: Path, whole: Run, length: dict[str, Any], update: int, gently: bool
) -> None:
    path = tmp_path / "stopped.ckpt"
    first, _ = fit(tmp_path, Stop(update, path, gently), **length)
    assert first == whole[0][:update]
    same(whole, fit(tmp_path, ckpt=path, **length), update)


@pytest.mark.parametrize("length", [EPOCHS, STEPS], ids=["epochs", "steps"])
@pytest.mark.parametrize("validate", [{"limit_val_batches": 1.0}, {"val_check_interval": 5}])
def test_case_45_every_checkpoint_of_a_run_leads_to_its_end(
    tmp_path: Path, length: dict[str, Any], validate: dict[str, Any]
) -> None:
    options = {**length, "limit_val_batches": 1.0, **validate}
    at = "{step}"
    save: dict[str, Any] = {"filename": at, "save_top_k": -1}
    by_updates = ModelCheckpoint(tmp_path / "updates", every_n_train_steps=5, **save)
    by_validation = ModelCheckpoint(tmp_path / "validation", monitor="val_loss", **save)
    run = fit(tmp_path, by_updates, by_validation, **options)
    paths = sorted(tmp_path.glob("*/step=*.ckpt"))
    assert len(paths) == (8 if "val_check_interval" in validate else 6)
    for path in paths:
        same(run, fit(tmp_path, ckpt=path, **options), int(path.stem.removeprefix("step=")))


def test_case_45_a_run_that_max_steps_cut_goes_on_with_the_batches_left(
    tmp_path: Path, whole: Run
) -> None:
    for first in (4, 10):
        path = tmp_path / f"{first}.ckpt"
        fit(tmp_path, Stop(0, path, gently=True), max_epochs=-1, max_steps=first)
        for length in (EPOCHS, STEPS):
            batches, _ = fit(tmp_path, ckpt=path, **length)
            assert batches == whole[0][first:]


def test_case_45_the_epoch_is_logged_as_if_it_had_not_been_stopped(tmp_path: Path) -> None:
    path, losses = tmp_path / "stopped.ckpt", []
    fit(tmp_path, Stop(4, path, gently=False), **EPOCHS)
    for ckpt in (None, path):
        logger = CSVLogger(tmp_path, name="", version=str(ckpt is None))
        fit(tmp_path, ckpt=ckpt, logger=logger, **EPOCHS)
        table = pd.read_csv(Path(logger.log_dir) / "metrics.csv")
        losses.append(table["train_loss"].dropna().tolist())
    assert losses[0] == losses[1]
    assert len(losses[0]) == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_case_45_images_on_disk_go_on_too(tmp_path: Path, workers: int) -> None:
    draw = np.random.default_rng(5)
    for part, count in (("train", 15), ("test", 1)):
        for name in "ab":
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = draw.integers(0, 256, (8, 8), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / part / name / f"{i}.png")

    def data() -> ImageData:
        return ImageData(
            "folder", root=str(tmp_path), memory_mb=0, size=20, batch_size=4, num_workers=workers,
            val_fraction=0.2,
        )  # fmt: skip

    path = tmp_path / "stopped.ckpt"
    run = fit(tmp_path, data=data(), **EPOCHS)
    fit(tmp_path, Stop(7, path, gently=False), data=data(), **EPOCHS)
    resumed = fit(tmp_path, data=data(), ckpt=path, **EPOCHS)
    same(run, resumed, 7)
