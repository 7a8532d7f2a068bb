"""Texts of a user are shown as they are: labels, classes, paths and errors, wherever they go."""

import csv
import io
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from made_study import analysed, pairs, row, stored, table, with_pair
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console

from vision_attn.data.sources import DataConfig, load
from vision_attn.report.analysis import analyse
from vision_attn.report.figures import draw
from vision_attn.report.style import render
from vision_attn.report.tables import markdown
from vision_attn.report.terminal import show
from vision_attn.report.write import report
from vision_attn.study.progress import display
from vision_attn.study.results import StoredStudy
from vision_attn.texts import (
    console,
    csv_text,
    in_figure,
    in_markdown,
    one_line,
    table_cell,
    table_text,
)

LABELS = (
    "v[lr]", "x[/y]", "[bold]b[/bold]", ":smile:", "p$^$", r"$\frac$", "$a$", r"\$", "_hidden",
    ".hid", "=1+1", "+1", "-1", "@x", "'=1", "a|b", "a,b", 'q"t', "a:b", "a/b", "<b>&amp;</b>",
    "*s*", "`c`", "a" * 200, "ünïcödé",
)  # fmt: skip


def shown(analysis: Any, width: int) -> str:
    text = io.StringIO()
    show(console(file=text, width=width, force_terminal=True, color_system=None), analysis)
    return text.getvalue()


@pytest.mark.parametrize("label", LABELS)
def test_case_69_labels_stand_on_a_terminal_as_they_are(label: str) -> None:
    results = table(pairs(20, [0.5], [0.6], protocol="steps"))
    results["model"] = results["model"].replace({"vit": label})
    said = shown(analyse(StoredStudy(results)), 1200)
    assert f" {label} test " in said


@pytest.mark.parametrize("text", ["no [/red] here", "[bold]x", ":warning:", "a\x1b[31mb\nc"])
def test_case_69_errors_stand_in_the_progress_as_they_are(text: str) -> None:
    cell: Any = SimpleNamespace(arm=SimpleNamespace(label="v[lr]"), key="k")
    config = {"control": "none", "size": 20, "draw": 0, "seed": 0, "steps": 5}
    cell.config = type("Config", (), config)()
    result: Any = type("Made", (), {"status": "failed", "error": one_line(text)})()
    for options in ({}, {"force_terminal": True}):
        file = io.StringIO()
        bars = display(Console(file=file, width=200, color_system=None, **options), [cell] * 2, 0)
        with bars:
            bars.update([(cell, 3)])
            bars.note(cell, text)
            bars.end(cell, result)
        said = file.getvalue()
        assert f"v[lr], 20 images, draw 0  FAILED: {one_line(text)}" in said


@pytest.mark.parametrize("options", [{}, {"force_terminal": True}])
def test_a_run_is_named_with_its_seed_where_there_are_several(options: Any) -> None:
    """FIRST-HOUR 33: n=50 draw=0 seed=0, and 0.823 beside 82.3."""
    config = {"control": "shuffled", "size": 1000, "draw": 1, "seed": 1, "steps": 5}
    cells: list[Any] = []
    for seed in (0, 1):
        cell: Any = type("Made", (), {"key": str(seed)})()
        cell.arm = type("Arm", (), {"label": "vit"})()
        cell.config = type("Config", (), config | {"seed": seed})()
        cells.append(cell)
    values = {"status": "ok", "train_acc": 1.0, "test_acc": 0.8234, "seconds": 7.2}
    result: Any = type("Made", (), values)()
    file = io.StringIO()
    bars = display(Console(file=file, width=200, color_system=None, **options), cells, 0)
    with bars:
        bars.end(cells[1], result)
    wanted = "vit, shuffled, 1,000 images, draw 1, seed 1  train 100.0 %  test 82.3 %  7 s"
    assert wanted in file.getvalue()


def test_one_line_has_no_control_characters_and_is_utf8() -> None:
    assert one_line("a\nb\tc  d") == "a b c d"
    assert one_line("\x1b[31m \udcff é …") == r"\x1b[31m \udcff é …"


def drawn(figure: Figure) -> None:
    """Both kinds; a formula that is none raises, and so does any warning."""
    files = render(figure, "x")
    assert files["png"].startswith(b"\x89PNG")
    assert ElementTree.fromstring(files["svg"]).tag.endswith("svg")


@pytest.mark.parametrize("label", LABELS)
def test_case_70_labels_are_no_formulas_in_figures(label: str) -> None:
    rows = pairs(20, [0.5, 0.6], [0.6, 0.4]) + pairs(50, [0.7, 0.8], [0.6, 0.5])
    results = table(rows)
    results["model"] = results["model"].replace({"vit": label})
    figure = draw(analyse(StoredStudy(results)), "accuracy")
    drawn(figure)
    at_ends = [t.get_text() for axes in figure.axes for t in axes.texts]
    below = [t.get_text() for legend in figure.legends for t in legend.get_texts()]
    assert len(at_ends + below) == 2
    assert in_figure(label) in at_ends + below


