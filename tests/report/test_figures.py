"""What the further figures draw: lines, styles, bars and bounds, by their values."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_study import UNEVEN, analysed, pairs, row, table
from matplotlib import rcParams
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.colors import same_color
from torch.testing import assert_close

from vision_attn.report import curves, panels
from vision_attn.report.plotting import looks, render
from vision_attn.stats.power_law import fit_law
from vision_attn.study.runs import summarise

LOOKS = looks(["cnn", "vit"], {})
T2 = 4.302652729696142
"""Student's t at 97.5 % for 2 degrees of freedom."""

SIZES = (100, 200, 400, 800, 1600, 3200)


def labels(figure: Any) -> list[str]:
    legends = [*figure.legends, *(a.get_legend() for a in figure.axes if a.get_legend())]
    return [t.get_text() for legend in legends for t in legend.get_texts()]


def test_protocols_differ_by_line_and_not_by_colour() -> None:
    rows = pairs(20, [0.5], [0.4]) + pairs(50, [0.6], [0.5])
    rows += pairs(20, [0.3], [0.2], protocol="epochs") + pairs(50, [0.4], [0.3], protocol="epochs")
    figure = curves.against_size(summarise(table(rows)), "test_acc", "test accuracy", LOOKS)
    look = LOOKS
    drawn = {(x.get_color(), x.get_linestyle()): list(x.get_ydata()) for x in figure.axes[0].lines}
    assert drawn == {
        (look["cnn"].colour, "-"): [0.5, 0.6],
        (look["vit"].colour, "-"): [0.4, 0.5],
        (look["cnn"].colour, "--"): [0.3, 0.4],
        (look["vit"].colour, "--"): [0.2, 0.3],
    }
    assert labels(figure)[2:] == ["equal updates", "equal epochs"]


@pytest.mark.parametrize("count", [5, 13])
def test_a_long_legend_takes_no_room_from_the_axes(count: int) -> None:
    def height(models: int) -> float:
        rows = [row(f"model{i}", n, 0, 0.5 + i / 50) for i in range(models) for n in (20, 50)]
        look = looks([r["model"] for r in rows], {})
        figure = curves.against_size(summarise(table(rows)), "test_acc", "test accuracy", look)
        render(figure, "x", ("svg",))
        (legend,) = figure.legends
        below, axes = legend.get_window_extent(), figure.axes[0].get_window_extent()
        assert not below.overlaps(axes)
        assert below.x0 >= 0
        assert below.x1 <= figure.bbox.width
        assert below.y0 >= 0
        return axes.height

    assert height(count) > 0.9 * height(4)


def test_controls_show_only_models_that_have_one() -> None:
    rows = [row(m, n, 0, 0.5 + n / 1000) for m in ("vit", "cnn") for n in (100, 200)]
    rows += [row("vit", n, 0, 0.1, control="shuffled") for n in (100, 200)]
    assert curves.controls(summarise(table(rows[:4])), LOOKS) is None
    figure = curves.controls(summarise(table(rows)), LOOKS)
    assert figure is not None
    styles = {x.get_linestyle(): list(x.get_ydata()) for x in figure.axes[0].lines}
    assert styles == {"-": [0.6, 0.7], ":": [0.1, 0.1]}
    assert labels(figure) == ["vit (123 k parameters)", "images as they are", "labels shuffled"]


def test_controls_of_one_size_stand_side_by_side() -> None:
    shares = {("vit", "none"): 0.5, ("vit", "shuffled"): 0.1, ("cnn", "none"): 0.6}
    shares[("cnn", "shuffled")] = 0.2
    rows = [row(m, 20, 0, share, control=c) for (m, c), share in shares.items()]
    figure = curves.controls(summarise(table(rows)), LOOKS)
    assert figure is not None
    (axes,) = figure.axes
    names = [t.get_text() for t in axes.get_xticklabels()]
    assert names == ["images as they are", "labels shuffled"]
    points = [c for c in axes.collections if isinstance(c, PathCollection)]
    cnn, vit = (np.asarray(c.get_offsets()) for c in points)
    assert_close(cnn.ravel(), np.array([-0.05, 0.6, 0.95, 0.2]))
    assert_close(vit.ravel(), np.array([0.05, 0.5, 1.05, 0.1]))
    assert labels(figure) == ["cnn (1.23 M parameters)", "vit (123 k parameters)"]


