"""Parts of sentences: who is ahead at which sizes and by how much, made from paired differences."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from vision_attn.report.comparison import Change
from vision_attn.report.numbers import images, number, too_wide

__all__ = [
    "Sense",
    "at",
    "course",
    "direction",
    "ends",
    "exact",
    "first_upper",
    "from_to",
    "kinds",
    "loss",
    "named",
    "side_of",
    "sizes_of",
    "span",
    "way",
]

_SPOKEN = {"cnn": "the CNN", "vit": "the ViT"}


def named(model: str) -> str:
    """A label as a sentence says it: `the CNN` for `cnn`; every other label as it is."""
    return _SPOKEN.get(model, model)


def first_upper(text: str) -> str:
    """A sentence with its first letter large; a label that begins it stays as it is."""
    return text if text.split(" ")[0].rstrip(",:") not in _WORDS else text[:1].upper() + text[1:]


_WORDS = {"the", "no", "one", "by", "in", "too", "it", "that", "at", "with"}


def kinds(table: pd.DataFrame, *, share: bool = True) -> dict[str, pd.DataFrame]:
    """Rows by what their interval says.

    `first` above 0, `second` below 0, `open` around 0, `single` without an interval, and of shares
    `wide` where the interval leaves -100 to 100 points.
    """
    low, high = table["low"], table["high"]
    wide = ((low < -1) | (high > 1)) & share
    parts = {
        "first": (low > 0) & ~wide,
        "second": (high < 0) & ~wide,
        "open": (low <= 0) & (high >= 0) & ~wide,
        "wide": wide,
        "single": low.isna(),
    }
    return {kind: table[mask] for kind, mask in parts.items() if mask.any()}


def sizes_of(parts: Mapping[str, pd.DataFrame]) -> dict[str, tuple[int, ...]]:
    """The sizes of each kind."""
    return {kind: tuple(int(s) for s in rows["size"]) for kind, rows in parts.items()}


def at(rows: pd.DataFrame, every: pd.DataFrame) -> str:
    """`at 250 and 500 images`, or `at 5 of 6 sizes`, or `at all 6 sizes`."""
    some, total = len(rows), len(every)
    if some <= 2:
        return f"at {images(rows['size'])}"
    return f"at all {total} sizes" if some == total else f"at {some} of {total} sizes"


def exact(value: float) -> str:
    """Points of per cent without their word."""
    return number(100 * value, ".1f")


def loss(value: float) -> str:
    """A loss, with two decimals."""
    return number(value, ".2f")


def span(values: Iterable[float], form: Callable[[float], str], unit: str = "") -> str:
    """`6.2 to 15.5 points`, the smallest and the largest; one number where they read the same."""
    amounts = np.abs(np.asarray(list(values), dtype=float))
    low, high = form(float(amounts.min())), form(float(amounts.max()))
    return (low if low == high else f"{low} to {high}") + unit


def ends(rows: pd.DataFrame, form: Callable[[float], str], unit: str = "", sign: int = 1) -> str:
    """The means with their intervals at the first and the last of some sizes."""
    texts = []
    for i in dict.fromkeys((0, len(rows) - 1)):
        row = rows.iloc[i]
        text = form(sign * row["mean"]) + unit
        if pd.notna(row["low"]) and not (unit and too_wide(row["low"], row["high"])):
            low, high = sorted((sign * row["low"], sign * row["high"]))
            text += f" ({form(low)} to {form(high)})"
        texts.append(f"{text} at {int(row['size']):,}")
    return " and ".join(texts)


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


class Sense(NamedTuple):
    """A measure in which two models differ.

    Args:
        name: in a sentence.
        table: paired differences; above 0 `above` has more of it, below 0 `below`.
        above, below: labels.
        verb: what the one with more of it does.
        form, unit: how a number of it is written.
        share: whether it is a share, which lies between -100 and 100 points.
        of: all sizes, of which `table` may have some only.
    """

    name: str
    table: pd.DataFrame
    above: str
    below: str
    verb: str
    form: Callable[[float], str]
    unit: str
    share: bool
    of: pd.DataFrame

    @property
    def groups(self) -> dict[str, pd.DataFrame]:
        """Its sizes by kind."""
        return kinds(self.table, share=self.share)

    def by(self, rows: pd.DataFrame) -> str:
        """The smallest and the largest difference of some sizes."""
        return span(rows["mean"], self.form, self.unit)

    def winners(self) -> Iterator[tuple[str, pd.DataFrame]]:
        """Who has more of it beyond chance, and where."""
        for kind, model in (("first", self.above), ("second", self.below)):
            if kind in self.groups:
                yield model, self.groups[kind]

    def unclear(self) -> Iterator[str]:
        """What is said of the sizes without a winner."""
        for kind, rows in self.groups.items():
            where = at(rows, self.of).replace("at all ", "at any of ")
            if kind == "open":
                yield f"no difference can be shown {where} ({self.by(rows)} apart)"
            elif kind == "wide":
                draws = int(rows["count"].max())
                yield f"too wide to say {where} with {draws} draws ({self.by(rows)} in the mean)"
            elif kind == "single":
                sides = [
                    f"{named(model)} {self.verb} {at(side, self.of)}, by {self.by(side)}"
                    for model, side in (
                        (self.above, rows[rows["mean"] > 0]),
                        (self.below, rows[rows["mean"] < 0]),
                    )
                    if len(side)
                ]
                yield f"one draw cannot say; in it {' and '.join(sides) or 'both are equal'}"

    def number(self) -> str:
        """The number of its sentence: of the sizes with a winner, else of all."""
        rows = [rows for _, rows in self.winners()]
        return self.by(pd.concat(rows) if rows else self.table)


def side_of(table: pd.DataFrame) -> float:
    """1 where the first model is ahead in the mean over sizes, else -1."""
    return 1.0 if table["mean"].mean() >= 0 else -1.0


def from_to(sense: Sense, side: float) -> str:
    """The difference at the smallest and at the largest size, above 0 where `side` is ahead."""
    first, last = (sense.form(side * sense.table["mean"].iloc[i]) for i in (0, -1))
    return f"{first} to {last}{sense.unit}"


def course(sense: Sense, change: Change) -> str:
    """How a difference goes from the smallest size to the largest."""
    parts = sense.groups
    where = {size: kind for kind, sizes in sizes_of(parts).items() for size in sizes}
    sizes = sorted(where)
    if {where[sizes[0]], where[sizes[-1]]} == {"first", "second"}:
        return "turns"
    kind = direction(change, side_of(sense.table), share=sense.share)
    return "none" if set(parts) == {"open"} and kind == "open" else kind


def way(sense: Sense, change: Change, kind: str) -> str:
    """The same in words, with its two numbers."""
    span = f"from {from_to(sense, side_of(sense.table))}"
    if kind == "turns":
        first, last = (sense.table["mean"].iloc[i] for i in (0, -1))
        names = [named(sense.above if value > 0 else sense.below) for value in (first, last)]
        texts = [sense.form(abs(value)) for value in (first, last)]
        return f"it changes sides, from {texts[0]} for {names[0]} to {texts[1]} for {names[1]}"
    if kind == "single":
        alone = int(sense.table["count"].max()) == 1
        why = "one draw cannot say" if alone else "no two draws have both sizes"
        return f"{why} ({span})"
    return {
        "grows": f"no, it grows {span}",
        "shrinks": f"yes, {span}",
        "open": f"no change can be shown ({span})",
        "wide": f"too wide to say ({span})",
        "none": "no difference can be shown at any size",
    }[kind]
