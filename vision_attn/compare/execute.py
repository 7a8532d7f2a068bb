"""Cells on this machine: a few processes, each with its own threads, so that two cores are used.

A process that dies takes its cell with it and nothing else: the pool is made anew.
"""

import multiprocessing
import os
import threading
import traceback
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from vision_attn.compare.grid import Cell
from vision_attn.compare.progress import view
from vision_attn.compare.store import Store
from vision_attn.data.folder import Files
from vision_attn.data.module import ImageData
from vision_attn.data.sources import Source
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
    shown = view(console, len(cells), len(cells) - len(todo))
    if not todo:
        return 0
    for images in (source.train_images, source.test_images):
        if not isinstance(images, Files):
            images.share_memory_()  # the workers map it instead of copying it
    context = multiprocessing.get_context("spawn")
    failed = 0
    steps: Any = context.RawArray("q", len(cells))  # each worker writes its cell's
    number = {c.key: i for i, c in enumerate(cells)}
    with shown:
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
                shown.tell([(c, steps[number[c.key]]) for c, _ in running.values()])
                for job in finished:
                    cell, place = running.pop(job)
                    try:
                        result = job.result()
                    except BrokenProcessPool:
                        broken = True
                        place.mkdir(exist_ok=True)
                        result = {"status": "failed", "error": "its process died; out of memory?"}
                    failed += result["status"] != "ok"
                    shown.done(cell, store.keep(cell, place, result))
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
