"""report.html: what stands in it, that text of others stays text, and how Chromium shows it."""

import base64
import re
import threading
import time
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import pandas as pd
import pytest
import yaml
from made_study import everything, failed, pairs, row, stored, study
from PIL import Image

from vision_attn.cli import main
from vision_attn.report.analysis import analyse
from vision_attn.report.figures import figures
from vision_attn.report.page import page
from vision_attn.report.write import report
from vision_attn.stats.paired import differences
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


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = everything(tmp_path_factory.mktemp("full"))
    report(root, kinds=("svg",))
    return root


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
    for size, mean, low, high in differences(select(results, "steps", "none"), "cnn", "vit")[
        ["size", "mean", "low", "high"]
    ].itertuples(index=False):
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
    assert "python train.py compare --config study-config.yaml --out DIR" in read.text
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
    browser.execute_script("document.querySelectorAll('details.more').forEach(d => d.open = true)")
    pictures = browser.execute_script(
        "return [...document.querySelectorAll('.plot svg')].map(e => e.getBoundingClientRect())"
        ".map(r => [r.width, r.height, r.right])"
    )
    assert len(pictures) == 9
    for shown, high, right in pictures:
        assert 250 < shown <= 610
        assert high > 150
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
    ahead = rows[rows["low"] > 0]["mean"]
    assert f"The CNN, at all 6 sizes, by {100 * ahead.min():.1f} to {100 * ahead.max():.1f}" in text
    said = text.strip().split("\n\n")
    assert [line.split("?")[0] for line in said[:3]] == [
        "Who is better", "Who overfits more", "Does the difference shrink",
    ]  # fmt: skip
    assert said[3] == "digits, equal updates, 3 draws, 95 % intervals"


def test_points_say_their_values(full: Path, browser: Any) -> None:
    """To the pointer and to the keyboard, with the numbers of the results."""
    show(browser, full / "report.html", 1366, 900)
    at = browser.execute_script(
        "const p = document.querySelector('#figure-accuracy_vs_size .plot');"
        "p.scrollIntoView({block: 'center'}); const s = p.querySelector('svg');"
        "const c = JSON.parse(document.getElementById('curves').textContent).accuracy_vs_size;"
        "const k = c.findIndex(x => x.name === 'vit'), q = c[k].points[0];"
        "const r = s.getBoundingClientRect(), f = r.width / s.viewBox.baseVal.width;"
        "return [r.left + q[0] * f, r.top + q[1] * f, q[2]]"
    )
    move = {"type": "mouseMoved", "x": at[0], "y": at[1]}
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", move)
    tip = "#figure-accuracy_vs_size .tip"
    said, box = text_of(browser, tip)
    assert said == at[2]
    vit = read_results(full).query("model == 'vit' and protocol == 'epochs' and size == 250")
    mean = 100 * vit[vit["control"] == "none"]["test_acc"].astype(float).mean()
    assert said.startswith(f"vit, 250 images: {mean:.1f} % (")
    assert said.endswith("3 draws, equal epochs")
    assert 0 <= box["left"] < box["right"] <= 1366
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", move | {"x": 2, "y": 2})
    assert text_of(browser, tip)[1]["width"] == 0

    browser.execute_script("document.querySelector('#figure-accuracy_vs_size .plot').focus()")
    seen = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft", "ArrowDown"):
        press(browser, key)
        seen.append(text_of(browser, tip)[0])
    assert seen[0] != seen[1]
    assert seen[2] == seen[3] == seen[0]  # there is no point before the first
    assert seen[0].split(",")[0] != seen[4].split(",")[0]  # another curve
    press(browser, "Escape")
    assert text_of(browser, tip)[1]["width"] == 0


def text_of(browser: Any, css: str) -> tuple[str, dict[str, float]]:
    text, box = browser.execute_script(
        "const e = document.querySelector(arguments[0]);"
        "return [e.textContent, e.getBoundingClientRect().toJSON()]",
        css,
    )
    return text, box


def press(browser: Any, key: str) -> None:
    for kind in ("keyDown", "keyUp"):
        browser.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": kind, "key": key})


def test_a_curve_can_be_hidden(full: Path, browser: Any) -> None:
    show(browser, full / "report.html", 1366, 900)
    at = "#figure-gap_vs_size"
    toggles = browser.find_elements("css selector", f"{at} .toggle")
    assert [t.text for t in toggles] == ["vit_large", "vit", "cnn"]
    parts = (
        "return [...document.querySelectorAll(`#figure-gap_vs_size [id^='gap_vs_size-curve']`)]"
        ".filter(e => e.style.display === 'none').map(e => e.id.split('.')[0].slice(-6))"
    )
    assert browser.execute_script(parts) == []
    toggles[1].click()
    hidden = browser.execute_script(parts)
    assert set(hidden) == {"curve1"}
    assert len(hidden) >= 4  # line, band, points, name
    assert toggles[1].get_attribute("aria-pressed") == "false"
    toggles[1].click()
    assert browser.execute_script(parts) == []


