"""The words follow the numbers: every kind of answer on made data, by its kind and its numbers."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_study import analysed, failed, pairs, row, table

from vision_attn.report.analysis import Analysis, analyse
from vision_attn.report.clauses import direction
from vision_attn.report.comparison import Change, Comparison
from vision_attn.report.remarks import about_controls, about_split, meeting
from vision_attn.report.sentences import better, growth, lines, overfitting, terms, verdict
from vision_attn.stats.multiplier import Crossing
from vision_attn.study.results import StoredStudy, summarise

T1 = 12.706204736432095
"""Student's t at 97.5 % for 1 degree of freedom."""

NAN = np.nan


def differences(*rows: tuple[int, float, float, float, float]) -> pd.DataFrame:
    """Differences as (size, mean, low, high, fitted), of three draws or of one."""
    names = ["size", "mean", "low", "high", "fitted"]
    table = pd.DataFrame(rows, columns=names)
    return table.assign(count=np.where(table["low"].isna(), 1, 3))


def made(**parts: Any) -> Comparison:
    """A comparison of cnn and vit with some of its parts replaced, and no losses."""
    comparison = analysed(pairs(20, [0.5], [0.4])).comparison
    assert comparison is not None
    return replace(comparison, **({"loss": comparison.loss[:0]} | parts))


def numbers(text: str) -> list[str]:
    """Every number of a sentence that has a decimal."""
    return re.findall(r"[+-]?\d+\.\d+", text)


def change(*draws: float) -> Change:
    """Of the change in each of some draws."""
    if len(draws) < 2:
        return Change(NAN, NAN, NAN, len(draws))
    mean, half = float(np.mean(draws)), T1 * float(np.std(draws, ddof=1)) / 2**0.5
    return Change(mean, mean - half, mean + half, 2)


AHEAD = differences((20, 0.1, 0.05, 0.15, 1), (50, 0.2, 0.1, 0.3, 1), (1000, 0.3, 0.25, 0.35, 1))
BEHIND = differences((20, -0.1, -0.15, -0.05, 1))
AROUND = differences((20, 0.1, -0.01, 0.21, 1), (50, 0.0, 0.0, 0.0, 1))
WIDE = differences((20, 0.346, -0.466, 1.157, 1))
ALONE = differences((20, 0.1, NAN, NAN, 1), (50, -0.2, NAN, NAN, 1))


@pytest.mark.parametrize(
    ("points", "kind", "number", "said"),
    [
        (AHEAD, "first", "10.0 to 30.0 points",
         "The CNN, at all 3 sizes, by 10.0 to 30.0 points."),
        (BEHIND, "second", "10.0 points", "The ViT, at 20 images, by 10.0 points."),
        (differences((20, 0.1, 0.05, 0.15, 1), (50, -0.3, -0.4, -0.2, 1)), "both",
         "10.0 to 30.0 points",
         "The CNN, at 20 images, by 10.0 points; the ViT, at 50 images, by 30.0 points."),
        (AROUND, "open", "0.0 to 10.0 points",
         "No difference can be shown at 20 and 50 images (0.0 to 10.0 points apart)."),
        (WIDE, "wide", "34.6 points",
         "Too wide to say at 20 images with 3 draws (34.6 points in the mean)."),
        (ALONE, "single", "10.0 to 20.0 points",
         "One draw cannot say; in it the CNN is ahead at 20 images, by 10.0 points and the ViT is"
         " ahead at 50 images, by 20.0 points."),
        (differences((20, 0.0, NAN, NAN, 1)), "single", "0.0 points",
         "One draw cannot say; in it both are equal."),
    ],
)  # fmt: skip
def test_who_is_better(points: pd.DataFrame, kind: str, number: str, said: str) -> None:
    answer = better(made(points=points))
    assert (answer.question, answer.kind, answer.number) == ("Who is better?", kind, number)
    assert answer.answer == said


def test_sizes_without_a_winner_stand_in_the_details() -> None:
    points = pd.concat([AHEAD[1:], AROUND[:1]])
    answer = better(made(points=points))
    assert answer.answer == "The CNN, at 50 and 1,000 images, by 20.0 to 30.0 points."
    assert answer.kinds == {"points": {"first": (50, 1000), "open": (20,)}}
    assert numbers(answer.details) == ["20.0", "10.0", "30.0", "30.0", "25.0", "35.0", "10.0"]
    loss = differences((20, 1.5, 1.25, 1.75, 1), (50, -0.5, -0.75, -0.25, 0))
    told = better(made(points=AHEAD, loss=loss)).details
    assert "In test loss the ViT is worse at 20 images, by 1.50; the CNN is worse" in told


