"""The tables by hand, as Markdown, as LaTeX and as tidy frames."""

from pathlib import Path

import pytest
from made_study import UNEVEN, analysed, everything, pairs, row

from vision_attn.report.analysis import analyse
from vision_attn.report.numbers import difference_cell, short, times_cell
from vision_attn.report.tables import (
    escaped,
    in_short,
    latex,
    markdown,
    matching_words,
    paired,
)
from vision_attn.study.results import read

T1, T2 = 12.706204736432095, 4.302652729696142
"""Student's t at 97.5 % for 1 and 2 degrees of freedom."""


def half(std: float, n: int) -> str:
    return f"{100 * {2: T1, 3: T2}[n] * std / n**0.5:.1f}"


def test_table_by_hand() -> None:
    lines = markdown(analysed(UNEVEN)).splitlines()
    a, b, c = half(0.2, 3), half(0.1, 3), half(0.1, 3)  # of cnn, of vit, of 0.2, 0.3 and 0.4
    d = half(0.1 / 2**0.5, 2)  # of 0.9 - 0.8 and 0.9 - 0.9
    assert (a, b) == ("49.7", "24.8")
    assert lines == [
        "| images | draws | cnn test | vit test | cnn gap | vit gap | cnn - vit |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        f"| 20 | 3 | 70.0 ± {a} | 40.0 ± {b} | 30.0 ± {a} | 60.0 ± {b} | 30.0 ± {c} |",
        f"| 1,000 | 2 to 3 | 90.0 ± 0.0 | 80.0 ± {b} | 10.0 ± 0.0 | 15.0 ± {b}* | 5.0 ± {d} |",
    ]


def test_one_model_has_no_difference() -> None:
    rows = [row("timm:resnet18", 20, 0, 0.5)]
    assert markdown(analysed(rows)).splitlines()[0::2] == [
        "| images | draws | timm:resnet18 test | timm:resnet18 gap |",
        "| 20 | 1 | 50.0 | 50.0 |",
    ]


def test_a_size_that_one_model_lacks_is_left_empty() -> None:
    rows = [row("vit", 20, 0, 0.25), row("cnn", 20, 0, 0.5), row("vit", 50, 0, 0.75)]
    assert markdown(analysed(rows)).splitlines()[2:] == [
        "| 20 | 1 | 50.0 | 25.0 | 50.0 | 75.0 | 25.0 |",
        "| 50 | 1 |  | 75.0 |  | 25.0 |  |",
    ]


def test_many_models_are_two_tables() -> None:
    rows = [row(m, 20, d, 0.5 + d / 10) for m in ("cnn", "vit", "linear", "a|b") for d in (0, 1)]
    lines = markdown(analysed(rows)).splitlines()
    assert lines[0] == "Test accuracy"
    assert lines[2] == "| images | draws | a\\|b | cnn | linear | vit | cnn - vit |"
    assert lines[6] == "Gap"
    assert lines[8] == "| images | draws | a\\|b | cnn | linear | vit |"
    assert lines[10].count("45.0 ± 63.5") == 4


def test_each_protocol_and_control_has_its_table() -> None:
    rows = pairs(20, [0.5], [0.25])
    rows += pairs(20, [0.4], [0.2], protocol="epochs") + pairs(20, [0.1], [0.1], control="shuffled")
    lines = markdown(analysed(rows)).splitlines()
    titles = ["Equal updates", "Equal epochs", "Equal updates, labels shuffled"]
    assert [lines[i] for i in (0, 6, 12)] == titles
    assert lines[4] == "| 20 | 1 | 50.0 | 25.0 | 50.0 | 75.0 | 25.0 |"
    assert lines[10] == "| 20 | 1 | 40.0 | 20.0 | 60.0 | 80.0 | 20.0 |"
    assert lines[16] == "| 20 | 1 | 10.0 | 10.0 | 90.0 | 90.0 | 0.0 |"


def test_latex_is_escaped_and_has_the_numbers_of_the_table() -> None:
    text = latex(analysed([*UNEVEN, row("50%_a&b", 20, 0, 0.5)]))
    assert "50\\%\\_a\\&b" in text
    assert "\\begin{tabular}{rrrrrrrrr}" in text
    assert "70.0\\,$\\pm$\\,49.7" in text
    assert "1{,}000 & 2 to 3" in text
    assert text.count("\\toprule") == text.count("\\bottomrule") == 1
    assert escaped("\\^~$#{}") == (
        "\\textbackslash{}\\textasciicircum{}\\textasciitilde{}\\$\\#\\{\\}"
    )