def test_buttons_copy_and_download(full: Path, browser: Any, tmp_path: Path) -> None:
    browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    show(browser, full / "report.html", 1366, 900)
    for label in ("SVG: Gap against", "PNG: Gap against", "CSV: cnn minus each"):
        browser.execute_script(
            "document.querySelectorAll('details.more').forEach(d => d.open = true);"
            "document.querySelector(`[aria-label^='download as ${arguments[0]}']`).click()",
            label,
        )
    wanted = {"gap_vs_size.svg", "gap_vs_size.png", "cnn_minus_each_other_model_points.csv"}
    for _ in range(100):
        if {p.name for p in tmp_path.iterdir()} == wanted:
            break
        time.sleep(0.1)
    assert {p.name for p in tmp_path.iterdir()} == wanted
    assert ElementTree.parse(tmp_path / "gap_vs_size.svg").getroot().tag.endswith("svg")
    with Image.open(tmp_path / "gap_vs_size.png") as image:
        assert image.width > 1100
        assert len(image.convert("RGB").resize((90, 70)).getcolors(10000) or []) > 20
    made = pd.read_csv(tmp_path / "cnn_minus_each_other_model_points.csv")
    assert made["images"].tolist() == ["250", "500", "1,000", "2,500", "5,000", "10,000"]

    copied = browser.execute_script(
        "window.got = null; document.addEventListener('copy', () => {"
        "window.got = getSelection().toString()});"
        "Object.defineProperty(navigator, 'clipboard', {value: {writeText: t => {"
        "window.got = t; return Promise.resolve()}}, configurable: true});"
        "const b = document.querySelector('.command button'); b.click();"
        "return new Promise(d => setTimeout(() => d([window.got, b.textContent]), 50))"
    )
    command = "python train.py compare --config study-config.yaml --out DIR"
    assert copied == [command, "Copied"]


def test_a_link_opens_the_part_that_it_names(full: Path, browser: Any) -> None:
    show(browser, full / "report.html", 390, 844)
    links = browser.find_elements("css selector", "nav a")
    goals = [link.get_attribute("href").split("#")[1] for link in links]
    assert goals[0] == "verdict"
    assert len(browser.find_elements("css selector", ",".join(f"#{g}" for g in goals))) == len(
        goals
    )
    browser.execute_script("location.hash = 'figure-multiplier'")
    time.sleep(0.3)
    box = browser.execute_script(
        "return document.getElementById('figure-multiplier').getBoundingClientRect().toJSON()"
    )
    assert box["height"] > 200
    assert abs(box["top"]) < 60


def test_the_first_column_stays_in_view(full: Path, browser: Any) -> None:
    show(browser, full / "report.html", 360, 740)
    left = browser.execute_script(
        "const s = document.querySelector('#results ~ .tables .scroll'); s.scrollLeft = 150;"
        "return [s.scrollLeft, s.getBoundingClientRect().left,"
        " s.querySelector('td').getBoundingClientRect().left]"
    )
    assert left[0] == 150
    assert left[1] == left[2]


def test_dark_mode_has_its_own_colours(full: Path, browser: Any) -> None:
    seen = {}
    for scheme in ("light", "dark"):
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        show(browser, full / "report.html", 1366, 900)
        seen[scheme] = browser.execute_script(
            "const c = q => getComputedStyle(document.querySelector(q));"
            "return [c('body').backgroundColor, c('body').color, c('.plot').backgroundColor]"
        )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert seen["light"] == ["rgb(255, 255, 255)", "rgb(26, 29, 33)", "rgb(255, 255, 255)"]
    assert seen["dark"] == ["rgb(22, 24, 27)", "rgb(232, 234, 237)", "rgb(255, 255, 255)"]


def test_on_paper_it_has_few_pages(full: Path, browser: Any) -> None:
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get((full / "report.html").as_uri())
    made = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    paper = base64.b64decode(made["data"])
    pages = len(re.findall(rb"/Type\s*/Page\b", paper))
    assert 3 <= pages <= 6
    shut = browser.execute_script(
        "return [...document.querySelectorAll('details')].map(d => d.open)"
    )
    assert not any(shut)  # as they were before


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
