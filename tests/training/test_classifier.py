"""The module in training: parameter groups, schedule, losses, accuracy, checkpoints, resuming."""

import math
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pandas as pd
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger
from shared import TINY_VIT, quiet, two_classes
from timm.data import resolve_model_data_config
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.data import DataLoader

from vision_attn.data.module import ImageData
from vision_attn.data.sources import Source
from vision_attn.errors import UserError
from vision_attn.explain.checkpoint import load_classifier
from vision_attn.models.registry import create_model
from vision_attn.training.classifier import Classifier
from vision_attn.training.optim import OptimConfig

# Lightning's advice on worker counts and log intervals
pytestmark = pytest.mark.filterwarnings("ignore:::lightning")

DIGITS: dict[str, Any] = {"img_size": (8, 8), "in_chans": 1, "num_classes": 10}


def loader(*batches: tuple[Tensor, Tensor]) -> DataLoader[Any]:
    return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


def decays(model: nn.Module, groups: list[dict[str, Any]]) -> dict[str, float]:
    """Weight decay of each parameter by name; fails when one stands in no group or in two."""
    found: dict[int, float] = {}
    for group in groups:
        for p in group["params"]:
            assert id(p) not in found
            found[id(p)] = group["weight_decay"]
    names = {name: found.pop(id(p)) for name, p in model.named_parameters()}
    assert not found
    return names


@pytest.mark.parametrize(
    ("name", "args", "none"),
    [
        (
            "vit",
            {**TINY_VIT, "global_pool": "token", "qk_norm": True, "init_values": 0.1},
            {"positions.pos_embed", "cls_token", "blocks.0.ls1.gamma", "blocks.0.ls2.gamma"},
        ),
        ("cnn", {"widths": [3, 5]}, set()),
        ("timm:vit_tiny_patch16_224", {"depth": 1, "patch_size": 4}, {"cls_token", "pos_embed"}),
    ],
)
def test_only_matrices_and_kernels_decay(name: str, args: dict[str, Any], none: set[str]) -> None:
    module = Classifier(name, args, weight_decay=0.7, **DIGITS)
    module.trainer = L.Trainer(logger=False, max_steps=5, barebones=True)
    groups = module.configure_optimizers()["optimizer"].param_groups
    got = decays(module.model, groups)
    assert none <= got.keys()
    parameters = dict(module.model.named_parameters())
    for key, decay in got.items():
        free = key in none or "norm" in key or key.endswith("bias") or parameters[key].ndim == 1
        assert decay == (0.0 if free else 0.7), key
    assert sum(d == 0.7 for d in got.values()) >= 3


@pytest.mark.parametrize("key", ["lr", "weight_decay", "warmup", "label_smoothing"])
@pytest.mark.parametrize("value", [-0.1, float("nan")])
def test_bad_values_are_named(key: str, value: float) -> None:
    with pytest.raises(UserError, match=rf"^{key} is {value}; wanted "):
        OptimConfig(**{key: value}).check()
    with pytest.raises(UserError, match=rf"^{key} is {value}"):
        Classifier("cnn", {"widths": [2]}, **{key: value}, **DIGITS)


@pytest.mark.parametrize(("warmup", "smoothing"), [(1.1, 0.0), (0.0, 1.1)])
def test_shares_are_at_most_one(warmup: float, smoothing: float) -> None:
    with pytest.raises(UserError, match=r"1\.1; wanted 0 to under 1"):
        OptimConfig(warmup=warmup, label_smoothing=smoothing).check()


