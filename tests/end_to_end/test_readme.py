"""What the README shows is what is stored, and what people are told to type is accepted."""

import math
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
from benchmarks.losses import pairs_of, runs_of, shown

from vision_attn.cli import main
from vision_attn.commands.study import study_of
from vision_attn.report.analysis import analyse
from vision_attn.report.tables import markdown
from vision_attn.stats.intervals import interval
from vision_attn.study.results import StoredStudy, read_results

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
STORED = ROOT / "docs" / "results" / "cifar10_cpu"
PAGES = [README, (ROOT / "docs" / "results" / "README.md").read_text(encoding="utf-8")]
PAGES += [path.read_text(encoding="utf-8") for path in sorted((ROOT / "configs").glob("*.yaml"))]
COMMANDS = sorted(
    {
        line.strip(" #").split("#")[0].strip()
        for page in PAGES
        for line in page.splitlines()
        if re.match(r"(    |#   )python train\.py (compare|budget)", line)
    }
)


def test_table_is_the_stored_one() -> None:
    results = read_results(STORED)
    pair = results["model"].isin(["cnn", "vit"]) & (results["protocol"] == "steps")
    assert markdown(analyse(StoredStudy(results[pair]))).strip() in README


def test_stored_tables_come_from_the_stored_results() -> None:
    results = read_results(STORED)
    analysis = analyse(StoredStudy(results))
    assert markdown(analysis) == (STORED / "table.md").read_text(encoding="utf-8")
    stored = pd.read_csv(STORED / "summary.csv")
    pd.testing.assert_frame_equal(analysis.summary, stored, check_dtype=False)


def test_figures_of_the_readme_are_there() -> None:
    for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert (ROOT / path).stat().st_size > 10_000, path


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_are_accepted(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as stopped:
        main([*shlex.split(line)[2:], "--print_config"])
    assert stopped.value.code == 0
    assert "budget:" in capsys.readouterr().out
    command, *args = shlex.split(line)[2:]
    study_of(command, "", args)[1].check()


def test_files_are_there_and_no_folder_is_missing() -> None:
    lines = README.split("\n## Files\n")[1].split("```")[1].splitlines()
    for line in lines[lines.index("vision_attn/") + 1 :]:
        if line.startswith("  "):
            folder, _, text = line.strip().partition("/")
            for name in re.findall(r"\w+\.py", text):
                assert (ROOT / "vision_attn" / folder / name).is_file(), f"{folder}/{name}"
    named = {line.split("/")[0].strip() for line in lines if line.startswith("  ") and "/" in line}
    folders = {path.parent.name for path in ROOT.glob("vision_attn/*/__init__.py")}
    assert named >= folders
    assert {"tests", "docs", "configs"} <= {line.split("/")[0] for line in lines}


def test_senses_of_overfitting_in_the_readme_are_those_of_the_stored_runs() -> None:
    study = ROOT / "docs" / "results" / "cifar10_fitted"
    for size, rows in pairs_of(runs_of(study, ("cnn", "vit")), "cnn", "vit").groupby("size"):
        points = "{:.1f} ({:.1f} to {:.1f})".format(*interval(rows["points"])[:3])
        ratio = f"{math.exp(rows['error ratio'].mean()):.2f}"
        rises = [f"{rows[name].mean():.2f}" for name in ("rise of first", "of second")]
        cells = [f"{size:,}", points, ratio, shown(rows["test loss"], "test loss"), *rises]
        assert f"| {' | '.join(cells)} |" in README


def test_code_runs() -> None:
    code = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(code) == 1
    names: dict[str, object] = {}
    exec(code[0], names)
    y, w, keep = names["y"], names["w"], names["keep"]
    assert y.shape == (2, 64, 96)  # type: ignore[attr-defined]
    assert (w.movedim(-1, 0)[:, :, 0][~keep.mT] == 0).all()  # type: ignore[attr-defined]
