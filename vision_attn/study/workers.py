"""Processes that run cells, each with its own pipe, so that one that dies harms no other's cell."""

import math
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from vision_attn.data.sources import Source
from vision_attn.errors import UserError
from vision_attn.texts import one_line
from vision_attn.training.run import RunConfig, run

__all__ = [
    "Images",
    "Job",
    "Worker",
    "WorkerDied",
    "check_main",
    "set_up",
    "stop",
    "wait_for",
    "work",
]

Job = tuple[int, RunConfig, Path, dict[str, Any]]
"""A cell's number, its configuration, the place for its files, and options of `run`."""


@dataclass(frozen=True)
class Images:
    """A source for another process, which maps the images in `files` (path, shape)."""

    source: Source
    files: dict[str, tuple[Path, tuple[int, ...]]]

    def load(self) -> Source:
        """The source, in the process that uses it."""
        mapped = {
            name: torch.from_file(
                str(path), shared=True, size=math.prod(shape), dtype=torch.uint8
            ).view(shape)
            for name, (path, shape) in self.files.items()
        }
        return replace(self.source, **mapped)  # type: ignore[arg-type]


class WorkerDied(Exception):
    """A worker's process has ended before its job; the message says how."""


class Worker:
    """A process that runs one job at a time. Starting it costs the import of torch and Lightning.

    Args:
        threads: torch's, within the process.
        images: shared and not copied.
        steps: shared numbers; the process writes each job's step at its number.
    """

    def __init__(self, threads: int, images: Images, steps: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, threads, steps), daemon=True)
        self._images: Images | None = images
        self._sender = threading.Thread()
        resource_tracker.ensure_running()  # which would let interrupts through
        with _without_interrupt():
            self.process.start()
        theirs.close()

    def start(self, job: Job) -> None:
        """Give it a job; `result` raises where the process is dead."""
        self._sender = threading.Thread(target=self._send, args=(self._images, job), daemon=True)
        self._sender.start()  # a process that still imports torch does not read yet
        self._images = None

    def _send(self, images: Images | None, job: Job) -> None:
        with suppress(OSError):
            if images is not None:
                self.pipe.send(images)
            self.pipe.send(job)

    def end(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.join()
        if self._sender.ident is not None:
            self._sender.join()
        self.pipe.close()

    def result(self) -> dict[str, Any]:
        """The outcome of the job, once `wait_for` has returned the worker.

        Raises:
            WorkerDied: the process has ended.
        """
        try:
            return self.pipe.recv()
        except (EOFError, OSError) as e:
            self.process.join()
            code = self.process.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            hint = "; out of memory?" if code == -getattr(signal, "SIGKILL", 9) else ""
            raise WorkerDied(f"its process died ({how}){hint}") from e


def check_main() -> None:
    """A UserError where processes could not import the script that starts them, as one on stdin."""
    script = sys.modules["__main__"]
    file = getattr(script, "__file__", None)
    if getattr(script, "__spec__", None) is not None or file is None:
        return
    if not Path(file).exists():
        raise UserError(
            f"the script {file} is no file, and processes that run cells import the script that"
            " starts them; save it as a file, or call it by python -c or in a notebook"
        )


def wait_for(workers: Iterable[Worker], timeout: float) -> list[Worker]:
    """Workers whose job or process has ended, after `timeout` seconds at most."""
    by_pipe: dict[Any, Worker] = {w.pipe: w for w in workers}
    return [by_pipe[pipe] for pipe in wait(list(by_pipe), timeout)]


def stop(workers: Iterable[Worker]) -> None:
    """End processes at once; a Ctrl-C during this leaves none behind.

    With SIGKILL, since Lightning ends only after the batch on SIGTERM.
    """
    with _without_interrupt():
        for worker in workers:
            worker.end()


@contextmanager
def _without_interrupt() -> Iterator[None]:
    """Delay Ctrl-C to the end of this context; a process that starts inside never gets it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    presses: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: presses.append(number))
    mask: Any = None
    if hasattr(signal, "pthread_sigmask"):
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before or signal.default_int_handler)
    if presses and callable(before):
        before(signal.SIGINT, None)


def _serve(pipe: Connection, threads: int, steps: Any) -> None:
    """The process: images and jobs from the pipe, results into it, until its other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_up(threads)
    with suppress(EOFError):
        source = pipe.recv().load()
        while True:
            pipe.send(work(pipe.recv(), source, steps))


def _end_with_parent() -> None:
    """End with the main process, so as not to write beside the workers of the next start."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def set_up(threads: int) -> None:
    """What torch is told once in every process that runs cells."""
    torch.set_num_threads(threads)
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("high")


def work(job: Job, source: Source, steps: Any) -> dict[str, Any]:
    """Run one cell: its result, or its error, with the traceback in a file."""
    number, config, place, options = job

    def progress(step: int, of: int) -> None:
        steps[number] = step

    try:
        outcome = run(config, source, place, progress=progress, **options)
        return {"status": "ok", "error": None, **outcome}
    except Exception as e:  # recorded as failed; the rest of the study goes on
        with suppress(OSError):  # of a full disk, say
            for weights in place.rglob("*.ckpt"):  # half of one helps nobody
                weights.unlink()
            text = traceback.format_exc()
            (place / "error.txt").write_text(text, encoding="utf-8", errors="backslashreplace")
        first = f"{type(e).__name__}: {e}".splitlines()[0]
        return {"status": "failed", "error": one_line(first)}
