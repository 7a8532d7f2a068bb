"""Workers that die, disks and memory that are full, and Ctrl-C."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from vision_attn.cli import main
from vision_attn.data.sources import DataConfig, Source, load
from vision_attn.errors import UserError
from vision_attn.study import execute, workers
from vision_attn.study.store import Store
from vision_attn.study.workers import Images, Job, Worker

pytestmark = pytest.mark.filterwarnings("ignore:::lightning")

PROGRAM = Path(__file__).parents[2] / "train.py"
STUDY: dict[str, Any] = {
    "models": ["vit", "cnn"],
    "args": {
        "vit": {"patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 3},
        "cnn": {"widths": [3, 5]},
    },
    "sizes": [20, 50],
    "draws": 1,
    "budget": {"steps": 5},
    "rows": 1,
}


def compare(root: Path, count: int, **changes: Any) -> list[str]:
    config = root.with_suffix(".yaml")
    config.write_text(yaml.safe_dump({**STUDY, **changes}))
    return ["compare", "--config", str(config), "--out", str(root), "--workers", str(count)]


def results(root: Path) -> dict[tuple[str, int], dict[str, Any]]:
    rows = [json.loads(p.read_text()) for p in root.glob("cells/[!.]*/result.json")]
    return {(r["model"], r["size"]): r for r in rows}


def test_case_66_a_worker_that_dies_takes_its_own_cell_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One cell's process is always killed, another's once, while their neighbours run."""
    start, starts = Worker.start, Counter[tuple[str, int | None]]()

    def and_kill(self: Worker, job: Job) -> None:
        cell = job[1].model, job[1].size
        starts[cell] += 1
        start(self, job)
        if cell == ("vit", 20) or (cell == ("cnn", 50) and starts[cell] == 1):
            self.process.kill()

    monkeypatch.setattr(Worker, "start", and_kill)
    assert main(compare(tmp_path / "out", 2)) == 1
    rows = results(tmp_path / "out")
    assert {k: r["status"] for k, r in rows.items()} == {
        ("vit", 20): "failed", ("cnn", 20): "ok", ("vit", 50): "ok", ("cnn", 50): "ok",
    }  # fmt: skip
    assert starts == {("vit", 20): 2, ("cnn", 20): 1, ("vit", 50): 1, ("cnn", 50): 2}
    assert rows["vit", 20]["error"] == "its process died (SIGKILL); out of memory?"
    said = capsys.readouterr().out
    assert said.count("its process died (SIGKILL); out of memory?; it is run again") == 2
    assert "1 of 4 runs failed" in said


@pytest.fixture
def stuck() -> Iterator[Worker]:
    """A worker that never comes to its job."""
    steps = workers.multiprocessing.get_context("spawn").RawArray("q", 1)
    worker = Worker(1, Images(load(DataConfig()), {}), steps)
    yield worker
    worker.process.kill()


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signal masks here")
def test_case_77_a_second_interrupt_leaves_no_worker_behind(
    stuck: Worker, request: pytest.FixtureRequest
) -> None:
    """Ctrl-C comes again and again while workers are ended; it is raised when they are gone."""
    # a shell's background job ignores it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    end = stuck.end

    def end_under_fire() -> None:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        end()

    stuck.end = end_under_fire  # type: ignore[method-assign]
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        workers.stop([stuck])
    assert time.monotonic() - started < 5
    assert stuck.process.exitcode == -signal.SIGKILL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds children through /proc")