def test_no_impossible_interval_is_printed() -> None:
    """FIRST-HOUR 7: 34.6 points, -46.6 to 115.7."""
    c = made(points=WIDE, gap=WIDE)
    for answer in (better(c), overfitting(c)):
        assert "115" not in answer.text
        assert "too wide to say" in answer.text.lower()


RISE = differences((20, 2.5, 2.0, 3.0, 1), (50, 1.5, 1.0, 2.0, 0))
NOTHING = AHEAD[:0]


@pytest.mark.parametrize(
    ("gap", "rise", "kind", "said"),
    [
        (AHEAD[:2], RISE, "second",
         "The ViT, by the gap in accuracy at 20 and 50 images (10.0 to 20.0 points) and by the rise"
         " of validation loss at 20 and 50 images (1.50 to 2.50)."),
        (AHEAD[:1], differences((20, -2.5, -3.0, -2.0, 1)), "both",
         "By the gap in accuracy the ViT, at 20 images (10.0 points); by the rise of validation"
         " loss the CNN, at 20 images (2.50)."),
        (BEHIND, NOTHING, "first", "The CNN, by the gap in accuracy at 20 images (10.0 points)."),
        (differences((20, 0.3, 0.2, 0.4, 0.99)), RISE[:1], "second",
         "By the gap in accuracy that cannot be said, as at no size every run of both fitted; by"
         " the rise of validation loss the ViT, at 20 images (2.50)."),
        (differences((20, 0.3, 0.2, 0.4, 0.99)), NOTHING, "none",
         "By the gap in accuracy that cannot be said, as at no size every run of both fitted."),
        (AROUND[:1], differences((20, 0.5, -0.5, 1.5, 1)), "open",
         "By the gap in accuracy no difference can be shown at 20 images (10.0 points apart); by"
         " the rise of validation loss no difference can be shown at 20 images (0.50 apart)."),
        (ALONE[:1], NOTHING, "single",
         "By the gap in accuracy one draw cannot say; in it the ViT overfits more at 20 images, by"
         " 10.0 points."),
    ],
)  # fmt: skip
def test_who_overfits_more_in_both_senses(
    gap: pd.DataFrame, rise: pd.DataFrame, kind: str, said: str
) -> None:
    answer = overfitting(made(points=AHEAD[:2], gap=gap, rise=rise, log_rows=10))
    assert answer.answer == said
    assert answer.kind == kind


def test_a_gap_counts_only_where_both_fitted_and_logs_say_how_fine_they_are() -> None:
    gap = differences((20, 0.1, 0.05, 0.15, 1), (50, -0.9, -1, -0.8, 0.5))
    answer = overfitting(made(gap=gap, rise=RISE, log_rows=10))
    assert answer.kinds == {"gap": {"first": (20,)}, "rise": {"first": (20, 50)}}
    assert "99 %" in answer.details
    assert "at least 10 rows" in answer.details
    assert "not known" in overfitting(made(gap=gap)).details


TWO = differences((20, 0.10, 0.05, 0.15, 1), (50, 0.20, 0.1, 0.3, 1))
TURNED = differences((20, 0.10, 0.05, 0.15, 1), (50, -0.20, -0.3, -0.1, 1))
RATIO = pd.DataFrame({"size": [20, 50], "ratio": [1.25, 1.5]})
UP, DOWN, SAME = change(0.1, 0.1), change(-0.1, -0.1), change(-0.05, 0.05)


def grown(by_points: Change, by_ratio: Change, **parts: Any) -> Any:
    defaults: dict[str, Any] = {
        "points": TWO,
        "ratio": RATIO,
        "multiplier": pd.DataFrame(),
        "change": by_points,
        "ratio_change": by_ratio,
    }
    return growth(made(**(defaults | parts)))


