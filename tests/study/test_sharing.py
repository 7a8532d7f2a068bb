"""Several processes on one study: cells divided by claims, by draws, and by Ray's tasks."""

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from rich.console import Console
from shared import Here, here

from vision_attn.cli import main
from vision_attn.commands.study import study_of
from vision_attn.data.sources import DataConfig, Source, load
from vision_attn.study.cells import plan
from vision_attn.study.config import Budget, Study
from vision_attn.study.execute import execute
from vision_attn.study.ray_runner import on_ray
from vision_attn.study.store import Store
from vision_attn.study.workers import work

STUDY = Study(models=["linear"], sizes=[20, 50], draws=2, budget=Budget(steps=7), rows=1)


@pytest.fixture(scope="module")
def source() -> Source:
    return load(DataConfig())


def quiet() -> Console:
    return Console(quiet=True)


def test_cells_of_another_process_are_waited_for(source: Source, tmp_path: Path) -> None:
    made, store = plan(STUDY, source), Store(tmp_path / "out")
    store.open(made)
    taken = made.cells[1]
    claim = store.claim(taken.key)
    assert claim is not None
    mine = Here(source)

    def other() -> None:
        while len(mine.ran) < 3:
            time.sleep(0.01)
        place = store.scratch(taken)
        store.keep(taken, place, work((0, taken.config, place, {}), source, [0]))
        claim.release()

    thread = threading.Thread(target=other)
    thread.start()
    assert execute(made, store, start=here(mine), console=quiet()) == 0
    thread.join()
    assert sorted(mine.ran) == [0, 2, 3]
    assert all(store.done(c) for c in made.cells)
    assert not [p for p in store.cells.iterdir() if p.name.startswith(".")]


def test_draws_divide_a_study(source: Source, tmp_path: Path) -> None:
    whole = plan(STUDY, source)
    second = plan(replace(STUDY, first_draw=1, draws=1), source)
    assert [c.key for c in second.cells] == [c.key for c in whole.cells if c.config.draw == 1]
    store = Store(tmp_path / "out")
    for part in (second, whole):
        store.open(part)
        execute(part, store, start=here(Here(source)), console=quiet())
    rows = store.write_results()
    assert [(r["size"], r["draw"]) for r in rows] == [(20, 0), (20, 1), (50, 0), (50, 1)]


@pytest.mark.parametrize(
    ("words", "first", "count"),
    [(["--draws", "3-5"], 3, 3), (["--draws=0-0"], 0, 1), (["--draws", "4"], 0, 4)],
)
def test_draws_on_the_command_line(words: list[str], first: int, count: int) -> None:
    _, study = study_of("compare", "", words)
    assert (study.first_draw, study.draws) == (first, count)


def test_draws_in_the_wrong_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--draws", "5-3"]) == 2
    assert "--draws 5-3: the last draw is before the first" in capsys.readouterr().err


def workers_of_ray() -> list[int]:
    """Processes of this machine that run or wait for Ray's tasks."""
    pids = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                name = (process / "cmdline").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            if name.startswith("ray::_task"):
                pids.append(int(process.name))
    return pids


@pytest.mark.slow
def test_ray_gives_the_same_results_and_survives_a_killed_worker(
    source: Source, tmp_path: Path
) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    pytest.importorskip("tensorboard", reason="the extra `loggers` is not installed")
    study = replace(STUDY, budget=Budget(steps=600))
    made, store, alone = plan(study, source), Store(tmp_path / "ray"), Store(tmp_path / "here")
    killed: list[int] = []
    finished = threading.Event()

    def kill_one() -> None:
        while not (killed or finished.is_set()):
            for pid in workers_of_ray()[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(0.02)

    killer = threading.Thread(target=kill_one)
    killer.start()
    store.open(made)
    try:
        start = on_ray(1, workers=2)
        assert execute(made, store, start=start, console=quiet(), logger="tensorboard") == 0
    finally:
        finished.set()
    killer.join()
    assert killed
    alone.open(made)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as many as a task has: the order of sums decides the last digits
    try:
        execute(made, alone, start=here(Here(source)), console=quiet())
    finally:
        torch.set_num_threads(threads)
    one, other = (
        pd.DataFrame(s.write_results()).drop(columns=["seconds", "images_per_second"])
        for s in (store, alone)
    )
    pd.testing.assert_frame_equal(one, other)
    files = [sorted(p.name for p in c.iterdir()) for c in sorted(store.cells.iterdir())]
    logs = [[n for n in names if n.startswith("events.out.tfevents.")] for names in files]
    assert all(logs)
    rest = [[n for n in names if n not in log] for names, log in zip(files, logs, strict=True)]
    assert rest == [["metrics.csv", "result.json", "test.npz"]] * 4


def test_ray_says_what_it_has_no_room_for(source: Source, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    with pytest.raises(ValueError, match=r"ray\.address 127\.0\.0\.1:1: .*ray start"):
        on_ray(1, address="127.0.0.1:1")(source, Store(tmp_path), 1).__enter__()