def test_case_77_interrupted_twice_ends(tmp_path: Path) -> None:
    root = tmp_path / "out"
    log = tmp_path / "log"
    with log.open("w") as file:
        study = subprocess.Popen(
            [sys.executable, str(PROGRAM), *compare(root, 2, budget={"steps": 100_000}, rows=1000)],
            stdout=file, stderr=file, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip
    try:
        end = time.monotonic() + 120
        while not list(root.glob("cells/.tmp-vit*/metrics.csv")):
            assert study.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        children = Path(f"/proc/{study.pid}/task/{study.pid}/children").read_text().split()
        running = [c for c in children if "spawn_main" in Path(f"/proc/{c}/cmdline").read_text()]
        assert len(running) == 2
        for _ in range(2):
            os.killpg(study.pid, signal.SIGINT)
            time.sleep(0.1)
        assert study.wait(60) in (130, -signal.SIGINT)  # the second may meet Python's own end
        assert log.read_text().splitlines()[-1].startswith("interrupted; what was finished is kept")
        assert "stopping; the same command goes on, `" in log.read_text()
        assert f" plot {root}` shows what is done" in log.read_text()
        assert not [c for c in running if Path(f"/proc/{c}/cmdline").exists()]
    finally:
        if study.poll() is None:
            os.killpg(study.pid, signal.SIGKILL)


def full(self: Path, *_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device", str(self))


def read_only(self: Path, *_: Any, **__: Any) -> Any:
    raise OSError(errno.EROFS, "Read-only file system", str(self))


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    (said,) = capsys.readouterr().err.splitlines()
    return said


def test_case_76_a_full_disk_is_one_line_and_what_is_done_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "out"
    write = Path.write_bytes

    def no_second_result(self: Path, content: bytes) -> int:
        if "result.json" in self.name and results(root):
            write(self, content[:9])
            full(self)
        return write(self, content)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", no_second_result)
        assert main(compare(root, 1, models=["cnn"])) == 2
    said = one_line(capsys)
    assert said.startswith("error: ")
    assert "result.json cannot be written: No space left on device; free some space" in said
    assert list(results(root)) == [("cnn", 20)]
    assert not list(root.rglob(".result.json.*"))
    before = {p: p.stat().st_mtime_ns for p in root.rglob("result.json")}
    assert main(compare(root, 1, models=["cnn"])) == 0
    assert sorted(results(root)) == [("cnn", 20), ("cnn", 50)]
    assert all(p.stat().st_mtime_ns == at for p, at in before.items())


@pytest.mark.parametrize("name", ["mkdir", "write_bytes"])
def test_case_76_a_read_only_folder_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    args = compare(tmp_path / "out", 1)
    with monkeypatch.context() as patch:
        patch.setattr(Path, name, read_only)
        assert main(args) == 2
    said = one_line(capsys)
    assert f"error: {tmp_path / 'out'}" in said
    assert "cannot be written: Read-only file system; choose a place that can be written" in said


def test_case_76_images_lie_in_a_file_where_shared_memory_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(self: torch.Tensor) -> Any:
        raise RuntimeError("unable to allocate shared memory(shm) for file </torch_1>: Success (0)")

    monkeypatch.setattr(torch.Tensor, "share_memory_", no_room)
    source = load(DataConfig())
    store = Store(tmp_path)
    store.cells.mkdir()
    with execute._shared(source, store) as images:
        assert sorted(images.files) == ["test_images", "train_images"]
        assert images.source.train_images.shape == (0, 1, 1, 1)  # type: ignore[union-attr]
        mapped = images.load()
        for name in images.files:
            torch.testing.assert_close(getattr(mapped, name), getattr(source, name), rtol=0, atol=0)
        assert mapped.img_size == (8, 8)
    assert list(store.cells.iterdir()) == []
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(
        ValueError, match=r"fit neither into shared memory.*nor into .*data\.memory_mb"
    ):
        execute._shared(source, store).__enter__()


def test_items_that_no_process_can_be_sent_are_refused(tmp_path: Path) -> None:
    class Local(list[Any]):
        """Not to be found by its name, so pickle refuses it."""

    items = Local((torch.full((5, 7), i, dtype=torch.uint8), i % 2) for i in range(12))
    source = Source.from_dataset(items, items, memory_mb=0)
    with pytest.raises(UserError, match=r"dataset are not in memory and cannot be sent .*Local"):
        execute._shared(source, Store(tmp_path)).__enter__()


def test_case_76_a_failed_cell_keeps_no_weights(tmp_path: Path) -> None:
    (tmp_path / "last.ckpt").write_bytes(b"half")
    job: Any = (0, None, tmp_path, {})
    outcome = workers.work(job, load(DataConfig()), [0])
    assert outcome["status"] == "failed"
    assert outcome["error"].startswith("AttributeError: ")
    assert [p.name for p in tmp_path.iterdir()] == ["error.txt"]
