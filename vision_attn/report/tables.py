"""The tables of a study as text cells, and these as Markdown and LaTeX."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from vision_attn.report import numbers
from vision_attn.report.analysis import Analysis, Comparison, Setting
from vision_attn.report.comparison import MEASURES, ON_IMAGES
from vision_attn.report.sentences import change_text, terms
from vision_attn.stats.paired import RATIO
from vision_attn.texts import in_markdown, one_line

__all__ = [
    "Block", "as_markdown", "at_size", "failures", "in_short", "latex", "markdown",
    "matching_words", "page_blocks", "paired", "result_cell", "results_blocks",
]  # fmt: skip

_WIDE = 3
"""Models up to which accuracy and gap stand in one table."""

_RESULTS = {"test_acc": ("test", "test accuracy"), "gap": ("gap", "gap")}
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
        for group in [list(_RESULTS)] if together else [[m] for m in _RESULTS]:
            words = [setting.words] if len(analysis.settings) > 1 else []
            words += [] if together else [_RESULTS[group[0]][1]]
            title = ", ".join(words).capitalize()
            blocks.append(_results(analysis, setting, models, group, title))
    return blocks


def _results(
    analysis: Analysis, setting: Setting, models: list[str], measures: list[str], title: str
) -> Block:
    header = ["images", "draws"]
    for measure in measures:  # where the title says which, a column is a model
        header += [f"{m} {_RESULTS[measure][0]}" if len(measures) > 1 else m for m in models]
    second = analysis.pair[1] if analysis.pair and "test_acc" in measures else ""
    c = analysis.comparisons[setting].get(second)
    if c:
        header.append(f"{c.first} - {c.second}")
    rows = []
    for size, at in setting.of(analysis.summary).groupby("size", sort=True):
        by_model = at.set_index("model").to_dict("index")
        row = [f"{size:,}", numbers.span(at["count"])]
        row += [result_cell(by_model.get(m), measure) for measure in measures for m in models]
        if c:
            row.append("".join(map(numbers.difference_cell, at_size(c.points, size))))
        rows.append(row)
    return Block(title, header, rows)


def result_cell(row: Any, measure: str) -> str:
    """A row of a summary as of `mean_and_half`, with a star at a gap that was not fitted."""
    if row is None:
        return ""
    text = numbers.mean_and_half(row[f"{measure}_mean"], row[f"{measure}_high"])
    return text + "*" * (measure == "gap" and row["fitted"] < 1)


def at_size(table: pd.DataFrame, size: Any, name: str = "size") -> list[Any]:
    """The row of a size, or none."""
    return table[table[name] == size].to_dict("records")


def markdown(analysis: Analysis) -> str:
    """The results as Markdown, in per cent; `*` marks gaps where not every run fitted."""
    return "\n".join(as_markdown(block) for block in results_blocks(analysis))


def as_markdown(block: Block) -> str:
    """A table as Markdown, below its title."""
    header = [in_markdown(name) for name in block.header]
    lines = [header, ["---:"] * len(header), *block.rows]
    text = "".join("| " + " | ".join(line) + " |\n" for line in lines)
    return f"{block.title}\n\n{text}" if block.title else text


_MARKS = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", **{c: rf"\{c}" for c in "&%$#_{}"},
}  # fmt: skip


def escaped(text: object) -> str:
    """Text in which no character is a command of LaTeX."""
    return re.sub(r"[\\~^±&%$#_{}]", lambda m: _MARKS[m[0]], one_line(text))


def latex(analysis: Analysis) -> str:
    r"""The results as LaTeX: a `tabular` a table, to be put into `\begin{table}`."""
    lines = [f"% {one_line(terms(analysis))}; accuracies in per cent"]
    lines += [f"% *: not every run fitted (train accuracy of {numbers.FIT} or more)"]
    lines += ["% needs \\usepackage{booktabs}"]
    for block in results_blocks(analysis):
        lines += ["", *[f"% {one_line(block.title)}"] * bool(block.title)]
        lines += [f"\\begin{{tabular}}{{{'r' * len(block.header)}}}", "\\toprule"]
        lines += [" & ".join(map(escaped, block.header)) + r" \\", "\\midrule"]
        lines += [" & ".join(map(_latex_cell, row)) + r" \\" for row in block.rows]
        lines += ["\\bottomrule", "\\end{tabular}"]
    return "\n".join(lines) + "\n"


def _latex_cell(text: str) -> str:
    """A number with its interval; a true minus, and thousands kept together."""
    text = escaped(text).replace(" $\\pm$ ", "\\,$\\pm$\\,").replace("*", "$^*$")
    return re.sub(r"^-(?=\d)", "$-$", re.sub(r"(?<=\d),(?=\d)", "{,}", text))


def page_blocks(analysis: Analysis) -> list[Block]:
    """Every table of the page, in order."""
    title = "Test accuracy and gap in %"
    blocks = [replace(b, title=b.title or title) for b in results_blocks(analysis)]
    if comparison := analysis.comparison:
        blocks.append(paired(comparison))
        if len(analysis.comparisons[analysis.setting]) > 1:
            blocks.append(_distances(analysis))
        if len(comparison.split):
            blocks.append(_split(comparison))
    for title, table, columns in (
        ("Offline minus online test error", analysis.online, _ONLINE),
        ("Early-stopped against last weights of the same runs", analysis.stopped, _STOPPED),
    ):
        if len(table):
            blocks.append(_means(f"{title} (95 % intervals)", table, columns))
    blocks += _laws(analysis)
    blocks.append(_matching(analysis))
    if len(analysis.stored.tuning):
        blocks.append(_tuning(analysis.stored.tuning))
    return blocks


def _compared(c: Comparison, measure: str, size: int) -> str:
    form = MEASURES[measure].form
    return "".join(numbers.with_interval(row, form) for row in at_size(c.table(measure), size))


def _times(c: Comparison, size: int) -> str:
    return "".join(map(numbers.times_cell, at_size(c.multiplier, size, "n")))


def _titles(c: Comparison, measures: Sequence[str]) -> list[str]:
    return [MEASURES[m].title.format(a=c.first, b=c.second) for m in measures]


def in_short(c: Comparison) -> Block:
    """Every measure of two models at the smallest and at the largest size, and its change."""
    sizes = list(dict.fromkeys(c.points["size"].iloc[[0, -1][: len(c.points)]]))
    change = ["change"] * (len(sizes) > 1)
    shown = ("test_acc", ON_IMAGES, RATIO, "test_loss", "val_loss_rise")
    measures = [m for m in shown if len(c.table(m))]
    rows = [
        [title, *(_compared(c, m, n) for n in sizes), *[change_text(c, m)] * len(change)]
        for m, title in zip(measures, _titles(c, measures), strict=True)
    ]
    if any(not row["bound"] for n in sizes for row in at_size(c.multiplier, n, "n")):
        name = f"images that {c.second} needs, times those of {c.first}"
        rows.append([name, *(_times(c, n) for n in sizes), *[""] * len(change)])
    header = ["", *(f"{n:,} images" for n in sizes), *change]
    return Block("In short (95 % intervals)", header, rows)


def paired(c: Comparison) -> Block:
    """Two models at each size: differences, ratio of errors, multiple of images."""
    measures = ["test_acc", ON_IMAGES, "gap", "test_loss", RATIO]
    if c.table(ON_IMAGES).empty:
        measures.remove(ON_IMAGES)
    rows = [
        [
            f"{r['size']:,}",
            str(r["count"]),
            *(_compared(c, m, r["size"]) for m in measures),
            _times(c, r["size"]),
            "all" if r["fitted"] == 1 else f"{100 * r['fitted']:.0f} %",
        ]
        for r in c.points.to_dict("records")
    ]
    needs = f"images that {c.second} needs, times those of {c.first}"
    header = ["images", "draws", *_titles(c, measures), needs, "runs that fitted"]
    return Block(f"{c.first} and {c.second}, paired by draw (95 % intervals)", header, rows)


def _distances(analysis: Analysis) -> Block:
    """Every other model's difference to the first in points of test accuracy."""
    others = {model: c.points for model, c in analysis.comparisons[analysis.setting].items()}
    rows = [
        [f"{n:,}"] + ["".join(map(numbers.difference_cell, at_size(t, n))) for t in others.values()]
        for n in sorted({n for table in others.values() for n in table["size"]})
    ]
    first = analysis.pair[0] if analysis.pair else ""
    return Block(f"{first} minus each other model, points", ["images", *others], rows)


