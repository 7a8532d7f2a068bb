"""Every stored cell is found again: its key follows from its configuration and its study's data."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from vision_attn.data.augment import AugmentConfig
from vision_attn.models.cost import Cost
from vision_attn.study.cells import Arm, Cell, with_config
from vision_attn.training.optim import OptimConfig
from vision_attn.training.run import RunConfig

RESULTS = Path(__file__).parents[2] / "docs" / "results"
CELLS = sorted(RESULTS.rglob("cells/*/result.json"))


def arm(label: str, config: RunConfig) -> Arm:
    return Arm(label, config.model, config.args, Cost(1, 1), "none", attends=False)


def key(path: Path) -> str:
    """Key of a stored cell, made from nothing but what is stored."""
    row = json.loads(path.read_text(encoding="utf-8"))
    root = path.parents[3 if path.parents[2].name == "tuning" else 2]  # a try is of its study
    study = yaml.safe_load((root / "study.yaml").read_text(encoding="utf-8"))
    values = row["config"]
    config = RunConfig(
        **{
            **values,
            "optim": OptimConfig(**values["optim"]),
            "augment": AugmentConfig(**values["augment"]),
        }
    )
    cell = Cell("", arm(row["model"], config), config, row["subset"], ())
    source: Any = SimpleNamespace(**study["identity"]["data"])
    return with_config(cell, source).key


def of(study: Path) -> str:
    """Where a study lies under docs/results."""
    return study.relative_to(RESULTS).as_posix()


def test_there_are_228_cells_of_the_first_studies() -> None:
    first = ("cifar10_capacity", "cifar10_cpu", "cifar10_fitted", "cifar10_local")
    early = [path for path in CELLS if of(path).startswith(first)]
    assert len(early) == 228


@pytest.mark.parametrize("study", sorted({of(path.parents[2]) for path in CELLS}))
def test_keys_stand(study: str) -> None:
    mine = [path for path in CELLS if of(path.parents[2]) == study]
    assert [key(path) for path in mine] == [path.parent.name for path in mine]


def test_the_key_hangs_on_the_configuration() -> None:
    cell = Cell("", arm("vit", _config()), _config(), "", ())
    source: Any = SimpleNamespace(name="digits", fingerprint="f00d")
    keys = {
        with_config(cell, source, **changes).key
        for changes in (
            {}, {"draw": 1}, {"steps": 7}, {"rows": 3}, {"control": "shuffled"},
            {"optim": replace(cell.config.optim, ema=0.9)}, {"args": {"depth": 2}},
        )
    }  # fmt: skip
    assert len(keys) == 7


def _config() -> RunConfig:
    values = json.loads(CELLS[0].read_text(encoding="utf-8"))["config"]
    return RunConfig(**{**values, "optim": OptimConfig(), "augment": AugmentConfig()})
