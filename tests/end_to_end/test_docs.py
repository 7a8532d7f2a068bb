"""The tour in docs/attention.md: its lines run, its figures are there."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_code_of_the_tour_runs() -> None:
    text = (DOCS / "attention.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == text.count("```python") > 10
    names: dict[str, object] = {}
    for block in blocks:
        assert "assert" in block or block.startswith(("import", "from"))
        exec(block, names)


def test_figures_of_the_documents_are_there() -> None:
    for page in DOCS.rglob("*.md"):
        for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / path).stat().st_size > 5_000, (page, path)
