"""One colour and one marker for each model, the same in every figure."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vision_attn.names import has_attention

__all__ = ["Look", "attending", "looks"]


@dataclass(frozen=True)
class Look:
    """Colour as #rrggbb and a matplotlib marker."""

    colour: str
    marker: str


# Each colour has a contrast of 3 to 1 or more on white; those that are known by name are also far
# apart for an eye without the green cones (deuteranopia).
_CONVOLUTION = {"cnn": ("#0072b2", "o"), "linear": ("#555555", "X")}
_ATTENTION = {
    "vit": ("#d55e00", "s"),
    "pixel_vit": ("#f2436f", "D"),
    "conv_stem_vit": ("#7d6608", "^"),
    "conv_init_vit": ("#4a148c", "v"),
    "local_vit": ("#7b1e1e", "P"),
    "pooled_stem_vit": ("#e0218a", "<"),
}
_KNOWN = _CONVOLUTION | _ATTENTION
_COLD = ("#7488a8", "#1d2f6f", "#5b7ce0", "#00606e", "#3f3fd0")
_WARM = ("#bb7a45", "#8a4b5a", "#3d1408", "#d400c0", "#1f4d00")
_COLOURS = (*(colour for colour, _ in _KNOWN.values()), *_COLD, *_WARM)
_MARKERS = (">", "h", "p", "d", "o", "s", "^", "D", "v", "P", "X", "<")


def attending(arch: str, args: Mapping[str, Any] | None = None) -> bool:
    """Whether a model has attention, as of `models.registry.attends`; ours need no torch for it."""
    told = has_attention(arch, args)
    if told is None:
        from vision_attn.models.registry import attends

        return attends(arch, args)
    return told


def looks(
    models: Iterable[str],
    archs: Mapping[str, str],
    args: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Look]:
    """A look for each label, warm colours for attention, cold ones for what has none.

    It depends on the label, on the model that it stands for and on that model's arguments. Where
    its colour or marker is taken, the later label in alphabetical order takes the next free one;
    only with more labels than there are do two have a colour or a marker in common, and never both.
    """
    chosen: dict[str, Look] = {}

    def known(model: str) -> bool:  # and is what its name says, which `mixer: none` is not
        kept = has_attention("vit", (args or {}).get(model)) is True
        return model in _CONVOLUTION or (model in _ATTENTION and kept)

    for model in sorted(set(models), key=lambda m: (not known(m), m)):
        if known(model):
            chosen[model] = Look(*_KNOWN[model])
            continue
        number = int.from_bytes(hashlib.blake2b(model.encode(), digest_size=4).digest(), "big")
        warm = attending(archs.get(model, model), (args or {}).get(model))
        colours = dict.fromkeys((*_turned(_WARM if warm else _COLD, number), *_COLOURS))
        chosen[model] = _free([*colours], _turned(_MARKERS, number // 64), chosen)
    return chosen


def _turned(items: Sequence[str], by: int) -> list[str]:
    """All of them, from a place that the number names."""
    start = by % len(items)
    return [*items[start:], *items[:start]]


def _free(colours: list[str], markers: list[str], chosen: Mapping[str, Look]) -> Look:
    """The first colour and marker that no label has; else the first pair."""
    taken = set(chosen.values())
    fresh_colours = [c for c in colours if c not in {look.colour for look in taken}]
    fresh_markers = [m for m in markers if m not in {look.marker for look in taken}]
    pairs = (Look(c, m) for m in fresh_markers or markers for c in fresh_colours or colours)
    return next((look for look in pairs if look not in taken), Look(colours[0], markers[0]))
