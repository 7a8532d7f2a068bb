"""What the README shows is what is stored, and what people are told to type is accepted."""

import math
import re
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from benchmarks.losses import pairs_of, runs_of, shown

from vision_attn.cli import main
from vision_attn.commands.presets import with_presets
from vision_attn.commands.study import study_of
from vision_attn.report.analysis import analyse
from vision_attn.report.phase import phase
from vision_attn.report.tables import markdown
from vision_attn.stats.intervals import interval
from vision_attn.study.results import StoredStudy, read_results

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
STORED = ROOT / "docs" / "results" / "cifar10_cpu"
FITTED = ROOT / "docs" / "results" / "cifar10_fitted"
ISOLATED = ROOT / "docs" / "results" / "cifar10_attention"
LONGER = ROOT / "docs" / "results" / "cifar10_attention_fitted"
RELATIONAL = ROOT / "docs" / "results" / "relational"
RESULTS = (ROOT / "docs" / "results" / "README.md").read_text(encoding="utf-8")
PAGES = [README, RESULTS, (ROOT / "docs" / "study.md").read_text(encoding="utf-8")]
PAGES += [path.read_text(encoding="utf-8") for path in sorted((ROOT / "configs").glob("*.yaml"))]
COMMANDS = sorted(
    {
        re.sub(r"^(python train\.py|vision-attn) ", "", line.strip(" #").split(" #")[0].strip())
        for page in PAGES
        for line in page.splitlines()
        if re.match(r"(    |#   )(python train\.py|vision-attn) (compare|budget)", line)
    }
)


def test_table_is_the_stored_one() -> None:
    results = read_results(STORED)
    pair = results["model"].isin(["cnn", "vit"]) & (results["protocol"] == "steps")
    assert markdown(analyse(StoredStudy(results[pair]))).strip() in RESULTS


def test_numbers_of_the_first_screen_are_those_of_the_stored_runs() -> None:
    fitted = pairs_of(runs_of(FITTED, ("cnn", "vit")), "cnn", "vit")
    points = "{:.1f} points behind the CNN ({:.1f} to {:.1f})"
    assert points.format(*interval(fitted.loc[5000]["points"])[:3]) in README
    mean, low, high, *_ = interval(fitted.loc[500]["test loss"] - fitted.loc[5000]["test loss"])
    assert f"by {mean:.2f} ({low:.2f} to {high:.2f})" in README
    names = ("pooled_none", "pooled_attention")
    isolated, longer = (pairs_of(runs_of(study, names), *names) for study in (ISOLATED, LONGER))
    for pairs, size, sign, text in (
        (longer, 1000, 1, "{:.1f} points ahead of attention at 1,000 images ({:.1f} to {:.1f})"),
        (longer, 5000, 1, "{:.1f} ({:.1f} to {:.1f}) at 5,000"),
        (isolated, 45000, -1, "attention is {:.1f} ahead at 45,000 ({:.1f} to {:.1f})"),
        (longer, 45000, 1, "with 7,500 {:.1f} behind ({:.1f} to {:.1f})"),
    ):
        assert text.format(*interval(sign * pairs.loc[size]["points"])[:3]) in README
    fewer = (longer.loc[1000]["points"] - longer.loc[5000]["points"]).dropna()
    assert "{:.1f} ({:.1f} to {:.1f}) less".format(*interval(fewer)[:3]) in README


def test_numbers_of_the_relational_study_are_those_of_its_runs() -> None:
    found = phase([RELATIONAL / name for name in ("p0", "p025", "p050", "p100")])
    stored = pd.read_csv(RELATIONAL / "phase" / "phase.csv")
    pd.testing.assert_frame_equal(found.differences, stored, check_dtype=False)
    rows = stored[(stored["measure"] == "test_acc") & (stored["size"] == 6400)]
    ahead, behind, context = (
        (100 * rows[(rows["opponent"] == o) & (rows["p"] == p)][["mean", "low", "high"]]).iloc[0]
        for o, p in (("stride_cnn", 1), ("stride_cnn", 0), ("context_cnn", 1))
    )
    text = "{:.1f} points ahead of a CNN with strides at 6,400 images ({:.1f} to {:.1f})"
    assert text.format(*ahead) in README
    assert (
        "without a relation {:.1f} behind ({:.1f} to {:.1f})".format(
            -behind["mean"], -behind["high"], -behind["low"]
        )
        in README
    )
    assert (
        "{:.1f} points behind it at 6,400 images, all with a relation ({:.1f} to {:.1f})".format(
            -context["mean"], -context["high"], -context["low"]
        )
        in RESULTS
    )
    boundary = found.boundary.query("opponent == 'stride_cnn' and axis == 'size' and at == 0")
    place = boundary[["mean", "low", "high"]].iloc[0]
    assert "791 images ({:,.0f} to {:,.0f})".format(*place[1:]) in RESULTS
    assert round(place["mean"]) == 791


