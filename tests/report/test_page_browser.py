"""How Chromium shows report.html: sizes, pointing, downloads, dark, on paper, without a network."""

import base64
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest
from PIL import Image

from vision_attn.stats.paired import differences, paired
from vision_attn.study.results import read_results, select


def cnn_minus_vit(root: Path) -> pd.DataFrame:
    """Accuracies, a row a size."""
    table = differences(paired(select(read_results(root), "steps", "none"), "vit"))
    return table[table["model"] == "cnn"]


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
    rows = cnn_minus_vit(full)
    ahead = rows[rows["low"] > 0]["mean"]
    assert f"The CNN, at all 6 sizes, by {100 * ahead.min():.1f} to {100 * ahead.max():.1f}" in text
    said = text.strip().split("\n\n")
    assert [line.split("?")[0] for line in said[:3]] == [
        "Who is better", "Who overfits more", "Does the difference shrink",
    ]  # fmt: skip
    assert said[3] == "vit against cnn, digits, equal updates, 3 draws, 95 % intervals"


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
    command = "vision-attn compare --config study-config.yaml --out DIR"
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
