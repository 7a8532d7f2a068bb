"""The phase diagram of relational studies as figures, tables and files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure

from vision_attn.errors import UserError
from vision_attn.files import write_bytes, write_text
from vision_attn.report.chart import Chart
from vision_attn.report.looks import looks as looks_of
from vision_attn.report.numbers import mean_and_half, with_interval
from vision_attn.report.phase import Phase
from vision_attn.report.style import check_kinds, render, style
from vision_attn.report.tables import Block, as_markdown
from vision_attn.texts import csv_text, in_figure

__all__ = ["blocks", "write_phase"]


def write_phase(
    found: Phase,
    out: Path,
    kinds: Sequence[str] = ("svg", "png"),
    looks: Mapping[str, Any] | None = None,
) -> None:
    """Write phase.csv, boundary.csv, phase.md, and the figures `phase` and `phase_accuracy`.

    Args:
        found: what is written.
        out: a directory, new or written by this function.
        kinds: of the figures.
        looks: rcParams of the figures; see `style.options`.

    Raises:
        UserError: `out` holds something else, or an unknown kind.
    """
    check_kinds(kinds)
    tables = {"phase.csv": found.differences, "boundary.csv": found.boundary}
    if out.exists() and any(out.iterdir()) and not all((out / name).is_file() for name in tables):
        raise UserError(f"out {out} exists and is no phase diagram; choose a new directory")
    out.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        write_text(out / name, csv_text(table, lineterminator="\n"))
    text = "\n\n".join(as_markdown(block) for block in blocks(found))
    write_text(out / "phase.md", text + "\n")
    with style(looks):
        for name, figure in (("phase", diagram(found)), ("phase_accuracy", accuracy(found))):
            for kind, content in render(figure, name, kinds).items():
                write_bytes(out / f"{name}.{kind}", content)


def blocks(found: Phase) -> list[Block]:
    """Accuracies and differences by share and size, and where places change, as text."""
    models = [found.model, *found.opponents]
    table = found.differences[found.differences["measure"] == "test_acc"]
    rows = []
    for p, analysis in found.studies.items():
        for size, at in table[table["p"] == p].groupby("size"):
            main = analysis.main[analysis.main["size"] == size].set_index("model")
            means = main.loc[models].to_dict("records")
            by = at.set_index("opponent").loc[found.opponents].to_dict("records")
            cells = [mean_and_half(m["test_acc_mean"], m["test_acc_high"]) for m in means]
            stars = ["*" * (m["fitted"] < 1) for m in means]
            lead = [with_interval(row, "%") for row in by]
            each = [cell + star for cell, star in zip(cells, stars, strict=True)]
            rows.append([f"{p:g}", f"{size:,}", *each, *lead])
    minus = [f"{found.model} - {opponent}" for opponent in found.opponents]
    boundary = found.boundary.to_dict("records")
    places = [[row["opponent"], *_where(row, found.model)] for row in boundary]
    return [
        Block("Test accuracy in %, * not every run fitted", ["p", "images", *models, *minus], rows),
        Block("Where they change places", ["opponent", "at", "place", "draws"], places),
    ]


def _where(row: Mapping[Any, Any], model: str) -> tuple[str, str, str]:
    """A row of `boundaries` in words: of which line, where on it, in how many draws."""
    axis, form = ("p", ".2f") if row["axis"] == "p" else ("n", ",.0f")
    line = f"{row['at']:,.0f} images" if axis == "p" else f"p = {row['at']:g}"
    place = f"{axis} = {with_interval(row, form)}"
    if pd.isna(row["mean"]):
        ends = [model if row[end] > 0 else row["opponent"] for end in ("first", "last")]
        alike = f"{ends[0]} ahead at both ends"
        place = alike if ends[0] == ends[1] else f"{ends[0]} ahead first, {ends[1]} last"
    return line, place, f"{row['crossed']} of {row['count']}"


def diagram(found: Phase) -> Figure:
    """Points by which attention is ahead, a cell a (size, p), a panel an opponent."""
    width, height = matplotlib.rcParams["figure.figsize"]
    figure = Figure(figsize=((0.26 + 0.78 * len(found.opponents)) * width, 0.86 * height))
    table = found.differences[found.differences["measure"] == "test_acc"]
    norm = CenteredNorm(0, max(100 * table["mean"].abs().max(), 1))
    panels = figure.subplots(1, len(found.opponents), squeeze=False, sharey=True)[0]
    for axes, opponent in zip(panels, found.opponents, strict=True):
        rows = table[table["opponent"] == opponent]
        mean = rows.pivot(index="p", columns="size", values="mean")
        cells = axes.imshow(
            100 * mean, cmap="PuOr_r", norm=norm, origin="lower", aspect="auto", alpha=0.85
        )
        for row in rows.to_dict("records"):
            at = mean.columns.get_loc(row["size"]), mean.index.get_loc(row["p"])
            sure = row["low"] * row["high"] > 0
            weight = "bold" if sure else "normal"
            text = f"{100 * row['mean']:+.1f}"
            dark = abs(100 * row["mean"]) > 0.6 * float(norm.vmax or 1)
            axes.text(
                *at, text, ha="center", va="center", size="small", weight=weight,
                color="white" if dark else "black",
            )  # fmt: skip
        _draw_boundary(axes, found.boundary, opponent, mean)
        axes.set_xticks(range(len(mean.columns)), [f"{n:,}" for n in mean.columns])
        axes.set_yticks(range(len(mean.index)), [f"{p:g}" for p in mean.index])
        axes.set_xlabel("training images")
        axes.set_title(in_figure(f"{found.model} minus {opponent}"))
        axes.grid(visible=False)
    panels[0].set_ylabel("share p of images with a relation")
    figure.colorbar(cells, ax=panels, label="points of test accuracy")
    note = "bold: the 95 % interval leaves out 0; line: where places change, with its interval"
    figure.supxlabel(note, size="small", color="0.35")
    return figure


def _draw_boundary(axes: Axes, boundary: pd.DataFrame, opponent: str, cells: pd.DataFrame) -> None:
    """p*(n) with its interval, at the right of the cells, so that it covers no number."""
    rows = boundary[(boundary["opponent"] == opponent) & (boundary["axis"] == "p")].dropna()
    if rows.empty:
        return
    x = np.searchsorted(cells.columns.to_numpy(float), rows["at"]) + 0.38
    y, low, high = (
        np.interp(rows[end], cells.index.to_numpy(float), np.arange(len(cells)))
        for end in ("mean", "low", "high")
    )
    axes.errorbar(x, y, [y - low, high - y], color="black", lw=1.6, marker="o", ms=4, capsize=3)


def accuracy(found: Phase) -> Figure:
    """Test accuracy against training size, a panel a share p."""
    first = next(iter(found.studies.values()))
    models = [found.model, *found.opponents]
    chart = Chart(looks_of(models, first.archs, first.args), models)
    count = len(found.studies)
    panels = chart.grid(1, count, 0.3 + 0.5 * count, 0.95, sharey=True)[0]
    rows = pd.concat(
        [a.main[a.main["model"].isin(models)].assign(p=p) for p, a in found.studies.items()]
    )
    for axes, (p, part) in zip(panels, rows.groupby("p"), strict=True):
        for model, curve in part.groupby("model"):
            chart.curve(axes, curve.sort_values("size"), "test_acc", str(model), "-")
        chart.sizes(axes, part["size"])
        axes.set_title(f"p = {p:g}")
    panels[0].set_ylim(0, 1.03)
    chart.percent(panels[0], "test accuracy")
    chart.legend(panels[0], [chart.handle(m) for m in models], chart.note(rows), len(models))
    return chart.figure
