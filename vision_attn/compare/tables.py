"""The study's tables, once as text cells and then as Markdown, for a terminal, or for a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich.console import Group
from rich.table import Table

from vision_attn.compare.runs import select, summarise
from vision_attn.compare.stored import archs
from vision_attn.compare.styles import number, pair
from vision_attn.stats.paired import differences

__all__ = [
    "CONTROLS",
    "PROTOCOLS",
    "Block",
    "main_setting",
    "markdown",
    "results_blocks",
    "terminal",
]

PROTOCOLS = {"steps": "equal updates", "epochs": "equal epochs"}
CONTROLS = {"none": "", "permuted": "pixels permuted", "shuffled": "labels shuffled"}

_WIDE = 3
"""Models up to which accuracy and gap stand in one table."""


@dataclass(frozen=True)
class Block:
    """A table of text cells.

    Args:
        title: what it holds; empty where nothing else could be meant.
        header: one word a column.
        rows: as wide as the header.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def main_setting(results: pd.DataFrame) -> tuple[str, str]:
    """Protocol and control that the verdict is about: equal updates and none where they are."""
    good = results[results["status"] == "ok"]
    held = set(zip(good["protocol"], good["control"], strict=True))
    order = [(p, c) for c in CONTROLS for p in PROTOCOLS]
    return min(held, key=lambda s: (order.index(s) if s in order else len(order), s))


def results_blocks(results: pd.DataFrame) -> list[Block]:
    """Test accuracy and gap by size in per cent, a table a protocol and control.

    With many models accuracy and gap are two tables. `*` marks gaps whose runs did not all fit.
    """
    summary = summarise(results)
    order = [(c, p) for c in CONTROLS for p in PROTOCOLS]
    held = set(zip(summary["control"], summary["protocol"], strict=True))
    keys = sorted(held, key=lambda k: (order.index(k) if k in order else len(order), k))
    blocks = []
    for control, protocol in keys:
        at = summary[(summary["control"] == control) & (summary["protocol"] == protocol)]
        name = ", ".join(
            w for w in (PROTOCOLS.get(protocol, protocol), CONTROLS.get(control, control)) if w
        )
        models = sorted(at["model"].unique())
        two = pair(models, archs(results))
        diffs = None
        if two:
            diffs = differences(select(results, protocol, control), *two).set_index("size")
        measures = {"test_acc": "test", "gap": "gap"}
        groups = [measures] if len(models) <= _WIDE else [{k: v} for k, v in measures.items()]
        for group in groups:
            block = _block(at, models, group, diffs if "test_acc" in group else None, two)
            said = [name] * (len(keys) > 1)
            said += [{"test": "test accuracy", "gap": "gap"}[w] for w in group.values()] * (
                len(groups) > 1
            )
            blocks.append(Block(", ".join(said).capitalize(), *block))
    return blocks


def _block(
    summary: pd.DataFrame,
    models: list[str],
    measures: dict[str, str],
    diffs: pd.DataFrame | None,
    two: tuple[str, str] | None,
) -> tuple[list[str], list[list[str]]]:
    header = ["images", "draws"]
    for name in measures.values():  # where the title says which, a column is a model
        header += [f"{m} {name}" if len(measures) > 1 else m for m in models]
    if diffs is not None and two:
        header.append(f"{two[0]} - {two[1]}")
    rows = []
    for size, at in summary.groupby("size", sort=True):
        by_model = at.set_index("model")
        row = [f"{size:,}", str(at["count"].max())]
        for measure in measures:
            for m in models:
                row.append(value(by_model.loc[m], measure) if m in by_model.index else "")
        if diffs is not None:
            row.append(value(diffs.loc[size]) if size in diffs.index else "")
        rows.append(row)
    return header, rows


def value(row: Any, measure: str | None = None) -> str:
    """Mean and half-width of the interval in points of per cent; a star where not fitted."""
    prefix = f"{measure}_" if measure else ""
    mean, high = row[f"{prefix}mean"], row[f"{prefix}high"]
    text = number(100 * mean, ".1f")
    if pd.notna(high):
        text += f" ± {100 * (high - mean):.1f}"
    return text + ("*" if measure == "gap" and row["fitted"] < 1 else "")


def markdown(results: pd.DataFrame) -> str:
    """The tables as Markdown, in per cent; `*` marks points whose runs did not all fit."""
    parts = []
    for block in results_blocks(results):
        lines = [block.header, ["---:"] * len(block.header), *block.rows]
        text = "".join(
            "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |\n" for line in lines
        )
        parts.append(f"{block.title}\n\n{text}" if block.title else text)
    return "\n".join(parts)


def terminal(results: pd.DataFrame) -> Group:
    """The same tables for a terminal."""
    tables = []
    for block in results_blocks(results):
        title = "accuracy in %, mean ± half of the 95 % interval"
        table = Table(
            title=f"{block.title}: {title}" if block.title else title,
            caption="* not all runs fitted (train accuracy under 99 %)"
            if "*" in str(block.rows)
            else None,
        )
        for name in block.header:
            table.add_column(name, justify="right")
        for row in block.rows:
            table.add_row(*row)
        tables.append(table)
    return Group(*tables)
