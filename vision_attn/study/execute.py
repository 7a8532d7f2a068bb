"""Run cells on this machine, in a few processes that share the images."""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from vision_attn.data.folder import Files
from vision_attn.data.module import ImageData
from vision_attn.data.sources import Source
from vision_attn.errors import UserError
from vision_attn.explain.measures import attention_measures, some_images
from vision_attn.study.cells import Cell, Plan
from vision_attn.study.config import MEASURED_IMAGES
from vision_attn.study.progress import Display, display
from vision_attn.study.store import Store
from vision_attn.study.workers import Images, Worker, WorkerDied, stop, wait_for
from vision_attn.texts import program
from vision_attn.training.classifier import Classifier

__all__ = ["default_workers", "execute"]


def default_workers(threads: int) -> int:
    """As many processes as the cores hold, or one where there is a GPU."""
    return 1 if torch.cuda.is_available() else max((os.cpu_count() or 1) // threads, 1)


def execute(
    plan: Plan,
    store: Store,
    *,
    workers: int | None = None,
    console: Console,
    tries: bool = False,
) -> int:
    """Run a plan's cells, keep each as it ends; returns how many failed. Ctrl-C keeps what is done.

    A cell whose process dies is run once more; the cells of other processes go on.

    Args:
        workers: processes; None is `default_workers`.
        tries: the cells are tries of tuning: test images are not looked at, neither weights nor
            measures of attention are kept.

    Raises:
        UserError: the disk or the shared memory is full, or `store` cannot be written.
    """
    study = plan.study
    measure = study.measure and not tries
    done = [c for c in plan.cells if store.done(c, measure=measure, test=not tries)]
    for cell in done:
        store.add_protocols(cell)
    keys = {c.key for c in done}
    todo = [c for c in plan.cells if c.key not in keys]
    if done:
        console.print(f"{len(done)} of {len(plan.cells)} runs were there already")
    bars = display(console, plan.cells, len(done))
    if not todo:
        return 0
    options = {
        "checkpoint": study.checkpoint and not tries,
        "test": not tries,
        "finish": _measures if measure else None,
    }
    workers = min(workers or default_workers(study.threads), len(todo))
    with _shared(plan.source, store.cells) as images, bars:
        return _run(todo, images, store, options, workers, study.threads, bars)


def _run(
    cells: list[Cell],
    images: Images,
    store: Store,
    options: dict[str, Any],
    workers: int,
    threads: int,
    bars: Display,
) -> int:
    steps: Any = get_context("spawn").RawArray("q", len(cells))  # each worker writes its cell's
    number = {c.key: i for i, c in enumerate(cells)}
    todo, repeats, failed = deque(cells), set[str](), 0
    idle: list[Worker] = []
    running: dict[Worker, tuple[Cell, Path]] = {}
    try:
        while todo or running:
            while todo and len(running) < workers:
                cell, place = todo[0], store.scratch(todo[0])
                if not idle:
                    idle.append(Worker(threads, images, steps))
                worker = idle.pop()
                running[worker] = cell, place
                todo.popleft()
                worker.start((number[cell.key], cell.config, place, options))
            answers = wait_for(running, 0.5)
            bars.update([(c, steps[number[c.key]]) for c, _ in running.values()])
            for worker in answers:
                cell, place = running[worker]
                try:
                    outcome = worker.result()
                    idle.append(worker)
                except WorkerDied as e:
                    outcome = {"status": "failed", "error": str(e)}
                    stop([worker])
                del running[worker]
                if worker not in idle and cell.key not in repeats:
                    repeats.add(cell.key)
                    todo.appendleft(cell)
                    steps[number[cell.key]] = 0
                    bars.note(cell, f"{outcome['error']}; it is run again")
                    continue
                result = store.keep(cell, place, outcome)
                failed += result.status != "ok"
                bars.end(cell, result)
    except KeyboardInterrupt:  # said at once: to end the processes may take a while
        root = store.cells.parent
        bars.tell_end(
            f"stopping; the same command goes on, `{program()} plot {root}` shows what is done"
        )
        raise
    finally:
        stop([*running, *idle])
    return failed


@contextmanager
def _shared(source: Source, folder: Path) -> Iterator[Images]:
    """The images for worker processes, which map them and do not copy them.

    Where the system has too little shared memory (a container often has 64 MiB), they lie in a file
    in `folder`, which the next start of the study removes if this one cannot.

    Raises:
        UserError: both are full.
    """
    parts = {n: getattr(source, n) for n in ("train_images", "test_images")}
    parts = {n: x for n, x in parts.items() if not isinstance(x, Files)}
    files: dict[str, tuple[Path, tuple[int, ...]]] = {}
    try:
        for x in parts.values():
            x.share_memory_()
    except RuntimeError as e:
        if "shared memory" not in str(e):
            raise
        files = {n: (folder / f".tmp-{n}", tuple(x.shape)) for n, x in parts.items()}
        none: Any = torch.empty(0, 1, 1, 1, dtype=torch.uint8)
        source = replace(source, **dict.fromkeys(files, none))
    try:
        for name, (file, _) in files.items():
            try:
                file.write_bytes(memoryview(parts[name].contiguous().numpy()).cast("B"))
            except OSError as e:
                size = sum(x.numel() for x in parts.values()) / 2**20
                raise UserError(
                    f"{size:,.0f} MiB of images fit neither into shared memory (/dev/shm) nor into"
                    f" {folder} ({e.strerror}); make room there, or lower data.memory_mb so that a"
                    " folder's images are streamed"
                ) from e
        yield Images(source, files)
    finally:
        for file, _ in files.values():
            with suppress(OSError):
                file.unlink()


def _measures(module: Classifier, data: ImageData) -> dict[str, Any]:
    """How far attention looks on test images; an empty list for a model without attention."""
    try:
        table = attention_measures(module, some_images(data.test_dataloader(), MEASURED_IMAGES))
    except UserError:
        return {"measures": []}
    return {"measures": table.to_dict("records")}
