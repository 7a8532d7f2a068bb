"""One stored run: what result.json and results.csv hold, and what is missing from older files."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pandas as pd

from vision_attn.errors import UserError
from vision_attn.files import as_json, plain
from vision_attn.study.config import FITTED, Control, Protocol
from vision_attn.study.keys import LATER_OPTIONS, key_of, key_start
from vision_attn.texts import table_text

if TYPE_CHECKING:  # it needs torch
    from vision_attn.study.cells import Cell

__all__ = ["BEST", "COLUMNS", "RUN", "UNTUNED", "Result", "columns_of", "read_rows", "rows_of"]

COLUMNS = (
    "model", "size", "draw", "seed", "status", "params", "flops", "steps", "epochs", "train_acc",
    "val_acc", "test_acc", "train_loss", "test_loss", "gap", "fitted", "seconds",
    "images_per_second", "val_loss", "subset", "error", "protocol", "control", "arch", "matched",
)  # fmt: skip
"""Columns of results.csv."""

BEST = ("best_step", "best_val_loss", "best_test_acc", "best_test_loss")
"""Further columns, of the weights with the lowest validation loss; only where runs have them."""

_LATER = ("protocol", "control", "arch", "matched")
"""Columns that were added after the first results."""

RUN = ("model", "size", "protocol", "control", "draw", "seed")
"""The columns that name a run, by which results.csv is sorted."""

UNTUNED = "untuned"
"""The control of a joined report's runs that were not tuned, where others were."""

_CONTROLS = (*get_args(Control), UNTUNED)

_EARLY = {"protocols": ["steps"], "control": "none"}
"""Values of the first runs, whose results do not name them."""

_PROTOCOLS = [list(p) for n in (1, 2) for p in permutations(get_args(Protocol), n)]
_HUGE = 1e300
_SHARE, _COUNT, _POSITIVE = (0.0, 1.0), (0, math.inf), (1, math.inf)


def _number(low: float, high: float, *, kind: type = float, needed: bool = True) -> Any:
    """A field with the range of its values; `needed` where a finished run must have it."""
    return field(default=None, metadata={"span": (low, high), "kind": kind, "needed": needed})


