"""Names of the options of fit, validate, test and predict, checked before Lightning is imported.

That takes seconds, and a slip of the pen can be told without it.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vision_attn.commands.models import check_names
from vision_attn.commands.strict_yaml import config_files, line_of
from vision_attn.data.config import NAMES, DataConfig
from vision_attn.errors import UserError
from vision_attn.names import SHAPE
from vision_attn.training.optim import OptimConfig

__all__ = ["check_options", "known_options", "names_class"]

TOP = (
    "config", "print_config", "seed_everything", "ckpt_path", "weights_only", "optimizer",
    "lr_scheduler",
)  # fmt: skip
OWN = {
    "fit": (),
    "validate": ("verbose",),
    "test": ("verbose",),
    "predict": ("return_predictions", "image", "out", "convert"),
}
GROUPS = {
    "model": ("name", "args", "model", *(f.name for f in fields(OptimConfig))),
    "data": (
        "size", "draw", "batch_size", "augment", "num_workers", "seed", "batches_per_epoch",
        "control", "source", *(f.name for f in fields(DataConfig)),
    ),
}  # fmt: skip
"""Arguments of `Classifier` and of `ImageData`, whose modules import torch."""


def known_options(command: str) -> list[str]:
    """Dotted names of a command's options, without what a class path brings along."""
    groups = {**GROUPS, "trainer": trainer_options()}
    within = [f"{group}.{name}" for group, names in groups.items() for name in names]
    return [*TOP, *OWN[command], *groups, *within]


def trainer_options() -> list[str]:
    """Arguments of Lightning's Trainer, read in its source; empty where that lies elsewhere."""
    spec = find_spec("lightning")
    for place in spec.submodule_search_locations or () if spec else ():
        file = Path(place, "pytorch", "trainer", "trainer.py")
        tree = ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module([], [])
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == "Trainer":
                (made,) = (
                    f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"
                )
                return [a.arg for a in (*made.args.args[1:], *made.args.kwonlyargs)]
    return []


def names_class(args: Sequence[str], files: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a command line, or a file that it names, gives `model` by its class."""
    typed = {word.partition("=")[0] for word in args}
    if typed & {"--model", "--model.class_path"}:
        return True
    models = (content.get("model") for content in files.values())
    return any(isinstance(model, dict) and "class_path" in model for model in models)


def check_options(command: str, args: Sequence[str]) -> None:
    """Refuse options that there are not, and unknown names of data sets and models.

    Raises:
        UserError: names the option, the file and line that it stands in, and what is near.
    """
    files = config_files(args)
    known = known_options(command)
    free = {"trainer"} - {name.partition(".")[0] for name in known if name.startswith("trainer.")}
    if names_class(args, files):
        free |= GROUPS.keys()
    values: dict[str, Any] = {}
    for file, content in files.items():
        for name, value in _two_levels(content):
            if not _is_known(name, known, free):
                where = f"config {file}, line {line_of(Path(file), name)}: "
                raise UserError(f"{where}{_unknown(name, command, known)}")
            values[name] = value
    for here, word in enumerate(args):
        option, equals, value = word.partition("=")
        name = option.removeprefix("--").removesuffix("+")
        if not option.startswith("--") or not name:
            continue
        if not _is_known(name, known, free):
            raise UserError(_unknown(name, command, known, "--"))
        values[name] = value if equals else "".join(args[here + 1 : here + 2])
    data, model = values.get("data.name"), values.get("model.name")
    if isinstance(data, str) and data not in (*NAMES, "null") and "data" not in free:
        DataConfig(name=data).check()
    if "model" not in free and isinstance(model, str | None) and "ckpt_path" not in values:
        inner = values.get("model.args")
        args = [*inner] if isinstance(inner, Mapping) else []
        args += [name.split(".")[2] for name in values if name.startswith("model.args.")]
        check_names(model or "vit", args)


def _two_levels(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in content.items():
        if isinstance(value, Mapping) and name not in TOP:
            yield from ((f"{name}.{inner}", v) for inner, v in value.items())
        else:
            yield name, value


def _is_known(name: str, known: Sequence[str], free: set[str]) -> bool:
    group, _, rest = name.partition(".")
    own = f"{group}.{rest.partition('.')[0]}" if rest and group not in TOP else group
    return own in known or group in free or "help" in (name, rest)


def _unknown(name: str, command: str, known: Sequence[str], dashes: str = "") -> str:
    group, _, rest = name.partition(".")
    if group == "model" and rest in SHAPE:
        return f"{name} comes from the data, it is not set by hand"
    found = get_close_matches(name, known, n=1, cutoff=0.6)
    near = f"did you mean {dashes}{found[0]}?" if found else "--help-all lists them"
    return f"{dashes}{name} is no option of {command}; {near}"
