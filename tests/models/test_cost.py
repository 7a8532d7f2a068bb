"""Costs equal formulas written by hand, and the matched CNN really costs what the ViT costs."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vision_attn import SmallCNN, VisionTransformer
from vision_attn.errors import UserError
from vision_attn.models.cost import (
    TOLERANCE,
    Cost,
    Match,
    activation_bytes,
    cnn_cost,
    cost,
    match_cnn,
)
from vision_attn.models.registry import create_model

C, CLASSES, D, DEPTH, HEADS, HIDDEN = 7, 11, 15, 2, 3, 39
VIT: dict[str, Any] = {
    "img_size": (6, 10),
    "patch_size": (3, 2),
    "in_chans": C,
    "num_classes": CLASSES,
    "embed_dim": D,
    "depth": DEPTH,
    "num_heads": HEADS,
    "mlp_ratio": HIDDEN / D,
}


@pytest.mark.parametrize("pool", ["avg", "token"])
@pytest.mark.parametrize("projection", ["full", "per_head"])
@pytest.mark.parametrize("score", ["softmax", "relu"])
def test_vit_costs_its_formula(pool: Any, projection: Any, score: Any) -> None:
    vit = VisionTransformer(**VIT, global_pool=pool, projection=projection, score=score)
    patches, extra = 2 * 5, int(pool == "token")
    n = patches + extra
    share = HEADS if projection == "per_head" else 1
    qkv = 3 * D * D // share
    layer = 2 * n * qkv + 4 * n * n * D + 2 * n * D * D + 2 * 2 * n * D * HIDDEN
    flops = 2 * patches * (C * 3 * 2) * D + DEPTH * layer + 2 * D * CLASSES
    mlp = D * HIDDEN + HIDDEN + HIDDEN * D + D
    block = 2 * D + qkv + 3 * D + D * D + D + 2 * D + mlp
    params = (C * 3 * 2 + 1) * D + n * D + DEPTH * block + 2 * D + (D + 1) * CLASSES
    assert cost(vit, C, (6, 10)) == Cost(params, flops)


def test_params_are_the_sum_of_those_that_train() -> None:
    vit = VisionTransformer(**{**VIT, "embed_dim": 12}, pos_embed="sincos2d")
    total = sum(p.numel() for p in vit.parameters())
    assert cost(vit, C, (6, 10)).params == total
    vit.head.requires_grad_(False)
    assert cost(vit, C, (6, 10)).params == total - 13 * CLASSES


@pytest.mark.parametrize("training", [True, False])
def test_measuring_leaves_the_model_as_it_was(training: bool) -> None:
    cnn = SmallCNN((6, 10), C, CLASSES, widths=(5, 13)).train(training)
    before = {k: v.clone() for k, v in cnn.state_dict().items()}
    cost(cnn, C, (6, 10))
    activation_bytes(cnn, C, (6, 10))
    assert cnn.training is training
    assert_close(dict(cnn.state_dict()), before, rtol=0, atol=0)
    assert all(p.grad is None for p in cnn.parameters())


def test_small_cnn_by_hand() -> None:
    got = cnn_cost((5, 13), 1, 3, 2, (4, 6))
    weights = 9 * 3 * 5, 9 * 5 * 13
    params = sum(weights) + 2 * (5 + 13) + (13 + 1) * 2
    flops = 2 * (weights[0] * 4 * 6 + weights[1] * 2 * 3 + 13 * 2)
    assert got == Cost(params, flops)


@pytest.mark.parametrize("img", [(8, 8), (28, 28), (5, 17), (2, 3)])
@pytest.mark.parametrize(("widths", "depth"), [((3,), 2), ((5, 7, 13), 1), ((2, 3, 5, 7), 3)])
def test_closed_form_is_the_measured_cost(
    widths: tuple[int, ...], depth: int, img: tuple[int, int]
) -> None:
    cnn = SmallCNN(img, C, CLASSES, widths=widths, depth=depth)
    assert cnn_cost(widths, depth, C, CLASSES, img) == cost(cnn, C, img)


def test_closed_form_knows_squeeze_and_excitation() -> None:
    given: dict[str, Any] = {"attn_layer": "se"}
    cnn = SmallCNN((5, 9), C, CLASSES, widths=(3, 130, 200), **given)
    assert cnn_cost((3, 130, 200), 2, C, CLASSES, (5, 9), **given) == cost(cnn, C, (5, 9))
    target = Cost(30_000, 10**6)
    widths = match_cnn(target, "params", in_chans=1, num_classes=3, img_size=(18, 18), **given)
    assert abs(cnn_cost(widths, 2, 1, 3, (18, 18), **given).params / 30_000 - 1) <= 0.02


def test_off_is_relative_to_the_target_in_both_directions() -> None:
    assert_close(Cost(90, 260).off(Cost(100, 200)), (0.1, 0.3))


def test_activation_bytes_count_what_backward_needs_once() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(30, 13), nn.ReLU(), nn.Linear(13, 1))
    assert activation_bytes(net, 2, (3, 5)) == 4 * (30 + 13)
    assert activation_bytes(net.double(), 2, (3, 5)) == 8 * (30 + 13)


def test_explicit_scores_keep_the_square_of_the_tokens() -> None:
    def kept(side: int, score: Any) -> int:
        given = {**VIT, "img_size": side, "patch_size": 1, "score": score, "depth": 1}
        return activation_bytes(VisionTransformer(**given), C, (side, side))

    assert kept(10, "relu") - kept(10, "softmax") > 4 * HEADS * 100**2
    assert kept(10, "softmax") < 5 * kept(5, "softmax")


DATA: dict[str, dict[str, Any]] = {
    "8x8x1": {"img_size": (8, 8), "in_chans": 1, "num_classes": 10},
    "32x32x3": {"img_size": (32, 32), "in_chans": 3, "num_classes": 100},
    "28x28x1": {"img_size": (28, 28), "in_chans": 1, "num_classes": 10},
    "12x20x5": {"img_size": (12, 20), "in_chans": 5, "num_classes": 7},
}
PATCH = {"8x8x1": 2, "32x32x3": 4, "28x28x1": 4, "12x20x5": 2}
SIZES = [(24, 1), (24, 5), (48, 2), (48, 4), (96, 4), (192, 3)]


@cache
def vit_cost(data: str, dim: int, depth: int) -> Cost:
    args = {"patch_size": PATCH[data], "embed_dim": dim, "depth": depth, "num_heads": 3}
    vit = create_model("vit", **DATA[data], args=args)
    return cost(vit, DATA[data]["in_chans"], DATA[data]["img_size"])


@pytest.mark.parametrize(
    ("match", "data", "dim", "depth"),
    [(m, data, *size) for m in ("params", "flops") for data in DATA for size in SIZES]
    + [("both", "8x8x1", *size) for size in SIZES]
    + [("both", d, *size) for d in ("32x32x3", "28x28x1") for size in [(24, 5), (48, 4), (96, 4)]],
)
def test_matched_cnn_costs_what_the_vit_costs(match: Any, data: str, dim: int, depth: int) -> None:
    target = vit_cost(data, dim, depth)
    widths = match_cnn(target, match, **DATA[data])
    cnn = create_model("cnn", **DATA[data], args={"widths": widths})
    got = cost(cnn, DATA[data]["in_chans"], DATA[data]["img_size"])
    off, limits = got.off(target), TOLERANCE[match]
    assert off[0] <= limits[0], (target, got)
    assert off[1] <= limits[1], (target, got)


def test_tolerances_are_those_of_the_protocol() -> None:
    finite = {m: [x for x in limits if x < float("inf")] for m, limits in TOLERANCE.items()}
    assert finite == {"params": [0.02], "flops": [0.05], "both": [0.02, 0.10]}


def test_a_cnn_is_found_again_by_its_own_cost() -> None:
    target = cnn_cost((16, 32, 64), 2, 3, 10, (32, 32))
    widths = match_cnn(target, "both", in_chans=3, num_classes=10, img_size=(32, 32))
    assert_close(torch.tensor(widths), torch.tensor([16, 32, 64]), rtol=0, atol=1)


def test_depth_is_kept() -> None:
    given: dict[str, Any] = {"in_chans": 3, "num_classes": 10, "img_size": (32, 32)}
    target = Cost(200_000, 30_000_000)
    widths = match_cnn(target, "params", depth=1, **given)
    assert len(widths) == 3
    cnn = SmallCNN(**given, widths=widths, depth=1)
    assert cost(cnn, 3, (32, 32)).off(target)[0] <= 0.02


def test_a_fourth_stage_is_taken_where_three_cost_too_many_flops() -> None:
    given: dict[str, Any] = {"in_chans": 3, "num_classes": 10, "img_size": (32, 32)}
    vit = VisionTransformer(32, 4, embed_dim=96, depth=4, num_heads=3, mlp_ratio=4.0)
    target = cost(vit, 3, (32, 32))
    widths = match_cnn(target, "both", **given)
    assert len(widths) == 4
    params, flops = cost(SmallCNN(**given, widths=widths), 3, (32, 32)).off(target)
    assert params <= 0.02
    assert flops <= 0.10


@pytest.mark.parametrize(
    ("match", "target"),
    [
        ("params", Cost(40, 10**6)),
        ("flops", Cost(10**6, 300)),
        ("both", Cost(100_000, 50_000)),
        ("both", Cost(20_000, 9_000_000)),
    ],
)
def test_what_cannot_be_matched_is_an_error_with_the_nearest(match: Match, target: Cost) -> None:
    with pytest.raises(UserError, match="no CNN of 3 to 5 stages comes within") as e:
        match_cnn(target, match, in_chans=1, num_classes=10, img_size=(8, 8))  # type: ignore[arg-type]
    message = str(e.value)
    assert f"{target.params:,} parameters and {target.flops:,} FLOPs" in message
    within = {
        "params": "2% in param",
        "flops": "5% in FLOPs",
        "both": "2% in parameters and 10% in",
    }
    assert f"within {within[match]}" in message
    assert "the nearest has widths [" in message


def test_an_unknown_match_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        UserError, match="match='size' is not known; choose one of params, flops, b"
    ):
        match_cnn(Cost(1, 1), "size", in_chans=1, num_classes=2, img_size=(8, 8))  # type: ignore[arg-type]
