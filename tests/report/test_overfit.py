"""Overfitting by offline minus online error, and both other senses side by side."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_study import analysed, row, table

from vision_attn.errors import UserError
from vision_attn.report.analysis import Analysis, analyse
from vision_attn.report.figures import draw, only
from vision_attn.report.sentences import growth, overfitting
from vision_attn.report.tables import page_blocks
from vision_attn.report.write import report
from vision_attn.stats.intervals import interval
from vision_attn.study.result import RUN
from vision_attn.study.results import StoredStudy

ONLINE = 8000
LOST = {("cnn", 500): 0.2, ("cnn", 1000): 0.1, ("vit", 500): 0.4, ("vit", 1000): 0.15}
NOISE = (0.0, 0.01, 0.05)


def rows() -> list[dict[str, Any]]:
    """No run fits; those of 8,000 images see each once, and the others lose `LOST` to them."""
    made = []
    for model in ("cnn", "vit"):
        for n in (500, 1000, ONLINE):
            for draw_, noise in enumerate(NOISE):
                lost = LOST[model, n] + noise if n < ONLINE else 0.0
                run = row(model, n, draw_, 0.8 + noise / 3 - lost, 0.9)
                made.append(run | {"steps": 2500, "epochs": ONLINE / n})
    return made


@pytest.fixture(scope="module")
def made() -> Analysis:
    return analysed(rows())


def test_the_online_run_is_of_the_same_draw(made: Analysis) -> None:
    told = made.online.set_index(["model", "size"])
    assert set(told.index) == set(LOST)
    for where, lost in LOST.items():
        at = told.loc[where]
        want = interval([lost + noise for noise in NOISE])
        assert [at[f"online_gap_{e}"] for e in ("mean", "low", "high", "std")] == pytest.approx(
            want
        )
        assert (at["online_size"], at["count"]) == (ONLINE, 3)
        assert at["online_acc_mean"] == pytest.approx(0.8 + np.mean(NOISE) / 3)


def test_it_is_compared_like_the_other_senses(made: Analysis) -> None:
    pairs = made.pairs[made.pairs["measure"] == "online_gap"].set_index("size")
    assert pairs["value"].to_dict() == pytest.approx({500: 0.2, 1000: 0.05})
    assert made.comparison is not None
    by = "by offline minus online error the ViT, at 500 and 1,000 images (5.0 to 20.0 points)"
    assert by in overfitting(made.comparison).answer
    said = growth(made.comparison)
    assert "in offline minus online error yes, from 20.0 to 5.0 points" in said.answer
    change = "Change in offline minus online error from 500 to 1,000 images: -15.0 (-15.0 to -15.0)"
    assert change in said.details


def test_it_has_a_table_and_a_file(made: Analysis, tmp_path: Path) -> None:
    (block,) = (b for b in page_blocks(made) if b.title.startswith("Offline minus online"))
    mean, low, high, _ = interval([0.2 + noise for noise in NOISE])
    assert block.rows[0][:4] == ["cnn", "500", "8,000", "3"]
    assert block.rows[0][6] == f"{100 * mean:.1f} ({100 * low:.1f} to {100 * high:.1f})"
    assert block.rows[0][5].startswith("80.7 (")
    table(rows()).assign(status="ok").to_csv(tmp_path / "results.csv", index=False)
    report(tmp_path, kinds=("png",))
    file = pd.read_csv(tmp_path / "online.csv")
    assert file["online_gap_mean"].tolist() == pytest.approx(made.online["online_gap_mean"])
    assert file["online_size"].dtype == int
    assert (tmp_path / "online_vs_size.png").is_file()
    assert "Offline minus online" in (tmp_path / "report.html").read_text()


def test_its_points_are_full_though_nothing_fits(made: Analysis) -> None:
    figure = draw(made, "online")
    (axes,) = figure.axes
    lines = {tuple(np.round(line.get_ydata(), 3)) for line in axes.lines[1:]}
    gaps = made.online.groupby("model")["online_gap_mean"]
    assert lines == {tuple(np.round(gap, 3)) for _, gap in gaps}
    assert not [c for c in axes.collections if "white" in str(c.get_facecolor())]
    assert "not fitted" not in str([t.get_text() for t in figure.texts])


@pytest.mark.parametrize(
    "changes", [{"steps": [2500, 2500, 80]}, {"epochs": [16.0, 8.0, 1.001]}, {"epochs": [1.0] * 3}]
)
def test_none_without_an_online_run_of_as_many_updates(changes: dict[str, list[float]]) -> None:
    place = {500: 0, 1000: 1, ONLINE: 2}
    other = [r | {k: v[place[r["size"]]] for k, v in changes.items()} for r in rows()]
    analysis = analysed(other)
    assert analysis.online.empty
    assert "online_gap" not in set(analysis.pairs["measure"])
    with pytest.raises(UserError, match="do not allow the figure online_vs_size"):
        draw(analysis, "online")


def with_rises(fitted: float = 1.0) -> Analysis:
    """A cnn, a vit and another; the rise is twice the points behind, as a share."""
    results = table([
        row(m, n, d, 0.9 - behind - d / 100 * (m == "vit"), fitted)
        for m, behind in (("cnn", 0.0), ("vit", 0.2), ("local_vit", 0.1))
        for n in (20, 50) for d in range(3)
    ])  # fmt: skip
    rise = 2 * (0.9 - results["test_acc"])
    rises = results[list(RUN)].assign(rows=40, val_loss_rise=rise)
    return analyse(StoredStudy(results, rises=rises))


def test_both_senses_stand_side_by_side() -> None:
    analysis = with_rises()
    left, right = draw(analysis, "senses").axes
    assert (left.get_title(), right.get_title()) == ("in test accuracy", "in validation loss")
    assert left.get_ylabel() == "points behind cnn"
    for axes, scale in ((left, 1), (right, 2)):
        got = sorted(tuple(np.round(line.get_ydata(), 6)) for line in axes.lines[1:])
        assert got == [pytest.approx([scale * b] * 2) for b in (0.0, 0.1, 0.21)]
    colours = [{line.get_color() for line in axes.lines[1:]} for axes in (left, right)]
    assert colours[0] == colours[1]
    assert len(colours[0]) == 3
    (half,) = (  # the band of the vit, whose draws differ
        band.get_paths()[0].vertices[:, 1].max()
        for band in left.collections
        if str(band.get_gid()).startswith("curve2") and len(band.get_paths()[0].vertices) > 5
        and band.get_alpha() == 0.15
    )  # fmt: skip
    assert half == pytest.approx(interval([0.2, 0.21, 0.22])[2])


def test_what_is_not_fitted_is_hollow_in_both() -> None:
    for axes in draw(with_rises(0.5), "senses").axes:
        faces = [tuple(c.get_facecolor()[0]) for c in axes.collections if c.get_alpha() is None]
        assert faces == [(1.0, 1.0, 1.0, 1.0)] * 3


def test_senses_of_some_models_and_of_none() -> None:
    analysis = with_rises()
    left, _ = draw(only(analysis, ["vit"]), "senses").axes
    assert left.get_ylabel() == "points behind cnn"
    assert len(left.lines) == 2
    for other in (analysed(rows()), only(analysis, ["cnn"])):
        with pytest.raises(UserError, match="do not allow the figure senses_vs_size"):
            draw(other, "senses")
