"""The notebooks in docs/: format 4, without outputs, and every cell runs."""

import json
from pathlib import Path
from typing import Any

import matplotlib
import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted(DOCS.glob("*.ipynb"))


def cells_of(path: Path) -> list[dict[str, Any]]:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    cells: list[dict[str, Any]] = notebook["cells"]
    return cells


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_outputs(path: Path) -> None:
    cells = cells_of(path)
    assert len({cell["id"] for cell in cells}) == len(cells) > 10
    for cell in cells:
        keys = {"cell_type", "id", "metadata", "source"}
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            keys |= {"outputs", "execution_count"}
        assert set(cell) == keys
        assert cell["cell_type"] in ("code", "markdown")
        assert "".join(cell["source"]).strip()


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells_run_in_their_order(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DOCS)
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for i, cell in enumerate(cells_of(path)):
            if cell["cell_type"] == "code":
                code = compile("".join(cell["source"]), f"{path.name}, cell {i}", "exec")
                exec(code, names)
        assert all(figure.axes[0].has_data() for figure in map(plt.figure, plt.get_fignums()))
        assert len(plt.get_fignums()) >= 2
    finally:
        plt.close("all")


def test_there_are_the_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["attention", "quickstart"]
