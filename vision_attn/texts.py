"""Texts of a user (labels, classes, paths, errors) where a program would read more into them."""

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

__all__ = [
    "console",
    "csv_text",
    "in_figure",
    "in_markdown",
    "one_line",
    "program",
    "table_cell",
    "table_text",
    "tally",
]

_FORMULA = re.compile("'*[=+\\-@\t\r]")


def console(**options: Any) -> "Console":
    """A rich console that takes square brackets and colons as they are."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False, **options)


def program() -> str:
    """The command line's own name, as it was typed."""
    typed = Path(sys.argv[0])
    if typed.name == "train.py":
        return "python train.py"
    module = typed.name == "__main__.py" and typed.parent.name == "vision_attn"
    return "python -m vision_attn" if module else "vision-attn"


def one_line(text: object) -> str:
    """Without line breaks, control characters and bytes that are no UTF-8: these as escapes."""
    words = " ".join(str(text).split())
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in words)


def in_figure(text: object, most: int = 40) -> str:
    """For matplotlib: no formula, no more than `most` characters, shortened in the middle.

    A label that begins with `_` would be left out of a legend; a hair space goes before it.
    """
    words = one_line(text)
    if len(words) > most:
        words = words[: most // 2] + "…" + words[len(words) - (most - 1) // 2 :]
    words = words.replace("$", r"\$")
    return f"\u200a{words}" if words.startswith("_") else words


def in_markdown(text: object) -> str:
    """For a Markdown table: neither markup nor a bar between two cells."""
    return re.sub(r"([\\`*\[\]<>|$])", r"\\\1", one_line(text))


def tally(names: Iterable[str]) -> str:
    """`cat 41, dog 12`, the most frequent first."""
    return ", ".join(f"{one_line(name)} {count}" for name, count in Counter(names).most_common())


def table_cell(value: Any) -> Any:
    """A value for a CSV file. Text that a spreadsheet would take for a formula gets a `'`."""
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def table_text(value: Any) -> Any:
    """What `table_cell` was given."""
    marked = isinstance(value, str) and value.startswith("'") and _FORMULA.match(value, 1)
    return value[1:] if marked else value


def csv_text(table: "pd.DataFrame", **options: Any) -> str:
    """A table as CSV, its texts and column names through `table_cell`; numbers stay as they are."""
    safe = table.rename(columns=table_cell)
    for i, kind in enumerate(table.dtypes):
        if kind.kind not in "biuf":
            safe.isetitem(i, [table_cell(v) for v in table.iloc[:, i]])
    return safe.to_csv(index=False, **options)
