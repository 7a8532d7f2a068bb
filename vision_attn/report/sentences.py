"""The answers of a study as sentences, made from its numbers; the words follow the intervals.

Differences are paired by draw. Draws and level of the intervals are said once, by `terms`.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from vision_attn.report.analysis import Analysis
from vision_attn.report.comparison import MEASURES, Comparison
from vision_attn.report.numbers import FIT, exact, images, number, span, times, too_wide, unbounded
from vision_attn.report.senses import Sense, direction, first_upper, named
from vision_attn.stats.multiplier import Crossing
from vision_attn.stats.paired import RATIO

__all__ = [
    "Answer",
    "better",
    "change_text",
    "growth",
    "lines",
    "meeting",
    "overfitting",
    "short_terms",
    "terms",
    "together",
    "verdict",
]


@dataclass(frozen=True)
class Answer:
    """One question about a study, answered.

    Args:
        question: as a reader asks it; in `lines` the label of a model.
        answer: one sentence, short, to be printed bold.
        details: further sentences with intervals; may be empty.
    """

    question: str
    answer: str
    details: str = ""


WHO, OVERFITS, SHRINKS = (
    "Who is better?",
    "Who overfits more?",
    "Does the difference shrink?",
)


def verdict(analysis: Analysis) -> list[Answer]:
    """Who is better, who overfits more, and whether the difference shrinks as images grow."""
    c = analysis.comparison
    if c is None:
        return _about_one(analysis.main)
    if c.points.empty:
        both = f"{named(c.first)} and {named(c.second)}"
        said = f"{both} share no draw of the same size, so nothing can be compared."
        return [Answer(WHO, first_upper(said))]
    return [better(c), overfitting(c), growth(c)]


def terms(analysis: Analysis) -> str:
    """What holds for all answers: data, budget, control, draws and the level of intervals."""
    counts = sorted({int(n) for n in analysis.main["count"]})
    draws = "1 draw, so no intervals" if counts == [1] else f"{span(counts)} draws, 95 % intervals"
    return ", ".join([*[analysis.data] * bool(analysis.data), analysis.setting.words, draws])


def short_terms(analysis: Analysis) -> str:
    """The same for the verdict, with the two models it is about where there are more."""
    further = len(analysis.comparisons[analysis.setting]) > 1
    pair = [f"{second} against {first}" for first, second in [analysis.pair or ("", "")] if further]
    return ", ".join([*pair, terms(analysis)])


def lines(analysis: Analysis) -> list[Answer]:
    """A line for each further model of the study, against the reference."""
    pair = analysis.pair or ()
    further = analysis.comparisons[analysis.setting].items()
    return [_line(c) for model, c in further if model not in pair and len(c.points)]


def better(c: Comparison) -> Answer:
    """Who has the higher test accuracy, by how many points, at which sizes."""
    sense, loss = Sense.of(c, "test_acc"), Sense.of(c, "test_loss")
    details = []
    for model, rows in sense.winners():
        other, sign = (c.second, 1) if model == c.first else (c.first, -1)
        by = sense.ends(rows, sign)
        details.append(f"{first_upper(named(model))} is ahead of {named(other)} by {by}.")
    if sense.winners():
        details += [f"{first_upper(text)}." for text in sense.unclear()]
    if len(loss.table):  # it also counts how sure a model is of its mistakes
        worse = [
            *loss.said("{who} is worse {at}, by {by}"),
            *(loss.unclear() if loss.winners() else ()),
        ]
        details.append(f"In test loss {'; '.join(worse)}.")
    said = "; ".join(sense.said("{who}, {at}, by {by}"))
    return Answer(WHO, f"{first_upper(said)}.", " ".join(details))


def overfitting(c: Comparison) -> Answer:
    """Whose gap in accuracy is larger where both fitted, and whose validation loss rises more."""
    gap, rise, online = (Sense.of(c, m) for m in ("gap", "val_loss_rise", "online_gap"))
    senses = [gap, *(sense for sense in (rise, online) if len(sense.table))]
    alone = {model for sense in senses for model, _ in sense.winners()}
    if len(alone) == 1 and all(sense.winners() for sense in senses):
        parts = [f"by {s.measure.name} {s.said('{at} ({by})')[0]}" for s in senses]
        answer = f"{named(alone.pop())}, {' and '.join(parts)}"
    else:
        nothing = ["that cannot be said, as at no size every run of both fitted"]
        answer = "; ".join(
            f"by {s.measure.name} {'; '.join(s.said('{who}, {at} ({by})') or nothing)}"
            for s in senses
        )
    details = " ".join(_about_overfitting(c, gap, rise, online))
    return Answer(OVERFITS, f"{first_upper(answer)}.", details)


def _about_overfitting(c: Comparison, gap: Sense, rise: Sense, online: Sense) -> Iterator[str]:
    """What the senses mean here, and their intervals."""
    if len(online.table):
        yield (
            "Offline minus online error is the test error minus that of the run of as many updates"
            f" that saw each of its images once; {c.second} minus {c.first}:"
            f" {online.ends(online.table)}."
        )
    if len(gap.table):
        where = images(gap.table["size"])
        yield (
            f"The gap, train minus test accuracy, counts where every run of both reached {FIT} on"
            f" train images: at {where}. There a wider gap is a lower test accuracy."
        )
        yield f"Gap, {c.second} minus {c.first}: {gap.ends(gap.table)}."
    if rise.table.empty:
        yield "No validation loss is logged, so its rise is not known."
        return
    yield (
        "The rise is the validation loss at the end minus its minimum on the way, in logs of at"
        f" least {c.log_rows} rows; {c.second} minus {c.first}: {rise.ends(rise.table)}."
    )


def growth(c: Comparison) -> Answer:
    """Whether the difference shrinks from the smallest size to the largest.

    In points of accuracy, as a ratio of errors where that says something else, and in the rise of
    the validation loss.
    """
    accuracy, rise, online = (Sense.of(c, m) for m in ("test_acc", "val_loss_rise", "online_gap"))
    if len(c.points) < 2:
        return Answer(SHRINKS, "One size cannot say.")
    unfitted = c.points.iloc[[0, -1]].query("fitted < 1")
    where = f", not fitted at {images(unfitted['size'])}" if len(unfitted) else ""
    parts = [f"in accuracy {accuracy.way()}{where}"]
    side, ratio = accuracy.side, c.table(RATIO)["mean"]
    by_ratio = direction(c.change(RATIO), side)
    words = (
        {"grows": "no, it grows", "shrinks": "yes,"} if ratio.iloc[[0, -1]].notna().all() else {}
    )
    if by_ratio in words and accuracy.course not in (by_ratio, "turns", "single", "none"):
        first, last = (number(value**side, ".2f") for value in ratio.iloc[[0, -1]])
        parts.append(f"as a ratio of errors {words[by_ratio]} from {first} to {last}")
    for sense in (rise, online):
        if len(sense.table) > 1:
            parts.append(f"in {sense.measure.name} {sense.way()}")
    details = " ".join(_about_growth(c, rise, online))
    return Answer(SHRINKS, f"{first_upper('; '.join(parts))}.", details)


def _about_growth(c: Comparison, rise: Sense, online: Sense) -> Iterator[str]:
    """The changes with their intervals, the multiple of images, the crossing, what did not fit."""
    texts = [
        f"{MEASURES[m].name} {text}"
        for m in ("test_acc", RATIO, "val_loss_rise")
        if (text := change_text(c, m)).endswith(")")
    ]
    if texts:
        n = c.points["size"]
        yield f"Change from {n.iloc[0]:,} to {n.iloc[-1]:,} images: {', '.join(texts)}."
    if len(online.table) > 1:
        n = online.table["size"]
        what = f"{online.measure.name} from {n.iloc[0]:,} to {n.iloc[-1]:,} images"
        yield f"Change in {what}: {change_text(c, 'online_gap')}."
    told = c.multiplier
    if len(told):
        known = told["multiplier"].notna() & ~told.apply(unbounded, axis=1)
        bounds = (told["bound"] != "") & ((told["limit"] - 1).abs() > 0.05)
        told = told[known if known.any() else bounds]
    if len(told):  # where it says something
        last = told.iloc[-1]
        yield (
            f"For the test error of {named(c.first)} at {int(last['n']):,} images,"
            f" {named(c.second)} needs {times(last)} the images."
        )
    if c.crossing:
        yield f"Crossing of the curves of test error: {meeting(c.crossing)}."
    unfitted = c.points[c.points["fitted"] < 1]
    if len(unfitted):
        too = ", also of a rise that is small" * bool(len(rise.table))
        where = images(unfitted["size"])
        yield f"At {where} not every run fitted, so undertraining may be a part of it{too}."


def change_text(c: Comparison, measure: str) -> str:
    """A change with its interval, that of a ratio as a factor; in words where there is none."""
    change, form = c.change(measure), MEASURES[measure].form
    if change.draws < 2:
        return "no interval"
    if form == "%" and too_wide(change.low, change.high):
        return "too wide"
    if measure == RATIO:
        mean, low, high = (number(np.exp(value), form) for value in change[:3])
        return f"× {mean} ({low} to {high})"
    scale, form = (100, "+.1f") if form == "%" else (1, f"+{form}")
    mean, low, high = (number(scale * value, form) for value in change[:3])
    return f"{mean} ({low} to {high})"


def meeting(c: Crossing) -> str:
    """Where two curves cross, or why that cannot be read."""
    nothing, both = "no crossing can be read:", f"{c.leader} and {c.chaser}"
    if len(c.sizes) < 2:
        return f"{nothing} {both} share {len(c.sizes)} sizes, it takes 2"
    if np.isnan(c.median):
        return f"{nothing} a run of {both} has no error, so no logarithm"
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
        return f"{text} ({100 * c.share_none:.0f} % of resamples)"
    if c.low == 0 and c.high == np.inf:
        return f"{text} (not bounded by these draws)"
    low, high = (
        never if end == np.inf else f"{end:,.0f}" if end else f"under {first}"
        for end in (c.low, c.high)
    )
    return f"{text} ({low} to {high}; none in {100 * c.share_none:.0f} % of resamples)"


def _line(c: Comparison) -> Answer:
    """One further model in one sentence."""
    sense, other = Sense.of(c, "test_acc"), named(c.first)
    words = {c.first: f"behind {other}", c.second: f"ahead of {other}"}
    parts = [f"{words[m]} {sense.at(r)}, by {sense.by(r)}" for m, r in sense.winners()]
    parts = parts or list(sense.unclear())
    senses = [Sense.of(c, measure) for measure in ("gap", "val_loss_rise", "online_gap")]
    for verb, model in (("more", c.second), ("less", c.first)):
        by = [
            f"by {measure.measure.name} {measure.at(rows)}"
            for measure in senses
            for winner, rows in measure.winners()
            if winner == model
        ]
        if by:
            parts.append(f"overfits {verb} {' and '.join(by)}")
    if len(sense.winners()) == 1 and len(c.points) > 1 and sense.course in ("grows", "shrinks"):
        parts.append(f"the difference in accuracy {sense.course}")
    return Answer(c.second, f"{'; '.join(parts)}.")


def _about_one(summary: pd.DataFrame) -> list[Answer]:
    """What can be said of a study with one model."""

    def at_ends(rows: pd.DataFrame, measure: str, unit: str) -> str:
        return " and ".join(
            f"{exact(r[f'{measure}_mean'])}{unit} at {r['size']:,} images"
            for r in rows.iloc[[0, -1][: len(rows)]].to_dict("records")
        )

    model = named(str(summary["model"].iloc[0]))
    good = Answer(f"How good is {model}?", f"{at_ends(summary, 'test_acc', ' %')}.")
    fitted = summary[summary["fitted"] == 1]
    said = f"That cannot be said: at no size every run reached {FIT} on train images."
    if len(fitted):
        said = f"By a gap in accuracy of {at_ends(fitted, 'gap', ' points')}."
    return [good, Answer("How much does it overfit?", said)]


def together(analysis: Analysis) -> str:
    """How many intervals a reader sees at once, and how many of so many are wrong by chance."""
    against = analysis.comparisons[analysis.setting].values()
    count = sum(int(c.rows["low"].notna().sum()) for c in against)
    if count < 2:
        return ""
    wrong = max(1, round(count / 20))
    return (
        f"{count} intervals of differences are read here together; of so many at 95 % about"
        f" {wrong} would miss the true value by chance."
    )
