"""The main job end to end: its files, restarts, failures, worker counts; and one model alone."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest
import torch
import yaml
from torch.testing import assert_close

from vision_attn.cli import main
from vision_attn.data.module import ImageData
from vision_attn.report.analysis import analyse
from vision_attn.report.tables import markdown
from vision_attn.study.results import read
from vision_attn.training.classifier import Classifier

# Lightning's notes on devices, log intervals and the place of a loaded checkpoint
pytestmark = pytest.mark.filterwarnings("ignore:::lightning")

PROGRAM = Path(__file__).parents[2] / "train.py"
VIT = {"patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 3}
STUDY: dict[str, Any] = {
    "models": ["vit", "cnn"],
    "args": {"vit": VIT, "cnn": {"widths": [3, 5]}},
    "sizes": [20, 50],
    "draws": 1,
    "budget": {"steps": 40},
    "batch_size": 13,
    "optim": {"lr": 0.02},
    "rows": 4,
}
CELLS = [(m, n) for m in ("cnn", "vit") for n in (20, 50)]
CLOCK = ["seconds", "images_per_second"]


def compare(root: Path, workers: int, **changes: Any) -> list[str]:
    """The command line of a study whose configuration stands in a file beside its directory."""
    config = root.with_suffix(".yaml")
    config.write_text(yaml.safe_dump({**STUDY, **changes}))
    return ["compare", "--config", str(config), "--out", str(root), "--workers", str(workers)]


def tree(root: Path) -> dict[str, int]:
    return {str(p.relative_to(root)): p.stat().st_mtime_ns for p in root.rglob("*")}


def rows(root: Path) -> pd.DataFrame:
    """results.csv without what a clock has measured."""
    return pd.read_csv(root / "results.csv", dtype=str, keep_default_na=False).drop(columns=CLOCK)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that one worker ran from start to end, checkpoints kept."""
    root = tmp_path_factory.mktemp("finished") / "out"
    assert main(compare(root, 1, checkpoint=True)) == 0
    return root


def test_every_file_is_there(finished: Path) -> None:
    assert {p.name for p in finished.iterdir()} == {
        ".lock", "study.yaml", "cells", "results.csv", "summary.csv", "table.md",
        "accuracy_vs_size.png", "accuracy_vs_size.svg", "gap_vs_size.png", "gap_vs_size.svg",
        "report.html", "training.csv", "error_loglog.png", "error_loglog.svg",
        "training_curves.png", "training_curves.svg", "senses_vs_size.png", "senses_vs_size.svg",
        "table.tex", "pairs.csv", "multiplier.csv",
        "rises.csv", "stopped.csv",  # and only bounds of the multiplier, so no figure of it
    }  # fmt: skip
    cells = sorted((finished / "cells").iterdir())
    assert [c.name.rsplit("-", 1)[0] for c in cells] == [f"{m}-n{n:06d}-d0-s0" for m, n in CELLS]
    for cell in cells:
        names = {p.name for p in cell.iterdir()}
        assert names == {"result.json", "metrics.csv", "last.ckpt", "test.npz"}
    for name in ("accuracy_vs_size", "gap_vs_size"):
        assert ElementTree.parse(finished / f"{name}.svg").getroot().tag.endswith("svg")
    assert (finished / "table.md").read_text() == markdown(analyse(read(finished)))
    held = yaml.safe_load((finished / "study.yaml").read_text())
    assert held["starts"][0]["sizes"] == [20, 50]
    assert held["args"] == STUDY["args"]


def test_results_hold_together(finished: Path) -> None:
    table = pd.read_csv(finished / "results.csv")
    assert table[["model", "size"]].to_numpy().tolist() == [list(c) for c in CELLS]
    assert set(table["status"]) == {"ok"}
    assert_close(table["gap"].tolist(), (table["train_acc"] - table["test_acc"]).tolist())
    assert table["fitted"].tolist() == (table["train_acc"] >= 0.99).tolist()
    assert_close(table["epochs"].tolist(), [40 * 13 / n for _, n in CELLS])
    assert table.groupby("size")["subset"].nunique().tolist() == [1, 1]
    assert table["train_acc"].min() > 0.25  # chance is 0.1
    for cell, row in zip(sorted((finished / "cells").iterdir()), table.itertuples(), strict=True):
        result = json.loads((cell / "result.json").read_text())
        module = Classifier.load_from_checkpoint(cell / "last.ckpt", weights_only=True).eval()
        assert result["test_acc"] == row.test_acc == result["train_acc"] - result["gap"]
        assert sum(p.numel() for p in module.parameters()) == row.params


