"""Studies of several shares of relational images: differences, where places change, figures."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_study import row, stored, study
from numpy.testing import assert_allclose

from vision_attn.cli import main
from vision_attn.errors import UserError
from vision_attn.report.diagram import blocks, write_phase
from vision_attn.report.phase import phase, shares
from vision_attn.stats.boundary import boundaries

SIZES = (100, 400, 1600)
NOISE = (-0.02, 0.0, 0.02)


def made(root: Path, shares: Sequence[float], name: str = "relational") -> list[Path]:
    """The vit is behind the cnn at p = 0 and gains with p; the other cnn is always ahead."""
    root.mkdir(exist_ok=True)
    roots = []
    for p in shares:
        rows = []
        for n in SIZES:
            for draw, noise in enumerate(NOISE):
                rows += [
                    row("cnn", n, draw, 0.5),
                    row("vit", n, draw, 0.5 + 0.2 * (p - 0.4) + noise * 0.2),
                    row("se", n, draw, 0.9, arch="cnn"),
                ]
        roots.append(stored(root / f"p{p}", rows))
        study(roots[-1], starts=[{"data": {"name": name, "relation": p}}], args={})
    return roots


def draws(*curves: Sequence[float], sizes: Sequence[int] = SIZES) -> pd.DataFrame:
    rows = [
        ("cnn", 0.5, n, draw, value)
        for draw, curve in enumerate(curves)
        for n, value in zip(sizes, curve, strict=True)
    ]
    return pd.DataFrame(rows, columns=["opponent", "p", "size", "draw", "value"])


def test_boundary_of_each_draw_by_straight_lines(tmp_path: Path) -> None:
    found = phase(made(tmp_path, (1.0, 0.0, 0.5)))
    assert (found.model, found.opponents) == ("vit", ["cnn", "se"])
    table = found.differences
    cell = table.query("opponent == 'cnn' and p == 1 and measure == 'test_acc' and size == 400")
    assert_allclose(cell["mean"], 0.12, atol=1e-12)
    along = found.boundary.query("opponent == 'cnn' and axis == 'p'")
    assert list(along["at"]) == list(SIZES)
    assert_allclose(along["mean"], 0.4, atol=1e-12)
    half = 4.302652729911275 * 0.02 / 3**0.5  # Student's t of two degrees of freedom
    assert_allclose(along["high"] - along["mean"], half, rtol=1e-9)
    assert (along["crossed"] == 3).all()
    never = found.boundary.query("opponent == 'se'")
    assert never["mean"].isna().all()
    assert (never["crossed"] == 0).all()


def test_along_the_sizes_the_zero_is_on_a_log_axis() -> None:
    table = boundaries(draws([-0.1, 0.1, 0.2], [-0.1, 0.1, 0.3], [-0.3, 0.1, 0.3]))
    (found,) = table.to_dict("records")
    logs = np.log([200.0, 200.0, 100 * 4**0.75])
    assert_allclose(found["mean"], np.exp(logs.mean()))
    assert found["low"] < found["mean"] < found["high"]
    assert_allclose([found["first"], found["last"]], [-0.5 / 3, 0.8 / 3])


@pytest.mark.parametrize(
    ("curves", "crossed"),
    [
        ([[-0.1, 0.1, 0.2], [0.1, 0.1, 0.2]], 1),
        ([[-0.1, 0.1, -0.2], [-0.1, 0.1, 0.2]], 1),
        ([[0.1, 0.1, 0.2], [0.1, 0.2, 0.2]], 0),
    ],
)
def test_no_boundary_where_a_draw_has_none_or_two(curves: list[list[float]], crossed: int) -> None:
    (found,) = boundaries(draws(*curves)).to_dict("records")
    assert np.isnan(found["mean"])
    assert (found["crossed"], found["count"]) == (crossed, 2)


def test_a_draw_that_has_not_all_sizes_is_left_out() -> None:
    table = pd.concat([draws([-0.1, 0.1, 0.2]), draws([0.1], sizes=[100]).assign(draw=1)])
    (found,) = boundaries(table).to_dict("records")
    assert (found["crossed"], found["count"]) == (1, 1)


def test_only_relational_studies_have_shares(tmp_path: Path) -> None:
    roots = made(tmp_path, (0.0, 1.0))
    assert shares(roots) == {0.0: [roots[0]], 1.0: [roots[1]]}
    assert shares(made(tmp_path / "digits", (0.0,), "digits")) == {}


def test_files(tmp_path: Path) -> None:
    found = phase(made(tmp_path / "runs", (0.0, 1.0)))
    out = tmp_path / "out"
    write_phase(found, out, ("svg",))
    write_phase(found, out, ("svg",))
    names = {"phase.csv", "boundary.csv", "phase.md", "phase.svg", "phase_accuracy.svg"}
    assert {p.name for p in out.iterdir()} == names
    assert "vit minus cnn" in (out / "phase.svg").read_text()
    assert len(pd.read_csv(out / "phase.csv")) == 2 * 2 * 2 * len(SIZES)
    with pytest.raises(UserError, match="exists and is no phase diagram"):
        write_phase(found, tmp_path / "runs")


def test_a_phase_diagram_has_no_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    roots = [str(root) for root in made(tmp_path / "runs", (0.0, 1.0))]
    assert main(["plot", *roots, "--out", str(tmp_path / "out"), "--reference", "cnn"]) == 2
    assert "reference is not for a phase diagram" in capsys.readouterr().err
    assert main(["plot", *roots, "--out", str(tmp_path / "out"), "--models", "cnn"]) == 2
    assert "models is not for a phase diagram" in capsys.readouterr().err


def test_words(tmp_path: Path) -> None:
    accuracy, places = blocks(phase(made(tmp_path, (0.0, 1.0))))
    assert accuracy.header == ["p", "images", "vit", "cnn", "se", "vit - cnn", "vit - se"]
    want = ["1", "1,600", "62.0 ± 1.0", "50.0 ± 0.0", "90.0 ± 0.0", "12.0 (11.0 to 13.0)"]
    assert accuracy.rows[-1][:-1] == want
    assert ["cnn", "400 images", "p = 0.40 (0.35 to 0.45)", "3 of 3"] in places.rows
    assert ["se", "p = 1", "se ahead at both ends", "0 of 3"] in places.rows


def test_one_model_has_no_phase(tmp_path: Path) -> None:
    root = stored(tmp_path / "one", [row("vit", 100, 0, 0.5)])
    study(root, starts=[{"data": {"name": "relational", "relation": 0.5}}], args={})
    with pytest.raises(UserError, match="one model"):
        phase([root])
