"""Made results for the tests of reports: rows as results.csv has them, and study.yaml."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from vision_attn.compare.runs import complete
from vision_attn.compare.store import COLUMNS


def row(
    model: str,
    size: int,
    draw: int,
    test: float,
    train: float = 1.0,
    *,
    seed: int = 0,
    protocol: str = "steps",
    control: str = "none",
    params: int | None = None,
) -> dict[str, Any]:
    full = dict.fromkeys(COLUMNS, 1.0)
    params = params or (123456 if model == "vit" else 1234567)
    return full | {
        "model": model, "size": size, "draw": draw, "seed": seed, "status": "ok", "params": params,
        "train_acc": train, "test_acc": test, "gap": train - test, "fitted": train >= 0.99,
        "subset": "s", "error": "", "protocol": protocol, "control": control,
        "arch": model, "matched": "none",
    }  # fmt: skip


def failed(
    model: str, size: int, draw: int, error: str = "RuntimeError: no, thanks"
) -> dict[str, Any]:
    empty = dict.fromkeys(COLUMNS, "")
    where = {"model": model, "size": size, "draw": draw, "seed": 0, "params": 5, "flops": 7}
    return empty | where | {
        "status": "failed", "error": error, "protocol": "steps", "control": "none",
    }  # fmt: skip


def pairs(size: int, cnn: Sequence[float], vit: Sequence[float], **more: Any) -> list[Any]:
    """A cnn and a vit at one size, a draw each."""
    return [row("cnn", size, d, a, **more) for d, a in enumerate(cnn)] + [
        row("vit", size, d, b, **more) for d, b in enumerate(vit)
    ]


def table(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    return complete(pd.DataFrame(rows))


def stored(root: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """A directory with nothing but results.csv."""
    root.mkdir(exist_ok=True)
    with (root / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return root


def study(root: Path, **changes: Any) -> dict[str, Any]:
    """study.yaml of a small study, and what is in it."""
    content: dict[str, Any] = {
        "identity": {"data": {"name": "digits", "fingerprint": "f00d", "img_size": [8, 8]}},
        "args": {"vit": {"depth": 2}, "cnn": {"widths": [3, 5]}},
        "starts": [{"models": ["vit", "cnn"], "sizes": [20, 50], "draws": 2, "batch_size": 16}],
        "costs": {
            "vit": {"params": 4321, "flops": 7654321, "matched": "none"},
            "cnn": {"params": 4300, "flops": 2000000, "matched": "params of vit"},
        },
        "versions": {"torch": "9.8.7"},
        "machine": {"system": "Linux", "cores": 3, "gpu": None},
    }
    content |= changes
    (root / "study.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return content
