"""The answers of a study as sentences, made from its numbers; the words follow the intervals.

Differences are paired by draw. Where an interval contains 0 no difference can be shown, one draw
gives no interval, and one that leaves -100 to 100 points is too wide to say anything. Draws and
level are said once, by `terms`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from vision_attn.report.analysis import Analysis, Comparison
from vision_attn.report.clauses import (
    Sense,
    at,
    course,
    direction,
    ends,
    exact,
    first_upper,
    from_to,
    loss,
    named,
    side_of,
    sizes_of,
    way,
)
from vision_attn.report.numbers import FIT, images, number, times, too_wide, unbounded
from vision_attn.report.remarks import meeting

__all__ = [
    "Answer",
    "about_one",
    "better",
    "growth",
    "lines",
    "overfitting",
    "terms",
    "verdict",
]


@dataclass(frozen=True)
class Answer:
    """One question about a study, answered.

    Args:
        question: as a reader asks it; in `lines` the label of a model.
        answer: one sentence, short, to be printed bold.
        number: the number in it; empty where it has none.
        kind: what it says: `first` or `second` of the pair, `both`, `open`, `wide`, `single` or
            `none`; of `growth` `grows`, `shrinks`, `turns`, `open`, `wide`, `single` or `none`.
        details: further sentences with intervals; may be empty.
        kinds: the sizes by kind of each measure; of `growth` the kind of each measure.
    """

    question: str
    answer: str
    number: str
    kind: str
    details: str = ""
    kinds: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The answer and its details."""
        return f"{self.answer} {self.details}".rstrip()


WHO, OVERFITS, SHRINKS = (
    "Who is better?",
    "Who overfits more?",
    "Does the difference shrink?",
)


def verdict(analysis: Analysis) -> list[Answer]:
    """Who is better, who overfits more, and whether the difference shrinks as images grow."""
    comparison = analysis.comparison
    if comparison is None:
        return about_one(analysis.main)
    if comparison.points.empty:
        both = f"{named(comparison.first)} and {named(comparison.second)}"
        said = f"{both} share no draw of the same size, so nothing can be compared."
        return [Answer(WHO, first_upper(said), "", "none")]
    return [better(comparison), overfitting(comparison), growth(comparison)]


def terms(analysis: Analysis) -> str:
    """What holds for all answers: data, budget, control, draws and the level of intervals."""
    counts = sorted({int(n) for n in analysis.main["count"]})
    span = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    draws = "1 draw, so no intervals" if counts == [1] else f"{span} draws, 95 % intervals"
    return ", ".join([*[analysis.data] * bool(analysis.data), analysis.setting.words, draws])


def lines(analysis: Analysis) -> list[Answer]:
    """A line for each further model of the study, against the first of the pair."""
    pair = analysis.pair or ()
    further = analysis.comparisons[analysis.setting].items()
    return [_line(c) for model, c in further if model not in pair and len(c.points)]


def _accuracy(c: Comparison) -> Sense:
    return Sense(
        "accuracy", c.points, c.first, c.second, "is ahead", exact, " points", True, c.points
    )


def _senses(c: Comparison) -> tuple[Sense, Sense]:
    """The two senses of overfitting: the gap where both fitted, and the rise after the minimum."""
    more = "overfits more"
    fitted = c.gap[c.gap["fitted"].astype(float) == 1]
    return (
        Sense("the gap in accuracy", fitted, c.second, c.first, more, exact, " points", True,
               c.points),
        Sense("the rise of validation loss", c.rise, c.second, c.first, more, loss, "", False,
               c.points),
    )  # fmt: skip


def _kind(senses: list[Sense], c: Comparison) -> str:
    """Who wins in these senses, or why nobody does."""
    models = {model for sense in senses for model, _ in sense.winners()}
    if models:
        return "both" if len(models) == 2 else "first" if models == {c.first} else "second"
    said = {kind for sense in senses for kind in sense.groups}
    return next((kind for kind in ("open", "wide", "single") if kind in said), "none")


