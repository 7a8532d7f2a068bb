"""The tables of a study as text cells, and these as Markdown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from vision_attn.report.analysis import Analysis, Comparison, Setting
from vision_attn.report.comparison import Change
from vision_attn.report.numbers import (
    difference_cell,
    mean_and_half,
    number,
    short,
    times_cell,
    too_wide,
    with_interval,
)
from vision_attn.texts import in_markdown

__all__ = [
    "Block",
    "as_markdown",
    "distances",
    "failures",
    "in_short",
    "laws",
    "markdown",
    "matching",
    "matching_words",
    "page_blocks",
    "paired",
    "results_blocks",
    "split",
    "tuning",
]

_WIDE = 3
"""Models up to which accuracy and gap stand in one table."""

_MEASURES = {"test_acc": ("test", "test accuracy"), "gap": ("gap", "gap")}
"""Word of a measure in a column's name, and in a title."""


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


def results_blocks(analysis: Analysis) -> list[Block]:
    """Test accuracy and gap by size in per cent, a table a protocol and control.

    With many models accuracy and gap are two tables. `*` marks gaps where not every run fitted.
    """
    blocks = []
    for setting in analysis.settings:
        models = sorted(setting.of(analysis.summary)["model"].unique())
        together = len(models) <= _WIDE
        for group in [list(_MEASURES)] if together else [[m] for m in _MEASURES]:
            words = [setting.words] if len(analysis.settings) > 1 else []
            words += [] if together else [_MEASURES[group[0]][1]]
            block = _results_block(analysis, setting, models, group)
            blocks.append(Block(", ".join(words).capitalize(), *block))
    return blocks


