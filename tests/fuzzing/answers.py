"""The program's answer to a command line, and what is wrong with it."""

import contextlib
import io
import logging
import os
import shutil
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from fuzzing.lines import CASES, Case, each
from hypothesis import HealthCheck, Phase, given, seed, settings

from vision_attn.cli import COMMANDS, main

SECONDS = 20
"""For one input, most of which take a tenth of a second."""


class Reached(BaseException):
    """The program would begin to work now."""


class Slow(BaseException):
    """It did not answer within `SECONDS`."""


def _reach(*_: Any, **__: Any) -> None:
    raise Reached


@contextlib.contextmanager
def nothing_works() -> Iterator[None]:
    """Every command stops where its work would begin."""
    places = (
        "vision_attn.study.execute.execute",
        "vision_attn.report.write.report",
        "vision_attn.explain.checkpoint.load_classifier",
        "vision_attn.claims.run.diagnose",
        "vision_attn.commands.lightning.ClassifierCLI._run_subcommand",
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


def run(examples: int, commands: Sequence[str], start: int) -> int:
    """Try every bad value of some commands, then random cases; print what is wrong, 1 if any is."""
    with nothing_works():  # imports everything
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    begin, kinds, longest = time.monotonic(), Counter[str](), 0.0
    faults: dict[str, list[Case]] = {}

    @seed(start)
    @settings(
        max_examples=examples,
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
        asked = time.monotonic()
        what = fault(case)
        longest = max(longest, time.monotonic() - asked)
        if what is not None:
            faults.setdefault(what, []).append(case)

    for command in commands:
        for case in each(command):
            check(case)
    if examples:
        trial()
    for what, cases in faults.items():
        print(f"{len(cases)} x {what}\n  {min(cases, key=lambda c: len(str(c)))}")
    parts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    print(
        f"{sum(kinds.values())} command lines ({parts}) of {len(COMMANDS)} commands in"
        f" {time.monotonic() - begin:.0f} s, {longest:.1f} s the longest; {len(faults)} faults"
    )
    return 1 if faults else 0
