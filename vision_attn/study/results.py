"""What a report is made from: the stored files of one study, or of several joined."""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from vision_attn.errors import UserError
from vision_attn.study.result import Result
from vision_attn.study.runs import complete
from vision_attn.study.store import COLUMNS, Store, read_log
from vision_attn.study.study_file import check_study, read_study, read_yaml
from vision_attn.texts import one_line, table_text

__all__ = ["KEY", "LATER", "Stored", "archs", "read", "read_results"]

_LOG = logging.getLogger(__name__)

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
        rises: a row a run with a log: its `rows`, and `val_loss_rise`, validation loss at the end
            minus its minimum on the way.
    """

    results: pd.DataFrame
    studies: dict[str, dict[str, Any]] = field(default_factory=dict)
    training: pd.DataFrame = field(default_factory=pd.DataFrame)
    attention: pd.DataFrame = field(default_factory=pd.DataFrame)
    tuning: pd.DataFrame = field(default_factory=pd.DataFrame)
    rises: pd.DataFrame = field(default_factory=pd.DataFrame)

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
        UserError: no results there, a table that is damaged, or no run that is done.
    """
    return _results(root, _believed(root))


def read(root: Path) -> Stored:
    """Everything that is stored of a study; only its results must be there.

    What is damaged is left out and logged.
    """
    cells = _believed(root)
    results = _results(root, cells)
    if cells is None:
        training, attention, rises = (
            _optional(root / f"{name}.csv") for name in ("training", "attention", "rises")
        )
    else:
        ok = [(path, result) for path, result in cells if result.status == "ok"]
        logs = _logs(ok)
        training, rises = _training(logs), _rises(logs)
        attention = _attention([result for _, result in ok])
    file = root / "tuning.csv"
    tuning = _table(file, _TUNING) if file.is_file() else pd.DataFrame()
    return Stored(results, _studies(root), training, attention, tuning, rises)


Cells = list[tuple[Path, Result]]


def _believed(root: Path) -> Cells | None:
    """The cells of a directory; None where it has no folder `cells`."""
    if not (root / "cells").is_dir():
        return None
    cells, damages = Store(root).read()
    for damage in damages:
        _leave_out(damage)
    return cells


def _leave_out(damage: object) -> None:
    _LOG.warning("%s; left out", one_line(damage))


def _results(root: Path, cells: Cells | None) -> pd.DataFrame:
    if cells is not None:
        rows = [row for _, result in cells for row in result.rows()]
        results = pd.DataFrame(rows, columns=list(COLUMNS))
        results = results.sort_values(_ORDER, ignore_index=True)
    elif (root / "results.csv").is_file():
        results = _table(root / "results.csv", tuple(c for c in COLUMNS if c not in LATER))
    else:
        raise UserError(f"{root} has neither cells/ nor results.csv; give the --out of a compare")
    if not (results["status"] == "ok").any():
        raise UserError(f"{root} holds no finished run yet")
    return complete(results)


_ORDER = ["model", "size", "protocol", "control", "draw", "seed"]

_TEXTS = ("model", "status", "subset", "error", "protocol", "control", "arch", "matched", "augment")
"""Columns that are text, also where it looks like a number."""

_WHOLE = ("size", "draw", "seed", "step", "layer")