def _results_block(
    analysis: Analysis, setting: Setting, models: Sequence[str], measures: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    header = ["images", "draws"]
    for measure in measures:  # where the title says which, a column is a model
        header += [f"{m} {_MEASURES[measure][0]}" if len(measures) > 1 else m for m in models]
    differences = analysis.accuracy.get(setting) if "test_acc" in measures else None
    if differences is not None and analysis.comparison:
        header.append(f"{analysis.comparison.first} - {analysis.comparison.second}")
        differences = differences.set_index("size")
    rows = []
    for size, at in setting.of(analysis.summary).groupby("size", sort=True):
        by_model = at.set_index("model")
        row = [f"{size:,}", str(at["count"].max())]
        for measure in measures:
            for m in models:
                known = m in by_model.index
                row.append(mean_and_half(by_model.loc[m], measure) if known else "")
        if differences is not None:
            known = size in differences.index
            row.append(difference_cell(differences.loc[size]) if known else "")
        rows.append(row)
    return header, rows


def markdown(analysis: Analysis) -> str:
    """The results as Markdown, in per cent; `*` marks gaps where not every run fitted."""
    return "\n".join(as_markdown(block) for block in results_blocks(analysis))


def as_markdown(block: Block) -> str:
    """A table as Markdown, below its title."""
    header = [in_markdown(name) for name in block.header]
    lines = [header, ["---:"] * len(header), *block.rows]
    text = "".join("| " + " | ".join(line) + " |\n" for line in lines)
    return f"{block.title}\n\n{text}" if block.title else text


def page_blocks(analysis: Analysis) -> list[Block]:
    """Every table of the page, in order."""
    blocks = [
        Block(b.title or "Test accuracy and gap in %", b.header, b.rows)
        for b in results_blocks(analysis)
    ]
    comparison = analysis.comparison
    if comparison:
        blocks.append(paired(comparison))
        if len(analysis.others) > 1:
            blocks.append(distances(comparison.first, analysis.others))
        if len(comparison.split):
            blocks.append(split(comparison))
    blocks += laws(analysis)
    blocks.append(matching(analysis))
    if len(analysis.stored.tuning):
        blocks.append(tuning(analysis.stored.tuning))
    return blocks


def in_short(comparison: Comparison) -> Block:
    """Every measure of two models at the smallest and at the largest size, and its change."""
    c = comparison
    measures: list[tuple[str, pd.DataFrame, str, Change, Callable[[float], float], str]] = [
        (f"accuracy, {c.first} minus {c.second}, points", c.points, "mean", c.change,
         lambda v: 100 * v, ".1f"),
        (f"test error, {c.second} over {c.first}", c.ratio, "ratio", c.ratio_change, np.exp, ".2f"),
        (f"test loss, {c.second} minus {c.first}", c.loss, "mean", c.loss_change, float, ".2f"),
        (f"rise of validation loss, {c.second} minus {c.first}", c.rise, "mean", c.rise_change,
         float, ".2f"),
    ]  # fmt: skip
    sizes = [int(n) for n in dict.fromkeys(c.points["size"].iloc[[0, -1][: len(c.points)]])]
    rows = []
    for name, table, mean, change, scale, form in measures:
        if table.empty:
            continue
        by_size: Any = table.set_index("size")
        row = [name]
        for n in sizes:
            known = n in by_size.index
            row.append(_of_measure(by_size.loc[n], mean, form) if known else "")
        if len(sizes) > 1:
            row.append(_of_change(change, scale, form, ratio=mean == "ratio"))
        rows.append(row)
    multiplier: Any = c.multiplier.set_index("n")
    if any(n in multiplier.index and not multiplier.loc[n, "bound"] for n in sizes):
        cells = [times_cell(multiplier.loc[n]) if n in multiplier.index else "" for n in sizes]
        name = f"images that {c.second} needs, times those of {c.first}"
        rows.append([name, *cells, *[""] * (len(sizes) > 1)])
    header = ["", *(f"{n:,} images" for n in sizes), *["change"] * (len(sizes) > 1)]
    return Block("In short (95 % intervals)", header, rows)


def _of_measure(row: Any, mean: str, form: str) -> str:
    if form != ".1f":
        return with_interval(row, mean, 1, form)
    if too_wide(row["low"], row["high"]):
        return f"{number(100 * row[mean], form)} (too wide)"
    return with_interval(row, mean, 100, form)


def _of_change(change: Change, scale: Callable[[float], float], form: str, *, ratio: bool) -> str:
    if change.draws < 2:
        return "no interval"
    if form == ".1f" and too_wide(change.low, change.high):
        return "too wide"
    sign = "" if ratio else "+"
    mean, *ends = (number(scale(v), sign + form) for v in change[:3])
    return f"{'× ' * ratio}{mean} ({ends[0]} to {ends[1]})"


def paired(comparison: Comparison) -> Block:
    """Two models at each size: difference in points, ratio of errors, multiple of images."""
    first, second = comparison.first, comparison.second
    points: Any = comparison.points.set_index("size")
    gap: Any = comparison.gap.set_index("size")
    loss: Any = comparison.loss.set_index("size")
    ratio: Any = comparison.ratio.set_index("size")
    times: Any = comparison.multiplier.set_index("n")
    rows = []
    for size in points.index:
        row = points.loc[size]
        rows.append(
            [
                f"{size:,}",
                str(int(row["count"])),
                _of_measure(row, "mean", ".1f"),
                _of_measure(gap.loc[size], "mean", ".1f"),
                with_interval(loss.loc[size], "mean", 1, ".2f") if size in loss.index else "",
                with_interval(ratio.loc[size], "ratio", 1, ".2f") if size in ratio.index else "",
                times_cell(times.loc[size]) if size in times.index else "",
                "all" if row["fitted"] == 1 else f"{100 * row['fitted']:.0f} %",
            ]
        )
    header = [
        "images",
        "draws",
        f"accuracy, {first} minus {second}, points",
        f"gap, {second} minus {first}, points",
        f"test loss, {second} minus {first}",
        f"error, {second} over {first}",
        f"images that {second} needs, times those of {first}",
        "runs that fitted",
    ]
    return Block(f"{first} and {second}, paired by draw (95 % intervals)", header, rows)


def distances(first: str, others: Mapping[str, pd.DataFrame]) -> Block:
    """Every other model's difference to the first in points of test accuracy."""
    tables: dict[str, Any] = {m: t.set_index("size") for m, t in others.items()}
    sizes = sorted({int(s) for t in tables.values() for s in t.index})
    rows = [
        [f"{n:,}", *(difference_cell(t.loc[n]) if n in t.index else "" for t in tables.values())]
        for n in sizes
    ]
    return Block(f"{first} minus each other model, points", ["images", *others], rows)


def split(comparison: Comparison) -> Block:
    """The difference under equal epochs as the sum of its two parts."""
    parts = ("total", "undertraining", "generalisation")
    rows = [
        [f"{r['size']:,}", str(r["count"]), *(with_interval(r, p, 100, ".1f", p) for p in parts)]
        for r in comparison.split.to_dict("records")
    ]
    difference = f"{comparison.first} minus {comparison.second}"
    title = f"{difference} under equal epochs, and its two parts, points"
    header = ["images", "draws", "equal epochs", "from undertraining", "from generalisation"]
    return Block(title, header, rows)


def laws(analysis: Analysis) -> list[Block]:
    """The fitted laws with their intervals, and each forecast beside what came."""
    fits, misses = [], []
    for model, law in analysis.laws.items():
        span = f"{law.sizes[0]:,} to {law.sizes[-1]:,}"
        exponent = f"{law.b:.3f} ({law.b_low:.3f} to {law.b_high:.3f})"
        fits.append([model, f"{law.a:.3g}", exponent, f"{100 * law.c:.1f}", span, str(law.draws)])
        for f in law.forecast:
            forecast = f"{100 * f.predicted:.1f} ({100 * f.low:.1f} to {100 * f.high:.1f})"
            misses.append(
                [model, f"{f.size:,}", forecast, f"{100 * f.observed:.1f}", f"{100 * f.miss:+.1f}"]
            )
    blocks = []
    if fits:
        title = (
            "Laws: test error = a · n⁻ᵇ + c of n images; b says how fast it falls (95 % interval),"
            " c what stays"
        )
        header = ["model", "a", "b", "c in %", "fitted on images", "draws"]
        blocks.append(Block(title, header, fits))
        title = "Forecasts at sizes the laws were not fitted to: test error in %, miss in points"
        blocks.append(Block(title, ["model", "images", "forecast", "measured", "miss"], misses))
    if analysis.refused:
        rows = [[model, reason] for model, reason in analysis.refused.items()]
        blocks.append(Block("No law", ["model", "reason"], rows))
    return blocks


def matching(analysis: Analysis) -> Block:
    """Parameters and FLOPs of every model, and what of it was matched."""
    results, costs = analysis.stored.results, analysis.costs
    first = results.groupby("model")[
        [c for c in ("params", "flops", "matched") if c in results]
    ].first()
    rows, stored = [], dict[str, str]()
    for model in sorted(first.index):
        cost = costs.get(model, {})
        params, flops = (float(cost.get(k, first.loc[model, k])) for k in ("params", "flops"))
        stored[model] = str(cost.get("matched") or first.loc[model].get("matched") or "not stored")
        rows.append([model, f"{params:,.0f}", short(flops)])
    words = matching_words(stored)
    rows = [[*row, words[row[0]]] for row in rows]
    return Block("Cost", ["model", "parameters", "FLOPs an image", "matching"], rows)


def matching_words(matched: Mapping[str, str]) -> dict[str, str]:
    """What was made alike, in words: `parameters of vit` for `params of vit`; vit: `reference`."""
    targets = {text.split(" of ", 1)[1] for text in matched.values() if " of " in text}

    def words(model: str, text: str) -> str:
        if model in targets:
            return "reference"
        what, of, target = text.partition(" of ")
        names = {"params": "parameters", "flops": "FLOPs", "both": "parameters and FLOPs"}
        return f"{names.get(what, what)}{of}{target}" if of else text.replace("none", "not matched")

    return {model: words(model, text) for model, text in matched.items()}


def tuning(tries: pd.DataFrame) -> Block:
    """The winner of each group of tries, and how many it won against."""
    group = [c for c in ("model", "size", "steps", "control") if c in tries]
    counts = tries.groupby(group).size()
    chosen = tries[tries["chosen"].astype(str).str.lower().isin(("true", "1", "1.0"))]
    hidden = {*group, "try", "chosen", "status", "val_acc", "val_loss"}
    free = [str(c) for c in tries if c not in hidden]

    def text(value: Any) -> str:
        if isinstance(value, float):
            return f"{value:.3g}"
        return f"{value:,}" if isinstance(value, int) else str(value)

    rows = [
        [
            *(text(r[c]) for c in group),
            text(int(counts.loc[tuple(r[c] for c in group)])),
            *(text(r[c]) for c in free),
            f"{100 * r['val_acc']:.1f}",
        ]
        for r in chosen.to_dict("records")
    ]
    names = ["images" if c == "size" else c for c in group]
    header = [*names, "tries", *free, "validation accuracy in %"]
    return Block("Tuning: what validation chose", header, rows)


def failures(analysis: Analysis) -> Block:
    """The runs that failed, and why."""
    names = ["model", "size", "draw", "seed", "protocol", "control", "error"]
    rows = [
        [f"{r[k]:,}" if k == "size" else "" if pd.isna(r[k]) else str(r[k]) for k in names]
        for r in analysis.failures.to_dict("records")
    ]
    title = f"{len(rows)} run{'s' * (len(rows) != 1)} failed; not counted anywhere"
    return Block(title, names, rows)
