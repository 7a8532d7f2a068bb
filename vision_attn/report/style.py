"""The style of the figures, what a user may change of it, and figures as files."""

import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from vision_attn.errors import UserError
from vision_attn.report.marks import name_curves

__all__ = ["KINDS", "options", "render", "style", "styled", "width_and_height"]

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

_ACTIVE: ContextVar[bool] = ContextVar("active", default=False)

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def style(changes: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Our style where the user's rcParams are matplotlib's own, and `changes` over both.

    Inside another one it does nothing.
    """
    if _ACTIVE.get():
        yield
        return
    now, own = matplotlib.rcParams, matplotlib.rcParamsDefault
    ours = {key: value for key, value in _STYLE.items() if now[key] == own[key]}
    with matplotlib.rc_context(ours | dict(changes or {})):
        token = _ACTIVE.set(True)
        try:
            yield
        finally:
            _ACTIVE.reset(token)


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """A function that draws in our style, or as the user's axes are where `ax` is given."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> T:
        if kwargs.get("ax") is not None:
            return draw(*args, **kwargs)
        with style():
            return draw(*args, **kwargs)

    return drawn


def width_and_height() -> tuple[float, float]:
    """Of a figure with one axes, in inches."""
    width, height = matplotlib.rcParams["figure.figsize"]
    return float(width), float(height)


_CANVASES = {"svg": FigureCanvasSVG, "png": FigureCanvasAgg, "pdf": FigureCanvasPdf}
_METADATA: dict[str, dict[str, None]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}

KINDS = tuple(_CANVASES)


def render(figure: Figure, name: str, kinds: Sequence[str] = ("svg", "png")) -> dict[str, bytes]:
    """A figure as `svg`, `png`, `pdf`; the same one gives the same bytes, without date or chance.

    The layout is made here, since `savefig` draws all once more to make it.
    """
    files = {}
    layout = figure.get_layout_engine()
    name_curves(figure)
    fixed: dict[Any, Any] = {"svg.hashsalt": name, "figure.constrained_layout.use": False}
    with style(), matplotlib.rc_context(fixed):
        dpi = matplotlib.rcParams["savefig.dpi"]
        dpi = figure.dpi if dpi == "figure" else dpi
        for kind in kinds:
            figure.set_layout_engine(layout)
            figure.set_dpi(dpi)
            _CANVASES[kind](figure)
            if layout is not None:
                layout.execute(figure)
                figure.set_layout_engine(None)
            content = io.BytesIO()
            figure.savefig(content, format=kind, dpi=dpi, metadata=_METADATA.get(kind))
            files[kind] = content.getvalue()
    figure.set_layout_engine(layout)
    return files


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


class _First(logging.Handler):
    """What matplotlib logs about a file that it reads and does not refuse."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.words = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.words = self.words or " ".join(record.getMessage().split("You probably")[0].split())


def _style_file(file: Path) -> dict[str, Any]:
    log, first = logging.getLogger("matplotlib"), _First()
    if not file.is_file():
        raise UserError(f"style {file} is no file; give a style file of matplotlib")
    log.addHandler(first)
    spread, log.propagate = log.propagate, False
    rules: dict[str, Any] = {}
    try:
        read = matplotlib.rc_params_from_file(file, fail_on_error=True, use_default_template=False)
    except (OSError, ValueError, KeyError) as e:
        first.words = first.words or " ".join(str(e).split())
    else:
        rules = {key: value for key, value in read.items() if key != "backend"}
    finally:
        log.propagate = spread
        log.removeHandler(first)
    if first.words:
        raise UserError(f"style {file} cannot be read: {first.words}")
    return rules
