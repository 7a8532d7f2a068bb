"""Positions: against formulas, timm's resize, Swin index and rotary; other sizes at run time."""

import io
import math
from functools import partial
from typing import Any, get_args

import pytest
import tensors
import torch
from timm.layers import apply_rot_embed_cat, build_rotary_pos_embed, resample_abs_pos_embed
from timm.layers.pos_embed_rel import RelPosBias, gen_relative_position_index
from torch import Tensor, nn
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.layers.embed import PositionEmbed, Positions, RelativeBias, RotaryEmbed
from vision_attn.layers.local import NeighborhoodAttention, WindowAttention
from vision_attn.models.dense import DenseClassifier
from vision_attn.models.detr import SetPredictor
from vision_attn.models.vit import VisionTransformer
from vision_attn.ops.masks import relative_index
from vision_attn.ops.positions import (
    grid_positions,
    resize_positions,
    resize_relative,
    rotary_2d,
    rotate,
    sincos_1d,
    sincos_2d,
)

draw = partial(tensors.draw, dtype=torch.float32)


KINDS = get_args(Positions)


def test_sincos_is_the_formula_and_rows_come_first() -> None:
    line = sincos_1d(torch.tensor([0, 1, 5]), 6)
    for n, pos in enumerate((0, 1, 5)):
        for i in range(3):
            angle = pos / 10_000 ** (2 * i / 6)
            assert_close(line[n, 2 * i].item(), math.sin(angle), rtol=1e-6, atol=1e-6)
            assert_close(line[n, 2 * i + 1].item(), math.cos(angle), rtol=1e-6, atol=1e-6)
    assert grid_positions((3, 4))[:, 1].tolist() == [0, 1, 2, 3] * 3
    assert grid_positions((3, 4))[:, 0].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    both = sincos_2d((3, 4), 12)
    for n in range(12):
        assert_close(both[n], torch.cat((sincos_1d(torch.tensor([n // 4]), 6)[0],
                                         sincos_1d(torch.tensor([n % 4]), 6)[0])))  # fmt: skip


def test_sincos_shift_is_one_rotation_for_all_positions() -> None:
    at, k = torch.arange(9), 4
    here, there = (sincos_1d(p, 10).double().view(9, 5, 2) for p in (at, at + k))
    angle = k * 10_000.0 ** (-torch.arange(5, dtype=torch.float64) / 5)
    sin, cos = here.unbind(-1)
    moved = torch.stack((sin * angle.cos() + cos * angle.sin(),
                         cos * angle.cos() - sin * angle.sin()), -1)  # fmt: skip
    assert_close(there, moved, rtol=1e-5, atol=1e-6)


def test_single_positions_stand_for_a_grid() -> None:
    chosen = [5, 0, 7]
    at = grid_positions((3, 4))[chosen].view(1, 3, 2)
    assert_close(sincos_2d(at, 8)[0], sincos_2d((3, 4), 8)[chosen])
    assert_close(rotary_2d(at, 8)[:, 0], rotary_2d((3, 4), 8)[:, chosen])


@pytest.mark.parametrize("prefix", [0, 2])
@pytest.mark.parametrize(
    ("old", "new"), [((3, 5), (7, 4)), ((4, 6), (6, 4)), ((8, 8), (3, 5)), ((2, 3), (2, 3))]
)
def test_resize_equals_timm(old: tuple[int, int], new: tuple[int, int], prefix: int) -> None:
    table = draw(1, prefix + old[0] * old[1], 5).requires_grad_()
    ours = resize_positions(table, old, new, num_prefix_tokens=prefix)
    theirs = resample_abs_pos_embed(table, list(new), list(old), num_prefix_tokens=prefix)
    assert_close(ours, theirs)
    if old != new:
        assert not torch.equal(ours, table) if ours.shape == table.shape else True
    up = draw(*ours.shape, seed=1)
    assert_close(*(torch.autograd.grad(t, table, up)[0] for t in (ours, theirs)))


def test_resize_keeps_a_constant_and_dtype_and_refuses_another_grid() -> None:
    flat = torch.full((1, 6, 2), 0.75)
    for dtype in (torch.float64, torch.bfloat16):
        big = resize_positions(flat.to(dtype), (2, 3), (5, 7))
        assert_close(big, torch.full((1, 35, 2), 0.75, dtype=dtype))
    with pytest.raises(UserError, match=r"positions has 6 tokens, but a grid of 2 x 4 .* has 8"):
        resize_positions(flat, (2, 4), (3, 3))


@pytest.mark.parametrize("grid", [(3, 3), (2, 5), (4, 1)])
def test_relative_index_and_bias_equal_timm(grid: tuple[int, int]) -> None:
    h, w = grid
    index = relative_index(grid)
    assert_close(index, gen_relative_position_index(grid))
    assert index.unique().tolist() == list(range((2 * h - 1) * (2 * w - 1)))
    ours, theirs = RelativeBias(grid, 2), RelPosBias(grid, 2)
    state = {k: v for k, v in theirs.state_dict().items() if "table" in k}
    state = {k: draw(*v.shape) for k, v in state.items()}
    ours.load_state_dict(state)
    theirs.load_state_dict(state, strict=False)
    assert_close(ours(), theirs.get_bias())


def test_relative_bias_depends_on_differences_and_leaves_prefix_tokens_alone() -> None:
    module = RelativeBias((3, 4), 2, num_prefix_tokens=1)
    bias = module().detach()
    assert_close(bias[..., 0, :], torch.zeros(1, 2, 13))
    assert_close(bias[..., :, 0], torch.zeros(1, 2, 13))
    seen: dict[tuple[int, int], Tensor] = {}
    at = grid_positions((3, 4))
    for i in range(12):
        for j in range(12):
            key = tuple((at[i] - at[j]).tolist())
            assert_close(bias[0, :, i + 1, j + 1], seen.setdefault(key, bias[0, :, i + 1, j + 1]))
    assert len(seen) == 5 * 7


def test_relative_bias_of_another_grid_is_the_resized_table() -> None:
    module = RelativeBias((2, 3), 2)
    table = module.relative_position_bias_table
    big = resample_abs_pos_embed(table[None], [5, 9], [3, 5], num_prefix_tokens=0)[0]
    assert_close(resize_relative(table, (2, 3), (3, 5)), big)
    assert_close(module((3, 5)), big[relative_index((3, 5))].permute(2, 0, 1)[None])
    assert_close(module((2, 3)), module())


@pytest.mark.parametrize("temperature", [100.0, 10_000.0])
@pytest.mark.parametrize("grid", [(3, 4), (5, 2)])
def test_rotary_equals_timm(grid: tuple[int, int], temperature: float) -> None:
    x = draw(2, 3, grid[0] * grid[1], 16)
    sin, cos = build_rotary_pos_embed(list(grid), dim=16, temperature=temperature, in_pixels=False)
    turns = rotary_2d(grid, 16, temperature=temperature)
    assert_close(turns, torch.stack((sin, cos)))
    assert_close(rotate(x, turns), apply_rot_embed_cat(x, torch.cat((sin, cos), -1)))


def test_rotary_scores_depend_on_differences_and_halves_on_their_axis() -> None:
    h, w, K = 3, 4, 8
    turns, at = rotary_2d((h, w), K).double(), grid_positions((h, w))
    q, k = (draw(1, 1, 1, K, seed=i, dtype=torch.float64).expand(1, 1, h * w, K) for i in (1, 2))
    scores = (rotate(q, turns) @ rotate(k, turns).mT)[0, 0]
    seen: dict[tuple[int, int], Tensor] = {}
    for i in range(h * w):
        for j in range(h * w):
            first = seen.setdefault(tuple((at[j] - at[i]).tolist()), scores[i, j])
            assert_close(scores[i, j], first, rtol=1e-6, atol=1e-6)
    assert len(seen) == (2 * h - 1) * (2 * w - 1)
    assert torch.stack(list(seen.values())).unique().numel() == len(seen)
    assert_close(rotate(q, turns).norm(dim=-1), q.norm(dim=-1), rtol=1e-6, atol=1e-6)
    turned = rotate(q, turns)[0, 0].view(h, w, K)
    assert_close(turned[..., :4], turned[:, :1, :4].expand(h, w, 4))  # rows only
    assert_close(turned[..., 4:], turned[:1, :, 4:].expand(h, w, 4))  # columns only
    assert_close(turned[1, 0, 0], q[0, 0, 0, 0] * math.cos(1) - q[0, 0, 0, 1] * math.sin(1),
                 rtol=1e-6, atol=1e-6)  # fmt: skip


def test_rotary_of_each_sample_and_in_half_precision() -> None:
    x = draw(2, 3, 5, 8)
    at = torch.randint(0, 7, (2, 5, 2), generator=torch.Generator().manual_seed(3))
    each = rotate(x, rotary_2d(at, 8))
    for b in range(2):
        assert_close(each[b], rotate(x[b : b + 1], rotary_2d(at[b], 8))[0])
    low = rotate(x.bfloat16(), rotary_2d(at, 8))
    assert low.dtype == torch.bfloat16
    assert_close(low, rotate(x.bfloat16().float(), rotary_2d(at, 8)).bfloat16())
    with pytest.raises(UserError, match=r"rotary has shape \(2, 6, 8\).* \(N, K\) = \(5, 8\)"):
        rotate(x, rotary_2d((2, 3), 8))


@pytest.mark.parametrize(("make", "name"), [(sincos_2d, "dim"), (rotary_2d, "head_dim")])
def test_widths_not_divisible_by_4_are_named(make: Any, name: str) -> None:
    with pytest.raises(UserError, match=rf"{name} 10 is not divisible by 4.* try 8 or 12"):
        make((2, 2), 10)


def test_rotary_module_does_not_turn_prefix_tokens() -> None:
    x = draw(1, 2, 7, 8)
    module = RotaryEmbed((2, 3), 8, num_prefix_tokens=1)
    y = rotate(x, module())
    assert_close(y[:, :, 0], x[:, :, 0])
    assert_close(y[:, :, 1:], rotate(x[:, :, 1:], rotary_2d((2, 3), 8)))
    assert_close(module((3, 2))[:, 1:], rotary_2d((3, 2), 8))
    assert not module.state_dict()


def test_positions_of_another_grid() -> None:
    x = torch.zeros(1, 6, 8)
    learned = PositionEmbed("learn", (2, 3), 8)
    assert_close(learned(x), learned.pos_embed)
    assert_close(learned(x, (2, 3)), learned.pos_embed)
    turned = resample_abs_pos_embed(learned.pos_embed, [3, 2], [2, 3], num_prefix_tokens=0)
    assert_close(learned(x, (3, 2)), turned)  # the same number of tokens, another shape
    fixed = PositionEmbed("sincos2d", (2, 3), 8)
    assert_close(fixed(x, (3, 2))[0], sincos_2d((3, 2), 8))
    assert_close(PositionEmbed("rotary", (2, 3), 8)(x, (3, 2)), x)


def vit(kind: str = "learn", **options: Any) -> VisionTransformer:
    torch.manual_seed(0)
    model = VisionTransformer(
        (6, 8), 2, 1, 5, embed_dim=24, depth=2, num_heads=3, pos_embed=kind, **options
    )  # type: ignore[arg-type]
    for p in model.parameters():
        p.data = torch.randn_like(p) * 0.3
    return model.eval()


@pytest.mark.parametrize("pool", ["avg", "token"])
@pytest.mark.parametrize("kind", KINDS)
def test_sizes_not_trained_on_work_when_asked_for(kind: str, pool: Any) -> None:
    model = vit(kind, global_pool=pool, dynamic_img_size=True)
    fixed = vit(kind, global_pool=pool)
    own, tall, big = draw(2, 1, 6, 8), draw(2, 1, 8, 6), draw(2, 1, 10, 14)
    assert_close(model(own), fixed(own), rtol=0, atol=0)
    for other in (tall, big):
        # a model of that size whose tables are the resized ones gives the same
        size = (other.shape[2], other.shape[3])
        grid = (size[0] // 2, size[1] // 2)
        there = VisionTransformer(size, 2, 1, 5, embed_dim=24, depth=2, num_heads=3,
                                  pos_embed=kind, global_pool=pool).eval()  # fmt: skip
        state = model.state_dict()
        for name, t in state.items():
            if name == "positions.pos_embed":
                state[name] = sincos_2d(grid, 24)[None]
                if kind == "learn":
                    state[name] = resample_abs_pos_embed(t, list(grid), [3, 4], 0)
            elif name.endswith("bias_table"):
                spans = [[2 * a - 1, 2 * b - 1] for a, b in (grid, (3, 4))]
                state[name] = resample_abs_pos_embed(t[None], *spans, 0)[0]
        there.load_state_dict(dict(state))  # a plain dict has no metadata of the old grid
        assert_close(model(other), there(other))
        with pytest.raises(UserError, match=r"given, this model takes \(1, 6, 8\)$"):
            fixed(other)
    with pytest.raises(UserError, match="patch_size 2 does not divide the image width 7"):
        model(draw(1, 1, 6, 7))
    with pytest.raises(UserError, match=r"\(3, 6, 8\) .* given, this model takes \(1, 6, 8\)$"):
        model(draw(1, 3, 6, 8))


def shuffle_patches(x: Tensor, order: Tensor) -> Tensor:
    patches = torch.nn.functional.unfold(x, 2, stride=2)[..., order]
    return torch.nn.functional.fold(patches, x.shape[-2:], 2, stride=2)


@pytest.mark.parametrize("kind", KINDS)
def test_only_without_positions_the_order_of_patches_is_lost(kind: str) -> None:
    model, x = vit(kind).double(), draw(2, 1, 6, 8, dtype=torch.float64)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    away = (model(shuffle_patches(x, order)) - model(x)).abs().max().item()
    assert away < 1e-10 if kind == "none" else away > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_model_with_positions_trains_saves_and_loads(kind: str) -> None:
    # the last block's bias moves the grid's tokens only, so a class token would not train it
    pool: Any = "avg" if kind == "rel_bias" else "token"
    model, x = vit(kind, num_registers=2, global_pool=pool), draw(2, 1, 6, 8)
    model(x).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())
    kept = model.no_weight_decay()
    named = {n for n, _ in model.named_parameters()}
    assert "blocks.1.attn.registers" in kept
    assert ("rel_bias.1.relative_position_bias_table" in kept) is (kind == "rel_bias")
    assert kept - {"positions.pos_embed", "cls_token"} <= named
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = VisionTransformer((6, 8), 2, 1, 5, embed_dim=24, depth=2, num_heads=3, pos_embed=kind,
                              num_registers=2, global_pool=pool).eval()  # fmt: skip
    other.load_state_dict(torch.load(file))
    assert_close(other(x), model(x), rtol=0, atol=0)


def test_unknown_positions_are_refused() -> None:
    with pytest.raises(UserError, match="choose one of learn, sincos2d, none, rel_bias, rotary"):
        PositionEmbed("sine", (2, 2), 4)  # type: ignore[arg-type]


@pytest.mark.parametrize("img", [(12, 16), (8, 4), (4, 16)])
def test_case_47_a_fixed_table_is_computed_and_never_loaded(img: Any) -> None:
    def build(size: Any) -> VisionTransformer:
        return VisionTransformer(size, 2, 1, 5, embed_dim=24, depth=1, num_heads=3,
                                 pos_embed="sincos2d").eval()  # fmt: skip

    trained, model = build((8, 8)), build(img)
    assert not any("pos_embed" in name for name in trained.state_dict())
    old = dict(trained.state_dict()) | {"positions.pos_embed": torch.full((1, 16, 24), 7.0)}
    for state in (trained.state_dict(), old):
        model.load_state_dict(state, strict=True)
        grid = (img[0] // 2, img[1] // 2)
        assert_close(model.positions.pos_embed, sincos_2d(grid, 24)[None])
        assert_close(model.head.weight, trained.head.weight)
    with pytest.raises(RuntimeError, match="Unexpected"):
        model.load_state_dict(old | {"positions.other": torch.zeros(1)})


def test_case_47_the_positions_of_a_set_predictor_are_no_part_of_its_state() -> None:
    small, large = (SetPredictor(n, 2, 1, 3, embed_dim=16, depth=1, dec_depth=1, num_heads=2)
                    for n in (8, 12))  # fmt: skip
    state = small.state_dict()
    assert "pos" not in state
    small.load_state_dict(dict(state) | {"pos": torch.zeros(16, 16)}, strict=True)
    assert_close(small.pos, sincos_2d((4, 4), 16, temperature=20.0))
    assert_close(large.pos, sincos_2d((6, 6), 16, temperature=20.0))


def saved(module: nn.Module) -> Any:
    file = io.BytesIO()
    torch.save({"state_dict": module.state_dict()}, file)
    file.seek(0)
    return torch.load(file, weights_only=True)["state_dict"]


@pytest.mark.parametrize(
    ("build", "here", "there"),
    [
        (lambda g: vit_of(g, "learn"), (2, 8), (4, 4)),
        (lambda g: vit_of(g, "learn"), (2, 8), (8, 2)),
        (lambda g: vit_of(g, "rel_bias"), (2, 8), (8, 2)),
        (lambda g: WindowAttention(12, 3, window_size=g), (2, 5), (5, 2)),
        (lambda g: NeighborhoodAttention(12, 3, kernel_size=g, rel_bias=True), (3, 5), (5, 3)),
        (lambda g: DenseClassifier((2 * g[0], 2 * g[1]), 2, embed_dim=12, depth=1, num_heads=3),
         (2, 8), (4, 4)),
        (lambda g: SetPredictor((2 * g[0], 2 * g[1]), 2, embed_dim=12, depth=1, dec_depth=1,
                                num_heads=3), (2, 8), (4, 4)),
    ],
)  # fmt: skip
def test_case_48_a_learned_table_of_another_grid_is_refused(
    build: Any, here: Any, there: Any
) -> None:
    first, other = build(here), build(there)
    state = saved(first)
    build(here).load_state_dict(state, strict=True)
    with pytest.raises(RuntimeError, match=r"the learned table is one of \d+ x \d+ positions"):
        other.load_state_dict(state)
    with pytest.raises(RuntimeError, match="the learned table is one of"):
        nn.Sequential(other).load_state_dict(saved(nn.Sequential(first)))
    assert first.state_dict().keys() == dict(first.named_parameters()).keys()


def vit_of(grid: Any, kind: Any) -> VisionTransformer:
    return VisionTransformer((2 * grid[0], 2 * grid[1]), 2, 1, 5, embed_dim=12, depth=1,
                             num_heads=3, pos_embed=kind)  # fmt: skip


def test_case_48_a_resampled_table_loads_as_a_plain_dict() -> None:
    first, other = vit_of((2, 8), "learn"), vit_of((4, 4), "learn")
    state = dict(first.state_dict())
    state["positions.pos_embed"] = resize_positions(state["positions.pos_embed"], (2, 8), (4, 4))
    other.load_state_dict(state)
    assert_close(other.positions.pos_embed.data, state["positions.pos_embed"])
