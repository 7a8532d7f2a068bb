"""The conclusions of a study as sentences, made from its numbers; the words follow the intervals.

Differences are paired by draw. Each conclusion names its sense: accuracy, gap in accuracy, or loss.
Where an interval contains 0 no difference can be shown, and one draw gives no interval.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from vision_attn.report.analysis import CONTROLS, PROTOCOLS, Analysis, Change, Comparison
from vision_attn.report.numbers import FIT, bounds, images, number, points, times
from vision_attn.stats.multiplier import Crossing

__all__ = [
    "Answer",
    "about_controls",
    "about_one",
    "about_split",
    "better",
    "direction",
    "growth",
    "kinds",
    "losses",
    "meeting",
    "overfitting",
    "remarks",
    "verdict",
]


class Answer(NamedTuple):
    """One conclusion.

    Args:
        kinds: which sizes say what: `first` or `second` is ahead, `open`, or `single` without an
            interval; of `growth` whether the difference in `points` and the `ratio` of errors
            `grows` or `shrinks`, or is `open` or `single`.
        text: the sentence.
    """

    kinds: Mapping[str, Any]
    text: str


def verdict(analysis: Analysis) -> list[Answer]:
    """Accuracy, gap, loss, and whether the difference in accuracy shrinks as images grow."""
    comparison = analysis.comparison
    if comparison is None:
        return [about_one(analysis.main)]
    if comparison.points.empty:
        both = f"{comparison.first} and {comparison.second}"
        return [Answer({}, f"{both} share no draw of the same size, so nothing can be compared.")]
    answers = [better(comparison), overfitting(comparison)]
    if len(comparison.loss):
        answers.append(losses(comparison))
    return [*answers, growth(comparison)]


def remarks(analysis: Analysis) -> list[str]:
    """What the controls show, and what the protocol does."""
    sentences = about_controls(analysis.summary)
    comparison = analysis.comparison
    if comparison and len(comparison.split):
        sentences.append(about_split(comparison))
    return sentences


def kinds(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Rows by what their interval says: above 0, below 0, around 0, or no interval."""
    parts = {
        "first": table["low"] > 0,
        "second": table["high"] < 0,
        "open": (table["low"] <= 0) & (table["high"] >= 0),
        "single": table["low"].isna(),
    }
    return {kind: table[mask] for kind, mask in parts.items() if mask.any()}


def _sizes(parts: Mapping[str, pd.DataFrame]) -> dict[str, tuple[int, ...]]:
    return {kind: tuple(int(s) for s in rows["size"]) for kind, rows in parts.items()}


def _ends(rows: pd.DataFrame, say: Callable[..., str], sign: int = 1) -> str:
    """The numbers at the first and the last of some sizes."""
    texts = []
    for i in dict.fromkeys((0, len(rows) - 1)):
        row = rows.iloc[i]
        low, high = (row["low"], row["high"]) if sign > 0 else (-row["high"], -row["low"])
        text = say(sign * row["mean"], low, high, int(row["count"]))
        texts.append(f"{text} at {int(row['size']):,}" if len(rows) > 1 else text)
    return " and ".join(texts)


def _shown(mean: float, low: float, high: float, count: int) -> str:
    return f"{points(mean)} (95 % interval {bounds(low, high)}, {count} draws)"


def _open(mean: float, low: float, high: float, count: int) -> str:
    return f"{points(mean)}, {bounds(low, high)}, {count} draws"


def _alone(mean: float, low: float, high: float, count: int) -> str:
    return points(mean)


def _shown_loss(mean: float, low: float, high: float, count: int) -> str:
    return f"{number(mean, '.2f')} ({number(low, '.2f')} to {number(high, '.2f')})"


def _loss_alone(mean: float, low: float, high: float, count: int) -> str:
    return number(mean, ".2f")


def better(comparison: Comparison) -> Answer:
    """Who has the higher test accuracy, by how many points, at which sizes."""
    first, second, table = comparison.first, comparison.second, comparison.points
    parts = []
    groups = kinds(table)
    for kind, rows in groups.items():
        sizes = images(rows["size"], of=table["size"])
        if kind in ("first", "second"):
            ahead, behind = (first, second) if kind == "first" else (second, first)
            by = _ends(rows, _shown, 1 if kind == "first" else -1)
            parts.append(f"{ahead} has a higher test accuracy than {behind} at {sizes}: by {by}")
        elif kind == "open":
            by = _ends(rows, _open)
            parts.append(
                f"no difference in test accuracy can be shown at {sizes}"
                f" ({first} - {second} is {by})"
            )
        else:
            by = _ends(rows, _alone)
            parts.append(
                f"at {sizes} one draw of test accuracy gives no interval"
                f" ({first} - {second} is {by})"
            )
    budget = PROTOCOLS.get(comparison.setting.protocol, comparison.setting.protocol)
    return Answer(_sizes(groups), f"With {budget}, {'; '.join(parts)}.")


