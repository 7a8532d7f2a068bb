"""The words follow the numbers: every branch on made data, by its kind and its numbers."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_study import analysed, failed, pairs, row, table

from vision_attn.report.analysis import Change, Comparison, Setting
from vision_attn.report.sentences import (
    about_controls,
    about_one,
    about_split,
    better,
    direction,
    growth,
    losses,
    meeting,
    overfitting,
    verdict,
)
from vision_attn.stats.multiplier import Crossing
from vision_attn.study.runs import summarise

T1 = 12.706204736432095
"""Student's t at 97.5 % for 1 degree of freedom."""

NAN = np.nan


def differences(*rows: tuple[int, float, float, float, float]) -> pd.DataFrame:
    """Differences as (size, mean, low, high, fitted), of three draws or of one."""
    names = ["size", "mean", "low", "high", "fitted"]
    table = pd.DataFrame(rows, columns=names)
    return table.assign(count=np.where(table["low"].isna(), 1, 3))


def made(**parts: Any) -> Comparison:
    """A comparison of cnn and vit with some of its parts replaced."""
    comparison = analysed(pairs(20, [0.5], [0.4])).comparison
    assert comparison is not None
    return replace(comparison, **parts)


def numbers(text: str) -> list[str]:
    """Every number of a sentence that has a decimal."""
    return re.findall(r"[+-]?\d+\.\d+", text)


def test_better_says_who_and_by_how_much() -> None:
    points = differences(
        (20, 0.1, 0.05, 0.15, 1), (50, 0.2, 0.1, 0.3, 1), (1000, 0.3, 0.25, 0.35, 1)
    )
    answer = better(made(points=points))
    assert answer.kinds == {"first": (20, 50, 1000)}
    assert numbers(answer.text) == ["10.0", "5.0", "15.0", "30.0", "25.0", "35.0"]
    assert answer.text.startswith("With equal updates, cnn has a higher test accuracy")


def test_better_turns_the_sign_with_the_winner() -> None:
    answer = better(made(points=differences((20, -0.1, -0.15, -0.05, 1))))
    assert answer.kinds == {"second": (20,)}
    assert numbers(answer.text) == ["10.0", "5.0", "15.0"]
    assert answer.text.index("vit") < answer.text.index("cnn")


def test_an_interval_around_zero_leaves_it_open() -> None:
    answer = better(made(points=differences((20, 0.1, -0.01, 0.21, 1), (50, 0.0, 0.0, 0.0, 1))))
    assert answer.kinds == {"open": (20, 50)}
    assert numbers(answer.text) == ["10.0", "-1.0", "21.0", "0.0", "0.0", "0.0"]
    assert "higher" not in answer.text


def test_one_draw_claims_nothing() -> None:
    single = differences((20, 0.1, NAN, NAN, 1))
    for answer in (better(made(points=single)), overfitting(made(gap=single))):
        assert answer.kinds == {"single": (20,)}
        assert numbers(answer.text) == ["10.0"]
        assert "no interval" in answer.text


def test_all_kinds_stand_in_one_sentence() -> None:
    points = differences(
        (20, 0.1, 0.05, 0.15, 1), (50, -0.1, -0.2, -0.05, 1), (70, 0, -1, 1, 1),
        (90, 0.2, NAN, NAN, 1),
    )  # fmt: skip
    answer = better(made(points=points))
    assert answer.kinds == {"first": (20,), "second": (50,), "open": (70,), "single": (90,)}
    places = [answer.text.index(f" {n} images") for n in (20, 50, 70, 90)]
    assert places == sorted(places)
    assert answer.text.count(".") - len(numbers(answer.text)) == 1


def test_the_budget_is_named() -> None:
    answer = better(made(points=differences((20, 0.1, 0.05, 0.15, 1)),
                         setting=Setting("epochs", "none")))  # fmt: skip
    assert answer.text.startswith("With equal epochs, cnn")


def test_overfitting_speaks_of_fitted_sizes_only() -> None:
    gap = differences(
        (20, 0.1, 0.05, 0.15, 1), (50, -0.9, -1, -0.8, 0.5), (70, -0.5, -0.6, -0.4, 0)
    )
    answer = overfitting(made(gap=gap))
    assert answer.kinds == {"first": (20,)}
    assert numbers(answer.text) == ["10.0", "5.0", "15.0"]
    assert "vit overfits more at 20 images" in answer.text
    assert "50 and 70 images" in answer.text


