"""The tries of tuning: as many for every model, spread evenly or as Optuna proposes."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console
from shared import Here, here

from vision_attn.data.augment import AugmentConfig
from vision_attn.data.sources import Source
from vision_attn.errors import UserError
from vision_attn.study.cells import Plan, plan
from vision_attn.study.config import Budget, Study, Tuning
from vision_attn.study.execute import execute
from vision_attn.study.store import Store
from vision_attn.study.tune import settings, tune


def test_tries_are_the_same_for_all_and_begin_with_the_study() -> None:
    strong = AugmentConfig(pad=1)
    study = Study(tune=9, tuning=Tuning(sampler="halton", augment=[AugmentConfig(), strong]))
    made = settings(study)
    assert len(made) == 9
    assert made[0] == (study.optim, study.augment)
    rates = [optim.lr for optim, _ in made[1:]]
    assert len(set(rates)) == 8
    assert min(rates) >= 3e-4
    assert max(rates) <= 6e-3
    assert sum(r < (3e-4 * 6e-3) ** 0.5 for r in rates) in (4, 5)  # evenly on the log scale
    assert {id(augment) for _, augment in made[1:]} == {id(a) for a in study.tuning.augment}
    assert settings(Study(tune=10)) == settings(replace(study, tune=5, tuning=HALTON))


HALTON = Tuning(sampler="halton")
STUDY = Study(
    models=["linear"], args={}, sizes=[20, 50], draws=1, budget=Budget(steps=5), rows=1, tune=5,
)  # fmt: skip


def tuned(study: Study, source: Source, root: Path) -> tuple[Plan, pd.DataFrame, int]:
    """The tuned plan, its table of tries, and how many runs that took."""
    runner, store = Here(source), Store(root)
    made = plan(study, source)
    store.open(made)
    run = partial(execute, start=here(runner), console=Console(quiet=True), tries=True)
    best = tune(made, store, run)
    return best, pd.read_csv(root / "tuning.csv"), len(runner.ran)


def test_tpe_begins_with_the_same_tries_and_goes_on_from_the_store(
    source: Source, tmp_path: Path
) -> None:
    pytest.importorskip("optuna", reason="the extra tune is not installed")
    best, table, ran = tuned(STUDY, source, tmp_path / "a")
    assert ran == 10
    halton = [o.lr for o, _ in settings(replace(STUDY, tuning=HALTON))]
    for _, tries in table.groupby("size"):
        assert tries["lr"].tolist()[:3] == halton[:3]
        assert tries["lr"].tolist()[3:] != halton[3:]
        assert tries["lr"].between(3e-4, 6e-3).all()
        assert tries["weight_decay"].between(0.005, 0.5).all()
        winner = tries[tries["chosen"]].iloc[0]
        assert winner["val_acc"] == tries["val_acc"].max()
    assert {c.config.optim.lr for c in best.cells} == {*table[table["chosen"]]["lr"]}
    again, same, ran = tuned(STUDY, source, tmp_path / "a")
    assert ran == 0
    assert [c.key for c in again.cells] == [c.key for c in best.cells]
    pd.testing.assert_frame_equal(same, table)


def test_a_further_start_keeps_the_table_of_the_tries_before(
    source: Source, tmp_path: Path
) -> None:
    one, all_of_it = tmp_path / "one by one", tmp_path / "all"
    halton = replace(STUDY, tuning=HALTON, tune=2, models=["linear", "second=linear"])
    for part in (
        replace(halton, models=["linear"], sizes=[50]),
        replace(halton, models=["second=linear"]),
        replace(halton, models=["linear"], sizes=[20]),
        replace(halton, models=["linear"], sizes=[50]),
    ):
        _, table, _ = tuned(part, source, one)
    _, whole, ran = tuned(halton, source, all_of_it)
    assert ran == len(whole) == 8
    assert table[["model", "size", "try"]].to_numpy().tolist() == [
        [model, size, i] for model in ("linear", "second") for size in (20, 50) for i in (0, 1)
    ]
    assert (one / "tuning.csv").read_text() == (all_of_it / "tuning.csv").read_text()


def test_a_study_keeps_its_sampler(source: Source, tmp_path: Path) -> None:
    store = Store(tmp_path)
    halton, file = replace(STUDY, tuning=HALTON), tmp_path / "study.yaml"
    store.open(plan(halton, source))
    before_there_was_another = file.read_text().replace("    sampler: halton\n", "")
    assert before_there_was_another != file.read_text()
    file.write_text(before_there_was_another)
    with pytest.raises(UserError, match=r"tuning\.sampler halton, this one has tpe"):
        store.open(plan(STUDY, source))
    store.open(plan(halton, source))


def test_a_sampler_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vision_attn.study.config.find_spec", lambda name: None)
    Study().check()
    replace(STUDY, tuning=HALTON).check()
    with pytest.raises(UserError, match=r"'vision-attn\[tune\]', or take --tuning.sampler halton"):
        STUDY.check()
