"""MultiHeadAttention, causal, registers, chosen weights: against torch, loops and each other."""

import io
from typing import Any

import pytest
import torch
from tensors import Largest, draw
from timm.layers import Attention
from torch import Tensor, nn
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.layers.attention import MultiHeadSelfAttention
from vision_attn.layers.base import PerHeadLinear
from vision_attn.layers.block import EncoderBlock
from vision_attn.layers.cross import MultiHeadAttention
from vision_attn.ops.attention import Score, attend, attention_weights
from vision_attn.ops.masks import causal_mask
from vision_attn.ops.positions import rotary_2d, rotate

B, H, NQ, NK, D, KD, VD = 2, 3, 5, 7, 33, 13, 17  # D = 3 heads of 11
SCORES: list[Score] = ["softmax", "relu", "sigmoid"]
TOLERANCE = {
    torch.float64: (1e-12, 1e-12),
    torch.float32: (1e-5, 1e-5),
    torch.float16: (4e-3, 4e-3),
    torch.bfloat16: (3e-2, 3e-2),
}


def build(cls: Any, *args: Any, **options: Any) -> Any:
    """A layer in float64 with every parameter random, biases and norms too."""
    layer = cls(*args, **options).double()
    for i, p in enumerate(layer.parameters()):
        p.data = draw(*p.shape, seed=100 + i) * 0.4
    return layer


def cross_inputs() -> list[Tensor]:
    shapes = ((B, NQ, D), (B, NK, KD), (B, NK, VD))
    return [draw(*s, seed=i).requires_grad_() for i, s in enumerate(shapes)]


@pytest.mark.parametrize("positions", ["none", "shared", "each sample"])
@pytest.mark.parametrize("masks", ["none", "mask", "key_mask", "both", "bias"])
def test_cross_attention_equals_torch_multihead_attention(masks: str, positions: str) -> None:
    ours = build(MultiHeadAttention, D, H, kdim=KD, vdim=VD, qkv_bias=True)
    theirs = nn.MultiheadAttention(D, H, kdim=KD, vdim=VD, batch_first=True).double()
    theirs.load_state_dict(
        {
            "q_proj_weight": ours.q.weight,
            "k_proj_weight": ours.k.weight,
            "v_proj_weight": ours.v.weight,
            "in_proj_bias": torch.cat((ours.q.bias, ours.k.bias, ours.v.bias)),
            "out_proj.weight": ours.proj.weight,
            "out_proj.bias": ours.proj.bias,
        }
    )
    q, k, v = cross_inputs()
    given: dict[str, Any] = {}
    torchs: dict[str, Any] = {}
    if masks in ("mask", "both"):
        allowed = draw(B, H, NQ, NK, seed=5) > -0.7
        allowed[..., 0] = True
        given["mask"] = allowed
        torchs["attn_mask"] = ~allowed.flatten(0, 1)
    if masks in ("key_mask", "both"):
        given["key_mask"] = torch.arange(NK) < torch.tensor([[NK], [4]])
        torchs["key_padding_mask"] = ~given["key_mask"]
    if masks == "bias":
        given["bias"] = draw(NQ, NK, seed=6)
        torchs["attn_mask"] = given["bias"]
    q_pos, k_pos = torch.zeros(NQ, D).double(), torch.zeros(NK, KD).double()
    if positions != "none":
        lead = () if positions == "shared" else (B,)
        q_pos, k_pos = draw(*lead, NQ, D, seed=7), draw(*lead, NK, KD, seed=8)
        given |= {"query_pos": q_pos, "key_pos": k_pos}
    y, w = ours(q, k, v, return_weights=True, **given)
    y2, w2 = theirs(q + q_pos, k + k_pos, v, average_attn_weights=False, **torchs)
    assert_close(y, y2)
    assert_close(w, w2)
    up = draw(*y.shape, seed=9)
    assert_close(torch.autograd.grad(y, (q, k, v), up), torch.autograd.grad(y2, (q, k, v), up))


