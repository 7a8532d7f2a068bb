"""The average of the weights: its formula, and that it is what is measured, saved and taken up."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from vision_attn.cli import main
from vision_attn.data.augment import AugmentConfig
from vision_attn.data.module import ImageData
from vision_attn.data.sources import DataConfig, Source, load
from vision_attn.errors import UserError
from vision_attn.training.base import WeightEMA, average
from vision_attn.training.classifier import Classifier
from vision_attn.training.optim import OptimConfig
from vision_attn.training.run import RunConfig, run

# Lightning's advice on worker counts and log intervals
pytestmark = pytest.mark.filterwarnings("ignore:::lightning")

DIGITS: dict[str, Any] = {"img_size": (8, 8), "in_chans": 1, "num_classes": 10}
TINY: dict[str, Any] = {"patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 3}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "cnn": ("cnn", {"widths": [3, 5]}),  # batch norm: buffers of both kinds
    "vit": ("vit", {**TINY, "pos_embed": "rel_bias"}),  # an index that must stay whole
    "conv_stem_vit": ("conv_stem_vit", TINY),
}


class Weights(Callback):
    """All parameters and buffers after every update, and during each validation."""

    def __init__(self) -> None:
        self.after: list[dict[str, Tensor]] = []
        self.measured: list[dict[str, Tensor]] = []

    def on_train_batch_end(self, trainer: Any, module: L.LightningModule, *_: Any) -> None:
        self.after.append(state(module))

    def on_validation_batch_start(self, trainer: Any, module: Any, *_: Any) -> None:
        self.measured.append(state(module))


def state(module: torch.nn.Module) -> dict[str, Tensor]:
    """A copy of parameters and buffers, those that are not saved among them."""
    both = (*module.named_parameters(), *module.named_buffers())
    return {k: v.detach().clone() for k, v in both}


def expected(seen: list[dict[str, Tensor]], decay: float) -> dict[str, Tensor]:
    """The average by hand in float64: the first weights, then d old + (1 - d) new."""
    mean = {k: v.double() for k, v in seen[0].items()}
    for n, now in enumerate(seen[1:], start=1):
        d = min(decay, (1 + n) / (10 + n))
        for key, value in now.items():
            whole = not value.is_floating_point()
            mean[key] = value.double() if whole else d * mean[key] + (1 - d) * value.double()
    return mean


def check(got: dict[str, Tensor], want: dict[str, Tensor]) -> None:
    for key in got:
        assert_close(got[key].double(), want[key], rtol=1e-5, atol=1e-6, msg=key)


def fit(
    root: Path, model: str, *callbacks: Callback, ema: float | None = 0.8, **more: Any
) -> tuple[L.Trainer, Classifier]:
    """Three epochs of four updates on 47 digits."""
    L.seed_everything(11, verbose=False)
    name, args = MODELS[model]
    data = ImageData("digits", size=47, batch_size=13, seed=3, augment=AugmentConfig(pad=1))
    module = Classifier(name, args, lr=0.02, ema=ema, **DIGITS)
    saves = any(isinstance(c, ModelCheckpoint) for c in callbacks)
    trainer = L.Trainer(
        default_root_dir=root, accelerator="cpu", devices=1, logger=False, max_epochs=3,
        enable_checkpointing=saves, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0, callbacks=list(callbacks),
    )  # fmt: skip
    trainer.fit(module, datamodule=data, **more)
    return trainer, module


def test_one_step_of_the_average() -> None:
    mean, new = torch.tensor([2.0, -1.0]), torch.tensor([4.0, 3.0])
    for count, d in ((1, 2 / 11), (5, 6 / 15), (35, 0.8), (1000, 0.8)):
        got = average(mean, new, torch.tensor(count), 0.8)
        assert_close(got, d * mean + (1 - d) * new)
    half = average(mean.bfloat16(), new.bfloat16(), torch.tensor(7), 0.8)
    assert half.dtype == torch.bfloat16
    index = torch.tensor([13, 2**40])
    assert torch.equal(average(index, index + 1, torch.tensor(7), 0.999), index + 1)


@pytest.mark.parametrize("model", MODELS)
def test_validation_and_the_end_have_the_average_and_training_has_not(
    tmp_path: Path, model: str
) -> None:
    watch, plain = Weights(), Weights()
    _, module = fit(tmp_path, model, watch)
    fit(tmp_path, model, plain, ema=None)
    assert len(watch.after) == 9
    for got, want in zip(watch.after, plain.after, strict=True):  # it does not disturb training
        assert all(torch.equal(got[k], want[k]) for k in want)
    for epoch, got in enumerate(watch.measured, start=1):
        check(got, expected(watch.after[: 3 * epoch], 0.8))
    check(state(module), expected(watch.after, 0.8))
    assert (module.model.head.weight - watch.after[-1]["model.head.weight"]).abs().max() > 1e-3


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("alone", [False, True])
def test_checkpoints_hold_the_average_as_their_weights(
    tmp_path: Path, alone: bool, model: str
) -> None:
    """Those made during training and after it, whole or of weights alone."""
    watch = Weights()
    save = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1, save_weights_only=alone)
    trainer, _ = fit(tmp_path, model, watch, save)
    trainer.save_checkpoint(tmp_path / "end.ckpt", weights_only=alone)
    for name, updates in (("epoch=0", 3), ("epoch=1", 6), ("epoch=2", 9), ("end", 9)):
        path = tmp_path / f"{name}.ckpt"
        again = Classifier.load_from_checkpoint(path, weights_only=True)
        assert again.hparams["ema"] == 0.8
        check(state(again), expected(watch.after[:updates], 0.8))


@pytest.mark.parametrize("model", ["cnn", "vit"])
def test_stopped_and_resumed_is_the_same_run(tmp_path: Path, model: str) -> None:
    save = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    whole, rest = Weights(), Weights()
    _, once = fit(tmp_path, model, whole, save)
    _, again = fit(tmp_path, model, rest, ckpt_path=tmp_path / "epoch=1.ckpt", weights_only=True)
    assert len(rest.after) == 3
    for got, want in zip(rest.after, whole.after[6:], strict=True):
        assert all(torch.equal(got[k], want[k]) for k in want)
    for key, value in state(once).items():
        assert torch.equal(state(again)[key], value), key


def test_a_checkpoint_is_tested_by_its_average_without_a_warning(tmp_path: Path) -> None:
    save = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    trainer, module = fit(tmp_path, "cnn", save)
    x, y = torch.randn(23, 1, 8, 8), torch.arange(23) % 10
    batches = torch.utils.data.DataLoader([(x, y)], batch_size=None)  # type: ignore[arg-type]
    fresh = Classifier(*MODELS["cnn"], ema=0.8, **DIGITS)
    quiet = L.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False,
    )  # fmt: skip
    (got,) = quiet.test(
        fresh, batches, ckpt_path=tmp_path / "epoch=2.ckpt", weights_only=True, verbose=False
    )
    want = cross_entropy(module.eval()(x), y).item()
    assert_close(got["test_loss"], want, rtol=1e-5, atol=0)
    (after,) = trainer.test(module, batches, verbose=False)
    assert_close(after["test_loss"], want, rtol=1e-5, atol=0)


CONFIG = RunConfig(
    model="cnn",
    args={"widths": [3, 5]},
    size=37,
    draw=2,
    seed=1,
    steps=12,
    val_fraction=0.1,
    batch_size=13,
    optim=OptimConfig(lr=0.05, ema=0.7),
    augment=AugmentConfig(pad=1),
    precision="32-true",
    threads=1,
    rows=4,
    select="last",
)


@pytest.fixture(scope="module")
def source() -> Source:
    return load(DataConfig())


@pytest.mark.parametrize("select", ["last", "best"])
def test_a_run_measures_and_saves_the_average(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, select: Any
) -> None:
    watch, attach = Weights(), Classifier.configure_callbacks
    monkeypatch.setattr(Classifier, "configure_callbacks", lambda self: [*attach(self), watch])
    result = run(replace(CONFIG, select=select), source, tmp_path, checkpoint=True)
    module = Classifier.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True).eval()
    wanted = [expected(watch.after[: 3 * row], 0.7) for row in (1, 2, 3, 4)]
    matches = [torch.allclose(state(module)["model.head.weight"].double(),
                              w["model.head.weight"], 1e-4, 1e-5) for w in wanted]  # fmt: skip
    assert sum(matches) == 1
    assert matches[3] or select == "best"
    check(state(module), wanted[matches.index(True)])
    assert isinstance(source.test_images, Tensor)
    data = ImageData(source=source, val_fraction=0.1, size=37, draw=2, batch_size=13)
    with torch.no_grad():
        logits = torch.cat([module(x) for x, _ in data.test_dataloader()])
    labels = torch.from_numpy(source.test_labels)
    assert_close(result["test_loss"], cross_entropy(logits, labels).item(), rtol=1e-4, atol=0)
    plain = run(
        replace(CONFIG, select=select, optim=OptimConfig(lr=0.05)), source, tmp_path / "plain"
    )
    assert plain["test_loss"] != result["test_loss"]


@pytest.mark.parametrize("ema", [1.0, -0.1, float("nan"), 1.5])
def test_a_decay_out_of_range_is_refused(ema: float) -> None:
    message = rf"ema is {ema}; wanted 0 to under 1, such as 0.999, or null"
    with pytest.raises(UserError, match=message):
        OptimConfig(ema=ema).check()
    with pytest.raises(UserError, match=message):
        Classifier("cnn", {"widths": [2]}, ema=ema, **DIGITS)


def test_off_by_default() -> None:
    assert OptimConfig().ema is None
    assert Classifier("cnn", {"widths": [2]}, **DIGITS).configure_callbacks() == []
    (callback,) = Classifier("cnn", {"widths": [2]}, ema=0.9, **DIGITS).configure_callbacks()
    assert isinstance(callback, WeightEMA)


def test_fit_and_test_by_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "--model.name=cnn", '--model.args={"widths": [3]}', "--model.ema=0.8", "--data.size=20",
        "--trainer.accelerator=cpu", "--trainer.enable_progress_bar=false",
    ]  # fmt: skip
    assert main(["fit", *words, "--trainer.max_epochs=2"]) == 0
    (path,) = tmp_path.rglob("last.ckpt")
    saved = torch.load(path, weights_only=True)
    weight = "model.head.weight"
    assert not torch.equal(saved["state_dict"][weight], saved["current_model_state"][weight])
    assert main(["test", *words, "--ckpt_path", str(path)]) == 0
    assert "test_loss" in capsys.readouterr().out
    assert main(["fit", "--model.ema=1.0", "--data.size=20"]) == 2
    assert "ema is 1.0" in capsys.readouterr().err
