"""An estimate of time and memory before the first run, which changes nothing."""

import random
import time

import numpy as np
import pytest
import torch

from vision_attn.data.sources import DataConfig, Source, load
from vision_attn.study import estimate as module
from vision_attn.study.cells import Cell, plan
from vision_attn.study.config import Budget, Study
from vision_attn.study.estimate import Estimate, estimate

VIT = {"patch_size": 2, "embed_dim": 24, "depth": 2, "num_heads": 3}


@pytest.fixture(scope="module")
def source() -> Source:
    return load(DataConfig())


def cells(source: Source, steps: int = 100, draws: int = 1) -> list[Cell]:
    study = Study(args={"vit": VIT}, sizes=[20, 100], draws=draws, budget=Budget(steps=steps))
    return plan(study, source).cells


def test_case_fh_1_the_estimate_leaves_random_numbers_and_threads_alone(source: Source) -> None:
    torch.manual_seed(7)
    made, threads = cells(source), torch.get_num_threads()
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    got = estimate(made, source, 2, 1)
    assert got is not None
    assert got.runs == 4
    assert 0 < got.seconds < 600
    assert got.memory > 2**30
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    np.testing.assert_array_equal(np.random.get_state()[1], before[2])  # noqa: NPY002
    assert torch.get_num_threads() == threads


def test_case_fh_1_time_follows_updates_images_processes_and_tries(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_measure", lambda cell, source: (0.01, 2**20))

    def seconds(steps: int = 1000, workers: int = 1, draws: int = 1, tries: int = 0) -> float:
        got = estimate(cells(source, steps, draws), source, workers, 1, tries)
        assert got is not None
        return got.seconds - module.START

    # 20 + 64 images an update, two models, a hundredth of a second each
    assert seconds() == pytest.approx(1000 * (20 + 64) * 2 * 0.01, rel=0.15)
    assert seconds(2000) == pytest.approx(2 * seconds(), rel=0.1)
    assert seconds(draws=3) == pytest.approx(3 * seconds())
    assert seconds(tries=4) == pytest.approx(5 * seconds())
    assert seconds(workers=2) == pytest.approx(seconds() / 2)
    longest = 1000 * 64 * 0.01
    assert longest < seconds(workers=99) < 1.2 * longest
    assert estimate([], source, 2, 1) is None


def test_time_that_other_processes_take_is_not_counted(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = cells(source)[0]

    class Slow(torch.optim.SGD):
        def step(self, closure: object = None) -> None:
            time.sleep(0.3)  # this process does nothing, as if others had the core

    monkeypatch.setattr(torch.optim, "AdamW", lambda weights: Slow(weights, lr=0.1))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        seconds, _ = module._measure(cell, source)
    finally:
        torch.set_num_threads(before)
    assert 0 < 64 * seconds < 0.2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3, "10 s"), (61, "70 s"), (121, "3 min"), (7000, "117 min"), (7201, "3 h"),
     (200_000, "3 days")],
)  # fmt: skip
def test_case_fh_1_a_long_study_is_told_how_to_be_shorter(
    source: Source, seconds: float, text: str
) -> None:
    line = Estimate(24, seconds, 2**30).line(source, 3)
    assert line.startswith(f"about {text} on this machine (24 runs)")
    assert line.endswith("; smaller: --draws 1") == (seconds > 600)
    assert "smaller" not in Estimate(24, seconds, 2**30).line(source, 1)
    large = Estimate(24, 7201, 5 * 2**30)
    black = torch.zeros(2, 3, 224, 224, dtype=torch.uint8)
    labels = np.arange(2)
    photos = Source("folder", ("a", "b"), True, black, labels, black, labels)
    assert large.line(photos, 3) == (
        "about 3 h on this machine (24 runs), 5 GiB of memory; smaller: --data.img_size 64,"
        " --draws 1"
    )