class Constant(nn.Module):
    """Says class 0 of two, whatever it sees."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tensor([[2.0, 0.0]]).expand(len(x), 2)


def test_accuracy_is_overall_and_loss_is_the_mean_over_images(tmp_path: Path) -> None:
    module = Classifier("cnn", {"widths": [2]}, img_size=(5, 7), in_chans=1, num_classes=2)
    module.model = Constant()
    images, labels = torch.zeros(10, 1, 5, 7), torch.tensor([0] * 9 + [1])
    batches = loader((images[:7], labels[:7]), (images[7:], labels[7:]))
    right = math.log(1 + math.exp(-2))
    wrong = math.log(1 + math.exp(2))
    for part, run in (("test", quiet(tmp_path).test), ("val", quiet(tmp_path).validate)):
        (got,) = run(module, dataloaders=batches, verbose=False)
        want = {f"{part}_acc": 0.9, f"{part}_loss": (9 * right + wrong) / 10}
        assert got.keys() == want.keys()
        for key, value in want.items():
            assert_close(got[key], value, rtol=1e-6, atol=0)


def loss_by_hand(logits: Tensor, shares: Tensor, smoothing: float) -> float:
    """Mean over images of -sum_c ((1 - s) y_c + s / classes) log softmax(z)_c, in float64."""
    total, classes = 0.0, logits.shape[1]
    for z, y in zip(logits.double().tolist(), shares.double().tolist(), strict=True):
        norm = math.log(sum(math.exp(v) for v in z))
        for v, share in zip(z, y, strict=True):
            total -= ((1 - smoothing) * share + smoothing / classes) * (v - norm)
    return total / len(logits)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("soft", [False, True])
def test_training_loss(smoothing: float, soft: bool) -> None:
    torch.manual_seed(5)
    module = Classifier("cnn", {"widths": [3]}, label_smoothing=smoothing, **DIGITS).eval()
    x, y = torch.randn(7, 1, 8, 8), torch.randint(0, 10, (7,))
    shares = torch.rand(7, 10).softmax(1) if soft else nn.functional.one_hot(y, 10).float()
    loss = module.training_step((x, shares if soft else y), 0)
    want = loss_by_hand(module(x).detach(), shares, smoothing)
    assert_close(loss.item(), want, rtol=1e-5, atol=0)
    assert_close(module.train_loss.compute().item(), want, rtol=1e-5, atol=0)


def test_smoothing_is_of_training_only(tmp_path: Path) -> None:
    torch.manual_seed(5)
    module = Classifier("cnn", {"widths": [3]}, label_smoothing=0.3, **DIGITS).eval()
    x, y = torch.randn(7, 1, 8, 8), torch.randint(0, 10, (7,))
    (got,) = quiet(tmp_path).test(module, dataloaders=loader((x, y)), verbose=False)
    want = loss_by_hand(module(x).detach(), nn.functional.one_hot(y, 10), 0.0)
    assert_close(got["test_loss"], want, rtol=1e-5, atol=0)


def test_channels_last_changes_memory_only() -> None:
    torch.manual_seed(2)
    plain = Classifier("cnn", {"widths": [3, 5]}, **DIGITS).eval()
    last = Classifier("cnn", {"widths": [3, 5]}, channels_last=True, **DIGITS).eval()
    last.load_state_dict(plain.state_dict())
    kernel = last.model.get_parameter("stages.1.0.weight")
    assert kernel.is_contiguous(memory_format=torch.channels_last)
    x = torch.randn(7, 1, 8, 8)
    assert_close(last(x), plain(x), rtol=1e-5, atol=1e-6)


def plain_types(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(k) is str and plain_types(v) for k, v in value.items())
    if type(value) in (list, tuple):
        return all(map(plain_types, value))
    return value is None or type(value) in (int, float, str, bool)


@pytest.mark.parametrize(("name", "args"), [("vit", TINY_VIT), ("cnn", {"widths": [3, 5]})])
def test_checkpoint_gives_the_same_logits(tmp_path: Path, name: str, args: Any) -> None:
    data = ImageData("digits", size=20, batch_size=7)
    shape = {"img_size": data.img_size, "in_chans": data.in_chans, "num_classes": 10}
    module = Classifier(name, args, lr=0.02, **shape)
    fit = quiet(tmp_path, max_epochs=2)
    fit.fit(module, datamodule=data)
    fit.save_checkpoint(tmp_path / "last.ckpt")
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert plain_types(saved["hyper_parameters"])
    again = Classifier.load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert again.hparams == module.hparams
    x = torch.randn(11, 1, 8, 8)
    with torch.no_grad():
        assert torch.equal(again.eval()(x), module.eval()(x))


def test_train_loss_every_epoch_for_four_images(tmp_path: Path) -> None:
    data = ImageData(source=two_classes(11), size=4, batch_size=2, val_fraction=0.3)
    module = Classifier("cnn", {"widths": [3]}, img_size=(5, 7), in_chans=1, num_classes=2)
    logger = CSVLogger(tmp_path, name="", version="")
    fit = quiet(tmp_path, max_epochs=3, logger=logger)
    fit.fit(module, datamodule=data)
    rows = pd.read_csv(tmp_path / "metrics.csv")
    for column in ("train_loss", "val_loss", "val_acc"):
        assert rows.dropna(subset=column)["epoch"].tolist() == [0, 1, 2], column
    assert rows["step"].tolist() == [1, 1, 3, 3, 5, 5]


def test_logged_train_loss_is_the_mean_over_the_epoch(tmp_path: Path) -> None:
    seen: list[tuple[float, int]] = []

    class Watch(Callback):
        def on_train_batch_end(
            self, trainer: Any, module: Any, outputs: Any, batch: Any, index: int
        ) -> None:
            seen.append((float(outputs["loss"]), len(batch[0])))

    module = Classifier("cnn", {"widths": [3]}, **DIGITS)
    fit = quiet(tmp_path, max_epochs=1, callbacks=[Watch()])
    fit.fit(module, datamodule=ImageData("digits", size=53, batch_size=17))
    want = sum(loss * n for loss, n in seen) / sum(n for _, n in seen)
    assert len(seen) == 3
    assert_close(fit.callback_metrics["train_loss"].item(), want, rtol=1e-6, atol=0)


def test_batch_norm_trains_when_one_image_is_left_over(tmp_path: Path) -> None:
    module = Classifier("cnn", {"widths": [3, 5, 7]}, **DIGITS)
    fit = quiet(tmp_path, max_epochs=1)
    fit.fit(module, datamodule=ImageData("digits", size=33, batch_size=32))
    assert math.isfinite(fit.callback_metrics["train_loss"].item())


def test_prediction_is_the_softmax_of_the_model() -> None:
    torch.manual_seed(1)
    module = Classifier("vit", TINY_VIT, **DIGITS).eval()
    model = create_model("vit", args=TINY_VIT, **DIGITS).eval()
    model.load_state_dict(module.model.state_dict())
    x = torch.randn(5, 1, 8, 8)
    z = model(x).double()
    assert_close(
        module.predict_step((x, torch.zeros(5)), 0).double(),
        z.exp() / z.exp().sum(1, keepdim=True),
        rtol=1e-5,
        atol=1e-7,
    )


@pytest.mark.parametrize("name", ["cnn", "timm:test_resnet"])
def test_timm_learns_the_statistics_of_the_images_from_the_model(name: str, tmp_path: Path) -> None:
    data = ImageData("", source=two_classes(20))
    module = Classifier(name, img_size=(5, 7), in_chans=1, num_classes=2)
    fit = quiet(tmp_path, max_steps=1)
    fit.fit(module, data)
    fit.save_checkpoint(tmp_path / "m.ckpt")
    again = Classifier.load_from_checkpoint(tmp_path / "m.ckpt")
    pixels = np.arange(35, dtype=np.uint8).reshape(5, 7, 1) * 7
    for trained in (module, again):
        told = resolve_model_data_config(trained.model)
        assert told["input_size"] == (1, 5, 7)
        image = torch.from_numpy(pixels).permute(2, 0, 1)
        mean, std = (torch.tensor(told[key])[:, None, None] for key in ("mean", "std"))
        assert_close((image / 255 - mean) / std, data._normalise(image))


class Net(nn.Sequential):
    """A module of one's own, (B, 1, 8, 8) -> (B, 10)."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Linear(64, 10))


def test_a_module_of_ones_own_trains_and_comes_back_with_it(source: Source, tmp_path: Path) -> None:
    data = ImageData(source=source, size=50, batch_size=10)
    net = Net()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    model = Classifier(model=net, **DIGITS, lr=0.01)
    trainer = quiet(tmp_path, max_steps=7)
    trainer.fit(model, data)
    assert not torch.equal(net[1].weight, before["1.weight"])
    file = tmp_path / "net.ckpt"
    trainer.save_checkpoint(file)
    again = Classifier.load_from_checkpoint(file, model=Net())
    x = torch.randn(3, 1, 8, 8)
    assert torch.equal(again(x), model.eval()(x))
    assert again.hparams["lr"] == 0.01
    for load in (Classifier.load_from_checkpoint, load_classifier):
        with pytest.raises(UserError, match=r"Net is a module of your own, which a checkpoint"):
            load(file)
    with pytest.raises(UserError, match=r"args \{'depth': 1\} are given beside a model"):
        Classifier(args={"depth": 1}, model=Net())
