"""The study's answer in three sentences, made from its numbers; the words follow the intervals."""

import numpy as np
import pandas as pd

from vision_attn.compare.words import (
    by_points,
    change,
    change_interval,
    ends,
    images,
    kinds,
    meeting,
    points,
    points_with,
    times,
)
from vision_attn.stats.multiplier import crossing, data_multiplier
from vision_attn.stats.paired import changes, differences, error_ratio

__all__ = ["better", "growth", "overfitting", "verdict"]

_BUDGET = {"steps": "With equal updates", "epochs": "With equal epochs"}


def verdict(runs: pd.DataFrame, first: str, second: str, *, protocol: str = "steps") -> list[str]:
    """Three sentences: who is better, who overfits, whether the difference shrinks as images grow.

    `first` and `second` are names of models; differences are paired by draw. Where an interval
    contains 0 the two are not told apart, and where there is one draw there is no interval.
    `runs` are the finished ones of one protocol and control.
    """
    accuracy = differences(runs, first, second)
    if accuracy.empty:
        nothing = f"{first} and {second} have no draw of the same size in common"
        return [f"{nothing}, so there is nothing to compare."]
    gap = differences(runs, second, first, "gap")
    at = [int(s) for s in accuracy["size"]]
    pairs = changes(runs, first, second, at[0], at[-1])
    return [
        f"{_BUDGET[protocol]}, {better(accuracy, first, second)}",
        overfitting(gap, first, second),
        growth(
            accuracy,
            error_ratio(runs, first, second),
            pairs,
            data_multiplier(runs, first, second),
            meeting(crossing(runs, first, second)),
            first,
            second,
        ),
    ]


def better(table: pd.DataFrame, first: str, second: str) -> str:
    """Who has the higher test accuracy, by how many points, at which sizes."""
    parts = []
    for kind, rows in kinds(table).items():
        sizes = images(rows["size"], of=table["size"])
        if kind in ("first", "second"):
            ahead, behind = (first, second) if kind == "first" else (second, first)
            by = ends(rows, 1 if kind == "first" else -1, by_points)
            parts.append(f"{ahead} is better than {behind} at {sizes}: by {by}")
        elif kind == "open":
            by = ends(rows, 1, points_with)
            parts.append(f"the two are not told apart at {sizes} ({first} - {second} is {by})")
        else:
            by = ends(rows, 1, lambda *r: points(r[0]))
            parts.append(
                f"at {sizes} there is one draw and so no interval ({first} - {second} is {by})"
            )
    return "; ".join(parts) + "."


def overfitting(table: pd.DataFrame, first: str, second: str) -> str:
    """Whose gap is larger, at sizes where all runs of both fitted.

    `table` holds `second - first` of the gap.
    """
    fitted = table[table["fitted"].astype(float) == 1]
    rest = table[table["fitted"].astype(float) < 1]
    if fitted.empty:
        return (
            "Whether one of them overfits more is not answered, since not both fitted: at no size"
            " did every run of both reach a train accuracy of 99 %."
        )
    parts = []
    for kind, rows in kinds(fitted).items():
        sizes = images(rows["size"])
        if kind in ("first", "second"):
            more = second if kind == "first" else first
            by = ends(rows, 1 if kind == "first" else -1, by_points)
            parts.append(f"{more} overfits more at {sizes}, with a gap that is larger by {by}")
        elif kind == "open":
            by = ends(rows, 1, points_with)
            parts.append(f"gaps are not told apart at {sizes} ({second} - {first} is {by})")
        else:
            by = ends(rows, 1, lambda *r: points(r[0]))
            parts.append(f"at {sizes} one draw gives no interval ({second} - {first} is {by})")
    text = "Where both fitted, " + "; ".join(parts)
    return text + (f"; at {images(rest['size'])} not both did." if len(rest) else ".")


def growth(
    accuracy: pd.DataFrame,
    ratio: pd.DataFrame,
    pairs: pd.DataFrame,
    multiplier: pd.DataFrame,
    crossed: str,
    first: str,
    second: str,
) -> str:
    """Whether the difference shrinks from the smallest size to the largest.

    In points, in the ratio of errors, as the multiple of images, and where the curves meet.

    Args:
        accuracy: `differences` of the test accuracy.
        ratio: `error_ratio`.
        pairs: `changes` from the smallest size to the largest.
        multiplier: `data_multiplier`.
        crossed: where the curves cross, in words.
        first, second: the two models.
    """
    if len(accuracy) < 2:
        return "Whether the difference shrinks as images grow is not answered by one size."
    n0, n1 = (f"{int(accuracy['size'].iloc[i]):,}" for i in (0, -1))
    side = 1.0 if accuracy["mean"].mean() >= 0 else -1.0
    d0, d1 = accuracy["mean"].iloc[0], accuracy["mean"].iloc[-1]
    text = (
        f"From {n0} to {n1} images the difference {first} - {second}"
        f" {change(pairs['points'], side)} in points, from {100 * d0:.1f} to {100 * d1:.1f}"
        f"{change_interval(pairs['points'], lambda v: f'{100 * v:+.1f}')}"
    )
    ratios = ratio["ratio"].iloc[[0, -1]] if len(ratio) else pd.Series([np.nan])
    if ratios.notna().all():
        text += (
            f", and as a ratio of errors, {second} / {first}, it"
            f" {change(pairs['log_ratio'], side)}, from {ratios.iloc[0]:.2f}"
            f" to {ratios.iloc[1]:.2f}"
            f"{change_interval(pairs['log_ratio'], lambda v: f'× {np.exp(v):.2f}')}"
        )
    if len(multiplier):
        exact = multiplier[multiplier["multiplier"].notna()]
        last = (exact if len(exact) else multiplier).iloc[-1]
        text += (
            f"; for the error that {first} has at {int(last['n']):,} images {second} needs"
            f" {times(last)} the images"
        )
    text += f"; crossing of the curves: {crossed}"
    unfitted = accuracy[accuracy["fitted"] < 1]
    if len(unfitted):
        at = images(unfitted["size"])
        text += f"; at {at} not all runs fitted, so undertraining can be a part of it"
    return text + "."
