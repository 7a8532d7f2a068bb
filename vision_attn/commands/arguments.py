"""How a command line and its YAML files are read; a mistake in them becomes one line."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentError, ArgumentParser

from vision_attn.commands.strict_yaml import (
    LARGEST,
    Doubtful,
    config_files,
    doubt,
    line_of,
    load_yaml,
    set_strict_yaml,
)
from vision_attn.errors import UserError
from vision_attn.names import near
from vision_attn.texts import program

__all__ = [
    "checked",
    "command_parser",
    "one_line",
    "out_path",
    "parse",
]


def command_parser(command: str, description: str) -> ArgumentParser:
    """One that raises `ArgumentError`, takes no abbreviations and reads YAML strictly."""
    set_strict_yaml()
    return ArgumentParser(
        prog=f"{program()} {command}",
        usage=f"{program()} {command} [options]",
        description=description,
        exit_on_error=False,
        parser_mode="strict_yaml",
        allow_abbrev=False,
    )


def parse(parser: ArgumentParser, args: Sequence[str]) -> Any:
    """Values of a command line, or a UserError of one line that names the key."""
    return checked(parser, args, parser.parse_args)


def checked(
    parser: ArgumentParser, args: Sequence[str], read: Callable[[Sequence[str]], Any]
) -> Any:
    """What `read` makes of a command line of `parser`, where nothing in it is a mistake.

    jsonargparse takes null for every option of a file, 010 and 1:30 for numbers.
    """
    defaults = dict(parser.get_defaults().items())
    files = _read_files(args, defaults)
    try:
        given = read(args)
        nulls = [k for k, v in given.items() if v is None and defaults.get(k) is not None]
        again = read([f"--{name}=null" for name in nulls]) if nulls else {}
    except ArgumentError as e:
        raise UserError(_explained(e, args, files, defaults)) from e
    except UnicodeDecodeError as e:  # of a file that stands for a group of options
        raise UserError("a file that the command line names is no UTF-8 text") from e
    for name in nulls:
        if again.get(name) is not None:  # the text `null`
            raise UserError(f"{name} is null; wanted text")
    _refuse_values(_written(args, files), given.as_dict())
    return given


def out_path(text: str, name: str = "out") -> Path:
    """A directory or file of the command line; an empty name would be the one that one is in."""
    if not text.strip():
        raise UserError(f"{name} is empty; give it a name")
    return Path(text)


def _read_files(args: Sequence[str], options: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What the files of `--config` hold, by name, where each group of `options` is a mapping."""
    files = config_files(args)
    groups = {option.rpartition(".")[0] for option in options} - {""}
    for file, content in files.items():
        for name, value in content.items():
            if name in groups and not isinstance(value, dict):
                raise UserError(
                    f"config {file}, line {line_of(Path(file), name)}: {name} is {_short(value)};"
                    " wanted its options, or take it out"
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


def _refuse_values(written: Iterable[tuple[str, Any]], given: Mapping[str, Any]) -> None:
    """Refuse text that became another number than one reads, and whole numbers too large."""
    for option, text in written:
        value: Any = given
        for part in option.removeprefix("--").split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        first = value[0] if isinstance(value, list) and value else value
        number = isinstance(first, int | float) and isinstance(text, str)
        if number and (problem := doubt(text.strip())):
            raise UserError(f"{option}: {problem.partition(', or')[0]}")
    for option, value in _leaves(given):
        if isinstance(value, int) and abs(value) >= LARGEST:
            raise UserError(f"{option} is {_short(value)}, which is too large a number")


def _written(
    args: Sequence[str], files: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, Any]]:
    """Options and their values as they stand on the line, within one of its words, or in a file."""
    for content in files.values():
        yield from _leaves(content)
    for option, text in _pairs(args):
        yield option, text
        if text.lstrip().startswith(("[", "{")):
            with suppress(yaml.YAMLError):
                yield from _leaves(load_yaml(text), option)


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


def one_line(error: Exception) -> str:
    """What jsonargparse says, without its indented hints on every type it tried."""
    lines = [line.strip(" -") for line in str(error).splitlines() if line.strip()]
    lines[3:] = [line for line in lines[3:] if line.startswith("Given value:")]
    said = "; ".join(dict.fromkeys(lines)).replace(":; ", ": ")
    for form in (
        r'Parser key "(?P<name>.+?)": Expected an? (?P<types>.+?)\. Got value: (?P<value>.*)',
        r'Parser key "(?P<name>.+?)": Does not validate against any of the Union subtypes;'
        r" Subtypes: \[(?P<types>.+)\]; Given value: ?(?P<value>.*)",
    ):
        if parts := re.fullmatch(form, said):
            value = parts["value"].partition("; Given value:")[0]  # the value is repeated
            value = "null" if value == "None" else value or "empty"
            return f"{parts['name']} is {value}; wanted {_types(parts['types'])}"
    return said


def _types(text: str) -> str:
    """`int or null` of `<class 'int'>, <class 'NoneType'>`."""
    text = re.sub(r"list\[typing\.Union\[(.*?)\]\]", r"\1", text)
    names = re.sub(r"typing\.Literal\[(.*?)\]", r"\1", re.sub("<class '(.+?)'>", r"\1", text))
    names = re.sub(r"\bNoneType\b", "null", names.replace("'", ""))
    for name, plain in (("int", "whole number"), ("float", "number"), ("bool", "true or false")):
        names = re.sub(rf"\b{name}\b", plain, names)
    return re.sub(r"\bdict\b", "mapping", re.sub(r"\bstr\b", "text", names))


def _explained(
    error: Exception,
    args: Sequence[str],
    files: Mapping[str, Mapping[str, Any]],
    options: Iterable[str],
) -> str:
    """The same, with the file and line that it is about, and the option next to a mistyped one."""
    said = one_line(error)
    if unknown := re.match("unrecognized arguments: --([^ =]+)", said):
        return said + _near(unknown[1], options, "--")
    unknown = re.match(r"(?:Option|Group|Subcommand) '(.+?)' .*?accept(?:ed| option '(.+)')", said)
    if unknown:
        name = ".".join(part for part in unknown.groups() if part)
        return f"{_place(name, args, files)}{name} is no option{_near(name, options)}"
    named = re.match(r"(\S+) is .*; wanted ", said)
    return f"{_place(named[1], args, files) if named else ''}{said}"


def _place(name: str, args: Sequence[str], files: Mapping[str, Mapping[str, Any]]) -> str:
    """`config some.yaml, line 3: ` of an option that stands in a file, and not on the line."""
    if any(option == f"--{name}" for option, _ in _pairs(args)):
        return ""
    for file in reversed(list(files)):
        if (line := line_of(Path(file), name)) is not None:
            return f"config {file}, line {line}: "
    return ""


def _near(name: str, options: Iterable[str], dashes: str = "") -> str:
    """`; did you mean draws?`, or nothing."""
    names = {part for option in options for part in (option, option.rpartition(".")[0]) if part}
    found = near(name, sorted(names), cutoff=0.7)
    return f"; {found.replace('mean ', f'mean {dashes}')}" if found.endswith("?") else ""
