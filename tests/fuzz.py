"""Random command lines and YAML files: each is done or refused in one line, at once.

    python tests/fuzz.py --examples 2000 --each

Three kinds of input for every command: right ones must reach the work (which is stubbed out), one
mistake in a right one must be refused, and of noise only that it ends in one line is known. What
is none of this is printed, with the command line and the files that show it again.
"""

import argparse
import contextlib
import io
import logging
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from vision_attn.cli import COMMANDS, main

SECONDS = 20
"""For one input, most of which take a tenth of a second."""

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


class Reached(BaseException):
    """The program would begin to work now."""


class Slow(BaseException):
    """It did not answer within `SECONDS`."""


# What an option takes and what it does not, as text on the line or in a file.
WHOLE = ["x", "", "1.5", "010", "1:30", "1e3", "nan", "[1]", "{a: 1}", "true", "9" * 20]
LEAST_ONE = [*WHOLE, "0", "-1", "null"]
REAL = ["x", "", "nan", ".nan", ".inf", "-1", "010", "1:30", "[1]", "true", "null", "1e400"]
FLAG = ["x", "", "2", "1.5", "[true]", "null"]
NAME = ["x", "3", "[a]", "null"]

Table = dict[str, tuple[list[str], list[str]]]

DATA: Table = {
    "data.name": (["digits"], ["cifar11", "", "null", "[digits]"]),
    "data.val_fraction": (["0.1", "0.25", "1e-1"], [*REAL, "0", "1", "2"]),
    "data.img_size": (["null"], ["8", "0", "-1", "x", "1.5", "100000"]),
    "data.root": (["null"], []),
}
STUDY: Table = DATA | {
    "models": (
        ["[vit]", "[cnn, vit]", "[linear]", "[small=vit, cnn]", "[vit, pixel_vit]"],
        ["[]", "[vat]", "[vit, vit]", "[vit, 3]", "[[vit]]", "null", "['=vit']", "['vit=']",
         "[timm:vgg11]", "[timm:resnet17]", "{vit: 1}", "[vit"],
    ),
    "sizes": (
        ["[20]", "[20, all]", "[50, 100]", "['30']"],
        ["[]", "[0]", "[-1]", "[1.5]", "[20, 20]", "[all, all]", "[ALL]", "[020]", "[1:30]",
         "['020']", "[7]", "[5000]", "null", "[null]", "[[20]]", "20 30", "[20", "[true]"],
    ),
    "draws": (["1", "3", "'2'"], [*LEAST_ONE, "1000000000"]),
    "seeds": (["1", "2"], [*LEAST_ONE, "1000000000"]),
    "batch_size": (["1", "64", "1000"], LEAST_ONE),
    "rows": (["1", "10"], [*LEAST_ONE, "1000000000"]),
    "threads": (["1", "2"], [*LEAST_ONE, "100000"]),
    "tune": (["0", "2"], [*WHOLE, "-1", "null", "1000000000"]),
    "budget.steps": (["1", "400", "null", "1_000"], [*WHOLE, "0", "-1", "10000000000"]),
    "budget.epochs": (["1", "20", "null"], [*WHOLE, "0", "-1", "10000000000"]),
    "optim.lr": (["1e-3", "0.1", "1"], [*REAL, "0"]),
    "optim.weight_decay": (["0", "0.05", "1e-4"], REAL),
    "optim.warmup": (["0", "0.1"], [*REAL, "1", "2"]),
    "optim.label_smoothing": (["0", "0.1"], [*REAL, "1"]),
    "optim.ema": (["null", "0.9", "0"], [v for v in REAL if v != "null"] + ["1"]),
    "optim.compile": (["true", "false", "no"], FLAG),
    "augment.pad": (["0", "2"], [*WHOLE, "-1", "null"]),
    "augment.flip": (["true", "off"], FLAG),
    "augment.randaugment": (["null", "rand-m9-n2"], ["auto", "[1]"]),
    "tuning.lr": (["[1e-4, 1e-2]"], ["[0, 1]", "[1]", "[2, 1]", "x", "null", "[1, .nan]"]),
    "precision": (["32-true", "bf16-mixed"], ["8", "", "null", "[32]"]),
    "select": (["last", "best"], NAME),
    "match": (["params", "none"], NAME),
    "controls": (["[none]", "[shuffled]"], ["[]", "[x]", "null", "[none, none]", "{a: b}"]),
    "checkpoint": (["true", "false"], FLAG),
    "measure": (["true", "false"], FLAG),
    "args.vit.depth": (["1", "4"], [v for v in LEAST_ONE if v not in ("0", "-1", "null", "true")]),
    "args.vit.num_heads": (["2", "4"], ["x", "010", "1:30", "[1]", "9" * 20]),
    "args.vit.pos_embed": (["none", "sincos2d"], ["x", "[1]", "3"]),
    "args.vit.nothing": ([], ["1", "x"]),
    "args.cnn.depth": (["1", "2"], [v for v in LEAST_ONE if v not in ("null", "true")]),
    "args.vat.depth": ([], ["1"]),
}  # fmt: skip
COMPARE: Table = STUDY | {
    "out": (["o", "a/b", "010", "1:30"], ["", "/proc/x", "/dev/null", "a file/x"]),
    "workers": (["null", "1", "2"], [*WHOLE, "0", "-1", "100000"]),
}
FIT: Table = DATA | {
    "model.name": (["vit", "cnn", "linear"], ["vat", "", "null", "[vit]", "timm:resnet17"]),
    "model.lr": (["1e-3", "0.1"], [*REAL, "0"]),
    "model.warmup": (["0", "0.1"], [*REAL, "1"]),
    "model.weight_decay": (["0", "0.1"], REAL),
    "model.ema": (["null", "0.9"], [v for v in REAL if v != "null"] + ["1"]),
    "model.channels_last": (["true", "false"], FLAG),
    "model.num_classes": ([], ["3"]),
    "model.args.drop_rate": (["0", "0.1"], ["x", "[1]", "{a: 1}"]),
    "data.size": (["null", "20", "500"], [*WHOLE, "0", "-1", "7", "5000"]),
    "data.draw": (["0", "3"], [*WHOLE, "-1", "null"]),
    "data.batch_size": (["1", "64"], LEAST_ONE),
    "data.seed": (["0", "7"], [*WHOLE, "-1", "null"]),
    "data.augment.pad": (["0", "2"], ["x", "-1", "[1]"]),
    "seed_everything": (["0", "17", "true"], ["x", "", "-1", "010", "1:30", "[1]", "9" * 20]),
    "trainer.max_epochs": (["1", "50", "null"], ["x", "", "-7", "1.5", "010", "1:30", "9" * 20]),
    "trainer.max_steps": (["7", "-1"], ["x", "", "-7", "null", "010", "1:30"]),
    "trainer.accelerator": (["cpu", "auto"], ["x", "", "[cpu]", "null"]),
    "trainer.devices": (["1", "auto"], ["0", "-7", "x", "[]"]),
    "trainer.strategy": (["auto"], ["x", "", "3", "null"]),
    "trainer.precision": (["32-true", "null"], ["8", "x", "[32]"]),
    "trainer.accumulate_grad_batches": (["1", "4"], [*LEAST_ONE]),
    "trainer.check_val_every_n_epoch": (["1", "null"], ["0", "-1", "x", "010", "[1]"]),
    "trainer.gradient_clip_val": (["null", "1.0"], ["-1", "x", "1:30", "[1]"]),
    "trainer.limit_train_batches": (["null", "0.5", "3"], ["1.5", "-1", "x", "[1]"]),
    "trainer.profiler": (["null", "simple"], ["x", "3"]),
    "ckpt_path": (["null"], ["none.ckpt", "a file", "a folder", ""]),
    "optimizer": ([], ["AdamW", "x"]),
}
DIAGNOSE: Table = {k: v for k, v in DATA.items() if k != "data.val_fraction"} | {
    "out": (["o", "a/b"], ["", "a file"]),
}
EXPLAIN: Table = {
    "ckpt": (["a file"], []),
    "out": (["x.png", "x.pdf", "x.svg", "x.html"], [""]),
    "scale": (["even", "max", "shared"], ["", "min"]),
    "rollout": (["mean", "max", "gradient"], ["", "min"]),
    "weights": (["pretrained"], ["none"]),
    "layers": (["null", "0", "0,2", "[0, 1]"], ["", "x", "1:30", "010", "1.5", "0,,1"]),
    "heads": (["null", "1"], ["", "x", "1:30", "0x1"]),
    "query": (["null", "3,4"], ["", "3", "1,2,3", "x,y", "9" * 30 + ",1"]),
    "overwrite": (["true", "false"], ["x", "2"]),
}
TABLES: dict[str, Table] = {
    "compare": COMPARE,
    "budget": STUDY,
    "fit": FIT,
    "validate": FIT,
    "test": FIT,
    "predict": FIT,
    "diagnose": DIAGNOSE,
    "explain": EXPLAIN,
    "plot": {},
}
MOSTLY = ["compare"] * 6 + ["budget", "fit", "fit", "explain", "diagnose", "plot"] + [*TABLES]

