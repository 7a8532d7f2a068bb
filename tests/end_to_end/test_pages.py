"""The code of docs/recipes.md and docs/ecosystem.md runs, each block by itself."""

import re
import shlex
import sys
from pathlib import Path

import pytest
import torch

from vision_attn.cli import main

DOCS = Path(__file__).parents[2] / "docs"


def blocks(name: str) -> list[tuple[str, str]]:
    """Heading and code of every block of Python of a page."""
    text = (DOCS / name).read_text(encoding="utf-8")
    parts = re.findall(r"^## (.*?)$|^```python\n(.*?)```", text, re.DOTALL | re.MULTILINE)
    heading, rows = "", []
    for head, code in parts:
        heading = head or heading
        if code:
            rows.append((heading, code))
    assert len(rows) == text.count("```python") > 7
    return rows


CODE = [
    pytest.param(code, id=f"{name}: {heading}")
    for name in ("recipes.md", "ecosystem.md")
    for heading, code in blocks(name)
]


@pytest.mark.parametrize("code", CODE)
def test_code_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "compare").symlink_to(DOCS / "results" / "digits")
    torch.manual_seed(0)
    try:
        exec(compile(code, "page", "exec"), {"__name__": "__main__"})
    finally:
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")


LINES = sorted(
    {
        line.split(" #")[0].strip().removeprefix("vision-attn ")
        for page in (DOCS.parent / "README.md", *DOCS.glob("*.md"))
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("    vision-attn ")
    }
)
FIT = [line for line in LINES if line.startswith("fit ")]
READING = [line for line in LINES if re.match("plot|test|predict|explain --ckpt", line)]


@pytest.mark.parametrize("line", FIT)
def test_lines_of_fit_are_accepted(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(DOCS.parent)
    with pytest.raises(SystemExit) as stopped:
        main([*shlex.split(line), "--print_config"])
    assert stopped.value.code == 0
    assert "trainer:" in capsys.readouterr().out


@pytest.mark.parametrize("line", READING)
def test_lines_that_read_something_lack_only_that(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)) == 2
    said = capsys.readouterr().err
    assert re.search(r"((runs|results)/\w+|CHECKPOINT|no run of fit|No such file)", said), said
    assert "option" not in said, said
