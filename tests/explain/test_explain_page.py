"""The overview and the page: files that are refused, and a real browser that reads pixels back."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn
from torch.testing import assert_close

from vision_attn.cli import main
from vision_attn.data.module import ImageData
from vision_attn.errors import UserError
from vision_attn.explain import attention_maps, attention_rollout, page
from vision_attn.explain.checkpoint import load_classifier, read_images
from vision_attn.explain.inspection import explain
from vision_attn.explain.overview import blend
from vision_attn.models.registry import create_model

MEAN, STD = [70.0], [50.0]
ARGS: dict[str, Any] = {"patch_size": 2, "embed_dim": 24, "depth": 3, "num_heads": 2}
SIZE = (10, 14)
GRID = (5, 7)


def save(path: Path, name: str = "vit", *, chans: int = 1, **args: Any) -> nn.Module:
    """A checkpoint as Lightning writes it, of a model shaken so that its maps are not flat."""
    shape: dict[str, Any] = {"img_size": SIZE, "in_chans": chans, "num_classes": 3}
    model = create_model(name, **shape, args=args)
    g = torch.manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=g))
    torch.save(
        {
            "state_dict": {f"model.{k}": v for k, v in model.state_dict().items()},
            "hyper_parameters": {"name": name, "args": args, **shape, "lr": 0.1},
            "ImageData": {"classes": ["ant", "</script><b>", "cat"], "mean": MEAN * chans,
                          "std": STD * chans},
        },
        path,
    )  # fmt: skip
    return model.eval()


def picture(path: Path, *, mode: str = "L", seed: int = 0, size: tuple[int, int] = SIZE) -> Path:
    bands = len(Image.new(mode, (1, 1)).getbands())
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, bands), dtype=np.uint8)
    Image.fromarray(pixels.squeeze()).save(path)
    return path


def normalised(path: Path) -> torch.Tensor:
    x = torch.from_numpy(np.array(Image.open(path)).astype(np.float32))[None, None]
    return (x - MEAN[0]) / STD[0]


def data_of(path: Path) -> dict[str, Any]:
    found = re.search(r'id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found
    return json.loads(found[1])


def test_the_page_holds_the_weights(tmp_path: Path) -> None:
    model = save(tmp_path / "m.ckpt", **ARGS, global_pool="token", num_registers=2)
    shots = [picture(tmp_path / f"{i}.png", seed=i) for i in range(2)]
    out = tmp_path / "o.html"
    said = explain(tmp_path / "m.ckpt", shots, out, layers=[2, 0], heads=[1])
    assert said == [f"maps of 2 images are in {out}"]
    data = data_of(out)
    assert (data["grid"], data["size"], data["prefix"]) == ([5, 7], [10, 14], 1)
    assert (data["layers"], data["heads"], data["query"]) == ([2, 0], [1], 0)
    assert data["classes"][1] == "</script><b>"
    x = torch.cat([normalised(p) for p in shots])
    maps = attention_maps(model, x, heads=[1])
    for i, image in enumerate(data["images"]):
        level = np.frombuffer(base64.b64decode(image["weights"]), np.uint8).reshape(2, 1, 36, 35)
        tops = np.frombuffer(base64.b64decode(image["tops"]), "<f4").reshape(2, 1, 36)
        sums = np.frombuffer(base64.b64decode(image["sums"]), "<f4").reshape(2, 1, 36)
        for at, layer in enumerate((2, 0)):
            want = maps.weights[layer][i, 0, :, 3:].numpy()
            np.testing.assert_allclose(tops[at, 0], want.max(-1), rtol=1e-5)
            np.testing.assert_allclose(sums[at, 0], want.sum(-1), rtol=1e-5)
            np.testing.assert_allclose(
                level[at, 0] / 255 * tops[at, 0, :, None], want, atol=want.max() / 500
            )
        assert_close(torch.tensor(image["scores"]), maps.output.softmax(-1)[i], rtol=0, atol=2e-6)
        flow = np.frombuffer(base64.b64decode(image["rollout"]), "<f4").reshape(GRID)
        np.testing.assert_allclose(flow, attention_rollout(model, x).relevance[i], rtol=1e-4)
        seen = np.frombuffer(base64.b64decode(image["pixels"]), np.uint8).reshape(10, 14, 3)
        np.testing.assert_array_equal(seen[..., 1], np.array(Image.open(shots[i])))
    table = model.positions.pos_embed[0]  # type: ignore[union-attr, index]
    want = torch.cosine_similarity(table[:, None], table, dim=-1).detach().numpy()
    places = np.frombuffer(base64.b64decode(data["places"]), np.uint8).reshape(35, 35)
    np.testing.assert_allclose(places / 127.5 - 1, want, atol=0.0041)


def test_a_model_without_positions_and_the_query_of_the_page(tmp_path: Path) -> None:
    save(tmp_path / "m.ckpt", **ARGS, pos_embed="none")
    shot, out = picture(tmp_path / "a.png"), tmp_path / "o.html"
    explain(tmp_path / "m.ckpt", [shot], out)
    data = data_of(out)
    assert data["places"] is None
    assert data["query"] == 2 * 7 + 3
    explain(tmp_path / "m.ckpt", [shot], out, query=(9, 5), overwrite=True)
    assert data_of(out)["query"] == 4 * 7 + 2


def test_the_overview_is_drawn_from_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vision_attn.explain import overview

    drawn: list[NDArray[np.float32]] = []

    def noted(pixels: Any, weights: Any) -> Any:
        drawn.append(weights)
        return blend(pixels, weights)

    monkeypatch.setattr(overview, "blend", noted)
    shot, out = picture(tmp_path / "a.png"), tmp_path / "o.png"
    for args, query, row in (
        (ARGS, None, lambda w: w.mean(1)),
        (ARGS, (3, 4), lambda w: w[:, 7 + 2]),
        (ARGS | {"global_pool": "token"}, None, lambda w: w[:, 0, 1:]),
    ):
        model = save(tmp_path / "m.ckpt", **args)
        drawn.clear()
        explain(tmp_path / "m.ckpt", [shot], out, query=query, layers=[1], overwrite=True)
        flow, *maps = drawn
        x = normalised(shot)
        np.testing.assert_allclose(flow, attention_rollout(model, x).relevance[0], rtol=1e-4)
        want = row(attention_maps(model, x, layers=[1]).weights[1][0])
        np.testing.assert_allclose(np.stack(maps).reshape(2, 35), want, rtol=1e-5)
        with Image.open(out) as drawing:
            assert drawing.format == "PNG"
            assert min(drawing.size) > 300


def test_case_70_names_are_no_formulas_in_the_overview(tmp_path: Path) -> None:
    """Classes, files and the checkpoint have names that matplotlib cannot read as formulas."""
    checkpoint, out = tmp_path / "m$^$.ckpt", tmp_path / "o$_$.png"
    save(checkpoint, **ARGS)
    saved = torch.load(checkpoint, weights_only=True)
    saved["ImageData"]["classes"] = ["p$^$", r"$\frac$", "_x" * 100]
    torch.save(saved, checkpoint)
    shots = [picture(tmp_path / name) for name in ("$a^$.png", "\udcff$^$.png", "[b].png")]
    said = explain(checkpoint, shots, out)
    assert any("o$_$.png" in line for line in said)
    with Image.open(out) as drawing:
        assert drawing.format == "PNG"


def test_blend_covers_the_image_where_weights_are() -> None:
    pixels = np.full((1, 4, 6), 255, np.uint8)
    mixed = blend(pixels, np.array([[0.0, 0.1, 0.2]], np.float32))
    assert mixed.shape == (4, 6, 3)
    np.testing.assert_allclose(mixed[:, :2], 0.6)
    np.testing.assert_allclose(mixed[3, 3], [0.8, 0.575, 0.35])
    np.testing.assert_allclose(mixed[0, 5], [1, 0.55, 0.1])


def test_images_are_changed_only_when_told(tmp_path: Path) -> None:
    save(tmp_path / "m.ckpt", chans=3, **ARGS)
    trained = load_classifier(tmp_path / "m.ckpt")
    large = picture(tmp_path / "l.png", mode="RGB", size=(20, 28))
    pixels, notes = read_images([large], trained)
    assert pixels.shape == (1, 3, 10, 14)
    assert notes == [f"{large}: 20 x 28 pixels cut and resized to 10 x 14"]
    grey = picture(tmp_path / "g.png")
    pixels, notes = read_images([grey], trained, convert=True)
    assert torch.equal(pixels[0, 0], pixels[0, 2])
    assert notes == [f"{grey}: 1 channel (L) converted to 3"]
    x = trained.normalise(pixels)
    assert_close(x, (pixels - 70.0) / 50.0)


def made(here: Path) -> None:
    """Files of every kind."""
    save(here / "m.ckpt", **ARGS)
    save(here / "cnn.ckpt", "cnn")
    save(here / "resnet.ckpt", "timm:resnet18")
    picture(here / "a.png")
    picture(here / "rgb.png", mode="RGB")
    (here / "broken.png").write_bytes((here / "a.png").read_bytes()[:60])
    (here / "cut.png").write_bytes((here / "a.png").read_bytes()[:90])
    (here / "text.ckpt").write_text("hello")
    (here / "there.png").write_text("mine")
    good = torch.load(here / "m.ckpt", weights_only=True)
    torch.save({"state_dict": {}}, here / "no.ckpt")
    torch.save(
        good | {"hyper_parameters": {"patch_size": 2, "img_size": (4, 4)}}, here / "seg.ckpt"
    )
    torch.save({k: v for k, v in good.items() if k != "ImageData"}, here / "old.ckpt")
    torch.save(good | {"state_dict": {}}, here / "empty.ckpt")
    torch.save(good | {"evil": Path("x")}, here / "pickle.ckpt")


BAD = {
    "none": ({"ckpt": "none.ckpt"}, "none.ckpt is no file"),
    "text": ({"ckpt": "text.ckpt"}, "text.ckpt is no checkpoint of this program"),
    "image": ({"ckpt": "a.png"}, "a.png is no checkpoint of this program"),
    "other": ({"ckpt": "no.ckpt"}, r"no.ckpt is no checkpoint of this program \(KeyError\)"),
    "pickle": ({"ckpt": "pickle.ckpt"}, r"is no checkpoint of this program \(UnpicklingError\)"),
    "segmenter": ({"ckpt": "seg.ckpt"}, "seg.ckpt holds no classifier: its model has no name"),
    "old": ({"ckpt": "old.ckpt"}, "does not say the mean and deviation"),
    "weights": ({"ckpt": "empty.ckpt"}, "weights do not fit model 'vit'"),
    "cnn": ({"ckpt": "cnn.ckpt"}, "SmallCNN"),
    "resnet": ({"ckpt": "resnet.ckpt"}, "ResNet"),
    "no image": ({"images": ["none.png"]}, "image none.png is no file"),
    "broken": ({"images": ["broken.png"]}, "broken.png"),
    "cut": ({"images": ["a.png", "cut.png"]}, "cut.png"),
    "not one": ({"images": ["text.ckpt"]}, "image text.ckpt cannot be read"),
    "channels": ({"images": ["rgb.png"]}, r"rgb.png has 3 channels \(RGB\), the model takes 1"),
    "layer": ({"layers": [3]}, "layers has 3, but there are 3; wanted 0 to 2"),
    "head": ({"heads": [2]}, "heads has 2, but there are 2; wanted 0 to 1"),
    "query": ({"query": (10, 0)}, "query has row 10; wanted 0 to 9"),
    "column": ({"query": (0, -1)}, "query has column -1; wanted 0 to 13"),
    "directory": ({"out": "none/o.png"}, "there is no directory none"),
    "suffix": ({"out": "o.pdf"}, "ends in .pdf; wanted .png or .html"),
    "no suffix": ({"out": "o"}, "ends in nothing"),
    "there": ({"out": "there.png"}, "there.png is there already"),
}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("kinds")
    made(here)
    return here


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(kinds: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(kinds)
    given, says = BAD[case]
    given = {"ckpt": "m.ckpt", "images": ["a.png"], "out": "o.html", **given}
    before = {p: p.read_bytes() for p in kinds.iterdir()}
    with pytest.raises(UserError, match=says):
        explain(
            Path(given.pop("ckpt")),
            [Path(p) for p in given.pop("images")],
            Path(given.pop("out")),
            **given,
        )
    assert {p: p.read_bytes() for p in kinds.iterdir()} == before


def test_a_page_too_large_says_what_to_do(kinds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MAX_BYTES", 8_000)
    with pytest.raises(UserError, match="1 images x 3 layers x 2 heads x 35 x 35 weights take"):
        explain(kinds / "m.ckpt", [kinds / "a.png"], kinds / "o.html")
    assert not (kinds / "o.html").exists()


COMMANDS = {
    "--layers 0,9": "layers has 9, but there are 3; wanted 0 to 2",
    "--heads 7": "heads has 7, but there are 2; wanted 0 to 1",
    "--heads one": "heads is 'one'; wanted whole numbers as 0,2",
    "--query 3": "query '3' has 1 numbers; wanted row,column",
    "--query 3,14": "query has column 14; wanted 0 to 13",
    "--laiers 0": "--laiers",
    "--image rgb.png": "rgb.png has 3 channels (RGB), the model takes 1",
    "--image broken.png": "broken.png",
    "--ckpt seg.ckpt": "seg.ckpt holds no classifier",
    "--ckpt text.ckpt": "text.ckpt is no checkpoint",
    "--ckpt resnet.ckpt": "ResNet",
    "--out there.png": "there.png is there already",
    "--out o.svg": "wanted .png or .html",
}


@pytest.mark.parametrize("more", COMMANDS)
def test_a_mistake_on_the_command_line_is_one_line(
    kinds: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: str
) -> None:
    monkeypatch.chdir(kinds)
    args = f"explain --ckpt m.ckpt --image a.png --out o.html {more}"
    assert main(args.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert COMMANDS[more] in said.err
    assert not Path("o.html").exists()


def test_the_command_writes_both_kinds(
    kinds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shots = [str(kinds / "a.png"), str(kinds / "rgb.png")]
    args = ["explain", "--ckpt", str(kinds / "m.ckpt"), "--image", *shots, "--convert", "true"]
    for name in ("o.png", "o.html"):
        out = str(tmp_path / name)
        for more in (
            ["--layers", "2,0", "--heads", "1", "--query", "3,4"],
            ["--overwrite", "true"],
        ):
            assert main([*args, "--out", out, *more]) == 0
            assert capsys.readouterr().out.splitlines() == [
                f"{shots[1]}: 3 channels (RGB) converted to 1",
                f"maps of 2 images are in {out}",
            ]
    assert data_of(tmp_path / "o.html")["layers"] == [0, 1, 2]
    assert {p.name for p in tmp_path.iterdir()} == {"o.png", "o.html"}


@pytest.mark.filterwarnings("ignore:::lightning")
def test_a_checkpoint_of_a_run_is_read_back(tmp_path: Path) -> None:
    run = [
        "fit", "--trainer.max_steps", "2", "--trainer.accelerator", "cpu", "--data.size", "50",
        "--model.name", "vit", "--model.args.patch_size", "2", "--model.args.depth", "1",
        "--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false",
        "--trainer.logger.init_args.save_dir", str(tmp_path),
    ]  # fmt: skip
    assert main(run) == 0
    (ckpt,) = tmp_path.rglob("*.ckpt")
    trained = load_classifier(ckpt)
    data = ImageData(size=50)
    x, _ = next(iter(data.test_dataloader()))
    assert_close(trained.normalise(data.source.test_images[:500]), x)  # type: ignore[index]
    assert trained.classes == tuple("0123456789")
    saved = torch.load(ckpt, weights_only=True)["state_dict"]
    assert torch.equal(trained.model.state_dict()["head.weight"], saved["model.head.weight"])


# the page in a browser


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nn.Module, list[Path]]:
    here = tmp_path_factory.mktemp("page")
    model = save(here / "m.ckpt", **ARGS, global_pool="token")
    shots = [picture(here / f"{i}.png", seed=i) for i in range(2)]
    explain(here / "m.ckpt", shots, here / "o.html")
    return here / "o.html", model, shots


def start(browser: Any, opened: Any, width: int = 1366, height: int = 900) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    browser.get(opened[0].as_uri())
    browser.get_log("browser")


def canvas(browser: Any, name: str) -> NDArray[np.uint8]:
    """The pixels of a canvas after the next frame: (h, w, 3)."""
    w, h, flat = browser.execute_async_script(
        "const done = arguments[arguments.length - 1], c = document.querySelector(arguments[0]);"
        "requestAnimationFrame(() => requestAnimationFrame(() => done([c.width, c.height,"
        "Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)])));",
        name,
    )
    return np.array(flat, np.uint8).reshape(h, w, 4)[..., :3]


COLOURS = np.rint(matplotlib.colormaps["inferno"](np.arange(256))[:, :3] * 255)


def shares(picture: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Colours back to shares of the largest weight."""
    away = np.abs(picture[:, :, None].astype(float) - COLOURS).sum(-1)
    assert away.min(-1).max() == 0
    return away.argmin(-1) / 255


