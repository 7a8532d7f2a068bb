"""Figures and tables from stored results: the numbers, the marks, and the same bytes each time."""

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import yaml
from made_study import failed, pairs, row, stored, study, table
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.colors import same_color
from rich.console import Console
from torch.testing import assert_close

from vision_attn.cli import main
from vision_attn.compare.figures import against_size
from vision_attn.compare.report import _check_place, markdown, read_results, report, terminal
from vision_attn.compare.runs import summarise
from vision_attn.errors import UserError

T1, T2 = 12.706204736432095, 4.302652729696142
"""Student's t at 97.5 % for 1 and 2 degrees of freedom."""

FILES = {
    "accuracy_vs_size.png", "accuracy_vs_size.svg", "gap_vs_size.png", "gap_vs_size.svg",
    "error_loglog.png", "error_loglog.svg", "multiplier.png", "multiplier.svg",
    "results.csv", "summary.csv", "table.md", "report.html",
}  # fmt: skip


ROWS = [
    *(row("vit", 20, d, t) for d, t in enumerate((0.3, 0.4, 0.5))),
    *(row("cnn", 20, d, t) for d, t in enumerate((0.5, 0.7, 0.9))),
    *(row("vit", 1000, d, t, 0.95) for d, t in enumerate((0.7, 0.8, 0.9))),
    failed("cnn", 1000, 0),
    *(row("cnn", 1000, d, 0.9) for d in (1, 2)),
]


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
        assert image.shape[:2] == (630, 810)
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
        against_size(summary, "test_acc", "test accuracy").savefig(tmp_path / f"{i}.png", dpi=20)
    report(tmp_path)
    assert len(list(tmp_path.glob("*.png"))) == 29
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
    figure = against_size(summary, "test_acc", "test accuracy")
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
    (axes,) = against_size(summary, "gap", "gap").axes
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
    figure = against_size(summarise(read_results(tmp_path)), "test_acc", "test accuracy")
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


def test_many_models_are_two_tables(tmp_path: Path) -> None:
    rows = [row(m, 20, d, 0.5 + d / 10) for m in ("cnn", "vit", "linear", "a|b") for d in (0, 1)]
    lines = markdown(table(rows)).splitlines()
    assert lines[0] == "Test accuracy"
    assert lines[2] == "| images | draws | a\\|b | cnn | linear | vit | cnn - vit |"
    assert lines[6] == "Gap"
    assert lines[8] == "| images | draws | a\\|b | cnn | linear | vit |"
    assert lines[10].count("45.0 ± 63.5") == 4


def test_each_protocol_and_control_has_its_table() -> None:
    rows = pairs(20, [0.5], [0.25])
    rows += pairs(20, [0.4], [0.2], protocol="epochs") + pairs(20, [0.1], [0.1], control="shuffled")
    lines = markdown(table(rows)).splitlines()
    titles = ["Equal updates", "Equal epochs", "Equal updates, labels shuffled"]
    assert [lines[i] for i in (0, 6, 12)] == titles
    assert lines[4] == "| 20 | 1 | 50.0 | 25.0 | 50.0 | 75.0 | 25.0 |"
    assert lines[10] == "| 20 | 1 | 40.0 | 20.0 | 60.0 | 80.0 | 20.0 |"
    assert lines[16] == "| 20 | 1 | 10.0 | 10.0 | 90.0 | 90.0 | 0.0 |"


def two(tmp_path: Path) -> tuple[Path, Path]:
    one = stored(tmp_path / "one", pairs(20, [0.5, 0.6], [0.4, 0.5]))
    other = stored(
        tmp_path / "other",
        [*pairs(20, [0.5, 0.6], [0.4, 0.5])[:2], *pairs(50, [0.7, 0.8], [0.6, 0.7])],
    )
    study(one)
    study(other)
    return one, other


def test_join_takes_the_same_run_once(tmp_path: Path) -> None:
    one, other = two(tmp_path)
    out = tmp_path / "out"
    results = report([one, other], out)
    assert len(results) == 8
    names = ["model", "size", "draw"]
    assert not results.duplicated(names).any()
    pd.testing.assert_frame_equal(read_results(out), results, check_dtype=False)
    assert list(pd.read_csv(out / "summary.csv")["size"]) == [20, 50, 20, 50]
    assert sorted(yaml.safe_load((out / "studies.yaml").read_text())) == ["one", "other"]
    page = (out / "report.html").read_text()
    for name in ("one", "other"):
        assert f"compare --config study-config-{name}.yaml --out {name}\n" in page
    assert "python train.py plot one other --out DIR</pre>" in page
    _check_place(out)  # its own report may be written again
    again = report(out)
    pd.testing.assert_frame_equal(again, results, check_dtype=False)
    assert (out / "report.html").read_text() == page


