"""The tables by hand, as Markdown and for a terminal."""

import io

from made_study import UNEVEN, analysed, pairs, row
from rich.console import Console

from vision_attn.report.tables import markdown, terminal

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
        f"| 1,000 | 3 | 90.0 ± 0.0 | 80.0 ± {b} | 10.0 ± 0.0 | 15.0 ± {b}* | 5.0 ± {d} |",
    ]


def test_terminal_has_the_same_numbers() -> None:
    console = Console(width=120, file=io.StringIO(), record=True)
    console.print(terminal(analysed(UNEVEN)))
    text = console.export_text()
    assert "70.0 ± 49.7" in text
    assert "not every run fitted" in text


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
