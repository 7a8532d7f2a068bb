"""What an argument may be: whole and real numbers in a range, flags, memory that there can be."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from vision_attn.errors import UserError

__all__ = [
    "LARGEST",
    "check_flag",
    "check_memory",
    "check_pair",
    "check_real",
    "check_whole",
    "weight_sources",
]

LARGEST = 2**20
"""No width, count or side of an image is larger; a typing error with many digits is."""

_MEMORY = 64 * 2**30  # bytes

_SOURCES = ("pretrained", "checkpoint", "cache_dir", "hf_hub")


def check_whole(low: int = 1, high: int = LARGEST, /, **values: Any) -> None:
    """A UserError unless each named value is a whole number from low to high."""
    for name, value in values.items():
        if not _is_whole(value, low, high):
            raise UserError(f"{name} is {_short(value)}; wanted a whole number, {low} to {high:,}")


def check_pair(low: int = 1, high: int = LARGEST, /, **values: Any) -> None:
    """A UserError unless each named value is a whole number from low to high, or two of them."""
    for name, value in values.items():
        both = value if isinstance(value, tuple | list) else (value, value)
        if len(both) != 2 or not all(_is_whole(number, low, high) for number in both):
            raise UserError(
                f"{name} is {_short(value)}; wanted a whole number, {low} to {high:,}, or"
                " (rows, columns)"
            )


def check_real(low: float, high: float = math.inf, /, *, open: str = "", **values: Any) -> None:
    """A UserError unless each named value is a finite number from low to high.

    Args:
        low, high: the range; both ends belong to it.
        open: `low`, `high` or `low high`: ends that do not belong to it.
    """
    for name, value in values.items():
        real = isinstance(value, Real) and not isinstance(value, bool)
        if (
            not real
            or not math.isfinite(value)
            or not low <= value <= high
            or ("low" in open and value == low)
            or ("high" in open and value == high)
        ):
            ends = "" if low == -math.inf else f" {'above' if 'low' in open else 'from'} {low}"
            if high < math.inf:
                ends += f" {'to under' if 'high' in open else 'to'} {high}"
            raise UserError(f"{name} is {_short(value)}; wanted a number{ends}")


def check_flag(**values: Any) -> None:
    """A UserError unless each named value is True or False; text would count as true."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise UserError(f"{name} is {_short(value)}; wanted true or false")


def check_memory(what: str, count: int, advice: str) -> None:
    """A UserError where `count` numbers of four bytes do not fit any machine that is meant here."""
    if 4 * count > _MEMORY:
        raise UserError(f"{what} would take {4 * count / 2**30:,.0f} GiB; {advice}")


def _is_whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and low <= int(value) <= high


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def weight_sources(args: Any) -> list[str]:
    """Names in arguments, at any depth, by which timm fetches or unpickles other files."""
    if isinstance(args, list | tuple):
        return [name for value in args for name in weight_sources(value)]
    if not isinstance(args, Mapping):
        return []
    names = [k for k in map(str, args) if k.startswith(_SOURCES) or k.endswith("_overlay")]
    return names + [name for value in args.values() for name in weight_sources(value)]
