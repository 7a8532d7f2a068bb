"""A checkpoint means the same everywhere: normalisation, classes, control, precision, arguments."""

import json
import shlex
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
import yaml
from lightning.pytorch.callbacks import Callback
from PIL import Image
from shared import TINY_VIT, quiet
from torch.testing import assert_close

from vision_attn.cli import main
from vision_attn.data.module import ImageData
from vision_attn.errors import UserError
from vision_attn.explain.checkpoint import load_classifier
from vision_attn.training.checkpoint import read_checkpoint
from vision_attn.training.classifier import Classifier

# Lightning's advice on worker counts and log intervals
pytestmark = [
    pytest.mark.filterwarnings("ignore:::lightning"),
    pytest.mark.usefixtures("one_thread"),
]

QUIET = "--trainer.accelerator cpu --trainer.enable_progress_bar false"
MODEL = f"--model.args '{json.dumps(TINY_VIT)}'"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def folder(root: Path, classes: str, light: int = 0, side: int = 8) -> Path:
    """Images of 5 grey levels a class; test images as they are, training images less `light`."""
    draw = np.random.default_rng(7)
    for part, count, less in (("train", 11, light), ("test", 7, 0)):
        for at, name in enumerate(classes.split()):
            (root / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = draw.integers(60 * at, 60 * at + 50, (side, side)) + 100 - less
                image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
                image.save(root / part / name / f"{i}.png")
    return root


def command(line: str) -> int:
    return main([*shlex.split(line), *shlex.split(QUIET)])


LOG = "--trainer.logger.name log"
"""Lets `test` write a log, with all digits, which by itself it does not."""


def numbers(root: Path, column: str) -> float:
    """The one value of a column in the newest log."""
    import pandas as pd

    logs = sorted(root.glob("runs/*/version_*/metrics.csv"), key=lambda p: p.stat().st_mtime_ns)
    return float(pd.read_csv(logs[-1])[column].dropna().iloc[-1])


def refusal(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert command(line) == 2
    said = capsys.readouterr()
    assert len(said.err.splitlines()) == 1, said.err
    return said.err


def newest(root: Path) -> Path:
    return max(
        root.glob("runs/fit/version_*/checkpoints/last.ckpt"), key=lambda p: p.stat().st_mtime_ns
    )


def test_case_40_the_same_test_images_beside_darker_training_images(here: Path) -> None:
    bright, dark = folder(here / "bright", "cat dog"), folder(here / "dark", "cat dog", light=90)
    fit = f"fit {MODEL} --data.name folder --data.val_fraction 0.2 --trainer.max_epochs 3"
    assert command(f"{fit} --data.root {bright}") == 0
    path = newest(here)
    losses = []
    for root in (bright, dark):
        line = f"test --ckpt_path {path} --data.name folder --data.root {root}"
        assert command(f"{line} --data.val_fraction 0.2 {LOG}") == 0
        losses.append((numbers(here, "test_loss"), numbers(here, "test_acc")))
    assert losses[0] == losses[1]


CELLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "permuted": {"controls": ["permuted"]},
    "shuffled": {"controls": ["shuffled"]},
    "bf16": {"precision": "bf16-mixed"},
    "ema": {"optim": {"lr": 0.02, "ema": 0.8}},
}


@pytest.mark.parametrize("cell", CELLS)
def test_case_41_42_a_cell_measures_as_its_result_says(here: Path, cell: str) -> None:
    study = {
        "models": ["vit"], "args": {"vit": {**TINY_VIT, "proj_drop_rate": 0.1}}, "sizes": [37],
        "draws": 1, "batch_size": 13, "optim": {"lr": 0.02}, "budget": {"steps": 9},
        "checkpoint": True, **CELLS[cell],
    }  # fmt: skip
    Path("study.yaml").write_text(yaml.safe_dump(study))
    assert main(["compare", "--config", "study.yaml", "--out", "out", "--workers", "1"]) == 0
    (path,) = Path("out").glob("cells/*/last.ckpt")
    result = json.loads((path.parent / "result.json").read_text())
    assert command(f"test --ckpt_path {path} --data.name digits {LOG}") == 0
    for key in ("test_acc", "test_loss"):
        assert np.float32(numbers(here, key)) == np.float32(result[key]), key
    assert command(f"validate --ckpt_path {path} --data.size 37 {LOG}") == 0
    for key in ("val_acc", "val_loss"):
        assert np.float32(numbers(here, key)) == np.float32(result[key]), key


def trained(root: Path, data: ImageData) -> Path:
    """The checkpoint of one update."""
    module = Classifier("vit", TINY_VIT, img_size=(8, 8), in_chans=1)
    trainer = quiet(root, max_steps=1)
    trainer.fit(module, datamodule=data)
    path = root / f"{data.control}.ckpt"
    trainer.save_checkpoint(path)
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("plain"), ImageData("digits", size=47, batch_size=13))


