"""The page in a real browser: mouse, keys and fingers choose what is shown."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_model import GRID, normalised
from page_reader import (
    canvas,
    levels,
    over,
    quiet,
    same,
    start,
    two_images,
    weights,
)
from PIL import Image
from torch import nn

from vision_attn.explain import attention_rollout
from vision_attn.explain.colour import reach, strength


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nn.Module, list[Path]]:
    return two_images(tmp_path_factory.mktemp("page"))


@pytest.mark.parametrize("width", [390, 1366])
def test_pointing_shows_what_a_pixel_attends_to(browser: Any, opened: Any, width: int) -> None:
    start(browser, opened, width)
    same(levels(canvas(browser, "#map")), weights(opened, 0, 0, 0, 0))  # the class token first
    seen = np.array(Image.open(opened[2][0]))
    np.testing.assert_array_equal(canvas(browser, "#pixels")[..., 0], seen)
    for row, col in ((0, 0), (4, 6), (3, 1)):
        over(browser, row, col)
        got = levels(canvas(browser, "#map"))
        same(got, weights(opened, 0, 0, 0, (row, col)))
        assert got.std() > 0.05
        words = browser.execute_script("return document.getElementById('said').textContent")
        assert f"Token in row {row}, column {col}: layer 0, head 0." in words
        for layer in range(3):
            for head in range(2):
                cell = f'.cell[data-layer="{layer}"][data-head="{head}"] canvas'
                same(levels(canvas(browser, cell)), weights(opened, 0, layer, head, (row, col)))
    wide = browser.execute_script(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide[0] <= wide[1] <= width
    quiet(browser)


def test_a_click_holds_the_pixel(browser: Any, opened: Any) -> None:
    start(browser, opened)
    over(browser, 1, 2, press=True)
    over(browser, 4, 4)
    same(levels(canvas(browser, "#map")), weights(opened, 0, 0, 0, (1, 2)))
    over(browser, 3, 3, "over", press=True)  # lets go
    over(browser, 2, 5, "over")
    same(levels(canvas(browser, "#map")), weights(opened, 0, 0, 0, (2, 5)))
    quiet(browser)


def test_keys_move_the_pixel_and_the_map(browser: Any, opened: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    start(browser, opened)
    over(browser, 1, 2)
    panel = browser.find_element(By.ID, "pick")
    panel.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    same(levels(canvas(browser, "#map")), weights(opened, 0, 0, 0, (3, 3)))
    panel.send_keys(Keys.ARROW_LEFT * 9, Keys.ARROW_UP)
    same(levels(canvas(browser, "#map")), weights(opened, 0, 0, 0, (2, 0)))
    panel.send_keys("+++")
    same(levels(canvas(browser, "#map")), weights(opened, 0, 1, 1, (2, 0)))
    panel.send_keys("-")
    same(levels(canvas(browser, "#map")), weights(opened, 0, 1, 0, (2, 0)))
    ring = browser.execute_script("return getComputedStyle(document.activeElement).outlineWidth")
    assert ring == "3px"
    reached = []
    start(browser, opened)
    for _ in range(10):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        active = browser.switch_to.active_element
        reached.append(
            active.get_attribute("id") or active.get_attribute("aria-label") or active.text
        )
    assert reached == ["image", "layer", "head", "scale", "Class token", "pick", "savemap",
                       "saveweights", "layer 0, head 0", "layer 0, head 1"]  # fmt: skip
    quiet(browser)


def test_a_finger_moves_the_pixel(browser: Any, opened: Any) -> None:
    start(browser, opened, 390)
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    box = browser.execute_script(
        "const b = document.getElementById('pixels').getBoundingClientRect();"
        "return [b.left, b.top, b.width, b.height]"
    )

    def touch(kind: str, row: float, col: float) -> None:
        at = {"x": box[0] + (col + 0.5) / 7 * box[2], "y": box[1] + (row + 0.5) / 5 * box[3]}
        points = [] if kind == "touchEnd" else [at]
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 0, 3)
    same(levels(canvas(browser, "#map")), weights(opened, 0, 0, 0, (0, 3)))
    touch("touchMove", 4, 5)
    same(levels(canvas(browser, "#map")), weights(opened, 0, 0, 0, (4, 5)))
    touch("touchEnd", 4, 5)
    assert browser.execute_script("return scrollY") == 0
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
    quiet(browser)


def test_choices_rollout_scores_and_positions(browser: Any, opened: Any) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.select import Select

    start(browser, opened)
    over(browser, 2, 2)
    Select(browser.find_element(By.ID, "image")).select_by_visible_text("1.png")
    Select(browser.find_element(By.ID, "layer")).select_by_visible_text("2")
    Select(browser.find_element(By.ID, "head")).select_by_visible_text("mean")
    same(levels(canvas(browser, "#map")), weights(opened, 1, 2, None, (2, 2)))
    model, x = opened[1], normalised(opened[2][1])
    flow = attention_rollout(model, x)
    flowing = (flow.relevance[0] / flow.relevance[0].mean()).numpy()
    want = strength(flowing, "even", reach(flowing, "even"))
    same(levels(canvas(browser, "#rollout")), want)
    table = model.positions.pos_embed[0].detach()
    alike = torch.cosine_similarity(table[2 * 7 + 2], table, dim=-1).unflatten(0, GRID)
    same(levels(canvas(browser, "#places")), alike.numpy())
    shown = {
        row.find_element(By.TAG_NAME, "th").text: float(
            row.find_elements(By.TAG_NAME, "td")[1].text
        )
        for row in browser.find_elements(By.CSS_SELECTOR, "#scores tr")
    }
    p = flow.output.softmax(-1)[0].tolist()
    assert shown == pytest.approx(
        dict(zip(["ant", "</script><b>", "cat"], p, strict=True)), abs=6e-4
    )
    browser.find_element(By.CSS_SELECTOR, "#front button").click()
    same(levels(canvas(browser, "#map")), weights(opened, 1, 2, None, 0))
    browser.find_elements(By.CSS_SELECTOR, ".cell")[3].click()
    same(levels(canvas(browser, "#map")), weights(opened, 1, 1, 1, 0))
    quiet(browser)
