"""report.html: what stands in it, that text of others stays text, and how Chromium shows it."""

import base64
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import yaml
from made_study import failed, pairs, row, stored, study

from vision_attn.cli import main
from vision_attn.report.analysis import analyse
from vision_attn.report.figures import figures
from vision_attn.report.page import page
from vision_attn.stats.paired import differences, paired
from vision_attn.study.result import COLUMNS
from vision_attn.study.results import read, read_results, select

VOID = {"meta", "link", "img"}


class Reader(HTMLParser):
    """Tags with their attributes, the text, and whether every tag is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, Any]]:
        return [attrs for name, attrs in self.tags if name == tag]


def saves(read: Reader) -> list[dict[str, Any]]:
    return [a for a in read.all("a") if "download" in a]


def drawings(read: Reader) -> list[dict[str, Any]]:
    return [a for a in read.all("svg") if a.get("role") == "img"]


def reader(root: Path) -> Reader:
    """The page of a study, its figures drawn and not rendered."""
    analysis = analyse(read(root))
    drawing = b'<svg viewBox="0 0 9 9"><path d=""/></svg>'
    return Reader(page(analysis, dict.fromkeys(figures(analysis), drawing)))


def test_page_is_whole_and_needs_nothing_from_outside(full: Path) -> None:
    text = (full / "report.html").read_text()
    read = Reader(text)
    assert read.open == []
    assert read.all("html") == [{"lang": "en"}]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in read.all(
        "meta"
    )
    assert read.all("script") == [{"type": "application/json", "id": "curves"}, {}]
    sources = [a[k] for _, a in read.tags for k in ("src", "href", "xlink:href") if k in a]
    assert all(s.startswith(("data:", "#")) for s in sources)
    assert all(u.startswith("#") for u in re.findall(r"url\(([^)]*)", text))
    assert "@import" not in text
    assert plt.get_fignums() == []


def test_every_figure_has_a_picture_a_caption_and_words(full: Path) -> None:
    text = (full / "report.html").read_text()
    read = Reader(text)
    assert read.all("img") == []
    pictures = drawings(read)
    files = {p.stem for p in full.glob("*.svg")}
    assert files == {
        "accuracy_vs_size", "gap_vs_size", "error_loglog", "multiplier", "protocol_split",
        "training_curves", "capacity", "controls", "attention_distance",
    }  # fmt: skip
    assert len(pictures) == len(files) == len(read.all("figcaption"))
    for picture in pictures:
        assert len(picture["aria-label"]) > 40
    assert {a["id"] for a in read.all("figure")} == {f"figure-{name}" for name in files}
    for name in files:  # the paths are those of the file
        paths = re.findall(r' d="[^"]*"', (full / f"{name}.svg").read_text())
        assert "".join(paths) in "".join(re.findall(r' d="[^"]*"', text))
    mean = read_results(full).query("model == 'vit' and protocol == 'steps' and control == 'none'")
    first = 100 * mean[mean["size"] == 250]["test_acc"].astype(float).mean()
    assert f"vit: {first:.1f} % at 250 images" in pictures[0]["aria-label"]


def test_tables_hold_the_numbers(full: Path) -> None:
    text = Reader((full / "report.html").read_text()).text
    results = read_results(full)
    apart = differences(paired(select(results, "steps", "none"), "vit"))
    cnn = apart.loc[apart["model"] == "cnn", ["size", "mean", "low", "high"]]
    for size, mean, low, high in cnn.itertuples(index=False):
        assert f"{100 * mean:.1f} ({100 * low:.1f} to {100 * high:.1f})" in text, size
    for said in (
        "4,321", "7.65 M", "parameters of vit",  # cost, from study.yaml
        "vit_large", "999,999",
        "fitted on images", "250 to 2,500", "miss",
        "from undertraining", "pixels permuted", "labels shuffled",
        "Tuning", "50.0",
        "torch 9.8.7", "cores 3", "gpu none", "digits",
    ):  # fmt: skip
        assert said in text, said


def test_what_others_wrote_is_text(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>&\"'"
    rows = [row(name, 20, 0, 0.5), row("vit", 20, 0, 0.25), failed(name, 50, 1, "<b>&amp;</b>")]
    stored(tmp_path, rows)
    study(tmp_path, machine={"cpu": "<i>fast</i>"}, starts=[{"models": ["</pre><script>"]}])
    read = reader(tmp_path)
    assert read.open == []
    assert read.all("img") == []
    assert len(read.all("script")) == 2
    assert "i" not in {tag for tag, _ in read.tags}
    assert all("onerror" not in a for _, a in read.tags)
    for said in (name, "<b>&amp;</b>", "<i>fast</i>", "</pre><script>"):
        assert said in read.text


def test_failed_runs_are_listed(full: Path) -> None:
    text = Reader((full / "report.html").read_text()).text
    assert "1 run failed; not counted anywhere" in text
    assert "Error: <script>alert(1)</script> & more" in text


def test_configuration_runs_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, pairs(20, [0.5], [0.25]))
    (held,) = study(tmp_path)["starts"]
    read = reader(tmp_path)
    assert "vision-attn compare --config study-config.yaml --out DIR" in read.text
    (link,) = saves(read)
    assert link["download"] == "study-config.yaml"
    saved = base64.b64decode(link["href"].split(",")[1]).decode()
    assert saved in read.text
    assert yaml.safe_load(saved) == held
    monkeypatch.chdir(tmp_path)
    Path("study-config.yaml").write_text(saved)
    with pytest.raises(SystemExit) as stopped:
        main(["compare", "--config", "study-config.yaml", "--out", "again", "--print_config"])
    assert stopped.value.code == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert {k: printed[k] for k in held} == held


def test_every_start_has_its_command(tmp_path: Path) -> None:
    stored(tmp_path, pairs(20, [0.5], [0.25]))
    starts = [{"models": ["vit", "cnn"], "draws": 2}, {"models": ["vit"], "draws": 5}]
    study(tmp_path, starts=starts)
    read = reader(tmp_path)
    links = saves(read)
    assert [link["download"] for link in links] == ["study-config-1.yaml", "study-config-2.yaml"]
    for link, start in zip(links, starts, strict=True):
        assert f"compare --config {link['download']} --out DIR" in read.text
        saved = base64.b64decode(link["href"].split(",")[1]).decode()
        assert yaml.safe_load(saved) == start


@pytest.mark.parametrize(
    ("rows", "said", "figures"),
    [
        ([row("vit", 20, 0, 0.5)], "How good is the ViT?", 2),
        (pairs(20, [0.5], [0.25]), "One draw cannot say", 2),
        (pairs(20, [0.5, 0.6], [0.4, 0.5]), "One size cannot say", 2),
        (pairs(20, [0.5], [0.25], train=0.9), "By the gap in accuracy that cannot be said", 2),
        ([row("cnn", 20, 0, 0.5), row("vit", 50, 0, 0.5)], "nothing can be compared", 3),
        (pairs(20, [0.1], [0.1], control="shuffled"), "equal updates, labels shuffled, 1 draw", 3),
        (pairs(20, [1.0, 1.0], [1.0, 0.9]), "No difference can be shown", 2),
        ([*pairs(20, [0.5], [0.25]), failed("vit", 50, 0)], "1 run failed", 2),
    ],
)  # fmt: skip
def test_small_studies_have_a_page(
    tmp_path: Path, rows: list[dict[str, Any]], said: str, figures: int
) -> None:
    read = reader(stored(tmp_path, rows))
    assert said in read.text
    assert len(drawings(read)) == figures
    assert "nan" not in read.text.lower().replace("finance", "")
    assert "No study.yaml is stored" in read.text


def test_results_from_before_the_later_columns(tmp_path: Path) -> None:
    later = ("protocol", "control", "arch", "matched")
    old = [c for c in COLUMNS if c not in later]
    pd.DataFrame(pairs(20, [0.5], [0.25]))[old].to_csv(tmp_path / "results.csv", index=False)
    assert list(analyse(read(tmp_path)).summary["protocol"]) == ["steps", "steps"]