OPTIONS = [
    {}, {"qkv_bias": True, "qk_norm": True}, {"projection": "per_head", "qkv_bias": True},
    {"score": "relu"}, {"score": "sigmoid", "num_registers": 2}, {"num_registers": 3},
    {"scale": 0.3, "fused": False}, {"qk_norm": True, "num_registers": 1, "proj_bias": False},
]  # fmt: skip


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
def test_self_attention_is_attention_of_tokens_over_themselves(
    options: dict[str, Any], causal: bool
) -> None:
    one, three = (build(c, D, H, **options) for c in (MultiHeadSelfAttention, MultiHeadAttention))
    state = three.state_dict()
    for name, t in one.state_dict().items():
        if name.startswith("qkv."):
            parts = t.chunk(3)
            state |= {f"{x}.{name[4:]}": p for x, p in zip(("q", "k", "v"), parts, strict=True)}
        else:
            state[name] = t
    three.load_state_dict(state)
    x = draw(B, NK, D).requires_grad_()
    given = {
        "key_mask": torch.arange(NK) < torch.tensor([[NK], [4]]),
        "bias": draw(B, NK, NK, seed=4),
        "causal": causal,
        "return_weights": True,
    }
    y, w = one(x, **given)
    y2, w2 = three(x, x, x, **given)
    assert_close(y, y2)
    assert_close(w, w2)
    up = draw(*y.shape, seed=2)
    assert_close(torch.autograd.grad(y, x, up), torch.autograd.grad(y2, x, up))


def test_per_head_projection_of_other_widths_is_the_full_one_block_diagonal() -> None:
    sparse = build(MultiHeadAttention, 15, H, kdim=21, vdim=6, projection="per_head", qkv_bias=True)
    dense = build(MultiHeadAttention, 15, H, kdim=21, vdim=6, qkv_bias=True)
    state = {k: v for k, v in sparse.state_dict().items() if not k.endswith(".weight")}
    state["proj.weight"] = sparse.proj.weight
    for name in ("q", "k", "v"):
        layer = getattr(sparse, name)
        assert isinstance(layer, PerHeadLinear)
        state[f"{name}.weight"] = torch.block_diag(*layer.weight[0])
    dense.load_state_dict(state)
    tokens = draw(B, NQ, 15), draw(B, NK, 21, seed=1), draw(B, NK, 6, seed=2)
    assert_close(sparse(*tokens), dense(*tokens))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(("nq", "nk"), [(5, 5), (3, 7), (7, 3), (1, 5), (4, 1)])
def test_causal_is_a_mask_that_ends_at_the_last_key(
    nq: int, nk: int, score: Score, masked: bool
) -> None:
    q, k, v = (draw(B, H, n, 11, seed=n).requires_grad_() for n in (nq, nk, nk))
    allowed = torch.tensor([[j - (nk - 1) <= i - (nq - 1) for j in range(nk)] for i in range(nq)])
    assert_close(causal_mask(nq, nk), allowed)
    mask = draw(B, 1, nq, nk, seed=9) > -0.5 if masked else None
    both = allowed if mask is None else mask & allowed
    want = attend(q, k, v, mask=both, score=score, fused=False)
    up = draw(*want.shape, seed=8)
    grads = torch.autograd.grad(want, (q, k, v), up)
    for fused in (True, False):
        y = attend(q, k, v, mask=mask, causal=True, score=score, fused=fused)
        assert_close(y, want)
        assert_close(torch.autograd.grad(y, (q, k, v), up), grads)
        assert_close(y[..., : max(nq - nk, 0), :], torch.zeros_like(y[..., : max(nq - nk, 0), :]))
    w = attention_weights(q, k, mask=mask, causal=True, score=score)
    assert_close(w, attention_weights(q, k, mask=both, score=score))