def test_saved_weights_give_the_stored_accuracy(finished: Path) -> None:
    cell = next((finished / "cells").glob("vit-n000050-*"))
    row = json.loads((cell / "result.json").read_text())
    module = Classifier.load_from_checkpoint(cell / "last.ckpt", weights_only=True).eval()
    (x, y), *more = ImageData("digits", size=50).test_dataloader()
    logits, labels = [module(x)], [y]
    for x, y in more:
        logits.append(module(x))
        labels.append(y)
    right = torch.cat(logits).argmax(1) == torch.cat(labels)
    assert len(right) == 599
    assert_close(right.double().mean().item(), row["test_acc"], rtol=1e-6, atol=0)


def test_a_second_start_runs_nothing(
    finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_worker(*_: object) -> None:
        raise AssertionError("a worker was started")

    monkeypatch.setattr("vision_attn.study.execute.Worker", no_worker)
    monkeypatch.setenv("COLUMNS", "120")
    cells, results = tree(finished / "cells"), (finished / "results.csv").read_bytes()
    assert main(compare(finished, 2, checkpoint=True)) == 0
    assert tree(finished / "cells") == cells
    assert (finished / "results.csv").read_bytes() == results
    out = capsys.readouterr().out
    assert "4 of 4 runs were there already" in out
    assert "report.html" in out


def test_another_configuration_is_refused(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(finished)
    assert main(compare(finished, 1, optim={"lr": 0.03})) == 2
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        f"error: out {finished} holds a study with optim.lr 0.02, this one has 0.03;"
        " choose another directory"
    ]
    assert tree(finished) == before


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(c) for c in found.split()]


