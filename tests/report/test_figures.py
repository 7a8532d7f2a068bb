"""What the further figures draw: lines, styles, bars and bounds, by their values."""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_study import UNEVEN, analysed, pairs, row, table, with_pair
from matplotlib import pyplot as plt
from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.colors import same_color, to_hex
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.report.analysis import analyse
from vision_attn.report.figures import draw, figures, only
from vision_attn.report.looks import looks
from vision_attn.report.style import options, render, style
from vision_attn.study.results import StoredStudy
from vision_attn.texts import in_figure

LOOKS = looks(["cnn", "vit"], {})
T1 = 12.706204736174698
T2 = 4.302652729696142
"""Student's t at 97.5 % for 1 and for 2 degrees of freedom."""


def names(figure: Any) -> list[str]:
    """At the ends of curves, from the highest to the lowest."""
    texts = [t for t in figure.axes[0].texts if isinstance(t, Annotation)]
    return [t.get_text() for t in sorted(texts, key=lambda t: -t.xyann[1])]


SIZES = (100, 200, 400, 800, 1600, 3200)


def labels(figure: Any) -> list[str]:
    legends = [*figure.legends, *(a.get_legend() for a in figure.axes if a.get_legend())]
    return [t.get_text() for legend in legends for t in legend.get_texts()]


def test_protocols_differ_by_line_and_not_by_colour() -> None:
    rows = pairs(20, [0.5], [0.4]) + pairs(50, [0.6], [0.5])
    rows += pairs(20, [0.3], [0.2], protocol="epochs") + pairs(50, [0.4], [0.3], protocol="epochs")
    figure = draw(analysed(rows), "accuracy")
    look = LOOKS
    drawn = {(x.get_color(), x.get_linestyle()): list(x.get_ydata()) for x in figure.axes[0].lines}
    assert drawn == {
        (look["cnn"].colour, "-"): [0.5, 0.6],
        (look["vit"].colour, "-"): [0.4, 0.5],
        (look["cnn"].colour, "--"): [0.3, 0.4],
        (look["vit"].colour, "--"): [0.2, 0.3],
    }
    assert labels(figure) == ["equal updates", "equal epochs"]
    assert names(figure) == ["cnn", "vit"]


@pytest.mark.parametrize("count", [5, 13])
def test_a_long_legend_takes_no_room_from_the_axes(count: int) -> None:
    def height(models: int) -> float:
        rows = [
            row(f"a_rather_long_name_{i}_of_a_model", n, 0, 0.5 + i / 50)
            for i in range(models)
            for n in (20, 50)
        ]
        figure = draw(analysed(rows), "accuracy")
        render(figure, "x", ("svg",))
        (legend,) = figure.legends
        below, axes = legend.get_window_extent(), figure.axes[0].get_window_extent()
        assert not below.overlaps(axes)
        assert below.x0 >= 0
        assert below.x1 <= figure.bbox.width
        assert below.y0 >= 0
        return axes.height

    assert height(count) > 0.9 * height(4)


@pytest.mark.parametrize("font", [8, 10])
def test_long_labels_of_axes_stay_in_a_narrow_figure(font: int) -> None:
    long = [row(f"a_long_name_of_{m}", 1000, d, 0.5 + d / 50) for m in "abc" for d in (0, 1)]
    with style(options(width=3.3, font=font)):
        rows = draw(analysed(long), "gap")
        more = [r | {"size": 2000, "test_acc": r["test_acc"] + 0.2} for r in long]
        times = draw(analysed(long + more), "multiplier")
        for figure, of_axis in ((rows, Axes.get_xaxis), (times, Axes.get_yaxis)):
            render(figure, "x", ("png",))
            label = of_axis(figure.axes[0]).label
            box = label.get_window_extent()
            assert (box.x0 >= 0, box.y0 >= 0) == (True, True), label
            assert (box.x1 <= figure.bbox.width, box.y1 <= figure.bbox.height) == (True, True)