def _split(c: Comparison) -> Block:
    """The difference under equal epochs as the sum of its two parts."""
    parts = ("total", "undertraining", "generalisation")
    rows = [
        [f"{r['size']:,}", str(r["count"])]
        + [numbers.with_interval(r | {f"{p}_mean": r[p]}, "%", f"{p}_") for p in parts]
        for r in c.split.to_dict("records")
    ]
    title = f"{c.first} minus {c.second} under equal epochs, and its two parts, points"
    header = ["images", "draws", "equal epochs", "from undertraining", "from generalisation"]
    return Block(title, header, rows)


_ONLINE = {
    "test_acc_": ("accuracy in %, offline", "%"),
    "online_acc_": ("online", "%"),
    "online_gap_": ("difference, points", "%"),
}
_STOPPED = {
    "test_acc_": ("accuracy in %, last", "%"),
    "best_test_acc_": ("early-stopped", "%"),
    "test_acc_gain_": ("difference, points", "%"),
    "test_loss_": ("test loss, last", ".2f"),
    "best_test_loss_": ("early-stopped", ".2f"),
    "test_loss_gain_": ("difference", ".2f"),
    "val_loss_rise_": ("rise of validation loss from its minimum", ".2f"),
}


def _means(title: str, table: pd.DataFrame, columns: Mapping[str, tuple[str, str]]) -> Block:
    """A row a model and size: numbers of images and draws, and means with their intervals."""
    facts = {"size": "images", "online_size": "images of the online run", "count": "draws"}
    facts = {name: word for name, word in facts.items() if name in table}
    columns = {name: words for name, words in columns.items() if f"{name}mean" in table}
    rows = [
        [r["model"], *(f"{r[fact]:,}" for fact in facts)]
        + [numbers.with_interval(r, form, name) for name, (_, form) in columns.items()]
        for r in table.to_dict("records")
    ]
    return Block(title, ["model", *facts.values(), *(words for words, _ in columns.values())], rows)