def test_case_42_another_permutation_is_refused(plain: Path, tmp_path: Path) -> None:
    data = ImageData("digits", size=47, batch_size=13, control="permuted")
    state = read_checkpoint(trained(tmp_path, data)).data
    taken = ImageData("digits", size=20)
    before = next(iter(taken.test_dataloader()))[0]
    taken.load_state_dict(state)
    taken.load_state_dict(state)  # a second time changes nothing
    after = next(iter(taken.test_dataloader()))[0]
    same = ImageData("digits", size=47, control="permuted")
    assert_close(after, next(iter(same.test_dataloader()))[0], rtol=0, atol=0)
    assert not torch.equal(before.flatten(1).sort(1)[0], after.flatten(1).sort(1)[0])  # its mean
    with pytest.raises(UserError, match="permuted as those of cifar10, the data is digits"):
        ImageData("digits").load_state_dict({**state, "name": "cifar10"})
    with pytest.raises(UserError, match=r"control is none, data\.control is permuted"):
        same.load_state_dict(read_checkpoint(plain).data)
    old = {k: read_checkpoint(plain).data[k] for k in ("classes", "mean", "std")}
    taken = ImageData("digits", size=20)
    taken.load_state_dict(old)  # from before there were controls
    assert taken.control == "none"
    assert taken.mean.tolist() == old["mean"]


def test_case_42_shuffled_labels_go_on_as_they_were(tmp_path: Path) -> None:
    data = ImageData("digits", size=47, batch_size=13, control="shuffled")
    path = trained(tmp_path, data)
    module = Classifier("vit", TINY_VIT, img_size=(8, 8), in_chans=1)
    again = ImageData("digits", size=47, batch_size=13)
    quiet(tmp_path, max_steps=2).fit(module, datamodule=again, ckpt_path=path, weights_only=True)
    np.testing.assert_array_equal(again.source.train_labels, data.source.train_labels)
    with pytest.raises(UserError, match=f"shuffled within images {data.subset.hash}, the data's"):
        quiet(tmp_path, max_steps=2).fit(
            module, datamodule=ImageData("digits", size=20), ckpt_path=path, weights_only=True
        )


@pytest.mark.parametrize(
    ("classes", "side", "wanted"),
    [
        ("dog fox", 8, "classes: ['cat', 'dog']; the data's: ['dog', 'fox']"),
        ("cat dog fox", 8, "num_classes 2, the data has 3"),
        ("cat dog", 12, "img_size (8, 8), the data has (12, 12)"),
    ],
)
def test_case_43_other_data_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], classes: str, side: int, wanted: str
) -> None:
    data = "--data.name folder --data.val_fraction 0.2 --data.root"
    first, other = folder(here / "first", "cat dog"), folder(here / "other", classes, side=side)
    assert command(f"fit {MODEL} {data} {first} --trainer.max_epochs 1") == 0
    path = newest(here)
    for part in ("test", "validate", "predict", "fit"):
        assert wanted in refusal(f"{part} --ckpt_path {path} {data} {other}", capsys)


