"""Tuning with equal means: the same tries for every model and size, chosen on validation images."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
from scipy.stats import qmc

from vision_attn.data.augment import AugmentConfig
from vision_attn.data.sources import Source
from vision_attn.errors import UserError
from vision_attn.files import write_text, writing
from vision_attn.study.cells import Cell, Plan, with_config
from vision_attn.study.config import Study
from vision_attn.study.store import Store
from vision_attn.texts import csv_text
from vision_attn.training.optim import OptimConfig

__all__ = ["settings", "tune"]

COLUMNS = (
    "model", "size", "steps", "control", "try", "lr", "weight_decay", "augment", "status",
    "val_acc", "val_loss", "chosen",
)  # fmt: skip

Group = tuple[str, int | None, int, str]


def settings(study: Study) -> list[tuple[OptimConfig, AugmentConfig]]:
    """The tries, alike for all: the study's own settings first, then points of a Halton sequence.

    So the winner is never behind the untuned settings on the validation images.
    """
    made = [(study.optim, study.augment)]
    points = qmc.Halton(d=3, scramble=False).random(study.tune)[1:]  # its first point is a corner
    for lr, decay, strength in points:
        optim = replace(
            study.optim,
            lr=_between(study.tuning.lr, lr),
            weight_decay=_between(study.tuning.weight_decay, decay),
        )
        choice = study.tuning.augment or [study.augment]
        made.append((optim, choice[int(strength * len(choice))]))
    return made


def tune(
    study: Study,
    made: Plan,
    source: Source,
    store: Store,
    run: Callable[[list[Cell], Store], int],
) -> Plan:
    """The plan with the settings that won: N tries a (model, size, budget, control), on draw 0.

    Tries are kept under DIR/tuning and taken up again; tuning.csv lists them and who won. `run`
    runs cells into a store without looking at test images. The best validation accuracy wins, then
    the lower validation loss, then the earlier try.

    Raises:
        UserError: every try of one model and size failed.
    """
    tries = settings(study)
    under = Store(store.root / "tuning")
    with writing(under.cells):
        under.cells.mkdir(parents=True, exist_ok=True)
    first = {_group(c): c for c in made.cells if (c.config.draw, c.config.seed) == (0, 0)}
    cells = {
        group: [with_config(c, source, optim=optim, augment=augment) for optim, augment in tries]
        for group, c in first.items()
    }
    every = {c.key: c for group in cells.values() for c in group}
    run(list(every.values()), under)
    rows: list[dict[str, Any]] = []
    won: dict[Group, Cell] = {}
    for group, candidates in cells.items():
        results = [under.result(c, test=False) for c in candidates]
        scores = {
            i: (r.val_acc, -math.inf if r.val_loss is None else -r.val_loss, -i)
            for i, r in enumerate(results)
            if r is not None and r.status == "ok"
        }
        if not scores:
            raise UserError(
                f"all {len(tries)} tries of {group[0]} at {group[1]} images failed;"
                f" {under.cells} says why"
            )
        best = max(scores, key=lambda i: scores[i])
        won[group] = candidates[best]
        for i, (cell, result) in enumerate(zip(candidates, results, strict=True)):
            config = cell.config
            rows.append(
                dict(zip(COLUMNS, group, strict=False))
                | {"try": i, "lr": config.optim.lr, "weight_decay": config.optim.weight_decay}
                | {"augment": _named(config.augment), "chosen": i == best}
                | {k: getattr(result, k, None) for k in ("status", "val_acc", "val_loss")}
            )
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    write_text(store.root / "tuning.csv", csv_text(table, lineterminator="\n"))
    tuned = [
        with_config(
            c, source, optim=won[_group(c)].config.optim, augment=won[_group(c)].config.augment
        )
        for c in made.cells
    ]
    return replace(made, cells=tuned)


def _group(cell: Cell) -> Group:
    c = cell.config
    return cell.label, c.size, c.steps, c.control


def _between(span: tuple[float, float], share: float) -> float:
    """A point on a log scale, to three digits, so that it reads well."""
    low, high = map(math.log, span)
    return float(f"{math.exp(low + share * (high - low)):.3g}")


def _named(config: AugmentConfig) -> str:
    """What differs from no augmentation."""
    plain = AugmentConfig()
    changed = {k: v for k, v in vars(config).items() if v != getattr(plain, k)}
    return " ".join(f"{k}={v}" for k, v in changed.items()) or "none"
