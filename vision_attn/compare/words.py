"""Numbers and their intervals as parts of a sentence."""

from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from vision_attn.compare.styles import number
from vision_attn.stats.intervals import interval
from vision_attn.stats.multiplier import Crossing

__all__ = [
    "by_points",
    "change",
    "change_interval",
    "ends",
    "images",
    "kinds",
    "meeting",
    "points",
    "points_with",
    "times",
    "unbounded",
]


def images(sizes: Iterable[int], *, of: Iterable[int] = ()) -> str:
    """Sizes as words; `all 6 sizes from 250 to 10,000 images` where they are all of `of`."""
    every, total = [int(s) for s in sizes], len(list(of))
    if len(every) == total > 2:
        return f"all {total} sizes from {every[0]:,} to {every[-1]:,} images"
    words = [f"{s:,}" for s in every]
    return " and ".join([", ".join(words[:-1]), words[-1]][len(words) < 2 :]) + " images"


def kinds(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Rows by what their interval says: above 0, below 0, around 0, or no interval."""
    single = table["low"].isna()
    parts = {
        "first": table["low"] > 0,
        "second": table["high"] < 0,
        "open": (table["low"] <= 0) & (table["high"] >= 0),
        "single": single,
    }
    return {kind: table[mask] for kind, mask in parts.items() if mask.any()}


def ends(rows: pd.DataFrame, sign: int, say: Callable[..., str]) -> str:
    """The numbers at the first and the last of some sizes."""
    said = []
    for i in dict.fromkeys((0, len(rows) - 1)):
        row = rows.iloc[i]
        low, high = (row["low"], row["high"]) if sign > 0 else (-row["high"], -row["low"])
        text = say(sign * row["mean"], low, high, int(row["count"]))
        said.append(f"{text} at {int(row['size']):,}" if len(rows) > 1 else text)
    return " and ".join(said)


def points(value: float) -> str:
    """A share as points."""
    return f"{number(100 * value, '.1f')} points"


def by_points(mean: float, low: float, high: float, count: int) -> str:
    """Points of a difference that is shown, with interval and draws."""
    return f"{points(mean)} (95 % interval {_range(low, high)}, {count} draws)"


def points_with(mean: float, low: float, high: float, count: int) -> str:
    """Points of a difference that is not, inside brackets."""
    return f"{points(mean)}, {_range(low, high)}, {count} draws"


def _range(low: float, high: float) -> str:
    return " to ".join(number(100 * v, ".1f") for v in (low, high))


def change(values: pd.Series, side: float) -> str:
    """What the change of a difference says, where `side` is the sign of the difference."""
    values = values.dropna()
    if len(values) < 2:
        return "goes"  # without an interval nothing is claimed
    _, low, high, _ = interval(values)
    low, high = sorted((side * low, side * high))
    if low > 0:
        return "grows"
    return "shrinks" if high < 0 else "does not change beyond chance"


def change_interval(values: pd.Series, show: Callable[[float], str]) -> str:
    """The change in brackets with its interval, of one value a draw."""
    values = values.dropna()
    if len(values) < 2:
        return " (no two draws have both sizes, so no interval)"
    mean, low, high, _ = interval(values)
    return f" (change {show(mean)}, 95 % interval {show(low)} to {show(high)}, {len(values)} draws)"


def unbounded(row: pd.Series) -> bool:
    """Whether the interval of a row of `data_multiplier` holds every number of images."""
    return bool(row["low"] == 0 and np.isinf(row["high"]))


def times(row: pd.Series) -> str:
    """A row of `data_multiplier`: how many times, within what, or its bound."""
    if row["bound"]:
        word = "more" if row["bound"].startswith(">") else "less"
        return f"{word} than {row['limit']:.2g} times"
    text = f"{row['multiplier']:.2g} times"
    if np.isnan(row["low"]):
        return text
    if unbounded(row):
        return f"{text} (not bounded by these draws)"
    top = f"to {row['high']:.2g}" if np.isfinite(row["high"]) else "to beyond the data"
    return f"{text} ({row['low']:.2g} {top})"


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