@pytest.mark.parametrize("label", ["p$^$", r"$\frac$", "b" * 200, "_x"])
def test_case_70_other_figures_take_them_too(label: str) -> None:
    times = pd.DataFrame(
        {"n": [20, 50], "multiplier": [1.5, 2.0], "low": [1.0, 1.5], "high": [2.0, 3.0],
         "bound": ["", ""], "limit": [np.nan, np.nan]}
    )  # fmt: skip
    parts = pd.DataFrame(
        [{"size": 20, **{f"{p}{end}": 0.1 for p in ("total", "undertraining", "generalisation")
                         for end in ("", "_low", "_high")}}]
    )  # fmt: skip
    log = pd.DataFrame(
        {"model": label, "protocol": "steps", "size": 20, "step": [1, 2], "val_loss": [1.0, 0.5]}
    )
    results = table(pairs(20, [0.5], [0.4]))
    results["model"] = results["model"].replace({"vit": label})
    stored = StoredStudy(results, training=log.assign(control="none"))
    analysis = with_pair(analyse(stored), second=label, multiplier=times, split=parts)
    for name in ("multiplier", "protocol_split", "training_curves"):
        drawn(draw(analysis, name))


def test_case_70_a_long_text_is_cut_in_the_middle() -> None:
    assert in_figure("a" * 50 + "b" * 50, 9) == "aaaa…bbbb"
    assert in_figure("a" * 50 + "b" * 49, 8) == "aaaa…bbb"
    assert in_figure("short", 5) == "short"
    assert in_figure("$x$") == r"\$x\$"


def test_case_72_labels_are_no_formulas_in_a_spreadsheet(tmp_path: Path) -> None:
    labels = ["=1+1", "+1", "-1", "@x", "'=1", "a,b", 'q"t', "007", "1e5"]
    rows = [
        row(label, 20, d, 0.5 + d / 10) | {"error": "=cmd", "gap": -0.25, "arch": "vit"}
        for label in labels
        for d in (0, 1)
    ]
    safe = [{k: table_cell(v) for k, v in r.items()} for r in rows]
    first = report(stored(tmp_path / "one", safe), tmp_path / "out")
    for name in ("results.csv", "summary.csv"):
        with (tmp_path / "out" / name).open(newline="") as file:
            cells = [c for line in csv.reader(file) for c in line]
        assert not [c for c in cells if c.startswith(("=", "+", "@"))]
        negative = {c for c in cells if c.startswith("-")}
        assert "-0.25" in negative  # a number stays one
        assert all(float(c) < 0 and "." in c for c in negative)
    again = report(tmp_path / "out", tmp_path / "third")
    for results in (first.stored.results, again.stored.results):
        assert sorted(set(results["model"])) == sorted(labels)
        assert set(results["error"]) == {"=cmd"}


@pytest.mark.parametrize("text", ["=1", "'=1", "''@", "-1", "\t", "'", "''", "x", "", "1-2", "'x"])
def test_case_72_a_cell_comes_back(text: str) -> None:
    assert table_text(table_cell(text)) == text
    assert table_cell(text)[:1] not in "=+-@\t\r" or not text


def test_case_72_numbers_stay_numbers() -> None:
    made = csv_text(pd.DataFrame({"=a": ["=x", "-2"], "n": [-1, 2], "x": [-0.5, None]}))
    assert made.splitlines() == ["'=a,n,x", "'=x,-1,-0.5", "'-2,2,"]


@pytest.mark.parametrize("label", LABELS)
def test_labels_are_no_markup_in_markdown(label: str) -> None:
    rows = [r | {"model": label if r["model"] == "vit" else "cnn"} for r in pairs(20, [0.5], [0.6])]
    lines = markdown(analysed(rows)).splitlines()
    bars = [line.replace(r"\\", "").replace(r"\|", "").count("|") for line in lines]
    assert len(set(bars)) == 1
    assert in_markdown(label) in lines[0]
    assert not set("<`$") & set(lines[0].replace(r"\<", "").replace(r"\`", "").replace(r"\$", ""))


CODE = """
import sys
from vision_attn.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_case_71_an_ascii_terminal(tmp_path: Path) -> None:
    root = stored(tmp_path / "é[x]", pairs(20, [0.5, 0.6], [0.6, 0.4]))
    done = subprocess.run(
        [sys.executable, "-c", CODE, "plot", str(root), "--out", str(tmp_path / "ü[y]")],
        capture_output=True,
        check=False,
        env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert rb"\xb1" in done.stdout
    assert (tmp_path / "ü[y]" / "report.html").is_file()


def test_case_71_a_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            place = tmp_path / part / name
            place.mkdir(parents=True)
            for i in range(3):
                Image.fromarray(np.full((5, 5), 40 * i, np.uint8)).save(place / f"{i}.png")
            (place / "0.png").rename(place / b"\xff.png".decode(errors="surrogateescape"))
    source = load(DataConfig(name="folder", root=str(tmp_path), memory_mb=0))
    assert len(source.fingerprint) == 16
    assert len(source.train_labels) == 6