@pytest.mark.parametrize("width", [3.3, 5.0, 6.4, 10.0])
@pytest.mark.parametrize("name", ["cnn", "a_pooled_model"])
def test_sizes_stand_apart_beside_the_names_of_curves(name: str, width: float) -> None:
    sizes = (100, 250, 500, 1000, 5000, 15000, 45000)
    rows = [row(name, n, 0, 0.3 + n / 1e5) for n in sizes]
    with style(options(width=width, font=8)):
        figure = draw(analysed(rows), "accuracy")
        render(figure, "x", ("png",))
    assert names(figure) == [name]
    ticks = figure.axes[0].get_xticklabels()
    assert [t.get_text() for t in ticks] == [f"{n:,}" for n in sizes]
    boxes = [t.get_window_extent() for t in ticks]
    gaps = [b.x0 - a.x1 for a, b in pairwise(boxes)]
    assert min(gaps) > 2 or {t.get_rotation() for t in ticks} == {45.0}
    assert width < 6 or {t.get_rotation() for t in ticks} == {0.0}


def test_controls_show_only_models_that_have_one() -> None:
    rows = [row(m, n, 0, 0.5 + n / 1000) for m in ("vit", "cnn") for n in (100, 200)]
    rows += [row("vit", n, 0, 0.1, control="shuffled") for n in (100, 200)]
    assert "controls" not in {p.name for p in figures(analysed(rows[:4]))}
    figure = draw(analysed(rows), "controls")
    styles = {x.get_linestyle(): list(x.get_ydata()) for x in figure.axes[0].lines}
    assert styles == {"-": [0.6, 0.7], ":": [0.1, 0.1]}
    assert labels(figure) == ["vit", "images as they are", "labels shuffled"]


def test_bands_of_few_draws_do_not_stretch_the_axis_past_all_images() -> None:
    rows = [row("vit", n, d, 0.2 + 0.35 * d) for n in (100, 200) for d in (0, 1, 2)]
    rows += [row("cnn", n, d, 0.5 + 0.01 * d) for n in (100, 200) for d in (0, 1, 2)]
    analysis = analysed(rows)
    assert analysis.main["test_acc_high"].max() > 1.2
    low, high = draw(analysis, "accuracy").axes[0].get_ylim()
    assert -0.05 < low < 0
    assert 1 < high < 1.05
    (axes,) = draw(analysed(rows[6:]), "accuracy").axes
    low, high = axes.get_ylim()
    assert (low > 0.4, high < 0.6) == (True, True)
    assert axes.get_autoscaley_on()  # it follows what a user adds


def test_controls_of_one_size_are_rows() -> None:
    shares = {("vit", "none"): 0.5, ("vit", "shuffled"): 0.1, ("cnn", "none"): 0.6}
    shares[("cnn", "shuffled")] = 0.2
    rows = [row(m, 20, 0, share, control=c) for (m, c), share in shares.items()]
    (axes,) = draw(analysed(rows), "controls").axes
    assert [t.get_text() for t in axes.get_yticklabels()] == [
        "vit, labels shuffled", "cnn, labels shuffled", "vit, images as they are",
        "cnn, images as they are",
    ]  # fmt: skip
    points = [c for c in axes.collections if isinstance(c, PathCollection)]
    places = np.concatenate([np.asarray(c.get_offsets()) for c in points])
    assert_close(places, np.array([[0.1, 0.0], [0.2, 1.0], [0.5, 2.0], [0.6, 3.0]]))
    assert axes.get_xlabel() == "test accuracy, 20 training images"


def test_law_is_solid_where_fitted_and_dashed_where_it_forecasts() -> None:
    error = 2 * np.asarray(SIZES, float) ** -0.3
    rows = [row("vit", n, d, 1 - e) for n, e in zip(SIZES, error, strict=True) for d in (0, 1)]
    figure = draw(analysed(rows), "error")
    _, solid, dashed = figure.axes[0].lines
    assert (solid.get_linestyle(), dashed.get_linestyle()) == ("-", "--")
    assert_close(
        [*solid.get_xdata()[[0, -1]], *dashed.get_xdata()[[0, -1]]], [100.0, 800.0, 800.0, 3200.0]
    )
    assert_close(dashed.get_ydata(), 2 * dashed.get_xdata() ** -0.3, rtol=1e-3, atol=0)
    assert figure.axes[0].get_xscale() == figure.axes[0].get_yscale() == "log"
    *_, points = (c for c in figure.axes[0].collections if isinstance(c, PathCollection))
    assert_close(np.asarray(points.get_offsets())[:, 1].tolist(), error.tolist())