def test_case_43_another_order_of_classes_is_refused(plain: Path) -> None:
    state = read_checkpoint(plain).data
    with pytest.raises(UserError, match=r"classes: \['9', .*; the data's: \['0', "):
        ImageData("digits").load_state_dict({**state, "classes": state["classes"][::-1]})
    with pytest.raises(UserError, match=r"channels: 3; the data's: 1"):
        ImageData("digits").load_state_dict({**state, "in_chans": 3})


class Groups(Callback):
    """Rate and decay of each group at each update."""

    def __init__(self) -> None:
        self.seen: list[list[tuple[float, float]]] = []

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        self.seen.append([(g["lr"], g["weight_decay"]) for g in optimizer.param_groups])


def test_case_44_what_was_typed_stands_over_the_checkpoint(
    plain: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = Groups()
    configure = Classifier.configure_callbacks
    monkeypatch.setattr(Classifier, "configure_callbacks", lambda self: [*configure(self), groups])
    fit = f"fit --ckpt_path {plain} --data.size 47 --data.batch_size 13 --trainer.max_epochs 2"
    assert command(f"{fit} --model.lr 1e-5 --model.weight_decay 0.3 --model.warmup 0") == 0
    assert len(groups.seen) == 5  # six, one of which the checkpoint has made
    for update, seen in enumerate(groups.seen, start=1):
        rate = 1e-5 * (1 + np.cos(np.pi * update / 6)) / 2
        assert_close(seen, [(rate, 0.0), (rate, 0.3)])
    groups.seen.clear()
    Path("some.yaml").write_text("model: {lr: 0.02, warmup: 0}")
    assert command(f"{fit} --config some.yaml") == 0
    assert groups.seen[0][0][0] == pytest.approx(0.02 * (1 + np.cos(np.pi / 6)) / 2)
    groups.seen.clear()
    assert command(fit) == 0  # as it was trained
    assert groups.seen[0][1] == pytest.approx((1e-3 * (1 + np.cos(np.pi / 6)) / 2, 0.05))


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("--model.name cnn", "its model.name is 'vit', not 'cnn'"),
        ("--model.args.depth 4", "its model.args.depth is 1, not 4"),
        ("--model.args.qk_norm true", "its model.args.qk_norm is as by default, not True"),
        ("--model.weight_decay 0", "weight_decay was 0.05; training cannot go on with 0.0"),
    ],
)
def test_case_44_another_model_is_refused(
    plain: Path, here: Path, capsys: pytest.CaptureFixture[str], typed: str, wanted: str
) -> None:
    line = f"fit --ckpt_path {plain} --data.size 47 {typed} --trainer.logger false"
    assert wanted in refusal(line, capsys)
    assert command(f"test --ckpt_path {plain} {MODEL} --trainer.logger false") == 0


