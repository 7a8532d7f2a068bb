"""A whole report, for the page as text and in a browser."""

from pathlib import Path

import pytest
from made_study import everything

from vision_attn.report.write import report


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of which every part of the page is made; nobody changes it."""
    root = everything(tmp_path_factory.mktemp("full"))
    report(root, kinds=("svg",))
    return root