def weights(opened: Any, image: int, layer: int, head: int | None, query: Any) -> Any:
    """The same from the model: shares of the largest weight, (5, 7)."""
    x = normalised(opened[2][image])
    maps = attention_maps(opened[1], x, layers=[layer], queries=[query]).image_maps()[layer][0]
    one = maps.mean(0)[0] if head is None else maps[head, 0]
    return (one / one.max()).numpy()


def same(got: Any, want: Any, steps: float = 1.01) -> None:
    np.testing.assert_allclose(got, want, rtol=0, atol=steps / 255)


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


@pytest.mark.parametrize("width", [390, 1366])
def test_pointing_shows_what_a_pixel_attends_to(browser: Any, opened: Any, width: int) -> None:
    start(browser, opened, width)
    same(shares(canvas(browser, "#map")), weights(opened, 0, 0, 0, 0))  # the class token first
    seen = np.array(Image.open(opened[2][0]))
    np.testing.assert_array_equal(canvas(browser, "#pixels")[..., 0], seen)
    for row, col in ((0, 0), (4, 6), (3, 1)):
        over(browser, row, col)
        got = shares(canvas(browser, "#map"))
        same(got, weights(opened, 0, 0, 0, (row, col)))
        assert got.std() > 0.05
        words = browser.execute_script("return document.getElementById('said').textContent")
        assert f"Patch in row {row}, column {col}: layer 0, head 0." in words
        for layer in range(3):
            for head in range(2):
                cell = f'.cell[data-layer="{layer}"][data-head="{head}"] canvas'
                same(shares(canvas(browser, cell)), weights(opened, 0, layer, head, (row, col)))
    wide = browser.execute_script(
        "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide[0] <= wide[1] <= width
    quiet(browser)


def test_a_click_holds_the_pixel(browser: Any, opened: Any) -> None:
    start(browser, opened)
    over(browser, 1, 2, press=True)
    over(browser, 4, 4)
    same(shares(canvas(browser, "#map")), weights(opened, 0, 0, 0, (1, 2)))
    over(browser, 3, 3, "over", press=True)  # lets go
    over(browser, 2, 5, "over")
    same(shares(canvas(browser, "#map")), weights(opened, 0, 0, 0, (2, 5)))
    quiet(browser)


def test_keys_move_the_pixel_and_the_map(browser: Any, opened: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    start(browser, opened)
    over(browser, 1, 2)
    panel = browser.find_element(By.ID, "pick")
    panel.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    same(shares(canvas(browser, "#map")), weights(opened, 0, 0, 0, (3, 3)))
    panel.send_keys(Keys.ARROW_LEFT * 9, Keys.ARROW_UP)
    same(shares(canvas(browser, "#map")), weights(opened, 0, 0, 0, (2, 0)))
    panel.send_keys("+++")
    same(shares(canvas(browser, "#map")), weights(opened, 0, 1, 1, (2, 0)))
    panel.send_keys("-")
    same(shares(canvas(browser, "#map")), weights(opened, 0, 1, 0, (2, 0)))
    ring = browser.execute_script("return getComputedStyle(document.activeElement).outlineWidth")
    assert ring == "3px"
    reached = []
    start(browser, opened)
    for _ in range(7):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        active = browser.switch_to.active_element
        reached.append(
            active.get_attribute("id") or active.get_attribute("aria-label") or active.text
        )
    assert reached == ["image", "layer", "head", "Class token", "pick",
                       "layer 0, head 0", "layer 0, head 1"]  # fmt: skip
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
    same(shares(canvas(browser, "#map")), weights(opened, 0, 0, 0, (0, 3)))
    touch("touchMove", 4, 5)
    same(shares(canvas(browser, "#map")), weights(opened, 0, 0, 0, (4, 5)))
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
    same(shares(canvas(browser, "#map")), weights(opened, 1, 2, None, (2, 2)), 2)
    model, x = opened[1], normalised(opened[2][1])
    flow = attention_rollout(model, x)
    want = (flow.relevance[0] / flow.relevance[0].max()).numpy()
    same(shares(canvas(browser, "#rollout")), want)
    table = model.positions.pos_embed[0].detach()
    alike = torch.cosine_similarity(table[2 * 7 + 2], table, dim=-1).unflatten(0, GRID)
    same(shares(canvas(browser, "#places")) * 2 - 1, alike.numpy())
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
    same(shares(canvas(browser, "#map")), weights(opened, 1, 2, None, 0), 2)
    browser.find_elements(By.CSS_SELECTOR, ".cell")[3].click()
    same(shares(canvas(browser, "#map")), weights(opened, 1, 1, 1, 0))
    quiet(browser)