def test_a_negative_difference_has_a_minus_in_latex() -> None:
    assert " & $-$25.0 \\\\" in latex(analysed(pairs(20, [0.25], [0.5])))


def test_pairs_are_model_minus_reference_in_every_setting(tmp_path: Path) -> None:
    analysis = analyse(read(everything(tmp_path)))
    table = analysis.pairs
    assert set(table["reference"]) == {"cnn"}
    assert set(table["model"]) == {"vit", "vit_large"}
    assert len(table[["protocol", "control"]].drop_duplicates()) == 4
    here = table[(table["protocol"] == "steps") & (table["control"] == "none")]
    at = here[(here["model"] == "vit") & (here["size"] == 500)].set_index("measure")
    points = analysis.comparison.points.set_index("size").loc[500]
    wanted = (-points["mean"], -points["high"], -points["low"])
    assert tuple(at.loc["test_acc", ["value", "low", "high"]]) == pytest.approx(wanted)
    ratio = analysis.comparison.table("error_ratio").set_index("size").loc[500]
    assert at.loc["error_ratio", "value"] == pytest.approx(ratio["mean"])
    assert at.loc["test_acc", "count"] == 3
    times = analysis.multipliers
    assert list(times.columns)[:5] == ["reference", "model", "protocol", "control", "size"]
    assert len(times[(times["model"] == "vit") & (times["control"] == "none")]) == 12


def test_one_model_has_no_pairs() -> None:
    analysis = analysed([row("vit", 20, 0, 0.5)])
    assert analysis.pairs.empty
    assert analysis.multipliers.empty


def test_in_short_has_both_ends_and_the_change() -> None:
    rows = [*pairs(20, [0.5, 0.52], [0.4, 0.41]), *pairs(1000, [0.7, 0.72], [0.5, 0.53])]
    block = in_short(analysed(rows).comparison)
    assert list(block.header) == ["", "20 images", "1,000 images", "change"]
    assert block.rows[0][1:3] == ["10.5 (4.1 to 16.9)", "19.5 (13.1 to 25.9)"]
    assert block.rows[0][3] == "+9.0 (-3.7 to +21.7)"
    assert block.rows[1][3].startswith("× ")
    one = in_short(analysed(pairs(20, [0.5], [0.4])).comparison)
    assert list(one.header) == ["", "20 images"]
    assert one.rows[0][1] == "10.0"


def test_an_interval_that_says_nothing_is_not_printed() -> None:
    comparison = analysed(pairs(20, [0.9, 0.5], [0.1, 0.4])).comparison
    row = comparison.points.iloc[0]
    assert row["high"] > 1
    assert difference_cell(row) == "45.0 (too wide)"
    assert "45.0 (too wide)" in paired(comparison).rows[0]
    assert "45.0 (too wide)" in markdown(analysed(pairs(20, [0.9, 0.5], [0.1, 0.4])))


def test_no_infinity_stands_in_a_cell() -> None:
    """FIRST-HOUR 35: 0.99 to inf."""
    row = {"bound": "", "multiplier": 1.5, "low": 0.99, "high": float("inf")}
    assert times_cell(row) == "1.50 (0.99 to beyond the data)"


@pytest.mark.parametrize(
    ("value", "said"),
    [(650, "650"), (999.6, "1 k"), (4_470_000, "4.47 M"), (999_960, "1 M"),
     (1_343_750_000, "1.34 G")],
)  # fmt: skip
def test_large_numbers_are_short(value: float, said: str) -> None:
    """FIRST-HOUR 34: 1,343.75 M and 0.00 M."""
    assert short(value) == said


def test_what_was_matched_in_words() -> None:
    stored = {"vit": "none", "cnn": "params of vit", "linear": "none", "old": "not stored"}
    assert matching_words(stored) == {
        "vit": "reference", "cnn": "parameters of vit", "linear": "not matched",
        "old": "not stored",
    }  # fmt: skip
