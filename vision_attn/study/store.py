"""Results that survive a crash: a directory for each cell, renamed into place when complete."""

import csv
import io
import logging
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

import pandas as pd
import yaml
from filelock import BaseFileLock, FileLock, Timeout

from vision_attn.errors import UserError
from vision_attn.files import as_json, plain, write_text, writing
from vision_attn.study.result import Result, columns_of, rows_of
from vision_attn.study.study_file import covers, identity, read_study, refuse_other, starts
from vision_attn.texts import one_line, table_cell

if TYPE_CHECKING:  # it needs torch
    from vision_attn.study.cells import Cell, Plan

__all__ = ["Claim", "Store", "read_log"]

_LOG = logging.getLogger(__name__)


class Store:
    """A study's directory.

    Args:
        root: DIR of `--out`.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.cells = root, root / "cells"

    def check(self, plan: "Plan") -> None:
        """Raise UserError where the directory holds another configuration, or no study at all."""
        stored = read_study(self.root)
        try:
            empty = stored or not self.root.exists() or self._begun()
        except OSError:
            empty = False
        if not empty:
            raise UserError(f"out {self.root} is not a study directory; choose a new directory")
        if stored is not None:
            refuse_other(self.root, stored, identity(plan))
        labels: dict[str, str] = {}
        for label in (*(stored or {"args": {}})["args"], *plan.arms):
            other = labels.setdefault(normalize("NFKC", label).casefold(), label)
            if other != label:
                raise UserError(
                    f"models {other!r} and {label!r} of out {self.root} differ only in the case"
                    " of letters, which some file systems ignore; rename one of them"
                )

    def _begun(self) -> bool:
        """Whether the directory is empty, or another process is about to write study.yaml."""
        entries = {p.name for p in self.root.iterdir()}
        return entries <= {".lock", "cells"} and not _entries(self.cells)

    def open(self, plan: "Plan") -> None:
        """Write study.yaml, and remove what a crash left.

        Several processes may work in one directory, also on several machines that share it: each
        takes cells by `claim`.

        Raises:
            UserError: the directory holds another study, or cannot be written.
        """
        self.check(plan)
        with writing(self.cells):
            self.cells.mkdir(parents=True, exist_ok=True)
        with writing(self.root / ".lock"):
            try:
                lock = FileLock(self.root / ".lock", timeout=60).acquire()
            except Timeout as e:
                raise UserError(f"another process is writing {self.root / 'study.yaml'}") from e
        with lock:
            self.check(plan)
            with writing(self.cells):
                for store in (self, Store(self.root / "tuning")):
                    for partial in store.cells.glob(".tmp-*"):
                        if claim := store.claim(partial.name.removeprefix(".tmp-")):
                            _remove(partial)
                            claim.release()
            stored = read_study(self.root) or {"args": {}}
            text = identity(plan)
            text["args"] = stored["args"] | text["args"]
            for name, value in stored.get("identity", {}).get("budget", {}).items():
                text["identity"]["budget"][name] = text["identity"]["budget"].get(name) or value
            start = plain(asdict(plan.study))
            text["starts"] = [s for s in starts(stored) if not covers(start, s)]
            if not any(covers(s, start) for s in text["starts"]):
                text["starts"].append(start)
            if reference := plan.study.reference or stored.get("reference"):
                text["reference"] = reference
            text["costs"] = stored.get("costs", {}) | {
                label: {**asdict(arm.cost), "matched": arm.matched}
                for label, arm in plan.arms.items()
            }
            text["versions"] = {
                p: version(p) for p in ("torch", "torchvision", "timm", "lightning")
            }
            text["machine"] = _machine()
            write_text(self.root / "study.yaml", yaml.safe_dump(text, sort_keys=False))

    def claim(self, key: str) -> "Claim | None":
        """The right to a cell's (or a file's) name; None where another process has it."""
        file = self.cells / f".lock-{key}"
        lock = FileLock(file, timeout=0)
        with writing(file):
            try:
                lock.acquire()
            except Timeout:
                return None
        return Claim(file, lock)

    def result(self, cell: "Cell", *, test: bool = True) -> Result | None:
        """The stored result of a cell; None where there is none.

        Raises:
            UserError: a damaged result, or one of other training images than are dealt now.
        """
        path = self.cells / cell.key
        if not os.path.lexists(path):
            return None
        result = Result.read(path, None, test=test)
        if (result.model, result.config) != (cell.arm.label, plain(asdict(cell.config))):
            raise UserError(f"{path / 'result.json'} is damaged: it is of another configuration")
        if result.subset not in (None, cell.subset):
            raise UserError(
                f"{path / 'result.json'} is of other training images than are dealt now: subset"
                f" {result.subset}, now {cell.subset}"
            )
        read_log(path)
        return result

    def done(self, cell: "Cell", *, measure: bool = False, test: bool = True) -> Result | None:
        """The stored result of a cell that need not be run again; None where it must be.

        It is run again where it failed, is damaged or is of other training images than are dealt
        now (these two are logged), and with `measure` where a model with attention has no measures.
        """
        try:
            result = self.result(cell, test=test)
        except UserError as e:
            _LOG.warning("%s; the cell is run again", one_line(e))
            return None
        if result is None or result.status != "ok":
            return None
        return None if measure and cell.arm.attends and result.measures is None else result

    def add_protocols(self, cell: "Cell", result: Result) -> None:
        """Add the protocols of `cell` to its stored result."""
        if more := [p for p in cell.protocols if p not in result.protocols]:
            result = replace(result, protocols=(*result.protocols, *more))
            write_text(self.cells / cell.key / "result.json", as_json(result.to_json()))

    def scratch(self, cell: "Cell") -> Path:
        """A new folder for a cell's files until they are complete."""
        path = self.cells / f".tmp-{cell.key}"
        with writing(path):
            _remove(path)
            path.mkdir(parents=True)
        return path

    def keep(self, cell: "Cell", scratch: Path, outcome: Mapping[str, Any]) -> Result:
        """Write a finished cell's result, then rename its folder into place."""
        result = Result.of(cell, outcome)
        write_text(scratch / "result.json", as_json(result.to_json()))
        final = self.cells / cell.key
        with writing(final):
            _remove(final)  # a failed or damaged one
            scratch.replace(final)
        return result

    def read(self) -> tuple[list[tuple[Path, Result]], list[str]]:
        """Every sound result with its directory, and a message for each damaged one."""
        study = read_study(self.root)
        data = None if study is None else study["identity"]["data"]
        results, damages = [], []
        for path in _entries(self.cells):
            try:
                results.append((path, Result.read(path, data)))
            except UserError as e:
                damages.append(str(e))
        return results, damages

    def rows(self) -> list[dict[str, Any]]:
        """Rows of results.csv."""
        return rows_of(result for _, result in self.read()[0])

    def write_results(self) -> list[dict[str, Any]]:
        """results.csv from the cells, and its rows."""
        rows = self.rows()
        text = io.StringIO()
        columns = columns_of(rows)
        table = csv.DictWriter(text, columns, lineterminator="\n")
        table.writeheader()
        table.writerows({k: table_cell(r.get(k)) for k in columns} for r in rows)
        write_text(self.root / "results.csv", text.getvalue())
        return rows


