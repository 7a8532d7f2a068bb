"""Cells as tasks of Ray, on this machine or on a cluster (extra `ray`)."""

import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from vision_attn.data.folder import Unread
from vision_attn.data.sources import Source
from vision_attn.errors import UserError
from vision_attn.study.execute import Runner, Start
from vision_attn.study.ray_cluster import cluster
from vision_attn.study.store import Store
from vision_attn.study.workers import Job, set_up, work

__all__ = ["on_ray"]

WAIT = 30.0
"""Seconds for a cluster to tell its size."""

IMAGES = ("train_images", "test_images")


def on_ray(
    threads: int,
    *,
    workers: int | None = None,
    address: str | None = None,
    gpus_per_cell: float = 0.0,
) -> Start:
    """Runs cells as Ray tasks, as many at once as the cluster has room for.

    The images are put into the object store once. A task whose worker dies is run again by Ray,
    once. Files of a cell come back with its result, so only this process writes the study.

    Args:
        threads: CPUs of a task.
        workers: tasks at the same time; None is as many as the cluster has room for.
        address: of a cluster, `auto` for this machine's; None starts one here.
        gpus_per_cell: share of a GPU that a task takes.

    Raises:
        UserError: Ray is not installed, the cluster is not there, or it has no room for a task.
    """

    @contextmanager
    def start(source: Source, store: Store, jobs: int) -> Iterator[Runner]:
        with cluster(threads, workers=workers, address=address, gpus_per_cell=gpus_per_cell) as ray:
            yield _Tasks(ray, source, threads, gpus_per_cell, workers)

    return start


class _Tasks:
    """Ray tasks, one a job."""

    def __init__(
        self, ray: Any, source: Source, threads: int, gpus: float, workers: int | None
    ) -> None:
        self.ray = ray
        until = time.monotonic() + WAIT
        while not (room := ray.cluster_resources()).get("CPU") and time.monotonic() < until:
            time.sleep(0.1)  # a cluster that has just begun does not know its own size yet
        wanted = {"CPU": threads, "GPU": gpus}
        for name, count in wanted.items():
            if count > room.get(name, 0):
                raise UserError(
                    f"a cell takes {count:g} {name}, the cluster has {room.get(name, 0):g}; lower"
                    f" {'threads' if name == 'CPU' else 'ray.gpus_per_cell'}"
                )
        fit = min(int(room.get(n, 0) // c) for n, c in wanted.items() if c)
        self.most = min(fit, workers or fit)
        self.task = ray.remote(_task).options(num_cpus=threads, num_gpus=gpus, max_retries=1)
        self.source = ray.put(_arrays(source))
        self.threads = threads
        self.running: dict[Any, Job] = {}

    def room(self) -> bool:
        return len(self.running) < self.most

    def start(self, job: Job) -> None:
        _, config, _, options = job
        self.running[self.task.remote(self.source, self.threads, config, options)] = job

    def ended(self, timeout: float) -> list[tuple[int, dict[str, Any]]]:
        ready, _ = self.ray.wait(list(self.running), num_returns=len(self.running), timeout=timeout)
        outcomes = []
        for ref in ready:
            number, _, place, _ = self.running.pop(ref)
            try:
                outcome, files = self.ray.get(ref)
                for name, content in files.items():
                    (place / name).parent.mkdir(parents=True, exist_ok=True)
                    (place / name).write_bytes(content)
            except self.ray.exceptions.RayError as e:
                outcome = {"status": "failed", "error": f"Ray: {str(e).splitlines()[0]}"}
            outcomes.append((number, outcome))
        return outcomes

    def step(self, number: int) -> int:
        return 0  # a task tells nothing before its end

    def stop(self) -> None:
        for ref in self.running:
            self.ray.cancel(ref, force=True)
        self.running.clear()


def _arrays(source: Source) -> Source:
    """With numpy arrays, which Ray's processes map and do not copy."""
    parts = {n: getattr(source, n) for n in IMAGES}
    return replace(source, **{n: x.numpy() for n, x in parts.items() if not isinstance(x, Unread)})


def _task(
    source: Source, threads: int, config: Any, options: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A cell's outcome and the files that it wrote."""
    set_up(threads)
    parts = {n: getattr(source, n) for n in IMAGES}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable")  # nobody writes into them
        tensors: dict[str, Any] = {
            n: torch.from_numpy(x) for n, x in parts.items() if not isinstance(x, Unread)
        }
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        outcome = work((0, config, place, options), replace(source, **tensors), [0])
        files = [f for f in place.rglob("*") if f.is_file() and not f.is_symlink()]
        return outcome, {f.relative_to(place).as_posix(): f.read_bytes() for f in files}