@dataclass(frozen=True, kw_only=True)
class Result:
    """A run and its results.

    Args:
        model: the label; `arch` is the model that it stands for.
        protocols: those that the run belongs to.
        matched: as in `Arm`; None where it is not stored.
        measures: of attention, a row a layer and head; None where not measured.
        config: the run's `RunConfig`, as plain values; empty where it was read from results.csv.

    Losses that are not finite are None. A failed run has none of the measured values; a try of
    tuning has none of test images.
    """

    model: str
    size: int = _number(*_POSITIVE, kind=int)
    draw: int = _number(*_COUNT, kind=int)
    seed: int = _number(*_COUNT, kind=int)
    params: int = _number(*_COUNT, kind=int)
    flops: int = _number(*_COUNT, kind=int)
    protocols: tuple[str, ...]
    control: str
    arch: str
    matched: str | None = None
    status: str
    error: str | None = None
    steps: int | None = _number(*_POSITIVE, kind=int)
    epochs: float | None = _number(0, math.inf)
    train_acc: float | None = _number(*_SHARE)
    val_acc: float | None = _number(*_SHARE)
    train_loss: float | None = _number(0, math.inf, needed=False)
    val_loss: float | None = _number(0, math.inf, needed=False)
    fitted: bool | None = None
    seconds: float | None = _number(0, math.inf)
    images_per_second: float | None = _number(0, math.inf)
    subset: str | None = None
    measures: list[dict[str, Any]] | None = None
    test_acc: float | None = _number(*_SHARE, needed=False)
    test_loss: float | None = _number(0, math.inf, needed=False)
    gap: float | None = _number(-1, 1, needed=False)
    best_step: int | None = _number(*_COUNT, kind=int, needed=False)
    best_val_loss: float | None = _number(0, math.inf, needed=False)
    best_test_acc: float | None = _number(*_SHARE, needed=False)
    best_test_loss: float | None = _number(0, math.inf, needed=False)
    config: dict[str, Any]

    @classmethod
    def of(cls, cell: "Cell", outcome: Mapping[str, Any]) -> "Result":
        """A cell and what `run` returned, or its status and error where it failed."""
        c = cell.config
        named = {
            "model": cell.arm.label,
            "size": c.size,
            "draw": c.draw,
            "seed": c.seed,
            "params": cell.arm.cost.params,
            "flops": cell.arm.cost.flops,
            "protocols": list(cell.protocols),
            "control": c.control,
            "arch": c.model,
            "matched": cell.arm.matched,
            "config": plain(asdict(c)),
        }
        if outcome["status"] == "ok":
            named["fitted"] = outcome["train_acc"] >= FITTED
        if unknown := outcome.keys() - {f.name for f in fields(cls)}:
            raise TypeError(f"a run returned {sorted(unknown)}, for which Result has no field")
        return cls.from_json(json.loads(as_json({**outcome, **named})))

    @classmethod
    def read(cls, path: Path, data: Mapping[str, Any] | None, *, test: bool = True) -> "Result":
        """The result in a cell's directory.

        Args:
            path: the directory, whose name is the cell's key.
            data: `name` and `fingerprint` of the images, where they are known.
            test: whether a finished run must have looked at test images.

        Raises:
            UserError: a missing or damaged file; the message says why.
        """
        file = path / "result.json"
        try:
            text = file.read_text(encoding="utf-8")
            result = cls.from_json(json.loads(text, parse_constant=_no_constant))
            if test:
                result._check_tested()
        except OSError as e:
            raise UserError(f"{file} cannot be read: {e.strerror}") from e
        except (ValueError, RecursionError) as e:
            raise UserError(f"{file} is damaged: {e}") from e
        if data is None:
            key, name = key_start(result.model, result.config), path.name.rpartition("-")[0]
        else:
            key = key_of(result.model, result.config, data["name"], data["fingerprint"])
            name = path.name
        if name != key:
            raise UserError(f"{file} is damaged: it belongs to {key}")
        return result

    @classmethod
    def from_json(cls, value: Any) -> "Result":
        """The content of a result.json, of this version or an earlier one.

        Raises:
            UserError: a value of another type, out of its range, or different from the
                configuration of its run.
        """
        if not isinstance(value, dict):
            raise UserError(f"it holds {type(value).__name__}; wanted an object")
        config = _config(value.get("config"))
        result = cls._checked({"arch": config["model"], **value, "config": config})
        facts = {"arch": config["model"], **{n: config[n] for n in ("size", "draw", "seed")}}
        facts["control"] = config["control"]
        if result.status == "ok":
            facts["steps"] = config["steps"]
        for name, wanted in facts.items():
            own = getattr(result, name)
            _want(name, own, own == wanted, f"{wanted}, as its config says")
        return result

    @classmethod
    def from_row(cls, row: Mapping[str, str]) -> "Result":
        """A row of results.csv, of this version or an earlier one; empty cells are left out.

        Raises:
            UserError: a value of another type or out of its range.
        """
        kinds = {f.name: f.metadata.get("kind", str) for f in fields(cls)} | {"fitted": bool}
        values = {name: _value(text, kinds.get(name, str)) for name, text in row.items()}
        if "protocol" in values:
            values["protocols"] = [values.pop("protocol")]
        result = cls._checked({"arch": values.get("model"), **values, "config": {}})
        result._check_tested()
        return result

    @classmethod
    def _checked(cls, value: Mapping[str, Any]) -> "Result":
        """A result from values by field; what earlier versions did not store is filled in."""
        row = _EARLY | {f.name: value[f.name] for f in fields(cls) if f.name in value}
        for name in ("model", "arch", "control", "status"):
            _want(name, row.get(name), isinstance(row.get(name), str), "text")
        for name, options in (("control", _CONTROLS), ("status", ("ok", "failed"))):
            _want(name, row[name], row[name] in options, " or ".join(options))
        ok = row["status"] == "ok"
        for f in fields(cls):
            if "span" in f.metadata:
                named = f.name in ("size", "draw", "seed", "params", "flops")
                needed = named or (ok and f.metadata["needed"])
                row[f.name] = _number_of(f.name, row.get(f.name), needed, **_span(f.metadata))
        _want("fitted", row.get("fitted"), isinstance(row.get("fitted"), bool) or not ok, "a bool")
        for name, needed in (("matched", False), ("subset", ok), ("error", not ok)):
            text = row.get(name)
            _want(name, text, isinstance(text, str) or (text is None and not needed), "text")
        protocols = row["protocols"]
        good = isinstance(protocols, list) and protocols in _PROTOCOLS
        _want("protocols", protocols, good, "a list of steps, epochs, or both")
        row["protocols"] = tuple(protocols)
        _check_measures(row.get("measures"))
        return cls(**row)

    def _check_tested(self) -> None:
        if self.status == "ok" and None in (self.test_acc, self.gap):
            raise UserError("test_acc or gap is missing")

    def to_json(self) -> dict[str, Any]:
        """Plain values for result.json, without what was not measured."""
        row = {f.name: getattr(self, f.name) for f in fields(self)}
        measured = self.status == "ok"
        losses = ("train_loss", "val_loss") + ("test_loss",) * (self.test_acc is not None)
        always = {"error", *(losses if measured else ())}
        row["protocols"] = list(self.protocols)
        return {k: v for k, v in row.items() if v is not None or k in always}

    def rows(self) -> list[dict[str, Any]]:
        """Rows for results.csv, one for each protocol."""
        row = self.to_json()
        for name in ("config", "measures", "protocols"):
            row.pop(name, None)
        return [{**row, "protocol": protocol} for protocol in self.protocols]


