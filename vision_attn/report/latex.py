"""Tables of results as LaTeX, for a paper that loads booktabs."""

import re

from vision_attn.report.analysis import Analysis
from vision_attn.report.numbers import FIT
from vision_attn.report.sentences import terms
from vision_attn.report.tables import Block, results_blocks
from vision_attn.texts import one_line

__all__ = ["escaped", "latex"]

_MARKS = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", **{c: rf"\{c}" for c in "&%$#_{}"},
}  # fmt: skip


def escaped(text: object) -> str:
    """Text in which no character is a command of LaTeX."""
    return re.sub(r"[\\~^±&%$#_{}]", lambda m: _MARKS[m[0]], one_line(text))


def latex(analysis: Analysis) -> str:
    r"""One `tabular` a table, to be put between `\begin{table}` and `\end{table}`."""
    head = f"% {one_line(terms(analysis))}; accuracies in per cent\n"
    head += f"% *: not every run fitted (train accuracy of {FIT} or more)\n"
    head += "% needs \\usepackage{booktabs}\n"
    return head + "".join(_tabular(block) for block in results_blocks(analysis))


def _tabular(block: Block) -> str:
    def line(cells: list[str]) -> str:
        return f"{' & '.join(cells)} \\\\\n"

    parts = [f"\n% {one_line(block.title)}\n" if block.title else "\n"]
    parts += [f"\\begin{{tabular}}{{{'r' * len(block.header)}}}\n\\toprule\n"]
    parts += [line([escaped(name) for name in block.header]), "\\midrule\n"]
    parts += [line([_cell(text) for text in row]) for row in block.rows]
    return "".join([*parts, "\\bottomrule\n\\end{tabular}\n"])


def _cell(text: str) -> str:
    """A number with its interval; a true minus, and thousands kept together."""
    text = escaped(text).replace(" $\\pm$ ", "\\,$\\pm$\\,").replace("*", "$^*$")
    return re.sub(r"^-(?=\d)", "$-$", re.sub(r"(?<=\d),(?=\d)", "{,}", text))
