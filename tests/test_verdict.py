"""The verdict's words follow the numbers: every branch on made data, with the numbers by hand."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_study import failed, pairs, row, table

from vision_attn.compare.remarks import about_controls, about_one, about_split
from vision_attn.compare.runs import complete, select, summarise
from vision_attn.compare.styles import is_attention, looks, number, pair, short
from vision_attn.compare.verdict import better, growth, overfitting, verdict
from vision_attn.compare.words import images, meeting
from vision_attn.stats.multiplier import Crossing, data_multiplier
from vision_attn.stats.paired import differences, error_ratio

T1 = 12.706204736432095
"""Student's t at 97.5 % for 1 degree of freedom."""


def diffs(*rows: tuple[int, float, float, float, float]) -> pd.DataFrame:
    """Differences as (size, mean, low, high, fitted), of three draws or of one."""
    made = [
        {
            "size": n,
            "count": 1 if np.isnan(lo) else 3,
            "mean": m,
            "low": lo,
            "high": hi,
            "fitted": f,
        }
        for n, m, lo, hi, f in rows
    ]
    return pd.DataFrame(made, columns=["size", "count", "mean", "low", "high", "fitted"])


def test_better_says_who_and_by_how_much() -> None:
    made = diffs((20, 0.1, 0.05, 0.15, 1), (50, 0.2, 0.1, 0.3, 1), (1000, 0.3, 0.25, 0.35, 1))
    assert better(made, "cnn", "vit") == (
        "cnn is better than vit at all 3 sizes from 20 to 1,000 images: by 10.0 points (95 %"
        " interval 5.0 to 15.0, 3 draws) at 20 and 30.0 points (95 % interval 25.0 to 35.0,"
        " 3 draws) at 1,000."
    )


def test_better_turns_the_sign_with_the_winner() -> None:
    made = diffs((20, -0.1, -0.15, -0.05, 1))
    assert better(made, "cnn", "vit") == (
        "vit is better than cnn at 20 images: by 10.0 points (95 % interval 5.0 to 15.0, 3 draws)."
    )


def test_an_interval_around_zero_tells_nothing_apart() -> None:
    made = diffs((20, 0.1, -0.01, 0.21, 1), (50, 0.0, 0.0, 0.0, 1))
    assert better(made, "cnn", "vit") == (
        "the two are not told apart at 20 and 50 images (cnn - vit is 10.0 points, -1.0 to 21.0,"
        " 3 draws at 20 and 0.0 points, 0.0 to 0.0, 3 draws at 50)."
    )


def test_one_draw_claims_nothing() -> None:
    made = diffs((20, 0.1, np.nan, np.nan, 1))
    text = better(made, "cnn", "vit")
    assert text == ("at 20 images there is one draw and so no interval (cnn - vit is 10.0 points).")
    assert "at 20 images one draw gives no interval" in overfitting(made, "cnn", "vit")


def test_all_kinds_stand_in_one_sentence() -> None:
    made = diffs(
        (20, 0.1, 0.05, 0.15, 1), (50, -0.1, -0.2, -0.05, 1), (70, 0, -1, 1, 1),
        (90, 0.2, np.nan, np.nan, 1),
    )  # fmt: skip
    text = better(made, "a", "b")
    parts = ["a is better than b at 20", "b is better than a at 50", "not told apart at 70"]
    assert [text.index(p) for p in parts] == sorted(text.index(p) for p in parts)
    assert "at 90 images there is one draw" in text
    assert text.count(".") - len(re.findall(r"\d\.\d", text)) == 1


def test_overfitting_speaks_of_fitted_sizes_only() -> None:
    made = diffs((20, 0.1, 0.05, 0.15, 1), (50, -0.9, -1, -0.8, 0.5), (70, -0.5, -0.6, -0.4, 0))
    assert overfitting(made, "cnn", "vit") == (
        "Where both fitted, vit overfits more at 20 images, with a gap that is larger by 10.0"
        " points (95 % interval 5.0 to 15.0, 3 draws); at 50 and 70 images not both did."
    )