TIMES = pd.DataFrame(
    [(100, 2, 2.5, 2.0, 3.0, "", np.nan), (200, 2, 4.0, 3.0, np.inf, "", np.nan),
     (400, 2, np.nan, 2.0, np.inf, "> 8", 8.0), (800, 2, np.nan, 0.0, 0.5, "< 0.5", 0.5),
     (1600, 2, np.nan, 1.0, np.inf, "> 1", 1.0)],
    columns=["n", "count", "multiplier", "low", "high", "bound", "limit"],
)  # fmt: skip


def test_multiplier_marks_bounds() -> None:
    figure = draw(with_pair(analysed(pairs(20, [0.5], [0.4])), multiplier=TIMES), "multiplier")
    (axes,) = figure.axes
    line = axes.lines[1]
    assert_close([*line.get_xdata(), *line.get_ydata()], [100.0, 200.0, 2.5, 4.0])
    cut, _, up, down, _ = (c for c in axes.collections if isinstance(c, PathCollection))
    top = axes.get_ylim()[1]
    assert_close(np.asarray(cut.get_offsets()), np.array([[200.0, top]]))  # an arrow
    marked = [np.asarray(c.get_offsets()).tolist() for c in (up, down)]
    assert marked == [[[400, 8]], [[800, 0.5]]]  # a bound of 1 is no news
    assert [t.get_text() for t in axes.texts] == ["> 8", "< 0.5"]
    (bars,) = (c for c in axes.collections if isinstance(c, LineCollection))
    ends = [[y for _, y in segment] for segment in bars.get_segments()]
    assert_close(ends, [[2.0, 3.0], [3.0, top]])
    assert axes.get_ylabel() == "vit needs … times the images of cnn"
    said = figure.get_supxlabel()
    assert "arrow: the interval goes on" in said
    assert "open triangle: a bound" in said


def test_no_multiplier_of_bounds_alone() -> None:
    analysis = analysed(pairs(20, [0.5], [0.4]))
    free = TIMES[:2].assign(low=0.0, high=np.inf)
    for made in (TIMES[:0], TIMES[:1], TIMES[2:], free):
        with pytest.raises(UserError, match="do not allow"):
            draw(with_pair(analysis, multiplier=made), "multiplier")


def test_parts_of_the_split_add_up_and_each_has_its_interval() -> None:
    rows = pairs(20, [0.5, 0.6], [0.4, 0.45]) + pairs(50, [0.7, 0.7], [0.8, 0.8])
    rows += pairs(20, [0.4, 0.4], [0.1, 0.2], protocol="epochs")
    rows += pairs(50, [0.6, 0.6], [0.5, 0.5], protocol="epochs")
    figure = draw(analysed(rows), "protocol")
    (axes,) = figure.axes
    bars = [c for c in axes.containers if isinstance(c, BarContainer)]
    total, same, under = ([b.get_height() for b in c] for c in bars)
    assert_close(total, [25.0, 10.0])
    assert_close([a + b for a, b in zip(same, under, strict=True)], total)
    stems = [
        c.lines[2][0].get_segments() for c in axes.containers if isinstance(c, ErrorbarContainer)
    ]
    half = T1 * 100 * 0.025  # the two draws of equal updates are 10 and 15 points
    assert_close([y for _, y in stems[1][0]], [12.5 - half, 12.5 + half])
    assert len(stems) == 3
    models = {look.colour for look in looks(["cnn", "vit", "linear", "local_vit"], {}).values()}
    assert not models & {to_hex(b.patches[0].get_facecolor()) for b in bars}
    with pytest.raises(UserError, match="do not allow"):
        draw(with_pair(analysed(rows), split=pd.DataFrame()), "protocol")


