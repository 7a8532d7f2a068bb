"""Made results for the tests of reports: rows as results.csv has them, and study.yaml."""

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from vision_attn.report.analysis import Analysis, analyse
from vision_attn.study.result import COLUMNS
from vision_attn.study.results import StoredStudy


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
    arch: str | None = None,
) -> dict[str, Any]:
    full = dict.fromkeys(COLUMNS, 1.0)
    params = params or (123456 if model == "vit" else 1234567)
    return full | {
        "model": model, "size": size, "draw": draw, "seed": seed, "status": "ok", "params": params,
        "train_acc": train, "test_acc": test, "gap": train - test, "fitted": train >= 0.99,
        "subset": "s", "error": "", "protocol": protocol, "control": control,
        "arch": arch or model, "matched": "none",
    }  # fmt: skip


def failed(
    model: str, size: int, draw: int, error: str = "RuntimeError: no, thanks"
) -> dict[str, Any]:
    empty = dict.fromkeys(COLUMNS, "")
    where = {"model": model, "size": size, "draw": draw, "seed": 0, "params": 5, "flops": 7}
    return empty | where | {
        "status": "failed", "error": error, "protocol": "steps", "control": "none", "arch": model,
    }  # fmt: skip


def pairs(size: int, cnn: Sequence[float], vit: Sequence[float], **more: Any) -> list[Any]:
    """A cnn and a vit at one size, a draw each."""
    return [row("cnn", size, d, a, **more) for d, a in enumerate(cnn)] + [
        row("vit", size, d, b, **more) for d, b in enumerate(vit)
    ]


def table(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(rows)


def analysed(rows: Sequence[dict[str, Any]]) -> Analysis:
    return analyse(StoredStudy(table(rows)))


def with_pair(analysis: Analysis, **parts: Any) -> Analysis:
    """The same with parts of the comparison of the pair replaced."""
    assert analysis.pair is not None
    assert analysis.comparison is not None
    changed = {analysis.pair[1]: replace(analysis.comparison, **parts)}
    main = {**analysis.comparisons[analysis.setting], **changed}
    return replace(analysis, comparisons={**analysis.comparisons, analysis.setting: main})


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


SIZES = (250, 500, 1000, 2500, 5000, 10000)


def curve(model: str, noise: float = 0.01, **more: Any) -> list[dict[str, Any]]:
    a, b = (1.7, 0.165) if "cnn" in model else (1.2, 0.09)
    rng = np.random.default_rng(len(model))
    return [
        row(model, n, d, 1 - a * n**-b * np.exp(noise * rng.standard_normal()),
            1.0 if n <= 1000 else 0.9, **more)
        for n in SIZES for d in range(3)
    ]  # fmt: skip


def everything(root: Path) -> Path:
    """A study of which every part of the page can be made."""
    rows = [*curve("cnn"), *curve("vit"), *curve("vit_large", params=999999, arch="vit")]
    for model in ("cnn", "vit"):
        rows += curve(model, 0.02, protocol="epochs")
        rows += curve(model, 0.03, control="permuted") + curve(model, 0.02, control="shuffled")
    rows.append(failed("vit", 250, 7, "Error: <script>alert(1)</script> & more " + "x" * 150))
    stored(root, rows)
    study(root)
    tries = [
        {"model": "cnn", "size": 250, "steps": s, "control": "none", "try": t, "lr": 10.0**-t,
         "weight_decay": 0.05, "augment": "flip", "val_acc": 0.25 + t / 8, "chosen": t == 2}
        for s in (100, 200) for t in (1, 2)
    ]  # fmt: skip
    pd.DataFrame(tries).to_csv(root / "tuning.csv", index=False)
    where = {"model": "vit", "protocol": "steps", "control": "none"}
    looks = [{**where, "size": n, "layer": k, "distance": 4.0 + k} for n in SIZES for k in (0, 1)]
    pd.DataFrame(looks).to_csv(root / "attention.csv", index=False)
    log = [
        {**where, "size": n, "step": s, "train_loss": 2 / s, "val_loss": 2.0, "val_acc": 0.5}
        for n in SIZES for s in (10, 20)
    ]  # fmt: skip
    pd.DataFrame(log).to_csv(root / "training.csv", index=False)
    return root


UNEVEN = [
    *(row("vit", 20, d, t) for d, t in enumerate((0.3, 0.4, 0.5))),
    *(row("cnn", 20, d, t) for d, t in enumerate((0.5, 0.7, 0.9))),
    *(row("vit", 1000, d, t, 0.95) for d, t in enumerate((0.7, 0.8, 0.9))),
    failed("cnn", 1000, 0),
    *(row("cnn", 1000, d, 0.9) for d in (1, 2)),
]
"""Two sizes of two models; one run failed, and the vit did not fit all."""