@pytest.mark.parametrize(
    ("by_points", "by_ratio", "points", "kind", "said"),
    [
        (UP, UP, TWO, "grows", "In accuracy no, it grows from 10.0 to 20.0 points."),
        (DOWN, DOWN, TWO[::-1], "shrinks", "In accuracy yes, from 20.0 to 10.0 points."),
        (DOWN, UP, TWO[::-1], "shrinks",
         "In accuracy yes, from 20.0 to 10.0 points; as a ratio of errors no, it grows from 1.25 to"
         " 1.50."),
        (SAME, SAME, TWO, "open", "In accuracy no change can be shown (from 10.0 to 20.0 points)."),
        (change(-0.3, 0.3), SAME, TWO, "wide",
         "In accuracy too wide to say (from 10.0 to 20.0 points)."),
        (change(0.1), change(0.1), TWO, "single",
         "In accuracy no two draws have both sizes (from 10.0 to 20.0 points)."),
        (change(0.1), change(0.1), ALONE, "single",
         "In accuracy one draw cannot say (from -10.0 to 20.0 points)."),
        (DOWN, DOWN, TURNED, "turns",
         "In accuracy it changes sides, from 10.0 for the CNN to 20.0 for the ViT."),
        (SAME, SAME, AROUND, "none", "In accuracy no difference can be shown at any size."),
        (UP, UP, TWO[:1], "none", "One size cannot say."),
    ],
)  # fmt: skip
def test_does_the_difference_shrink(
    by_points: Change, by_ratio: Change, points: pd.DataFrame, kind: str, said: str
) -> None:
    answer = grown(by_points, by_ratio, points=points)
    assert answer.answer == said
    assert answer.kind == kind


def test_the_rise_may_shrink_while_the_difference_in_accuracy_grows() -> None:
    answer = grown(UP, UP, rise=RISE, rise_change=change(-1.05, -0.95))
    assert answer.kinds == {"points": "grows", "ratio": "grows", "rise": "shrinks"}
    assert answer.answer.endswith("; in the rise of validation loss yes, from 2.50 to 1.50.")
    half = T1 * 0.05
    assert {f"{-1 - half:+.2f}", f"{-1 + half:+.2f}"} <= set(numbers(answer.details))


def test_changes_have_their_intervals_in_the_details() -> None:
    answer = grown(change(0.29, 0.31), change(np.log(1.2), np.log(1.25)))
    half = T1 * 1.0  # of 29 and 31 points: their deviation over the root of 2
    spread = np.exp(T1 * abs(np.log(1.2 / 1.25)) / 2)
    middle = (1.2 * 1.25) ** 0.5
    wanted = ["+30.0", f"{30 - half:+.1f}", f"{30 + half:+.1f}"]
    wanted += [f"{v:.2f}" for v in (middle, middle / spread, middle * spread)]
    assert numbers(answer.details)[:6] == wanted


@pytest.mark.parametrize(
    ("by", "side", "word"),
    [
        (0.1, -1, "shrinks"), (-0.1, -1, "grows"), (-0.1, 1, "shrinks"), (0.1, 1, "grows"),
    ],
)  # fmt: skip
def test_direction_follows_the_side_of_the_difference(by: float, side: int, word: str) -> None:
    assert direction(Change(by, by - 0.01, by + 0.01, 3), side) == word
    assert direction(Change(by, by - 1, by + 1, 3), side) == "open"
    assert direction(change(by), side) == "single"


def test_growth_takes_the_side_from_the_points() -> None:
    behind = differences((20, -0.2, -0.3, -0.1, 1), (50, -0.1, -0.2, -0.05, 1))
    shrinks = grown(UP, change(0.2, 0.2), points=behind)
    assert shrinks.kinds == {"points": "shrinks", "ratio": "shrinks"}
    grows = grown(DOWN, DOWN, points=behind)
    assert grows.kinds == {"points": "grows", "ratio": "grows"}
    assert "from 20.0 to 10.0 points" in grows.answer


def test_growth_names_what_was_not_fitted() -> None:
    points = differences((20, 0.1, 0.05, 0.15, 1), (50, 0.2, 0.1, 0.3, 0.5))
    assert re.search("At 50 images .* undertraining", grown(UP, UP, points=points).details)
    assert "undertraining" not in grown(UP, UP).details


def multiples(*rows: tuple[Any, ...]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["n", "multiplier", "low", "high", "bound", "limit"])


@pytest.mark.parametrize(
    ("multiplier", "said"),
    [
        (multiples((500, 2.5, 2.0, 3.0, "", NAN), (1000, NAN, 1.0, np.inf, "> 4", 4.0)),
         "at 500 images, the ViT needs 2.5 times (2 to 3) the images"),
        (multiples((1000, NAN, 1.0, np.inf, "> 4", 4.0)),
         "at 1,000 images, the ViT needs more than 4 times the images"),
        (multiples((500, NAN, NAN, NAN, "> 2", 2.0), (1000, NAN, NAN, NAN, "> 1", 1.0)),
         "at 500 images, the ViT needs more than 2 times the images"),
    ],
)  # fmt: skip
def test_growth_has_the_last_multiple_that_says_something(
    multiplier: pd.DataFrame, said: str
) -> None:
    assert said in grown(UP, UP, multiplier=multiplier).details