def overfitting(comparison: Comparison) -> Answer:
    """Whose gap in accuracy is larger, at sizes where all runs of both fitted."""
    first, second, table = comparison.first, comparison.second, comparison.gap
    fitted = table[table["fitted"].astype(float) == 1]
    rest = table[table["fitted"].astype(float) < 1]
    if fitted.empty:
        return Answer(
            {},
            "Which of them overfits more in accuracy cannot be said: at no size did every run of"
            f" both reach a train accuracy of {FIT}.",
        )
    parts = []
    groups = kinds(fitted)
    for kind, rows in groups.items():
        sizes = images(rows["size"])
        if kind in ("first", "second"):
            more = second if kind == "first" else first
            by = _ends(rows, _shown, 1 if kind == "first" else -1)
            parts.append(f"{more} overfits more at {sizes}, by {by}")
        elif kind == "open":
            by = _ends(rows, _open)
            parts.append(f"no difference can be shown at {sizes} ({second} - {first} is {by})")
        else:
            by = _ends(rows, _alone)
            parts.append(f"at {sizes} one draw gives no interval ({second} - {first} is {by})")
    text = f"By the gap in accuracy (train minus test), where both fitted: {'; '.join(parts)}."
    if len(rest):
        text += f" At {images(rest['size'])} not every run of both fitted, so nothing is said."
    return Answer(_sizes(groups), text)


def losses(comparison: Comparison) -> Answer:
    """Whose test loss is higher; it also counts how sure a model is of its mistakes."""
    first, second, table = comparison.first, comparison.second, comparison.loss
    parts = []
    groups = kinds(table)
    for kind, rows in groups.items():
        sizes = images(rows["size"], of=table["size"])
        if kind in ("first", "second"):
            worse, other = (second, first) if kind == "first" else (first, second)
            by = _ends(rows, _shown_loss, 1 if kind == "first" else -1)
            parts.append(f"{worse} is worse than {other} at {sizes}, higher by {by}")
        elif kind == "open":
            by = _ends(rows, _shown_loss)
            parts.append(f"no difference can be shown at {sizes} ({second} - {first} is {by})")
        else:
            by = _ends(rows, _loss_alone)
            parts.append(f"at {sizes} one draw gives no interval ({second} - {first} is {by})")
    return Answer(_sizes(groups), f"In test loss, {'; '.join(parts)}.")


def direction(change: Change, side: float) -> str:
    """What the change of a difference says, where `side` is the sign of the difference.

    `grows` or `shrinks`, `open` where its interval contains 0, `single` without an interval.
    """
    if change.draws < 2:
        return "single"
    low, high = sorted((side * change.low, side * change.high))
    if low > 0:
        return "grows"
    return "shrinks" if high < 0 else "open"


_DIRECTIONS = {
    "grows": "grows",
    "shrinks": "shrinks",
    "open": "shows no change beyond chance",
    "single": "goes",
}


def _change(change: Change, show: Callable[[float], str]) -> str:
    """The change in brackets with its interval."""
    if change.draws < 2:
        return " (no two draws have both sizes, so no interval)"
    return (
        f" (change {show(change.mean)}, 95 % interval {show(change.low)} to {show(change.high)},"
        f" {change.draws} draws)"
    )


def growth(comparison: Comparison) -> Answer:
    """Whether the difference in accuracy shrinks from the smallest size to the largest.

    In points, in the ratio of errors, as the multiple of images, and where the curves meet.
    """
    first, second, accuracy = comparison.first, comparison.second, comparison.points
    if len(accuracy) < 2:
        text = "One size cannot say whether the difference in accuracy shrinks as images grow."
        return Answer({}, text)
    side = 1.0 if accuracy["mean"].mean() >= 0 else -1.0
    said = {"points": direction(comparison.change, side)}
    n0, n1 = (f"{int(accuracy['size'].iloc[i]):,}" for i in (0, -1))
    d0, d1 = accuracy["mean"].iloc[0], accuracy["mean"].iloc[-1]
    sentences = [
        f"From {n0} to {n1} images the difference in test accuracy, {first} - {second},"
        f" {_DIRECTIONS[said['points']]}: from {100 * d0:.1f} to {100 * d1:.1f} points"
        f"{_change(comparison.change, lambda v: f'{100 * v:+.1f}')}"
    ]
    ratios = comparison.ratio["ratio"]
    if len(ratios) and ratios.iloc[[0, -1]].notna().all():
        said["ratio"] = direction(comparison.ratio_change, side)
        sentences.append(
            f"As a ratio of test errors, {second} / {first}, it {_DIRECTIONS[said['ratio']]}: from"
            f" {ratios.iloc[0]:.2f} to {ratios.iloc[-1]:.2f}"
            f"{_change(comparison.ratio_change, lambda v: f'× {np.exp(v):.2f}')}"
        )
    if len(comparison.multiplier):
        exact = comparison.multiplier[comparison.multiplier["multiplier"].notna()]
        last = (exact if len(exact) else comparison.multiplier).iloc[-1]
        sentences.append(
            f"For the test error of {first} at {int(last['n']):,} images, {second} needs"
            f" {times(last)} the images"
        )
    sentences.append(f"Crossing of the curves of test error: {meeting(comparison.crossing)}")
    unfitted = accuracy[accuracy["fitted"] < 1]
    if len(unfitted):
        at = images(unfitted["size"])
        sentences.append(f"At {at} not every run fitted, so undertraining may be a part of it")
    return Answer(said, ". ".join(sentences) + ".")


