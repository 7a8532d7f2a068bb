"""report.html: what stands in it, that text of others stays text, and how Chromium shows it."""

import base64
import re
import threading
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import yaml
from made_study import everything, failed, pairs, row, stored, study

from vision_attn.cli import main
from vision_attn.report.analysis import analyse
from vision_attn.report.figures import figures
from vision_attn.report.page import page
from vision_attn.report.write import report
from vision_attn.stats.paired import differences
from vision_attn.study.results import read, read_results
from vision_attn.study.runs import select
from vision_attn.study.store import COLUMNS

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


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = everything(tmp_path_factory.mktemp("full"))
    report(root, kinds=("svg",))
    return root


def reader(root: Path) -> Reader:
    """The page of a study, its figures drawn and not rendered."""
    analysis = analyse(read(root))
    return Reader(page(analysis, dict.fromkeys(figures(analysis), b"<svg/>")))


def test_page_is_whole_and_needs_nothing_from_outside(full: Path) -> None:
    text = (full / "report.html").read_text()
    read = Reader(text)
    assert read.open == []
    assert read.all("html") == [{"lang": "en"}]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in read.all(
        "meta"
    )
    assert read.all("script") == []
    sources = [a[k] for _, a in read.tags for k in ("src", "href") if k in a]
    assert all(s.startswith("data:") for s in sources)
    assert not re.search(r"url\(|@import", text)
    assert plt.get_fignums() == []


def test_every_figure_has_a_picture_a_caption_and_words(full: Path) -> None:
    read = Reader((full / "report.html").read_text())
    pictures = read.all("img")
    files = {p.stem for p in full.glob("*.svg")}
    assert files == {
        "accuracy_vs_size", "gap_vs_size", "error_loglog", "multiplier", "protocol_split",
        "training_curves", "capacity", "controls", "attention_distance",
    }  # fmt: skip
    assert len(pictures) == len(files) == len(read.all("figcaption"))
    inside = {base64.b64decode(p["src"].split(",")[1]) for p in pictures}
    assert inside == {(full / f"{name}.svg").read_bytes() for name in files}
    for picture in pictures:
        assert len(picture["alt"]) > 40
    mean = read_results(full).query("model == 'vit' and protocol == 'steps' and control == 'none'")
    first = 100 * mean[mean["size"] == 250]["test_acc"].astype(float).mean()
    assert f"vit: {first:.1f} % at 250 images" in pictures[0]["alt"]


