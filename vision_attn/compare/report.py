"""Figures, tables and the page, from stored results alone."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import yaml

from vision_attn.compare import details
from vision_attn.compare.draw import render
from vision_attn.compare.gallery import gallery, laws
from vision_attn.compare.join import join
from vision_attn.compare.page import MARK, Picture, page
from vision_attn.compare.remarks import about_controls, about_one, about_split
from vision_attn.compare.runs import select, summarise
from vision_attn.compare.stored import Stored, read_results
from vision_attn.compare.styles import pair
from vision_attn.compare.tables import (
    Block,
    main_setting,
    markdown,
    results_blocks,
    terminal,
)
from vision_attn.compare.verdict import verdict
from vision_attn.errors import UserError
from vision_attn.files import write_bytes, write_text
from vision_attn.stats.multiplier import data_multiplier
from vision_attn.stats.paired import protocol_split

__all__ = ["markdown", "read_results", "report", "terminal"]


def report(roots: Path | Sequence[Path], out: Path | None = None) -> pd.DataFrame:
    """Write figures, tables and report.html; returns the results that they show.

    Args:
        roots: the directory of a study, or several that are joined.
        out: where to; a study's own directory by default, needed where several are joined.

    Raises:
        UserError: nothing to show, directories that do not fit together, or an `out` that holds
            something else.
    """
    roots = [roots] if isinstance(roots, Path) else list(roots)
    if not roots:
        raise UserError("no directory is given; give the --out of a compare")
    if out is None and len(roots) > 1:
        raise UserError(f"{len(roots)} directories are joined; say with --out where to")
    own = out is None or (len(roots) == 1 and out.resolve() == roots[0].resolve())
    place = roots[0] if out is None else out
    if not own:
        _check_place(place)
    stored = join(roots)
    fits = laws(stored.results)
    drawn = gallery(stored, fits[0])
    svgs = {plot.name: render(plot.figure, "svg", plot.name) for plot in drawn}
    pictures = [
        Picture(p.title, p.caption, p.alt, svgs[p.name], tall=wide < high)
        for p in drawn
        for wide, high in [p.figure.get_size_inches()]
    ]
    text = _page(stored, pictures, details.laws(*fits))
    place.mkdir(parents=True, exist_ok=True)
    for name, table in (("training", stored.training), ("attention", stored.attention)):
        if len(table):  # so that the page can be made again where the cells are not
            write_text(place / f"{name}.csv", _csv(table))
    if not own:
        write_text(place / "results.csv", _csv(stored.results))
        if len(stored.tuning):
            write_text(place / "tuning.csv", _csv(stored.tuning))
        write_text(place / "studies.yaml", yaml.safe_dump(stored.studies, sort_keys=False))
    write_text(place / "summary.csv", _csv(summarise(stored.results)))
    write_text(place / "table.md", markdown(stored.results))
    for plot in drawn:
        write_bytes(place / f"{plot.name}.png", render(plot.figure, "png", plot.name))
        write_bytes(place / f"{plot.name}.svg", svgs[plot.name])
    write_text(place / "report.html", text)
    return stored.results


def _csv(table: pd.DataFrame) -> str:
    return table.to_csv(index=False, lineterminator="\n")


def _check_place(out: Path) -> None:
    """Only a new or empty directory, or one that this function filled, is written to."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    file = out / "report.html"
    joined = (out / "studies.yaml").is_file() and not (out / "study.yaml").exists()
    if not joined or not file.is_file() or MARK.encode() not in file.read_bytes():
        raise UserError(f"out {out} exists and is no joined report; choose a new directory")


def _page(stored: Stored, pictures: Sequence[Picture], laws_of: Sequence[Block]) -> str:
    results = stored.results
    protocol, control = main_setting(results)
    runs = select(results, protocol, control)
    main = summarise(runs)
    models = sorted(main["model"].unique())
    two = pair(models, stored.archs)
    blocks: list[Block] = [
        Block(b.title or "Test accuracy and gap in %", b.header, b.rows)
        for b in results_blocks(results)
    ]
    remarks = about_controls(summarise(results))
    sentences = about_one(main)
    title = f"{models[0]} on growing training sets"
    if two:
        title = f"{two[0]} and {two[1]} on growing training sets"
        sentences = verdict(runs, *two, protocol=protocol)
        times = data_multiplier(runs, *two)
        blocks.append(details.pairs(runs, *two, times))
        if len(models) > 2:
            blocks.append(details.distances(runs, two[0], models))
        epochs, steps = (select(results, name, control) for name in ("epochs", "steps"))
        parts = protocol_split(epochs, steps, *two)
        if len(parts):
            blocks.append(details.split(parts, *two))
            remarks.append(about_split(parts, *two))
    blocks += laws_of
    blocks.append(details.matching(results, stored.studies))
    if len(stored.tuning):
        blocks.append(details.tuning(stored.tuning))
    return page(stored, title, sentences, remarks, pictures, blocks)
