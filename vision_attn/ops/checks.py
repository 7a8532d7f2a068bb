"""What an argument may be: whole and real numbers in a range, flags, memory that there can be."""

import inspect
import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, get_args

from vision_attn.errors import UserError

__all__ = ["LARGEST", "arguments_of", "check_arguments", "check_choice", "check_flag",
           "check_known", "check_memory", "check_pair", "check_real", "check_whole",
           "near_divisors", "weight_sources"]  # fmt: skip

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


def check_choice(known: Iterable[str], /, **values: Any) -> None:
    """A UserError unless each named value is one of the known ones."""
    known = tuple(known)
    for name, value in values.items():
        if value not in known:
            raise UserError(f"{name}={value!r} is not known; choose one of {', '.join(known)}")


def near_divisors(number: int, wanted: int) -> str:
    """The one or two divisors of a number that are nearest to the one wanted, as `4 or 6`."""
    divisors = [n for n in range(1, number + 1) if number % n == 0]
    return " or ".join(map(str, sorted(sorted(divisors, key=lambda n: abs(n - wanted))[:2])))


def check_known(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """A UserError for the first name that is not among the known ones, with those near it."""
    known = list(known)
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=3, cutoff=0.5) or sorted(known)
            raise UserError(f"there is no {what} {name!r}; try {', '.join(near)}")


def arguments_of(cls: type) -> dict[str, bool]:
    """Every argument of a class, those of its bases too, and whether None is a value of it.

    Where a constructor hands on what it does not name, the arguments of its base count; options
    that are declared in a TypedDict (`**options: Unpack[...]`) end the search.
    """
    known: dict[str, bool] = {}
    for base in cls.__mro__:
        parameters = inspect.signature(vars(base).get("__init__", base)).parameters.values()
        for p in parameters:
            if p.name != "self" and p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD):
                known.setdefault(p.name, p.default is None)
        rest = [p.annotation for p in parameters if p.kind is p.VAR_KEYWORD]
        options = get_args(rest[0]) if rest else ()
        if not rest or options:
            for name, kind in (item for o in options for item in o.__annotations__.items()):
                known.setdefault(name, type(None) in get_args(kind))
            break
    return known


def check_arguments(of: object, options: Iterable[str]) -> None:
    """A UserError for options that the class of an object does not take."""
    check_known("argument", options, arguments_of(type(of)))


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
