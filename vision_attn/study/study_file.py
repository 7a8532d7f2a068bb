"""study.yaml: what was started in a directory, and what may change between two starts."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from vision_attn.errors import UserError
from vision_attn.files import plain

if TYPE_CHECKING:  # it needs torch
    from vision_attn.study.cells import Plan

__all__ = ["check_study", "covers", "identity", "read_study", "read_yaml", "refuse_other", "starts"]

CHANGEABLE = (
    "models", "args", "sizes", "draws", "first_draw", "seeds", "controls", "match_to", "checkpoint",
    "measure", "augment_of", "reference",
)  # fmt: skip
"""Parts of a study that may change between two starts: they add cells, or files to a cell."""

_SETS, _COUNTS = ("models", "sizes", "controls"), ("seeds", "checkpoint", "measure")
"""Parts of a start that decide whether it covers another."""


def identity(plan: "Plan") -> dict[str, Any]:
    """What must not change within a directory: what decides results beside the axes."""
    study, source = plan.study, plan.source
    fixed = {k: v for k, v in asdict(study).items() if k not in CHANGEABLE}
    if not study.tune:
        del fixed["tune"], fixed["tuning"]
    for augment in fixed.get("tuning", {}).get("augment", ()):
        if augment["transforms"] is None:  # an option that earlier studies do not have
            del augment["transforms"]
    fixed["data"] = {
        "name": source.name,
        "label": source.label,
        "fingerprint": source.fingerprint,
        "img_size": source.img_size,
        "val_fraction": study.data.val_fraction,
    }
    args = {
        label: arm.args | ({} if arm.arch == label else {"arch": arm.arch})
        for label, arm in plan.arms.items()
    }
    for label, augment in study.augment_of.items():
        args[label] |= {"augment": asdict(augment)}
    return {"identity": plain(fixed), "args": plain(args)}


def _flat(tree: dict[str, Any], above: str = "") -> dict[str, Any]:
    """`{"optim": {"lr": 0.1}}` as `{"optim.lr": 0.1}`."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{above}{key}.") if isinstance(value, dict) else {above + key: value}
    return flat


def refuse_other(root: Path, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise UserError where `stored`, from the directory `root`, is another study than `wanted`."""
    old, new = _flat(stored["identity"]), _flat(wanted["identity"])
    if "tuning.lr" in old:
        old.setdefault("tuning.sampler", "halton")  # the only one that there was
    for key in sorted({*old, *new}, key=lambda k: (k == "data.fingerprint", k)):
        if key.split(".")[0] in CHANGEABLE:  # directories of an earlier version have these too
            continue
        if key == "data.label":  # a name to show, which decides nothing
            continue
        if key.startswith("budget.") and None in (old.get(key), new.get(key)):
            continue  # one more protocol
        if old.get(key) != new.get(key):
            raise UserError(
                f"out {root} holds a study with {key} {old.get(key)}, this one has"
                f" {new.get(key)}; choose another directory"
            )
    for model, args in wanted["args"].items():
        known = stored["args"].get(model, args)
        if known != args:
            said = f"out {root} holds {model} with {known}, this study has {args}; choose another"
            raise UserError(f"{said} directory{_instead(model, known, args)}")


def _instead(model: str, known: Mapping[str, Any], args: Mapping[str, Any]) -> str:
    """How to have the arguments that are known, where nothing but arguments differs."""
    others = ("arch", "augment")  # which the command line has elsewhere
    if any(known.get(name) != args.get(name) for name in others):
        return ""
    told = {name: value for name, value in known.items() if name not in others}
    return f", or the former: --args.{model} '{json.dumps(told)}'"


def read_study(root: Path) -> dict[str, Any] | None:
    """study.yaml of a directory; None where there is none.

    Raises:
        UserError: a file that cannot be read, or that this program did not write.
    """
    file = root / "study.yaml"
    if not file.is_file() and not file.is_dir():
        return None
    study = read_yaml(file)
    check_study(file, study)
    return dict(study)


def read_yaml(file: Path) -> Any:
    """The content of a YAML file, or a UserError that names the file."""
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as e:
        raise UserError(f"{file} cannot be read: {e}; put it back or choose another folder") from e


def check_study(file: Path, study: Any) -> None:
    """Raise UserError where a part of study.yaml has the wrong type."""

    def part(above: Any, name: str, kind: Any, needed: bool = False) -> Any:
        value = above.get(name) if isinstance(above, dict) else None
        if not isinstance(value, kind) and (needed or value is not None):
            wanted = {dict: "a mapping", list: "a list", str: "text", int: "a whole number"}
            raise UserError(
                f"{file} is not a study of this program: {name} is {type(value).__name__}, wanted"
                f" {wanted.get(kind, 'text or a number')}; put the file back or choose another"
                " folder"
            )
        return value

    fixed = part(study, "identity", dict, needed=True)
    data = part(fixed, "data", dict, needed=True)
    for name in ("name", "fingerprint"):
        part(data, name, str, needed=True)
    part(fixed, "budget", dict)
    part(study, "reference", str)
    args = part(study, "args", dict, needed=True)
    costs = part(study, "costs", dict) or {}
    for above in (args, costs):
        for name in above:
            part(above, name, dict, needed=True)
    for cost in costs.values():
        for name in ("params", "flops"):
            part(cost, name, int)
        part(cost, "matched", str)
    for name, kind in (("study", dict), ("versions", dict), ("machine", dict), ("starts", list)):
        part(study, name, kind)
    for start in study.get("starts") or []:
        part({"starts": start}, "starts", dict, needed=True)
        part(start, "budget", dict)
        for name in _SETS:
            for value in part(start, name, list) or []:
                part({name: value}, name, (str, int), needed=True)
        for name in (*_COUNTS, "draws", "first_draw"):
            part(start, name, int)


def starts(stored: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Configurations that were started in a directory, from its study.yaml."""
    return list(stored.get("starts") or [s for s in [stored.get("study")] if s])


def covers(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a start with one configuration runs all that a start with the other does.

    Both are of one directory, so they differ only in what may grow there.
    """
    if not {*_SETS, *_COUNTS, "draws", "budget"} <= one.keys() & other.keys():
        return False

    def protocols(study: Mapping[str, Any]) -> set[str]:
        return {name for name, value in study["budget"].items() if value} or {"steps"}

    def draws(study: Mapping[str, Any]) -> set[int]:
        first = study.get("first_draw", 0)
        return set(range(first, first + study["draws"]))

    return (
        all(set(other[k]) <= set(one[k]) for k in _SETS)
        and all(other[k] <= one[k] for k in _COUNTS)
        and draws(other) <= draws(one)
        and protocols(other) <= protocols(one)
    )
