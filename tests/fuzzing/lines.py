"""Random command lines and YAML files: right ones, right ones with one mistake, and noise."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml
from fuzzing.options import BROKEN, MOSTLY, TABLES, WEIGHTS
from hypothesis import strategies as st

Kind = Literal["right", "wrong", "noise"]


@dataclass(frozen=True)
class Case:
    """A command line, the files that it names, and whether it can be meant."""

    kind: Kind
    argv: list[str]
    files: dict[str, bytes] = field(default_factory=dict)

    def __str__(self) -> str:
        files = "".join(f"\n    {name}: {content!r}" for name, content in self.files.items())
        return f"{self.kind}: vision-attn {shlex.join(self.argv)}{files}"


def option(name: str, text: str) -> list[str]:
    """An option on the line, where quotes around it would be the shell's."""
    return [f"--{name}", text.strip("'")]


def tree(options: dict[str, str]) -> str:
    """Options as a YAML file; the texts stand in it as they are."""
    nested: dict[str, Any] = {}
    for name, text in options.items():
        *above, last = name.split(".")
        holder = nested
        for part in above:
            holder = holder.setdefault(part, {})
        holder[last] = text

    def lines(level: dict[str, Any], indent: str) -> Iterator[str]:
        for key, value in level.items():
            if isinstance(value, dict):
                yield f"{indent}{key}:"
                yield from lines(value, indent + "  ")
            else:
                yield f"{indent}{key}: {value or repr(value)}"

    return "\n".join([*lines(nested, ""), ""])


def needed(command: str) -> list[str]:
    """What a command cannot do without."""
    if command == "explain":
        return ["--ckpt", "a file", "--image", "a file", "--out", "x.png"]
    return ["a folder"] if command == "plot" else []


@st.composite
def right(draw: st.DrawFn) -> Case:
    """Options in their ranges, some on the line, some in a file that the line may override."""
    command = draw(st.sampled_from([c for c in MOSTLY if c not in WEIGHTS]))
    table = {name: good for name, (good, _) in TABLES[command].items() if good}
    names = draw(st.lists(st.sampled_from(sorted(table)), max_size=5, unique=True)) if table else []
    chosen = {name: draw(st.sampled_from(table[name])) for name in names}
    if "controls" in chosen:
        chosen.pop("augment.pad", None)
    in_file = {n: v for n, v in chosen.items() if command != "explain" and draw(st.booleans())}
    in_file.pop("out", None)  # some of its names would need quotes there
    argv = [command, *needed(command)]
    files: dict[str, bytes] = {}
    if in_file:
        files["c.yaml"] = tree(in_file).encode()
        argv += ["--config", "c.yaml"]
    for name, text in chosen.items():
        if name not in in_file:
            argv += option(name, text)
    return Case("right", argv, files)


@st.composite
def wrong(draw: st.DrawFn) -> Case:
    """A right command line with one mistake at its end."""
    case = draw(right())
    command, argv, files = case.argv[0], list(case.argv), dict(case.files)
    table = {name: bad for name, (_, bad) in TABLES[command].items() if bad}
    takes_file = command not in ("explain", "plot")
    ways = ["option", "command", "word", "value", *(["file", "twice"] if takes_file else [])]
    way = draw(st.sampled_from(ways + ["bad"] * 6 + ["bad file"] * 3 * takes_file))
    if way in ("bad", "bad file") and table:
        name = draw(st.sampled_from(sorted(table)))
        text = draw(st.sampled_from(table[name]))
        # a file given later, or the same option on the line, would take its place
        gone = [at for at, word in enumerate(argv) if word == f"--{name}"]
        for at in reversed(gone):
            del argv[at : at + 2]
        if way == "bad":
            argv += option(name, text)
        else:
            files["bad.yaml"] = tree({name: text}).encode()
            argv += ["--config", "bad.yaml"]
    elif way == "file":
        files["bad.yaml"] = draw(st.sampled_from(BROKEN))
        argv += ["--config", "bad.yaml"]
    elif way == "twice":
        name = draw(st.sampled_from(sorted(table)))
        line = tree({name: "1"})
        files["bad.yaml"] = (line + line).encode()
        argv += ["--config", "bad.yaml"]
    elif way == "option":
        argv += [draw(st.sampled_from(["--modles", "--x.y", "-x", "--", "--optim.l"])), "1"]
    elif way == "command":
        argv[0] = draw(st.sampled_from(["", "comparee", "Compare", "-x", "--versio", "fit "]))
    elif way == "word":
        argv = [command, "no such folder"] if command == "plot" else [*argv, "--", "word"]
    else:
        argv = [*argv, f"--{draw(st.sampled_from(sorted(TABLES[command] or {'out': 0})))}"]
        if command in ("explain", "plot") and argv[-1] != "--out":
            argv[-1] = "--out"
    return Case("wrong", argv, files)


def each(command: str) -> list[Case]:
    """Every bad value of every option of a command, on the line and in a file."""
    cases: list[Case] = []
    for name, (_, bad) in TABLES[command].items():
        for text in bad:
            cases.append(Case("wrong", [command, *needed(command), *option(name, text)]))
            if command not in ("explain", "plot"):
                files = {"bad.yaml": tree({name: text}).encode()}
                cases.append(Case("wrong", [command, "--config", "bad.yaml"], files))
    return cases


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), max_size=8)
NAMES = st.sampled_from(sorted({"config", *(name for t in TABLES.values() for name in t)}))
VALUES = st.one_of(
    st.sampled_from(sorted({v for t in TABLES.values() for g, b in t.values() for v in (*g, *b)})),
    WORDS,
    st.integers().map(str),
    st.floats().map(str),
)  # fmt: skip
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def noise(draw: st.DrawFn) -> Case:
    """Words that may be options, files that may be YAML."""
    command = draw(st.sampled_from([*MOSTLY, "x"]))
    own = st.sampled_from(sorted(TABLES.get(command) or {"out": 0}))
    argv = [command]
    for _ in range(draw(st.integers(0, 4))):
        name, value = draw(own | own | NAMES | WORDS), draw(VALUES)
        if name.strip("-") == "help" or name.startswith("print_config"):
            continue
        argv += draw(st.sampled_from([[f"--{name}", value], [f"--{name}={value}"], [value]]))
    files: dict[str, bytes] = {}
    if draw(st.booleans()):
        made = st.dictionaries(
            (own | NAMES).map(lambda n: n.split(".")[0]) | WORDS, PLAIN, max_size=3
        )
        text = draw(
            made.map(lambda d: yaml.safe_dump(d, allow_unicode=True)) | st.text(max_size=30)
        )
        content = bytearray(text.encode("utf-8", "surrogatepass"))
        for _ in range(draw(st.integers(0, 2))):  # a slip of the finger
            at = draw(st.integers(0, len(content)))
            content[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
        files["c.yaml"] = bytes(content)
        argv += ["--config", "c.yaml"]
    return Case("noise", argv, files)


CASES: st.SearchStrategy[Case] = st.one_of(right(), wrong(), wrong(), noise())
