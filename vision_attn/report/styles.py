"""How a model looks in every figure: colour and marker by its name, whatever else is drawn."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from matplotlib.colors import to_hex, to_rgb

__all__ = ["LINES", "Look", "family", "is_attention", "looks", "number", "pair", "short"]

LINES = {
    "steps": "-",
    "epochs": "--",
    "none": "-",
    "permuted": "-.",
    "shuffled": ":",
}
"""Line styles of protocols and controls."""

NONE: Mapping[str, str] = MappingProxyType({})

_KNOWN = {
    "cnn": ("#0072b2", "o"),
    "linear": ("#555555", "X"),
    "vit": ("#d55e00", "s"),
    "pixel_vit": ("#cc79a7", "D"),
    "conv_stem_vit": ("#e69f00", "^"),
    "conv_init_vit": ("#7f3c8d", "v"),
    "local_vit": ("#a6352b", "P"),
}
_CONVOLUTION = ("#56b4e9", "#009e73", "#1b4965", "#5a7d9a", "#66a182")
_ATTENTION = ("#f28e2b", "#b8336a", "#8c564b", "#e15759", "#9b5de5")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "h")
_SHADES = (0.0, 0.35, -0.35)


@dataclass(frozen=True)
class Look:
    """Colour as #rrggbb and a matplotlib marker."""

    colour: str
    marker: str


def family(model: str, archs: Mapping[str, str] = NONE) -> str:
    """The model that a label is a variant of: `vit` of `vit_large`; itself where there is none.

    `archs` says which model a label stands for, where that is stored.
    """
    model = archs.get(model, model)
    fit = [m for m in _KNOWN if re.fullmatch(rf"{m}([^A-Za-z0-9].*)?", model)]
    return max(fit, key=len, default=model)


def is_attention(model: str, archs: Mapping[str, str] = NONE) -> bool:
    """Whether a model attends, as far as its name says."""
    model = family(model, archs)
    if model in _KNOWN:
        return model not in ("cnn", "linear")
    return bool(re.search("vit|attn|attention|former|swin|deit|cait|beit|eva", model.lower()))


def looks(models: Iterable[str], archs: Mapping[str, str] = NONE) -> dict[str, Look]:
    """A look for each model, warm colours for attention, cold ones for convolution.

    It depends on the name alone. Only where two names would look alike does the later one in
    alphabetical order take the next free marker.
    """
    chosen: dict[str, Look] = {}
    for model in sorted(set(models), key=lambda m: (m not in _KNOWN, m)):
        look = _look(model, archs)
        markers = _MARKERS[_MARKERS.index(look.marker) :] + _MARKERS
        taken = set(chosen.values())
        free = (Look(look.colour, m) for m in markers if Look(look.colour, m) not in taken)
        chosen[model] = next(free, look)
    return chosen


def _look(model: str, archs: Mapping[str, str]) -> Look:
    if model in _KNOWN:
        return Look(*_KNOWN[model])
    number = int.from_bytes(hashlib.blake2b(model.encode(), digest_size=4).digest(), "big")
    marker = _MARKERS[number // 64 % len(_MARKERS)]
    known = family(model, archs)
    if known in _KNOWN:
        return Look(_shade(_KNOWN[known][0], _SHADES[number % len(_SHADES)]), marker)
    palette = _ATTENTION if is_attention(model, archs) else _CONVOLUTION
    return Look(palette[number % len(palette)], marker)


def _shade(colour: str, by: float) -> str:
    """Towards white (positive) or black (negative)."""
    r, g, b = (c + by * (1 - c) if by > 0 else c * (1 + by) for c in to_rgb(colour))
    return to_hex((r, g, b))


def pair(models: Iterable[str], archs: Mapping[str, str] = NONE) -> tuple[str, str] | None:
    """The two models that the study is about: the CNN and the attention classifier.

    `cnn` and `vit` where they are there, else the first of each kind, else the first two.
    """
    left = sorted(set(models))
    if len(left) < 2:
        return None

    def near(name: str, attends: bool) -> Callable[[str], Any]:
        return lambda m: (
            m != name,
            family(m, archs) != name,
            is_attention(m, archs) is not attends,
            m,
        )

    first = min(left, key=near("cnn", False))
    left.remove(first)
    return first, min(left, key=near("vit", True))


def short(number: float) -> str:
    """1234567 as `1.23 M`."""
    for unit, scale in (("M", 1e6), ("k", 1e3)):
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    return f"{number:.0f}"


def number(value: float, form: str) -> str:
    """A formatted number, without the minus that rounding leaves before a zero."""
    text = f"{value:{form}}"
    return text.lstrip("-") if float(text) == 0 else text
