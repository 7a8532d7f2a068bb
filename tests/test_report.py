"""Figures and tables from stored results: the numbers, the marks, and the same bytes each time."""

import csv
import io
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.colors import same_color
from rich.console import Console
from torch.testing import assert_close

from vision_attn.cli import main
from vision_attn.compare.curves import summarise
from vision_attn.compare.report import _figure, markdown, read_results, report, terminal
from vision_attn.compare.store import COLUMNS
from vision_attn.errors import UserError

T1, T2 = 12.706204736432095, 4.302652729696142
"""Student's t at 97.5 % for 1 and 2 degrees of freedom."""

FILES = {
    "accuracy_vs_size.png", "accuracy_vs_size.svg", "gap_vs_size.png", "gap_vs_size.svg",
    "results.csv", "summary.csv", "table.md",
}  # fmt: skip


def row(model: str, size: int, draw: int, test: float, train: float = 1.0) -> dict[str, Any]:
    full = dict.fromkeys(COLUMNS, 1.0)
    params = 123456 if model == "vit" else 1234567
    return full | {
        "model": model, "size": size, "draw": draw, "seed": 0, "status": "ok", "params": params,
        "train_acc": train, "test_acc": test, "gap": train - test, "fitted": train >= 0.99,
        "subset": "s", "error": "",
    }  # fmt: skip


def failed(model: str, size: int, draw: int) -> dict[str, Any]:
    empty = dict.fromkeys(COLUMNS, "")
    where = {"model": model, "size": size, "draw": draw, "seed": 0, "params": 5, "flops": 7}
    return empty | where | {"status": "failed", "error": "RuntimeError: no, thanks"}


ROWS = [
    *(row("vit", 20, d, t) for d, t in enumerate((0.3, 0.4, 0.5))),
    *(row("cnn", 20, d, t) for d, t in enumerate((0.5, 0.7, 0.9))),
    *(row("vit", 1000, d, t, 0.95) for d, t in enumerate((0.7, 0.8, 0.9))),
    failed("cnn", 1000, 0),
    *(row("cnn", 1000, d, 0.9) for d in (1, 2)),
]


