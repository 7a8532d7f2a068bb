"""A page in a real browser: how it is opened, and its colours read back."""

import time
from pathlib import Path
from typing import Any

import numpy as np
from made_model import ARGS, explain, normalised, picture, save
from numpy.typing import NDArray
from torch import nn

from vision_attn.explain import attention_maps
from vision_attn.explain.colour import COVER, LESS, MORE, reach, strength


def two_images(here: Path) -> tuple[Path, nn.Module, list[Path]]:
    """A page of two images, its model and the images."""
    model = save(here / "m.ckpt", **ARGS, global_pool="token")
    shots = [picture(here / f"{i}.png", seed=i) for i in range(2)]
    explain(here / "m.ckpt", shots, here / "o.html")
    return here / "o.html", model, shots


def start(browser: Any, opened: Any, width: int = 1366, height: int = 900, state: str = "") -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    browser.get("about:blank")  # or only the part behind # would change
    browser.get(opened[0].as_uri() + state)
    browser.get_log("browser")


def canvas(browser: Any, name: str) -> NDArray[np.uint8]:
    """The pixels of a canvas after the next frame: (h, w, 4)."""
    w, h, flat = browser.execute_async_script(
        "const done = arguments[arguments.length - 1], c = document.querySelector(arguments[0]);"
        "requestAnimationFrame(() => requestAnimationFrame(() => done([c.width, c.height,"
        "Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)])));",
        name,
    )
    return np.array(flat, np.uint8).reshape(h, w, 4)


def levels(picture: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Colours back to -1 (blue) to 1 (orange); NaN for black, no weight."""
    rgb, cover = picture[..., :3] / 255, picture[..., 3] / 255
    away = [np.abs(rgb - np.array(end)).sum(-1) for end in (LESS, MORE, (0, 0, 0))]
    kind = np.argmin(away, 0)
    strong = cover > 0.1  # fainter ones are rounded, as canvases store them
    assert np.min(away, 0)[strong].max(initial=0) < 0.2
    got = np.where(kind == 0, -1, 1) * cover / COVER
    return np.where((kind == 2) & strong, np.nan, got)


def ratios(opened: Any, image: int, layer: int, head: int | None, query: Any) -> Any:
    """Weights over the even share, from the model: (5, 7)."""
    x = normalised(opened[2][image])
    maps = attention_maps(opened[1], x, layers=[layer], queries=[query])
    one = maps.image_maps()[layer][0]
    one = maps.weights[layer].shape[-1] * (one.mean(0)[0] if head is None else one[head, 0])
    return one.double().numpy()


def weights(opened: Any, image: int, layer: int, head: int | None, query: Any) -> Any:
    """The colours that a map has round the even share: (5, 7)."""
    one = ratios(opened, image, layer, head, query)
    return strength(one, "even", reach(one, "even"))


def same(got: Any, want: Any, atol: float = 0.01) -> None:
    """Levels are equal, but for a step of 255; what is nearly bare has no hue left."""
    np.testing.assert_allclose(np.abs(got), np.abs(want), rtol=0, atol=atol)
    strong = np.abs(want) > 0.15
    np.testing.assert_array_equal(np.sign(got[strong]), np.sign(want[strong]))


def quiet(browser: Any) -> None:
    said = [line["message"] for line in browser.get_log("browser")]
    assert [line for line in said if "getImageData" not in line] == []  # it is this test that reads


def over(browser: Any, row: float, col: float, panel: str = "pick", press: bool = False) -> None:
    """Move the mouse onto a cell of the grid (its middle)."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    element = browser.find_element(By.ID, panel)
    box = element.rect
    x = (col + 0.5) / 7 * box["width"] - box["width"] / 2
    y = (row + 0.5) / 5 * box["height"] - box["height"] / 2
    chain = ActionChains(browser, duration=0).move_to_element_with_offset(element, int(x), int(y))
    (chain.click() if press else chain).perform()


def said(browser: Any, name: str = "said") -> str:
    return browser.execute_script(
        "return document.getElementById(arguments[0]).textContent", name
    ).replace("\u00a0", " ")


def choose(browser: Any, name: str, text: str) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.select import Select

    Select(browser.find_element(By.ID, name)).select_by_visible_text(text)


def address(browser: Any) -> str:
    """The part of the address behind #, once it has been written."""
    time.sleep(0.4)
    return browser.execute_script("return location.hash")
