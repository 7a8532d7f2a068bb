"""How far a study is: bars on a terminal, lines in a file."""

import time
from collections.abc import Sequence
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from vision_attn.study.cells import Cell
from vision_attn.study.result import Result

__all__ = ["Display", "display"]

Running = list[tuple[Cell, int]]
"""Running cells, each with its step."""


class Display(Protocol):
    """What shows how far the cells are; a context, which begins and ends it."""

    def __enter__(self) -> Any: ...
    def __exit__(self, *_: object) -> None: ...

    def update(self, running: Running) -> None:
        """Show the steps of the running cells; called often."""

    def note(self, cell: Cell, text: str) -> None:
        """Show a message on a cell that goes on."""

    def end(self, cell: Cell, result: Result) -> None:
        """Show the result of a cell that has ended."""

    def tell_end(self, text: str) -> None:
        """Show a last message."""


def display(console: Console, cells: Sequence[Cell], done: int) -> Display:
    """Bars where the console is a terminal, else lines; seeds are shown where there are several."""
    seeds = len({cell.config.seed for cell in cells}) > 1
    return (_Bars if console.is_terminal else _Lines)(console, len(cells), done, seeds=seeds)


def _name(cell: Cell, *, seeds: bool) -> str:
    c = cell.config
    control = "" if c.control == "none" else f", {c.control}"
    seed = f", seed {c.seed}" if seeds else ""
    return f"{cell.arm.label}{control}, {c.size:,} images, draw {c.draw}{seed}"


def _outcome(result: Result) -> str:
    if result.status != "ok":
        return f"FAILED: {result.error}"
    measured, value = "test", result.test_acc
    if value is None:
        measured, value = "validation", result.val_acc
    accuracies = (("train", result.train_acc), (measured, value))
    words = [f"{name} {100 * (share or 0):.1f} %" for name, share in accuracies]
    return "  ".join([*words, f"{result.seconds:.0f} s"])


class _Bars:
    """On a terminal: a bar for the study and one for each running cell."""

    def __init__(self, console: Console, total: int, done: int, *, seeds: bool) -> None:
        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
            TimeRemainingColumn(),
            console=console,
        )
        self.all = self.bars.add_task("all", total=total, completed=done, unit="runs")
        self.tasks: dict[str, Any] = {}
        self.seeds = seeds

    def __enter__(self) -> Any:
        return self.bars.__enter__()

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def update(self, running: Running) -> None:
        for cell, step in running:
            if cell.key not in self.tasks:
                self.tasks[cell.key] = self.bars.add_task(
                    _name(cell, seeds=self.seeds), total=cell.config.steps, unit="steps"
                )
            self.bars.update(self.tasks[cell.key], completed=step)

    def _print(self, text: str) -> None:
        self.bars.console.print(text, highlight=False, markup=False, emoji=False)

    def note(self, cell: Cell, text: str) -> None:
        self._print(f"{_name(cell, seeds=self.seeds)}  {text}")

    def tell_end(self, text: str) -> None:
        self._print(text)

    def end(self, cell: Cell, result: Result) -> None:
        if cell.key in self.tasks:
            self.bars.remove_task(self.tasks.pop(cell.key))
        self.bars.advance(self.all)
        self._print(f"{_name(cell, seeds=self.seeds)}  {_outcome(result)}")


class _Lines:
    """In a file or a pipe: a line for each finished cell, and one a minute while none ends."""

    def __init__(self, console: Console, total: int, done: int, *, seeds: bool) -> None:
        self.console, self.total, self.before, self.count = console, total, done, done
        self.seeds = seeds
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
            emoji=False, soft_wrap=True,
        )  # fmt: skip

    def update(self, running: Running) -> None:
        if time.monotonic() - self.last > 60:
            names = [(_name(c, seeds=self.seeds), s, c.config.steps) for c, s in running]
            self._print("; ".join(f"{name}, step {s} of {steps}" for name, s, steps in names))

    def note(self, cell: Cell, text: str) -> None:
        self._print(f"{_name(cell, seeds=self.seeds)}  {text}")

    def tell_end(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, emoji=False, soft_wrap=True)

    def end(self, cell: Cell, result: Result) -> None:
        self.count += 1
        self._print(f"{_name(cell, seeds=self.seeds)}  {_outcome(result)}")