@pytest.mark.parametrize("num_registers", [0, 2])
def test_causal_output_depends_on_no_later_token(num_registers: int) -> None:
    layer = build(MultiHeadSelfAttention, D, H, num_registers=num_registers)
    x = draw(1, NK, D)
    jacobian = torch.autograd.functional.jacobian(lambda t: layer(t, causal=True)[0], x)
    depends = jacobian.abs().amax((1, 2, 4)) > 0
    assert_close(depends, torch.ones(NK, NK, dtype=torch.bool).tril())


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("limits", ["none", "mask", "key_mask", "bias", "row mask"])
def test_registers_are_further_keys_that_no_mask_hides(limits: str, score: Score) -> None:
    R, K = 2, D // H
    layer = build(MultiHeadSelfAttention, D, H, num_registers=R, qk_norm=True, score=score)
    x = draw(B, NK, D)
    given: dict[str, Any] = {
        "none": {},
        "mask": {"mask": draw(NK, NK, seed=3) > 0},
        "key_mask": {"key_mask": torch.tensor([[False] * NK, [True] * 3 + [False] * (NK - 3)])},
        "bias": {"bias": draw(B, H, NK, NK, seed=4)},
        "row mask": {"mask": torch.arange(NK)[:, None] != 2},
    }[limits]
    q, k, v = layer.qkv(x).view(B, NK, 3, H, K).permute(2, 0, 3, 1, 4)
    own_k, own_v = (t.expand(B, H, R, K) for t in layer.registers)
    keys = torch.cat((layer.k_norm(own_k), layer.k_norm(k)), 2)
    allowed, added = torch.ones(B, H, NK, R + NK, dtype=torch.bool), torch.zeros(B, H, NK, R + NK)
    if "mask" in given:
        allowed[..., R:] = given["mask"]
    if "key_mask" in given:
        allowed[..., R:] = given["key_mask"][:, None, None]
    if "bias" in given:
        added = added.double()
        added[..., R:] = given["bias"]
    want_w = attention_weights(layer.q_norm(q), keys, mask=allowed, bias=added, score=score)
    want = layer.proj((want_w @ torch.cat((own_v, v), 2)).transpose(1, 2).flatten(2))
    y, w = layer(x, return_weights=True, **given)
    assert_close(w, want_w)
    assert_close(y, want)
    grad = torch.autograd.grad(y, layer.registers, draw(*y.shape, seed=5))[0]
    assert grad.abs().amax((1, 2, 3)).min() > 0


def test_without_registers_parameters_are_those_of_timm_in_its_order() -> None:
    ours = MultiHeadSelfAttention(D, H, qk_norm=True, norm_layer=nn.LayerNorm)
    theirs = Attention(D, H, qk_norm=True, norm_layer=nn.LayerNorm)
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("cross", [False, True])
def test_chosen_weights_are_those_of_the_whole_and_leave_the_output(
    cross: bool, score: Score, training: bool
) -> None:
    cls = MultiHeadAttention if cross else MultiHeadSelfAttention
    layer = build(cls, D, H, score=score, num_registers=1, attn_drop=0.4).train(training)
    x = draw(B, NK, D)
    inputs = (x, x, x) if cross else (x,)
    mask = draw(B, H, NK, NK, seed=3) > 0
    mask[0, 1, 4] = False
    given = {"mask": mask, "bias": draw(1, NK, seed=2), "causal": True}

    def run(**more: Any) -> Any:
        torch.manual_seed(0)
        return layer(*inputs, **given, **more)

    y = run()
    y_all, w = run(return_weights=True)
    y_some, some = run(return_weights=True, weight_heads=[2, 1], weight_queries=[4, 0, -1])
    assert_close(y_all, y, rtol=0, atol=0)
    assert_close(y_some, y, rtol=0, atol=0)
    assert_close(some, w[:, [2, 1]][:, :, [4, 0, 6]])
    assert_close(run(return_weights=True, weight_heads=[1])[1], w[:, [1]])
    assert_close(run(return_weights=True, weight_queries=range(2, 5))[1], w[:, :, 2:5])
    assert run(return_weights=True, weight_heads=[])[1].shape == (B, 0, NK, NK + 1)


def test_chosen_weights_never_make_the_whole_matrix() -> None:
    layer, x = MultiHeadSelfAttention(8, 2), torch.randn(1, 512, 8)
    for more, made in (({"weight_heads": [1], "weight_queries": [3, 5]}, False), ({}, True)):
        with Largest() as largest, torch.no_grad():
            layer(x, causal=True, return_weights=True, **more)
        assert (largest.count >= 512 * 512) is made


def test_weights_that_are_not_there_are_refused() -> None:
    layer, x = MultiHeadSelfAttention(D, H), torch.randn(B, NK, D)
    with pytest.raises(UserError, match="heads has 3, but there are 3; wanted 0 to 2"):
        layer(x, return_weights=True, weight_heads=[3])
    with pytest.raises(UserError, match="queries has -8, but there are 7"):
        layer(x, return_weights=True, weight_queries=[-8])
    with pytest.raises(UserError, match="return_weights=True"):
        layer(x, weight_heads=[0])


