"""A small study of digits with results that nobody measured, for tests of what is stored."""

from functools import cache
from pathlib import Path
from typing import Any

from vision_attn.data.sources import DataConfig, Source, load
from vision_attn.study.cells import Cell, Plan, plan
from vision_attn.study.config import Budget, Study
from vision_attn.study.store import Store

VIT: dict[str, Any] = {"patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 3}
STUDY = Study(args={"vit": VIT}, sizes=[20], draws=1, budget=Budget(steps=400))
OK: dict[str, Any] = {
    "status": "ok", "error": None, "steps": 400, "epochs": 300.0, "train_acc": 1.0,
    "val_acc": 0.5, "test_acc": 0.75, "train_loss": 0.125, "val_loss": 2.0, "test_loss": 1.5,
    "gap": 0.25, "fitted": True, "seconds": 3.5, "images_per_second": 1714.0, "size": 20,
    "subset": "de5648215dcb627e",
}  # fmt: skip
FAILED = {"status": "failed", "error": "RuntimeError: no luck, today"}


@cache
def digits() -> Source:
    return load(DataConfig())


@cache
def digits_plan() -> Plan:
    return plan(STUDY, digits())


def keep(store: Store, cell: Cell, result: dict[str, Any], log: str = "epoch,step\n") -> Path:
    place = store.scratch(cell)
    (place / "metrics.csv").write_text(log)
    store.keep(cell, place, result)
    return store.cells / cell.key


def half_done(root: Path) -> Store:
    """A study's directory with its ViT done and its CNN failed."""
    store, made = Store(root), digits_plan()
    store.open(made)
    for cell, result in zip(made.cells, (OK, FAILED), strict=True):
        keep(store, cell, result)
    return store


def tree(root: Path) -> dict[str, tuple[int, bytes | None]]:
    """Everything under a path: when it was written, and what it holds."""
    return {
        str(p.relative_to(root)): (p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else None)
        for p in [root, *root.rglob("*")]
    }