def stored(root: Path, rows: list[dict[str, Any]]) -> Path:
    """A directory with nothing but results.csv."""
    root.mkdir(exist_ok=True)
    with (root / "results.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        table.writerows(rows)
    return root


def half(std: float, n: int) -> str:
    return f"{100 * {2: T1, 3: T2}[n] * std / n**0.5:.1f}"


def test_table_by_hand(tmp_path: Path) -> None:
    lines = markdown(read_results(stored(tmp_path, ROWS))).splitlines()
    a, b, c = half(0.2, 3), half(0.1, 3), half(0.1, 3)  # of cnn, of vit, of 0.2, 0.3 and 0.4
    d = half(0.1 / 2**0.5, 2)  # of 0.9 - 0.8 and 0.9 - 0.9
    assert (a, b) == ("49.7", "24.8")
    assert lines == [
        "| images | draws | cnn test | vit test | cnn gap | vit gap | cnn - vit |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        f"| 20 | 3 | 70.0 ± {a} | 40.0 ± {b} | 30.0 ± {a} | 60.0 ± {b} | 30.0 ± {c} |",
        f"| 1,000 | 3 | 90.0 ± 0.0 | 80.0 ± {b} | 10.0 ± 0.0 | 15.0 ± {b}* | 5.0 ± {d} |",
    ]


def test_terminal_has_the_same_numbers(tmp_path: Path) -> None:
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(terminal(read_results(stored(tmp_path, ROWS))))
    text = console.export_text()
    assert "70.0 ± 49.7" in text
    assert "not all runs fitted" in text


def test_one_model_has_no_difference(tmp_path: Path) -> None:
    rows = [row("timm:resnet18", 20, 0, 0.5)]
    assert markdown(read_results(stored(tmp_path, rows))).splitlines()[0::2] == [
        "| images | draws | timm:resnet18 test | timm:resnet18 gap |",
        "| 20 | 1 | 50.0 | 50.0 |",
    ]


def test_a_size_that_one_model_lacks_is_left_empty(tmp_path: Path) -> None:
    rows = [row("vit", 20, 0, 0.25), row("cnn", 20, 0, 0.5), row("vit", 50, 0, 0.75)]
    assert markdown(read_results(stored(tmp_path, rows))).splitlines()[2:] == [
        "| 20 | 1 | 50.0 | 25.0 | 50.0 | 75.0 | 25.0 |",
        "| 50 | 1 |  | 75.0 |  | 25.0 |  |",
    ]


def test_files_of_a_report(tmp_path: Path) -> None:
    report(stored(tmp_path, ROWS))
    assert {p.name for p in tmp_path.iterdir()} == FILES
    for name in ("accuracy_vs_size", "gap_vs_size"):
        image = plt.imread(tmp_path / f"{name}.png")
        assert image.shape[:2] == (630, 960)
        assert image.std() > 0.05
        assert (tmp_path / f"{name}.svg").read_text().rstrip().endswith("</svg>")
    assert (tmp_path / "table.md").read_text() == markdown(read_results(tmp_path))
    summary = pd.read_csv(tmp_path / "summary.csv")
    pd.testing.assert_frame_equal(summary, summarise(read_results(tmp_path)), check_dtype=False)


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    one, two = stored(tmp_path / "one", ROWS), stored(tmp_path / "two", ROWS)
    report(one)
    report(two)
    for name in FILES:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name


def test_no_display_and_no_open_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", "bad:0")
    summary = summarise(read_results(stored(tmp_path, ROWS)))
    for i in range(25):
        _figure(summary, "test_acc", "test accuracy").savefig(tmp_path / f"{i}.png", dpi=20)
    report(tmp_path)
    assert len(list(tmp_path.glob("*.png"))) == 27
    assert plt.get_fignums() == []


def points(axes: Any, colour: str) -> tuple[list[list[float]], list[bool]]:
    """Positions of a model's markers, and which of them are filled."""
    found = [c for c in axes.collections if isinstance(c, PathCollection)]
    (marks,) = (c for c in found if same_color(c.get_edgecolor()[0], colour))
    places = marks.get_offsets().tolist()
    faces = np.broadcast_to(marks.get_facecolor(), (len(places), 4))
    return places, [bool(same_color(f, colour)) for f in faces]


def test_points_are_hollow_where_not_fitted(tmp_path: Path) -> None:
    summary = summarise(read_results(stored(tmp_path, ROWS)))
    figure = _figure(summary, "test_acc", "test accuracy")
    (axes,) = figure.axes
    cnn, vit = (line.get_color() for line in axes.lines)
    assert points(axes, cnn)[1] == [True, True]
    assert points(axes, vit)[1] == [True, False]
    assert_close(points(axes, cnn)[0], [[20.0, 0.7], [1000.0, 0.9]])
    assert_close(points(axes, vit)[0], [[20.0, 0.4], [1000.0, 0.8]])
    labels = [t.get_text() for t in axes.get_legend().get_texts()]
    assert labels == ["cnn (1.23 M parameters)", "vit (123 k parameters)"]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["20", "1,000"]
    note = figure.get_supxlabel()
    assert "mean of 2 to 3 draws" in note
    assert "band: 95 % t interval" in note
    assert "hollow: not fitted" in note


def test_band_is_the_interval(tmp_path: Path) -> None:
    summary = summarise(read_results(stored(tmp_path, ROWS)))
    (axes,) = _figure(summary, "gap", "gap").axes
    bands = [c for c in axes.collections if isinstance(c, PolyCollection)]
    heights = np.concatenate([b.get_paths()[0].vertices for b in bands])
    edge = T2 * 0.2 / 3**0.5
    at_20 = heights[heights[:, 0] == 20][:, 1]
    assert_close(
        [at_20.min(), at_20.max()], [0.3 - edge, 0.6 + T2 * 0.1 / 3**0.5], rtol=1e-6, atol=0
    )


def test_one_draw_is_a_point_without_a_band(tmp_path: Path) -> None:
    rows = [row("vit", 20, 0, 0.5), row("cnn", 20, 0, 0.75)]
    report(stored(tmp_path, rows))
    with (tmp_path / "summary.csv").open(newline="") as file:
        summary = list(csv.DictReader(file))
    assert [r["model"] for r in summary] == ["cnn", "vit"]
    for r in summary:
        assert r["count"] == "1"
        for measure in ("test_acc", "train_acc", "gap", "test_loss"):
            assert [r[f"{measure}_{k}"] for k in ("low", "high", "std")] == [""] * 3
    figure = _figure(summarise(read_results(tmp_path)), "test_acc", "test accuracy")
    (axes,) = figure.axes
    assert points(axes, axes.lines[0].get_color()) == ([[20.0, 0.75]], [True])
    assert figure.get_supxlabel() == "mean of 1 draw"


def test_plot_needs_only_results_csv(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["plot", str(stored(tmp_path, ROWS))]) == 0
    assert {p.name for p in tmp_path.iterdir()} == FILES
    assert "70.0 ± 49.7" in capsys.readouterr().out


def test_what_cannot_be_plotted(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither cells/ nor results\.csv"):
        report(tmp_path)
    stored(tmp_path, [failed("vit", 20, 0)])
    with pytest.raises(UserError, match="no finished cell"):
        report(tmp_path)
    (tmp_path / "results.csv").write_text("model,size\nvit,20\n")
    with pytest.raises(UserError, match="no column 'draw'"):
        report(tmp_path)
    (tmp_path / "results.csv").write_text("")
    with pytest.raises(UserError, match=r"results\.csv cannot be read: No columns"):
        report(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["results.csv"]
