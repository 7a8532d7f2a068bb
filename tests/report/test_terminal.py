"""What a terminal shows: no cell wraps at any width, and a pipe gets Markdown."""

import io
from typing import Any

import pytest
from made_study import UNEVEN, analysed, curve, pairs, row

from vision_attn.report.analysis import Analysis
from vision_attn.report.tables import Block
from vision_attn.report.terminal import print_block, shortened, show
from vision_attn.texts import console


def shown(thing: Analysis | Block, width: int, *, terminal: bool = True) -> list[str]:
    file = io.StringIO()
    made: Any = console(file=file, width=width, force_terminal=terminal, color_system=None)
    if isinstance(thing, Block):
        print_block(made, thing)
    else:
        show(made, thing)
    return file.getvalue().splitlines()


SIX = ("cnn", "vit", "conv_stem_vit", "conv_init_vit", "pooled_stem_vit", "local_vit")
TWO = analysed([*curve("cnn"), *curve("vit", 0.1)])
MANY = analysed([r for model in SIX for r in curve(model)])


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("analysis", [TWO, MANY], ids=["2 models", "6 models"])
def test_no_cell_wraps(analysis: Analysis, width: int) -> None:
    """FIRST-HOUR 4: '69.2 ±' and '1.6' on two lines."""
    lines = shown(analysis, width)
    assert max(map(len, lines)) <= width
    tables = [line for line in lines if "±" in line and "%" not in line]
    halves = [word for line in tables for word in line.replace(" ± ", "±").split() if "±" in word]
    cells = len(analysis.main)
    assert analysis.comparison is not None
    differences = len(analysis.comparison.points)
    assert len(halves) in {2 * cells + differences, 3 * cells - differences}
    assert all(word.strip("-*").count("±") == 1 and word[-1] != "±" for word in halves)


def test_every_model_can_be_told_from_the_others() -> None:
    for width in (60, 80, 120):
        text = "\n".join(shown(MANY, width))
        assert all(model in text for model in SIX)


def test_long_labels_are_cut_so_that_two_stay_different() -> None:
    long = ["timm:deit_tiny_patch16_224.fb_in1k", "timm:deit_tiny_patch32_224.fb_in1k", "vit"]
    for most in (6, 9, 12, 20):
        names = shortened(long, most)
        assert len(set(names)) == 3
        assert max(map(len, names)) <= most
    assert shortened(long, 99) == long
    alike = [f"{'a' * 20}{i}{'b' * 20}" for i in range(30)]
    assert len(set(shortened(alike, 6))) == 30
    rows = [*pairs(20, [0.5, 0.6], [0.4, 0.5]), *(row(long[0], 20, d, 0.5) for d in (0, 1))]
    assert max(map(len, shown(analysed(rows), 60))) <= 60


def test_a_pipe_gets_markdown_of_any_width() -> None:
    for width in (20, 120):
        lines = shown(analysed(UNEVEN), width, terminal=False)
        assert "| images | draws | cnn test | vit test | cnn gap | vit gap | cnn - vit |" in lines
        assert any("70.0 ± 49.7" in line for line in lines)
        assert "* not every run fitted (99 % on train images)" in lines
        assert any(line.startswith("Who is better? The CNN, at 20 images") for line in lines)


def test_answers_stand_at_the_end_and_are_bold() -> None:
    file = io.StringIO()
    made: Any = console(file=file, width=200, force_terminal=True, color_system="standard")
    show(made, MANY)
    end = file.getvalue().splitlines()[-3:]
    questions = ["Who is better?", "Who overfits more?", "Does the difference shrink?"]
    for line, question in zip(end, questions, strict=True):
        assert line.startswith(f"{question} \x1b[1m")


def test_a_table_with_a_title_that_is_wider_keeps_its_columns() -> None:
    """FIRST-HOUR 33: the title of a one-model study wraps."""
    lines = shown(analysed([row("vit", 20, d, 0.5 + d / 100) for d in (0, 1)]), 60)
    assert lines[0] == "Test accuracy and gap in % (± half of the 95 % interval)"


def test_labels_in_headers_are_cut_too() -> None:
    block = Block("x", ["images", "a" * 40, "a" * 39 + "b"], [["20", "1.0", "2.0"]])
    lines = shown(block, 60)
    assert max(map(len, lines)) <= 60
    assert len(set(lines[1].split())) == 3
