"""The picture: drawn from the weights, in each format, with the ends of its scale."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_model import ARGS, GRID, explain, inspect, normalised, picture, save
from numpy.typing import NDArray
from PIL import Image

from vision_attn.errors import UserError
from vision_attn.explain import attention_maps, attention_rollout, overview
from vision_attn.explain.colour import reach, strength
from vision_attn.explain.overview import draw, times


@pytest.mark.parametrize("scale", ["even", "max", "shared"])
@pytest.mark.parametrize(
    ("args", "query", "row"),
    [
        (ARGS, [], lambda w: 35 * w.mean(1)),
        (ARGS, ["--query", "3,4"], lambda w: 35 * w[:, 7 + 2]),
        (ARGS | {"global_pool": "token"}, [], lambda w: 36 * w[:, 0, 1:]),
    ],
)
def test_the_overview_is_drawn_from_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: Any, query: Any, row: Any, scale: str
) -> None:
    drawn: list[NDArray[np.float64]] = []

    def noted(pixels: Any, levels: NDArray[np.float64]) -> Any:
        drawn.append(levels)
        return np.zeros((*pixels.shape[1:], 3))

    monkeypatch.setattr(overview, "blend", noted)
    shot, out = picture(tmp_path / "a.png"), tmp_path / "o.png"
    model = save(tmp_path / "m.ckpt", **args)
    explain(tmp_path / "m.ckpt", [shot], out, *query, "--layers", "1,0", "--scale", scale)
    flow, *maps = drawn
    x = normalised(shot)
    weights = attention_maps(model, x, layers=[1, 0]).weights
    ratios = np.stack([row(weights[i][0]).unflatten(-1, GRID) for i in (1, 0)]).reshape(4, *GRID)
    for got, ratio in zip(maps, ratios, strict=True):
        top = reach(ratios if scale == "shared" else ratio, scale)
        np.testing.assert_allclose(got, strength(ratio, scale, top), rtol=2e-4, atol=2e-5)
    relevance = attention_rollout(model, x).relevance[0].numpy()
    relevance /= relevance.mean()
    kind = "max" if scale == "max" else "even"
    want = strength(relevance, kind, reach(relevance, kind))
    np.testing.assert_allclose(flow, want, rtol=1e-3, atol=1e-4)
    with Image.open(out) as drawing:
        assert drawing.format == "PNG"
        assert min(drawing.size) > 300


def words(svg: Path) -> list[str]:
    """The texts of a picture, which matplotlib leaves beside their outlines."""
    return re.findall(r"<!-- (.*?) -->", svg.read_text())


@pytest.mark.parametrize("scale", ["even", "shared"])
def test_both_ends_are_printed_for_each_map(tmp_path: Path, scale: str) -> None:
    save(tmp_path / "m.ckpt", **ARGS)
    shot, out = picture(tmp_path / "a.png"), tmp_path / "o.svg"
    explain(tmp_path / "m.ckpt", [shot], out, "--scale", scale, "--rollout", "max")
    said = words(out)
    ratios = inspect(tmp_path / "m.ckpt", shot).ratios(None)
    for ratio in torch.cat(ratios)[:, :].flatten(0, 1):
        assert f"{times(float(ratio.min()))} to {times(float(ratio.max()))} x even" in said
    assert "largest head" in said
    top = max(reach(r.double().numpy(), "shared") for r in ratios)
    ends = (
        ["less", "more"]
        if scale == "even"
        else [f"{times(1 / top)} x even", f"{times(top)} x even"]
    )
    assert {"even share", *ends} <= set(said)


def test_maps_that_are_all_but_even_are_pale_and_leave_the_image(tmp_path: Path) -> None:
    """A model that is hardly trained: no colour may hide the image, and none is solid."""
    save(tmp_path / "m.ckpt", **ARGS)
    stored = torch.load(tmp_path / "m.ckpt", weights_only=True)
    for name, tensor in stored["state_dict"].items():
        if "qkv" in name:
            tensor.mul_(0.05)
    torch.save(stored, tmp_path / "m.ckpt")
    shot = picture(tmp_path / "a.png")
    shown = inspect(tmp_path / "m.ckpt", shot)
    pixels = shown.pixels[0].numpy()
    bare = overview.blend(pixels, np.zeros(GRID))
    for ratio in torch.cat(shown.ratios(None)).flatten(0, 1).double().numpy():
        assert 0.8 < ratio.min() < ratio.max() < 1.2
        mixed = overview.blend(pixels, strength(ratio, "even", reach(ratio, "even")))
        assert np.corrcoef(mixed.mean(-1).ravel(), bare.mean(-1).ravel())[0, 1] > 0.95


@pytest.mark.parametrize(
    ("ending", "begin"), [("pdf", b"%PDF-1"), ("svg", b"<?xml"), ("png", b"\x89PNG")]
)
def test_each_format_is_what_its_name_says(tmp_path: Path, ending: str, begin: bytes) -> None:
    save(tmp_path / "m.ckpt", **ARGS)
    out = tmp_path / f"o.{ending}"
    explain(tmp_path / "m.ckpt", [picture(tmp_path / "a.png")], out, "--layers", "0")
    assert out.read_bytes().startswith(begin)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0, "0"), (1e-5, "<0.01"), (0.034, "0.03"), (0.994, "0.99"), (1.006, "1.01"), (1.949, "1.95"),
     (1.95, "1.9"), (9.94, "9.9"), (9.96, "10"), (123.4, "123")],
)  # fmt: skip
def test_ratios_are_short_and_tell_near_even_ones_apart(ratio: float, text: str) -> None:
    assert times(ratio) == text


def test_case_70_names_are_no_formulas_in_the_overview(tmp_path: Path) -> None:
    """Classes, files and the checkpoint have names that matplotlib cannot read as formulas."""
    checkpoint, out = tmp_path / "m$^$.ckpt", tmp_path / "o$_$.png"
    save(checkpoint, **ARGS)
    stored = torch.load(checkpoint, weights_only=True)
    stored["ImageData"]["classes"] = ["p$^$", r"$\frac$", "_x" * 100]
    torch.save(stored, checkpoint)
    shots = [picture(tmp_path / name) for name in ("$a^$.png", "\udcff$^$.png", "[b].png")]
    explain(checkpoint, shots, out, "--rollout", "gradient")
    with Image.open(out) as drawing:
        assert drawing.format == "PNG"


def test_more_maps_than_a_picture_holds_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "m.ckpt", **ARGS)
    shown = inspect(tmp_path / "m.ckpt", picture(tmp_path / "a.png"))
    monkeypatch.setattr(overview, "MAX_PANELS", 5)
    with pytest.raises(
        UserError, match="1 images x 3 layers x 2 heads are 6 maps; one picture holds 5"
    ):
        draw(shown, tmp_path / "o.png", None)
