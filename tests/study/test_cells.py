"""A study's cells: their order, matching, keys and budgets, and what is refused before work."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from vision_attn.data.augment import AugmentConfig
from vision_attn.data.module import ImageData
from vision_attn.data.sources import DataConfig, Source, load
from vision_attn.errors import UserError
from vision_attn.models.cost import cost
from vision_attn.models.registry import create_model
from vision_attn.study.cells import Cell, Plan, plan
from vision_attn.study.config import Budget, Study, Tuning
from vision_attn.training.optim import OptimConfig

KEYS = ["vit-n000020-d0-s0-6675ce621d", "cnn-n000020-d0-s0-e10912a572"]
VIT: dict[str, Any] = {"patch_size": 2, "embed_dim": 24, "depth": 2, "num_heads": 3}


@pytest.fixture(scope="module")
def source() -> Source:
    return load(DataConfig())


def study(**changes: Any) -> Study:
    return Study(**{"args": {"vit": VIT}, "sizes": [20], "draws": 1, **changes})


def keys(made: Plan) -> set[str]:
    return {c.key for c in made.cells}


def the(made: Plan, model: str) -> Cell:
    (cell,) = (c for c in made.cells if c.config.model == model)
    return cell


def test_every_cell_once_draw_by_draw(source: Source) -> None:
    made = plan(study(sizes=[50, 20, "all"], draws=2, seeds=2), source)
    got = [(c.config.draw, c.config.size, c.config.seed, c.config.model) for c in made.cells]
    assert got == [
        (draw, size, seed, model)
        for draw in (0, 1)
        for size in (50, 20, 1078)
        for seed in (0, 1)
        for model in ("vit", "cnn")
    ]
    assert len(keys(made)) == 24
    assert all(c.config.size in (20, 50, 1078) for c in made.cells)


def test_the_default_study_has_36_cells(source: Source) -> None:
    made = plan(Study(), source)
    assert len(made.cells) == 36
    assert sorted({c.config.size for c in made.cells}) == [20, 50, 100, 200, 400, 1078]
    assert {c.config.steps for c in made.cells} == {400}


@pytest.mark.parametrize(
    ("match", "params", "flops"),
    [("params", 0.02, None), ("flops", None, 0.05), ("both", 0.02, 0.1)],
)
def test_cnn_is_matched_and_its_widths_recorded(
    source: Source, match: Any, params: float | None, flops: float | None
) -> None:
    args = {"vit": {"patch_size": 2, "embed_dim": 64, "depth": 4, "num_heads": 4}}
    made = plan(study(args=args, match=match), source)
    cell, target = the(made, "cnn"), the(made, "vit").arm.cost
    matched = {label: arm.matched for label, arm in made.arms.items()}
    assert matched == {"vit": "none", "cnn": f"{match} of vit"}
    assert cell.config.args == made.arms["cnn"].args
    built = create_model("cnn", img_size=(8, 8), in_chans=1, num_classes=10, args=cell.config.args)
    assert cell.arm is made.arms["cnn"]
    assert cell.arm.cost == cost(built, 1, (8, 8))
    assert cell.arm.cost.params == sum(p.numel() for p in built.parameters())
    if params is not None:
        assert abs(cell.arm.cost.params / target.params - 1) <= params
    if flops is not None:
        assert abs(cell.arm.cost.flops / target.flops - 1) <= flops


def test_cnn_can_be_matched_to_a_model_outside_the_study(source: Source) -> None:
    made = plan(study(models=["cnn"]), source)
    beside = plan(study(), source)
    assert made.arms["cnn"].args == beside.arms["cnn"].args
    assert keys(made) < keys(beside)


def test_cnn_is_matched_to_the_first_other_model(source: Source) -> None:
    pixels = {"embed_dim": 12, "depth": 1, "num_heads": 3}
    both = study(models=["cnn", "pixel_vit", "vit"], args={"vit": VIT, "pixel_vit": pixels})
    made = plan(both, source)
    assert made.arms["cnn"].matched == "params of pixel_vit"
    assert abs(made.arms["cnn"].cost.params / made.arms["pixel_vit"].cost.params - 1) <= 0.02
    named = plan(replace(both, match_to="vit"), source)
    assert named.arms["cnn"].matched == "params of vit"
    assert abs(named.arms["cnn"].cost.params / named.arms["vit"].cost.params - 1) <= 0.02


def test_widths_by_hand_and_no_match(source: Source) -> None:
    by_hand = plan(study(args={"vit": VIT, "cnn": {"widths": [3, 5]}}), source)
    assert by_hand.arms["cnn"].args == {"widths": [3, 5]}
    assert by_hand.arms["cnn"].matched == "none"
    free = plan(study(match="none"), source)
    assert free.arms["cnn"].args == {}
    assert free.arms["cnn"].matched == "none"
    # 1x24, 24x24, 24x48, 48x48, 48x96, 96x96 kernels of 3 x 3, their norms, and the head
    convs = 9 * (24 + 24 * 24 + 24 * 48 + 48 * 48 + 48 * 96 + 96 * 96) + 2 * 2 * (24 + 48 + 96)
    assert free.arms["cnn"].cost.params == convs + 97 * 10


BASE = study(models=["vit"])
DECIDES: dict[str, Study] = {
    "args": replace(BASE, args={"vit": VIT | {"depth": 1}}),
    "steps": replace(BASE, budget=Budget(steps=299)),
    "epochs": replace(BASE, budget=Budget(epochs=1)),
    "batch": replace(BASE, batch_size=63),
    "lr": replace(BASE, optim=OptimConfig(lr=1.01e-3)),
    "decay": replace(BASE, optim=OptimConfig(weight_decay=0.04)),
    "smoothing": replace(BASE, optim=OptimConfig(label_smoothing=0.1)),
    "pad": replace(BASE, augment=AugmentConfig(pad=1)),
    "mixup": replace(BASE, augment=AugmentConfig(mixup=0.1)),
    "transforms": replace(BASE, augment=AugmentConfig(transforms=[{"class_path": "RandomInvert"}])),
    "init_args": replace(
        BASE,
        augment=AugmentConfig(transforms=[{"class_path": "RandomInvert", "init_args": {"p": 0.1}}]),
    ),
    "precision": replace(BASE, precision="bf16-mixed"),
    "select": replace(BASE, select="best"),
    "rows": replace(BASE, rows=9),
    "threads": replace(BASE, threads=2),
    "validation": replace(BASE, data=DataConfig(val_fraction=0.2)),
    "size": replace(BASE, sizes=[21]),
}


def test_key_follows_all_that_decides_a_result(source: Source) -> None:
    seen = {next(iter(keys(plan(s, source)))): name for name, s in DECIDES.items()}
    base = next(iter(keys(plan(BASE, source))))
    assert base not in seen, seen[base]
    assert len(seen) == len(DECIDES)
    assert base.startswith("vit-n000020-d0-s0-")


def test_key_follows_the_images(source: Source) -> None:
    for other in (replace(source, fingerprint="another"), replace(source, name="others")):
        assert not keys(plan(BASE, other)) & keys(plan(BASE, source))


@pytest.mark.parametrize(
    "more",
    [
        {"models": ["cnn", "vit"]},
        {"sizes": [100, 20]},
        {"draws": 3},
        {"seeds": 2},
        {"checkpoint": True},
        {"args": {"vit": dict(reversed(VIT.items()))}},
        {"budget": Budget(steps=400)},
        {"data": DataConfig(root="elsewhere", memory_mb=1)},
    ],
)
def test_key_does_not_follow_the_rest(source: Source, more: dict[str, Any]) -> None:
    assert keys(plan(BASE, source)) <= keys(plan(replace(BASE, **more), source))


@pytest.mark.parametrize(
    ("budget", "size", "batch", "updates"),
    [
        (Budget(), 20, 64, 400),
        (Budget(steps=7), 20, 64, 7),
        (Budget(steps=7), 5000, 64, 7),
        (Budget(epochs=3), 20, 64, 3),
        (Budget(epochs=3), 50, 20, 8),
        (Budget(epochs=1), 50, 25, 2),
        (Budget(epochs=1), 51, 25, 3),
        (Budget(epochs=5), 1078, 64, 85),
    ],
)
def test_updates_of_a_budget(budget: Budget, size: int, batch: int, updates: int) -> None:
    assert list(budget.protocols(size, batch).values()) == [updates]


def test_epochs_give_small_sizes_few_updates(source: Source) -> None:
    made = plan(study(models=["vit"], sizes=[20, "all"], budget=Budget(epochs=2)), source)
    assert [c.config.steps for c in made.cells] == [2, 34]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": Budget(steps=0)}, r"budget\.steps is 0; wanted 1 to"),
        ({"budget": Budget(epochs=-1)}, r"budget\.epochs is -1; wanted 1 to"),
        ({"models": ["vit", "vat"]}, "'vat' is not known; try"),
        ({"models": ["timm:resnet17"]}, "'timm:resnet17' is not known; try timm:"),
        ({"models": []}, "models is empty"),
        ({"models": ["vit", "vit"]}, "models .* names one twice"),
        ({"match_to": "vat"}, "'vat' is not known"),
        ({"match_to": "cnn"}, "match_to is cnn"),
        ({"match_to": {"vit": "cnn"}}, r"match_to\.vit is no CNN"),
        ({"match_to": {"cnn": "vat"}}, r"match_to\.cnn is vat, which is no model of the study"),
        ({"reference": "vat"}, "reference is vat, which is no model of the study; "),
        ({"models": ["=vit"]}, "models has '=vit'; wanted NAME or LABEL=NAME"),
        ({"models": ["a="]}, "models has 'a='"),
        ({"models": ["a=vit", "a=cnn"]}, "names one twice"),
        ({"tune": -1}, "tune is -1"),
        ({"tuning": Tuning(lr=(0.1, 0.01))}, r"tuning\.lr is 0\.1 to 0\.01"),
        ({"controls": []}, "controls is empty"),
        (
            {"controls": ["permuted"], "augment": AugmentConfig(pad=2)},
            r"control permuted does not go with augment\.pad",
        ),
        ({"sizes": [1079]}, r"size 1079 is larger than the 1078 .* \(1198 less 120 for validation"),
        ({"sizes": [20, 9]}, "size 9 is smaller than the 10 classes"),
        ({"sizes": []}, "sizes is empty"),
        ({"sizes": [20, 20]}, r"sizes \[20, 20\] names one twice"),
        ({"sizes": ["all", 1078]}, "the same number of images twice"),
        ({"draws": 0}, "draws is 0"),
        ({"seeds": 0}, "seeds is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"rows": 0}, "rows is 0"),
        ({"threads": 0}, "threads is 0"),
        ({"precision": "8"}, "precision '8' is not known; choose one of 32-true"),
        ({"optim": OptimConfig(lr=-0.1)}, r"lr is -0\.1"),
        ({"optim": OptimConfig(warmup=1.5)}, r"warmup is 1\.5; wanted 0 to under 1"),
        ({"augment": AugmentConfig(pad=-1)}, r"augment\.pad is -1"),
        ({"augment": AugmentConfig(pad=1000)}, r"augment\.pad is 1000, and a crop of 8 x 8 pixels"),
        ({"tuning": Tuning(augment=[AugmentConfig(pad=8)])}, r"augment\.pad is 8, and a crop of"),
        ({"augment": AugmentConfig(cutmix=-1)}, r"augment\.cutmix is -1"),
        (
            {"tuning": Tuning(augment=[AugmentConfig(transforms=[{"class_path": "Rotation"}])])},
            "augment.transforms: Rotation: .* has no attribute 'Rotation'",
        ),
        ({"augment_of": {"cnn": AugmentConfig(cutmix=-1)}}, r"augment\.cutmix is -1"),
        ({"augment_of": {"cnn": AugmentConfig(pad=8)}}, r"augment\.pad is 8, and a crop of"),
        ({"augment_of": {"vat": AugmentConfig()}}, r"augment_of\.vat is for no model of the study"),
        ({"augment_of": {"vit": AugmentConfig()}, "tune": 2}, "does not go with augment_of"),
        (
            {"augment_of": {"vit": AugmentConfig(flip=True)}, "controls": ["permuted"]},
            r"permuted does not go with augment\.flip",
        ),
        ({"augment": AugmentConfig(randaugment="auto")}, r"augment\.randaugment 'auto'"),
        ({"data": DataConfig(val_fraction=1.0)}, r"val_fraction 1\.0 is not between 0 and 1"),
        ({"args": {"vit": VIT | {"patch_size": 3}}}, "patch_size 3 does not divide .*; try 2 or 4"),
        ({"args": {"vit": VIT | {"num_heads": 5}}}, "24 is not divisible by num_heads 5; try"),
        ({"args": {"vit": VIT | {"embd_dim": 24}}}, "embd_dim"),
        ({"args": {"vit": VIT | {"img_size": 8}}}, "img_size comes from the data"),
        ({"args": {"vit": VIT, "vat": {}}}, r"args\.vat is for no model"),
        ({"args": {"vit": VIT, "cnn": {"depht": 3}}}, "depht"),
    ],
)  # fmt: skip
def test_bad_studies_are_refused(source: Source, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan(study(**change), source)


def test_a_plan_does_not_depend_on_the_global_generator(source: Source) -> None:
    torch.manual_seed(1)
    first = plan(study(), source)
    torch.manual_seed(2)
    assert plan(study(), source) == first


def test_one_model_has_an_augmentation_of_its_own(source: Source) -> None:
    mixed = AugmentConfig(mixup=0.8)
    one, other = (
        {c.arm.label: c for c in plan(study(models=["vit", "mixed=vit"], **more), source).cells}
        for more in ({}, {"augment_of": {"mixed": mixed}})
    )
    assert one["vit"] == other["vit"]
    assert one["mixed"].config.augment == AugmentConfig()
    assert other["mixed"].config.augment == mixed
    assert one["mixed"].key != other["mixed"].key


@pytest.mark.parametrize(
    "change",
    [{"augment": AugmentConfig(mixup=0.8)}, {"augment_of": {"vit": AugmentConfig(mixup=0.8)}}],
)
def test_odd_batches_are_not_mixed_in_silence(change: dict[str, Any]) -> None:
    study = Study(args={"vit": VIT}, sizes=[25], **change)
    with pytest.raises(UserError, match="batch of 25 is odd"):
        plan(study, load(DataConfig()))


def test_both_budgets_are_two_protocols_and_one_run_where_they_agree(source: Source) -> None:
    both = study(models=["vit"], sizes=[20, 100], batch_size=20, budget=Budget(steps=10, epochs=2))
    got = [(c.config.size, c.config.steps, c.protocols) for c in plan(both, source).cells]
    assert got == [
        (20, 10, ("steps",)), (20, 2, ("epochs",)), (100, 10, ("steps", "epochs")),
    ]  # fmt: skip
    alone = keys(plan(replace(both, budget=Budget(steps=10)), source))
    assert alone < keys(plan(both, source))


def test_a_label_gives_a_model_another_name_and_other_arguments(source: Source) -> None:
    made = plan(
        study(
            models=["vit", "small=vit", "cnn", "small_cnn=cnn"],
            args={"vit": VIT, "small": VIT | {"depth": 1}},
            match_to={"small_cnn": "small"},
        ),
        source,
    )
    assert [(c.arm.label, c.config.model) for c in made.cells] == [
        ("vit", "vit"), ("small", "vit"), ("cnn", "cnn"), ("small_cnn", "cnn"),
    ]  # fmt: skip
    assert made.arms["cnn"].matched == "params of vit"
    assert made.arms["small_cnn"].matched == "params of small"
    for cnn, vit in (("cnn", "vit"), ("small_cnn", "small")):
        assert abs(made.arms[cnn].cost.params / made.arms[vit].cost.params - 1) <= 0.02
    assert made.arms["small"].cost.params < made.arms["vit"].cost.params
    assert made.cells[1].key.startswith("small-n000020-d0-s0-")


def test_controls_are_cells_of_their_own(source: Source) -> None:
    made = plan(study(models=["vit"], controls=["none", "permuted", "shuffled"]), source)
    assert [c.config.control for c in made.cells] == ["none", "permuted", "shuffled"]
    assert keys(plan(study(models=["vit"]), source)) < keys(made)
    assert made.cells[2].key.startswith("vit-shuffled-n000020-d0-s0-")


def test_keys_of_earlier_results_stand() -> None:
    """Results on disk are found again by these keys; options that came later must not move them."""
    made = plan(Study(draws=1, sizes=[20]), load(DataConfig()))
    assert [c.key for c in made.cells] == KEYS


def test_an_arm_says_what_a_model_is(source: Source) -> None:
    args = {"small": VIT}
    made = plan(study(models=["small=vit", "cnn", "linear"], args=args, seeds=2), source)
    assert {label: (arm.arch, arm.attends) for label, arm in made.arms.items()} == {
        "small": ("vit", True), "cnn": ("cnn", False), "linear": ("linear", False),
    }  # fmt: skip
    for cell in made.cells:
        assert cell.arm is made.arms[cell.arm.label]
        assert (cell.config.model, cell.config.args) == (cell.arm.arch, cell.arm.args)


def test_cells_hold_the_subsets_that_they_are_trained_on(source: Source) -> None:
    made = plan(study(models=["linear"], args={}, sizes=[20, "all"], draws=2), source)
    want = [
        ImageData(source=source, size=size, draw=draw).subset.hash
        for draw in (0, 1)
        for size in (20, None)
    ]
    assert [c.subset for c in made.cells] == want
    assert len(set(want)) == 4
