"""Colours and markers of models, names at curves, the ticks of the axes, a user's style."""

from io import BytesIO
from itertools import combinations, pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from made_study import UNEVEN, analysed, row
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from PIL import Image

from vision_attn.errors import UserError
from vision_attn.models.registry import attends, known_models
from vision_attn.report import looks as module
from vision_attn.report.chart import Chart
from vision_attn.report.figures import draw, figures
from vision_attn.report.looks import looks
from vision_attn.report.style import options, render, style

ARCHS = {"vit_large": "vit", "local_vit_r1": "local_vit"}


def test_looks_do_not_change_when_models_are_added() -> None:
    few = ["vit", "vit_large", "timm:resnet18", "mine"]
    many = [*few, "cnn", "linear", "local_vit_r1", "timm:vit_tiny_patch16_224", "pixel_vit"]
    small, large = looks(few, ARCHS), looks(many, ARCHS)
    assert {m: large[m] for m in few} == small
    assert len(set(large.values())) == len(many)


def test_a_label_looks_like_the_model_that_it_stands_for() -> None:
    def warm(colour: str) -> bool:
        return int(colour[1:3], 16) > int(colour[5:7], 16)  # more red than blue

    archs = {"a": "vit", "b": "cnn", "c": "timm:deit_tiny_patch16_224", "d": "timm:resnet18"}
    look = looks(archs, archs)
    assert [warm(look[m].colour) for m in archs] == [True, False, True, False]
    plain = looks(archs, archs, {"a": {"mixer": "none"}, "c": {}})
    assert [warm(plain[m].colour) for m in archs] == [False, False, True, False]
    assert not warm(looks(["vit"], {}, {"vit": {"mixer": "conv"}})["vit"].colour)


def test_the_table_of_ours_says_what_the_models_say() -> None:
    for arch in known_models():
        for args in ({}, {"mixer": "none"}):
            assert module.attending(arch, args) == attends(arch, args), (arch, args)
    assert set(module._KNOWN) <= {*known_models(), "pooled_stem_vit"}


COLOURS = [c for c, _ in module._KNOWN.values()] + [*module._COLD, *module._WARM]


def linear(colour: str) -> np.ndarray:
    """Linear light of an sRGB colour."""
    c = np.array(to_rgb(colour))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


XYZ = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])


def lab(light: np.ndarray) -> np.ndarray:
    """CIE L*a*b* under D65."""
    to_xyz = np.array(
        [[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]]
    )
    x = to_xyz @ light / (0.95047, 1, 1.08883)
    f = np.where(x > 0.008856, np.cbrt(x), 7.787 * x + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


DEUTAN = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
)
"""Machado et al. 2009, severity 1, on linear light."""


@pytest.mark.parametrize("colour", COLOURS)
def test_every_colour_stands_out_from_white(colour: str) -> None:
    luminance = float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour))
    assert 1.05 / (luminance + 0.05) >= 3


def test_colours_are_told_apart_also_without_green_cones() -> None:
    known = [c for c, _ in module._KNOWN.values()]
    for a, b in combinations(COLOURS, 2):
        assert np.linalg.norm(lab(linear(a)) - lab(linear(b))) > 20, (a, b)
    for a, b in combinations(known, 2):
        seen = [lab(np.clip(DEUTAN @ linear(c), 0, 1)) for c in (a, b)]
        assert np.linalg.norm(seen[0] - seen[1]) > 15, (a, b)


def test_no_two_labels_share_a_colour_or_a_marker() -> None:
    labels = [
        "cnn",
        "vit",
        "conv_stem_vit",
        "pooled_stem_vit",
        "local_vit",
        "a",
        "b",
        "c",
        "d",
        "e",
    ]
    archs = dict.fromkeys(labels, "vit") | {"pooled_stem_vit": "conv_stem_vit", "e": "cnn"}
    chosen = looks(labels, archs)
    assert len({look.colour for look in chosen.values()}) == len(labels)
    assert len({look.marker for look in chosen.values()}) == len(labels)
    assert {look.marker for look in chosen.values()} <= {*module._MARKERS}
    many = looks([f"m{i}" for i in range(40)], {})
    assert len(set(many.values())) == 40


