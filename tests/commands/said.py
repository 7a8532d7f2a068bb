"""What a command line prints: `from said import refused`."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from shared import tree

from vision_attn.cli import main


def refused(argv: str | list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a mistake, with everything under the working directory left as it was."""
    before = tree(Path.cwd())
    capsys.readouterr()
    code = main(shlex.split(argv) if isinstance(argv, str) else argv)
    said = capsys.readouterr()
    assert code == 2
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert said.err.endswith("\n")
    assert len(said.err.splitlines()) == 1, said.err
    assert tree(Path.cwd()) == before
    return said.err


def printed(argv: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The configuration that --print_config shows."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([*shlex.split(argv), "--print_config"])
    assert end.value.code == 0
    return yaml.safe_load(capsys.readouterr().out)
