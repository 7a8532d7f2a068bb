"""Which parts of a figure belong to which curve, and what each point says, for the page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from matplotlib.artist import Artist
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

__all__ = ["curves", "mark", "name_curves"]


@dataclass(frozen=True)
class _Mark:
    curve: str
    colour: Any
    points: Sequence[tuple[float, float, str]]


_MARKS: "WeakKeyDictionary[Artist, _Mark]" = WeakKeyDictionary()


def mark(
    artist: Artist, curve: str, colour: Any, points: Sequence[tuple[float, float, str]] = ()
) -> None:
    """Says that an artist is part of a curve, and what its points mean: x, y in data, and words."""
    _MARKS[artist] = _Mark(curve, colour, points)


def _marked(figure: Figure) -> Iterator[tuple[Any, Artist, _Mark]]:
    for axes in figure.axes:
        for artist in (*axes.patches, *axes.collections, *axes.lines, *axes.texts):
            if artist in _MARKS:
                yield axes, artist, _MARKS[artist]


def name_curves(figure: Figure) -> None:
    """Gives each marked part an id: `curve0.0`, `curve0.1` of the first curve, and so on."""
    names: dict[str, int] = {}
    for count, (_, artist, part) in enumerate(_marked(figure)):
        artist.set_gid(f"curve{names.setdefault(part.curve, len(names))}.{count}")


def curves(figure: Figure) -> list[dict[str, Any]]:
    """Each curve as `name`, `colour` and `points`: x, y in the units of the SVG, and words.

    The order is that of `name_curves`. The figure is rendered, so its layout is done.
    """
    scale = 72 / figure.dpi
    height = figure.bbox.height * scale
    rows: dict[str, dict[str, Any]] = {}
    for axes, _, part in _marked(figure):
        row = rows.setdefault(
            part.curve, {"name": part.curve, "colour": to_hex(part.colour), "points": []}
        )
        for x, y, words in part.points:
            right, up = (float(v) * scale for v in axes.transData.transform((x, y)))
            row["points"].append([round(right, 1), round(height - up, 1), words])
    return list(rows.values())
