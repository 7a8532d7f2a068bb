"""Tuning on an equal budget: the same tries for every model, judged on validation images."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
from scipy.stats import qmc

from vision_attn.data.augment import AugmentConfig
from vision_attn.errors import UserError
from vision_attn.files import write_text, writing
from vision_attn.study.cells import Cell, Plan, with_config
from vision_attn.study.cells import plan as make_plan
from vision_attn.study.config import Study
from vision_attn.study.result import Result
from vision_attn.study.store import Store
from vision_attn.texts import csv_text
from vision_attn.training.optim import OptimConfig
from vision_attn.training.run import RunConfig

__all__ = ["settings", "tune"]

COLUMNS = (
    "model", "size", "steps", "control", "try", "lr", "weight_decay", "augment", "status",
    "val_acc", "val_loss", "chosen",
)  # fmt: skip

Group = tuple[str, int | None, int, str]


def settings(study: Study) -> list[tuple[OptimConfig, AugmentConfig]]:
    """The tries, for every model: the study's own settings, then points of a Halton sequence.

    So on the validation images the winner is never behind the settings without tuning.
    """
    tries = [(study.optim, study.augment)]
    points = qmc.Halton(d=3, scramble=False).random(study.tune)[1:]  # its first point is a corner
    for lr, decay, strength in points:
        optim = replace(
            study.optim,
            lr=_between(study.tuning.lr, lr),
            weight_decay=_between(study.tuning.weight_decay, decay),
        )
        choice = study.tuning.augment or [study.augment]
        tries.append((optim, choice[int(strength * len(choice))]))
    return tries


def tune(plan: Plan, store: Store, run: Callable[[Plan, Store], object]) -> Plan:
    """The plan with the settings that won: N tries a (model, size, budget, control), on draw 0.

    Tries are kept under DIR/tuning, as cells are; tuning.csv lists them and the winners. The best
    validation accuracy wins, then the lower validation loss, then the earlier try.

    Args:
        run: runs the cells of a plan into a store without looking at test images.

    Raises:
        UserError: every try of one model and size failed.
    """
    under = Store(store.root / "tuning")
    with writing(under.cells):
        under.cells.mkdir(parents=True, exist_ok=True)
    whole = replace(plan.study, draws=1, first_draw=0) if plan.study.first_draw else None
    cells = make_plan(whole, plan.source).cells if whole else plan.cells
    first = {_group(c): c for c in cells if (c.config.draw, c.config.seed) == (0, 0)}
    tries = {
        group: [
            with_config(c, plan.source, optim=optim, augment=augment)
            for optim, augment in settings(plan.study)
        ]
        for group, c in first.items()
    }
    every = {c.key: c for cells in tries.values() for c in cells}
    run(replace(plan, cells=list(every.values())), under)
    rows: list[dict[str, Any]] = []
    winners: dict[Group, RunConfig] = {}
    for group, cells in tries.items():
        results = [under.result(c, test=False) for c in cells]
        best = _best(results)
        if best is None:
            raise UserError(
                f"all {len(cells)} tries of {group[0]} at {group[1]} images failed;"
                f" {under.cells} says why"
            )
        winners[group] = cells[best].config
        for i, (cell, result) in enumerate(zip(cells, results, strict=True)):
            config = cell.config
            rows.append(
                dict(zip(COLUMNS, group, strict=False))
                | {"try": i, "lr": config.optim.lr, "weight_decay": config.optim.weight_decay}
                | {"augment": _describe(config.augment), "chosen": i == best}
                | {k: getattr(result, k, None) for k in ("status", "val_acc", "val_loss")}
            )
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    write_text(store.root / "tuning.csv", csv_text(table, lineterminator="\n"))
    best_cells = [
        with_config(c, plan.source, optim=winner.optim, augment=winner.augment)
        for c in plan.cells
        for winner in [winners[_group(c)]]
    ]
    return replace(plan, cells=best_cells)


def _best(results: Sequence[Result | None]) -> int | None:
    """Which try wins; None where all failed."""
    scores = {
        i: (r.val_acc, -math.inf if r.val_loss is None else -r.val_loss, -i)
        for i, r in enumerate(results)
        if r is not None and r.status == "ok"
    }
    return max(scores, key=lambda i: scores[i], default=None)


def _group(cell: Cell) -> Group:
    c = cell.config
    return cell.arm.label, c.size, c.steps, c.control


def _between(span: tuple[float, float], share: float) -> float:
    """A point on a log scale, to three digits, which are easy to read."""
    low, high = map(math.log, span)
    return float(f"{math.exp(low + share * (high - low)):.3g}")


def _describe(config: AugmentConfig) -> str:
    """The options that differ from no augmentation."""
    plain = AugmentConfig()
    changed = {k: v for k, v in vars(config).items() if v != getattr(plain, k)}
    return " ".join(f"{k}={v}" for k, v in changed.items()) or "none"
