"""One stored run: the only place that says what result.json holds and what older files lack."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from itertools import permutations
from pathlib import Path
from typing import Any, get_args

from vision_attn.errors import UserError
from vision_attn.files import as_json, plain
from vision_attn.study.cells import AS_BEFORE, Cell, key_of, key_start
from vision_attn.study.config import Protocol
from vision_attn.training.run import Control

__all__ = ["Result"]

_PROTOCOLS = [list(p) for n in (1, 2) for p in permutations(get_args(Protocol), n)]
_HUGE = 1e300
_SHARE, _COUNT, _POSITIVE = (0.0, 1.0), (0, math.inf), (1, math.inf)


def _number(low: float, high: float, *, kind: type = float, needed: bool = True) -> Any:
    """A field with the range of its values; `needed` where a finished run must have it."""
    return field(default=None, metadata={"span": (low, high), "kind": kind, "needed": needed})


@dataclass(frozen=True, kw_only=True)
class Result:
    """A run and what came out of it.

    Args:
        model: the label; `arch` is the model that it stands for.
        protocols: those under which the run stands.
        matched: what of it was matched; None where that is not stored.
        measures: how far attention looks, a row a layer and head; None where not measured.
        config: the run's `RunConfig`, as plain values.

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
    config: dict[str, Any]

    @classmethod
    def of(cls, cell: Cell, outcome: Mapping[str, Any]) -> "Result":
        """A cell and what `run` returned, or its status and error where it failed."""
        c = cell.config
        named = {
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
            "config": plain(asdict(c)),
        }
        if strange := outcome.keys() - {f.name for f in fields(cls)}:
            raise TypeError(f"a run returned {sorted(strange)}, which Result does not hold")
        return cls.from_json(json.loads(as_json({**named, **outcome})))

    @classmethod
    def read(cls, path: Path, data: Mapping[str, Any] | None, *, test: bool = True) -> "Result":
        """The result in a cell's directory.

        Args:
            path: the directory, whose name is the cell's key.
            data: `name` and `fingerprint` of the images, where they are known.
            test: whether a finished run must have looked at test images.

        Raises:
            UserError: no such file, or one that cannot be believed; the message says why.
        """
        file = path / "result.json"
        try:
            text = file.read_text(encoding="utf-8")
            result = cls.from_json(json.loads(text, parse_constant=_no_constant))
        except OSError as e:
            raise UserError(f"{file} cannot be read: {e.strerror}") from e
        except (ValueError, RecursionError) as e:
            raise UserError(f"{file} is damaged: {e}") from e
        if test and result.status == "ok" and None in (result.test_acc, result.gap):
            raise UserError(f"{file} is damaged: test_acc or gap is missing")
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
        """Values as of result.json, of this version or an earlier one.

        Raises:
            UserError: a value of another type or out of its range, or at odds with the
                configuration that it came from.
        """
        if not isinstance(value, dict):
            raise UserError(f"it holds {type(value).__name__}; wanted an object")
        config = _config(value.get("config"))
        early = {"protocols": ["steps"], "control": "none", "arch": config["model"]}
        row = early | {f.name: value[f.name] for f in fields(cls) if f.name in value}
        row["config"] = config
        for name in ("model", "arch", "control", "status"):
            _want(name, row.get(name), isinstance(row.get(name), str), "text")
        for name, options in (("control", get_args(Control)), ("status", ("ok", "failed"))):
            _want(name, row[name], row[name] in options, " or ".join(options))
        ok = row["status"] == "ok"
        for f in fields(cls):
            if "span" in f.metadata:
                always = f.name in ("size", "draw", "seed", "params", "flops")
                needed = always or (ok and f.metadata["needed"])
                row[f.name] = _checked(f.name, row.get(f.name), needed, **_span(f.metadata))
        _want("fitted", row.get("fitted"), isinstance(row.get("fitted"), bool) or not ok, "a bool")
        for name, needed in (("matched", False), ("subset", ok), ("error", not ok)):
            text = row.get(name)
            _want(name, text, isinstance(text, str) or (text is None and not needed), "text")
        protocols = row["protocols"]
        good = isinstance(protocols, list) and protocols in _PROTOCOLS
        _want("protocols", protocols, good, "a list of steps, epochs, or both")
        row["protocols"] = tuple(protocols)
        _check_measures(row.get("measures"))
        facts = {"arch": config["model"], **{n: config[n] for n in ("size", "draw", "seed")}}
        facts["control"] = config["control"]
        if ok:
            facts["steps"] = config["steps"]
        for name, wanted in facts.items():
            _want(name, row[name], row[name] == wanted, f"{wanted}, as its config says")
        return cls(**row)

    def to_json(self) -> dict[str, Any]:
        """Plain values for result.json; what was not measured is left out."""
        row = {f.name: getattr(self, f.name) for f in fields(self)}
        measured = self.status == "ok"
        losses = ("train_loss", "val_loss") + ("test_loss",) * (self.test_acc is not None)
        kept = {"error", *(losses if measured else ())}
        row["protocols"] = list(self.protocols)
        return {k: v for k, v in row.items() if v is not None or k in kept}

    def rows(self) -> list[dict[str, Any]]:
        """Rows for results.csv, one for each protocol."""
        row = self.to_json()
        for name in ("config", "measures", "protocols"):
            row.pop(name, None)
        return [{**row, "protocol": protocol} for protocol in self.protocols]


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _want(name: str, value: Any, good: bool, wanted: str) -> None:
    if not good:
        shown = repr(value)
        shown = shown if len(shown) < 60 else f"{shown[:57]}..."
        raise UserError(f"{name} is {shown}; wanted {wanted}")


def _span(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {"span": metadata["span"], "kind": metadata["kind"]}


def _checked(name: str, value: Any, needed: bool, span: tuple[float, float], kind: type) -> Any:
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
    """A configuration with what came after the first results filled in."""
    _want("config", value, isinstance(value, dict), "an object")
    config: dict[str, Any] = json.loads(json.dumps(value))
    for option, neutral in AS_BEFORE.items():
        *above, last = option.split(".")
        holder = config
        for part in above:
            holder = holder.get(part)  # type: ignore[assignment]
            _want(f"config.{part}", holder, isinstance(holder, dict), "an object")
        holder.setdefault(last, neutral)
    for name in ("size", "draw", "seed", "steps", "threads"):
        _checked(f"config.{name}", config.get(name), True, _COUNT, int)
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