@pytest.mark.parametrize("score", SCORES)
def test_explicit_path_can_be_differentiated_twice(score: Score) -> None:
    layer = build(
        MultiHeadAttention, 4, 2, kdim=3, vdim=5, score=score, num_registers=1, fused=False
    )
    tokens = [draw(1, n, d, seed=d).requires_grad_() for n, d in ((2, 4), (3, 3), (3, 5))]
    mask = torch.tensor([[True, False, True], [False, False, False]])
    assert torch.autograd.gradgradcheck(lambda *t: layer(*t, mask=mask), tokens)
    alone = build(MultiHeadSelfAttention, 4, 2, score=score, fused=False)
    x = draw(1, 3, 4).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda t: alone(t, mask=mask[[0, 1, 0]]), x)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_every_dtype_is_near_float64(dtype: torch.dtype) -> None:
    layer = build(MultiHeadAttention, D, H, kdim=KD, vdim=VD, qk_norm=True, num_registers=2)
    tokens = [t.detach() for t in cross_inputs()]
    given = {"mask": draw(NQ, NK, seed=5) > 0, "bias": draw(NQ, NK, seed=6)}
    positions = {"query_pos": draw(NQ, D, seed=7), "key_pos": draw(NK, KD, seed=8)}
    want = layer(*tokens, return_weights=True, **given, **positions)
    low = layer.to(dtype)
    got = low(*(t.to(dtype) for t in tokens), return_weights=True, **given, **positions)
    rtol, atol = TOLERANCE[dtype]
    scale = want[0].abs().max()
    assert got[0].dtype == got[1].dtype == dtype
    assert_close(got[0].double() / scale, want[0] / scale, rtol=rtol, atol=atol)
    assert_close(got[1].double(), want[1], rtol=rtol, atol=atol)


def test_strided_inputs_equal_their_copies() -> None:
    layer = build(MultiHeadAttention, D, H, kdim=KD, vdim=VD)
    q = draw(D, NQ, B).permute(2, 1, 0)
    k = draw(B, 2 * NK, 2 * KD, seed=1)[:, ::2, 1::2]
    v = draw(1, NK, VD, seed=2).expand(B, -1, -1)
    tokens = (q, k, v)
    assert not any(t.is_contiguous() for t in tokens)
    assert_close(layer(*tokens), layer(*(t.contiguous() for t in tokens)))
    alone, x = build(MultiHeadSelfAttention, D, H), draw(D, NQ, B).permute(2, 1, 0)
    assert_close(alone(x), alone(x.contiguous()))
    heads = [draw(B, NK, H, 11, seed=i).transpose(1, 2) for i in range(3)]
    assert_close(attend(*heads), attend(*(t.contiguous() for t in heads)))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("score", SCORES)
def test_no_keys_give_the_output_bias_and_zero_gradients(
    score: Score, fused: bool, masked: bool
) -> None:
    layer = build(MultiHeadAttention, D, H, kdim=KD, vdim=VD, score=score, fused=fused)
    q, k, v = (t[:, :n] for t, n in zip(cross_inputs(), (NQ, 0, 0), strict=True))
    mask = torch.ones(NQ, 0, dtype=torch.bool) if masked else None
    y, w = layer(q, k, v, mask=mask, return_weights=True)
    assert w.shape == (B, H, NQ, 0)
    assert_close(y, layer.proj.bias.expand_as(y))
    assert_close(torch.autograd.grad(y.sum(), q)[0], torch.zeros_like(q))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(0, NK, D), (B, 0, D), (0, 0, D)])
def test_empty_batches_and_no_tokens_pass_forward_and_backward(
    shape: tuple[int, ...], causal: bool
) -> None:
    layer = build(MultiHeadSelfAttention, D, H, num_registers=1, qk_norm=True)
    x = draw(*shape).requires_grad_()
    key_mask = torch.ones(shape[:2], dtype=torch.bool)
    for given in ({}, {"key_mask": key_mask}):
        y, w = layer(x, return_weights=True, causal=causal, **given)
        assert y.shape == x.shape
        assert w.shape == (shape[0], H, shape[1], shape[1] + 1)
        grads = torch.autograd.grad(y.sum(), [x, layer.proj.weight])
        assert_close(grads[1], torch.zeros_like(grads[1]))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("options", [{}, {"qk_norm": True}, {"num_registers": 2}])
