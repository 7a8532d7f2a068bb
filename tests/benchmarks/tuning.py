"""What N tries of `--tune` find on digits: Halton points against Optuna's TPE, repeat by repeat.

    python tests/benchmarks/tuning.py --repeats 6 --tries 8 --steps 60

A repeat is a draw and a seed of TPE;
the settings of the study and the first points are the same for both, as in `compare`. It prints the
best validation accuracy after all tries, the test accuracy of that try, and the means.
"""

import argparse
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from vision_attn.data.sources import DataConfig, load
from vision_attn.study.cells import Cell, plan, with_config
from vision_attn.study.config import Budget, Study, Tuning
from vision_attn.study.tune import _Search, settings
from vision_attn.training.run import run

STUDY = Study(
    args={
        "vit": {"patch_size": 2, "embed_dim": 24, "depth": 1, "num_heads": 3},
        "cnn": {"widths": [8, 16]},
    },
    sizes=[200],
    rows=1,
)


def main() -> None:
    """Print a row a repeat and model, then the paired differences."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--tries", type=int, default=8)
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    source = load(DataConfig())
    budget = Budget(steps=given.steps)
    study = replace(STUDY, budget=budget, draws=given.repeats, tune=given.tries)
    known: dict[str, dict[str, Any]] = {}

    def tried(cell: Cell) -> dict[str, Any]:
        if cell.key not in known:
            with tempfile.TemporaryDirectory() as folder:
                known[cell.key] = run(cell.config, source, Path(folder))
        return known[cell.key]

    def best(cell: Cell, sampler: Any) -> tuple[float, float]:
        """Validation and test accuracy of the try with the best validation."""
        mine = replace(study, tuning=Tuning(sampler=sampler))
        cells = [with_config(cell, source, optim=o, augment=a) for o, a in settings(mine)]
        if sampler == "tpe":
            search, told = _Search(mine, seed=cell.config.draw), 0
            while len(cells) < given.tries:
                for one in cells[told:]:
                    result: Any = SimpleNamespace(status="ok", **tried(one))
                    search.tell(one.config, result)
                told = len(cells)
                optim, augment = search.ask()
                cells.append(with_config(cell, source, optim=optim, augment=augment))
        scores = [tried(c) for c in cells]
        top = max(scores, key=lambda s: (s["val_acc"], -s["val_loss"]))
        return top["val_acc"], top["test_acc"]

    rows = []
    for cell in plan(study, source).cells:
        rows.append([*best(cell, "halton"), *best(cell, "tpe")])
        said = "  ".join(f"{100 * v:5.1f}" for v in rows[-1])
        print(f"{cell.arm.label:4} draw {cell.config.draw}  {said}", flush=True)
    table = 100 * np.array(rows)
    print("means           ", "  ".join(f"{v:5.1f}" for v in table.mean(0)))
    for name, gap in zip(("val", "test"), (table[:, 2:] - table[:, :2]).T, strict=True):
        error = gap.std(ddof=1) / len(gap) ** 0.5
        print(f"tpe - halton, {name}: {gap.mean():+.2f} points, standard error {error:.2f}")


if __name__ == "__main__":
    main()
