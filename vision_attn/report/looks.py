"""One colour and one marker for each model, the same in every figure."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vision_attn.models.registry import attends

__all__ = ["Look", "looks"]


@dataclass(frozen=True)
class Look:
    """Colour as #rrggbb and a matplotlib marker."""

    colour: str
    marker: str


# Each colour has a contrast of 3 to 1 or more on white; those that are known by name are also far
# apart for an eye without the green cones (deuteranopia).
_KNOWN = {
    "cnn": ("#0072b2", "o"),
    "linear": ("#555555", "X"),
    "vit": ("#d55e00", "s"),
    "pixel_vit": ("#f2436f", "D"),
    "conv_stem_vit": ("#7d6608", "^"),
    "conv_init_vit": ("#4a148c", "v"),
    "local_vit": ("#7b1e1e", "P"),
    "pooled_stem_vit": ("#e0218a", "<"),
}
_CONVOLUTION = ("#7488a8", "#1d2f6f", "#5b7ce0", "#00606e", "#3f3fd0")
_ATTENTION = ("#bb7a45", "#8a4b5a", "#3d1408", "#d400c0", "#1f4d00")
_COLOURS = (*(colour for colour, _ in _KNOWN.values()), *_CONVOLUTION, *_ATTENTION)
_MARKERS = (">", "h", "p", "d", "o", "s", "^", "D", "v", "P", "X", "<")


def looks(models: Iterable[str], archs: Mapping[str, str]) -> dict[str, Look]:
    """A look for each label, warm colours for attention, cold ones for convolution.

    It depends on the label and on the model that it stands for. Where its colour or marker is
    taken, the later label in alphabetical order takes the next free one; only with more labels
    than there are do two have a colour or a marker in common, and never both.
    """
    chosen: dict[str, Look] = {}
    for model in sorted(set(models), key=lambda m: (m not in _KNOWN, m)):
        if model in _KNOWN:
            chosen[model] = Look(*_KNOWN[model])
            continue
        number = int.from_bytes(hashlib.blake2b(model.encode(), digest_size=4).digest(), "big")
        palette = _ATTENTION if attends(archs.get(model, model)) else _CONVOLUTION
        colours = dict.fromkeys((*_turned(palette, number), *_COLOURS))
        chosen[model] = _free(list(colours), list(_turned(_MARKERS, number // 64)), chosen)
    return chosen


def _turned(items: Sequence[str], by: int) -> Iterator[str]:
    """All of them, from a place that the number names."""
    start = by % len(items)
    yield from items[start:]
    yield from items[:start]


def _free(colours: list[str], markers: list[str], chosen: Mapping[str, Look]) -> Look:
    """The first colour and marker that no label has; else the first pair."""
    taken = set(chosen.values())
    fresh_colours = [c for c in colours if c not in {look.colour for look in taken}]
    fresh_markers = [m for m in markers if m not in {look.marker for look in taken}]
    pairs = (Look(c, m) for m in fresh_markers or markers for c in fresh_colours or colours)
    return next((look for look in pairs if look not in taken), Look(colours[0], markers[0]))
