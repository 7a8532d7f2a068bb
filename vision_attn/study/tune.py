"""Tuning on an equal budget: as many tries for every model, judged on validation images."""

import math
from collections.abc import Callable, Iterable, Sequence
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
from vision_attn.study.results import read_tries
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
    """Tries that all models share: the study's own settings, then points of a Halton sequence.

    With the sampler tpe they are half of the tries, and `_Search` proposes the others.

    So on the validation images the winner is never behind the settings without tuning.
    """
    tries = [(study.optim, study.augment)]
    count = study.tune if study.tuning.sampler == "halton" else (study.tune + 1) // 2
    points = qmc.Halton(d=3, scramble=False).random(count)[1:]  # its first point is a corner
    for lr, decay, strength in points:
        optim = replace(
            study.optim,
            lr=_between(study.tuning.lr, lr),
            weight_decay=_between(study.tuning.weight_decay, decay),
        )
        choice = _augments(study)
        tries.append((optim, choice[int(strength * len(choice))]))
    return tries


def _augments(study: Study) -> list[AugmentConfig]:
    return study.tuning.augment or [study.augment]


class _Search:
    """Settings of one model and size by Optuna's tree-structured Parzen estimator.

    What it proposes follows from the results that it was told, so a study that is started again
    finds its tries in the store.
    """

    def __init__(self, study: Study, seed: int = 0) -> None:
        import optuna
        from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.optuna, self.study = optuna, study
        self.spans = {"lr": study.tuning.lr, "weight_decay": study.tuning.weight_decay}
        self.ranges: dict[str, BaseDistribution] = {
            name: FloatDistribution(low, high, log=True) for name, (low, high) in self.spans.items()
        }
        self.ranges["augment"] = IntDistribution(0, len(_augments(study)) - 1)
        sampler = optuna.samplers.TPESampler(n_startup_trials=1, seed=seed)
        self.search = optuna.create_study(direction="maximize", sampler=sampler)

    def tell(self, config: RunConfig, result: Result | None) -> None:
        """Note a try, unless it is out of the ranges."""
        choice = _augments(self.study)
        point = {"lr": config.optim.lr, "weight_decay": config.optim.weight_decay}
        inside = all(low <= point[name] <= high for name, (low, high) in self.spans.items())
        if inside and config.augment in choice and result is not None and result.status == "ok":
            self.search.add_trial(
                self.optuna.trial.create_trial(
                    params={**point, "augment": choice.index(config.augment)},
                    distributions=self.ranges,
                    value=result.val_acc,
                )
            )

    def ask(self) -> tuple[OptimConfig, AugmentConfig]:
        """What to try next."""
        point = self.search.ask(self.ranges).params
        lr, weight_decay = _rounded(point["lr"]), _rounded(point["weight_decay"])
        optim = replace(self.study.optim, lr=lr, weight_decay=weight_decay)
        return optim, _augments(self.study)[point["augment"]]


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
    _run_all(plan, tries.values(), under, run)
    if plan.study.tuning.sampler == "tpe":
        _search(plan, first, tries, under, run)
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
    table = _joined(read_tries(store.root), pd.DataFrame(rows, columns=list(COLUMNS)))
    write_text(store.root / "tuning.csv", csv_text(table, lineterminator="\n"))
    best_cells = [
        with_config(c, plan.source, optim=winner.optim, augment=winner.augment)
        for c in plan.cells
        for winner in [winners[_group(c)]]
    ]
    return replace(plan, cells=best_cells)


def _joined(former: pd.DataFrame, tried: pd.DataFrame) -> pd.DataFrame:
    """The tries of this start, and those of models and sizes that only former ones had."""
    keys = [name for name in COLUMNS[:4] if name in former]
    if keys:
        before, now = (
            [tuple(row) for row in table[keys].astype(object).fillna("").to_numpy()]
            for table in (former, tried)
        )
        again = {*now}
        kept = former[[group not in again for group in before]]
        tried = pd.concat([kept, tried]) if len(kept) else tried
    return tried.sort_values([*COLUMNS[:5]], kind="stable", ignore_index=True)


def _run_all(
    plan: Plan, cells: Iterable[Sequence[Cell]], under: Store, run: Callable[[Plan, Store], object]
) -> None:
    every = {c.key: c for some in cells for c in some}
    run(replace(plan, cells=list(every.values())), under)


def _search(
    plan: Plan,
    first: dict[Group, Cell],
    tries: dict[Group, list[Cell]],
    under: Store,
    run: Callable[[Plan, Store], object],
) -> None:
    """Add what `_Search` proposes: one try of every group at a time, side by side."""
    searches = {group: _Search(plan.study) for group in first}
    told = dict.fromkeys(first, 0)
    while len(next(iter(tries.values()))) < plan.study.tune:
        for group, search in searches.items():
            for cell in tries[group][told[group] :]:
                search.tell(cell.config, under.result(cell, test=False))
            told[group] = len(tries[group])
            optim, augment = search.ask()
            tries[group].append(
                with_config(first[group], plan.source, optim=optim, augment=augment)
            )
        _run_all(plan, [cells[-1:] for cells in tries.values()], under, run)


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
    return _rounded(math.exp(low + share * (high - low)))


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _describe(config: AugmentConfig) -> str:
    """The options that differ from no augmentation."""
    plain = AugmentConfig()
    changed = {k: v for k, v in vars(config).items() if v != getattr(plain, k)}
    return " ".join(f"{k}={v}" for k, v in changed.items()) or "none"