def test_tables_hold_the_numbers(full: Path) -> None:
    text = Reader((full / "report.html").read_text()).text
    results = read_results(full)
    for size, mean, low, high in differences(select(results, "steps", "none"), "cnn", "vit")[
        ["size", "mean", "low", "high"]
    ].itertuples(index=False):
        assert f"{100 * mean:.1f} ({100 * low:.1f} to {100 * high:.1f})" in text, size
    for said in (
        "4,321", "7.65 M", "params of vit",  # matching, from study.yaml
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
    assert len(read.all("img")) == 4
    assert not {"i", "script"} & {tag for tag, _ in read.tags}
    assert all("onerror" not in a for a in read.all("img"))
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
    assert "python train.py compare --config study-config.yaml --out DIR" in read.text
    (link,) = read.all("a")
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
    links = read.all("a")
    assert [link["download"] for link in links] == ["study-config-1.yaml", "study-config-2.yaml"]
    for link, start in zip(links, starts, strict=True):
        assert f"compare --config {link['download']} --out DIR" in read.text
        saved = base64.b64decode(link["href"].split(",")[1]).decode()
        assert yaml.safe_load(saved) == start


@pytest.mark.parametrize(
    ("rows", "said", "figures"),
    [
        ([row("vit", 20, 0, 0.5)], "one model, vit, and so nothing to compare", 3),
        (pairs(20, [0.5], [0.25]), "one draw of test accuracy gives no interval", 4),
        (pairs(20, [0.5, 0.6], [0.4, 0.5]), "One size cannot say", 4),
        (pairs(20, [0.5], [0.25], train=0.9), "overfits more in accuracy cannot be said", 4),
        ([row("cnn", 20, 0, 0.5), row("vit", 50, 0, 0.5)], "nothing can be compared", 4),
        (pairs(20, [0.1], [0.1], control="shuffled"), "one draw of test accuracy", 5),
        (pairs(20, [1.0, 1.0], [1.0, 0.9]), "no difference in test accuracy can be shown", 3),
        ([*pairs(20, [0.5], [0.25]), failed("vit", 50, 0)], "1 run failed", 4),
    ],
)  # fmt: skip
def test_small_studies_have_a_page(
    tmp_path: Path, rows: list[dict[str, Any]], said: str, figures: int
) -> None:
    read = reader(stored(tmp_path, rows))
    assert said in read.text
    assert len(read.all("img")) == figures
    assert "nan" not in read.text.lower().replace("finance", "")
    assert "No study.yaml is stored" in read.text


def test_results_from_before_the_later_columns(tmp_path: Path) -> None:
    later = ("protocol", "control", "arch", "matched")
    old = [c for c in COLUMNS if c not in later]
    pd.DataFrame(pairs(20, [0.5], [0.25]))[old].to_csv(tmp_path / "results.csv", index=False)
    assert list(analyse(read(tmp_path)).summary["protocol"]) == ["steps", "steps"]


# in a browser


def show(window: Any, page: Path, width: int, height: int) -> None:
    window.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    window.get(page.as_uri())


@pytest.mark.parametrize(("width", "height"), [(360, 740), (390, 844), (1366, 900)])
def test_page_in_chromium(full: Path, browser: Any, width: int, height: int) -> None:
    browser.get_log("browser")
    browser.get_log("performance")
    show(browser, full / "report.html", width, height)
    assert browser.execute_script("return window.innerWidth") == width
    assert browser.get_log("browser") == []
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    pictures = browser.execute_script(
        "return [...document.images].map(i => [i.complete, i.naturalWidth,"
        " i.getBoundingClientRect().width, i.getBoundingClientRect().right])"
    )
    assert len(pictures) == 9
    for complete, natural, shown, right in pictures:
        assert complete
        assert natural > 300
        assert 250 < shown <= 610
        assert right <= width
    wide = browser.execute_script(
        "return [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, pre') &&"
        " e.getBoundingClientRect().right > innerWidth).map(e => e.tagName)"
    )
    assert wide == []
    scrolls = browser.execute_script(
        "return [...document.querySelectorAll('.scroll')].map(e =>"
        " [e.scrollWidth > e.clientWidth, getComputedStyle(e).overflowX, e.tabIndex])"
    )
    assert {tuple(s[1:]) for s in scrolls} == {("auto", 0)}
    assert any(s[0] for s in scrolls) or width > 500  # else the test shows nothing
    sizes = browser.execute_script(
        "return ['.verdict p', 'td', 'figcaption'].map(q =>"
        " parseFloat(getComputedStyle(document.querySelector(q)).fontSize))"
    )
    assert min(sizes) >= 14
    asked = re.findall(
        r'"url":"(\w+):', str([e["message"] for e in browser.get_log("performance")])
    )
    assert set(asked) <= {"file", "data"}


def test_verdict_in_chromium_has_the_numbers(full: Path, browser: Any) -> None:
    show(browser, full / "report.html", 1366, 900)
    text = browser.execute_script("return document.getElementById('verdict').innerText")
    rows = differences(select(read_results(full), "steps", "none"), "cnn", "vit")
    ahead = rows[rows["low"] > 0]
    for i in (0, -1):
        r = ahead.iloc[i]
        assert (
            f"{100 * r['mean']:.1f} points (95 % interval {100 * r['low']:.1f} to"
            f" {100 * r['high']:.1f}, 3 draws) at {int(r['size']):,}"
        ) in text
    assert len(text.strip().split("\n\n")) == 4


def test_a_fault_would_be_seen(tmp_path: Path, browser: Any) -> None:
    """The same look at a page that is too wide and asks for something it cannot have."""
    page = tmp_path / "bad.html"
    page.write_text('<div style="width: 900px">wide</div><img src="missing.png">')
    browser.get_log("browser")
    show(browser, page, 390, 844)
    assert browser.execute_script("return document.documentElement.scrollWidth") > 390
    assert browser.execute_script("return document.images[0].naturalWidth") == 0
    assert [e["level"] for e in browser.get_log("browser")] == ["SEVERE"]


def test_the_network_is_off(browser: Any) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with pytest.raises(Exception, match="ERR_INTERNET_DISCONNECTED"):
            browser.get(f"http://127.0.0.1:{server.server_port}/")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert asked == []