def test_law_is_solid_where_fitted_and_dashed_where_it_forecasts() -> None:
    error = 2 * np.asarray(SIZES, float) ** -0.3
    rows = [row("vit", n, d, 1 - e) for n, e in zip(SIZES, error, strict=True) for d in (0, 1)]
    law = fit_law(SIZES, np.stack([error, error]), resamples=20)
    figure = curves.error_loglog(summarise(table(rows)), {"vit": law}, LOOKS)
    solid, dashed = figure.axes[0].lines
    assert (solid.get_linestyle(), dashed.get_linestyle()) == ("-", "--")
    assert_close(
        [*solid.get_xdata()[[0, -1]], *dashed.get_xdata()[[0, -1]]], [100.0, 800.0, 800.0, 3200.0]
    )
    assert_close(dashed.get_ydata(), 2 * dashed.get_xdata() ** -0.3, rtol=1e-3, atol=0)
    assert figure.axes[0].get_xscale() == figure.axes[0].get_yscale() == "log"
    (points,) = (c for c in figure.axes[0].collections if isinstance(c, PathCollection))
    assert_close(points.get_offsets()[:, 1].tolist(), error.tolist())


def test_multiplier_marks_bounds() -> None:
    made = pd.DataFrame(
        [(100, 2, 2.5, 2.0, 3.0, "", np.nan), (200, 2, 4.0, 3.0, np.inf, "", np.nan),
         (400, 2, np.nan, 2.0, np.inf, "> 8", 8.0), (800, 2, np.nan, 0.0, 0.5, "< 0.5", 0.5)],
        columns=["n", "count", "multiplier", "low", "high", "bound", "limit"],
    )  # fmt: skip
    comparison = analysed(pairs(20, [0.5], [0.4])).comparison
    assert comparison is not None
    figure = curves.multiplier(replace(comparison, multiplier=made), LOOKS)
    assert figure is not None
    (axes,) = figure.axes
    line = axes.lines[1]
    assert_close([*line.get_xdata(), *line.get_ydata()], [100.0, 200.0, 2.5, 4.0])
    up, down = (c for c in axes.collections if isinstance(c, PathCollection))
    assert (up.get_offsets().tolist(), down.get_offsets().tolist()) == ([[400, 8]], [[800, 0.5]])
    (bars,) = (c for c in axes.collections if isinstance(c, LineCollection))
    ends = [[y for _, y in segment] for segment in bars.get_segments()]
    assert_close(ends, [[2.0, 3.0], [3.0, axes.get_ylim()[1]]])
    assert curves.multiplier(replace(comparison, multiplier=made[:0]), LOOKS) is None


def test_parts_of_the_split_add_up() -> None:
    rows = pairs(20, [0.5, 0.6], [0.4, 0.45]) + pairs(50, [0.7, 0.7], [0.8, 0.8])
    rows += pairs(20, [0.4, 0.4], [0.1, 0.2], protocol="epochs")
    rows += pairs(50, [0.6, 0.6], [0.5, 0.5], protocol="epochs")
    comparison = analysed(rows).comparison
    assert comparison is not None
    figure = curves.protocol_split(comparison)
    assert figure is not None
    same, under = figure.axes[0].containers[:2]
    assert_close([b.get_height() for b in same], [12.5, -10.0])
    assert_close([b.get_height() for b in under], [12.5, 20.0])
    assert_close([b.get_y() for b in under], [12.5, 0.0])  # parts of two signs are not stacked
    total = figure.axes[0].containers[2].lines[0]
    assert_close(list(total.get_ydata()), [25.0, 10.0])
    assert curves.protocol_split(replace(comparison, split=comparison.split[:0])) is None


def test_capacity_needs_variants_of_other_cost() -> None:
    rows = [
        row(m, 500, 0, a, params=p)
        for m, a, p in (
            ("vit", 0.3, 100), ("vit_large", 0.5, 900), ("cnn", 0.7, 100), ("wide", 0.8, 300),
        )
    ]  # fmt: skip
    near = [
        row("local_vit_r1", 500, 0, 0.4, params=100),
        row("local_vit_r3", 500, 0, 0.4, params=110),
    ]
    summary = summarise(table(rows + near))
    archs = {"wide": "cnn", "vit_large": "vit", "local_vit_r1": "local_vit"}
    archs["local_vit_r3"] = "local_vit"
    figure = panels.capacity(summary, archs)
    assert figure is not None
    top, bottom = figure.axes
    drawn = {tuple(x.get_xdata()): tuple(x.get_ydata()) for x in top.lines}
    assert drawn == {(100, 900): (0.3, 0.5), (100, 300): (0.7, 0.8)}
    assert {tuple(x.get_ydata()) for x in bottom.lines} == {(0.7, 0.5), (1 - 0.7, 1 - 0.8)}
    assert labels(figure) == ["cnn", "vit", "500 images"]
    assert panels.capacity(summarise(table(near)), archs) is None