BROKEN: list[bytes] = [
    b"", b"# nothing\n", b"\0", b"\xff\xfe", "é: 1".encode("latin1"), "a: 1".encode("utf-16"),
    bytes(range(256)), b"- a\n- b\n", b"just text", b"3", b"null", b"1: 2", b"null: 3",
    b"? [a]\n: 3", b"seed: [1", b"a: {b", b"a:\tb\n\tc: d", b"--- 1\n--- 2", b"&a {x: *a}",
    b"a: *b", b"a: !!python/object/apply:os.getcwd []", b"!!set {a}", b"a: !b c", b"config: a file",
    b"a: " + b"[" * 3000, b"a: " + b"[" * 3000 + b"]" * 3000, b"- " * 3000, b"a: 1" + b"0" * 5000,
    b"a0: &a0 {b: 1}\n" + b"".join(
        b"a%d: &a%d [%s]\n" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 12)),
]  # fmt: skip
"""Files that no command can take."""


def option(name: str, text: str) -> list[str]:
    """An option on the line; a list without its brackets, as people write it."""
    return [f"--{name}", text]


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
    command = draw(st.sampled_from(MOSTLY))
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


def _reach(*_: Any, **__: Any) -> None:
    raise Reached


@contextlib.contextmanager
def nothing_works() -> Iterator[None]:
    """Every command stops where its work would begin."""
    places = (
        "vision_attn.compare.execute.execute",
        "vision_attn.compare.report.report",
        "vision_attn.explain.checkpoint.load_classifier",
        "vision_attn.explain.diagnostics.diagnose",
        "vision_attn.training.fit.ClassifierCLI._run_subcommand",
        "vision_attn.data.sources._torchvision",  # no download
    )
    with contextlib.ExitStack() as stack:
        for place in places:
            stack.enter_context(mock.patch(place, _reach))
        yield


