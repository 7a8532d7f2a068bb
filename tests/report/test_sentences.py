"""The words follow the numbers: who is better, who overfits more, further models, the whole."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_comparison import (
    AHEAD,
    ALONE,
    AROUND,
    BEHIND,
    NAN,
    NOTHING,
    RISE,
    WIDE,
    differences,
    made,
    numbers,
)
from made_study import analysed, failed, pairs, row, table

from vision_attn.report.analysis import Analysis, analyse
from vision_attn.report.sentences import better, lines, overfitting, terms, together, verdict
from vision_attn.study.results import StoredStudy


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (AHEAD, "The CNN, at all 3 sizes, by 10.0 to 30.0 points."),
        (BEHIND, "The ViT, at 20 images, by 10.0 points."),
        (differences((20, 0.1, 0.05, 0.15, 1), (50, -0.3, -0.4, -0.2, 1)),
         "The CNN, at 20 images, by 10.0 points; the ViT, at 50 images, by 30.0 points."),
        (AROUND,
         "No difference can be shown at 20 and 50 images (0.0 to 10.0 points apart)."),
        (WIDE,
         "Too wide to say at 20 images with 3 draws (34.6 points in the mean)."),
        (ALONE,
         "One draw cannot say; in it the CNN is ahead at 20 images, by 10.0 points and the ViT is"
         " ahead at 50 images, by 20.0 points."),
        (differences((20, 0.0, NAN, NAN, 1)),
         "One draw cannot say; in it both are equal."),
    ],
)  # fmt: skip
def test_who_is_better(points: pd.DataFrame, said: str) -> None:
    answer = better(made(points=points))
    assert answer.question == "Who is better?"
    assert answer.answer == said


def test_sizes_without_a_winner_stand_in_the_details() -> None:
    points = pd.concat([AHEAD[1:], AROUND[:1]])
    answer = better(made(points=points))
    assert answer.answer == "The CNN, at 50 and 1,000 images, by 20.0 to 30.0 points."
    assert numbers(answer.details) == ["20.0", "10.0", "30.0", "30.0", "25.0", "35.0", "10.0"]
    loss = differences((20, 1.5, 1.25, 1.75, 1), (50, -0.5, -0.75, -0.25, 0))
    told = better(made(points=AHEAD, loss=loss)).details
    assert "In test loss the ViT is worse at 20 images, by 1.50; the CNN is worse" in told


def test_no_impossible_interval_is_printed() -> None:
    """FIRST-HOUR 7: 34.6 points, -46.6 to 115.7."""
    c = made(points=WIDE, gap=WIDE)
    for answer in (better(c), overfitting(c)):
        text = f"{answer.answer} {answer.details}"
        assert "115" not in text
        assert "too wide to say" in text.lower()


@pytest.mark.parametrize(
    ("gap", "rise", "said"),
    [
        (AHEAD[:2], RISE,
         "The ViT, by the gap in accuracy at 20 and 50 images (10.0 to 20.0 points) and by the rise"
         " of validation loss at 20 and 50 images (1.50 to 2.50)."),
        (AHEAD[:1], differences((20, -2.5, -3.0, -2.0, 1)),
         "By the gap in accuracy the ViT, at 20 images (10.0 points); by the rise of validation"
         " loss the CNN, at 20 images (2.50)."),
        (BEHIND, NOTHING, "The CNN, by the gap in accuracy at 20 images (10.0 points)."),
        (differences((20, 0.3, 0.2, 0.4, 0.99)), RISE[:1],
         "By the gap in accuracy that cannot be said, as at no size every run of both fitted; by"
         " the rise of validation loss the ViT, at 20 images (2.50)."),
        (differences((20, 0.3, 0.2, 0.4, 0.99)), NOTHING,
         "By the gap in accuracy that cannot be said, as at no size every run of both fitted."),
        (AROUND[:1], differences((20, 0.5, -0.5, 1.5, 1)),
         "By the gap in accuracy no difference can be shown at 20 images (10.0 points apart); by"
         " the rise of validation loss no difference can be shown at 20 images (0.50 apart)."),
        (ALONE[:1], NOTHING,
         "By the gap in accuracy one draw cannot say; in it the ViT overfits more at 20 images, by"
         " 10.0 points."),
    ],
)  # fmt: skip
def test_who_overfits_more_in_both_senses(gap: pd.DataFrame, rise: pd.DataFrame, said: str) -> None:
    answer = overfitting(made(points=AHEAD[:2], gap=gap, rise=rise, log_rows=10))
    assert answer.answer == said


def test_a_gap_counts_only_where_both_fitted_and_logs_say_how_fine_they_are() -> None:
    gap = differences((20, 0.1, 0.05, 0.15, 1), (50, -0.9, -1, -0.8, 0.5))
    answer = overfitting(made(gap=gap, rise=RISE, log_rows=10))
    assert "the gap in accuracy at 20 images (10.0 points)" in answer.answer
    assert "the rise of validation loss at 20 and 50 images" in answer.answer
    assert "99 %" in answer.details
    assert "at least 10 rows" in answer.details
    assert "not known" in overfitting(made(gap=gap)).details


ROWS = [
    *pairs(20, [0.5, 0.52], [0.4, 0.41]),
    *pairs(50, [0.7, 0.72], [0.5, 0.63]),
    *pairs(90, [0.8, 0.81], [0.55, 0.57], train=0.9),
    *(row("linear", n, d, 0.3 + d / 100) for n in (20, 50, 90) for d in (0, 1)),
]

GOLDEN = """\
equal updates, 2 draws, 95 % intervals
Who is better? The CNN, at 20 and 90 images, by 10.5 to 24.5 points.
Who overfits more? The ViT, by the gap in accuracy at 20 images (10.5 points) and by the rise of\
 validation loss at all 3 sizes (1.00).
