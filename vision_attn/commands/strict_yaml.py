"""YAML read strictly: what YAML 1.1 takes without a word is refused, with the line."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import get_loader, set_loader

from vision_attn.errors import UserError

__all__ = ["Doubtful", "config_files", "doubt", "line_of", "load_yaml", "set_strict_yaml"]

LONGEST = 100_000
"""Characters of a text; a configuration has some thousands."""

MOST = 10_000
"""Values that a text stands for, one behind an anchor counted each time."""

LARGEST = 2**63


class Doubtful(yaml.MarkedYAMLError):
    """Well-formed YAML that hardly means what it says."""


class _Loader(yaml.SafeLoader):
    """In Python throughout, where a nesting without end is an exception and no crash."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """A tag asks for a type of Python's, and each option has its own."""
        event: Any = self.peek_event()
        if getattr(event, "tag", None) is not None:
            raise Doubtful(problem=f"tag {event.tag} is not read", problem_mark=event.start_mark)
        return super().compose_node(parent, index)


def load_yaml(text: str) -> Any:
    """A YAML text as jsonargparse reads it, in which 1e-3 is a number and a date is text.

    Raises:
        yaml.YAMLError: no YAML; a key that stands twice, of which the last would win; 010, which
            would be 8, and 1:30, which would be 90; anchors that hold themselves or stand for more
            values than `MOST`; tags; keys that are no text or number.
    """
    if len(text) > LONGEST:
        raise Doubtful(problem=f"{len(text):,} characters, at most {LONGEST:,} are read")
    try:
        node = yaml.compose(text, Loader=_Loader)
        if node is not None:
            _count(node, {})
    except RecursionError as e:
        raise Doubtful(problem="lists or mappings are nested too deep") from e
    return get_loader("yaml")(text)


def _count(node: yaml.Node, counts: dict[int, int]) -> int:
    """How many values a node stands for; each node is looked at once, and 0 while that goes on."""
    key = id(node)
    if key in counts:
        if not counts[key]:
            raise Doubtful(problem="an anchor holds itself", problem_mark=node.start_mark)
        return counts[key]
    counts[key], count = 0, 1
    if isinstance(node, yaml.MappingNode):
        names: set[str] = set()
        for name, value in node.value:
            if not name.tag.endswith((":str", ":merge")):
                raise Doubtful(
                    problem=f"key {name.value} is no text; put it in quotes"
                    if isinstance(name, yaml.ScalarNode)
                    else "a key is a list or a mapping",
                    problem_mark=name.start_mark,
                )
            if name.value in names:
                raise Doubtful(
                    problem=f"duplicate key {name.value!r}", problem_mark=name.start_mark
                )
            names.add(name.value)
            count += _count(name, counts) + _count(value, counts)
    elif isinstance(node, yaml.SequenceNode):
        count += sum(_count(value, counts) for value in node.value)
    elif isinstance(node, yaml.ScalarNode) and node.style is None and (said := doubt(node.value)):
        raise Doubtful(problem=said, problem_mark=node.start_mark)  # where no quotes are
    if count > MOST:
        raise Doubtful(
            problem=f"more than {MOST:,} values, anchors counted each time",
            problem_mark=node.start_mark,
        )
    counts[key] = count
    return count


def doubt(text: str) -> str | None:
    """What is wrong with a number as it is written, or None."""
    if re.fullmatch(r"[-+]?0[0-9_]+", text):
        plain = text.lstrip("+-0_").replace("_", "") or "0"
        return f"number {text} begins with 0, which may mean octal; write {plain}, or '{text}'"
    if re.fullmatch(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?", text):
        return f"{text} is a number to the base of 60; write it in digits, or '{text}'"
    if re.fullmatch(r"[-+]?[0-9_]{19,}", text) and abs(int(text[:30].replace("_", ""))) >= LARGEST:
        return f"number {text[:20]}... of {len(text)} digits is too large"
    return None


def set_strict_yaml() -> None:
    """What the parser mode `strict_yaml` means to jsonargparse."""
    set_loader("strict_yaml", load_yaml, exceptions=(yaml.YAMLError,))


def config_files(args: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What the files of `--config` hold, by their names as given.

    Raises:
        UserError: a file that is none, no text, no YAML or no mapping; with its name and the line.
    """
    return {name: _read(name) for name in _names(args)}


def line_of(file: Path, name: str) -> int | None:
    """The line of a dotted name in a file that `config_files` has read; None if it is not there."""
    node, line = yaml.compose(file.read_text(encoding="utf-8"), Loader=_Loader), None
    for part in name.split("."):
        if not isinstance(node, yaml.MappingNode):
            return None
        found = [pair for pair in node.value if pair[0].value == part]
        if not found:
            return None
        line, node = found[0][0].start_mark.line + 1, found[0][1]
    return line


def _names(args: Sequence[str]) -> Iterator[str]:
    for here, word in enumerate(args):
        option, equals, value = word.partition("=")
        if option in ("--config", "-c") and (equals or here + 1 < len(args)):
            name = value if equals else args[here + 1]
            if not name.strip().startswith("{"):  # options written out, which the parser reads
                yield name


def _read(name: str) -> dict[str, Any]:
    path = Path(name)
    try:
        if not name or not path.is_file():
            what = "is a folder" if name and path.is_dir() else "is no file"
            raise UserError(f"config {name!r} {what}; wanted a YAML file of options")
        if path.stat().st_size > 4 * LONGEST:
            raise UserError(f"config {name} has {path.stat().st_size:,} bytes; wanted YAML options")
        text = path.read_bytes().decode("utf-8")
        content = load_yaml(text)
    except OSError as e:
        raise UserError(f"config {name[:200]} cannot be read: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise UserError(
            f"config {name} is no UTF-8 text (byte {e.object[e.start]:#04x} at {e.start});"
            " save it as UTF-8"
        ) from e
    except yaml.YAMLError as e:
        raise UserError(f"config {name}{_where(e)}") from e
    if not isinstance(content, dict):
        what = "is empty" if content is None or content == "" else "holds no options"
        raise UserError(f"config {name} {what}; wanted lines such as `batch_size: 64`")
    if "config" in content:
        raise UserError(f"config {name} names another in `config`; give --config twice instead")
    return content


def _where(error: yaml.YAMLError) -> str:
    """`, line 3: what is wrong`."""
    if not isinstance(error, yaml.MarkedYAMLError):
        said = str(error).replace(' in "<unicode string>"', "")
        return f": {said}"
    mark = error.problem_mark or error.context_mark
    line = "" if mark is None else f", line {mark.line + 1}"
    return f"{line}: {', '.join(part for part in (error.context, error.problem) if part)}"
