"""Figures, tables and the page as files, from stored results alone."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from vision_attn.errors import UserError
from vision_attn.files import write_bytes, write_text, writing
from vision_attn.report.analysis import Analysis, analyse
from vision_attn.report.figures import figures, only
from vision_attn.report.page import MARK, page
from vision_attn.report.style import check_kinds, render, style
from vision_attn.report.tables import latex, markdown
from vision_attn.study.join import join
from vision_attn.study.results import StoredStudy
from vision_attn.study.store import Store
from vision_attn.texts import csv_text

__all__ = ["report"]


def report(
    roots: Path | Sequence[Path],
    out: Path | None = None,
    kinds: Sequence[str] = ("svg", "png"),
    *,
    models: Sequence[str] | None = None,
    reference: str | None = None,
    looks: Mapping[str, Any] | None = None,
    tell: Callable[[int], None] = lambda count: None,
) -> Analysis:
    """Write figures, tables and report.html; returns what they show.

    Args:
        roots: the directory of a study, or several that are joined.
        out: where to; a study's own directory by default, needed where several are joined.
        kinds: of the figures; the page holds them as `svg` whether or not they are kept as such.
        models: of the figures, all by default; tables and text stay whole.
        reference: the model that others are compared with; by default as of `analyse`.
        looks: rcParams of the figures; see `style.options`.
        tell: called with the number of figures before they are drawn.

    Raises:
        UserError: nothing to show, directories that do not fit together, a label that is not
            there, or an `out` that holds something else.
    """
    roots = [roots] if isinstance(roots, Path) else list(roots)
    if not roots:
        raise UserError("no directory is given; give the --out of a compare")
    if out is None and len(roots) > 1:
        raise UserError(f"{len(roots)} directories are joined; say with --out where to")
    check_kinds(kinds)
    own = out is None or (len(roots) == 1 and out.resolve() == roots[0].resolve())
    place = roots[0] if out is None else out
    if not own:
        _check_place(place)
    stored = join(roots)
    analysis = analyse(stored, reference)
    drawn = ("svg", *(k for k in kinds if k != "svg"))
    with style(looks):
        made = list(figures(analysis if models is None else only(analysis, models)))
        tell(len(made))
        pictures = {picture: render(picture.figure, picture.name, drawn) for picture in made}
    text = page(analysis, {picture: files["svg"] for picture, files in pictures.items()})
    with writing(place):
        place.mkdir(parents=True, exist_ok=True)
    _write_tables(place, analysis)
    if own and (place / "cells").is_dir():
        Store(place).write_results()
    if not own:
        _write_sources(place, stored)
    for picture, files in pictures.items():
        for kind in kinds:
            write_bytes(place / f"{picture.name}.{kind}", files[kind])
    write_text(place / "report.html", text)
    return analysis


def _write_tables(place: Path, analysis: Analysis) -> None:
    stored = analysis.stored
    tables = {  # the first three so that the page can be made again where the cells are not
        "training": stored.training,
        "attention": stored.attention,
        "rises": stored.rises,
        "pairs": analysis.pairs,
        "multiplier": analysis.multipliers,
        "stopped": analysis.stopped,
        "online": analysis.online,
    }
    for name, table in tables.items():
        if len(table):
            write_text(place / f"{name}.csv", _csv(table))
    write_text(place / "summary.csv", _csv(analysis.summary))
    write_text(place / "table.md", markdown(analysis))
    write_text(place / "table.tex", latex(analysis))


def _write_sources(place: Path, stored: StoredStudy) -> None:
    """What a report of its own can be made of again, without the directories."""
    write_text(place / "results.csv", _csv(stored.results))
    if len(stored.tuning):
        write_text(place / "tuning.csv", _csv(stored.tuning))
    write_text(place / "studies.yaml", yaml.safe_dump(stored.studies, sort_keys=False))


def _csv(table: pd.DataFrame) -> str:
    return csv_text(table, lineterminator="\n")


def _check_place(out: Path) -> None:
    """Only a new or empty directory, or one that this function filled, is written to."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    file = out / "report.html"
    joined = (out / "studies.yaml").is_file() and not (out / "study.yaml").exists()
    if not joined or not file.is_file() or MARK.encode() not in file.read_bytes():
        raise UserError(f"out {out} exists and is no joined report; choose a new directory")