Does the difference shrink? In accuracy no, it grows from 10.5 to 24.5 points, not fitted at\
 90 images; in the rise of validation loss no change can be shown (from 1.00 to 1.00).
linear: behind the CNN at all 3 sizes, by 20.5 to 50.0 points; overfits more by the gap in\
 accuracy at 20 and 50 images and by the rise of validation loss at all 3 sizes; the difference in\
 accuracy grows.
"""


def with_rises(rows: list[dict[str, Any]]) -> Analysis:
    """The CNN's validation loss never rises, that of the others by 1 in the mean."""
    keys = ["model", "size", "draw", "seed", "protocol", "control"]
    results = table(rows)
    done = results[results["status"] == "ok"]
    rise = np.where(done["model"] == "cnn", 0.0, 0.99 + done["draw"] / 50)
    rises = done[keys].assign(rows=10, val_loss_rise=rise)
    return analyse(StoredStudy(results, rises=rises))


def test_the_whole_text() -> None:
    analysis = with_rises([*ROWS, failed("vit", 90, 5)])
    said = [terms(analysis)]
    said += [f"{answer.question} {answer.answer}" for answer in verdict(analysis)]
    said += [f"{line.question}: {line.answer}" for line in lines(analysis)]
    assert "".join(f"{text}\n" for text in said) == GOLDEN
    assert "".join(said).count("draws") == 1


def test_a_further_model_may_be_ahead_and_overfit_less() -> None:
    rows = [*ROWS, *(row("best", 20, d, 0.9 + d / 100) for d in (0, 1))]
    line = lines(analysed(rows))[0]
    assert line.question == "best"
    assert line.answer.startswith("ahead of the CNN at 20 images, by 39.5 points; overfits less by")


def test_controls_alone_are_compared_and_named() -> None:
    rows = pairs(20, [0.1, 0.11], [0.1, 0.11], control="shuffled")
    analysis = analysed(rows)
    assert terms(analysis) == "equal updates, labels shuffled, 2 draws, 95 % intervals"
    said = ["No difference can be shown", "By the gap in accuracy no difference", "One size cannot"]
    for answer, start in zip(verdict(analysis), said, strict=True):
        assert answer.answer.startswith(start)


def test_one_draw_is_said_once() -> None:
    assert terms(analysed(pairs(20, [0.5], [0.4]))) == "equal updates, 1 draw, so no intervals"


def test_verdict_of_nothing_shared() -> None:
    (answer,) = verdict(analysed([row("cnn", 20, 0, 0.5), row("vit", 50, 0, 0.5)]))
    assert answer.answer == (
        "The CNN and the ViT share no draw of the same size, so nothing can be compared."
    )


def test_seeds_are_averaged_within_their_draw() -> None:
    rows = [
        row(m, n, d, base + seed / 10 + d / 100, seed=seed)
        for m, n, base in (
            ("cnn", 20, 0.5), ("vit", 20, 0.4), ("cnn", 50, 0.7), ("vit", 50, 0.5),
        )
        for d in (0, 1)
        for seed in (0, 1)
    ]  # fmt: skip
    comparison = analysed(rows).comparison
    assert comparison is not None
    assert comparison.change("test_acc") == pytest.approx((0.1, 0.1, 0.1, 2))


def test_one_model_has_nothing_to_compare() -> None:
    good, overfit = verdict(analysed([row("vit", 20, 0, 0.25), row("vit", 1000, 0, 0.5)]))
    assert good.question == "How good is the ViT?"
    assert good.answer == "25.0 % at 20 images and 50.0 % at 1,000 images."
    assert numbers(overfit.answer) == ["75.0", "50.0"]
    _, unknown = verdict(analysed([row("vit", 20, 0, 0.25, train=0.5)]))
    assert unknown.answer.startswith("That cannot be said")


def test_the_intervals_that_are_read_together_are_counted() -> None:
    """Of 2 further models at 3 sizes: accuracy, gap, loss, ratio of errors."""
    assert together(analysed(ROWS)).startswith("24 intervals of differences are read here together")
    assert "about 1 would" in together(analysed(ROWS))
    assert together(analysed(pairs(20, [0.5], [0.4]))) == ""
