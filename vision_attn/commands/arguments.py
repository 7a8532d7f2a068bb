"""How a command line and its YAML files are read; a mistake in them becomes one line."""

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vision_attn.errors import UserError

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

__all__ = [
    "command_parser",
    "merge_model_args",
    "one_line",
    "parse",
    "pick_models",
    "strict_yaml",
]

LISTS = ("--models", "--sizes", "--controls")


def command_parser(command: str, description: str) -> "ArgumentParser":
    """One that raises `ArgumentError`, takes no abbreviations and reads YAML by `strict_yaml`."""
    from jsonargparse import ArgumentParser

    strict_yaml()
    return ArgumentParser(
        prog=f"vision-attn {command}",
        description=description,
        exit_on_error=False,
        parser_mode="strict_yaml",
        allow_abbrev=False,
    )


def parse(parser: "ArgumentParser", args: Sequence[str]) -> Any:
    """Values of a command line, or a UserError of one line that names the key."""
    from jsonargparse import ArgumentError

    try:
        return parser.parse_args(_lists(args))
    except ArgumentError as e:
        raise UserError(one_line(e)) from e


def merge_model_args(parser: "ArgumentParser", args: Sequence[str]) -> list[str]:
    """`--args.MODEL.KEY VALUE` changes one argument; by itself it would replace all of MODEL's."""
    from jsonargparse import get_loader

    rest: list[str] = []
    changes: list[tuple[str, str, Any]] = []
    words = iter(args)
    for word in words:
        option = re.fullmatch(r"--args\.(.+)\.(\w+?)(?:=(.*))?", word)
        if not option:
            rest.append(word)
            continue
        model, key, text = option.groups()
        text = next(words, None) if text is None else text
        if text is None:
            raise UserError(f"{word} has no value")
        changes.append((model, key, get_loader("strict_yaml")(text)))
    if not changes or {"-h", "--help"} & set(rest):
        return rest
    merged = {model: dict(values) for model, values in parse(parser, _quiet(rest)).args.items()}
    for model, key, value in changes:
        merged.setdefault(model, {})[key] = value
    return [*rest, f"--args={json.dumps(merged)}"]


def pick_models(parser: "ArgumentParser", args: Sequence[str]) -> list[str]:
    """`--models` picks from a file's models by label; what the file says of the others goes."""
    from vision_attn.compare.study import label_of
    from vision_attn.models import known_models

    line = _lists(args)
    if "--models" not in line or {"-h", "--help"} & set(line):
        return line
    rest = list(line)
    while "--models" in rest:
        at = rest.index("--models")
        del rest[at : at + 2]
    held = {label_of(entry): entry for entry in parse(parser, _quiet(rest)).models}
    asked = parse(parser, _quiet(line))
    models = [held.get(entry, entry) for entry in asked.models]
    others = held.keys() - {label_of(entry) for entry in models}
    args_left = {k: v for k, v in asked.args.items() if k not in others - {*known_models()}}
    line += [f"--models={json.dumps(models)}", f"--args={json.dumps(args_left)}"]
    if isinstance(asked.match_to, dict):
        match_left = {k: v for k, v in asked.match_to.items() if k not in others}
        line.append(f"--match_to={json.dumps(match_left)}")
    return line


def _quiet(args: Sequence[str]) -> list[str]:
    """Without what prints and ends the program."""
    return [word for word in args if not word.startswith("--print_config")]


def one_line(error: Exception) -> str:
    """What jsonargparse says, without its indented hints on every type it tried."""
    lines = [line.strip(" -") for line in str(error).splitlines() if line.strip()]
    lines[3:] = [line for line in lines[3:] if line.startswith("Given value:")]
    return "; ".join(lines).replace(":; ", ": ")


def _lists(args: Sequence[str]) -> list[str]:
    """`--models vit,cnn` is short for `--models [vit,cnn]`, and so it is for sizes and controls."""
    line: list[str] = []
    for arg in args:
        for name in LISTS:
            if arg.startswith(f"{name}="):
                line, arg = [*line, name], arg.removeprefix(f"{name}=")
        short = line[-1:] in ([name] for name in LISTS) and not arg.startswith(("[", "-"))
        line.append(f"[{arg}]" if short else arg)
    return line


def strict_yaml() -> None:
    """YAML as jsonargparse reads it (1e-3 is a number), less what it takes without a word.

    A key that stands twice, of which the last would win, and 010, which would be 8, are errors.
    """
    import yaml
    from jsonargparse import set_loader
    from jsonargparse._loaders_dumpers import get_yaml_default_loader, yaml_load

    base: Any = get_yaml_default_loader()

    def check(node: yaml.Node) -> None:
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in seen:
                    raise yaml.YAMLError(f"key {key.value!r} stands twice, {key.start_mark}")
                seen.add(getattr(key, "value", ""))
                check(value)
        elif isinstance(node, yaml.SequenceNode):
            for value in node.value:
                check(value)
        elif node.tag.endswith(":int") and re.fullmatch("[-+]?0[0-9_]+", node.value):
            raise yaml.YAMLError(f"number {node.value} begins with 0, {node.start_mark}")

    def load(text: str) -> Any:
        node = yaml.compose(text, Loader=base)
        if node is not None:
            check(node)
        return yaml_load(text)

    set_loader("strict_yaml", load, exceptions=(yaml.YAMLError,))