def test_one_size_is_a_row_a_model() -> None:
    draws = {"cnn": (0.7, 0.8, 0.9), "vit": (0.5, 0.6), "x": (0.4,)}
    rows = [row(m, 100, d, v) for m, values in draws.items() for d, v in enumerate(values)]
    (axes,) = draw(analysed(rows), "accuracy").axes
    assert [t.get_text() for t in axes.get_yticklabels()] == ["x", "vit", "cnn"]
    assert axes.get_xlabel() == "test accuracy, 100 training images"
    (bar,) = (c for c in axes.collections if isinstance(c, LineCollection))
    half = T2 * 0.1 / 3**0.5
    assert_close(bar.get_segments()[0], np.array([[0.8 - half, 2.0], [0.8 + half, 2.0]]))
    scattered = [c for c in axes.collections if isinstance(c, PathCollection)]
    two = [np.asarray(c.get_offsets()) for c in scattered if len(np.asarray(c.get_offsets())) == 2]
    assert_close(two[0], np.array([[0.5, 1.0], [0.6, 1.0]]), rtol=1e-6, atol=1e-9)
    with pytest.raises(UserError, match="do not allow"):
        draw(analysed(rows), "error")


def test_two_draws_are_shown_and_have_no_band() -> None:
    rows = pairs(20, [0.5, 0.7], [0.4, 0.3]) + pairs(50, [0.6, 0.7], [0.5, 0.4])
    figure = draw(analysed(rows), "accuracy")
    (axes,) = figure.axes
    bands = [c for c in axes.collections if isinstance(c, PolyCollection)]
    assert [len(b.get_paths()) for b in bands] == [0, 0]
    dots = [np.asarray(c.get_offsets()) for c in axes.collections if isinstance(c, PathCollection)]
    want = np.array([[20, 0.5], [50, 0.6], [20, 0.7], [50, 0.7]])
    assert_close(dots[0], want, rtol=1e-6, atol=1e-9)
    assert "dots: the two draws" in figure.get_supxlabel()
    assert "band" not in figure.get_supxlabel()


def test_only_the_emphasised_models_have_bands() -> None:
    rows = [row(m, n, d, 0.5 + i / 10 + d / 50) for i, m in enumerate("abcde") for n in (20, 50)
            for d in range(3)]  # fmt: skip
    figure = draw(analysed(rows), "accuracy")
    (axes,) = figure.axes
    assert sum(isinstance(c, PolyCollection) for c in axes.collections) == 3
    colours = {look.colour: model for model, look in looks("abcde", {}).items()}
    widths = {colours[x.get_color()]: x.get_linewidth() for x in axes.lines}
    assert widths["a"] == widths["b"] == widths["e"] > widths["c"] == widths["d"]  # pair and best
    assert names(figure) == ["e", "d", "c", "b", "a"]
    assert "of the thick lines" in figure.get_supxlabel()


def test_a_figure_can_be_drawn_into_axes_of_the_user() -> None:
    rows = pairs(20, [0.5, 0.6], [0.4, 0.45]) + pairs(50, [0.7, 0.7], [0.6, 0.5])
    rows += pairs(20, [0.4, 0.4], [0.1, 0.2], protocol="epochs")
    rows += pairs(20, [0.4, 0.4], [0.1, 0.2], control="shuffled")
    analysis = analysed(rows)
    with rc_context({"font.size": 7, "axes.spines.top": True}):
        figure, places = plt.subplots(2, 3, figsize=(9, 5))
    for name, ax in zip(
        ("accuracy", "gap_vs_size", "error", "controls", "protocol"), places.flat, strict=False
    ):
        assert draw(analysis, name, ax) is figure
        assert ax.has_data()
        assert ax.spines["top"].get_visible()
        assert ax.xaxis.label.get_fontsize() == 7
    assert [t.get_text() for t in places[0, 0].get_legend().get_texts()][:2] == ["cnn", "vit"]
    assert figure.get_size_inches().tolist() == [9, 5]
    assert (figure.legends, figure.get_supxlabel()) == ([], "")
    plt.close(figure)


