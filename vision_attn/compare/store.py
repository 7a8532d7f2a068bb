"""Results that survive a crash: one directory a cell, renamed into place when it is whole."""

import csv
import io
import json
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import yaml
from filelock import FileLock, Timeout

from vision_attn.compare.grid import Cell, Plan
from vision_attn.compare.identity import covers, identity, refuse_other, starts
from vision_attn.compare.study import Study
from vision_attn.data.sources import Source
from vision_attn.errors import UserError
from vision_attn.files import as_json, plain, write_text

__all__ = ["COLUMNS", "Store"]

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
        held = self._held()
        if held is None:
            if self.root.is_file() or (self.root.is_dir() and any(self.root.iterdir())):
                raise UserError(f"out {self.root} exists and is no study; choose a new directory")
            return
        refuse_other(self.root, held, identity(study, plan, source))

    @contextmanager
    def open(self, study: Study, plan: Plan, source: Source) -> Iterator[None]:
        """Hold the directory for one process: write study.yaml, clear what a crash left."""
        self.check(study, plan, source)
        self.cells.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(self.root / ".lock", timeout=0).acquire()
        except Timeout as e:
            raise UserError(f"another process is at work in {self.root}") from e
        with lock:
            for left in self.cells.glob(".tmp-*"):
                shutil.rmtree(left)
            held = self._held() or {"args": {}}
            text = identity(study, plan, source)
            text["args"] = held["args"] | text["args"]
            for name, value in held.get("identity", {}).get("budget", {}).items():
                text["identity"]["budget"][name] = text["identity"]["budget"][name] or value
            start = plain(asdict(study))
            text["starts"] = [s for s in starts(held) if not covers(start, s)]
            if not any(covers(s, start) for s in text["starts"]):
                text["starts"].append(start)
            text["costs"] = held.get("costs", {}) | {
                m: {**asdict(c), "matched": plan.matched[m]} for m, c in plan.costs.items()
            }
            text["versions"] = {
                p: version(p) for p in ("torch", "torchvision", "timm", "lightning")
            }
            text["machine"] = _machine()
            write_text(self.root / "study.yaml", yaml.safe_dump(text, sort_keys=False))
            yield

    def done(self, cell: Cell, *, measure: bool = False) -> bool:
        """Whether a whole result with status ok is there; a failed or broken one is run again.

        With `measure`, one without measures is run again too. A result that stands for one protocol
        and is now wanted for another is noted for both.
        """
        path = self.cells / cell.key
        row = self._read(path)
        if row is None or row.get("status") != "ok" or (measure and "measures" not in row):
            return False
        known = row.setdefault("protocols", ["steps"])
        if more := [p for p in cell.protocols if p not in known]:
            known += more
            write_text(path / "result.json", as_json(row))
        return True

    def result(self, cell: Cell) -> dict[str, Any] | None:
        """The stored result of a cell, if there is one."""
        return self._read(self.cells / cell.key)

    def scratch(self, cell: Cell) -> Path:
        """A new place for a cell's files until they are whole."""
        path = self.cells / f".tmp-{cell.key}"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def keep(self, cell: Cell, scratch: Path, result: dict[str, Any]) -> dict[str, Any]:
        """Rename a finished cell into place, its result written first."""
        c = cell.config
        row = {
            "model": cell.label,
            "size": c.size,
            "draw": c.draw,
            "seed": c.seed,
            "params": cell.cost.params,
            "flops": cell.cost.flops,
            "protocols": list(cell.protocols),
            "control": c.control,
            "arch": c.model,
            "matched": cell.matched,
            **result,
        }
        write_text(scratch / "result.json", as_json({**row, "config": plain(asdict(c))}))
        final = self.cells / cell.key
        if final.exists():  # a failed or broken one
            shutil.rmtree(final)
        scratch.replace(final)
        return row

    def rows(self) -> list[dict[str, Any]]:
        """Every stored result, in a fixed order: one row for each protocol that it stands for."""
        if not self.cells.is_dir():
            return []
        found = [self._read(p) for p in self.cells.iterdir() if not p.name.startswith(".")]
        rows = [
            {"control": "none", "arch": r["model"], **r, "protocol": protocol}
            for r in found
            if r is not None
            for protocol in r.get("protocols", ["steps"])
        ]
        names = ("model", "size", "protocol", "control", "draw", "seed")
        return sorted(rows, key=lambda r: tuple(r[name] for name in names))

    def write_results(self) -> list[dict[str, Any]]:
        """results.csv from the cells, and its rows."""
        rows = self.rows()
        text = io.StringIO()
        table = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows({k: "" if r.get(k) is None else r[k] for k in COLUMNS} for r in rows)
        write_text(self.root / "results.csv", text.getvalue())
        return rows

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            row = json.loads((path / "result.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return (
            row
            if isinstance(row, dict) and {"model", "size", "draw", "seed"} <= row.keys()
            else None
        )

    def _held(self) -> dict[str, Any] | None:
        try:
            held = yaml.safe_load((self.root / "study.yaml").read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, yaml.YAMLError) as e:
            raise UserError(f"{self.root / 'study.yaml'} cannot be read: {e}") from e
        if not isinstance(held, dict) or not {"identity", "args"} <= held.keys():
            raise UserError(f"{self.root / 'study.yaml'} is not a study of this program")
        return held


def _machine() -> dict[str, Any]:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "gpu": gpu,
        "python": platform.python_version(),
    }
