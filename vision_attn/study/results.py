"""Results of a study read back, selected and summarised; reading writes nothing."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vision_attn.errors import UserError
from vision_attn.stats.intervals import interval_table
from vision_attn.study.result import RUN, Result, columns_of, read_rows, rows_of
from vision_attn.study.store import Store, read_log
from vision_attn.study.study_file import check_study, read_study, read_yaml
from vision_attn.texts import one_line, table_text

__all__ = ["MEASURES", "StoredStudy", "read", "read_results", "read_studies", "select", "summarise"]

_LOG = logging.getLogger(__name__)

MEASURES = ("test_acc", "train_acc", "gap", "test_loss", "train_loss", "loss_gap")

_TUNING = ("model", "size", "try", "lr", "weight_decay", "val_acc", "chosen")


@dataclass(frozen=True)
class StoredStudy:
    """Everything that is stored of a study.

    Args:
        results: one row a run, with the columns of results.csv.
        studies: each directory's name and its study.yaml.
        training: mean log over draws and seeds, a row a (model, protocol, control, size, step).
        attention: mean measures, a row a (model, protocol, control, size, layer).
        tuning: a row a try.
        rises: a row a run with a log: its `rows`, and `val_loss_rise`, validation loss at the end
            minus its minimum on the way.
        correct: of each run whose logits are stored, whether its test images are classified
            rightly, bool (N,), by the values of `RUN`.
    """

    results: pd.DataFrame
    studies: dict[str, dict[str, Any]] = field(default_factory=dict)
    training: pd.DataFrame = field(default_factory=pd.DataFrame)
    attention: pd.DataFrame = field(default_factory=pd.DataFrame)
    tuning: pd.DataFrame = field(default_factory=pd.DataFrame)
    rises: pd.DataFrame = field(default_factory=pd.DataFrame)
    correct: Mapping[tuple[Any, ...], NDArray[np.bool_]] = field(default_factory=dict)

    @property
    def archs(self) -> dict[str, str]:
        """Which model each label stands for: `small: vit` of `small=vit`."""
        named = zip(self.results["model"], self.results["arch"], strict=True)
        return {str(label): str(arch) for label, arch in named}

    @property
    def references(self) -> list[str]:
        """The models that the directories name to compare the others with."""
        return [study["reference"] for study in self.studies.values() if study.get("reference")]


def read_results(root: Path) -> pd.DataFrame:
    """Results of a study's directory: from its cells, else from its results.csv.

    Raises:
        UserError: no results, a damaged table, or no finished run.
    """
    return _results(root, _read_cells(root))


def read(root: Path) -> StoredStudy:
    """Everything that is stored of a study. Damaged files are left out and logged.

    Raises:
        UserError: no results, or a damaged study.yaml, studies.yaml or tuning.csv.
    """
    cells = _read_cells(root)
    results = _results(root, cells)
    correct = _correct(cells or [])
    if cells is None:
        training, attention, rises = (
            _optional(root / f"{name}.csv") for name in ("training", "attention", "rises")
        )
    else:
        ok = [(path, result) for path, result in cells if result.status == "ok"]
        logs = _logs(ok)
        training, rises = _training(logs), _rises(logs)
        attention = _attention([result for _, result in ok])
    studies, tries = read_studies(root), read_tries(root)
    return StoredStudy(results, studies, training, attention, tries, rises, correct)


def read_tries(root: Path) -> pd.DataFrame:
    """The tuning.csv of a study's directory; empty where there is none.

    Raises:
        UserError: a damaged table.
    """
    file = root / "tuning.csv"
    return _table(file, _TUNING) if file.is_file() else pd.DataFrame()


Cells = list[tuple[Path, Result]]


def _read_cells(root: Path) -> Cells | None:
    """The cells of a directory; None where it has no folder `cells`."""
    if not (root / "cells").is_dir():
        return None
    cells, damages = Store(root).read()
    for damage in damages:
        _log_damage(damage)
    return cells


def _log_damage(damage: object) -> None:
    _LOG.warning("%s; left out", one_line(damage))


def _results(root: Path, cells: Cells | None) -> pd.DataFrame:
    if cells is not None:
        results = [result for _, result in cells]
    elif (root / "results.csv").is_file():
        results = read_rows(root / "results.csv")
    else:
        raise UserError(f"{root} has neither cells/ nor results.csv; give the --out of a compare")
    if not any(result.status == "ok" for result in results):
        raise UserError(f"{root} holds no finished run yet")
    rows = rows_of(results)
    return pd.DataFrame(rows, columns=columns_of(rows))


_TEXTS = ("model", "status", "protocol", "control", "augment")
"""Columns that are text, even where it looks like a number."""

_WHOLE = ("size", "step", "layer")


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
            float_precision="round_trip",
            encoding="utf-8",
        )
    except (OSError, ValueError) as e:
        raise UserError(f"{file} cannot be read: {e}") from e
    if missing := [c for c in columns if c not in table]:
        raise UserError(f"{file} has no column {missing[0]!r}")
    for name in table:
        if name in _TEXTS:
            table[name] = table[name].map(table_text)
        elif name != "chosen":
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
    """A table that a report does not need; empty where it is missing or damaged."""
    if not file.is_file():
        return pd.DataFrame()
    try:
        return _table(file, ("model", "size", "protocol", "control"))
    except UserError as e:
        _log_damage(e)
        return pd.DataFrame()


def read_studies(root: Path) -> dict[str, dict[str, Any]]:
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
    """The names of a run beside its draw and seed, one for each protocol."""
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
            _log_damage(e)
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
    table = pd.DataFrame(rows)[[*RUN, "rows", "val_loss_rise"]]
    return table.sort_values(list(RUN), ignore_index=True)


def _correct(cells: Cells) -> dict[tuple[Any, ...], NDArray[np.bool_]]:
    """Which test images each run classifies rightly, where that is stored."""
    correct: dict[tuple[Any, ...], NDArray[np.bool_]] = {}
    for path, result in cells:
        file = path / "test.npz"
        if result.status != "ok" or not file.is_file():
            continue
        try:
            with np.load(file) as stored:
                right = np.asarray(stored["correct"])
            if right.dtype != np.bool_ or right.ndim != 1:
                raise ValueError(f"correct is {right.dtype} {right.shape}, wanted a list of bool")
        except (OSError, ValueError, EOFError, KeyError, BadZipFile) as e:
            _log_damage(f"{file} cannot be read: {e}")
            continue
        for named in _labels(result):
            run = {**named, "draw": result.draw, "seed": result.seed}
            correct[tuple(run[name] for name in RUN)] = right
    return correct


def _attention(results: list[Result]) -> pd.DataFrame:
    """Measures of attention, by layer: means over heads, draws and seeds."""
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


def select(results: pd.DataFrame, protocol: str, control: str) -> pd.DataFrame:
    """The finished runs of one protocol and control."""
    return results[
        (results["status"] == "ok")
        & (results["protocol"] == protocol)
        & (results["control"] == control)
    ]


def summarise(results: pd.DataFrame) -> pd.DataFrame:
    """One row a (model, protocol, control, size): draws, share of fitted runs, each measure.

    Seeds of a draw are averaged first, since they share its images. Failed cells do not count.
    `gap` and `loss_gap` are train minus test. A measure without results is left out.
    """
    runs = results[results["status"] == "ok"]
    if {"train_loss", "test_loss"} <= set(runs):
        runs = runs.assign(loss_gap=runs["train_loss"] - runs["test_loss"])
    measures = [m for m in MEASURES if m in runs]
    runs = runs.astype(dict.fromkeys(measures, float) | {"fitted": bool})
    keys = ["model", "protocol", "control", "size"]
    draws = runs.groupby([*keys, "draw"])[measures].mean().reset_index()
    table = interval_table(draws, keys, measures)
    facts = runs.groupby(keys, as_index=False).agg(
        fitted=("fitted", "mean"), params=("params", "first"), flops=("flops", "first")
    )
    for place, name in enumerate(("fitted", "params", "flops"), len(keys) + 1):
        table.insert(place, name, facts[name])
    return table
