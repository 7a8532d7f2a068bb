"""Several directories joined into one study."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from vision_attn.errors import UserError
from vision_attn.study.result import RUN, UNTUNED
from vision_attn.study.results import StoredStudy, read

__all__ = ["join"]

_CLOCK = ("seconds", "images_per_second")
"""Columns that differ between two starts of one run."""


def join(roots: Sequence[Path]) -> StoredStudy:
    """Several directories as one study. A run that is in two of them is taken once.

    Where one was tuned, the plain runs of one that was not are named untuned, as if that was a
    control, so that tuned and untuned runs stand beside each other and are never compared.

    Raises:
        UserError: other images, other arguments of a model, or other numbers of the same run.
    """
    if len(roots) == 1:
        return read(roots[0])
    parts = _apart({root: read(root) for root in dict.fromkeys(roots)})
    names = _names(list(parts))
    studies = {
        names[root] if len(part.studies) < 2 else f"{names[root]}: {name}": study
        for root, part in parts.items()
        for name, study in part.studies.items()
    }
    _check_studies(studies)
    training, attention, tuning, rises = (
        _stack([getattr(part, kind) for part in parts.values()])
        for kind in ("training", "attention", "tuning", "rises")
    )
    return StoredStudy(
        _join_results({str(root): part.results for root, part in parts.items()}),
        studies,
        training,
        attention,
        tuning,
        rises,
        {run: right for part in parts.values() for run, right in part.correct.items()},
    )


def _apart(parts: dict[Path, StoredStudy]) -> dict[Path, StoredStudy]:
    """Plain runs named `untuned`, where another directory was tuned and theirs was not."""
    tuned = {
        root
        for root, part in parts.items()
        if any(study["identity"].get("tune") for study in part.studies.values())
    }
    if not tuned:
        return parts
    return {root: part if root in tuned else _untuned(part) for root, part in parts.items()}


def _untuned(part: StoredStudy) -> StoredStudy:
    def named(table: pd.DataFrame) -> pd.DataFrame:
        return table.replace({"control": {"none": UNTUNED}}) if len(table) else table

    def renamed(run: tuple[Any, ...]) -> tuple[Any, ...]:
        facts = zip(RUN, run, strict=True)
        return tuple(UNTUNED if fact == ("control", "none") else fact[1] for fact in facts)

    return replace(
        part,
        results=named(part.results),
        training=named(part.training),
        attention=named(part.attention),
        rises=named(part.rises),
        correct={renamed(run): right for run, right in part.correct.items()},
    )


def _names(roots: list[Path]) -> dict[Path, str]:
    """The last name of each directory, or its whole path where two have the same name."""
    last = [root.resolve().name for root in roots]
    return {r: n if last.count(n) == 1 else str(r) for r, n in zip(roots, last, strict=True)}


def _check_studies(studies: dict[str, dict[str, Any]]) -> None:
    first: dict[str, tuple[str, Any]] = {}
    for name, study in studies.items():
        facts = {"images (data.fingerprint)": study["identity"]["data"]["fingerprint"]}
        facts |= {f"arguments of {model}": args for model, args in study["args"].items()}
        for what, value in facts.items():
            other, known = first.setdefault(what, (name, value))
            if known != value:
                raise UserError(
                    f"{other} and {name} differ in the {what}: {known} and {value};"
                    " only studies of the same images and models can be joined"
                )


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as dicts whose keys are texts."""
    return [{str(k): v for k, v in row.items()} for row in table.to_dict("records")]


def _join_results(parts: dict[str, pd.DataFrame]) -> pd.DataFrame:
    runs: dict[tuple[Any, ...], tuple[str, dict[str, Any]]] = {}
    for root, results in parts.items():
        for row in _records(results):
            key = tuple(row[k] for k in RUN)
            other, first = runs.setdefault(key, (root, row))
            if first is row or row["status"] != "ok":
                continue
            if first["status"] != "ok":
                runs[key] = root, row
                continue
            for column in results.columns:
                a, b = first.get(column), row[column]
                empty = [pd.isna(a), pd.isna(b)]  # `matched` always is, in earlier versions
                alike = a == b or all(empty) or (column == "matched" and any(empty))
                if column not in _CLOCK and not alike:
                    cell = ", ".join(f"{k} {v}" for k, v in zip(RUN, key, strict=True))
                    raise UserError(
                        f"{other} and {root} hold the same run ({cell}) with {column} {a} and"
                        f" {b}; join directories of one configuration"
                    )
    rows = [row for _, row in runs.values()]
    return pd.DataFrame(rows).sort_values(list(RUN), kind="stable", ignore_index=True)


def _stack(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """Tables stacked; of rows with the same names only the first is taken."""
    tables = [t for t in tables if len(t)]
    if not tables:
        return pd.DataFrame()
    names = [*RUN, "step", "layer", "steps", "try"]
    table = pd.concat(tables, ignore_index=True)
    return table.drop_duplicates([n for n in names if n in table], ignore_index=True)
