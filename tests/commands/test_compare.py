"""`vision_attn.compare`: the same results as the command, in one call of Python."""

import multiprocessing
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from shared import Here, two_classes
from shared import here as runs_here

import vision_attn
from vision_attn.cli import main
from vision_attn.data.sources import Source
from vision_attn.errors import UserError
from vision_attn.study.config import Budget

OPTIONS: dict[str, Any] = {
    "models": ["linear", "cnn"], "args": {"cnn": {"widths": [3, 5]}}, "match": "none",
    "sizes": [20], "draws": 1, "budget": {"steps": 3}, "rows": 1,
}  # fmt: skip


@pytest.fixture
def ran(source: Source, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the cells that run, in this process."""
    runner = Here(source)

    def local(workers: int, threads: int) -> Any:
        def start(images: Source, store: Any, jobs: int) -> Any:
            runner.source = images
            return runs_here(runner)(images, store, jobs)

        return start

    monkeypatch.setattr("vision_attn.study.execute.local", local)
    monkeypatch.setattr("vision_attn.report.write.figures", lambda analysis: [])  # slow to draw
    return runner.ran


def rows(root: Path) -> pd.DataFrame:
    table = pd.read_csv(root / "results.csv", dtype=str)
    return table.drop(columns=["seconds", "images_per_second"])


def test_the_results_are_those_of_the_command(
    here: Path, ran: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = vision_attn.compare(**OPTIONS, out=here / "python")
    (here / "options.yaml").write_text(yaml.safe_dump(OPTIONS))
    assert main(["compare", "--config", "options.yaml", "--out", "command"]) == 0
    pd.testing.assert_frame_equal(rows(here / "python"), rows(here / "command"))
    assert list(study.results["model"]) == ["cnn", "linear"]
    assert study.plot("accuracy")
    assert ran == [0, 1, 0, 1]
    again = vision_attn.compare("options.yaml", **{"budget": Budget(steps=3)}, out="python")
    assert ran == [0, 1, 0, 1]
    monkeypatch.setattr("vision_attn.training.run.find_spec", lambda name: True)
    vision_attn.compare(**OPTIONS, out="python", logger="wandb")  # which is no part of a key
    assert ran == [0, 1, 0, 1]
    assert list(again.results["test_acc"]) == list(study.results["test_acc"])


def test_images_of_ones_own(here: Path, ran: list[int]) -> None:
    images = two_classes(40)
    plain = Source(**{**vars(images), "fingerprint": ""})
    options = {**OPTIONS, "models": ["linear"], "args": {}, "sizes": [8, "all"]}
    study = vision_attn.compare(source=plain, **options, out=here / "out")
    assert sorted(study.results["size"]) == [8, 36]
    other = Source(**{**vars(plain), "train_images": 255 - images.train_images})
    with pytest.raises(UserError, match=r"holds a study with data\.fingerprint"):
        vision_attn.compare(source=other, **options, out=here / "out")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"modles": ["vit"]}, "did you mean --models"),
        ({"budget": {"step": 3}}, "budget.step is no option; did you mean budget.steps"),
        ({"draws": 0}, "draws is 0; wanted 1 or more"),
        ({"config": "qick"}, "config 'qick' is no file and no preset; did you mean quick"),
        ({"source": two_classes(40), "data": {"name": "digits"}}, "data.name is given beside"),
        ({"workers": 0}, "workers is 0; wanted 1 to"),
    ],
)
def test_a_mistake_is_one_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        vision_attn.compare(**given)
    assert "\n" not in str(caught.value)


def test_a_script_without_a_guard_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(UserError, match="__main__"):
        vision_attn.compare(**OPTIONS)


def test_a_script_on_stdin_is_told_so(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = ModuleType("__main__")
    script.__file__ = "<stdin>"
    monkeypatch.setitem(sys.modules, "__main__", script)
    with pytest.raises(UserError, match="the script <stdin> is no file, and processes that run"):
        vision_attn.compare(**OPTIONS, out=here / "out")
    assert not (here / "out").exists()


def test_all_runs_fail(here: Path, ran: list[int]) -> None:
    options = {**OPTIONS, "models": ["linear"], "args": {}, "optim": {"lr": 1e30}}
    with pytest.raises(UserError, match=r"all runs failed; .*results\.csv says why"):
        vision_attn.compare(**{**options, "budget": {"steps": 60}})
    assert np.all(rows(here / "runs" / "compare")["status"] == "failed")
