"""Axes of a study beside model and size: protocols, controls, tuning, measures, joined plots."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from vision_attn.cli import main
from vision_attn.data.controls import permute_pixels, shuffle_labels
from vision_attn.data.module import ImageData
from vision_attn.data.sources import DataConfig, Source, load

pytestmark = pytest.mark.filterwarnings("ignore:::lightning")

VIT = {"patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 3}
STUDY: dict[str, Any] = {
    "models": ["vit", "cnn"],
    "args": {"vit": VIT, "cnn": {"widths": [3, 5]}},
    "sizes": [20, 40],
    "draws": 1,
    "batch_size": 10,
    "optim": {"lr": 0.02},
    "rows": 2,
}


def compare(root: Path, **changes: Any) -> int:
    config = root.with_suffix(".yaml")
    config.write_text(yaml.safe_dump({**STUDY, **changes}))
    return main(["compare", "--config", str(config), "--out", str(root), "--workers", "1"])


def stored(root: Path) -> list[dict[str, Any]]:
    return [json.loads(p.read_text()) for p in sorted(root.glob("cells/*/result.json"))]


@pytest.fixture(scope="module")
def source() -> Source:
    return load(DataConfig())


def test_permuted_pixels_are_the_same_pixels_in_one_fixed_order(source: Source) -> None:
    moved = permute_pixels(source)
    assert isinstance(source.train_images, torch.Tensor)
    assert isinstance(moved.train_images, torch.Tensor)
    assert isinstance(moved.test_images, torch.Tensor)
    before, after = source.train_images.flatten(2), moved.train_images.flatten(2)
    # each new place holds one old place, found by its values over all images
    columns = [
        [j for j in range(64) if torch.equal(after[:, :, i], before[:, :, j])] for i in range(64)
    ]
    varied = [c[0] for c in columns if len(c) == 1]
    assert len(set(varied)) == len(varied) > 50
    assert sum(a != b[0] for a, b in enumerate(columns)) > 50
    assert torch.equal(after.sort(-1).values, before.sort(-1).values)
    again = permute_pixels(source).test_images
    assert isinstance(again, torch.Tensor)
    assert torch.equal(again, moved.test_images)


def test_shuffled_labels_change_only_those_of_the_subset(source: Source) -> None:
    index = ImageData(source=source, size=200).subset.train
    mixed = shuffle_labels(source, index, 0)
    rest = np.setdiff1d(np.arange(len(source.train_labels)), index)
    np.testing.assert_array_equal(mixed.train_labels[rest], source.train_labels[rest])
    old, new = source.train_labels[index], mixed.train_labels[index]
    np.testing.assert_array_equal(np.bincount(new), np.bincount(old))
    assert 0.02 < (old == new).mean() < 0.25  # chance is 0.1
    np.testing.assert_array_equal(mixed.test_labels, source.test_labels)


def test_fitted_to_shuffled_labels_is_chance_on_test(tmp_path: Path) -> None:
    linear = {"models": ["linear"], "args": {}, "match": "none", "sizes": [40]}
    assert compare(tmp_path / "s", **linear, controls=["none", "shuffled"], budget={"steps": 600},
                   optim={"lr": 0.1, "weight_decay": 0.0}) == 0  # fmt: skip
    table = pd.read_csv(tmp_path / "s" / "results.csv").set_index("control")
    assert table["train_acc"].tolist() == [1.0, 1.0]
    assert table.loc["none", "test_acc"] > 0.6
    assert abs(table.loc["shuffled", "test_acc"] - 0.1) < 0.08


def test_protocols_side_by_side_and_one_added_later(tmp_path: Path) -> None:
    root = tmp_path / "p"
    assert compare(root, budget={"steps": 8}) == 0
    first = {p: p.stat().st_mtime_ns for p in root.glob("cells/*/metrics.csv")}
    assert compare(root, budget={"steps": 8, "epochs": 2}) == 0
    assert all(p.stat().st_mtime_ns == at for p, at in first.items())
    table = pd.read_csv(root / "results.csv").sort_values(["model", "size", "protocol"])
    assert table[["size", "protocol", "steps"]].to_numpy().tolist() == 2 * [
        [20, "epochs", 4], [20, "steps", 8], [40, "epochs", 8], [40, "steps", 8],
    ]  # fmt: skip
    twins = table[table["size"] == 40].groupby("model")["test_acc"].nunique()
    assert twins.tolist() == [1, 1]
    assert len(list(root.glob("cells/*/result.json"))) == 6
    # one protocol alone runs nothing and forgets nothing
    assert compare(root, budget={"epochs": 2}) == 0
    assert len(pd.read_csv(root / "results.csv")) == 8
    assert compare(root, budget={"steps": 9}) == 2


def test_tuning_chooses_on_validation_and_is_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "t"
    changes: dict[str, Any] = {
        "tune": 3, "budget": {"steps": 12}, "draws": 2, "models": ["vit"], "sizes": [20, 40],
        "optim": {"lr": 1e-6}, "tuning": {"lr": [0.005, 0.05], "sampler": "halton"},
    }  # fmt: skip
    assert compare(root, **changes) == 0
    table = pd.read_csv(root / "tuning.csv")
    assert len(table) == 6
    assert table.groupby("size")["chosen"].sum().tolist() == [1, 1]
    assert table.groupby("try")["lr"].nunique().tolist() == [1, 1, 1]
    for size, tries in table.groupby("size"):
        won = tries[tries["chosen"]].iloc[0]
        assert won["val_acc"] == tries["val_acc"].max()
        cells = [r for r in stored(root) if r["size"] == size]
        assert {r["draw"] for r in cells} == {0, 1}
        assert {r["config"]["optim"]["lr"] for r in cells} == {won["lr"]}
    for path in (root / "tuning").glob("cells/*/result.json"):
        assert "test_acc" not in json.loads(path.read_text())
    lost = next((root / "tuning" / "cells").iterdir()) / "result.json"
    lost.unlink()
    kept = {p: p.stat().st_mtime_ns for p in root.rglob("result.json")}
    assert compare(root, **changes) == 0
    assert lost.exists()
    assert all(p.stat().st_mtime_ns == at for p, at in kept.items())
    pd.testing.assert_frame_equal(pd.read_csv(root / "tuning.csv"), table)


def test_measures_are_stored_in_every_cell_with_attention(tmp_path: Path) -> None:
    root = tmp_path / "m"
    assert compare(root, sizes=[20], budget={"steps": 3}) == 0
    assert all("measures" not in r for r in stored(root))
    before = pd.read_csv(root / "results.csv").drop(columns=["seconds", "images_per_second"])
    assert compare(root, sizes=[20], budget={"steps": 3}, measure=True) == 0
    after = pd.read_csv(root / "results.csv").drop(columns=["seconds", "images_per_second"])
    pd.testing.assert_frame_equal(before, after)
    cnn, vit = stored(root)
    assert "measures" not in cnn  # nothing to measure, so it is not run again
    assert [(m["layer"], m["head"]) for m in vit["measures"]] == [(0, 0), (0, 1), (0, 2)]
    for m in vit["measures"]:
        assert 0 < m["distance"] < 32**0.5  # pixels; tokens lie 4 or 5.7 apart, 2 x 2 of them
        assert 0 < m["self_weight"] < 1


def test_labels_are_columns_of_one_study_and_directories_join(tmp_path: Path) -> None:
    short: dict[str, Any] = {"sizes": [20], "budget": {"steps": 3}}
    assert compare(tmp_path / "a", **short) == 0
    args = {"small=vit": None, "small": {**VIT, "embed_dim": 6}}
    args.pop("small=vit")
    assert compare(tmp_path / "b", **short, models=["small=vit"], args=args, match="none") == 0
    roots = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert main(["plot", *roots]) == 2
    assert main(["plot", *roots, "--out", str(tmp_path / "both")]) == 0
    table = pd.read_csv(tmp_path / "both" / "results.csv")
    assert sorted(table["model"]) == ["cnn", "small", "vit"]
    assert table.set_index("model")["arch"].to_dict() == {
        "cnn": "cnn", "small": "vit", "vit": "vit",
    }  # fmt: skip
    assert (tmp_path / "both" / "report.html").stat().st_size > 10_000
