"""A measure in which two models differ, in words: who has more of it, at which sizes, by how much.

Where an interval contains 0 no difference can be shown, one draw gives no interval, and one that
leaves -100 to 100 points is too wide to say anything.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from vision_attn.report.comparison import MEASURES, Change, Comparison, Measure
from vision_attn.report.numbers import images, span, too_wide, written

__all__ = ["Sense", "direction", "first_upper", "named"]

_SPOKEN = {"cnn": "the CNN", "vit": "the ViT"}
_BEGINNINGS = {"the", "no", "one", "by", "in", "too", "it", "that", "at", "with"}


def named(model: str) -> str:
    """A label as a sentence says it: `the CNN` for `cnn`; every other label as it is."""
    return _SPOKEN.get(model, model)


def first_upper(text: str) -> str:
    """A sentence with its first letter large; a label that begins it stays as it is."""
    word = text.split(" ")[0].rstrip(",:")
    return text[:1].upper() + text[1:] if word in _BEGINNINGS else text


@dataclass(frozen=True, eq=False)
class Sense:
    """A measure in which two models differ.

    Args:
        measure: its name, form and verb.
        table: paired differences; above 0 `above` has more of it, below 0 `below`.
        change: from the smallest size to the largest.
        above, below: labels.
        sizes: count of all sizes, of which `table` may have some only.
    """

    measure: Measure
    table: pd.DataFrame
    change: Change
    above: str
    below: str
    sizes: int

    @classmethod
    def of(cls, c: Comparison, name: str) -> "Sense":
        """A measure of a comparison; a gap counts only where every run of both fitted."""
        table, two = c.table(name), (c.second, c.first)
        if name == "gap":
            table = table[table["fitted"] == 1]
        above, below = two[::-1] if name == "test_acc" else two
        return cls(MEASURES[name], table, c.change(name), above, below, len(c.points))

    @property
    def share(self) -> bool:
        """Whether it lies between -100 and 100 points."""
        return self.measure.form == "%"

    def form(self, value: float, unit: bool = False) -> str:
        """An amount of it, with ` points` after it where that is its unit and asked for."""
        return written(value, self.measure.form) + " points" * (unit and self.share)

    @cached_property
    def groups(self) -> dict[str, pd.DataFrame]:
        """Rows by what their interval says.

        `first` above 0, `second` below 0, `open` around 0, `single` without an interval, and of
        shares `wide` where the interval leaves -100 to 100 points.
        """
        low, high = self.table["low"], self.table["high"]
        wide = ((low < -1) | (high > 1)) & self.share
        kinds = {
            "first": (low > 0) & ~wide,
            "second": (high < 0) & ~wide,
            "open": (low <= 0) & (high >= 0) & ~wide,
            "wide": wide,
            "single": low.isna(),
        }
        return {kind: self.table[mask] for kind, mask in kinds.items() if mask.any()}

    def at(self, rows: pd.DataFrame) -> str:
        """`at 250 and 500 images`, or `at 5 of 6 sizes`, or `at all 6 sizes`."""
        some = len(rows)
        if some <= 2:
            return f"at {images(rows['size'])}"
        return f"at all {some} sizes" if some == self.sizes else f"at {some} of {self.sizes} sizes"

    def by(self, rows: pd.DataFrame) -> str:
        """`6.2 to 15.5 points`, the smallest and the largest difference of some sizes."""
        low, high = rows["mean"].abs().agg(["min", "max"])
        start = f"{self.form(low)} to " * (self.form(low) != self.form(high))
        return start + self.form(high, unit=True)

    def ends(self, rows: pd.DataFrame, sign: int = 1) -> str:
        """The means with their intervals at the first and the last of some sizes."""
        texts = []
        for r in rows.iloc[[0, -1][: len(rows)]].to_dict("records"):
            text = self.form(sign * r["mean"], unit=True)
            if pd.notna(r["low"]) and not (self.share and too_wide(r["low"], r["high"])):
                low, high = sorted((sign * r["low"], sign * r["high"]))
                text += f" ({self.form(low)} to {self.form(high)})"
            texts.append(f"{text} at {r['size']:,}")
        return " and ".join(texts)

    def winners(self) -> list[tuple[str, pd.DataFrame]]:
        """Who has more of it beyond chance, and where."""
        kinds = (("first", self.above), ("second", self.below))
        return [(model, self.groups[kind]) for kind, model in kinds if kind in self.groups]

    def said(self, words: str) -> list[str]:
        """Each winner in `words`, with `who`, `at` which sizes and `by` how much; else why none."""
        said = [
            words.format(who=named(model), at=self.at(rows), by=self.by(rows))
            for model, rows in self.winners()
        ]
        return said or list(self.unclear())

    def unclear(self) -> Iterator[str]:
        """What is said of the sizes without a winner."""
        for kind, rows in self.groups.items():
            where = self.at(rows).replace("at all ", "at any of ")
            if kind == "open":
                yield f"no difference can be shown {where} ({self.by(rows)} apart)"
            elif kind == "wide":
                draws = span(rows["count"])
                yield f"too wide to say {where} with {draws} draws ({self.by(rows)} in the mean)"
            elif kind == "single":
                above, below = rows[rows["mean"] > 0], rows[rows["mean"] < 0]
                sides = ((self.above, above), (self.below, below))
                said = [
                    f"{named(model)} {self.measure.verb} {self.at(part)}, by {self.by(part)}"
                    for model, part in sides
                    if len(part)
                ]
                yield f"one draw cannot say; in it {' and '.join(said) or 'both are equal'}"

    @property
    def side(self) -> float:
        """1 where `above` has more of it in the mean over sizes, else -1."""
        return 1.0 if self.table["mean"].mean() >= 0 else -1.0

    @property
    def course(self) -> str:
        """How it goes from the smallest size to the largest: `turns`, `none`, or a direction."""
        kind_of = {n: kind for kind, rows in self.groups.items() for n in rows["size"]}
        if {kind_of[min(kind_of)], kind_of[max(kind_of)]} == {"first", "second"}:
            return "turns"
        kind = direction(self.change, self.side, share=self.share)
        return "none" if {*self.groups} == {"open"} and kind == "open" else kind

    def way(self) -> str:
        """The same in words, with its two numbers."""
        first, last = self.table["mean"].iloc[[0, -1]]
        span = f"from {self.form(self.side * first)} to {self.form(self.side * last, unit=True)}"
        sides = [
            f"{self.form(abs(value))} for {named(self.above if value > 0 else self.below)}"
            for value in (first, last)
        ]
        alone = self.table["count"].max() == 1
        why = "one draw cannot say" if alone else "no two draws have both sizes"
        return {
            "turns": f"it changes sides, from {sides[0]} to {sides[1]}",
            "single": f"{why} ({span})",
            "grows": f"no, it grows {span}",
            "shrinks": f"yes, {span}",
            "open": f"no change can be shown ({span})",
            "wide": f"too wide to say ({span})",
            "none": "no difference can be shown at any size",
        }[self.course]


def direction(change: Change, side: float, *, share: bool = False) -> str:
    """What the change of a difference says, where `side` is the sign of the difference.

    `grows` or `shrinks`, `open` where its interval contains 0, `single` without an interval, and
    of shares `wide` where the interval leaves -100 to 100 points.
    """
    if change.draws < 2:
        return "single"
    low, high = sorted((side * change.low, side * change.high))
    if share and too_wide(low, high):
        return "wide"
    if low > 0:
        return "grows"
    return "shrinks" if high < 0 else "open"