def test_overfitting_the_other_way_and_undecided() -> None:
    made = diffs((20, -0.1, -0.15, -0.05, 1), (50, 0.01, -0.1, 0.12, 1))
    assert overfitting(made, "cnn", "vit") == (
        "Where both fitted, cnn overfits more at 20 images, with a gap that is larger by 10.0"
        " points (95 % interval 5.0 to 15.0, 3 draws); gaps are not told apart at 50 images"
        " (vit - cnn is 1.0 points, -10.0 to 12.0, 3 draws)."
    )


def test_overfitting_is_not_answered_where_none_fitted() -> None:
    text = overfitting(diffs((20, 0.3, 0.2, 0.4, 0.99)), "cnn", "vit")
    assert "not answered, since not both fitted" in text
    assert not re.search(r"\d\.\d", text)


def grown(points: list[float], ratios: list[float], **more: Any) -> str:
    """Growth of made changes, a number a draw."""
    defaults: dict[str, Any] = {
        "accuracy": diffs((20, 0.10, 0.05, 0.15, 1), (50, 0.20, 0.1, 0.3, 1)),
        "ratio": pd.DataFrame({"size": [20, 50], "ratio": [1.25, 1.5]}),
        "multiplier": pd.DataFrame(),
        "crossed": "none up to 50",
    }
    changes = pd.DataFrame({"points": points, "log_ratio": np.log(ratios)})
    return growth(**(defaults | more), pairs=changes, first="cnn", second="vit")


def test_growth_in_points_and_in_ratio() -> None:
    half = T1 * 1.0  # of 29 and 31 points: their deviation over the root of 2
    spread = np.exp(T1 * abs(np.log(1.2 / 1.25)) / 2)
    middle = (1.2 * 1.25) ** 0.5
    text = grown([0.29, 0.31], [1.2, 1.25])
    assert text == (
        "From 20 to 50 images the difference cnn - vit grows in points, from 10.0 to 20.0"
        f" (change +30.0, 95 % interval +{30 - half:.1f} to +{30 + half:.1f},"
        " 2 draws), and as a ratio of errors, vit / cnn, it does not change beyond chance, from"
        f" 1.25 to 1.50 (change × {middle:.2f}, 95 % interval × {middle / spread:.2f} to"
        f" × {middle * spread:.2f}, 2 draws); crossing of the curves: none up to 50."
    )


def test_growth_follows_the_side_of_the_difference() -> None:
    behind = diffs((20, -0.2, -0.3, -0.1, 1), (50, -0.1, -0.2, -0.05, 1))
    assert "cnn - vit shrinks in points" in grown([0.1, 0.1], [1.2, 1.2], accuracy=behind)
    assert "cnn - vit grows in points" in grown([-0.1, -0.1], [0.9, 0.9], accuracy=behind)
    assert "cnn - vit shrinks in points" in grown([-0.1, -0.1], [0.9, 0.9])
    assert "cnn - vit does not change beyond chance" in grown([-0.1, 0.1], [0.9, 0.9])


def test_growth_of_points_without_growth_of_the_ratio() -> None:
    text = grown([-0.1, -0.1], [1.2, 1.2])
    assert "shrinks in points" in text
    assert "ratio of errors, vit / cnn, it grows" in text


def test_growth_needs_two_sizes_and_two_draws() -> None:
    one = diffs((20, 0.1, 0.05, 0.15, 1))
    assert grown([0.0], [1.0], accuracy=one).endswith("is not answered by one size.")
    text = grown([0.1], [1.2])
    assert "cnn - vit goes in points, from 10.0 to 20.0 (no two draws" in text
    assert not re.search("grows|shrinks", text)
    empty = grown([], [])
    assert "(no two draws have both sizes, so no interval)" in empty