@pytest.mark.parametrize("marker", module._MARKERS)
def test_a_hollow_point_shows_white_whatever_its_marker(
    marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def light(train: float) -> int:
        monkeypatch.setitem(module._KNOWN, "cnn", ("#000000", marker))
        figure = draw(analysed([row("cnn", n, 0, 0.5, train) for n in (20, 50)]), "accuracy")
        (axes,) = figure.axes
        axes.set_axis_off()
        axes.lines[0].remove()
        for text in axes.texts:
            text.remove()
        figure.supxlabel("")
        (png,) = render(figure, "x", ["png"]).values()
        return int((np.asarray(Image.open(BytesIO(png)).convert("L"), int) < 100).sum())

    assert light(0.9) < 0.75 * light(1.0)


def ends(figure: Figure) -> list[Annotation]:
    return [t for t in figure.axes[0].texts if isinstance(t, Annotation)]


def test_names_at_the_ends_keep_the_order_and_do_not_overlap() -> None:
    last = {"a": 0.5, "b": 0.501, "c": 0.502, "d": 0.9, "e": 0.1, "f": 0.503}
    rows = [row(m, n, 0, v - (n == 20) / 20) for m, v in last.items() for n in (20, 50)]
    figure = draw(analysed(rows), "accuracy")
    render(figure, "x", ["png"])
    assert figure.legends == []
    names = sorted(ends(figure), key=lambda t: t.xyann[1])
    assert [t.get_text() for t in names] == ["e", "a", "b", "c", "f", "d"]
    boxes = [Text.get_window_extent(t) for t in names]  # without the line to the curve
    for low, high in pairwise(boxes):
        assert low.y1 <= high.y0 + 1
    assert all(b.x0 >= 0 and b.x1 <= figure.bbox.width for b in boxes)
    assert [t.xy for t in names if t.get_text() == "d"] == [(50.0, 0.9)]


def test_names_that_do_not_fit_stand_in_a_legend_in_the_same_order() -> None:
    last = {"a" * 38: 0.5, "b": 0.7, "c": 0.6}
    rows = [row(m, n, 0, v) for m, v in last.items() for n in (20, 50)]
    figure = draw(analysed(rows), "accuracy")
    assert ends(figure) == []
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["b", "c", "a" * 38]


def test_what_the_user_set_stays_and_the_rest_is_ours() -> None:
    analysis = analysed(UNEVEN)
    mine = {"figure.figsize": (3.3, 2.5), "font.size": 8, "font.family": "serif"}
    with matplotlib.rc_context(mine):
        figure = draw(analysis, "gap")
        render(figure, "x", ["svg"])
    assert figure.get_size_inches().tolist() == [3.3, 2.5]
    label = figure.axes[0].yaxis.label
    assert (label.get_fontsize(), label.get_fontfamily()) == (8, ["serif"])
    assert not figure.axes[0].spines["top"].get_visible()
    with style({"axes.spines.top": True}):  # asked for, though it is matplotlib's own
        other = figures(analysis)[1].figure
    assert other.axes[0].spines["top"].get_visible()


def test_options_are_rc_params(tmp_path: Path) -> None:
    file = tmp_path / "mine.mplstyle"
    file.write_text("axes.grid: False\nfont.size: 30\nlines.linewidth: 0.7 # thin\n")
    made = options(width=3.3, font=8, dpi=300, file=str(file))
    assert made.pop("figure.figsize") == pytest.approx((3.3, 3.3 * 4.2 / 5.4))
    assert made.pop("lines.markersize") == pytest.approx(6 * 0.65)  # a small figure has fine lines
    assert made == {
        "axes.grid": False, "font.size": 8, "lines.linewidth": 0.7, "savefig.dpi": 300,
    }  # fmt: skip
    assert options() == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("font.siz: 3", "font.siz"), ("font.size: big", "font.size"), ("no colon", "Missing colon"),
        ("\xff", "decode"), (None, "is no file"),
    ],
)  # fmt: skip
def test_a_wrong_style_file_is_one_line(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "x.mplstyle"
    if text is not None:
        file.write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=said) as e:
        options(file=str(file))
    assert "\n" not in str(e.value)
    assert str(file) in str(e.value)


@pytest.mark.parametrize(
    "bad", [{"width": 0.5}, {"font": 100}, {"dpi": 5}, {"width": float("nan")}]
)
def test_options_out_of_range_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(UserError, match="wanted"):
        options(**bad)


def test_a_difference_is_in_points() -> None:
    axes = Figure().subplots()
    Chart({}).in_points(axes, "gap")
    assert axes.get_ylabel() == "gap, points"
    assert axes.yaxis.get_major_formatter()(0.125) == "12.5"


def test_a_tick_between_whole_per_cents_is_not_rounded() -> None:
    axes = Figure().subplots()
    Chart({}).percent(axes, "gap")
    name = axes.yaxis.get_major_formatter()
    assert [name(v) for v in (0.0, 0.575, 0.6, 1.0)] == ["0 %", "57.5 %", "60 %", "100 %"]


@pytest.mark.parametrize(
    ("low", "high", "named"), [(0.1, 0.39, "23456789"), (0.1, 0.99, "23457"), (0.01, 0.99, "25")]
)
def test_the_longer_a_log_axis_the_fewer_ticks_have_names(
    low: float, high: float, named: str
) -> None:
    axes = Figure().subplots()
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    Chart({}).log_names(axes.yaxis, lambda v: f"{100 * v:.3g} %")
    name = axes.yaxis.get_minor_formatter()
    want = [f"{d}0 %" if str(d) in named else "" for d in range(2, 10)]
    assert [name(d / 10) for d in range(2, 10)] == want
