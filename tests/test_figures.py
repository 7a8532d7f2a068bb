"""What the further figures draw: lines, styles, bars and bounds, by their values."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_study import pairs, row, table
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import same_color
from matplotlib.figure import Figure
from torch.testing import assert_close

from vision_attn.compare import figures, panels
from vision_attn.compare.draw import log_percent, percent, render
from vision_attn.compare.runs import select, summarise
from vision_attn.compare.styles import looks
from vision_attn.stats.paired import protocol_split
from vision_attn.stats.power_law import fit_law

SIZES = (100, 200, 400, 800, 1600, 3200)


def labels(figure: Any) -> list[str]:
    legends = [*figure.legends, *(a.get_legend() for a in figure.axes if a.get_legend())]
    return [t.get_text() for legend in legends for t in legend.get_texts()]


def test_protocols_differ_by_line_and_not_by_colour() -> None:
    rows = pairs(20, [0.5], [0.4]) + pairs(50, [0.6], [0.5])
    rows += pairs(20, [0.3], [0.2], protocol="epochs") + pairs(50, [0.4], [0.3], protocol="epochs")
    figure = figures.against_size(summarise(table(rows)), "test_acc", "test accuracy")
    look = looks(["cnn", "vit"])
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
        figure = figures.against_size(summarise(table(rows)), "test_acc", "test accuracy")
        render(figure, "svg", "x")
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
    assert figures.controls(summarise(table(rows[:4]))) is None
    figure = figures.controls(summarise(table(rows)))
    assert figure is not None
    styles = {x.get_linestyle(): list(x.get_ydata()) for x in figure.axes[0].lines}
    assert styles == {"-": [0.6, 0.7], ":": [0.1, 0.1]}
    assert labels(figure) == ["vit (123 k parameters)", "images as they are", "labels shuffled"]


def test_controls_of_one_size_stand_side_by_side() -> None:
    shares = {("vit", "none"): 0.5, ("vit", "shuffled"): 0.1, ("cnn", "none"): 0.6}
    shares[("cnn", "shuffled")] = 0.2
    rows = [row(m, 20, 0, share, control=c) for (m, c), share in shares.items()]
    figure = figures.controls(summarise(table(rows)))
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
    figure = figures.error_loglog(summarise(table(rows)), {"vit": law})
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
    figure = figures.multiplier(made, "cnn", "vit")
    assert figure is not None
    (axes,) = figure.axes
    line = axes.lines[1]
    assert_close([*line.get_xdata(), *line.get_ydata()], [100.0, 200.0, 2.5, 4.0])
    up, down = (c for c in axes.collections if isinstance(c, PathCollection))
    assert (up.get_offsets().tolist(), down.get_offsets().tolist()) == ([[400, 8]], [[800, 0.5]])
    (bars,) = (c for c in axes.collections if isinstance(c, LineCollection))
    ends = [[y for _, y in segment] for segment in bars.get_segments()]
    assert_close(ends, [[2.0, 3.0], [3.0, axes.get_ylim()[1]]])
    assert figures.multiplier(made[:0], "cnn", "vit") is None


def split(rows: list[Any]) -> pd.DataFrame:
    return protocol_split(
        *(select(table(rows), p, "none") for p in ("epochs", "steps")), "cnn", "vit"
    )


def test_parts_of_the_split_add_up() -> None:
    rows = pairs(20, [0.5, 0.6], [0.4, 0.45]) + pairs(50, [0.7, 0.7], [0.8, 0.8])
    rows += pairs(20, [0.4, 0.4], [0.1, 0.2], protocol="epochs")
    rows += pairs(50, [0.6, 0.6], [0.5, 0.5], protocol="epochs")
    figure = figures.protocol_split(split(rows), "cnn", "vit")
    assert figure is not None
    same, under = figure.axes[0].containers[:2]
    assert_close([b.get_height() for b in same], [12.5, -10.0])
    assert_close([b.get_height() for b in under], [12.5, 20.0])
    assert_close([b.get_y() for b in under], [12.5, 0.0])  # parts of two signs are not stacked
    total = figure.axes[0].containers[2].lines[0]
    assert_close(list(total.get_ydata()), [25.0, 10.0])
    assert figures.protocol_split(split(pairs(20, [0.5], [0.4])), "cnn", "vit") is None


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
    figure = panels.capacity(summary, {"wide": "cnn"})
    assert figure is not None
    top, bottom = figure.axes
    drawn = {tuple(x.get_xdata()): tuple(x.get_ydata()) for x in top.lines}
    assert drawn == {(100, 900): (0.3, 0.5), (100, 300): (0.7, 0.8)}
    assert {tuple(x.get_ydata()) for x in bottom.lines} == {(0.7, 0.5), (1 - 0.7, 1 - 0.8)}
    assert labels(figure) == ["cnn", "vit", "500 images"]
    assert panels.capacity(summarise(table(near))) is None


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


def test_a_tick_between_whole_per_cents_is_not_rounded() -> None:
    axes = Figure().subplots()
    percent(axes, "gap")
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
    log_percent(axes)
    name = axes.yaxis.get_minor_formatter()
    want = [f"{d}0 %" if str(d) in named else "" for d in range(2, 10)]
    assert [name(d / 10) for d in range(2, 10)] == want
