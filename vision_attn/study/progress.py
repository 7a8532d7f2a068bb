"""How far a study is: bars on a terminal, lines in a file."""

import time
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


def display(console: Console, total: int, done: int) -> Display:
    """Bars where the console is a terminal, else lines."""
    return (_Bars if console.is_terminal else _Lines)(console, total, done)


def _name(cell: Cell) -> str:
    c = cell.config
    control = "" if c.control == "none" else f" {c.control}"
    return f"{cell.arm.label}{control} n={c.size} draw={c.draw} seed={c.seed}"


def _outcome(result: Result) -> str:
    if result.status != "ok":
        return f"FAILED: {result.error}"
    measured, value = "test", result.test_acc
    if value is None:
        measured, value = "val", result.val_acc
    return f"train {result.train_acc:.3f}  {measured} {value:.3f}  {result.seconds:.0f} s"


class _Bars:
    """On a terminal: a bar for the study and one for each running cell."""

    def __init__(self, console: Console, total: int, done: int) -> None:
        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
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

    def update(self, running: Running) -> None:
        for cell, step in running:
            if cell.key not in self.tasks:
                self.tasks[cell.key] = self.bars.add_task(
                    _name(cell), total=cell.config.steps, unit="steps"
                )
            self.bars.update(self.tasks[cell.key], completed=step)

    def _print(self, text: str) -> None:
        self.bars.console.print(text, highlight=False, markup=False, emoji=False)

    def note(self, cell: Cell, text: str) -> None:
        self._print(f"{_name(cell)}  {text}")

    def end(self, cell: Cell, result: Result) -> None:
        if cell.key in self.tasks:
            self.bars.remove_task(self.tasks.pop(cell.key))
        self.bars.advance(self.all)
        self._print(f"{_name(cell)}  {_outcome(result)}")


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
            emoji=False, soft_wrap=True,
        )  # fmt: skip

    def update(self, running: Running) -> None:
        if time.monotonic() - self.last > 60:
            self._print("; ".join(f"{_name(c)} step {s} of {c.config.steps}" for c, s in running))

    def note(self, cell: Cell, text: str) -> None:
        self._print(f"{_name(cell)}  {text}")

    def end(self, cell: Cell, result: Result) -> None:
        self.count += 1
        self._print(f"{_name(cell)}  {_outcome(result)}")
