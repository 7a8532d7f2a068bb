"""The page in a real browser: scales, links, downloads, dark mode, widths."""

import base64
import csv
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_model import ARGS, explain, picture, save
from page_reader import (
    address,
    canvas,
    choose,
    levels,
    over,
    quiet,
    ratios,
    said,
    same,
    start,
    two_images,
    weights,
)
from PIL import Image
from torch import nn
from torch.testing import assert_close

from vision_attn.explain.colour import COVER, FLOOR, LESS, MORE, reach, strength


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nn.Module, list[Path]]:
    return two_images(tmp_path_factory.mktemp("page"))


def test_scales_and_the_ends_that_are_printed(browser: Any, opened: Any) -> None:
    start(browser, opened)
    over(browser, 1, 5)
    one = ratios(opened, 0, 0, 0, (1, 5))
    top = reach(one, "even")
    ends = said(browser, "ends")
    assert f"{1 / top:.2f} × even" in ends
    assert f"even share {1 / 36:.2g}" in ends
    assert f"{top:.1f} × even" in ends
    choose(browser, "scale", "from 0 to the largest")
    same(levels(canvas(browser, "#map")), one / one.max())
    assert f"{one.max():.1f} × even" in said(browser, "ends")
    choose(browser, "scale", "the same for all maps")
    every = np.stack([ratios(opened, 0, i, h, (1, 5)) for i in range(3) for h in range(2)])
    top = reach(every, "shared")
    same(levels(canvas(browser, "#map")), strength(one, "shared", top))
    for i in range(3):
        for h in range(2):
            cell = f'.cell[data-layer="{i}"][data-head="{h}"] canvas'
            same(levels(canvas(browser, cell)), strength(every[2 * i + h], "shared", top))
    quiet(browser)


def test_all_but_even_attention_is_pale_and_the_image_is_under_every_map(
    browser: Any, tmp_path: Path
) -> None:
    save(tmp_path / "m.ckpt", **ARGS)
    stored = torch.load(tmp_path / "m.ckpt", weights_only=True)
    for name, tensor in stored["state_dict"].items():
        if "qkv" in name:
            tensor.mul_(0.05)
    torch.save(stored, tmp_path / "m.ckpt")
    shot = picture(tmp_path / "a.png")
    explain(tmp_path / "m.ckpt", [shot], tmp_path / "o.html")
    start(browser, [tmp_path / "o.html"])
    assert canvas(browser, "#map")[..., 3].max() < 255 * COVER / 4
    assert f"{1 / FLOOR:.2f} × even" in said(browser, "ends")
    under = browser.execute_script(
        "return [...document.querySelectorAll('.over')].map(c =>"
        "getComputedStyle(c).backgroundImage)"
    )
    assert len(under) == 8
    assert len(set(under)) == 1
    with Image.open(BytesIO(base64.b64decode(under[0].partition("base64,")[2]))) as photo:
        grey = np.array(photo.convert("L"), float)
    want = 255 * 0.35 + 0.65 * np.array(Image.open(shot), float)
    np.testing.assert_allclose(grey, want, atol=1.01)
    quiet(browser)


def test_a_link_keeps_what_is_seen(browser: Any, opened: Any) -> None:
    start(browser, opened)
    choose(browser, "image", "1.png")
    choose(browser, "layer", "2")
    choose(browser, "head", "mean")
    choose(browser, "scale", "from 0 to the largest")
    over(browser, 3, 4, press=True)
    link = address(browser)
    assert link == f"#image=1&layer=2&head=mean&token={1 + 3 * 7 + 4}&held=1&scale=max"
    shown, words = canvas(browser, "#map"), said(browser)
    start(browser, opened, 390, state=link)
    np.testing.assert_array_equal(canvas(browser, "#map"), shown)
    assert said(browser) == words
    over(browser, 0, 0)  # it is held
    assert said(browser) == words
    browser.execute_script("location.hash = 'layer=1&head=0&token=2&scale=even&held=0&image=0'")
    same(levels(canvas(browser, "#map")), weights(opened, 0, 1, 0, (0, 1)))
    quiet(browser)