def wait_for(condition: Any, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds children through /proc")
def test_killed_and_started_again_ends_the_same(finished: Path, tmp_path: Path) -> None:
    root = tmp_path / "killed"
    with (tmp_path / "log").open("w") as log:
        study = subprocess.Popen(
            [sys.executable, str(PROGRAM), *compare(root, 1)],
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        wait_for(lambda: study.poll() is not None or list(root.glob("cells/*-*/result.json")))
        workers = children(study.pid)
        assert workers, (tmp_path / "log").read_text()
        study.kill()
        study.wait()
        wait_for(lambda: not any(map(alive, workers)), 60)
    finally:
        if study.poll() is None:
            os.killpg(study.pid, signal.SIGKILL)
    done = sorted(p.parent for p in root.glob("cells/[!.]*/result.json"))
    assert 1 <= len(done) < 4
    assert not (root / "results.csv").exists()
    before = {p: tree(p) for p in done}
    half = done[0] / "result.json"
    half.write_bytes(half.read_bytes()[:50])
    assert main(compare(root, 2)) == 0
    assert all(tree(p) == before[p] for p in done[1:])
    assert tree(done[0]) != before[done[0]]
    pd.testing.assert_frame_equal(rows(root), rows(finished))
    assert not list(root.glob("cells/.*"))


def test_cells_that_fail_are_recorded_and_the_rest_goes_on(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "failing"
    # scores overflow to infinity, so the ViT's loss is no number from the first update
    code = main(compare(root, 1, args={**STUDY["args"], "vit": {**VIT, "scale": 1e60}}))
    assert code == 1
    said = capsys.readouterr().out
    assert "2 of 4 runs failed" in said
    with (root / "results.csv").open(newline="") as file:
        table = {(r["model"], int(r["size"])): r for r in csv.DictReader(file)}
    assert {k: r["status"] for k, r in table.items()} == {
        ("cnn", 20): "ok", ("cnn", 50): "ok", ("vit", 20): "failed", ("vit", 50): "failed",
    }  # fmt: skip
    assert table["vit", 50]["error"].startswith("FloatingPointError: training diverged: loss nan")
    assert [table["vit", 50][k] for k in ("test_acc", "gap", "fitted", "steps")] == [""] * 4
    cell = next(root.glob("cells/vit-n000050-*"))
    assert "FloatingPointError" in (cell / "error.txt").read_text()
    cnns = [rows(r).query("model == 'cnn'") for r in (root, finished)]
    pd.testing.assert_frame_equal(*cnns)
    summary = pd.read_csv(root / "summary.csv")
    assert summary["model"].tolist() == ["cnn", "cnn"]


FIT = ["--data.size", "50", "--data.batch_size", "13", "--model.lr", "0.02"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory in which one model was fitted for four epochs."""
    root = tmp_path_factory.mktemp("fitted")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        args = ["--model.args", json.dumps(VIT), "--trainer.max_epochs", "4"]
        assert main(["fit", *FIT, *args, "--trainer.enable_progress_bar", "false"]) == 0
    return root


def checkpoint(root: Path) -> Path:
    (path,) = root.glob("runs/fit/version_0/checkpoints/last.ckpt")
    return path


def probabilities(root: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """(599, 10) of the checkpoint by hand, and the labels."""
    module = Classifier.load_from_checkpoint(checkpoint(root), weights_only=True).eval()
    batches = list(ImageData("digits", size=50).test_dataloader())
    with torch.no_grad():
        p = torch.cat([module(x).softmax(1) for x, _ in batches])
    return p, torch.cat([y for _, y in batches])


def test_fit_logs_every_epoch(fitted: Path) -> None:
    log = pd.read_csv(fitted / "runs/fit/version_0/metrics.csv")
    for column in ("train_loss", "val_loss", "val_acc"):
        assert log.dropna(subset=column)["epoch"].tolist() == [0, 1, 2, 3], column
    assert log["step"].max() == 4 * (50 // 13) - 1


def test_the_configuration_of_a_fit_gives_the_same_fit(
    fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["fit", "--config", str(fitted / "runs/fit/version_0/config.yaml")]) == 0
    name = Path("runs/fit/version_0/metrics.csv")
    assert name.read_bytes() == (fitted / name).read_bytes()


def test_test_measures_the_checkpoint(
    fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = ["--trainer.logger.name", "log"]
    assert main(["test", "--ckpt_path", str(checkpoint(fitted)), *FIT[:2], *log]) == 0
    (row,) = pd.read_csv("runs/log/version_0/metrics.csv").to_dict("records")
    p, labels = probabilities(fitted)
    accuracy = (p.argmax(1) == labels).double().mean().item()
    loss = -p.double()[range(599), labels].log().mean().item()
    assert 0.2 < accuracy < 0.95
    assert_close([row["test_acc"], row["test_loss"]], [accuracy, loss], rtol=1e-5, atol=0)


def test_predict_writes_a_row_for_each_image(
    fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["predict", "--ckpt_path", str(checkpoint(fitted)), *FIT[:2]]) == 0
    table = pd.read_csv("runs/predictions.csv")
    assert table.columns.tolist() == ["image", "label", "predicted", *(f"p_{c}" for c in range(10))]
    assert table["image"].tolist() == list(range(599))
    want, labels = probabilities(fitted)
    got = torch.from_numpy(table.iloc[:, 3:].to_numpy())
    assert_close(got.sum(1), torch.ones(599, dtype=torch.float64), rtol=0, atol=1e-5)
    assert_close(got, want.double(), rtol=1e-5, atol=1e-7)
    assert table["predicted"].tolist() == want.argmax(1).tolist()
    assert table["label"].tolist() == labels.tolist()


def test_fit_resumes_for_the_epochs_that_are_new(
    fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    more = ["--ckpt_path", str(checkpoint(fitted)), "--trainer.max_epochs", "6"]
    assert main(["fit", *FIT, *more]) == 0
    log = pd.read_csv("runs/fit/version_0/metrics.csv").dropna(subset="val_loss")
    assert log["epoch"].tolist() == [4, 5]
    before = pd.read_csv(fitted / "runs/fit/version_0/metrics.csv")["val_loss"].dropna().iloc[-1]
    assert log["val_loss"].iloc[-1] < before


def test_a_checkpoint_of_other_images_is_refused(
    fitted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    saved = torch.load(checkpoint(fitted), weights_only=True)
    saved["hyper_parameters"]["num_classes"] = 7
    torch.save(saved, "seven.ckpt")
    capsys.readouterr()
    assert main(["test", "--ckpt_path", "seven.ckpt"]) == 2
    assert capsys.readouterr().err == (
        "error: ckpt_path: its model has num_classes 7, the data has 10\n"
    )
    assert [p.name for p in tmp_path.iterdir()] == ["seven.ckpt"]


def test_validation_interval_is_no_longer_than_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    args = ["--trainer.val_check_interval", "10", "--trainer.max_epochs", "2"]
    small = ["--model.name", "cnn", "--model.args", '{"widths": [3]}']
    assert main(["fit", *FIT, *args, *small]) == 0
    log = pd.read_csv("runs/fit/version_0/metrics.csv").dropna(subset="val_loss")
    assert log["step"].tolist() == [2, 5]


def test_each_start_has_a_log_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--model.name", "cnn", "--model.args", '{"widths": [3]}', "--trainer.max_epochs", "1"]
    logs = [Path(f"runs/fit/version_{i}/metrics.csv") for i in range(2)]
    assert main(["fit", *FIT, *small]) == 0
    text = logs[0].read_text()
    assert main(["fit", *FIT, *small]) == 0
    assert [log.read_text() for log in logs] == [text, text]