def better(comparison: Comparison) -> Answer:
    """Who has the higher test accuracy, by how many points, at which sizes."""
    c, sense = comparison, _accuracy(comparison)
    said = [f"{named(m)}, {at(rows, c.points)}, by {sense.by(rows)}" for m, rows in sense.winners()]
    unclear = list(sense.unclear())
    details = [f"{first_upper(text)}." for text in unclear] if said else []
    for model, rows in sense.winners():
        sign = 1 if model == c.first else -1
        other = c.second if model == c.first else c.first
        by = ends(rows, exact, " points", sign)
        details.insert(0, f"{first_upper(named(model))} is ahead of {named(other)} by {by}.")
    if len(c.loss):
        details.append(_test_loss(c))
    return Answer(
        WHO,
        f"{first_upper('; '.join(said or unclear))}.",
        sense.number(),
        _kind([sense], c),
        " ".join(details),
        {"points": sizes_of(sense.groups)},
    )


def _test_loss(c: Comparison) -> str:
    """Whose test loss is higher; it also counts how sure a model is of its mistakes."""
    sense = Sense("", c.loss, c.second, c.first, "is worse", loss, "", False, c.points)
    said = [f"{named(m)} is worse {at(r, c.points)}, by {sense.by(r)}" for m, r in sense.winners()]
    return f"In test loss {'; '.join([*said, *sense.unclear()])}."


def overfitting(comparison: Comparison) -> Answer:
    """Whose gap in accuracy is larger where both fitted, and whose validation loss rises more."""
    c = comparison
    gap, rise = _senses(c)
    senses = [gap, *[rise] * bool(len(rise.table))]
    winners = [list(sense.winners()) for sense in senses]
    alone = {model for side in winners for model, _ in side}
    if len(alone) == 1 and all(winners):
        parts = [
            f"by {sense.name} {at(rows, c.points)} ({sense.by(rows)})"
            for sense, ((_, rows),) in zip(senses, winners, strict=True)
        ]
        answer = f"{named(alone.pop())}, {' and '.join(parts)}"
    else:
        answer = "; ".join(f"by {sense.name} {_said(sense)}" for sense in senses)
    told = [sense for sense in senses if len(sense.table)]
    return Answer(
        OVERFITS,
        f"{first_upper(answer)}.",
        "; ".join(sense.number() for sense in told),
        _kind(told, c),
        " ".join(_about_overfitting(c, gap, rise)),
        {
            name: sizes_of(sense.groups)
            for name, sense in (("gap", gap), ("rise", rise))
            if len(sense.table)
        },
    )


def _said(sense: Sense) -> str:
    if sense.table.empty:
        return "that cannot be said, as at no size every run of both fitted"
    said = [f"{named(m)}, {at(rows, sense.of)} ({sense.by(rows)})" for m, rows in sense.winners()]
    return "; ".join(said or sense.unclear())


def _about_overfitting(c: Comparison, gap: Sense, rise: Sense) -> Iterator[str]:
    """What the two senses mean here, and their intervals."""
    fitted = gap.table
    if len(fitted):
        where = images(fitted["size"])
        yield (
            f"The gap, train minus test accuracy, counts where every run of both reached {FIT} on"
            f" train images: at {where}. There a wider gap is a lower test accuracy."
        )
        yield f"Gap, {c.second} minus {c.first}: {ends(fitted, exact, ' points')}."
    if rise.table.empty:
        yield "No validation loss is logged, so its rise is not known."
        return
    yield (
        "The rise is the validation loss at the end minus its minimum on the way, in logs of at"
        f" least {c.log_rows} rows; {c.second} minus {c.first}: {ends(rise.table, loss)}."
    )


def growth(comparison: Comparison) -> Answer:
    """Whether the difference shrinks from the smallest size to the largest.

    In points of accuracy, as a ratio of errors where that says something else, and in the rise of
    the validation loss.
    """
    c = comparison
    accuracy = _accuracy(c)
    if len(c.points) < 2:
        return Answer(SHRINKS, "One size cannot say.", "", "none")
    side = side_of(c.points)
    said = {"points": course(accuracy, c.change)}
    number = from_to(accuracy, side)
    ratio = c.ratio["ratio"]
    parts = [f"in accuracy {way(accuracy, c.change, said['points'])}"]
    if len(ratio) > 1 and ratio.iloc[[0, -1]].notna().all():
        said["ratio"] = direction(c.ratio_change, side)
        other = said["points"] not in (said["ratio"], "turns", "single", "none")
        if other and said["ratio"] in ("grows", "shrinks"):
            word = "no, it grows" if said["ratio"] == "grows" else "yes,"
            first, last = (loss(ratio.iloc[i] ** side) for i in (0, -1))
            parts.append(f"as a ratio of errors {word} from {first} to {last}")
    _, rise = _senses(c)
    if len(rise.table) > 1:
        said["rise"] = course(rise, c.rise_change)
        parts.append(f"in {rise.name} {way(rise, c.rise_change, said['rise'])}")
    answer = f"{first_upper('; '.join(parts))}."
    details = " ".join(_about_growth(c, side, said))
    return Answer(SHRINKS, answer, number, said["points"], details, said)


