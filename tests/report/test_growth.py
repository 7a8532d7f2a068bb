"""Whether a difference shrinks, in words: its course, its change, the multiple, the crossing."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_comparison import ALONE, AROUND, NAN, RISE, T1, change, differences, made, numbers
from made_study import analysed, pairs

from vision_attn.report.comparison import Change
from vision_attn.report.senses import direction
from vision_attn.report.sentences import growth, meeting, verdict
from vision_attn.stats.multiplier import Crossing

TWO = differences((20, 0.10, 0.05, 0.15, 1), (50, 0.20, 0.1, 0.3, 1))
TURNED = differences((20, 0.10, 0.05, 0.15, 1), (50, -0.20, -0.3, -0.1, 1))
BY_RATIO = pd.DataFrame({"size": [20, 50], "mean": [1.25, 1.5], "fitted": 1.0})
UP, DOWN, SAME = change(0.1, 0.1), change(-0.1, -0.1), change(-0.05, 0.05)


def grown(by_points: Change, by_ratio: Change, **parts: Any) -> Any:
    defaults: dict[str, Any] = {
        "points": TWO,
        "ratio": BY_RATIO,
        "multiplier": pd.DataFrame(),
        "change": by_points,
        "ratio_change": by_ratio,
    }
    return growth(made(**(defaults | parts)))


@pytest.mark.parametrize(
    ("by_points", "by_ratio", "points", "said"),
    [
        (UP, UP, TWO, "In accuracy no, it grows from 10.0 to 20.0 points."),
        (DOWN, DOWN, TWO[::-1], "In accuracy yes, from 20.0 to 10.0 points."),
        (DOWN, UP, TWO[::-1],
         "In accuracy yes, from 20.0 to 10.0 points; as a ratio of errors no, it grows from 1.25 to"
         " 1.50."),
        (SAME, SAME, TWO, "In accuracy no change can be shown (from 10.0 to 20.0 points)."),
        (change(-0.3, 0.3), SAME, TWO,
         "In accuracy too wide to say (from 10.0 to 20.0 points)."),
        (change(0.1), change(0.1), TWO,
         "In accuracy no two draws have both sizes (from 10.0 to 20.0 points)."),
        (change(0.1), change(0.1), ALONE,
         "In accuracy one draw cannot say (from -10.0 to 20.0 points)."),
        (DOWN, DOWN, TURNED,
         "In accuracy it changes sides, from 10.0 for the CNN to 20.0 for the ViT."),
        (SAME, SAME, AROUND, "In accuracy no difference can be shown at any size."),
        (UP, UP, TWO[:1], "One size cannot say."),
    ],
)  # fmt: skip
def test_does_the_difference_shrink(
    by_points: Change, by_ratio: Change, points: pd.DataFrame, said: str
) -> None:
    assert grown(by_points, by_ratio, points=points).answer == said


def test_the_rise_may_shrink_while_the_difference_in_accuracy_grows() -> None:
    answer = grown(UP, UP, rise=RISE, rise_change=change(-1.05, -0.95))
    assert answer.answer.startswith("In accuracy no, it grows")
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
    assert shrinks.answer == "In accuracy yes, from 20.0 to 10.0 points."
    grows = grown(DOWN, DOWN, points=behind)
    assert grows.answer == "In accuracy no, it grows from 20.0 to 10.0 points."


def test_growth_names_what_was_not_fitted() -> None:
    points = differences((20, 0.1, 0.05, 0.15, 1), (50, 0.2, 0.1, 0.3, 0.5))
    answer = grown(UP, UP, points=points)
    assert answer.answer.endswith("from 10.0 to 20.0 points, not fitted at 50 images.")
    assert re.search("At 50 images .* undertraining", answer.details)
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
    answer = grown(UP, UP, multiplier=multiplier)
    assert "times" not in f"{answer.answer} {answer.details}"


def test_no_error_at_all_gives_no_ratio() -> None:
    rows = [*pairs(20, [0.5, 0.6], [0.4, 0.5]), *pairs(50, [1.0, 1.0], [0.8, 0.9])]
    answer = verdict(analysed(rows))[-1]
    assert "ratio" not in answer.answer
    assert numbers(answer.answer) == ["10.0", "15.0"]


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
        ((np.nan,), "no crossing can be read: a run of cnn and vit has no error, so no logarithm"),
    ],
)  # fmt: skip
def test_words_of_a_crossing(numbers: tuple[Any, ...], said: str) -> None:
    assert meeting(Crossing("cnn", "vit", (100.0, 10000.0), *numbers)) == said
    nothing = "no crossing can be read: cnn and vit share 1 sizes, it takes 2"
    assert meeting(Crossing("cnn", "vit", (100.0,), *numbers)) == nothing