def test_numbers_of_the_claims_stand_in_the_text_below() -> None:
    table, _, text = RESULTS.partition("Contents:")
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 10
    for claim, answer, number, where in rows:
        assert re.match(r"(yes|no|partly|hardly)", answer), claim
        page = text if "(#" in where else (ROOT / "docs/results/diagnose/diagnose.md").read_text()
        place = re.search(r"\(#(\w+)\)", where)
        if place:
            page = text.split(f"\n## {place[1]}\n")[1].split("\n## ")[0]
        for value in re.findall(r"\d+\.\d+", number):
            assert value in page, (claim, value)


def test_stored_tables_come_from_the_stored_results() -> None:
    results = read_results(STORED)
    analysis = analyse(StoredStudy(results))
    assert markdown(analysis) == (STORED / "table.md").read_text(encoding="utf-8")
    stored = pd.read_csv(STORED / "summary.csv")
    pd.testing.assert_frame_equal(analysis.summary, stored, check_dtype=False)


def test_figures_of_the_readme_are_there() -> None:
    for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert (ROOT / path).stat().st_size > 10_000, path


def test_first_screen_leads_to_installing() -> None:
    before, _, rest = README.partition("\n## Install\n")
    assert len(before) < 1800
    assert before.count("\n- ") == 3
    assert rest.index("## Contents") < 3000


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_are_accepted(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as stopped:
        main([*shlex.split(line), "--print_config"])
    assert stopped.value.code == 0
    assert "budget:" in capsys.readouterr().out
    command, *args = shlex.split(line)
    study_of(command, "", with_presets(args))[1].check()


def test_files_are_there_and_no_folder_is_missing() -> None:
    page = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    lines = page.split("\n## Files\n")[1].split("```")[1].splitlines()
    for line in lines[lines.index("vision_attn/") + 1 :]:
        if line.startswith("  "):
            folder, _, text = line.strip().partition("/")
            for name in re.findall(r"\w+\.py", text):
                assert (ROOT / "vision_attn" / folder / name).is_file(), f"{folder}/{name}"
    named = {line.split("/")[0].strip() for line in lines if line.startswith("  ") and "/" in line}
    folders = {path.parent.name for path in ROOT.glob("vision_attn/*/__init__.py")}
    assert named >= folders
    assert {"tests", "docs", "configs"} <= {line.split("/")[0] for line in lines}


def test_senses_of_overfitting_are_those_of_the_stored_runs() -> None:
    for size, rows in pairs_of(runs_of(FITTED, ("cnn", "vit")), "cnn", "vit").groupby("size"):
        points = "{:.1f} ({:.1f} to {:.1f})".format(*interval(rows["points"])[:3])
        ratio = f"{math.exp(rows['error ratio'].mean()):.2f}"
        rises = [f"{rows[name].mean():.2f}" for name in ("rise of first", "of second")]
        cells = [f"{size:,}", points, ratio, shown(rows["test loss"], "test loss"), *rises]
        assert f"| {' | '.join(cells)} |" in RESULTS


def test_links_inside_the_project_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"(?<!!)\[[^]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            if link.startswith("https://"):
                continue
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), (page, link)
            if anchor:
                heads = re.findall(r"^#+ (.*)", target.read_text(encoding="utf-8"), re.MULTILINE)
                slugs = [re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads]
                assert anchor in slugs, (page, link)


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_code_runs(code: str) -> None:
    names: dict[str, Any] = {}
    exec(code, names)
    if "attn" in names:
        assert names["y"].shape == (2, 64, 96)
        assert names["w"].shape == (2, 3, 64, 64)


def test_newcomers_lines_are_where_the_machine_looks_for_them() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for line in re.findall(r"\$\(line '(.*)'\)", script):
        assert re.search(rf"^    {re.escape(line)}$", README, re.MULTILINE), line