def _about_growth(c: Comparison, side: float, said: Mapping[str, str]) -> Iterator[str]:
    """The changes with their intervals, the multiple of images, the crossing, what did not fit."""
    changes = [
        (c.change, lambda v: f"{number(100 * v, '+.1f')}", " points of accuracy", True),
        (c.ratio_change, lambda v: f"× {np.exp(v):.2f}", " in the ratio of errors", False),
        (c.rise_change, lambda v: number(v, "+.2f"), " in the rise of validation loss", False),
    ]
    texts = []
    for change, form, unit, share in changes:
        if change.draws > 1 and not (share and too_wide(change.low, change.high)):
            low, high = form(change.low), form(change.high)
            texts.append(f"{form(change.mean)}{unit} ({low} to {high})")
    if texts:
        n = c.points["size"]
        yield f"Change from {n.iloc[0]:,} to {n.iloc[-1]:,} images: {', '.join(texts)}."
    yield from _multiple(c)
    yield f"Crossing of the curves of test error: {meeting(c.crossing)}."
    unfitted = c.points[c.points["fitted"] < 1]
    if len(unfitted):
        where = images(unfitted["size"])
        too = ", also of a rise that is small" * bool(len(c.rise))
        yield f"At {where} not every run fitted, so undertraining may be a part of it{too}."


def _multiple(c: Comparison) -> Iterator[str]:
    """How many times the images `second` needs, where that says something."""
    table = c.multiplier
    if table.empty:
        return
    known = table["multiplier"].notna() & ~table.apply(unbounded, axis=1)
    told = table[known | ((table["bound"] != "") & ((table["limit"] - 1).abs() > 0.05))]
    if len(told):
        last = (told[told["multiplier"].notna()] if known.any() else told).iloc[-1]
        yield (
            f"For the test error of {named(c.first)} at {int(last['n']):,} images,"
            f" {named(c.second)} needs {times(last)} the images."
        )


def _line(c: Comparison) -> Answer:
    """One further model in one sentence."""
    sense, senses, other = _accuracy(c), _senses(c), named(c.first)
    words = {c.first: f"behind {other}", c.second: f"ahead of {other}"}
    parts = [f"{words[m]} {at(r, c.points)}, by {sense.by(r)}" for m, r in sense.winners()]
    parts = parts or list(sense.unclear())
    for verb, model in (("more", c.second), ("less", c.first)):
        by = [
            f"by {measure.name} {at(rows, c.points)}"
            for measure in senses
            for winner, rows in measure.winners()
            if winner == model
        ]
        if by:
            parts.append(f"overfits {verb} {' and '.join(by)}")
    kind = course(sense, c.change) if len(c.points) > 1 else "none"
    if kind in ("grows", "shrinks") and len(list(sense.winners())) == 1:
        parts.append(f"the difference in accuracy {kind}")
    text = f"{'; '.join(parts)}."
    return Answer(c.second, text, sense.number(), _kind([sense], c))


def about_one(summary: pd.DataFrame) -> list[Answer]:
    """What can be said of a study with one model."""
    model = named(str(summary["model"].iloc[0]))
    reached = _at_ends(summary, "test_acc", " %")
    answers = [Answer(f"How good is {model}?", f"{reached}.", reached, "none")]
    question, fitted = "How much does it overfit?", summary[summary["fitted"] == 1]
    if fitted.empty:
        said = f"That cannot be said: at no size every run reached {FIT} on train images."
        return [*answers, Answer(question, said, "", "none")]
    gap = _at_ends(fitted, "gap", " points")
    text = f"By a gap in accuracy of {gap}."
    return [*answers, Answer(question, text, gap, "none")]


def _at_ends(summary: pd.DataFrame, measure: str, unit: str) -> str:
    rows = [summary.iloc[i] for i in dict.fromkeys((0, len(summary) - 1))]
    return " and ".join(
        f"{exact(r[f'{measure}_mean'])}{unit} at {int(r['size']):,} images" for r in rows
    )