def read_log(path: Path) -> pd.DataFrame | None:
    """A cell's metrics.csv; None where there is none.

    Raises:
        UserError: no table of numbers with a column `step`.
    """
    file = path / "metrics.csv"
    if not os.path.lexists(file):
        return None
    try:
        table = pd.read_csv(file)
        if "step" not in table:
            raise ValueError("it has no column 'step'")
        table.astype(float)
    except (OSError, ValueError) as e:
        raise UserError(f"{file} is damaged: {e}") from e
    return table


def _entries(cells: Path) -> list[Path]:
    """Entries of `cells` whose names do not begin with a dot; none where there is no folder."""
    try:
        return sorted(p for p in cells.iterdir() if not p.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as e:
        raise UserError(f"{cells} cannot be read: {e.strerror}") from e


class Claim:
    """A name in a study's directory that no other process uses until `release`, or until this
    process ends.
    """

    def __init__(self, file: Path, lock: BaseFileLock) -> None:
        self._file, self._lock = file, lock

    def release(self) -> None:
        """Give the name back."""
        self._file.unlink(missing_ok=True)
        self._lock.release()


def _remove(path: Path) -> None:
    """Delete a file or a folder, where there is one."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _machine() -> dict[str, Any]:
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "gpu": gpu,
        "python": platform.python_version(),
    }