@contextlib.contextmanager
def in_new_folder(files: dict[str, bytes]) -> Iterator[None]:
    """A working directory with these files, a file and a folder."""
    before, root = Path.cwd(), Path(tempfile.mkdtemp(prefix="fuzz-"))
    (root / "a file").write_text("no checkpoint")
    (root / "a folder").mkdir()
    for name, content in files.items():
        (root / name).write_bytes(content)
    os.chdir(root)
    try:
        yield
    finally:
        os.chdir(before)
        shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def in_time(seconds: float) -> Iterator[None]:
    """`Slow` where it takes longer."""

    def stop(*_: Any) -> None:
        raise Slow

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def fault(case: Case) -> str | None:
    """What is wrong with the program's answer to a case, or None."""
    out, err = io.StringIO(), io.StringIO()
    end: int | str
    with in_new_folder(case.files), nothing_works():
        try:
            with (
                in_time(SECONDS),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
            ):
                end = main(case.argv)
        except Reached:
            end = "reached"
        except Slow:
            return f"no answer in {SECONDS} s"
        except SystemExit as e:
            end = f"exit {e.code}"
        except BaseException as e:
            where = traceback.extract_tb(e.__traceback__)[-1]
            return f"{type(e).__name__} at {Path(where.filename).name}:{where.lineno}: {e}"[:300]
    if end == 2:
        said = err.getvalue()
        if not said.startswith("error: ") or len(said.splitlines()) != 1 or len(said) < 12:
            return f"its mistake is not one line: {said!r}"
        if out.getvalue():
            return f"it printed {out.getvalue()!r} before it refused"
        return f"refused: {said.strip()}" if case.kind == "right" else None
    if end not in ("reached", "exit 0", 0):
        return f"it ended with {end}: {err.getvalue()[-200:]!r}"
    return "accepted" if case.kind == "wrong" else None


def run(argv: Sequence[str] | None = None) -> int:
    """Try many cases, print those that came out otherwise; 1 where there is one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", action="store_true", help="every bad value of each option too")
    asked = parser.parse_args(argv)
    with nothing_works():  # imports everything
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    start, kinds, longest = time.monotonic(), Counter[str](), 0.0
    faults: dict[str, list[Case]] = {}

    @seed(asked.seed)
    @settings(
        max_examples=asked.examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(CASES)
    def trial(case: Case) -> None:
        check(case)

    def check(case: Case) -> None:
        nonlocal longest
        kinds[case.kind] += 1
        begin = time.monotonic()
        what = fault(case)
        longest = max(longest, time.monotonic() - begin)
        if what is not None:
            faults.setdefault(what, []).append(case)

    for command in ("compare", "fit", "explain", "diagnose") if asked.each else ():
        for case in each(command):
            check(case)
    trial()
    for what, cases in faults.items():
        print(f"{len(cases)} x {what}\n  {min(cases, key=lambda c: len(str(c)))}")
    parts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    print(
        f"{sum(kinds.values())} command lines ({parts}) of {len(COMMANDS)} commands in"
        f" {time.monotonic() - start:.0f} s, {longest:.1f} s the longest; {len(faults)} faults"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(run())
