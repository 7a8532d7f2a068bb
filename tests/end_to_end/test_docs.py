"""The tour in docs/attention.md: its lines run, its figures are there."""

import re
from collections import Counter
from pathlib import Path
from pydoc import locate

import pytest

import vision_attn

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


def test_every_public_name_has_its_place_in_the_reference() -> None:
    text = "".join(p.read_text(encoding="utf-8") for p in (DOCS / "reference").glob("*.md"))
    shown = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    for path in shown:
        assert locate(path) is not None, path
    homes = {f"{getattr(vision_attn, name).__module__}.{name}" for name in vision_attn.__all__}
    assert [h for h in homes if h not in shown and h.rpartition(".")[0] not in shown] == []


@pytest.mark.parametrize(
    ("original", "translation"),
    [("../README.md", "README.zh.md"), ("attention.md", "attention.zh.md")],
)
def test_translation_has_the_same_commands_figures_and_numbers(
    original: str, translation: str
) -> None:
    texts = [(DOCS / name).read_text(encoding="utf-8") for name in (original, translation)]
    blocks = re.compile(r"^```[\s\S]*?^```$|^    .*$", re.MULTILINE)
    assert blocks.findall(texts[0]) == blocks.findall(texts[1])
    texts = [blocks.sub("", text) for text in texts]
    inline = [Counter(re.findall(r"`[^`\n]+`", text)) for text in texts]
    assert inline[0] == inline[1]
    pictures = [re.findall(r"!\[[^]]*\]\((?:docs/)?([^)]+)\)", text) for text in texts]
    assert pictures[0] == pictures[1]
    texts = [re.sub(r"\]\([^)]*\)|`[^`\n]+`", "", text) for text in texts]
    numbers = [Counter(re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", text)) for text in texts]
    assert numbers[0] == numbers[1]
    assert texts[0].count("\n## ") == texts[1].count("\n## ")