def test_training_curves_by_size() -> None:
    log = pd.DataFrame(
        [("vit", p, "none", n, s, 1 / s, n / s) for p in ("epochs", "steps") for n in (20, 50)
         for s in (9, 19)],
        columns=["model", "protocol", "control", "size", "step", "train_loss", "val_loss"],
    )  # fmt: skip
    figure = panels.training_curves(log)
    assert figure is not None
    first, second = figure.axes
    assert [a.get_title() for a in (first, second)] == ["vit, equal updates", "vit, equal epochs"]
    solid = [x for x in first.lines if x.get_linestyle() == "-"]
    assert [list(x.get_xdata()) for x in solid] == [[10, 20]] * 2
    assert_close([list(x.get_ydata()) for x in solid], [[20 / 9, 20 / 19], [50 / 9, 50 / 19]])
    assert not same_color(solid[0].get_color(), solid[1].get_color())
    assert panels.training_curves(log[:0]) is None
    assert panels.training_curves(log.drop(columns="val_loss")) is None


def test_attention_distance_by_layer() -> None:
    made = pd.DataFrame(
        [("vit", n, k, 3.0 + k + n / 100) for n in (20, 50) for k in (0, 1)],
        columns=["model", "size", "layer", "distance"],
    )
    figure = panels.attention_distance(made)
    assert figure is not None
    lines = [list(x.get_ydata()) for x in figure.axes[0].lines]
    assert_close(lines, [[3.2, 3.5], [4.2, 4.5]])
    assert labels(figure) == ["layer 0", "layer 1"]
    assert panels.attention_distance(made[:0]) is None


def points(axes: Any, colour: str) -> tuple[list[list[float]], list[bool]]:
    """Positions of a model's markers, and which of them are filled."""
    found = [c for c in axes.collections if isinstance(c, PathCollection)]
    (marks,) = (c for c in found if same_color(c.get_edgecolor()[0], colour))
    places = marks.get_offsets().tolist()
    faces = np.broadcast_to(marks.get_facecolor(), (len(places), 4))
    return places, [bool(same_color(f, colour)) for f in faces]


def test_points_are_hollow_where_not_fitted() -> None:
    summary = summarise(table(UNEVEN))
    figure = curves.against_size(summary, "test_acc", "test accuracy", LOOKS)
    (axes,) = figure.axes
    cnn, vit = (line.get_color() for line in axes.lines)
    assert points(axes, cnn)[1] == [True, True]
    assert points(axes, vit)[1] == [True, False]
    assert_close(points(axes, cnn)[0], [[20.0, 0.7], [1000.0, 0.9]])
    assert_close(points(axes, vit)[0], [[20.0, 0.4], [1000.0, 0.8]])
    labels = [t.get_text() for t in axes.get_legend().get_texts()]
    assert labels == ["cnn (1.23 M parameters)", "vit (123 k parameters)"]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["20", "1,000"]
    note = figure.get_supxlabel()
    assert "mean of 2 to 3 draws" in note
    assert "band: 95 % t interval" in note
    assert "hollow: not fitted" in note


def test_band_is_the_interval() -> None:
    summary = summarise(table(UNEVEN))
    (axes,) = curves.against_size(summary, "gap", "gap", LOOKS).axes
    bands = [c for c in axes.collections if isinstance(c, PolyCollection)]
    heights = np.concatenate([b.get_paths()[0].vertices for b in bands])
    edge = T2 * 0.2 / 3**0.5
    at_20 = heights[heights[:, 0] == 20][:, 1]
    assert_close(
        [at_20.min(), at_20.max()], [0.3 - edge, 0.6 + T2 * 0.1 / 3**0.5], rtol=1e-6, atol=0
    )


def test_one_draw_is_a_point_without_a_band() -> None:
    rows = [row("vit", 20, 0, 0.5), row("cnn", 20, 0, 0.75)]
    figure = curves.against_size(summarise(table(rows)), "test_acc", "test accuracy", LOOKS)
    (axes,) = figure.axes
    assert points(axes, axes.lines[0].get_color()) == ([[20.0, 0.75]], [True])
    assert figure.get_supxlabel() == "mean of 1 draw"


def test_style_is_ours_and_leaves_the_users_alone() -> None:
    before = dict(rcParams)
    figure = curves.against_size(summarise(table(UNEVEN)), "gap", "gap", LOOKS)
    render(figure, "x", ("svg",))
    assert dict(rcParams) == before
    (axes,) = figure.axes
    assert axes.yaxis.label.get_fontsize() == 10.5
    assert not axes.spines["top"].get_visible()
