"""How long a study will take and how much memory, from a measured step of each model."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from vision_attn.data.sources import Source
from vision_attn.models.cost import activation_bytes
from vision_attn.models.registry import create_model
from vision_attn.study.cells import Cell

__all__ = ["Estimate", "estimate"]

LONG = 600
"""Seconds from which smaller studies are proposed."""

STEP_FLOPS = 5e9
"""FLOPs of a measured step; larger ones are scaled up from fewer images."""

REPEATS, WAIT = 7, 0.4
"""Most measured steps, and seconds after which no other begins."""

START, CELL, STEP = 6.0, 1.0, 1.5e-3
"""Seconds to start a process, and those of a run and of an update that the model does not take."""

PROCESS = 600 * 2**20
"""Bytes of a process with torch and Lightning."""

BACKWARD = 2.0
"""Time of a backward pass over that of a forward pass."""


@dataclass(frozen=True)
class Estimate:
    """What the runs of a study take on this machine.

    Args:
        runs: how many there are.
        seconds: by the clock where no other work runs, with `workers` processes.
        memory: bytes of all processes, images apart.
    """

    runs: int
    seconds: float
    memory: int

    def line(self, source: Source, draws: int) -> str:
        """One line to print, with options that make a long study shorter."""
        runs = f"{self.runs} run{'s' * (self.runs != 1)}"
        text = f"about {_span(self.seconds)} on this machine ({runs})"
        if self.memory >= 3 * 2**30:
            text += f", {self.memory / 2**30:.0f} GiB of memory"
        ways = [
            f"--data.img_size {side}"
            for side in (64, 32)
            if source.name == "folder" and min(source.img_size) > side
        ][:1]
        ways += ["--draws 1"] if draws > 1 else []
        return f"{text}; smaller: {', '.join(ways)}" if self.seconds > LONG and ways else text


def estimate(
    cells: Sequence[Cell], source: Source, workers: int, threads: int, tries: int = 0
) -> Estimate | None:
    """The estimate of `cells`, of which those of the first draw and seed are tried `tries` times.

    Each model makes one update on blank images of the size that the source has, on the device
    that the runs will use. The random numbers of this process stay as they are. None without cells.
    """
    if not cells:
        return None
    seconds: dict[str, float] = {}
    memory: dict[str, int] = {}
    with _aside(threads):
        for cell in cells:
            if cell.arm.label not in seconds:
                seconds[cell.arm.label], memory[cell.arm.label] = _measure(cell, source)
    total = longest = 0.0
    runs = most = 0
    validation = min(cells[0].config.val_fraction * len(source.train_labels), 10**9)
    for cell in cells:
        config = cell.config
        size = int(config.size or len(source.train_labels))
        batch = min(config.batch_size, size)
        seen = config.rows * min(validation, size) + size + len(source.test_labels)
        work = batch * config.steps + seen / (1 + BACKWARD)
        own = seconds[cell.arm.label] * work + STEP * config.steps + CELL
        times = 1 + (tries if (config.draw, config.seed) == (0, 0) else 0)
        total, runs, longest = total + own * times, runs + times, max(longest, own)
        most = max(most, memory[cell.arm.label] * batch)
    processes = min(workers, runs)
    return Estimate(
        runs, START + max(total / processes, longest), (PROCESS + most) * processes + PROCESS
    )


def _measure(cell: Cell, source: Source) -> tuple[float, int]:
    """Seconds an image of an update, and bytes an image that it keeps.

    Where one thread of a CPU computes they are seconds of its own work, so that other processes,
    such as runs of another study, do not make them longer.
    """
    config = cell.config
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    own = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if own else time.perf_counter
    classes = len(source.classes)
    model = create_model(
        config.model,
        img_size=source.img_size,
        in_chans=source.in_chans,
        num_classes=classes,
        args=config.args,
    )
    kept = activation_bytes(model, source.in_chans, source.img_size)
    layout = torch.channels_last if config.optim.channels_last else torch.contiguous_format
    model.to(device).to(memory_format=layout)
    most = min(config.batch_size, int(config.size or config.batch_size))
    n = max(min(int(STEP_FLOPS / ((1 + BACKWARD) * max(cell.arm.cost.flops, 1))), most), 2)
    x = torch.zeros(n, source.in_chans, *source.img_size, device=device)
    x = x.contiguous(memory_format=layout)
    y = torch.arange(n, device=device) % classes
    kind = {"bf16": torch.bfloat16, "16": torch.float16}.get(config.precision.split("-")[0])
    optimizer = torch.optim.AdamW(model.parameters())
    times: list[float] = []
    while not times or (len(times) < REPEATS and sum(times) < WAIT):
        started = clock()
        with torch.autocast(device.type, kind, enabled=kind is not None):
            loss = F.cross_entropy(model(x).float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(clock() - started)
    return min(times) / n, kept  # the first sets things up, and others may be at work


@contextmanager
def _aside(threads: int) -> Iterator[None]:
    """With so many threads, and without a trace in the random numbers."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng():
            yield
    finally:
        torch.set_num_threads(before)


def _span(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h` or `2 days`, rounded up."""
    for unit, length, least in (("days", 86400, 2), ("h", 3600, 2), ("min", 60, 2)):
        if seconds >= least * length:
            return f"{-(-seconds // length):.0f} {unit}"
    return f"{max(-(-seconds // 10) * 10, 10):.0f} s"
