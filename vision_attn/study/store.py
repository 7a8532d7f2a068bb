"""Results that survive a crash: one directory a cell, renamed into place when it is whole."""

import csv
import io
import logging
import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pandas as pd
import torch
import yaml
from filelock import FileLock, Timeout

from vision_attn.data.sources import Source
from vision_attn.errors import UserError
from vision_attn.files import as_json, plain, write_text, writing
from vision_attn.study.cells import Cell, Plan
from vision_attn.study.config import Study
from vision_attn.study.result import Result
from vision_attn.study.study_file import covers, identity, read_study, refuse_other, starts
from vision_attn.texts import one_line, table_cell

__all__ = ["COLUMNS", "Store", "read_log"]

_LOG = logging.getLogger(__name__)

COLUMNS = (
    "model", "size", "draw", "seed", "status", "params", "flops", "steps", "epochs", "train_acc",
    "val_acc", "test_acc", "train_loss", "test_loss", "gap", "fitted", "seconds",
    "images_per_second", "val_loss", "subset", "error", "protocol", "control", "arch", "matched",
)  # fmt: skip


class Store:
    """A study's directory.

    Args:
        root: DIR of `--out`.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.cells = root, root / "cells"

    def check(self, study: Study, plan: Plan, source: Source) -> None:
        """Refuse a directory that holds another configuration, or something else altogether."""
        stored = read_study(self.root)
        try:
            empty = stored or not self.root.exists() or not any(self.root.iterdir())
        except OSError:
            empty = False
        if not empty:
            raise UserError(f"out {self.root} exists and is no study; choose a new directory")
        if stored is not None:
            refuse_other(self.root, stored, identity(study, plan, source))
        labels: dict[str, str] = {}
        for label in (*(stored or {"args": {}})["args"], *plan.args):
            other = labels.setdefault(normalize("NFKC", label).casefold(), label)
            if other != label:
                raise UserError(
                    f"models {other!r} and {label!r} of out {self.root} differ in the case of"
                    " letters alone, which not every file system tells apart; name one otherwise"
                )

    @contextmanager
    def open(self, study: Study, plan: Plan, source: Source) -> Iterator[None]:
        """Hold the directory for one process: write study.yaml, clear what a crash left."""
        self.check(study, plan, source)
        with writing(self.cells):
            self.cells.mkdir(parents=True, exist_ok=True)
        with writing(self.root / ".lock"):
            try:
                lock = FileLock(self.root / ".lock", timeout=0).acquire()
            except Timeout as e:
                raise UserError(f"another process is at work in {self.root}") from e
        with lock:
            with writing(self.cells):
                for cells in (self.cells, self.root / "tuning" / "cells"):
                    for left in cells.glob(".tmp-*"):
                        _remove(left)
            stored = read_study(self.root) or {"args": {}}
            text = identity(study, plan, source)
            text["args"] = stored["args"] | text["args"]
            for name, value in stored.get("identity", {}).get("budget", {}).items():
                text["identity"]["budget"][name] = text["identity"]["budget"].get(name) or value
            start = plain(asdict(study))
            text["starts"] = [s for s in starts(stored) if not covers(start, s)]
            if not any(covers(s, start) for s in text["starts"]):
                text["starts"].append(start)
            text["costs"] = stored.get("costs", {}) | {
                m: {**asdict(c), "matched": plan.matched[m]} for m, c in plan.costs.items()
            }
            text["versions"] = {
                p: version(p) for p in ("torch", "torchvision", "timm", "lightning")
            }
            text["machine"] = _machine()
            write_text(self.root / "study.yaml", yaml.safe_dump(text, sort_keys=False))
            yield

    def result(self, cell: Cell, *, test: bool = True) -> Result | None:
        """The stored result of a cell; None where there is none.

        Raises:
            UserError: one that cannot be believed.
        """
        path = self.cells / cell.key
        if not os.path.lexists(path):
            return None
        result = Result.read(path, None, test=test)
        same = result.model == cell.label and result.config == plain(asdict(cell.config))
        if not same:
            raise UserError(f"{path / 'result.json'} is damaged: it is of another configuration")
        read_log(path)
        return result

    def done(self, cell: Cell, *, measure: bool = False, test: bool = True) -> bool:
        """Whether a whole result with status ok is there; a failed or damaged one is run again.

        With `measure`, one without measures is run again too. What is damaged is logged.
        """
        try:
            result = self.result(cell, test=test)
        except UserError as e:
            _LOG.warning("%s; the cell is run again", one_line(e))
            return False
        if result is None or result.status != "ok":
            return False
        return not measure or result.measures is not None

    def stand_for(self, cell: Cell) -> None:
        """Note in a finished cell's result the protocols of `cell` that it does not name yet."""
        result = self.result(cell, test=False)
        assert result is not None
        if more := [p for p in cell.protocols if p not in result.protocols]:
            result = replace(result, protocols=(*result.protocols, *more))
            write_text(self.cells / cell.key / "result.json", as_json(result.to_json()))

    def scratch(self, cell: Cell) -> Path:
        """A new place for a cell's files until they are whole."""
        path = self.cells / f".tmp-{cell.key}"
        with writing(path):
            _remove(path)
            path.mkdir(parents=True)
        return path

    def keep(self, cell: Cell, scratch: Path, outcome: Mapping[str, Any]) -> Result:
        """Rename a finished cell into place, its result written first."""
        result = Result.of(cell, outcome)
        write_text(scratch / "result.json", as_json(result.to_json()))
        final = self.cells / cell.key
        with writing(final):
            _remove(final)  # a failed or damaged one
            scratch.replace(final)
        return result

    def read(self) -> tuple[list[tuple[Path, Result]], list[str]]:
        """Every result that can be believed, with its directory; and what is wrong with others."""
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
        """Rows for results.csv in a fixed order, one for each protocol that a result stands for."""
        rows = [row for _, result in self.read()[0] for row in result.rows()]
        names = ("model", "size", "protocol", "control", "draw", "seed")
        return sorted(rows, key=lambda r: tuple(r[name] for name in names))

    def write_results(self) -> list[dict[str, Any]]:
        """results.csv from the cells, and its rows."""
        rows = self.rows()
        text = io.StringIO()
        table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows({k: table_cell(r.get(k)) for k in COLUMNS} for r in rows)
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
    """What lies in `cells`, without what begins with a dot; nothing where there is no folder."""
    try:
        return sorted(p for p in cells.iterdir() if not p.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as e:
        raise UserError(f"{cells} cannot be read: {e.strerror}") from e


def _remove(path: Path) -> None:
    """Whatever is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _machine() -> dict[str, Any]:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "gpu": gpu,
        "python": platform.python_version(),
    }
