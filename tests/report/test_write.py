"""Figures and tables from stored results: the numbers, the marks, and the same bytes each time."""

import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import yaml
from made_study import UNEVEN, failed, pairs, row, stored, study
from matplotlib.figure import Figure
from torch.testing import assert_close

from vision_attn.cli import main
from vision_attn.errors import UserError
from vision_attn.report import write
from vision_attn.report.analysis import analyse
from vision_attn.report.chart import names_of
from vision_attn.report.tables import markdown
from vision_attn.report.write import report
from vision_attn.study.keys import key_start
from vision_attn.study.results import read, read_results, summarise

FILES = {
    "accuracy_vs_size.png", "accuracy_vs_size.svg", "gap_vs_size.png", "gap_vs_size.svg",
    "error_loglog.png", "error_loglog.svg",
    "results.csv", "summary.csv", "pairs.csv", "multiplier.csv", "table.md", "table.tex",
    "report.html",
}  # fmt: skip


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole report, its figures rendered."""
    root = stored(tmp_path_factory.mktemp("rendered") / "one", UNEVEN)
    report(root)
    return root


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn and not rendered, which is what takes long."""

    def render(figure: Figure, name: str, kinds: Sequence[str]) -> dict[str, bytes]:
        return dict.fromkeys(kinds, f'<svg viewBox="0 0 1 1">{name}</svg>'.encode())

    monkeypatch.setattr(write, "render", render)


def test_files_of_a_report(rendered: Path) -> None:
    assert {p.name for p in rendered.iterdir()} == FILES
    for name in ("accuracy_vs_size", "gap_vs_size"):
        image = plt.imread(rendered / f"{name}.png")
        assert image.shape[:2] == (630, 810)
        assert image.std() > 0.05
        assert (rendered / f"{name}.svg").read_text().rstrip().endswith("</svg>")
    results = read_results(rendered)
    assert (rendered / "table.md").read_text() == markdown(analyse(read(rendered)))
    summary = pd.read_csv(rendered / "summary.csv")
    pd.testing.assert_frame_equal(summary, summarise(results), check_dtype=False)