def test_growth_names_what_was_not_fitted() -> None:
    made = diffs((20, 0.1, 0.05, 0.15, 1), (50, 0.2, 0.1, 0.3, 0.5))
    text = grown([0.1, 0.1], [1.2, 1.2], accuracy=made)
    assert text.endswith("at 50 images not all runs fitted, so undertraining can be a part of it.")
    assert "undertraining" not in grown([0.1, 0.1], [1.2, 1.2])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((2.5, 2.0, 3.0, "", np.nan), "needs 2.5 times (2 to 3) the images"),
        ((2.5, 2.0, np.inf, "", np.nan), "needs 2.5 times (2 to beyond the data) the images"),
        ((2.5, 0.0, np.inf, "", np.nan), "needs 2.5 times (not bounded by these draws) the images"),
        ((2.5, np.nan, np.nan, "", np.nan), "needs 2.5 times the images"),
        ((np.nan, 1.0, np.inf, "> 4", 4.0), "needs more than 4 times the images"),
        ((np.nan, 0.0, 0.5, "< 0.5", 0.5), "needs less than 0.5 times the images"),
    ],
)
def test_growth_has_the_multiple_of_images(row: tuple[Any, ...], said: str) -> None:
    names = ("multiplier", "low", "high", "bound", "limit")
    multiplier = pd.DataFrame([{"n": 1000} | dict(zip(names, row, strict=True))])
    text = grown([0.1, 0.1], [1.2, 1.2], multiplier=multiplier)
    assert f"for the error that cnn has at 1,000 images vit {said}" in text


def runs(rows: list[Any], protocol: str = "steps") -> pd.DataFrame:
    return select(table(rows), protocol, "none")


ROWS = [
    *pairs(20, [0.5, 0.52], [0.4, 0.41]),
    *pairs(50, [0.7, 0.72], [0.5, 0.63]),
    *pairs(90, [0.8, 0.81], [0.55, 0.57], train=0.9),
]


def test_verdict_has_the_numbers_of_the_statistics() -> None:
    results = runs([*ROWS, failed("vit", 90, 5)])
    who, over, grows = verdict(results, "cnn", "vit")
    first = differences(results, "cnn", "vit").iloc[0]
    assert who.startswith("With equal updates, cnn is better than vit at 20 and 90 images: by")
    assert f"by {100 * first['mean']:.1f} points (95 % interval {100 * first['low']:.1f}" in who
    assert "not told apart at 50 images (cnn - vit is 14.5 points" in who
    assert "at 90 images not both did" in over
    ratio = error_ratio(results, "cnn", "vit")["ratio"]
    assert f"from {ratio.iloc[0]:.2f} to {ratio.iloc[2]:.2f}" in grows
    assert "from 10.5 to 24.5 (change +14.0" in grows
    change = [0.15, 0.13]  # of 0.10 and 0.11, and of 0.25 and 0.24
    half = T1 * np.std(change, ddof=1) / 2**0.5
    low, high = (100 * (0.14 + s * half) for s in (-1, 1))
    assert f"95 % interval {low:+.1f} to {high:+.1f}, 2 draws" in grows
    times = data_multiplier(results, "cnn", "vit")
    exact = times[times["multiplier"].notna()].iloc[-1]
    assert f"at {exact['n']:,} images vit needs {exact['multiplier']:.2g} times" in grows
    assert "none up to 90" in grows


def test_verdict_of_other_protocols_and_of_nothing_shared() -> None:
    epochs = runs(pairs(20, [0.5, 0.5], [0.25, 0.25], protocol="epochs"), "epochs")
    assert verdict(epochs, "cnn", "vit", protocol="epochs")[0].startswith("With equal epochs, cnn")
    apart = runs([row("cnn", 20, 0, 0.5), row("vit", 50, 0, 0.5)])
    assert verdict(apart, "cnn", "vit") == [
        "cnn and vit have no draw of the same size in common, so there is nothing to compare."
    ]