def about_one(summary: pd.DataFrame) -> Answer:
    """What can be said of a study with one model."""
    model, first, last = summary["model"].iloc[0], summary.iloc[0], summary.iloc[-1]
    text = (
        f"There is one model, {model}, and so nothing to compare: its test accuracy is"
        f" {100 * first['test_acc_mean']:.1f} % at {first['size']:,} images"
    )
    if len(summary) > 1:
        text += f" and {100 * last['test_acc_mean']:.1f} % at {last['size']:,}"
    return Answer({}, f"{text}.")


def about_split(comparison: Comparison) -> str:
    """How much of the difference under equal epochs is undertraining, at the ends of the curves."""
    parts, table = [], comparison.split
    for i in dict.fromkeys((0, len(table) - 1)):
        r = table.iloc[i]
        parts.append(
            f"at {int(r['size']):,} images {points(r['total'])}, of which"
            f" {points(r['undertraining'])} come from undertraining and"
            f" {points(r['generalisation'])} remain under equal updates"
        )
    difference = f"{comparison.first} - {comparison.second}"
    return (
        f"Under equal epochs the difference in test accuracy, {difference}, is {'; '.join(parts)}."
    )


def about_controls(summary: pd.DataFrame) -> list[str]:
    """What the controls show at the largest size of each model, test accuracy against without."""
    sentences = []
    for control, words in CONTROLS.items():
        if control == "none":
            continue
        parts = []
        for (model, protocol), rows in summary.groupby(["model", "protocol"], sort=True):
            at = rows[rows["control"] == control]
            if at.empty:
                continue
            last = at.iloc[-1]
            plain = rows[(rows["control"] == "none") & (rows["size"] == last["size"])]
            text = f"{model} reaches {100 * last['test_acc_mean']:.1f} % on test images"
            text += f" at {int(last['size']):,}"
            text += f", {PROTOCOLS['epochs']}" if protocol == "epochs" else ""
            if len(plain):
                text += f" ({100 * plain['test_acc_mean'].iloc[0]:.1f} % on {CONTROLS['none']})"
            parts.append(text)
        if parts:
            sentences.append(f"With {words} {'; '.join(parts)}.")
    return sentences


def meeting(crossing: Crossing) -> str:
    """Where two curves cross, or why that cannot be read."""
    c = crossing
    if len(c.sizes) < 2:
        return (
            f"no crossing can be read: {c.leader} and {c.chaser} share {len(c.sizes)} sizes,"
            " it takes 2"
        )
    if np.isnan(c.median):
        return (
            f"no crossing can be read: a run of {c.leader} or {c.chaser} has no error,"
            " so no logarithm"
        )
    first, last = (f"{c.sizes[i]:,.0f}" for i in (0, -1))
    never = f"none up to {last}"
    if c.median == np.inf:
        text = f"{never}: {c.leader} is ahead"
    elif c.median == 0:
        text = f"{c.chaser} is ahead of {c.leader} from {first} on"
    else:
        text = f"{c.chaser} overtakes {c.leader} at {c.median:,.0f}"
    if c.count < 2:
        return f"{text} (1 draw: no interval)"
    if c.low == np.inf:
        return f"{text} ({100 * c.share_none:.0f} % of resamples, {c.count} draws)"
    low, high = (
        never if end == np.inf else f"{end:,.0f}" if end else f"under {first}"
        for end in (c.low, c.high)
    )
    return (
        f"{text} (95 % interval: {low} to {high}; none in {100 * c.share_none:.0f} % of resamples;"
        f" {c.count} draws)"
    )
