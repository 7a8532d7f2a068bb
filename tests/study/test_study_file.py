"""study.yaml: what another start may change, and what it keeps of all starts."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from made_store import STUDY, VIT, digits, digits_plan, half_done, tree

from vision_attn.data.augment import AugmentConfig
from vision_attn.data.sources import DataConfig, Source
from vision_attn.errors import UserError
from vision_attn.study.cells import Plan, plan
from vision_attn.study.config import Budget, Tuning
from vision_attn.study.store import Store
from vision_attn.study.study_file import identity
from vision_attn.training.optim import OptimConfig


@pytest.fixture(scope="module")
def source() -> Source:
    return digits()


@pytest.fixture(scope="module")
def made() -> Plan:
    return digits_plan()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return half_done(tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"optim": OptimConfig(lr=2e-3)}, r"optim\.lr 0\.001, this one has 0\.002"),
        ({"budget": Budget(steps=11)}, r"budget\.steps 400, this one has 11"),
        ({"tune": 2}, "tune None, this one has 2"),
        ({"augment": AugmentConfig(pad=1)}, r"augment\.pad 0, this one has 1"),
        ({"batch_size": 32}, "batch_size 64, this one has 32"),
        ({"precision": "bf16-mixed"}, "precision 32-true, this one has bf16-mixed"),
        ({"select": "best"}, "select last, this one has best"),
        ({"rows": 5}, "rows 10, this one has 5"),
        ({"threads": 2}, "threads 1, this one has 2"),
        ({"match": "flops"}, "match params, this one has flops"),
        (
            {"augment_of": {"vit": AugmentConfig(pad=1)}},
            r"vit with .*this study has .*'pad': 1.*directory$",
        ),
        ({"args": {"vit": VIT | {"depth": 2}}}, r"vit with .*'depth': 1.*'depth': 2"),
        ({"data": DataConfig(val_fraction=0.2)}, r"data\.val_fraction 0\.1, this one has 0\.2"),
    ],
)
def test_another_configuration_is_refused(
    store: Store, source: Source, change: dict[str, Any], names: str
) -> None:
    before = tree(store.root)
    other = replace(STUDY, **change)
    with pytest.raises(UserError, match=names):
        store.open(plan(other, source))
    assert tree(store.root) == before


def test_a_cnn_without_the_model_it_was_matched_to_is_told_its_widths(
    store: Store, source: Source, made: Plan
) -> None:
    """More draws of the CNN alone: without the other its widths are solved for another."""
    alone = replace(STUDY, models=["cnn"], args={})
    with pytest.raises(UserError, match=r"or the former: --args\.cnn '.*widths.*'$") as e:
        store.open(plan(alone, source))
    args = json.loads(str(e.value).split("'")[-2])
    again = plan(replace(alone, args={"cnn": args}), source)
    store.open(again)
    assert {cell.key for cell in again.cells} < {cell.key for cell in made.cells}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"name": "cifar10", "fingerprint": "f"}, r"data\.name digits, this one has cifar10"),
        ({"fingerprint": "f"}, r"data\.fingerprint \w+, this one has f;"),
    ],
)
def test_other_images_are_refused(
    store: Store, source: Source, made: Plan, change: dict[str, str], names: str
) -> None:
    before = tree(store.root)
    with pytest.raises(UserError, match=names):
        store.check(replace(made, source=replace(source, **change)))
    assert tree(store.root) == before


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"sizes": [50, "all"]},
        {"draws": 3},
        {"seeds": 2},
        {"models": ["vit", "cnn", "pixel_vit"]},
        {"models": ["cnn"]},
        {"models": ["vit", "cnn", "linear"], "augment_of": {"linear": AugmentConfig(pad=1)}},
        {"checkpoint": True},
        {"data": DataConfig(root="elsewhere", memory_mb=7)},
    ],
)
def test_a_study_may_grow(store: Store, source: Source, change: dict[str, Any]) -> None:
    more = replace(STUDY, **change)
    before = tree(store.cells)
    store.open(plan(more, source))
    assert tree(store.cells) == before
    held = yaml.safe_load((store.root / "study.yaml").read_text())
    assert held["args"]["vit"] == VIT
    assert held["costs"]["vit"]["matched"] == "none"
    assert held["costs"]["cnn"]["matched"] == "params of vit"


def started(store: Store, source: Source, *changes: dict[str, Any]) -> list[dict[str, Any]]:
    """The starts that study.yaml keeps after these."""
    for change in changes:
        study = replace(STUDY, **change)
        store.open(plan(study, source))
    return yaml.safe_load((store.root / "study.yaml").read_text())["starts"]


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ([{}], [{}]),
        ([{"draws": 3, "sizes": [20, 50]}], [{"draws": 3, "sizes": [20, 50]}]),  # covers the first
        ([{"models": ["cnn"]}], [{}]),  # is covered by it
        ([{"draws": 3, "models": ["vit"]}], [{}, {"draws": 3, "models": ["vit"]}]),
        ([{"sizes": [50]}, {"sizes": [50, 20]}], [{"sizes": [50, 20]}]),
        ([{"sizes": [50]}, {"controls": ["none", "shuffled"]}],
         [{"sizes": [50]}, {"controls": ["none", "shuffled"]}]),
        ([{"budget": Budget(epochs=2)}], [{}, {"budget": Budget(epochs=2)}]),
        ([{"budget": Budget(steps=400, epochs=2)}], [{"budget": Budget(steps=400, epochs=2)}]),
        ([{"measure": True}, {"checkpoint": True}], [{"measure": True}, {"checkpoint": True}]),
        ([{"data": DataConfig(root="elsewhere")}], [{"data": DataConfig(root="elsewhere")}]),
    ],
)  # fmt: skip
def test_study_yaml_keeps_what_makes_all_runs_again(
    store: Store, source: Source, changes: list[dict[str, Any]], kept: list[dict[str, Any]]
) -> None:
    studies = [plan(replace(STUDY, **change), source).study for change in kept]
    want = [json.loads(json.dumps(asdict(study))) for study in studies]
    assert started(store, source, *changes) == want


def test_the_last_reference_that_is_named_stays(store: Store, source: Source) -> None:
    held = []
    for name in (None, "vit", None, "cnn", "vit"):
        started(store, source, {"reference": name})
        held.append(yaml.safe_load((store.root / "study.yaml").read_text()).get("reference"))
    assert held == [None, "vit", "vit", "cnn", "vit"]


def test_an_earlier_study_yaml_goes_on(store: Store, source: Source) -> None:
    file = store.root / "study.yaml"
    held = yaml.safe_load(file.read_text())
    held["study"] = held.pop("starts")[0]
    file.write_text(yaml.safe_dump(held))
    got = started(store, source, {"draws": 3, "models": ["vit"]})
    assert [s["draws"] for s in got] == [STUDY.draws, 3]


def test_arguments_of_a_model_left_out_still_bind(store: Store, source: Source) -> None:
    less = replace(STUDY, models=["cnn"])
    store.open(plan(less, source))
    other = replace(STUDY, models=["vit"], args={"vit": VIT | {"depth": 2}})
    with pytest.raises(UserError, match="holds vit with"):
        store.check(plan(other, source))


def test_study_yaml_says_what_was_run(store: Store, made: Plan) -> None:
    held = yaml.safe_load((store.root / "study.yaml").read_text())
    assert held["starts"][0]["optim"]["lr"] == 1e-3
    assert held["starts"][0]["sizes"] == [20]
    assert held["costs"]["vit"]["params"] == made.arms["vit"].cost.params
    assert held["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert {"cores", "gpu", "python"} <= held["machine"].keys()


def test_augmentations_to_choose_from_are_as_before_there_were_transforms(source: Source) -> None:
    invert = [{"class_path": "RandomInvert"}]
    choice = [AugmentConfig(pad=1), AugmentConfig(transforms=invert)]
    tuning = Tuning(sampler="halton", augment=choice)
    made = identity(plan(replace(STUDY, tune=2, tuning=tuning), source))["identity"]
    first, second = made["tuning"]["augment"]
    assert first == {"pad": 1, "flip": False, "randaugment": None, "mixup": 0.0, "cutmix": 0.0}
    assert second["transforms"] == invert