def test_seeds_are_averaged_within_their_draw() -> None:
    rows = [
        row(m, n, d, base + seed / 10 + d / 100, seed=seed)
        for m, n, base in (
            ("cnn", 20, 0.5), ("vit", 20, 0.4), ("cnn", 50, 0.7), ("vit", 50, 0.5),
        )
        for d in (0, 1)
        for seed in (0, 1)
    ]  # fmt: skip
    grows = verdict(runs(rows), "cnn", "vit")[2]
    assert "(change +10.0, 95 % interval +10.0 to +10.0, 2 draws)" in grows


def test_no_error_at_all_gives_no_ratio() -> None:
    rows = [*pairs(20, [0.5, 0.6], [0.4, 0.5]), *pairs(50, [1.0, 1.0], [0.8, 0.9])]
    grows = verdict(runs(rows), "cnn", "vit")[2]
    assert "ratio of errors" not in grows
    assert "from 10.0 to 15.0" in grows


def test_remarks() -> None:
    summary = summarise(table([row("vit", 20, 0, 0.25), row("vit", 1000, 0, 0.5)]))
    assert about_one(summary) == [
        "The study holds one model, vit, so there is nothing to compare: its test accuracy is"
        " 25.0 % at 20 images and 50.0 % at 1,000."
    ]
    split = pd.DataFrame([{"size": 20, "total": 0.3, "undertraining": 0.2, "generalisation": 0.1}])
    assert about_split(split, "cnn", "vit") == (
        "Under equal epochs cnn - vit is at 20 images 30.0 points, of which 20.0 points come from"
        " undertraining and 10.0 points are left under equal updates."
    )
    rows = [row("vit", 20, 0, 0.5), row("vit", 20, 0, 0.1, control="shuffled")]
    assert about_controls(summarise(table(rows))) == [
        "With labels shuffled vit reaches 10.0 % on test images at 20 (50.0 % without)."
    ]
    assert about_controls(summarise(complete(table(rows[:1])))) == []


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


def test_words() -> None:
    assert images([20]) == "20 images"
    assert images([20, 1000]) == "20 and 1,000 images"
    assert images([20, 50, 1000]) == "20, 50 and 1,000 images"
    assert images([20, 50, 1000], of=[20, 50, 1000]) == "all 3 sizes from 20 to 1,000 images"
    assert images([20, 50], of=[20, 50]) == "20 and 50 images"
    assert [short(n) for n in (7, 1234, 1234567)] == ["7", "1.23 k", "1.23 M"]
    assert [number(v, ".1f") for v in (-0.04, -0.06, 0.04)] == ["0.0", "-0.1", "0.0"]


def test_looks_do_not_change_when_models_are_added() -> None:
    few = ["vit", "vit_large", "timm:resnet18", "mine"]
    many = [*few, "cnn", "linear", "local_vit_r1", "timm:vit_tiny_patch16_224", "pixel_vit"]
    small, large = looks(few), looks(many)
    assert {m: large[m] for m in few} == small
    assert len(set(large.values())) == len(many)


def test_a_label_looks_like_the_model_that_it_stands_for() -> None:
    archs = {"big": "vit", "wide": "cnn"}
    assert is_attention("big", archs)
    assert not is_attention("wide", archs)
    assert is_attention("timm:swin_tiny")
    assert not is_attention("linear")
    assert pair(["big", "wide"], archs) == ("wide", "big")


@pytest.mark.parametrize(
    ("models", "chosen"),
    [
        (["vit"], None),
        (["pixel_vit", "cnn", "vit", "linear"], ("cnn", "vit")),
        (["linear", "vit"], ("linear", "vit")),
        (["cnn", "linear"], ("cnn", "linear")),
        (["pixel_vit", "vit"], ("pixel_vit", "vit")),
        (["vit_small", "cnn_small", "cnn_large"], ("cnn_large", "vit_small")),
        (["timm:resnet18", "timm:deit_tiny"], ("timm:resnet18", "timm:deit_tiny")),
    ],
)
def test_the_pair_of_a_study(models: list[str], chosen: tuple[str, str] | None) -> None:
    assert pair(models) == chosen
