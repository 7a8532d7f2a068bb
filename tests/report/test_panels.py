"""What the figures of several panels draw: capacity, training curves, distance of attention."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_study import analysed, row, table
from matplotlib.collections import LineCollection
from matplotlib.colors import same_color
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.report.analysis import Analysis, analyse
from vision_attn.report.figures import draw
from vision_attn.report.panels import even_distance
from vision_attn.study.results import StoredStudy


def labels(figure: Any) -> list[str]:
    return [t.get_text() for legend in figure.legends for t in legend.get_texts()]


def test_capacity_needs_variants_of_other_cost() -> None:
    rows = [
        row(m, 500, 0, a, params=p, arch=arch)
        for m, arch, a, p in (
            ("vit", "vit", 0.3, 100), ("vit_large", "vit", 0.5, 900), ("cnn", "cnn", 0.7, 100),
            ("wide", "cnn", 0.8, 300),
        )
    ]  # fmt: skip
    near = [
        row("local_vit_r1", 500, 0, 0.4, params=100, arch="local_vit"),
        row("local_vit_r3", 500, 0, 0.4, params=110, arch="local_vit"),
    ]
    figure = draw(analysed(rows + near), "capacity")
    top, bottom = figure.axes
    drawn = {tuple(x.get_xdata()): tuple(x.get_ydata()) for x in top.lines}
    assert drawn == {(100, 900): (0.3, 0.5), (100, 300): (0.7, 0.8)}
    assert {tuple(x.get_ydata()) for x in bottom.lines} == {(0.7, 0.5), (1 - 0.7, 1 - 0.8)}
    assert labels(figure) == ["cnn", "vit", "500 images"]
    with pytest.raises(UserError, match="do not allow"):
        draw(analysed(near), "capacity")


def test_a_model_without_its_attention_is_another_family() -> None:
    rows = [
        row(f"{m}{i}", 500, 0, a + i / 10, params=100 + 800 * i, arch="vit")
        for m, a in (("vit", 0.3), ("none", 0.6))
        for i in (0, 1)
    ]
    args = {"vit0": {}, "vit1": {}, "none0": {"mixer": "none"}, "none1": {"mixer": "none"}}
    figure = draw(analyse(StoredStudy(table(rows), {"one": {"args": args}})), "capacity")
    drawn = {tuple(x.get_ydata()) for x in figure.axes[0].lines}
    assert drawn == {(0.3, 0.4), (0.6, 0.7)}
    assert labels(figure) == ["vit", "vit without attention", "500 images"]


def study_of(**tables: pd.DataFrame) -> Analysis:
    """A study of one model with a log or with measures of attention."""
    named = {k: v.assign(protocol="steps", control="none") for k, v in tables.items()}
    return analyse(StoredStudy(table([row("vit", 20, 0, 0.5)]), **named))


def test_training_curves_by_size() -> None:
    log = pd.DataFrame(
        [("vit", n, s, 1 / s, n / s) for n in (20, 50) for s in (9, 19)],
        columns=["model", "size", "step", "train_loss", "val_loss"],
    )
    figure = draw(study_of(training=log), "training")
    (axes,) = figure.axes
    assert axes.get_title() == "vit"
    (lines,) = axes.collections
    assert isinstance(lines, LineCollection)
    val_20, train_20, val_50, _ = (np.asarray(s).tolist() for s in lines.get_segments())
    assert_close(val_20, [[10.0, 20 / 9], [20.0, 20 / 19]])
    assert_close(train_20, [[10.0, 1 / 9], [20.0, 1 / 19]])
    assert_close(val_50, [[10.0, 50 / 9], [20.0, 50 / 19]])
    assert [dashes is None for _, dashes in lines.get_linestyle()] == [True, False] * 2
    first, same, second, _ = lines.get_color()
    assert same_color(first, same)
    assert not same_color(first, second)
    assert axes.get_yscale() == "log"
    low, high = axes.get_ylim()
    assert low < 1 / 19
    assert high > 50 / 9
    for nothing in (log[:0], log.drop(columns="val_loss")):
        with pytest.raises(UserError, match="do not allow"):
            draw(study_of(training=nothing), "training")


def test_attention_distance_by_layer() -> None:
    made = pd.DataFrame(
        [("vit", n, k, 3.0 + k + n / 100) for n in (20, 50) for k in (0, 1)],
        columns=["model", "size", "layer", "distance"],
    )
    figure = draw(study_of(attention=made), "attention")
    lines = [list(x.get_ydata()) for x in figure.axes[0].lines]
    assert_close(lines, [[3.2, 3.5], [4.2, 4.5]])
    assert figure.axes[0].get_ylim()[0] == 0
    assert labels(figure) == ["layer 0", "layer 1"]
    with pytest.raises(UserError, match="do not allow"):
        draw(study_of(attention=made[:0]), "attention")


def test_the_even_share_is_drawn_and_named() -> None:
    made = pd.DataFrame(
        [("vit", 20, k, 3.0 + k) for k in (0, 1)], columns=["model", "size", "layer", "distance"]
    )
    study = {"identity": {"data": {"name": "x", "img_size": [32, 32]}}}
    study["args"] = {"vit": {"patch_size": 4}}
    analysis = study_of(attention=made)
    analysis = replace(analysis, stored=replace(analysis.stored, studies={"a": study}))
    (axes,) = draw(analysis, "attention").axes
    assert_close(list(axes.lines[0].get_ydata()), [16.5, 16.5], atol=0.05, rtol=0)
    assert axes.get_title() == "vit (dashed: even share, 16.5)"
    assert axes.get_xlabel() == "layer"  # of one size
    assert [list(x.get_xdata()) for x in axes.lines[1:]] == [[0], [1]]


def test_even_distance_is_that_of_a_loop() -> None:
    places = [(r, c) for r in range(3) for c in range(2)]
    for radius in (None, 1):
        means = []
        for a, b in places:
            near = [
                ((5 * (a - c)) ** 2 + (7 * (b - d)) ** 2) ** 0.5
                for c, d in places
                if radius is None or max(abs(a - c), abs(b - d)) <= radius
            ]
            means.append(sum(near) / len(near))
        got = even_distance((15, 14), (5, 7), radius)
        assert got == pytest.approx(sum(means) / len(means))
    assert even_distance((32, 32), (4, 4)) == pytest.approx(16.5, abs=0.05)