def test_case_44_of_a_class_that_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kind = "vision_attn.training.{}"
    model = {
        "class_path": kind.format("dense.Segmenter"),
        "init_args": {"patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 3},
    }
    data = {
        "class_path": "vision_attn.data.scene_data.SceneData",
        "init_args": {"train_scenes": 20, "eval_scenes": 5, "batch_size": 10, "canvas": [16, 16],
                      "objects": [1, 2]},
    }  # fmt: skip
    Path("dense.yaml").write_text(yaml.safe_dump({"model": model, "data": data}))
    assert command("fit --config dense.yaml --trainer.max_epochs 1") == 0
    path = newest(here)
    mean = torch.load(path, weights_only=True)["SceneData"]["mean"]
    assert mean[0] > 0
    config = path.parents[1] / "config.yaml"  # of the run, with every option in it
    for line in ("--config dense.yaml --data.seed 1", f"--config {config}"):
        assert command(f"test {line} --ckpt_path {path} --trainer.logger false") == 0
    more = f"--trainer.max_epochs 2 --ckpt_path {path}"
    assert command(f"fit --config dense.yaml --model.lr 1e-5 {more}") == 0
    saved = torch.load(newest(here), weights_only=True)
    assert saved["hyper_parameters"]["lr"] == 1e-5
    wanted = f"{path}: its model.depth is 1, not 2"
    assert wanted in refusal(f"fit --config dense.yaml --model.depth 2 {more}", capsys)
    other = kind.format("detr.Detector")
    Path("other.yaml").write_text(yaml.safe_dump({"model": {"class_path": other}, "data": data}))
    assert f"not a {other}" in refusal(f"fit --config other.yaml {more}", capsys)
    assert "holds no classifier" in refusal(f"test --ckpt_path {path}", capsys)


class SaveAt(Callback):
    def __init__(self, update: int, path: Path) -> None:
        self.update, self.path = update, path

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step == self.update:
            trainer.save_checkpoint(self.path)


def test_case_44_an_average_can_begin_and_end(tmp_path: Path, plain: Path) -> None:
    def fit(ema: float | None, *callbacks: Callback, **more: Any) -> Classifier:
        module = Classifier("vit", TINY_VIT, img_size=(8, 8), in_chans=1, ema=ema, lr=0.01)
        data = ImageData("digits", size=47, batch_size=13)
        trainer = quiet(tmp_path, callbacks=list(callbacks), max_steps=6)
        trainer.fit(module, datamodule=data, weights_only=True, **more)
        return module

    path, key = tmp_path / "averaged.ckpt", "model.head.weight"
    L.seed_everything(3, verbose=False)
    fit(0.9, SaveAt(4, path))
    L.seed_everything(3, verbose=False)
    whole = fit(None)
    saved = torch.load(path, weights_only=True)
    assert not torch.equal(saved["state_dict"][key], saved["current_model_state"][key])
    resumed = fit(None, ckpt_path=path)  # goes on from the weights, not from their average
    assert torch.equal(resumed.state_dict()[key], whole.state_dict()[key])
    begun, without = fit(0.9, ckpt_path=plain), fit(None, ckpt_path=plain)
    assert not torch.equal(begun.state_dict()[key], without.state_dict()[key])


def test_weights_alone_can_be_measured_and_not_trained_on(
    plain: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = torch.load(plain, weights_only=True)
    torch.save({k: v for k, v in saved.items() if k != "optimizer_states"}, "w.ckpt")
    assert command("test --ckpt_path w.ckpt --trainer.logger false") == 0
    assert "w.ckpt holds weights alone" in refusal("fit --ckpt_path w.ckpt", capsys)


HARMFUL: dict[str, dict[str, Any]] = {
    "pretrained": {"pretrained": True},
    "file": {"pretrained": True, "pretrained_cfg_overlay": {"file": "evil.pt"}},
    "url": {"pretrained": True, "pretrained_cfg_overlay": {"url": "http://x.invalid/evil.pt"}},
    "hub": {"pretrained_cfg": {"hf_hub_id": "x/y"}},
    "path": {"checkpoint_path": "evil.pt"},
    "cache": {"cache_dir": "evil"},
    "deep": {"head": [{"hf_hub_id": "x/y"}]},
}


@pytest.mark.parametrize("case", HARMFUL)
def test_case_46_a_checkpoint_names_no_other_file(
    plain: Path, here: Path, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return open, (str(here / "ran"), "w")

    torch.save(Evil(), "evil.pt")
    saved = torch.load(plain, weights_only=True)
    saved["hyper_parameters"] |= {"name": "timm:vit_tiny_patch16_224", "args": HARMFUL[case]}
    torch.save(saved, "bad.ckpt")
    for line in ("test", "fit", "predict", "validate"):
        said = refusal(f"{line} --ckpt_path bad.ckpt", capsys)
        assert "bad.ckpt: its model's argument" in said
        assert "would load another file" in said
    with pytest.raises(UserError, match="would load another file"):
        load_classifier(Path("bad.ckpt"))
    assert not Path("ran").exists()
