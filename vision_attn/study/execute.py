"""Run cells, in processes of this machine or elsewhere, and store their results as they come."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from pickle import PicklingError
from typing import Any, Protocol
from uuid import uuid4

import torch
from rich.console import Console

from vision_attn.data.folder import Unread
from vision_attn.data.module import ImageData
from vision_attn.data.sources import Source
from vision_attn.errors import UserError
from vision_attn.explain.measures import attention_measures, some_images
from vision_attn.study.cells import Cell, Plan
from vision_attn.study.config import MEASURED_IMAGES
from vision_attn.study.progress import Display, display
from vision_attn.study.result import Result
from vision_attn.study.store import Claim, Store
from vision_attn.study.workers import Images, Job, Worker, WorkerDied, check_main, stop, wait_for
from vision_attn.texts import program
from vision_attn.training.classifier import Classifier
from vision_attn.training.run import Tracker

__all__ = ["Runner", "default_workers", "execute", "local"]


class Runner(Protocol):
    """What runs jobs side by side."""

    def room(self) -> bool:
        """Whether another job can start now."""

    def start(self, job: Job) -> None:
        """Begin a job."""

    def ended(self, timeout: float) -> list[tuple[int, dict[str, Any]]]:
        """Numbers and outcomes of jobs that have ended, after `timeout` seconds at most.

        The status of an outcome is `died` where the process that ran it did.
        """

    def step(self, number: int) -> int:
        """The last known step of a job."""

    def stop(self) -> None:
        """End all jobs at once."""


Start = Callable[[Source, Store, int], AbstractContextManager[Runner]]
"""Makes a runner for the images of a source and a number of jobs, until its context ends."""


def default_workers(threads: int) -> int:
    """As many processes as the cores hold, or one where there is a GPU."""
    return 1 if torch.cuda.is_available() else max((os.cpu_count() or 1) // threads, 1)


def execute(
    plan: Plan,
    store: Store,
    *,
    start: Start,
    console: Console,
    tries: bool = False,
    logger: Tracker | None = None,
) -> int:
    """Run a plan's cells, keep each as it ends; returns how many failed. Ctrl-C keeps what is done.

    A cell whose process dies is run once more; the cells of other processes go on. Cells that
    another study process of the same directory runs are waited for.

    Args:
        start: makes what runs the cells, such as `local(workers)`.
        tries: the cells are tries of tuning: test images are not looked at, neither weights nor
            measures of attention are kept.
        logger: what each run writes beside its metrics.csv.

    Raises:
        UserError: the disk or the shared memory is full, or `store` cannot be written.
    """
    study = plan.study
    measure = study.measure and not tries

    def done(cell: Cell) -> Result | None:
        result = store.done(cell, measure=measure, test=not tries)
        if result is not None:
            store.add_protocols(cell, result)
        return result

    todo = [c for c in plan.cells if not done(c)]
    before = len(plan.cells) - len(todo)
    if before:
        console.print(f"{before} of {len(plan.cells)} runs were there already")
    bars = display(console, plan.cells, before)
    if not todo:
        return 0
    options = {
        "checkpoint": study.checkpoint and not tries,
        "test": not tries,
        "finish": _measures if measure else None,
        "logger": logger,
    }
    with start(plan.source, store, len(todo)) as runner, bars:
        return _run(todo, store, runner, options, done, bars)


def _run(
    cells: list[Cell],
    store: Store,
    runner: Runner,
    options: dict[str, Any],
    done: Callable[[Cell], Result | None],
    bars: Display,
) -> int:
    todo, repeats, failed = deque(range(len(cells))), set[int](), 0
    running: dict[int, tuple[Path, Claim]] = {}
    told = False
    try:
        while todo or running:
            for _ in range(len(todo)):
                if not runner.room():
                    break
                number = todo.popleft()
                cell = cells[number]
                claim = store.claim(cell.key)
                if claim is None:  # another process runs it now
                    todo.append(number)
                elif number not in repeats and (other := done(cell)):  # another process has run it
                    claim.release()
                    bars.end(cell, other)
                else:
                    place = store.scratch(cell)
                    running[number] = place, claim
                    runner.start((number, cell.config, place, options))
            bars.update([(cells[n], runner.step(n)) for n in running])
            if not running:
                if todo and not told:
                    bars.tell_end(
                        f"waiting for {len(todo)} runs of another process in {store.root}"
                    )
                told = True
                time.sleep(1.0 if todo else 0.0)
                continue
            for number, outcome in runner.ended(0.5):
                cell, (place, claim) = cells[number], running.pop(number)
                if outcome["status"] == "died":
                    if number not in repeats:
                        repeats.add(number)
                        todo.appendleft(number)
                        claim.release()
                        bars.note(cell, f"{outcome['error']}; it is run again")
                        continue
                    outcome = {**outcome, "status": "failed"}
                result = store.keep(cell, place, outcome)
                claim.release()
                failed += result.status != "ok"
                bars.end(cell, result)
    except KeyboardInterrupt:  # said at once: to end the processes may take a while
        again = f"{program()} plot {store.root}"
        bars.tell_end(f"stopping; the same command goes on, `{again}` shows what is done")
        raise
    finally:
        runner.stop()
        for _, claim in running.values():
            claim.release()
    return failed


def local(workers: int, threads: int) -> Start:
    """Runs jobs in processes of this machine that share the images.

    Raises:
        UserError: as of `check_main`.
    """
    check_main()

    @contextmanager
    def start(source: Source, store: Store, jobs: int) -> Iterator[Runner]:
        with _shared(source, store) as images:
            yield _Processes(images, min(workers, jobs), threads, jobs)

    return start


class _Processes:
    """A few processes, each with its own pipe."""

    def __init__(self, images: Images, workers: int, threads: int, jobs: int) -> None:
        self.images, self.workers, self.threads = images, workers, threads
        self.steps: Any = get_context("spawn").RawArray("q", jobs)  # each worker writes its job's
        self.idle: list[Worker] = []
        self.running: dict[Worker, int] = {}

    def room(self) -> bool:
        return len(self.running) < self.workers

    def start(self, job: Job) -> None:
        if not self.idle:
            self.idle.append(Worker(self.threads, self.images, self.steps))
        worker = self.idle.pop()
        self.running[worker] = job[0]
        self.steps[job[0]] = 0
        worker.start(job)

    def ended(self, timeout: float) -> list[tuple[int, dict[str, Any]]]:
        outcomes = []
        for worker in wait_for(self.running, timeout):
            try:
                outcome = worker.result()
                self.idle.append(worker)
            except WorkerDied as e:
                outcome = {"status": "died", "error": str(e)}
                stop([worker])
            outcomes.append((self.running.pop(worker), outcome))
        return outcomes

    def step(self, number: int) -> int:
        return self.steps[number]

    def stop(self) -> None:
        stop([*self.running, *self.idle])


@contextmanager
def _shared(source: Source, store: Store) -> Iterator[Images]:
    """The images for worker processes, which map them and do not copy them.

    Where the system has too little shared memory (a container often has 64 MiB), they lie in files
    beside the cells, which the next start of the study removes if this one cannot.

    Raises:
        UserError: both are full.
    """
    parts = {n: getattr(source, n) for n in ("train_images", "test_images")}
    try:
        ForkingPickler.dumps([x for x in parts.values() if isinstance(x, Unread)])
    except (AttributeError, TypeError, PicklingError) as e:
        raise UserError(
            f"the images of {source.label} are not in memory and cannot be sent to other processes:"
            f" {e}; raise memory_mb"
        ) from e
    parts = {n: x for n, x in parts.items() if not isinstance(x, Unread)}
    files: dict[str, tuple[Path, tuple[int, ...]]] = {}
    claims: list[Claim | None] = []
    try:
        for x in parts.values():
            x.share_memory_()
    except RuntimeError as e:
        if "shared memory" not in str(e):
            raise
        names = {n: f"{n}-{uuid4().hex}" for n in parts}
        claims = [store.claim(name) for name in names.values()]
        files = {n: (store.cells / f".tmp-{names[n]}", tuple(x.shape)) for n, x in parts.items()}
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
                    f" {store.cells} ({e.strerror}); make room there, or lower data.memory_mb so"
                    " that a folder's images are streamed"
                ) from e
        yield Images(source, files)
    finally:
        for file, _ in files.values():
            with suppress(OSError):
                file.unlink()
        for claim in claims:
            if claim is not None:
                claim.release()


def _measures(module: Classifier, data: ImageData) -> dict[str, Any]:
    """How far attention looks on test images; an empty list for a model without attention."""
    try:
        table = attention_measures(module, some_images(data.test_dataloader(), MEASURED_IMAGES))
    except UserError:
        return {"measures": []}
    return {"measures": table.to_dict("records")}