def test_the_same_results_give_the_same_bytes_without_a_display(
    rendered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISPLAY", "bad:0")
    again = stored(tmp_path / "two", UNEVEN)
    report(again)
    for name in FILES:
        assert (rendered / name).read_bytes() == (again / name).read_bytes(), name
    assert plt.get_fignums() == []


@pytest.mark.parametrize("kinds", [("png",), ("svg",), ()])
def test_only_the_kinds_asked_for_are_written(
    kinds: tuple[str, ...], tmp_path: Path, no_pictures: None
) -> None:
    report(stored(tmp_path, UNEVEN), kinds=kinds)
    wanted = {name for name in FILES if name.split(".")[1] not in {"png", "svg"} - set(kinds)}
    assert {p.name for p in tmp_path.iterdir()} == wanted
    assert ">accuracy_vs_size</svg>" in (tmp_path / "report.html").read_text()


def test_one_draw_has_no_interval(tmp_path: Path, no_pictures: None) -> None:
    report(stored(tmp_path, [row("vit", 20, 0, 0.5), row("cnn", 20, 0, 0.75)]))
    with (tmp_path / "summary.csv").open(newline="") as file:
        summary = list(csv.DictReader(file))
    assert [r["model"] for r in summary] == ["cnn", "vit"]
    for r in summary:
        assert r["count"] == "1"
        for measure in ("test_acc", "train_acc", "gap", "test_loss"):
            assert [r[f"{measure}_{k}"] for k in ("low", "high", "std")] == [""] * 3


def test_plot_needs_only_results_csv(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    no_pictures: None,
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["plot", str(stored(tmp_path, UNEVEN))]) == 0
    assert {p.name for p in tmp_path.iterdir()} == FILES
    assert "70.0 ± 49.7" in capsys.readouterr().out


def test_what_cannot_be_plotted(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither cells/ nor results\.csv"):
        report(tmp_path)
    stored(tmp_path, [failed("vit", 20, 0)])
    with pytest.raises(UserError, match="no finished run"):
        report(tmp_path)
    (tmp_path / "results.csv").write_text("model,size\nvit,20\n")
    with pytest.raises(UserError, match="no column 'draw'"):
        report(tmp_path)
    (tmp_path / "results.csv").write_text("")
    with pytest.raises(UserError, match=r"results\.csv cannot be read: No columns"):
        report(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["results.csv"]


def two(tmp_path: Path) -> tuple[Path, Path]:
    one = stored(tmp_path / "one", pairs(20, [0.5, 0.6], [0.4, 0.5]))
    other = stored(
        tmp_path / "other",
        [*pairs(20, [0.5, 0.6], [0.4, 0.5])[:2], *pairs(50, [0.7, 0.8], [0.6, 0.7])],
    )
    study(one)
    study(other)
    return one, other


def test_join_takes_the_same_run_once(tmp_path: Path, no_pictures: None) -> None:
    one, other = two(tmp_path)
    out = tmp_path / "out"
    results = report([one, other], out).stored.results
    assert len(results) == 8
    names = ["model", "size", "draw"]
    assert not results.duplicated(names).any()
    pd.testing.assert_frame_equal(read_results(out), results, check_dtype=False)
    assert list(pd.read_csv(out / "summary.csv")["size"]) == [20, 50, 20, 50]
    assert sorted(yaml.safe_load((out / "studies.yaml").read_text())) == ["one", "other"]
    page = (out / "report.html").read_text()
    for name in ("one", "other"):
        assert f"compare --config study-config-{name}.yaml --out {name}\n" in page
    assert "vision-attn plot one other --out DIR</pre>" in page
    again = report(out).stored.results
    pd.testing.assert_frame_equal(again, results, check_dtype=False)
    assert (out / "report.html").read_text() == page


def test_seconds_do_not_count_and_a_finished_run_beats_a_failed_one(
    tmp_path: Path, no_pictures: None
) -> None:
    slow = row("vit", 20, 0, 0.5) | {"seconds": 99.0}
    one = stored(tmp_path / "one", [failed("vit", 20, 1), slow, failed("vit", 20, 2)])
    other = stored(tmp_path / "other", [row("vit", 20, 0, 0.5), row("vit", 20, 1, 0.25)])
    results = report([one, other], tmp_path / "out").stored.results
    assert list(results["status"]) == ["ok", "ok", "failed"]
    assert list(results["test_acc"][:2]) == [0.5, 0.25]
    assert results["seconds"][0] == 99


def test_joined_runs_must_agree(tmp_path: Path) -> None:
    one, other = two(tmp_path)
    stored(other, [row("cnn", 20, 1, 0.625)])
    wanted = rf"{one} and {other} hold the same run \(model cnn, size 20, protocol steps,"
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


def test_what_was_not_tuned_stands_beside_what_was(tmp_path: Path, no_pictures: None) -> None:
    """The same labels in both: two kinds of runs, each compared among its own."""
    shares = {"tuned": (0.8, 0.7), "plain": (0.6, 0.4)}
    for name, (cnn, vit) in shares.items():
        root = stored(tmp_path / name, pairs(20, [cnn] * 3, [vit] * 3) + pairs(50, [cnn], [vit]))
        tune = {"tune": 8} if name == "tuned" else {}
        study(root, identity={"data": {"name": "x", "fingerprint": "f00d"}, **tune})
    out = tmp_path / "out"
    analysis = report([tmp_path / "plain", tmp_path / "tuned"], out)
    assert [s.words for s in analysis.settings] == ["equal updates", "equal updates, not tuned"]
    table = pd.read_csv(out / "pairs.csv").query("size == 20 and measure == 'test_acc'")
    assert table.set_index("control")["value"].round(9).to_dict() == {"none": -0.1, "untuned": -0.2}
    assert "Runs that were not tuned have the same settings" in (out / "report.html").read_text()
    styles = names_of(analysis.summary["control"])
    assert styles == {"none": "tuned", "untuned": "not tuned"}
    assert (out / "controls.svg").is_file()
    again = report(out)
    pd.testing.assert_frame_equal(again.stored.results, analysis.stored.results, check_dtype=False)


def test_where_a_joined_report_goes(tmp_path: Path, no_pictures: None) -> None:
    one, other = two(tmp_path)
    with pytest.raises(UserError, match="2 directories are joined; say with --out"):
        report([one, other])
    with pytest.raises(UserError, match="no directory"):
        report([])
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "report.html").write_text("mine")
    report(stored(tmp_path / "alone", UNEVEN))
    for place in (taken, one, tmp_path / "alone"):
        with pytest.raises(UserError, match=f"out {place} exists and is no joined report"):
            report([one, other], place)
    assert (taken / "report.html").read_text() == "mine"
    assert not (one / "report.html").exists()


def test_broken_study_files(tmp_path: Path) -> None:
    stored(tmp_path, UNEVEN)
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


def cell(root: Path, log: str, **more: Any) -> None:
    """A cell with its log."""
    result = row("vit", 20, 0, 0.5) | {"flops": 1, "steps": 1, "error": None} | more
    del result["protocol"]
    names = ("size", "draw", "seed", "steps", "control")
    config = {
        "model": "vit",
        "threads": 1,
        "optim": {},
        "augment": {},
        **{n: result[n] for n in names},
    }
    place = root / "cells" / f"{key_start('vit', config)}-0"
    place.mkdir(parents=True)
    (place / "metrics.csv").write_text(log)
    (place / "result.json").write_text(json.dumps(result | {"config": config}))


def test_logs_and_measures_of_cells_are_averaged_and_kept(
    tmp_path: Path, no_pictures: None
) -> None:
    head = "epoch,step,train_loss,val_acc,val_loss\n"
    measures = [{"layer": 0, "head": h, "distance": d} for h, d in enumerate((2.0, 4.0))]
    cell(tmp_path, head + "1,4,,0.5,2.0\n1,4,1.0,,\n", measures=measures)
    cell(
        tmp_path, head + "1,4,,0.7,4.0\n1,4,3.0,,\n", draw=1,
        measures=[{"layer": 0, "head": 0, "distance": 9.0}], protocols=["steps", "epochs"],
    )  # fmt: skip
    cell(tmp_path, head, draw=2, status="failed", error="OSError: no")
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


def test_plot_makes_figures_for_a_paper(tmp_path: Path) -> None:
    root, out = stored(tmp_path / "one", UNEVEN), tmp_path / "out"
    asked = ["--format", "pdf,png", "--width", "3.3", "--font", "8", "--dpi", "100"]
    assert main(["plot", str(root), "--out", str(out), *asked, "--models", "vit"]) == 0
    assert (out / "accuracy_vs_size.pdf").read_bytes().startswith(b"%PDF-")
    assert plt.imread(out / "accuracy_vs_size.png").shape[1] == 330
    assert not list(out.glob("*.svg"))
    assert "<svg" in (out / "report.html").read_text()


def test_plot_compares_with_the_model_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        row(m, 20, d, 0.1 * i + d / 9) for i, m in enumerate(["cnn", "vit", "x"]) for d in (0, 1)
    ]
    root, out = stored(tmp_path / "one", rows), tmp_path / "out"
    assert main(["plot", str(root), "--out", str(out), "--reference", "x", "--format", "svg"]) == 0
    assert "In short (vit against x, " in capsys.readouterr().out
    for table in ("pairs", "multiplier"):
        assert set(pd.read_csv(out / f"{table}.csv")["reference"]) == {"x"}
    page = (out / "report.html").read_text()
    assert "x minus each other model, points" in page
    assert "vit against x, equal updates" in page


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--format", "jpg"], "format 'jpg' is not known; choose from svg, png, pdf"),
        (["--models", "cnn,vitt"], "model 'vitt' has no results; did you mean vit?"),
        (["--reference", "cnnn"], "reference 'cnnn' is no model of these results; choose one of"),
        (["--width", "900"], "width is 900.0; wanted 2 to 30"),
        (["--style", "none.mplstyle"], "style none.mplstyle is no file"),
    ],
)
def test_a_wrong_option_of_plot_is_one_line(
    asked: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plot", str(stored(tmp_path / "one", UNEVEN)), *asked]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert said in lines[0]