def test_overfitting_the_other_way_and_open() -> None:
    answer = overfitting(
        made(gap=differences((20, -0.1, -0.15, -0.05, 1), (50, 0.01, -0.1, 0.12, 1)))
    )
    assert answer.kinds == {"second": (20,), "open": (50,)}
    assert numbers(answer.text) == ["10.0", "5.0", "15.0", "1.0", "-10.0", "12.0"]
    assert "cnn overfits more at 20 images" in answer.text


def test_overfitting_is_not_answered_where_none_fitted() -> None:
    answer = overfitting(made(gap=differences((20, 0.3, 0.2, 0.4, 0.99))))
    assert answer.kinds == {}
    assert not numbers(answer.text)
    assert "99 %" in answer.text


def test_losses_are_compared_at_every_size() -> None:
    loss = differences((20, 1.5, 1.25, 1.75, 1), (50, -0.5, -0.75, -0.25, 0), (90, 0.1, -1, 1.2, 1))
    answer = losses(made(loss=loss))
    assert answer.kinds == {"first": (20,), "second": (50,), "open": (90,)}
    assert numbers(answer.text) == [
        "1.50", "1.25", "1.75", "0.50", "0.25", "0.75", "0.10", "-1.00", "1.20",
    ]  # fmt: skip
    assert answer.text.index("vit is worse than cnn") < answer.text.index("cnn is worse than vit")
    single = losses(made(loss=differences((20, 1.5, NAN, NAN, 1))))
    assert single.kinds == {"single": (20,)}


TWO = differences((20, 0.10, 0.05, 0.15, 1), (50, 0.20, 0.1, 0.3, 1))


def change(*draws: float) -> Change:
    """Of the change in each of two draws."""
    if len(draws) < 2:
        return Change(NAN, NAN, NAN, len(draws))
    mean, half = float(np.mean(draws)), T1 * float(np.std(draws, ddof=1)) / 2**0.5
    return Change(mean, mean - half, mean + half, 2)


def grown(by_points: Change, by_ratio: Change, **parts: Any) -> Any:
    defaults: dict[str, Any] = {
        "points": TWO,
        "ratio": pd.DataFrame({"size": [20, 50], "ratio": [1.25, 1.5]}),
        "multiplier": pd.DataFrame(),
        "change": by_points,
        "ratio_change": by_ratio,
    }
    return growth(made(**(defaults | parts)))


def test_growth_in_points_and_in_ratio() -> None:
    answer = grown(change(0.29, 0.31), change(np.log(1.2), np.log(1.25)))
    half = T1 * 1.0  # of 29 and 31 points: their deviation over the root of 2
    spread = np.exp(T1 * abs(np.log(1.2 / 1.25)) / 2)
    middle = (1.2 * 1.25) ** 0.5
    assert answer.kinds == {"points": "grows", "ratio": "open"}
    wanted = ["10.0", "20.0", "+30.0", f"{30 - half:+.1f}", f"{30 + half:+.1f}", "1.25", "1.50"]
    wanted += [f"{v:.2f}" for v in (middle, middle / spread, middle * spread)]
    assert numbers(answer.text) == wanted
    assert answer.text.count("2 draws") == 2


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
    shrinks = grown(change(0.1, 0.1), change(0.2, 0.2), points=behind)
    assert shrinks.kinds == {"points": "shrinks", "ratio": "shrinks"}
    assert grown(change(-0.1, -0.1), change(0.2, 0.2)).kinds == {
        "points": "shrinks", "ratio": "grows",
    }  # fmt: skip


def test_growth_needs_two_sizes_and_two_draws() -> None:
    assert grown(change(0.0), change(0.0), points=TWO[:1]).kinds == {}
    for draws in ((0.1,), ()):
        answer = grown(change(*draws), change(*draws))
        assert answer.kinds == {"points": "single", "ratio": "single"}
        assert numbers(answer.text) == ["10.0", "20.0", "1.25", "1.50"]
        assert "no interval" in answer.text


def test_growth_names_what_was_not_fitted() -> None:
    points = differences((20, 0.1, 0.05, 0.15, 1), (50, 0.2, 0.1, 0.3, 0.5))
    warned = grown(change(0.1, 0.1), change(0.1, 0.1), points=points)
    assert re.search("At 50 images .* undertraining", warned.text)
    assert "undertraining" not in grown(change(0.1, 0.1), change(0.1, 0.1)).text


def test_growth_has_the_multiple_of_images_at_the_last_exact_size() -> None:
    multiplier = pd.DataFrame(
        [(500, 2.5, 2.0, 3.0, "", NAN), (1000, NAN, 1.0, np.inf, "> 4", 4.0)],
        columns=["n", "multiplier", "low", "high", "bound", "limit"],
    )
    same = change(0.1, 0.1)
    assert (
        "at 500 images, vit needs 2.5 times (2 to 3) the images"
        in grown(same, same, multiplier=multiplier).text
    )
    assert (
        "at 1,000 images, vit needs more than 4 times the images"
        in grown(same, same, multiplier=multiplier[1:]).text
    )