@pytest.mark.parametrize(
    "link",
    ["#image=9&layer=7&head=-1&token=36&scale=log", "#token=&x=1&head=mean2", "#%", "#held=7"],
)
def test_a_link_that_fits_nothing_changes_nothing(browser: Any, opened: Any, link: str) -> None:
    start(browser, opened, state=link)
    same(levels(canvas(browser, "#map")), weights(opened, 0, 0, 0, 0))
    assert said(browser).startswith("Class token: layer 0, head 0. ")
    quiet(browser)


def test_the_map_and_its_weights_are_saved(browser: Any, opened: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By

    browser.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)}
    )
    start(browser, opened, state="#layer=1&head=1&token=9&held=1")
    for name in ("savemap", "saveweights"):
        browser.find_element(By.ID, name).click()
    table, drawing = (tmp_path / f"0_layer1_head1_token9.{end}" for end in ("csv", "png"))
    for _ in range(100):
        if table.exists() and drawing.exists():
            break
        time.sleep(0.1)
    with table.open() as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == ["row", "column", "weight", "times_even"]
    assert [(int(r["row"]), int(r["column"])) for r in lines[6:8]] == [(0, 6), (1, 0)]
    want = ratios(opened, 0, 1, 1, (1, 1)).ravel()
    assert_close([float(r["times_even"]) for r in lines], want.tolist(), rtol=1e-3, atol=1e-3)
    assert_close([float(r["weight"]) for r in lines], (want / 36).tolist(), rtol=1e-3, atol=1e-5)
    with Image.open(drawing) as image:
        by = -(-512 // 14)
        assert image.size == (14 * by, 10 * by + 40)
        rgb = np.array(image.convert("RGB"), float) / 255
    grey = 0.35 + 0.65 * np.array(Image.open(opened[2][0]), float) / 255
    level = weights(opened, 0, 1, 1, (1, 1))
    for row, col in ((0, 0), (4, 6), (3, 2)):
        cover = COVER * abs(level[row, col])
        under = grey[2 * row, 2 * col]
        end = np.array(MORE if level[row, col] > 0 else LESS)
        seen = rgb[2 * row * by + by // 2, 2 * col * by + by // 2]
        np.testing.assert_allclose(seen, (1 - cover) * under + cover * end, atol=0.03)
    quiet(browser)


def test_the_page_is_dark_where_the_system_is(browser: Any, opened: Any) -> None:
    for scheme, dark in (("dark", True), ("light", False)):
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        start(browser, opened)
        back, text, choice = browser.execute_script(
            "const s = e => getComputedStyle(e), b = document.body;"
            "const c = document.querySelector('#layer');"
            "return [s(b).backgroundColor, s(b).color, s(c).backgroundColor]"
        )
        assert (_light(back) < 0.2) is (_light(text) > 0.8) is (_light(choice) < 0.2) is dark
        same(levels(canvas(browser, "#map")), weights(opened, 0, 0, 0, 0))
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    quiet(browser)


def _light(colour: str) -> float:
    return sum(int(c) for c in colour[4:-1].split(",")) / 765


@pytest.mark.parametrize("width", [360, 768, 1440])
def test_the_page_has_its_landmarks_and_no_side_scroll(
    browser: Any, opened: Any, width: int
) -> None:
    start(browser, opened, width)
    wide, view, outside, small, pixel = browser.execute_script(
        "const d = document.documentElement, b = [...document.body.children];"
        "const small = [...document.querySelectorAll('button, select')].filter(e =>"
        "  e.getBoundingClientRect().height < 24 || e.getBoundingClientRect().width < 24);"
        "return [d.scrollWidth, d.clientWidth, b.filter(e => !['MAIN', 'SCRIPT'].includes("
        "e.tagName)).length, small.length, document.querySelector('main').innerText]"
    )
    assert wide <= view <= width
    assert (outside, small) == (0, 0)
    assert "What attends to what: vit" in pixel
    assert "the same token asks" in pixel
    assert "pixel" not in pixel.lower()
    quiet(browser)
