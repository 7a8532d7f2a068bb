"""Means are weighted by images: short batches, several processes, every module in training."""

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.testing import assert_close
from torch.utils.data import DataLoader

from vision_attn.data.module import ImageData
from vision_attn.data.scene_data import SceneData
from vision_attn.errors import UserError
from vision_attn.training.base import WeightedMean
from vision_attn.training.classifier import Classifier
from vision_attn.training.dense import Segmenter
from vision_attn.training.detr import Detector

# Lightning's advice on worker counts and log intervals; forks of a process with threads
pytestmark = [
    pytest.mark.filterwarnings("ignore:::lightning"),
    pytest.mark.filterwarnings("ignore:This process.*is multi-threaded"),
]

TINY: dict[str, Any] = {"patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 3}
SCENE: dict[str, Any] = {"img_size": (8, 8), "embed_dim": 12, "depth": 1, "num_heads": 3}


def trainer(root: Path, *callbacks: Callback, **more: Any) -> L.Trainer:
    return L.Trainer(
        default_root_dir=root, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        callbacks=list(callbacks), use_distributed_sampler=False, **more,
    )  # fmt: skip


def test_case_52_mean_of_a_short_batch() -> None:
    mean = WeightedMean()
    mean.update(torch.tensor(0.0), 8)
    mean.update(torch.tensor(1.0), 1)
    assert_close(mean.compute().item(), 1 / 9)
    mean.update(torch.tensor(torch.nan), 1)
    assert mean.compute().isnan()  # a diverged run shows
    mean.reset()
    for _ in range(999):  # bfloat16 counts to 256
        mean.update(torch.tensor(0.75, dtype=torch.bfloat16), 3)
    assert mean.compute() == 0.75
    mean.to(torch.bfloat16)
    mean.update(torch.tensor(0.75, dtype=torch.bfloat16), 3)
    assert mean.weight.dtype == torch.float32
    mean.reset()
    mean.update(torch.tensor(1 / 3, dtype=torch.float64), 7)
    assert mean.compute().item() == 7 * (1 / 3) / 7


def batches(kind: type[L.LightningModule]) -> list[tuple[Tensor, Any]]:
    """Seven images and then two, of another make."""
    torch.manual_seed(5)
    made = []
    for n, level in ((7, 0.0), (2, 3.0)):
        x = torch.randn(n, 1, 8, 8) + level
        y: Any = torch.randint(0, 10, (n,))
        if kind is Segmenter:
            y = torch.randint(0, 11, (n, 8, 8))
        elif kind is Detector:
            y = [{"boxes": torch.rand(1, 4), "labels": torch.tensor([i % 10])} for i in range(n)]
        made.append((x, y))
    return made


MODULES: dict[type[L.LightningModule], Any] = {
    Classifier: lambda: Classifier("vit", TINY, img_size=(8, 8), in_chans=1, lr=1e-12),
    Segmenter: lambda: Segmenter(patch_size=4, lr=1e-12, **SCENE),
    Detector: lambda: Detector(patch_size=4, num_queries=3, dec_depth=1, lr=1e-12, **SCENE),
}


@pytest.mark.parametrize("kind", MODULES, ids=lambda k: k.__name__)
def test_case_52_losses_with_a_short_last_batch(
    tmp_path: Path, kind: type[L.LightningModule]
) -> None:
    torch.manual_seed(5)
    module, made = MODULES[kind](), batches(kind)
    losses = [module.training_step(b, 0).item() for b in made]
    module.train_loss.reset()
    want = (7 * losses[0] + 2 * losses[1]) / 9
    assert abs(want - sum(losses) / 2) > 5e-4
    loader: Any = DataLoader(made, batch_size=None)  # type: ignore[arg-type]
    fit = trainer(tmp_path, devices=1, max_epochs=2)
    fit.fit(module, loader, loader)
    assert_close(fit.callback_metrics["train_loss"].item(), want, rtol=1e-5, atol=0)
    fit.test(module, loader, verbose=False)
    after = fit.callback_metrics
    one = [fit.test(module, DataLoader([b], batch_size=None), verbose=False) for b in made]  # type: ignore[arg-type]
    parts = [o[0]["test_loss"] for o in one]
    assert_close(after["test_loss"].item(), (7 * parts[0] + 2 * parts[1]) / 9, rtol=1e-5, atol=0)


def digits(batch_size: int = 14) -> ImageData:
    return ImageData("digits", size=47, batch_size=batch_size, seed=3)


def test_case_53_two_processes_measure_as_one(tmp_path: Path) -> None:
    torch.manual_seed(5)
    module = Classifier("cnn", {"widths": [3]}, img_size=(8, 8), in_chans=1)
    results = [
        trainer(tmp_path, devices=devices, strategy=strategy).test(
            module, datamodule=digits(), verbose=False
        )[0]
        for devices, strategy in ((1, "auto"), (2, "ddp_fork"))
    ]
    assert results[0]["test_acc"] == results[1]["test_acc"]
    assert_close(results[1]["test_loss"], results[0]["test_loss"], rtol=1e-6, atol=0)


def test_case_53_two_processes_count_boxes_as_one(tmp_path: Path) -> None:
    shape: dict[str, Any] = {"patch_size": 4, "embed_dim": 12, "depth": 1, "dec_depth": 1}
    results = []
    for devices, strategy in ((1, "auto"), (2, "ddp_fork")):
        torch.manual_seed(5)
        module = Detector(num_heads=3, num_queries=3, img_size=(16, 16), **shape)
        torch.nn.init.normal_(module.model.class_head.weight)
        data = SceneData("boxes", canvas=(16, 16), objects=(1, 2), train_scenes=5, eval_scenes=13)
        test = trainer(tmp_path, devices=devices, strategy=strategy)
        results += test.test(module, datamodule=data, verbose=False)
    losses = [r.pop("test_loss") for r in results]
    assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)
    assert_close(losses[1], losses[0], rtol=0.01, atol=0)  # of a batch: a mean over its things


