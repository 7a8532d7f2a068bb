"""How a command line and its YAML files are read; a mistake in them becomes one line."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from vision_attn.errors import UserError

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

__all__ = [
    "command_parser",
    "explained",
    "merge_model_args",
    "one_line",
    "parse",
    "pick_models",
    "refuse_config",
    "refuse_values",
]

LISTS = ("--models", "--sizes", "--controls")


def command_parser(command: str, description: str) -> "ArgumentParser":
    """One that raises `ArgumentError`, takes no abbreviations and reads YAML strictly."""
    from jsonargparse import ArgumentParser

    from vision_attn.commands.strict import set_strict_yaml

    set_strict_yaml()
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

    line = _lists(args)
    files = refuse_config(line, parser.get_defaults().keys())
    try:
        given = parser.parse_args(line)
    except ArgumentError as e:
        raise UserError(explained(e, files, parser.get_defaults().keys())) from e
    except UnicodeDecodeError as e:  # of a file that stands for a group of options
        raise UserError("a file that the command line names is no UTF-8 text") from e
    refuse_values(line, given.as_dict())
    return given


def refuse_config(args: Sequence[str], options: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What the files of `--config` hold, by name, where each group of `options` is a mapping."""
    import yaml

    from vision_attn.commands.strict import Doubtful, config_files, load_yaml

    files = config_files(args)
    groups = {option.rpartition(".")[0] for option in options} - {""}
    for file, content in files.items():
        for name, value in content.items():
            if name in groups and not isinstance(value, dict):
                raise UserError(
                    f"config {file}: {name} is {_short(value)}; wanted options of it, or take it out"
                )
    for option, text in _pairs(args):
        if text.lstrip().startswith(("[", "{")):
            try:
                load_yaml(text)
            except Doubtful as e:
                raise UserError(f"{option}: {e.problem}") from e
            except yaml.YAMLError:
                continue  # a text, or the parser says what is wrong
    return files


def refuse_values(args: Sequence[str], given: Mapping[str, Any]) -> None:
    """Refuse numbers of a command line that hardly mean what they say, and whole ones too large."""
    from vision_attn.commands.strict import LARGEST, doubt

    for option, text in _pairs(args):
        value: Any = given
        for part in option.removeprefix("--").split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, int | float) and (problem := doubt(text.strip())):
            raise UserError(f"{option}: {problem.partition(', or')[0].partition(' for text')[0]}")
    for option, value in _leaves(given):
        if isinstance(value, int) and abs(value) >= LARGEST:
            raise UserError(f"{option} is {_short(value)}, which is too large a number")


def _pairs(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options and their values, as `--name value` or `--name=value`."""
    for here, word in enumerate(args):
        option, equals, text = word.partition("=")
        if option.startswith("--"):
            yield option, text if equals else "".join(args[here + 1 : here + 2])


def _leaves(tree: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted names and values of all that is no mapping or list."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _leaves(value, f"{above}.{key}" if above else str(key))
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _leaves(value, above)
    else:
        yield above, tree


def _short(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def merge_model_args(parser: "ArgumentParser", args: Sequence[str]) -> list[str]:
    """`--args.MODEL.KEY VALUE` changes one argument; by itself it would replace all of MODEL's."""
    import yaml

    from vision_attn.commands.strict import load_yaml

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
        try:
            changes.append((model, key, load_yaml(text)))
        except yaml.YAMLError as e:
            what = e.problem if isinstance(e, yaml.MarkedYAMLError) else str(e)
            raise UserError(f"--args.{model}.{key} is {text[:40]!r}: {what}") from e
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
    return "; ".join(dict.fromkeys(lines)).replace(":; ", ": ")


def explained(
    error: Exception, files: Mapping[str, Mapping[str, Any]], options: Iterable[str]
) -> str:
    """The same, with the file that an unknown option stands in, and the known one next to it."""
    said = one_line(error)
    unknown = re.match("unrecognized arguments: --([^ =]+)", said)
    if unknown:
        return said + _near(unknown[1], options, "--")
    unknown = re.match(r"(?:Option|Group|Subcommand) '(.+?)' .*?accept(?:ed| option '(.+)')", said)
    if not unknown:
        return said
    name = ".".join(part for part in unknown.groups() if part)
    within = [file for file, content in files.items() if _holds(content, name)]
    where = f"config {within[0]}: " if within else ""
    return f"{where}{said}{_near(name, options)}"


def _near(name: str, options: Iterable[str], dashes: str = "") -> str:
    """`; did you mean draws?`, or nothing."""
    names = {option: option for option in options}
    names |= {option.rpartition(".")[0]: option.rpartition(".")[0] for option in [*names]}
    near = get_close_matches(name, [n for n in names if n], n=1)
    return f"; did you mean {dashes}{near[0]}?" if near else ""


def _holds(content: Any, name: str) -> bool:
    """Whether a mapping of mappings has a dotted name."""
    for part in name.split("."):
        if not isinstance(content, Mapping) or part not in content:
            return False
        content = content[part]
    return True


def _lists(args: Sequence[str]) -> list[str]:
    """`--models vit,cnn` is short for `--models [vit,cnn]`, and so it is for sizes and controls."""
    line: list[str] = []
    for arg in args:
        for name in LISTS:
            if arg.startswith(f"{name}="):
                line, arg = [*line, name], arg.removeprefix(f"{name}=")
        if line[-2:-1] and line[-2] in LISTS and not arg.startswith("-"):
            text = line[-1].strip("[]")
            raise UserError(f"{line[-2]} takes one list: write {line[-2]} {text},{arg.strip(',')}")
        short = line[-1:] in ([name] for name in LISTS) and not arg.startswith(("[", "-"))
        line.append(f"[{arg}]" if short else arg)
    return line
