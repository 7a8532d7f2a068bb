"""What must not change within a study's directory, and what may."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vision_attn.compare.grid import Plan
from vision_attn.compare.study import Study
from vision_attn.data.sources import Source
from vision_attn.errors import UserError
from vision_attn.files import plain

__all__ = ["covers", "identity", "refuse_other", "starts"]

GROWS = (
    "models", "args", "sizes", "draws", "seeds", "controls", "match_to", "checkpoint", "measure",
)  # fmt: skip
"""Parts of a study that may change from one start to the next: they add cells, or files to one."""


def identity(study: Study, plan: Plan, source: Source) -> dict[str, Any]:
    """What must not change within a directory: all that decides a result beside the grid's axes."""
    kept = {k: v for k, v in asdict(study).items() if k not in GROWS}
    if not study.tune:
        del kept["tune"], kept["tuning"]
    kept["data"] = {
        "name": source.name,
        "fingerprint": source.fingerprint,
        "img_size": source.img_size,
        "val_fraction": study.data.val_fraction,
    }
    args = {
        k: v | ({} if study.archs[k] == k else {"arch": study.archs[k]})
        for k, v in plan.args.items()
    }
    return {"identity": plain(kept), "args": plain(args)}


def _flat(tree: dict[str, Any], above: str = "") -> dict[str, Any]:
    """`{"optim": {"lr": 0.1}}` as `{"optim.lr": 0.1}`."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{above}{key}.") if isinstance(value, dict) else {above + key: value}
    return flat


def refuse_other(root: Path, held: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise a UserError where `held`, of the directory `root`, is another study than `wanted`."""
    old, new = _flat(held["identity"]), _flat(wanted["identity"])
    for key in sorted({*old, *new}, key=lambda k: (k == "data.fingerprint", k)):
        if key.split(".")[0] in GROWS:  # as directories of an earlier version have it
            continue
        if key.startswith("budget.") and None in (old.get(key), new.get(key)):
            continue  # a protocol more
        if old.get(key) != new.get(key):
            raise UserError(
                f"out {root} holds a study with {key} {old.get(key)}, this one has"
                f" {new.get(key)}; choose another directory"
            )
    for model, args in wanted["args"].items():
        if held["args"].get(model, args) != args:
            raise UserError(
                f"out {root} holds {model} with {held['args'][model]}, this study has"
                f" {args}; choose another directory"
            )


def starts(held: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Configurations that a directory was started with, from its study.yaml."""
    return list(held.get("starts") or [s for s in [held.get("study")] if s])


def covers(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a start with one configuration runs all that a start with the other does.

    Both are of one directory, so they differ only in what may grow there.
    """
    sets, counts = ("models", "sizes", "controls"), ("draws", "seeds", "checkpoint", "measure")
    if not {*sets, *counts, "budget"} <= one.keys() & other.keys():
        return False

    def protocols(study: Mapping[str, Any]) -> set[str]:
        return {name for name, value in study["budget"].items() if value} or {"steps"}

    return (
        all(set(other[k]) <= set(one[k]) for k in sets)
        and all(other[k] <= one[k] for k in counts)
        and protocols(other) <= protocols(one)
    )