def test_autocast_is_near_full_precision(options: dict[str, Any], fused: bool) -> None:
    layer = build(MultiHeadSelfAttention, D, H, qkv_bias=True, fused=fused, **options).float()
    x = draw(B, NK, D, dtype=torch.float32).requires_grad_()
    given = {"mask": draw(NK, NK, seed=1) > 0, "bias": draw(NK, NK, seed=2).float()}
    given["mask"][3] = False
    want, want_w = layer(x, return_weights=True, **given)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, w = layer(x, return_weights=True, **given)
        alone = layer(x, **given)
    scale = want.abs().max()
    assert_close(alone, y, rtol=0, atol=0)
    assert_close(y.float() / scale, want / scale, rtol=3e-2, atol=3e-2)
    assert_close(w.float(), want_w, rtol=5e-2, atol=5e-2)
    assert torch.autograd.grad(y.float().square().sum(), x)[0].isfinite().all()


def test_weights_under_autocast_come_from_scores_in_float32() -> None:
    q, k = (draw(1, 1, 3, 64, seed=i, dtype=torch.float32) * 3 for i in range(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        w = attention_weights(q, k)
    assert_close(w, attention_weights(q, k))


def test_saved_and_loaded_layer_gives_the_same_output() -> None:
    options = {"kdim": KD, "vdim": VD, "qk_norm": True, "num_registers": 2}
    layer = build(MultiHeadAttention, D, H, **options)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = MultiHeadAttention(D, H, **options).double()
    other.load_state_dict(torch.load(file))
    tokens = cross_inputs()
    assert_close(other(*tokens), layer(*tokens), rtol=0, atol=0)


def test_rotary_turns_queries_and_keys_after_their_norms() -> None:
    layer = build(MultiHeadSelfAttention, 24, H, qk_norm=True, num_registers=1)
    x, turns = draw(B, 6, 24), rotary_2d((2, 3), 8).double()
    q, k, v = layer.qkv(x).view(B, 6, 3, H, 8).permute(2, 0, 3, 1, 4)
    q, k = rotate(layer.q_norm(q), turns), rotate(layer.k_norm(k), turns)
    own_k, own_v = (t.expand(B, H, 1, 8) for t in layer.registers)
    y = attend(q, torch.cat((layer.k_norm(own_k), k), 2), torch.cat((own_v, v), 2))
    assert_close(layer(x, rotary=turns), layer.proj(y.transpose(1, 2).flatten(2)))


def test_encoder_block_hands_on_causal_rotary_and_options() -> None:
    block = build(EncoderBlock, 24, H, num_registers=2, fused=False)
    x, turns = draw(B, 6, 24), rotary_2d((2, 3), 8).double()
    assert block.attn.registers.shape == (2, H, 2, 8)
    assert block.attn.fused is False
    y = x + block.attn(block.norm1(x), causal=True, rotary=turns)
    want = y + block.mlp(block.norm2(y))
    assert_close(block(x, causal=True, rotary=turns), want)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": (B, NK, KD + 1)}, r"key has shape \(2, 7, 14\), wanted \(B, N, 13\) with B = 2"),
        ({"value": (B + 1, NK, VD)}, r"value has shape \(3, 7, 17\), .* with B = 2"),
        ({"value": (B, NK + 1, VD)}, "7 keys but 8 values"),
        ({"query": (NQ, D)}, r"query has shape \(5, 33\)"),
        ({"key_pos": (NK, D)}, r"key_pos has shape \(7, 33\), wanted \(7, 13\)"),
        ({"query_pos": (NK, D)}, r"query_pos has shape \(7, 33\), wanted \(5, 33\)"),
    ],
)
def test_inputs_that_do_not_fit_are_named(change: dict[str, Any], message: str) -> None:
    layer = MultiHeadAttention(D, H, kdim=KD, vdim=VD)
    shapes = {"query": (B, NQ, D), "key": (B, NK, KD), "value": (B, NK, VD), **change}
    with pytest.raises(UserError, match=message):
        layer(**{name: torch.zeros(shape) for name, shape in shapes.items()})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_registers": -1}, "num_registers is -1; wanted a whole number, 0 to"),
        ({"projection": "half"}, "projection='half' is not known"),
        ({"kdim": 20, "projection": "per_head"}, "input width 20 is not divisible by num_heads 3"),
    ],
)
def test_options_that_do_not_fit_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        MultiHeadAttention(D, H, **options)