@pytest.mark.parametrize(
    "multiplier",
    [
        multiples((1000, NAN, 1.0, np.inf, "> 1", 1.0)),
        multiples((500, 1.3, 0.0, np.inf, "", NAN)),
        multiples(),
    ],
)  # fmt: skip
def test_nothing_vacuous_is_said(multiplier: pd.DataFrame) -> None:
    """FIRST-HOUR 7: more than 1 times the images."""
    assert "times" not in grown(UP, UP, multiplier=multiplier).text


def test_no_error_at_all_gives_no_ratio() -> None:
    rows = [*pairs(20, [0.5, 0.6], [0.4, 0.5]), *pairs(50, [1.0, 1.0], [0.8, 0.9])]
    answer = verdict(analysed(rows))[-1]
    assert list(answer.kinds) == ["points"]
    assert numbers(answer.answer) == ["10.0", "15.0"]


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
Does the difference shrink? In accuracy no, it grows from 10.5 to 24.5 points; in the rise of\
 validation loss no change can be shown (from 1.00 to 1.00).
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
    assert (line.question, line.kind) == ("best", "second")
    assert line.answer.startswith("ahead of the CNN at 20 images, by 39.5 points; overfits less by")


def test_controls_alone_are_compared_and_named() -> None:
    rows = pairs(20, [0.1, 0.11], [0.1, 0.11], control="shuffled")
    analysis = analysed(rows)
    assert terms(analysis) == "equal updates, labels shuffled, 2 draws, 95 % intervals"
    assert [answer.kind for answer in verdict(analysis)] == ["open", "open", "none"]


def test_one_draw_is_said_once() -> None:
    assert terms(analysed(pairs(20, [0.5], [0.4]))) == "equal updates, 1 draw, so no intervals"


def test_verdict_of_nothing_shared() -> None:
    (answer,) = verdict(analysed([row("cnn", 20, 0, 0.5), row("vit", 50, 0, 0.5)]))
    assert answer.kind == "none"
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
    assert comparison.change == pytest.approx((0.1, 0.1, 0.1, 2))


def test_one_model_has_nothing_to_compare() -> None:
    good, overfit = verdict(analysed([row("vit", 20, 0, 0.25), row("vit", 1000, 0, 0.5)]))
    assert good.question == "How good is the ViT?"
    assert good.answer == "25.0 % at 20 images and 50.0 % at 1,000 images."
    assert numbers(overfit.answer) == ["75.0", "50.0"]
    _, unknown = verdict(analysed([row("vit", 20, 0, 0.25, train=0.5)]))
    assert unknown.answer.startswith("That cannot be said")


def test_what_the_protocol_does() -> None:
    split = pd.DataFrame([{"size": 20, "total": 0.3, "undertraining": 0.2, "generalisation": 0.1}])
    text = about_split(made(split=split))
    assert numbers(text) == ["30.0", "20.0", "10.0"]
    assert "cnn - vit" in text


def test_what_the_controls_show() -> None:
    rows = [row("vit", 20, 0, 0.5), row("vit", 20, 0, 0.1, control="shuffled")]
    (text,) = about_controls(summarise(table(rows)))
    assert numbers(text) == ["10.0", "50.0"]
    assert text.startswith("With labels shuffled vit")
    assert about_controls(summarise(table(rows[:1]))) == []


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((700.0, 512.0, 2345.0, 0.01, 0.99, 3), "vit overtakes cnn at 700 (512 to 2,345; none in 1"
         " % of resamples)"),
        ((700.0, 0.0, np.inf, 0.1, 0.8, 5), "vit overtakes cnn at 700 (not bounded by these"
         " draws)"),
        ((0.0, 0.0, 0.0, 0.0, 0.0, 3), "vit is ahead of cnn from 100 on (under 100 to under 100;"
         " none in 0 % of resamples)"),
        ((np.inf, np.inf, np.inf, 1.0, 0.0, 3), "none up to 10,000: cnn is ahead (100 % of"
         " resamples)"),
        ((700.0, np.nan, np.nan, np.nan, np.nan, 1), "vit overtakes cnn at 700 (1 draw: no"
         " interval)"),
        ((np.nan,), "no crossing can be read: a run of cnn or vit has no error, so no logarithm"),
    ],
)  # fmt: skip
def test_words_of_a_crossing(numbers: tuple[Any, ...], said: str) -> None:
    assert meeting(Crossing("cnn", "vit", (100.0, 10000.0), *numbers)) == said
    nothing = "no crossing can be read: cnn and vit share 1 sizes, it takes 2"
    assert meeting(Crossing("cnn", "vit", (100.0,), *numbers)) == nothing