def test_no_error_at_all_gives_no_ratio() -> None:
    rows = [*pairs(20, [0.5, 0.6], [0.4, 0.5]), *pairs(50, [1.0, 1.0], [0.8, 0.9])]
    answer = verdict(analysed(rows))[-1]
    assert list(answer.kinds) == ["points"]
    assert {"10.0", "15.0"} <= set(numbers(answer.text))


ROWS = [
    *pairs(20, [0.5, 0.52], [0.4, 0.41]),
    *pairs(50, [0.7, 0.72], [0.5, 0.63]),
    *pairs(90, [0.8, 0.81], [0.55, 0.57], train=0.9),
]

GOLDEN = """\
With equal updates, cnn has a higher test accuracy than vit at 20 and 90 images: by 10.5 points\
 (95 % interval 4.1 to 16.9, 2 draws) at 20 and 24.5 points (95 % interval 18.1 to 30.9, 2 draws)\
 at 90; no difference in test accuracy can be shown at 50 images (cnn - vit is 14.5 points, -55.4\
 to 84.4, 2 draws).
By the gap in accuracy (train minus test), where both fitted: vit overfits more at 20 images, by\
 10.5 points (95 % interval 4.1 to 16.9, 2 draws); no difference can be shown at 50 images (vit -\
 cnn is 14.5 points, -55.4 to 84.4, 2 draws). At 90 images not every run of both fitted, so\
 nothing is said.
In test loss, no difference can be shown at all 3 sizes from 20 to 90 images (vit - cnn is 0.00\
 (0.00 to 0.00) at 20 and 0.00 (0.00 to 0.00) at 90).
From 20 to 90 images the difference in test accuracy, cnn - vit, grows: from 10.5 to 24.5 points\
 (change +14.0, 95 % interval +1.3 to +26.7, 2 draws). As a ratio of test errors, vit / cnn, it\
 grows: from 1.21 to 2.26 (change × 1.86, 95 % interval × 1.66 to × 2.09, 2 draws). For the test\
 error of cnn at 20 images, vit needs 1.8 times (1.3 to 4.3) the images. Crossing of the curves\
 of test error: none up to 90: cnn is ahead (100 % of resamples, 2 draws). At 90 images not every\
 run fitted, so undertraining may be a part of it.
"""


def test_the_whole_verdict() -> None:
    answers = verdict(analysed([*ROWS, failed("vit", 90, 5)]))
    assert "".join(f"{answer.text}\n" for answer in answers) == GOLDEN


def test_verdict_of_nothing_shared() -> None:
    (answer,) = verdict(analysed([row("cnn", 20, 0, 0.5), row("vit", 50, 0, 0.5)]))
    assert answer.kinds == {}
    assert not numbers(answer.text)


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
    answer = about_one(summarise(table([row("vit", 20, 0, 0.25), row("vit", 1000, 0, 0.5)])))
    assert numbers(answer.text) == ["25.0", "50.0"]
    assert "vit" in answer.text


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
        ((700.0, 512.0, 2345.0, 0.01, 0.99, 3), "vit overtakes cnn at 700 (95 % interval: 512 to"
         " 2,345; none in 1 % of resamples; 3 draws)"),
        ((700.0, 0.0, np.inf, 0.1, 0.8, 5), "vit overtakes cnn at 700 (95 % interval: under 100 to"
         " none up to 10,000; none in 10 % of resamples; 5 draws)"),
        ((0.0, 0.0, 0.0, 0.0, 0.0, 3), "vit is ahead of cnn from 100 on (95 % interval: under 100"
         " to under 100; none in 0 % of resamples; 3 draws)"),
        ((np.inf, np.inf, np.inf, 1.0, 0.0, 3), "none up to 10,000: cnn is ahead (100 % of"
         " resamples, 3 draws)"),
        ((700.0, np.nan, np.nan, np.nan, np.nan, 1), "vit overtakes cnn at 700 (1 draw: no"
         " interval)"),
        ((np.nan,), "no crossing can be read: a run of cnn or vit has no error, so no logarithm"),
    ],
)  # fmt: skip
def test_words_of_a_crossing(numbers: tuple[Any, ...], said: str) -> None:
    assert meeting(Crossing("cnn", "vit", (100.0, 10000.0), *numbers)) == said
    nothing = "no crossing can be read: cnn and vit share 1 sizes, it takes 2"
    assert meeting(Crossing("cnn", "vit", (100.0,), *numbers)) == nothing