def _laws(analysis: Analysis) -> list[Block]:
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
    tables = (
        ("Laws: test error = a · n⁻ᵇ + c of n images; b says how fast it falls (95 % interval), c"
         " what stays", ["model", "a", "b", "c in %", "fitted on images", "draws"], fits),
        ("Forecasts at sizes the laws were not fitted to: test error in %, miss in points",
         ["model", "images", "forecast", "measured", "miss"], misses),
        ("No law", ["model", "reason"], [list(pair) for pair in analysis.refused.items()]),
    )  # fmt: skip
    return [Block(*table) for table in tables if table[2]]


def _matching(analysis: Analysis) -> Block:
    """Parameters and FLOPs of every model, and what of it was matched."""
    results = analysis.stored.results
    facts = [c for c in ("params", "flops", "matched") if c in results]
    first: dict[Any, Any] = results.groupby("model")[facts].first().to_dict("index")
    for study in analysis.stored.studies.values():
        for model, cost in study.get("costs", {}).items():
            if model in first:
                first[model] |= cost
    words = matching_words({m: str(f.get("matched") or "not stored") for m, f in first.items()})
    rows = [
        [m, f"{float(first[m]['params']):,.0f}", numbers.short(float(first[m]["flops"])), words[m]]
        for m in sorted(first)
    ]
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


def _tuning(tries: pd.DataFrame) -> Block:
    """The winner of each group of tries, and how many it won against."""
    group = [c for c in ("model", "size", "steps", "control") if c in tries]
    hidden = {*group, "try", "chosen", "status", "val_acc", "val_loss"}
    free = [str(c) for c in tries if c not in hidden]
    table = tries[group].assign(tries=tries.groupby(group)["chosen"].transform("size"))
    table[free] = tries[free]
    table["validation accuracy in %"] = tries["val_acc"].map(numbers.exact)
    chosen = tries["chosen"].astype(str).str.lower().isin(("true", "1", "1.0"))
    return _as_block("Tuning: what validation chose", table[chosen])


def failures(analysis: Analysis) -> Block:
    """The runs that failed, and why."""
    results = analysis.stored.results
    failed = results[results["status"] != "ok"]
    title = f"{len(failed)} run{'s' * (len(failed) != 1)} failed; not counted anywhere"
    names = ["model", "size", "draw", "seed", "protocol", "control", "error"]
    return _as_block(title, failed[names])


def _as_block(title: str, table: pd.DataFrame) -> Block:
    """A data frame as it is; sizes are called images."""

    def text(value: Any) -> str:
        if pd.isna(value):
            return ""
        if isinstance(value, float):
            return f"{value:.3g}"
        return f"{value:,}" if isinstance(value, int) else str(value)

    rows = [[text(value) for value in r.values()] for r in table.to_dict("records")]
    return Block(title, ["images" if c == "size" else str(c) for c in table], rows)