def test_seconds_do_not_count_and_a_finished_run_beats_a_failed_one(tmp_path: Path) -> None:
    slow = row("vit", 20, 0, 0.5) | {"seconds": 99.0}
    one = stored(tmp_path / "one", [failed("vit", 20, 1), slow, failed("vit", 20, 2)])
    other = stored(tmp_path / "other", [row("vit", 20, 0, 0.5), row("vit", 20, 1, 0.25)])
    results = report([one, other], tmp_path / "out")
    assert list(results["status"]) == ["ok", "ok", "failed"]
    assert list(results["test_acc"][:2]) == [0.5, 0.25]
    assert results["seconds"][0] == 99


def test_joined_runs_must_agree(tmp_path: Path) -> None:
    one, other = two(tmp_path)
    stored(other, [row("cnn", 20, 1, 0.625)])
    wanted = rf"{one} and {other} hold the same cell \(model cnn, size 20, draw 1, seed 0"
    with pytest.raises(UserError, match=wanted + r".*test_acc 0\.6 and 0\.625"):
        report([one, other], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"identity": {"data": {"name": "x", "fingerprint": "beef"}}}, "images.*f00d and beef"),
        ({"args": {"vit": {"depth": 3}}}, r"arguments of vit: \{'depth': 2\} and \{'depth': 3\}"),
    ],
)
def test_joined_studies_must_agree(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    one, other = two(tmp_path)
    study(other, **change)
    with pytest.raises(UserError, match=f"one and other differ in the {said}"):
        report([one, other], tmp_path / "out")


def test_where_a_joined_report_goes(tmp_path: Path) -> None:
    one, other = two(tmp_path)
    with pytest.raises(UserError, match="2 directories are joined; say with --out"):
        report([one, other])
    with pytest.raises(UserError, match="no directory"):
        report([])
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "report.html").write_text("mine")
    report(stored(tmp_path / "alone", ROWS))
    for place in (taken, one, tmp_path / "alone"):
        with pytest.raises(UserError, match=f"out {place} exists and is no joined report"):
            report([one, other], place)
    assert (taken / "report.html").read_text() == "mine"
    assert not (one / "report.html").exists()


def test_broken_study_files(tmp_path: Path) -> None:
    stored(tmp_path, ROWS)
    (tmp_path / "study.yaml").write_text("a: [")
    with pytest.raises(UserError, match=r"study\.yaml cannot be read"):
        report(tmp_path)
    (tmp_path / "study.yaml").write_text("a: 3\n")
    with pytest.raises(UserError, match=r"study\.yaml is not a study"):
        report(tmp_path)
    (tmp_path / "study.yaml").unlink()
    (tmp_path / "tuning.csv").write_text("model,size\n")
    with pytest.raises(UserError, match=r"tuning\.csv has no column 'try'"):
        report(tmp_path)


def cell(root: Path, name: str, log: str, **more: Any) -> None:
    """A finished cell with its log."""
    place = root / "cells" / name
    place.mkdir(parents=True)
    (place / "metrics.csv").write_text(log)
    result = {k: v for k, v in row("vit", 20, 0, 0.5).items() if k != "protocol"} | more
    (place / "result.json").write_text(json.dumps(result))


def test_logs_and_measures_of_cells_are_averaged_and_kept(tmp_path: Path) -> None:
    head = "epoch,step,train_loss,val_acc,val_loss\n"
    measures = [{"layer": 0, "head": h, "distance": d} for h, d in enumerate((2.0, 4.0))]
    cell(tmp_path, "a", head + "1,4,,0.5,2.0\n1,4,1.0,,\n", measures=measures)
    cell(
        tmp_path, "b", head + "1,4,,0.7,4.0\n1,4,3.0,,\n", draw=1,
        measures=[{"layer": 0, "head": 0, "distance": 9.0}], protocols=["steps", "epochs"],
    )  # fmt: skip
    cell(tmp_path, "c", head, status="failed")
    report(tmp_path)
    log = pd.read_csv(tmp_path / "training.csv")
    assert list(log["protocol"]) == ["epochs", "steps"]
    assert list(log["step"]) == [4, 4]
    assert_close(log["val_loss"].tolist(), [4.0, 3.0])
    assert_close(log["train_loss"].tolist(), [3.0, 2.0])
    assert_close(log["val_acc"].tolist(), [0.7, 0.6])
    looks = pd.read_csv(tmp_path / "attention.csv")
    assert_close(looks["distance"].tolist(), [9.0, 5.0])
    assert (tmp_path / "training_curves.svg").is_file()
    assert (tmp_path / "attention_distance.png").is_file()
    shutil.rmtree(tmp_path / "cells")  # all of it comes again from what is left
    before = (tmp_path / "report.html").read_bytes()
    report(tmp_path)
    assert (tmp_path / "report.html").read_bytes() == before
