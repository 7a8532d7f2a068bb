"""Figures and tables from stored results alone."""

import io
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from rich.table import Table

from vision_attn.compare.curves import differences, summarise
from vision_attn.compare.store import COLUMNS, Store, write_bytes, write_text
from vision_attn.errors import UserError

__all__ = ["markdown", "read_results", "report", "terminal"]

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def read_results(root: Path) -> pd.DataFrame:
    """Results of a study's directory: from its cells, else from its results.csv."""
    if (root / "cells").is_dir():
        rows = Store(root).write_results()
        results = pd.DataFrame(rows, columns=list(COLUMNS))
    elif (root / "results.csv").is_file():
        try:
            results = pd.read_csv(root / "results.csv")
        except ValueError as e:
            raise UserError(f"{root / 'results.csv'} cannot be read: {e}") from e
    else:
        raise UserError(f"{root} has neither cells/ nor results.csv; give the --out of a compare")
    missing = [c for c in COLUMNS if c not in results]
    if missing:
        raise UserError(f"{root / 'results.csv'} has no column {missing[0]!r}")
    if not (results["status"] == "ok").any():
        raise UserError(f"{root} holds no finished cell yet")
    return results


def report(root: Path) -> pd.DataFrame:
    """Write summary.csv, table.md and both figures beside the results; returns the results."""
    results = read_results(root)
    summary = summarise(results)
    write_text(root / "summary.csv", summary.to_csv(index=False, lineterminator="\n"))
    write_text(root / "table.md", markdown(results))
    for name, measure, label in (
        ("accuracy_vs_size", "test_acc", "test accuracy"),
        ("gap_vs_size", "gap", "train minus test accuracy"),
    ):
        figure = _figure(summary, measure, label)
        for kind in ("png", "svg"):
            content = io.BytesIO()
            # no date and no random names in the file: the same results give the same bytes
            metadata = {"Date": None} if kind == "svg" else None
            with matplotlib.rc_context({"svg.hashsalt": name}):
                figure.savefig(content, format=kind, dpi=150, metadata=metadata)
            write_bytes(root / f"{name}.{kind}", content.getvalue())
    return results


def _figure(summary: pd.DataFrame, measure: str, label: str) -> Figure:
    """One line a model with its 95 % band; a point is hollow where not all of its runs fitted.

    A bare Figure with its own canvas needs no display, and nothing keeps it open.
    """
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for i, (model, rows) in enumerate(summary.groupby("model", sort=True)):
        colour, marker = _COLOURS[i % len(_COLOURS)], _MARKERS[i % len(_MARKERS)]
        x, y = rows["size"], rows[f"{measure}_mean"]
        name = f"{model} ({_short(rows['params'].iloc[0])} parameters)"
        axes.plot(x, y, color=colour, marker=marker, label=name, zorder=2)
        axes.fill_between(
            x, rows[f"{measure}_low"], rows[f"{measure}_high"], color=colour, alpha=0.15, lw=0
        )
        faces = [colour if f == 1 else "white" for f in rows["fitted"]]
        axes.scatter(x, y, marker=marker, s=36, c=faces, edgecolors=colour, zorder=3)
    sizes = sorted(summary["size"].unique())
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{s:,}" for s in sizes], rotation=0 if len(sizes) < 8 else 45)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("training images")
    axes.set_ylabel(label)
    axes.yaxis.set_major_formatter(lambda v, _: f"{100 * v:.0f} %")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    counts = sorted(summary["count"].unique())
    draws = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    note = f"mean of {draws} draw{'s' * (counts != [1])}"
    note += ", band: 95 % t interval" if counts[-1] > 1 else ""
    note += (
        ", hollow: not fitted (train accuracy under 99 %)" if (summary["fitted"] < 1).any() else ""
    )
    figure.supxlabel(note, fontsize=8, color="0.35")
    return figure


def _cells(results: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table: test accuracy and gap of each model, and their difference."""
    summary = summarise(results)
    models = sorted(summary["model"].unique())
    pair = [m for m in ("cnn", *models) if m in models][:1]
    pair += [m for m in ("vit", *models) if m in models and m not in pair][:1]
    header = ["images", "draws"]
    header += [f"{m} test" for m in models] + [f"{m} gap" for m in models]
    diffs = None
    if len(pair) == 2:
        diffs = differences(results, pair[0], pair[1], "test_acc").set_index("size")
        header.append(f"{pair[0]} - {pair[1]}")
    rows = []
    for size, at in summary.groupby("size", sort=True):
        by_model = at.set_index("model")
        row = [f"{size:,}", str(at["count"].max())]
        for measure in ("test_acc", "gap"):
            for m in models:
                row.append(_value(by_model.loc[m], measure) if m in by_model.index else "")
        if diffs is not None:
            row.append(_value(diffs.loc[size], None) if size in diffs.index else "")
        rows.append(row)
    return header, rows


def _value(row: Any, measure: str | None) -> str:
    """Mean and half-width of the interval in points of per cent; a star where not fitted."""
    prefix = f"{measure}_" if measure else ""
    mean, high = row[f"{prefix}mean"], row[f"{prefix}high"]
    text = f"{100 * mean:.1f}"
    if pd.notna(high):
        text += f" ± {100 * (high - mean):.1f}"
    return text + ("*" if measure == "gap" and row["fitted"] < 1 else "")


def markdown(results: pd.DataFrame) -> str:
    """The table as Markdown, in per cent; `*` marks points whose runs did not all fit."""
    header, rows = _cells(results)
    lines = [header, ["---:"] * len(header), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def terminal(results: pd.DataFrame) -> Table:
    """The same table for a terminal."""
    header, rows = _cells(results)
    table = Table(
        title="accuracy in %, mean ± half of the 95 % interval",
        caption="* not all runs fitted (train accuracy under 99 %)" if "*" in str(rows) else None,
    )
    for name in header:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _short(number: float) -> str:
    for unit, scale in (("M", 1e6), ("k", 1e3)):
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    return f"{number:.0f}"
