"""What a report is made from: the stored files of one study, or of several joined."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from vision_attn.compare.runs import complete
from vision_attn.compare.store import COLUMNS, Store
from vision_attn.errors import UserError

__all__ = ["KEY", "LATER", "Stored", "archs", "read", "read_results"]

KEY = ["model", "size", "draw", "seed", "protocol", "control"]
"""What names a run."""

LATER = ("protocol", "control", "arch", "matched")
"""Columns that results of an earlier version lack."""

_TUNING = ("model", "size", "try", "lr", "weight_decay", "val_acc", "chosen")


@dataclass(frozen=True)
class Stored:
    """A study read back.

    Args:
        results: one row a run, with the columns of results.csv.
        studies: each directory's name and its study.yaml.
        training: mean log over draws and seeds, a row a (model, protocol, control, size, step).
        attention: mean measures, a row a (model, protocol, control, size, layer).
        tuning: a row a try.
    """

    results: pd.DataFrame
    studies: dict[str, dict[str, Any]] = field(default_factory=dict)
    training: pd.DataFrame = field(default_factory=pd.DataFrame)
    attention: pd.DataFrame = field(default_factory=pd.DataFrame)
    tuning: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def archs(self) -> dict[str, str]:
        """Which model each label stands for: `small: vit` of `small=vit`."""
        return archs(self.results)


def archs(results: pd.DataFrame) -> dict[str, str]:
    """The model that each label of the results stands for, where that is stored."""
    if "arch" not in results:
        return {}
    named = results[results["arch"].notna() & (results["arch"] != "")]
    return {str(k): str(v) for k, v in zip(named["model"], named["arch"], strict=True)}


def read_results(root: Path) -> pd.DataFrame:
    """Results of a study's directory: from its cells, else from its results.csv.

    Raises:
        UserError: no results there, a column missing, or no run that is done.
    """
    file = root / "results.csv"
    columns = list(dict.fromkeys([*COLUMNS, *LATER]))
    if (root / "cells").is_dir():
        results = complete(pd.DataFrame(Store(root).write_results(), columns=columns))
    elif file.is_file():
        results = _table(file, tuple(c for c in COLUMNS if c not in LATER))
        results = complete(results)
    else:
        raise UserError(f"{root} has neither cells/ nor results.csv; give the --out of a compare")
    if not (results["status"] == "ok").any():
        raise UserError(f"{root} holds no finished cell yet")
    return results


def read(root: Path) -> Stored:
    """Everything that is stored of a study; only its results must be there."""
    results = read_results(root)
    training = _training(root) if (root / "cells").is_dir() else _optional(root / "training.csv")
    attention = _attention(root) if (root / "cells").is_dir() else _optional(root / "attention.csv")
    file = root / "tuning.csv"
    tuning = _table(file, _TUNING) if file.is_file() else pd.DataFrame()
    return Stored(results, _studies(root), training, attention, tuning)


def _table(file: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    try:
        table = pd.read_csv(file, keep_default_na=False, na_values=[""])
    except (OSError, ValueError) as e:
        raise UserError(f"{file} cannot be read: {e}") from e
    missing = [c for c in columns if c not in table]
    if missing:
        raise UserError(f"{file} has no column {missing[0]!r}")
    return table


def _optional(file: Path) -> pd.DataFrame:
    return _table(file, ("model", "size")) if file.is_file() else pd.DataFrame()


def _studies(root: Path) -> dict[str, dict[str, Any]]:
    """study.yaml, or the studies.yaml of a joined report; nothing where neither is there."""
    for name in ("study.yaml", "studies.yaml"):
        file = root / name
        if not file.is_file():
            continue
        try:
            held = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as e:
            raise UserError(f"{file} cannot be read: {e}") from e
        held = {root.resolve().name: held} if name == "study.yaml" else held
        good = isinstance(held, dict) and all(
            isinstance(s, dict) and {"identity", "args"} <= s.keys() for s in held.values()
        )
        if not good:
            raise UserError(f"{file} is not a study of this program")
        return dict(held)
    return {}


def _cells(root: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Finished cells with what names them."""
    found = []
    for path in sorted((root / "cells").iterdir()):
        try:
            row = json.loads((path / "result.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # not whole; Store skips it too
            continue
        if isinstance(row, dict) and row.get("status") == "ok":
            found.append((path, row))
    return found


def _labels(row: dict[str, Any]) -> list[dict[str, Any]]:
    """What names a run beside its draw and seed; two where it stands under two protocols."""
    protocols = row.get("protocols") or [row.get("protocol") or "steps"]
    control = row.get("control") or "none"
    return [
        {"model": row["model"], "protocol": p, "control": control, "size": row["size"]}
        for p in protocols
    ]


def _training(root: Path) -> pd.DataFrame:
    """Means of the logs: train_loss, val_loss and val_acc at each logged step."""
    logs = []
    for path, row in _cells(root):
        if (path / "metrics.csv").is_file():
            log = _table(path / "metrics.csv", ("step",))
            measures = [m for m in ("train_loss", "val_loss", "val_acc") if m in log]
            # train and validation stand in two rows of one step
            mean = log.groupby("step")[measures].mean().reset_index()
            logs += [mean.assign(**labels) for labels in _labels(row)]
    if not logs:
        return pd.DataFrame()
    names = ["model", "protocol", "control", "size", "step"]
    every = pd.concat(logs, ignore_index=True)
    return every.groupby(names, sort=True).mean().reset_index()


def _attention(root: Path) -> pd.DataFrame:
    """Means over heads, draws and seeds of what was measured of attention, by layer."""
    rows = [
        {**labels, **{k: v for k, v in measured.items() if k != "head"}}
        for _, row in _cells(root)
        for measured in row.get("measures") or ()
        for labels in _labels(row)
    ]
    if not rows:
        return pd.DataFrame()
    names = ["model", "protocol", "control", "size", "layer"]
    return pd.DataFrame(rows).groupby(names, sort=True).mean(numeric_only=True).reset_index()
