"""The style of the figures, what a user may change of it, and figures as files."""

import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from vision_attn.errors import UserError

__all__ = ["KINDS", "aslant", "check_kinds", "options", "render", "settle", "style"]

_SIZE = (5.4, 4.2)

# Sizes of letters follow `font.size`, so that one number changes all.
_STYLE: dict[Any, Any] = {
    "figure.figsize": _SIZE,
    "figure.constrained_layout.use": True,
    "figure.labelsize": "medium",
    "figure.titlesize": "small",
    "font.size": 11,
    "savefig.dpi": 150,
    "pdf.fonttype": 42,  # letters that a journal can search
    "axes.titlesize": "medium",
    "axes.titley": 1.0,  # found out anew at each draw otherwise
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": "small",
    "ytick.labelsize": "small",
    "legend.fontsize": "small",
    "legend.frameon": False,
    "legend.title_fontsize": "small",
}


KINDS = ("svg", "png", "pdf")
_METADATA: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def check_kinds(kinds: Sequence[str]) -> None:
    """UserError for a kind of file that is not in `KINDS`."""
    for kind in kinds:
        if kind not in KINDS:
            raise UserError(f"format {kind!r} is not known; choose from {', '.join(KINDS)}")


@contextmanager
def style(changes: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Our style where the user's rcParams are matplotlib's own, and `changes` over both."""
    now, own = matplotlib.rcParams, matplotlib.rcParamsDefault
    ours = {key: value for key, value in _STYLE.items() if now[key] == own[key]}
    with matplotlib.rc_context(ours | dict(changes or {})):
        yield


def render(figure: Figure, name: str, kinds: Sequence[str] = ("svg", "png")) -> dict[str, bytes]:
    """A figure as `svg`, `png`, `pdf`; the same one gives the same bytes, without date or chance.

    It is laid out once, for all kinds.
    """
    dpi = matplotlib.rcParams["savefig.dpi"]
    dpi = figure.dpi if dpi == "figure" else dpi
    figure.set_dpi(dpi)
    FigureCanvasAgg(figure)
    settle(figure)
    figure.set_layout_engine("none")
    files = {}
    with matplotlib.rc_context({"svg.hashsalt": name}):
        for kind in kinds:
            content = io.BytesIO()
            figure.savefig(content, format=kind, dpi=dpi, metadata=_METADATA.get(kind))
            files[kind] = content.getvalue()
    return files


def settle(figure: Figure) -> None:
    """Lay a figure out, with numbers aslant where they would touch."""
    layout = figure.get_layout_engine()
    if layout:
        layout.execute(figure)
    turned = [aslant(axes) for axes in figure.axes]
    if any(turned) and layout:
        layout.execute(figure)


def aslant(axes: Axes) -> bool:
    """Turn the numbers below axes where less than half a letter is between two of them."""
    labels = [label for label in axes.get_xticklabels() if label.get_text()]
    boxes = [label.get_window_extent() for label in labels if not label.get_rotation()]
    near = any(b.x0 - a.x1 < a.height / 3 for a, b in pairwise(boxes))
    if near:
        axes.tick_params("x", rotation=45)
    return near


def options(
    *,
    width: float | None = None,
    font: float | None = None,
    dpi: int | None = None,
    file: str | None = None,
) -> dict[str, Any]:
    """The rcParams that a user asks for.

    Args:
        width: of a figure with one axes, in inches.
        font: size of the letters in points.
        dpi: of PNG.
        file: a style file of matplotlib; the other three go over it.

    Raises:
        UserError: a value out of range, or a file that is no style.
    """
    for name, value, least, most in (
        ("width", width, 2, 30), ("font", font, 4, 40), ("dpi", dpi, 30, 1200),
    ):  # fmt: skip
        if value is not None and not least <= value <= most:
            raise UserError(f"{name} is {value}; wanted {least} to {most}")
    changes = {} if file is None else _style_file(Path(file))
    if width is not None:
        changes["figure.figsize"] = (width, width * _SIZE[1] / _SIZE[0])
        thin = min(1.0, max(0.65, width / _SIZE[0]))
        changes = {"lines.linewidth": 1.5 * thin, "lines.markersize": 6 * thin} | changes
    if font is not None:
        changes["font.size"] = font
    if dpi is not None:
        changes["savefig.dpi"] = dpi
    return changes


def _style_file(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise UserError(f"style {file} is no file; give a style file of matplotlib")
    log, faults = logging.getLogger("matplotlib"), list[str]()

    def keep(record: logging.LogRecord) -> bool:  # of a line that it does not refuse
        faults.append(record.getMessage().split("You probably")[0])
        return False

    rules: dict[str, Any] = {}
    log.addFilter(keep)
    try:
        read = matplotlib.rc_params_from_file(file, fail_on_error=True, use_default_template=False)
        rules = {key: value for key, value in read.items() if key != "backend"}
    except (OSError, ValueError, KeyError) as e:
        faults.append(str(e))
    finally:
        log.removeFilter(keep)
    if faults:
        raise UserError(f"style {file} cannot be read: {' '.join(faults[0].split())}")
    return rules