def rows_of(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Rows of results.csv in its order, one for each protocol of a result."""
    rows = [row for result in results for row in result.rows()]
    return sorted(rows, key=lambda row: tuple(row[name] for name in RUN))


def columns_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Columns of results.csv for these rows."""
    rows = list(rows)
    return [*COLUMNS, *(c for c in BEST if any(row.get(c) is not None for row in rows))]


def read_rows(file: Path) -> list[Result]:
    """The runs of a results.csv, one a row.

    Raises:
        UserError: a missing or damaged file, a missing column, a damaged row.
    """
    try:
        table = pd.read_csv(
            file, dtype=object, keep_default_na=False, na_values=[""], encoding="utf-8"
        )
    except (OSError, ValueError) as e:
        raise UserError(f"{file} cannot be read: {e}") from e
    if missing := [c for c in COLUMNS if c not in table and c not in _LATER]:
        raise UserError(f"{file} has no column {missing[0]!r}")
    results = []
    for line, row in enumerate(table.to_dict("records"), 2):
        try:
            results.append(Result.from_row({str(k): v for k, v in row.items() if pd.notna(v)}))
        except UserError as e:
            raise UserError(f"{file} line {line}: {e}") from e
    return results


def _value(text: str, kind: type) -> Any:
    """A value of this kind from a cell of results.csv; the text itself where it is none."""
    if kind is str:
        return table_text(text)
    if kind is bool:
        return {"True": True, "False": False}.get(text, text)
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if kind is int and number.is_integer() else number


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _want(name: str, value: Any, good: bool, wanted: str) -> None:
    if not good:
        text = repr(value)
        text = text if len(text) < 60 else f"{text[:57]}..."
        raise UserError(f"{name} is {text}; wanted {wanted}")


def _span(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {"span": metadata["span"], "kind": metadata["kind"]}


def _number_of(name: str, value: Any, needed: bool, span: tuple[float, float], kind: type) -> Any:
    """A number of a kind within its range; None where it may be missing."""
    if value is None and not needed:
        return None
    right = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
    word = "a whole number" if kind is int else "a number"
    low, high = span
    wanted = f"{word}, {low:g} or more" if high == math.inf else f"{word}, {low:g} to {high:g}"
    _want(name, value, right and low <= value <= min(high, _HUGE), wanted)
    return kind(value)


def _config(value: Any) -> dict[str, Any]:
    """A configuration; options that were added after the first results are filled in."""
    _want("config", value, isinstance(value, dict), "an object")
    config: dict[str, Any] = json.loads(json.dumps(value))
    for option, neutral in LATER_OPTIONS.items():
        *above, last = option.split(".")
        holder = config
        for part in above:
            holder = holder.get(part)  # type: ignore[assignment]
            _want(f"config.{part}", holder, isinstance(holder, dict), "an object")
        holder.setdefault(last, neutral)
    for name in ("size", "draw", "seed", "steps", "threads"):
        _number_of(f"config.{name}", config.get(name), True, _COUNT, int)
    for name in ("model", "control"):
        _want(f"config.{name}", config.get(name), isinstance(config.get(name), str), "text")
    return config


def _check_measures(rows: Any) -> None:
    if rows is None:
        return
    _want("measures", rows, isinstance(rows, list), "a list")
    for row in rows:
        good = isinstance(row, dict) and isinstance(row.get("layer"), int)
        good = good and all(v is None or isinstance(v, (int, float)) for v in row.values())
        _want("measures", row, good, "a layer and its numbers")
