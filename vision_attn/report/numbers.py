"""Numbers and their intervals as text, for tables, sentences and figures alike."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from vision_attn.study.config import FITTED

__all__ = [
    "FIT",
    "difference_cell",
    "exact",
    "images",
    "mean_and_half",
    "number",
    "short",
    "span",
    "times",
    "times_cell",
    "too_wide",
    "unbounded",
    "with_interval",
    "written",
]

FIT = f"{100 * FITTED:.0f} %"
"""Train accuracy from which on a run counts as fitted."""


def number(value: float, form: str) -> str:
    """A formatted number, without the minus that rounding leaves before a zero."""
    text = f"{value:{form}}"
    return text.lstrip("-") if float(text.replace(",", "")) == 0 else text


def exact(share: float) -> str:
    """A share as points of per cent, without their word."""
    return number(100 * share, ".1f")


def written(value: float, form: str) -> str:
    """A number in the form of a `Measure`: `%` is a share in points of per cent."""
    return exact(value) if form == "%" else number(value, form)


def short(value: float) -> str:
    """1234567 as `1.23 M`."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 0.9995 * scale:  # from there on it reads 1
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f}"


def images(sizes: Iterable[int]) -> str:
    """Sizes as words: `20, 50 and 1,000 images`."""
    words = [f"{int(s):,}" for s in sizes]
    return " and ".join([", ".join(words[:-1]), words[-1]][len(words) < 2 :]) + " images"


def span(counts: Iterable[int]) -> str:
    """`3`, or `3 to 10` where they differ."""
    there = sorted(set(counts))
    return " to ".join(str(n) for n in dict.fromkeys((there[0], there[-1])))


def too_wide(low: float, high: float) -> bool:
    """Whether an interval of shares leaves -100 to 100 points, so that it says nothing."""
    return bool(low < -1 or high > 1)


def mean_and_half(mean: float, high: float) -> str:
    """A share and the half-width of its interval, in points of per cent."""
    return exact(mean) + (f" ± {100 * (high - mean):.1f}" if pd.notna(high) else "")


def difference_cell(row: Any) -> str:
    """A paired difference as `mean_and_half`, without an interval that says nothing."""
    wide = too_wide(row["low"], row["high"])
    return f"{exact(row['mean'])} (too wide)" if wide else mean_and_half(row["mean"], row["high"])


def with_interval(row: Any, form: str, name: str = "") -> str:
    """A value with the ends of its interval, where it has one; nothing where it is NaN.

    Args:
        row: with `mean`, `low` and `high`.
        form: of its numbers; `%` stands for a share in points of per cent.
        name: before the names of the row's values, as in `test_acc_mean`.
    """
    values = [row[f"{name}{end}"] for end in ("mean", "low", "high")]
    mean, low, high = (written(v, form) for v in values)
    if pd.isna(values[0]):
        return ""
    if form == "%" and too_wide(*values[1:]):
        return f"{mean} (too wide)"
    return mean if pd.isna(values[1]) else f"{mean} ({low} to {high})"


def unbounded(row: Any) -> bool:
    """Whether the interval of a row of `data_multiplier` holds every number of images."""
    return bool(row["low"] == 0 and row["high"] == np.inf)


def times(row: Any) -> str:
    """A row of `data_multiplier` in words: how many times, within what, or its bound."""
    if row["bound"]:
        word = "more" if row["bound"].startswith(">") else "less"
        return f"{word} than {row['limit']:.2g} times"
    return _times(row, ".2g", " times", " by these draws")


def times_cell(row: Any) -> str:
    """The same for a cell of a table; at the end of the data a bound of 1 says nothing."""
    if row["bound"]:
        return "" if row["limit"] == 1 else str(row["bound"])
    return _times(row, ".2f")


def _times(row: Any, form: str, word: str = "", by: str = "") -> str:
    text = f"{row['multiplier']:{form}}{word}"
    if pd.isna(row["low"]):
        return text
    if unbounded(row):
        return f"{text} (not bounded{by})"
    top = f"{row['high']:{form}}" if np.isfinite(row["high"]) else "beyond the data"
    return f"{text} ({row['low']:{form}} to {top})"
