"""The tries of tuning: the same for every model, spread evenly."""

from vision_attn.data.augment import AugmentConfig
from vision_attn.study.config import Study, Tuning
from vision_attn.study.tune import settings


def test_tries_are_the_same_for_all_and_begin_with_the_study() -> None:
    strong = AugmentConfig(pad=1)
    study = Study(tune=9, tuning=Tuning(augment=[AugmentConfig(), strong]))
    made = settings(study)
    assert len(made) == 9
    assert made[0] == (study.optim, study.augment)
    rates = [optim.lr for optim, _ in made[1:]]
    assert len(set(rates)) == 8
    assert min(rates) >= 3e-4
    assert max(rates) <= 6e-3
    assert sum(r < (3e-4 * 6e-3) ** 0.5 for r in rates) in (4, 5)  # evenly on the log scale
    assert {id(augment) for _, augment in made[1:]} == {id(a) for a in study.tuning.augment}
    assert settings(Study(tune=3))[:2] == settings(Study(tune=5))[:2]