class Log(Callback):
    """Training and validation losses of every epoch, written by the first process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_epoch_end(self, trainer: L.Trainer, module: Any) -> None:
        if trainer.is_global_zero:
            now = {k: float(v) for k, v in trainer.callback_metrics.items()}
            now["train_loss"] = float(module.train_loss.compute())
            torch.save([*self.read(), now], self.path)
        else:
            module.train_loss.compute()

    def read(self) -> list[dict[str, float]]:
        return torch.load(self.path) if self.path.exists() else []


def test_case_53_two_processes_train_as_one(tmp_path: Path) -> None:
    logs = []
    for devices, strategy in ((1, "auto"), (2, "ddp_fork")):
        L.seed_everything(11, verbose=False)
        module = Classifier("vit", TINY, img_size=(8, 8), in_chans=1, lr=0.01)
        log = Log(tmp_path / f"{devices}.pt")
        fit = trainer(tmp_path, log, devices=devices, strategy=strategy, max_epochs=3)
        fit.fit(module, datamodule=digits())
        logs.append(log.read())
    assert len(logs[0]) == 3
    for one, two in zip(*logs, strict=True):
        assert one.keys() == two.keys() >= {"train_loss", "val_loss", "val_acc"}
        for key in one:
            assert_close(two[key], one[key], rtol=1e-4, atol=1e-5, msg=key)


def test_case_53_data_is_not_dealt_twice(tmp_path: Path) -> None:
    data: Any = digits()
    data.trainer = L.Trainer(
        accelerator="cpu", devices=2, strategy="ddp_fork", logger=False, enable_checkpointing=False
    )
    for loader in (data.train_dataloader, data.val_dataloader, data.test_dataloader):
        with pytest.raises(UserError, match="use_distributed_sampler=False"):
            loader()
    data = digits(batch_size=13)
    data.trainer = trainer(tmp_path, devices=2, strategy="ddp_fork")
    with pytest.raises(UserError, match="batch of 13 images cannot be shared equally by 2 devices"):
        data.train_dataloader()
