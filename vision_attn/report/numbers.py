"""Numbers and their intervals as text, for tables, sentences and figures alike."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from vision_attn.study.config import FITTED

__all__ = [
    "FIT",
    "bounds",
    "images",
    "mean_and_half",
    "number",
    "points",
    "short",
    "times",
    "times_cell",
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
    for unit, scale in (("M", 1e6), ("k", 1e3)):
        if value >= scale:
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


def bounds(low: float, high: float) -> str:
    """The ends of an interval of shares, in points."""
    return " to ".join(number(100 * v, ".1f") for v in (low, high))


def mean_and_half(row: Any, measure: str | None = None) -> str:
    """Mean and half-width of the interval in points of per cent; a star where not fitted."""
    prefix = f"{measure}_" if measure else ""
    mean, high = row[f"{prefix}mean"], row[f"{prefix}high"]
    text = number(100 * mean, ".1f")
    if pd.notna(high):
        text += f" ± {100 * (high - mean):.1f}"
    return text + ("*" if measure == "gap" and row["fitted"] < 1 else "")


def with_interval(row: Any, name: str, scale: float, form: str, prefix: str = "") -> str:
    """A value with the ends of its interval, where there is one; nothing where it is NaN."""
    low, high = (row[f"{prefix}_{end}" if prefix else end] for end in ("low", "high"))
    if pd.isna(row[name]):
        return ""
    text, *ends = (number(scale * v, form) for v in (row[name], low, high))
    return text if pd.isna(low) else f"{text} ({ends[0]} to {ends[1]})"


def unbounded(row: Any) -> bool:
    """Whether the interval of a row of `data_multiplier` holds every number of images."""
    return bool(row["low"] == 0 and np.isinf(row["high"]))


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
    """The same for a cell of a table."""
    if row["bound"]:
        return str(row["bound"])
    text = f"{row['multiplier']:.2f}"
    if unbounded(row):
        return f"{text} (not bounded)"
    return text if pd.isna(row["low"]) else f"{text} ({row['low']:.2f} to {row['high']:.2f})"
