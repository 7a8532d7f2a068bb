"""Numbers and their intervals as text, for tables, sentences and figures alike."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from vision_attn.study.config import FITTED

__all__ = [
    "FIT",
    "difference_cell",
    "images",
    "mean_and_half",
    "number",
    "points",
    "short",
    "times",
    "times_cell",
    "too_wide",
    "unbounded",
    "with_interval",
]

FIT = f"{100 * FITTED:.0f} %"
"""Train accuracy from which on a run counts as fitted."""


def number(value: float, form: str) -> str:
    """A formatted number, without the minus that rounding leaves before a zero."""
    text = f"{value:{form}}"
    return text.lstrip("-") if float(text) == 0 else text


def short(value: float) -> str:
    """1234567 as `1.23 M`."""
    for unit, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 0.9995 * scale:  # from there on it reads 1
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f}"


def images(sizes: Iterable[int], *, of: Iterable[int] = ()) -> str:
    """Sizes as words; `all 6 sizes from 250 to 10,000 images` where they are all of `of`."""
    every, total = [int(s) for s in sizes], len(list(of))
    if len(every) == total > 2:
        return f"all {total} sizes from {every[0]:,} to {every[-1]:,} images"
    words = [f"{s:,}" for s in every]
    return " and ".join([", ".join(words[:-1]), words[-1]][len(words) < 2 :]) + " images"


def points(share: float) -> str:
    """A share as points of per cent."""
    return f"{number(100 * share, '.1f')} points"


def too_wide(low: float, high: float) -> bool:
    """Whether an interval of shares leaves -100 to 100 points, so that it says nothing."""
    return bool(low < -1 or high > 1)


def mean_and_half(row: Any, measure: str | None = None) -> str:
    """Mean and half-width of the interval in points of per cent; a star where not fitted."""
    prefix = f"{measure}_" if measure else ""
    mean, high = row[f"{prefix}mean"], row[f"{prefix}high"]
    text = number(100 * mean, ".1f")
    if pd.notna(high):
        text += f" ± {100 * (high - mean):.1f}"
    return text + ("*" if measure == "gap" and row["fitted"] < 1 else "")


def difference_cell(row: Any) -> str:
    """A paired difference as `mean_and_half`, without an interval that says nothing."""
    if too_wide(row["low"], row["high"]):
        return f"{number(100 * row['mean'], '.1f')} (too wide)"
    return mean_and_half(row)


def with_interval(row: Any, name: str, scale: float, form: str, prefix: str = "") -> str:
    """A value with the ends of its interval, where there is one; nothing where it is NaN."""
    low, high = (row[f"{prefix}_{end}" if prefix else end] for end in ("low", "high"))
    if pd.isna(row[name]):
        return ""
    text, *ends = (number(scale * v, form) for v in (row[name], low, high))
    return text if pd.isna(low) else f"{text} ({ends[0]} to {ends[1]})"


def unbounded(row: Any) -> bool:
    """Whether the interval of a row of `data_multiplier` holds every number of images."""
    return bool(row["low"] == 0 and row["high"] == np.inf)


def times(row: Any) -> str:
    """A row of `data_multiplier` in words: how many times, within what, or its bound."""
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


def times_cell(row: Any) -> str:
    """The same for a cell of a table; at the end of the data a bound of 1 says nothing."""
    if row["bound"]:
        return "" if row["limit"] == 1 else str(row["bound"])
    text = f"{row['multiplier']:.2f}"
    if unbounded(row):
        return f"{text} (not bounded)"
    if pd.isna(row["low"]):
        return text
    top = f"{row['high']:.2f}" if np.isfinite(row["high"]) else "beyond the data"
    return f"{text} ({row['low']:.2f} to {top})"