@pytest.mark.parametrize(
    ("name", "said"),
    [("acuracy", "choose one of accuracy_vs_size"), ("c", "no figure 'c'"),
     ("capacity", "several panels"), ("multiplier", "do not allow")],
)  # fmt: skip
def test_a_figure_that_cannot_be_drawn_says_why(name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        draw(analysed(pairs(20, [0.5], [0.4])), name, Figure().add_subplot())


def test_figures_of_some_models_only() -> None:
    rows = [row(m, n, 0, 0.5) for m in ("cnn", "vit", "local_vit") for n in (20, 50)]
    analysis = analysed(rows)
    drawn = {p.name: p.figure for p in figures(only(analysis, ["vit", "local_vit"]))}
    assert set(names(drawn["accuracy_vs_size"])) == {"vit", "local_vit"}
    assert "multiplier" not in drawn
    colour = drawn["accuracy_vs_size"].axes[0].lines[0].get_color()
    assert colour in {look.colour for look in looks(analysis.archs, {}).values()}
    with pytest.raises(UserError, match="did you mean vit"):
        only(analysis, ["vitt"])


@pytest.mark.parametrize("data", [{"name": "digits"}, {"name": "folder", "label": "my_$pets"}])
def test_figures_name_the_data(data: dict[str, str]) -> None:
    stored = StoredStudy(
        table(pairs(20, [0.5], [0.4])), {"a": {"identity": {"data": data}, "args": {}}}
    )
    wanted = in_figure(data.get("label", data["name"]))
    drawn = figures(analyse(stored))
    assert {p.figure.get_suptitle() for p in drawn} == {wanted}
    assert {p.figure.get_suptitle() for p in figures(analysed(pairs(20, [0.5], [0.4])))} == {""}


def points(axes: Any, colour: str) -> tuple[list[list[float]], list[bool]]:
    """Positions of a model's markers, and which of them are filled; not those of single draws."""
    scattered = [c for c in axes.collections if isinstance(c, PathCollection)]
    *_, marks = (c for c in scattered if same_color(c.get_edgecolor()[0], colour))
    places = marks.get_offsets().tolist()
    faces = np.broadcast_to(marks.get_facecolor(), (len(places), 4))
    return places, [bool(same_color(f, colour)) for f in faces]


def test_points_are_hollow_where_not_fitted() -> None:
    figure = draw(analysed(UNEVEN), "accuracy")
    (axes,) = figure.axes
    cnn, vit = (LOOKS[m].colour for m in ("cnn", "vit"))
    assert points(axes, cnn)[1] == [True, True]
    assert points(axes, vit)[1] == [True, False]
    assert_close(points(axes, cnn)[0], [[20.0, 0.7], [1000.0, 0.9]])
    assert_close(points(axes, vit)[0], [[20.0, 0.4], [1000.0, 0.8]])
    assert names(figure) == ["cnn", "vit"]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["20", "1,000"]
    note = " ".join(figure.get_supxlabel().split())
    assert "mean of 2 to 3 draws" in note
    assert "band: 95 % t interval" in note
    assert "hollow: not fitted" in note
    assert "123 k to 1.23 M parameters" in note


def test_band_is_the_interval() -> None:
    (axes,) = draw(analysed(UNEVEN), "gap").axes
    bands = [c for c in axes.collections if isinstance(c, PolyCollection)]
    heights = np.concatenate([b.get_paths()[0].vertices for b in bands])
    edge = T2 * 0.2 / 3**0.5
    at_20 = heights[heights[:, 0] == 20][:, 1]
    assert_close(
        [at_20.min(), at_20.max()], [0.3 - edge, 0.6 + T2 * 0.1 / 3**0.5], rtol=1e-6, atol=0
    )


def test_one_draw_is_a_point_without_a_band() -> None:
    rows = [row("vit", 20, 0, 0.5), row("cnn", 20, 0, 0.75)]
    figure = draw(analysed(rows), "accuracy")
    (axes,) = figure.axes
    assert points(axes, LOOKS["cnn"].colour) == ([[0.75, 1.0]], [True])
    assert figure.get_supxlabel() == "mean of 1 draw, 123 k to 1.23 M parameters"


def test_style_is_ours_and_leaves_the_users_alone() -> None:
    before = dict(rcParams)
    with style():
        figure = draw(analysed(UNEVEN), "gap")
        render(figure, "x", ("svg",))
    assert dict(rcParams) == before
    (axes,) = figure.axes
    assert axes.yaxis.label.get_fontsize() == 11
    assert not axes.spines["top"].get_visible()