def _table(file: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    """A table that this program wrote.

    Raises:
        UserError: a missing column, or a value that is no number where there must be one.
    """
    try:
        table = pd.read_csv(
            file,
            keep_default_na=False,
            na_values=[""],
            dtype=dict.fromkeys(_TEXTS, object),
            encoding="utf-8",
        )
    except (OSError, ValueError) as e:
        raise UserError(f"{file} cannot be read: {e}") from e
    if missing := [c for c in columns if c not in table]:
        raise UserError(f"{file} has no column {missing[0]!r}")
    for name in table:
        if name in _TEXTS:
            table[name] = table[name].map(table_text)
        elif name not in ("fitted", "chosen"):
            _check_numbers(file, table, str(name))
    if "model" in table and not table["model"].notna().all():
        raise UserError(f"{file} has a row without model")
    return table


def _check_numbers(file: Path, table: pd.DataFrame, name: str) -> None:
    numbers = pd.to_numeric(table[name], errors="coerce")
    wrong = numbers.isna() & table[name].notna()
    if name in _WHOLE:
        wrong |= ~(numbers >= 0) | (numbers % 1 != 0)
    if name.endswith("_acc"):
        wrong |= (numbers < 0) | (numbers > 1)
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        raise UserError(
            f"{file} line {row + 2} has {name} {table[name].iloc[row]}; wanted"
            f" {'a share from 0 to 1' if name.endswith('_acc') else 'a number'}"
        )


def _optional(file: Path) -> pd.DataFrame:
    """A table that the page can do without."""
    if not file.is_file():
        return pd.DataFrame()
    try:
        return _table(file, ("model", "size", "protocol", "control"))
    except UserError as e:
        _leave_out(e)
        return pd.DataFrame()


def _studies(root: Path) -> dict[str, dict[str, Any]]:
    """study.yaml, or the studies.yaml of a joined report; nothing where neither is there."""
    study = read_study(root)
    if study is not None:
        return {root.resolve().name: study}
    file = root / "studies.yaml"
    if not file.is_file():
        return {}
    studies = read_yaml(file)
    if not isinstance(studies, dict):
        raise UserError(f"{file} is not a study of this program")
    for one in studies.values():
        check_study(file, one)
    return {str(name): study for name, study in studies.items()}


def _labels(result: Result) -> list[dict[str, Any]]:
    """What names a run beside its draw and seed; two where it stands under two protocols."""
    named = {"model": result.model, "control": result.control, "size": result.size}
    return [{**named, "protocol": p} for p in result.protocols]


_LOGGED = ("train_loss", "val_loss", "val_acc")


def _logs(cells: Cells) -> list[tuple[Result, pd.DataFrame]]:
    """Runs with their logs: train_loss, val_loss and val_acc, a row a step, where they have one."""
    logs = []
    for path, result in cells:
        try:
            log = read_log(path)
        except UserError as e:
            _leave_out(e)
            continue
        if log is not None:
            # train and validation stand in two rows of one step
            log = log[["step", *(m for m in _LOGGED if m in log)]].groupby("step").mean()
            logs.append((result, log.reset_index()))
    return logs


def _training(logs: list[tuple[Result, pd.DataFrame]]) -> pd.DataFrame:
    """Means of the logs over draws and seeds at each logged step."""
    steps = [log.assign(**labels) for result, log in logs for labels in _labels(result)]
    if not steps:
        return pd.DataFrame()
    every = pd.concat(steps, ignore_index=True)
    names = ["model", "protocol", "control", "size", "step"]
    return every.groupby(names, sort=True)[[m for m in _LOGGED if m in every]].mean().reset_index()


def _rises(logs: list[tuple[Result, pd.DataFrame]]) -> pd.DataFrame:
    """How far the validation loss of each run ends above its minimum."""
    rows = []
    for result, log in logs:
        losses = log["val_loss"].dropna() if "val_loss" in log else log["step"][:0]
        if len(losses):
            rise = float(losses.iloc[-1] - losses.min())
            run = {"draw": result.draw, "seed": result.seed}
            told = {"rows": len(losses), "val_loss_rise": rise}
            rows += [{**labels, **run, **told} for labels in _labels(result)]
    if not rows:
        return pd.DataFrame()
    table = pd.DataFrame(rows)[[*KEY, "rows", "val_loss_rise"]]
    return table.sort_values(_ORDER, ignore_index=True)


def _attention(results: list[Result]) -> pd.DataFrame:
    """Means over heads, draws and seeds of what was measured of attention, by layer."""
    rows = [
        {**labels, **{k: v for k, v in measured.items() if k != "head"}}
        for result in results
        for measured in result.measures or ()
        for labels in _labels(result)
    ]
    if not rows:
        return pd.DataFrame()
    names = ["model", "protocol", "control", "size", "layer"]
    return pd.DataFrame(rows).groupby(names, sort=True).mean(numeric_only=True).reset_index()
