"""A study on a terminal: tables that fit its width, then the answers; Markdown where it is none.

No cell wraps. The widest layout that fits is taken: accuracy and gap in one table, then the same
with `69.2±1.6`, then a row a size and model, at last without draws and with shorter labels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vision_attn.report.analysis import Analysis, Setting
from vision_attn.report.numbers import FIT, difference_cell
from vision_attn.report.sentences import lines, short_terms, verdict
from vision_attn.report.tables import Block, as_markdown, at_size, result_cell, results_blocks

__all__ = ["print_block", "shortened", "show"]

_LEAST = 6
"""Characters that a shortened label keeps."""


def show(console: Console, analysis: Analysis) -> None:
    """Print the tables of results and the answers."""
    for setting in analysis.settings:
        _show_results(console, analysis, setting)
    for line in lines(analysis):
        _say(console, Text(f"{line.question}: {line.answer}"))
    if analysis.pair and lines(analysis):
        console.print()
    _say(console, Text(f"In short ({short_terms(analysis)})", style="dim"))
    for answer in verdict(analysis):
        _say(console, Text.assemble(f"{answer.question} ", (answer.answer, "bold")))


def _say(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=not console.is_terminal)


def _show_results(console: Console, analysis: Analysis, setting: Setting) -> None:
    blocks = results_blocks(replace(analysis, settings=(setting,)))
    where = f", {setting.words}" if len(analysis.settings) > 1 else ""
    half = " (± half of the 95 % interval)" if "±" in str([b.rows for b in blocks]) else ""
    note = f"* not every run fitted ({FIT} on train images)" if "*" in str(blocks) else ""
    if console.is_terminal:
        long = _rows_of_models(analysis, setting)
        place = [i for i, name in enumerate(long.header) if name != "draws"]
        rows = [[row[i] for i in place] for row in long.rows]
        last = [Block("", [long.header[i] for i in place], rows)]
        layouts = [blocks, [_tight(block) for block in blocks], [_tight(long)]]
        fits = (x for x in layouts if all(_width(console, b) <= console.width for b in x))
        blocks = next(fits, [_tight(block) for block in last])
    for i, block in enumerate(blocks):
        title = f"{block.title or 'Test accuracy and gap'} in %{where}{half}"
        print_block(console, Block(title, block.header, block.rows), note * (i == len(blocks) - 1))


def _tight(block: Block) -> Block:
    rows = [[text.replace(" ± ", "±") for text in row] for row in block.rows]
    return Block(block.title, block.header, rows)


def _rows_of_models(analysis: Analysis, setting: Setting) -> Block:
    """A row a size and model, each with its difference from the reference."""
    against = analysis.comparisons[setting]
    first = analysis.pair[0] if analysis.pair and against else ""
    rows, last = [], None
    for r in setting.of(analysis.summary).sort_values(["size", "model"]).to_dict("records"):
        size, model = r["size"], r["model"]
        points = at_size(against[model].points, size) if model in against else []
        cells = [f"{size:,}" if size != last else "", str(r["count"]), str(model)]
        cells += [result_cell(r, "test_acc"), result_cell(r, "gap")]
        rows.append([*cells, *["".join(map(difference_cell, points))] * bool(first)])
        last = size
    header = ["images", "draws", "model", "test", "gap"]
    return Block("", header + [f"{shortened([first], 10)[0]} - it"] * bool(first), rows)


def print_block(console: Console, block: Block, note: str = "") -> None:
    """Print a table as wide as it is, its labels shortened where they must be; else Markdown."""
    if not console.is_terminal:
        end = f"\n{note}\n" if note else ""
        console.print(as_markdown(block) + end, soft_wrap=True)
        return
    console.print(block.title)
    over = _width(console, block) - console.width
    if over > 0:
        block = _shorter(block, over)
    console.print(_table(block))
    if note:
        console.print(note)
    console.print()


def _table(block: Block) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1), pad_edge=False)
    for i, name in enumerate(block.header):
        left = name in ("model", "matching")
        table.add_column(Text(name), justify="left" if left else "right", no_wrap=True)
        table.columns[i].overflow = "crop"
    for row in block.rows:
        table.add_row(*(Text(text) for text in row))
    return table


def _width(console: Console, block: Block) -> int:
    return console.measure(_table(block), options=console.options.update(width=9999)).maximum


def _shorter(block: Block, over: int) -> Block:
    """Labels of models cut by `over` characters: in their column, else where they are headers."""
    place = list(block.header).index("model") if "model" in block.header else None
    labels = list(block.header) if place is None else [row[place] for row in block.rows]
    names = shortened(labels, max(_LEAST, max(map(len, labels)) - over))
    if place is None:
        return Block(block.title, names, block.rows)
    rows = zip(block.rows, names, strict=True)
    cut = [[*row[:place], name, *row[place + 1 :]] for row, name in rows]
    return Block(block.title, block.header, cut)


def shortened(labels: Sequence[str], most: int) -> list[str]:
    """Labels of at most `most` characters, cut in the middle; two that differ stay different."""
    made: dict[str, str] = {}
    for label in dict.fromkeys(labels):
        made[label] = next(c for c in _cuts(label, most) if c not in made.values())
    return [made[label] for label in labels]


def _cuts(label: str, most: int) -> Iterator[str]:
    """A label cut to `most` characters: in the middle, then further on, at last with a number."""
    if len(label) <= most:
        yield label
    for tail in range((most - 1) // 2, most):
        yield f"{label[: most - 1 - tail]}…{label[len(label) - tail :] if tail else ''}"
    for number in range(2, 10**6):
        yield f"{label[: most - 1 - len(str(number))]}…{number}"
