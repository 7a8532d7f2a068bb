"""One configured run: the numbers of its result, how they are measured, and that they repeat."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

from vision_attn.data.augment import AugmentConfig
from vision_attn.data.batches import ImageBatches
from vision_attn.data.sources import DataConfig, Source, load
from vision_attn.data.subsets import Subset, subset
from vision_attn.training.classifier import Classifier
from vision_attn.training.optim import OptimConfig
from vision_attn.training.run import RunConfig, run

CONFIG = RunConfig(
    model="vit",
    args={"patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 3, "proj_drop_rate": 0.1},
    size=37,
    draw=2,
    seed=1,
    steps=40,
    val_fraction=0.1,
    batch_size=13,
    optim=OptimConfig(lr=0.02, label_smoothing=0.1),
    augment=AugmentConfig(pad=1),
    precision="32-true",
    threads=1,
    rows=4,
    select="last",
)
CLOCK = ("seconds", "images_per_second")


@pytest.fixture(scope="module")
def source() -> Source:
    return load(DataConfig())


@pytest.fixture(scope="module")
def first(source: Source, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    out = tmp_path_factory.mktemp("first")
    return run(CONFIG, source, out, checkpoint=True), out


def dealt(source: Source) -> Subset:
    return subset(source.train_labels, name="digits", draw=2, size=37, num_classes=10)


def measured(path: Path, source: Source) -> dict[str, float]:
    """Accuracy and loss of a saved model on clean images, normalised by the subset in float64."""
    module = Classifier.load_from_checkpoint(path, weights_only=True).eval()
    train, images, labels = (
        dealt(source),
        source.train_images,
        torch.from_numpy(source.train_labels),
    )
    assert isinstance(images, Tensor)
    assert isinstance(source.test_images, Tensor)
    mine = images[train.train].double()
    mean, std = mine.mean(), mine.std(correction=0)
    found: dict[str, float] = {}
    for part, x, y in (
        ("train", images[train.train], labels[train.train]),
        ("val", images[train.val], labels[train.val]),
        ("test", source.test_images, torch.from_numpy(source.test_labels)),
    ):
        with torch.no_grad():
            logits = module(((x.double() - mean) / std).float())
        found[f"{part}_acc"] = (logits.argmax(1) == y).double().mean().item()
        found[f"{part}_loss"] = cross_entropy(logits.double(), y).item()
    return found


def test_the_same_run_gives_the_same_numbers(
    source: Source, first: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    again = run(CONFIG, source, tmp_path)
    for key, value in first[0].items():
        assert key in CLOCK or again[key] == value, key
    assert again.keys() == first[0].keys()
    assert (tmp_path / "metrics.csv").read_bytes() == (first[1] / "metrics.csv").read_bytes()


def test_measured_in_eval_mode_on_clean_images(
    source: Source, first: tuple[dict[str, Any], Path]
) -> None:
    want = measured(first[1] / "last.ckpt", source)
    assert_close({k: first[0][k] for k in want}, want, rtol=1e-5, atol=1e-6)
    assert len({want[f"{part}_loss"] for part in ("train", "val", "test")}) == 3


def test_what_the_result_says(source: Source, first: tuple[dict[str, Any], Path]) -> None:
    result = first[0]
    assert set(result) == {
        "steps", "epochs", "train_acc", "val_acc", "test_acc", "train_loss", "val_loss",
        "test_loss", "gap", "seconds", "images_per_second", "size", "subset",
        "best_step", "best_val_loss", "best_test_acc", "best_test_loss",
    }  # fmt: skip
    assert {type(v) for v in result.values()} == {int, float, str}
    assert (result["steps"], result["size"]) == (40, 37)
    assert result["epochs"] == 40 * 13 / 37
    assert result["gap"] == result["train_acc"] - result["test_acc"]
    assert result["images_per_second"] == 40 * 13 / result["seconds"]
    assert result["subset"] == dealt(source).hash


def test_log_has_every_row(first: tuple[dict[str, Any], Path]) -> None:
    rows = pd.read_csv(first[1] / "metrics.csv")
    for column in ("train_loss", "val_loss", "val_acc"):
        part = rows.dropna(subset=column)
        assert part["step"].tolist() == [9, 19, 29, 39], column
        assert_close(part["epoch"].tolist(), [10 * i * 13 / 37 for i in (1, 2, 3, 4)])
    last = rows.dropna(subset="val_loss").iloc[-1]
    assert_close([last["val_loss"], last["val_acc"]], [first[0]["val_loss"], first[0]["val_acc"]])


def test_files(source: Source, first: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    assert sorted(p.name for p in first[1].iterdir()) == ["last.ckpt", "metrics.csv", "test.npz"]
    run(replace(CONFIG, steps=2, select="best"), source, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["metrics.csv", "test.npz"]


def test_logits_of_test_images_are_stored(
    source: Source, first: tuple[dict[str, Any], Path]
) -> None:
    with np.load(first[1] / "test.npz") as stored:
        logits, labels, correct = (stored[name] for name in ("logits", "labels", "correct"))
    assert (logits.dtype, logits.shape) == (np.float16, (599, len(source.classes)))
    assert (labels == np.asarray(source.test_labels)).all()
    assert_close(float(correct.mean()), first[0]["test_acc"], rtol=1e-6, atol=0)
    assert (logits.argmax(1) == labels).mean() == pytest.approx(correct.mean(), abs=0.01)
    loss = torch.nn.functional.cross_entropy(
        torch.from_numpy(logits).float(), torch.from_numpy(labels)
    )
    assert_close(loss.item(), first[0]["test_loss"], rtol=1e-3, atol=0)


def test_best_measures_the_weights_of_the_lowest_validation_loss(
    source: Source, tmp_path: Path
) -> None:
    wild = replace(CONFIG, optim=OptimConfig(lr=0.3, warmup=0.99), steps=24, rows=8)
    last = run(wild, source, tmp_path / "last")
    best = run(replace(wild, select="best"), source, tmp_path / "best", checkpoint=True)
    losses = pd.read_csv(tmp_path / "best" / "metrics.csv")["val_loss"].dropna().tolist()
    assert len(losses) == 8
    assert min(losses) < losses[-1]
    assert_close(best["val_loss"], min(losses), rtol=1e-6, atol=0)
    assert_close(last["val_loss"], losses[-1], rtol=1e-6, atol=0)
    assert_close(last["best_val_loss"], min(losses), rtol=1e-6, atol=0)
    assert last["best_step"] == 3 * (losses.index(min(losses)) + 1)
    assert_close(last["best_test_acc"], best["test_acc"], rtol=0, atol=0)
    assert_close(last["best_test_loss"], best["test_loss"], rtol=1e-6, atol=0)
    assert best["best_test_loss"] == best["test_loss"] != last["test_loss"]
    want = measured(tmp_path / "best" / "last.ckpt", source)
    assert_close({k: best[k] for k in want}, want, rtol=1e-5, atol=1e-6)


def test_test_images_are_read_once_and_after_training(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[tuple[bool, list[int]]] = []
    training = [False]
    get, fit = ImageBatches.__getitem__, L.Trainer.fit

    def counting_get(self: ImageBatches, request: tuple[Any, int]) -> Any:
        if self.images is source.test_images:
            reads.append((training[0], request[0].tolist()))
        return get(self, request)

    def flagged_fit(*args: Any, **more: Any) -> None:
        training[0] = True
        fit(*args, **more)
        training[0] = False

    monkeypatch.setattr(ImageBatches, "__getitem__", counting_get)
    monkeypatch.setattr(L.Trainer, "fit", flagged_fit)
    run(replace(CONFIG, select="best"), source, tmp_path)
    assert not any(during for during, _ in reads)
    assert sorted(i for _, batch in reads for i in batch) == list(range(599))


def test_divergence_is_an_error(source: Source, tmp_path: Path) -> None:
    levels = [logging.getLogger(n).level for n in ("lightning.pytorch", "lightning.fabric")]
    with pytest.raises(FloatingPointError, match="diverged: loss nan; try a lower lr"):
        run(replace(CONFIG, optim=OptimConfig(lr=1e30)), source, tmp_path)
    assert levels == [logging.getLogger(n).level for n in ("lightning.pytorch", "lightning.fabric")]


def test_batch_is_no_larger_than_the_subset(source: Source, tmp_path: Path) -> None:
    small = replace(CONFIG, model="cnn", args={"widths": [3]}, size=11, batch_size=64, steps=3)
    result = run(small, source, tmp_path)
    assert (result["size"], result["epochs"]) == (11, 3.0)
    assert_close(result["images_per_second"] * result["seconds"], 33.0)


def test_seed_changes_the_start_and_draw_the_images(source: Source, tmp_path: Path) -> None:
    base, seed, draw = (
        run(replace(CONFIG, steps=1, **change), source, tmp_path / str(i))
        for i, change in enumerate(({}, {"seed": 3}, {"draw": 0}))
    )
    assert base["subset"] == seed["subset"] != draw["subset"]
    assert len({r["test_loss"] for r in (base, seed, draw)}) == 3


def test_models_of_a_cell_see_the_same_batches(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[np.ndarray[Any, Any]]] = []
    get = ImageBatches.__getitem__

    def recording_get(self: ImageBatches, request: tuple[Any, int]) -> Any:
        x, y = get(self, request)
        if self.config is not None:
            seen[-1].append(x.numpy())
        return x, y

    monkeypatch.setattr(ImageBatches, "__getitem__", recording_get)
    for change in ({}, {"model": "cnn", "args": {"widths": [3]}}):
        seen.append([])
        run(replace(CONFIG, steps=4, **change), source, tmp_path / str(len(seen)))
    assert len(seen[0]) == len(seen[1]) == 4
    for a, b in zip(*seen, strict=True):
        np.testing.assert_array_equal(a, b)


def test_progress_tells_the_step(source: Source, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    run(replace(CONFIG, steps=3), source, tmp_path, progress=lambda *now: told.append(now))
    assert told[0] == (1, 3)


def test_half_precision_is_near(
    source: Source, first: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    half = run(replace(CONFIG, precision="bf16-mixed"), source, tmp_path)
    assert half["test_loss"] != first[0]["test_loss"]
    assert_close(half["test_loss"], first[0]["test_loss"], rtol=0.05, atol=0)
