"""Cells on this machine: a few processes, each with its own threads, so that two cores are used.

A process that dies takes its cell with it and nothing else: the pool is made anew.
"""

import multiprocessing
import os
import threading
import time
import traceback
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Protocol

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vision_attn.compare.grid import Cell
from vision_attn.compare.store import Store
from vision_attn.data.module import ImageData
from vision_attn.data.sources import Files, Source
from vision_attn.errors import UserError
from vision_attn.explain.measures import attention_measures, some_images
from vision_attn.training.classifier import Classifier
from vision_attn.training.run import RunConfig, run

__all__ = ["default_workers", "execute"]

MEASURED_IMAGES = 256


def default_workers(threads: int) -> int:
    """As many processes as the cores hold, or one where there is a GPU."""
    return 1 if torch.cuda.is_available() else max((os.cpu_count() or 1) // threads, 1)


def execute(
    cells: list[Cell],
    source: Source,
    store: Store,
    *,
    workers: int,
    threads: int,
    checkpoint: bool,
    measure: bool,
    console: Console,
    test: bool = True,
) -> int:
    """Run cells, keep each as it ends; returns how many failed. Ctrl-C keeps what is done.

    `measure` stores how far attention looks; without `test`, test images are not looked at.
    """
    todo = deque(c for c in cells if not store.done(c, measure=measure))
    options = {"checkpoint": checkpoint, "test": test, "finish": _measures if measure else None}
    view = (_Bars if console.is_terminal else _Lines)(console, len(cells), len(cells) - len(todo))
    if not todo:
        return 0
    for images in (source.train_images, source.test_images):
        if not isinstance(images, Files):
            images.share_memory_()  # the workers map it instead of copying it
    context = multiprocessing.get_context("spawn")
    failed = 0
    steps: Any = context.RawArray("q", len(cells))  # each worker writes its cell's
    number = {c.key: i for i, c in enumerate(cells)}
    with view:
        running: dict[Future[dict[str, Any]], tuple[Cell, Path]] = {}
        pool = _pool(context, workers, threads, source, steps)
        try:
            while todo or running:
                broken = False
                while todo and len(running) < workers:
                    cell, place = todo[0], store.scratch(todo[0])
                    try:
                        job = pool.submit(_work, number[cell.key], cell.config, place, options)
                    except BrokenProcessPool:  # its running cells are reported first
                        broken = not running
                        break
                    todo.popleft()
                    running[job] = cell, place
                finished, _ = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
                view.tell([(c, steps[number[c.key]]) for c, _ in running.values()])
                for job in finished:
                    cell, place = running.pop(job)
                    try:
                        result = job.result()
                    except BrokenProcessPool:
                        broken = True
                        place.mkdir(exist_ok=True)
                        result = {"status": "failed", "error": "its process died; out of memory?"}
                    failed += result["status"] != "ok"
                    view.done(cell, store.keep(cell, place, result))
                if broken:
                    pool.shutdown(wait=False, cancel_futures=True)
                    pool = _pool(context, workers, threads, source, steps)
        finally:
            pool.shutdown(wait=not running, cancel_futures=True)
            for process in multiprocessing.active_children() if running else ():
                process.terminate()
    return failed


def _pool(
    context: multiprocessing.context.SpawnContext,
    workers: int,
    threads: int,
    source: Source,
    steps: Any,
) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(
        workers, context, initializer=_start, initargs=(threads, source, steps)
    )


_SOURCE: Source
_STEPS: Any


def _start(threads: int, source: Source, steps: Any) -> None:
    """First thing in a worker."""
    global _SOURCE, _STEPS
    _SOURCE, _STEPS = source, steps
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("high")


def _end_with_parent() -> None:
    """When the main process is killed, a worker must not write on beside the next start's."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _measures(module: Classifier, data: ImageData) -> dict[str, Any]:
    """How far attention looks on test images; an empty list for a model without attention."""
    try:
        table = attention_measures(module, some_images(data.test_dataloader(), MEASURED_IMAGES))
    except UserError:
        return {"measures": []}
    return {"measures": table.to_dict("records")}


def _work(cell: int, config: RunConfig, place: Path, options: dict[str, Any]) -> dict[str, Any]:
    """One cell in a worker: a result, or what went wrong, with its traceback in a file."""

    def progress(step: int, of: int) -> None:
        _STEPS[cell] = step

    try:
        return {
            "status": "ok",
            "error": None,
            **run(config, _SOURCE, place, progress=progress, **options),
        }
    except Exception as e:  # recorded as failed; the rest of the study goes on
        (place / "error.txt").write_text(traceback.format_exc(), encoding="utf-8")
        return {"status": "failed", "error": f"{type(e).__name__}: {e}".splitlines()[0]}


Running = list[tuple[Cell, int]]
"""Running cells with their step."""


class _View(Protocol):
    def __enter__(self) -> Any: ...
    def __exit__(self, *_: object) -> None: ...
    def tell(self, running: Running) -> None: ...
    def done(self, cell: Cell, row: dict[str, Any]) -> None: ...


def _name(cell: Cell) -> str:
    c = cell.config
    control = "" if c.control == "none" else f" {c.control}"
    return f"{cell.label}{control} n={c.size} draw={c.draw} seed={c.seed}"


def _outcome(row: dict[str, Any]) -> str:
    if row["status"] != "ok":
        return f"FAILED: {row['error']}"
    measured = "test" if "test_acc" in row else "val"
    shown = f"train {row['train_acc']:.3f}  {measured} {row[f'{measured}_acc']:.3f}"
    return f"{shown}  {row['seconds']:.0f} s"


class _Bars:
    """On a terminal: a bar for the study and one for each running cell."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeRemainingColumn(),
            console=console,
        )
        self.all = self.bars.add_task("all", total=total, completed=done, unit="cells")
        self.tasks: dict[str, Any] = {}

    def __enter__(self) -> Any:
        return self.bars.__enter__()

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def tell(self, running: Running) -> None:
        for cell, step in running:
            if cell.key not in self.tasks:
                self.tasks[cell.key] = self.bars.add_task(
                    _name(cell), total=cell.config.steps, unit="steps"
                )
            self.bars.update(self.tasks[cell.key], completed=step)

    def done(self, cell: Cell, row: dict[str, Any]) -> None:
        if cell.key in self.tasks:
            self.bars.remove_task(self.tasks.pop(cell.key))
        self.bars.advance(self.all)
        self.bars.console.print(f"{_name(cell)}  {_outcome(row)}", highlight=False)


class _Lines:
    """In a file or a pipe: a line for each finished cell, and one a minute while none ends."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        self.console, self.total, self.before, self.count = console, total, done, done
        self.started = self.last = time.monotonic()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...

    def _print(self, text: str) -> None:
        self.last = time.monotonic()
        per_cell = (self.last - self.started) / max(self.count - self.before, 1)
        left = per_cell * (self.total - self.count)
        clock = f"{left / 60:.0f} min left" if left > 90 else f"{left:.0f} s left"
        clock = clock if self.count > self.before else "time left not known yet"
        self.console.print(
            f"[{self.count}/{self.total}] {text}  {clock}", highlight=False, markup=False,
            soft_wrap=True,
        )  # fmt: skip

    def tell(self, running: Running) -> None:
        if time.monotonic() - self.last > 60:
            self._print("; ".join(f"{_name(c)} step {s} of {c.config.steps}" for c, s in running))

    def done(self, cell: Cell, row: dict[str, Any]) -> None:
        self.count += 1
        self._print(f"{_name(cell)}  {_outcome(row)}")
