"""What a mask hides is absent: NaN and infinity there reach no output and no gradient."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from vision_attn import MultiHeadAttention, MultiHeadSelfAttention, SelfAttention2d
from vision_attn.errors import UserError
from vision_attn.layers.attention import SelfAttention
from vision_attn.layers.block import EncoderBlock
from vision_attn.ops import absent
from vision_attn.ops.attention import attend, attention_weights
from vision_attn.ops.neighborhood import neighborhood_attend, neighborhood_mask
from vision_attn.ops.windows import window_attend, window_mask

BAD = [math.nan, math.inf, -math.inf]
PATHS: list[dict[str, Any]] = [
    {}, {"fused": False}, {"score": "relu"}, {"score": "sigmoid"},
]  # fmt: skip


@pytest.fixture(params=["looks", "always"])
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager on a CPU, and where numbers cannot be looked at."""
    if request.param == "always":
        for name in ("ops.attention", "layers.attention", "layers.cross"):
            monkeypatch.setattr(f"vision_attn.{name}.surely_finite", lambda *tensors: False)


def tokens(n: int, width: int, *, count: int = 3) -> list[Tensor]:
    torch.manual_seed(0)
    return list(torch.randn(count, 2, 3, n, width, dtype=torch.float64).unbind())


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("path", PATHS)
def test_case_50_hidden_keys_and_values_reach_nothing(bad: float, path: dict[str, Any]) -> None:
    q, k, v = tokens(5, 7)
    mask = torch.rand(2, 3, 5, 5) < 0.7
    mask[..., 2] = False
    mask[:, :, 4] = False
    bias = torch.randn(5, 5, dtype=torch.float64)
    results = []
    for value in (0.3, bad):
        a, b, c = (t.clone() for t in (q, k, v))
        a[:, :, 4], b[..., 2, :], c[..., 2, :] = value, value, value
        given = [t.requires_grad_() for t in (a, b, c)]
        added = torch.where(mask, bias, value)
        y = attend(*given, mask=mask, bias=added, **path)
        w = attention_weights(*given[:2], mask=mask, bias=added, score=path.get("score", "softmax"))
        loss = (y * q).sum() + (w**2).sum()
        results.append((y, w, torch.autograd.grad(loss, given)))
    assert_close(results[1], results[0])


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize("path", PATHS)
def test_case_50_only_rows_that_may_attend_to_a_spoilt_key_are_nan(path: dict[str, Any]) -> None:
    q, k, v = tokens(5, 7)
    v[0, 1, 4, 3] = math.nan
    q, k, v = (t.requires_grad_() for t in (q, k, v))
    y = attend(q, k, v, causal=True, **path)
    lost = torch.zeros(2, 3, 5, dtype=torch.bool)
    lost[0, 1, 4] = True
    assert y.isnan().any(-1).equal(lost)
    assert y.isnan().all(-1).equal(lost)
    clean = attend(q, k, v.detach().nan_to_num(), causal=True, **path)
    assert_close(y[~lost], clean[~lost])
    for g in torch.autograd.grad(y[~lost].square().sum(), (q, k, v)):
        assert g.isfinite().all()
    later = torch.arange(5) >= torch.arange(5)[:, None]
    assert attend(q, k, v, mask=later, **path)[0, 1].isnan().all()


@pytest.mark.usefixtures("route")
def test_case_50_the_examples() -> None:
    one = torch.zeros(1, 1, 1, 3)
    for fused in (True, False):
        v = torch.tensor([1.0, math.nan]).view(1, 1, 2, 1)
        mask = torch.tensor([True, False])
        k = torch.zeros(1, 1, 2, 3)
        assert attend(one, k, v, mask=mask, fused=fused).item() == 1.0
        k[0, 0, 1] = math.nan
        assert attend(one, k, v, mask=mask, fused=fused).item() == 1.0
    v = torch.ones(1, 1, 25, 2)
    v[0, 0, 0] = math.nan
    zero = torch.zeros(1, 1, 25, 2)
    y = neighborhood_attend(zero, zero, v, (5, 5), (3, 3)).reshape(5, 5, 2)
    assert y.isnan().any(-1).nonzero().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize("which", [0, 1, 2])
def test_case_50_local_attention_is_spoilt_only_near_the_token(which: int) -> None:
    grid, kernel, window, shift = (11, 13), (3, 5), (4, 5), (2, 1)
    qkv = tokens(143, 5)
    qkv[which][0, :, 60] = math.nan
    qkv = [t.requires_grad_() for t in qkv]
    near, home = neighborhood_mask(grid, kernel), window_mask(grid, window, shift)
    for mask, y in (
        (near, neighborhood_attend(*qkv, grid, kernel)),
        (home, window_attend(*qkv, grid, window, shift_size=shift)),
    ):
        lost = torch.zeros(2, 3, 143, dtype=torch.bool)
        lost[0, :, mask[:, 60] if which else 60] = True
        assert y.isnan().any(-1).equal(lost)
        for g in torch.autograd.grad(y[~lost].sum(), qkv, retain_graph=True):
            assert g[~lost].isfinite().all()


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize("options", [{}, {"num_registers": 2}, {"fused": False, "qk_norm": True}])
@pytest.mark.parametrize("bad", BAD)
def test_case_50_padding_reaches_no_parameter(options: dict[str, Any], bad: float) -> None:
    torch.manual_seed(0)
    keep = torch.tensor([[True, True, False], [True, True, True]])
    layer = MultiHeadSelfAttention(12, 3, **options)
    cross = MultiHeadAttention(12, 3, kdim=5, vdim=7, **options)
    x, key, value = torch.randn(2, 3, 12), torch.randn(2, 3, 5), torch.randn(2, 3, 7)

    def pad(t: Tensor) -> Tensor:
        return t.masked_fill(~keep[..., None], bad)

    seen = []
    for change in (lambda t: t, pad):
        y, w = layer(change(x), key_mask=keep, return_weights=True)
        z = cross(x, change(key), change(value), mask=keep[:, None].expand(2, 3, 3))
        used = (y[keep], w.transpose(1, 2)[keep], z)
        loss = sum(t.square().sum() for t in used)
        parts = [*layer.parameters(), *cross.parameters()]
        seen.append((used, torch.autograd.grad(loss, parts)))
        assert y.isfinite().all()
    assert_close(seen[1], seen[0])


def test_case_50_a_plain_call_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*tensors: Tensor) -> bool:
        raise AssertionError("a pass over q, k or v")

    for name in ("ops.attention", "layers.attention", "layers.cross"):
        monkeypatch.setattr(f"vision_attn.{name}.surely_finite", looked)
    q, k, v = tokens(5, 7)
    for fused in (True, False):
        attend(q, k, v, fused=fused)
    attention_weights(q, k)
    MultiHeadSelfAttention(12, 3)(torch.randn(2, 3, 12), return_weights=True)
    window_attend(*tokens(24, 5), (4, 6), (2, 3))


def test_case_50_masked_calls_work_under_vmap_and_grad() -> None:
    q, k, v = tokens(5, 7)
    v[0, :, 4] = math.nan
    mask = torch.ones(5, 5, dtype=torch.bool).tril()

    def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q[None], k[None], v[None], mask=mask, fused=False)[0, :, :4].square().sum()

    each = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(q, k, v)
    for b in range(2):
        assert_close([g[b] for g in each], list(torch.func.grad(loss, (0, 1, 2))(q[b], k[b], v[b])))
    assert all(g.isfinite().all() for g in each)


def test_a_sum_that_overflows_costs_time_and_no_result() -> None:
    large = torch.full((3,), 3e38)
    assert not absent.surely_finite(large)
    assert absent.surely_finite(large[:1], torch.ones(0), torch.ones(2, dtype=torch.float16))
    assert not absent.surely_finite(torch.tensor([math.inf, -math.inf]))
    q, k, v = (t.float() for t in tokens(5, 7))
    v = v * 1e37
    mask = torch.rand(5, 5) < 0.7
    want = attention_weights(q, k, mask=mask) @ v
    assert_close(attend(q, k, v, mask=mask), want, rtol=1e-4, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("height", [1e5, -1e5, 7e4, torch.finfo(torch.float32).min, 3e38])
@pytest.mark.parametrize("width", [4, 6])  # of values: another one takes another kernel
def test_case_51_a_finite_bias_stays_finite(dtype: torch.dtype, height: float, width: int) -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 2, 5, 4, dtype=torch.float32).to(dtype).unbind()
    v = torch.randn(1, 2, 5, width).to(dtype)
    bias = torch.randn(5, 5)
    bias[0], bias[1, :3], bias[2, 3] = height, height, height
    w = attention_weights(q, k, bias=bias)
    assert w.isfinite().all()
    want = w.float() @ v.float()
    for fused in (True, False):
        y = attend(q, k, v, bias=bias, fused=fused)
        assert_close(y.float(), want, rtol=2e-2, atol=2e-2)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    want = attention_weights(q, k, mask=mask, bias=bias).float() @ v.float()
    assert_close(attend(q, k, v, mask=mask, bias=bias).float(), want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("fused", [True, False])
def test_case_50_the_dtype_under_autocast_does_not_depend_on_what_is_hidden(fused: bool) -> None:
    q, k, v = (t.float() for t in tokens(5, 4))
    mask = torch.tensor([True, True, False, True, True])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want = attend(q, k, v, mask=mask, fused=fused)
        v[:, :, 2], k[:, :, 2] = math.nan, math.inf
        assert_close(attend(q, k, v, mask=mask, fused=fused), want)


def test_case_51_under_autocast_too() -> None:
    q, k, v = (t.float() for t in tokens(5, 4))
    bias = torch.randn(5, 5)
    bias[0], bias[1, :3] = torch.finfo(torch.float32).min, torch.finfo(torch.float32).max
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, w = attend(q, k, v, bias=bias), attention_weights(q, k, bias=bias)
    assert_close(y.float(), w.float() @ v, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("shape", [(2, 3, 5, 0), (2, 3, 0, 4), (0, 3, 5, 4), (2, 3, 1, 1)])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_case_78_empty_sizes_answer_alike_on_both_paths(
    shape: tuple[int, ...], causal: bool, masked: bool
) -> None:
    q, k = torch.randn(2, *shape, requires_grad=True).unbind()
    v = torch.randn(*shape[:3], 6, requires_grad=True)
    mask = torch.ones(shape[2], shape[2], dtype=torch.bool).tril() if masked else None
    both = [attend(q, k, v, mask=mask, causal=causal, fused=fused) for fused in (True, False)]
    assert_close(*both)
    grads = [torch.autograd.grad(y.sum(), v, retain_graph=True) for y in both]
    assert_close(*grads)
    assert attention_weights(q, k, mask=mask, causal=causal).shape == (*shape[:3], shape[2])
    if shape[3] == 0 and not causal and not masked:
        assert_close(both[0], v.mean(2, keepdim=True).expand_as(both[0]))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: MultiHeadSelfAttention(0, 1), "dim is 0; wanted"),
        (lambda: MultiHeadSelfAttention(-4, 2), "dim is -4; wanted"),
        (lambda: MultiHeadSelfAttention(12, 2.0), "num_heads is 2.0; wanted"),
        (lambda: MultiHeadSelfAttention(12, 3, scale=math.nan), "scale is nan; wanted"),
        (lambda: MultiHeadSelfAttention(12, 3, scale="1"), "scale is '1'; wanted"),
        (lambda: MultiHeadSelfAttention(12, 3, score="tanh"), "score='tanh' is not known"),
        (lambda: MultiHeadSelfAttention(12, 3, attn_drop=1.1), "attn_drop is 1.1; wanted"),
        (lambda: MultiHeadAttention(12, 3, proj_drop=-1), "proj_drop is -1; wanted"),
        (lambda: MultiHeadAttention(12, 3, kdim=-2), "kdim is -2; wanted"),
        (lambda: SelfAttention(0), "dim is 0; wanted"),
        (lambda: SelfAttention(4, 0), "head_dim is 0; wanted"),
        (lambda: SelfAttention(4, scale=math.inf), "scale is inf; wanted"),
        (lambda: SelfAttention2d(0), "dim is 0; wanted"),
        (lambda: SelfAttention2d(8, scale=math.nan), "scale is nan; wanted"),
        (lambda: SelfAttention2d(8, qk_dim=0), "qk_dim is 0; wanted"),
        (lambda: EncoderBlock(12, 3, mlp_ratio=0), "mlp_ratio is 0; wanted a number above 0"),
        (lambda: EncoderBlock(12, 3, drop_path=2), "drop_path is 2; wanted"),
        (lambda: EncoderBlock(12, 3, init_values=math.nan), "init_values is nan; wanted"),
    ],
)
def test_case_78_constructors_refuse_nonsense(build: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        build()


@pytest.mark.parametrize("kind", ["sagan", "nonlocal", "multihead"])
def test_case_78_feature_maps_differentiate_twice_in_channels_last(kind: Any) -> None:
    torch.manual_seed(0)
    layer: nn.Module = SelfAttention2d(4, kind, num_heads=1, init_values=0.7, fused=False).double()
    layer = layer.to(memory_format=torch.channels_last)
    x = torch.randn(1, 4, 1, 3, dtype=torch.float64).contiguous(memory_format=torch.channels_last)
    assert torch.autograd.gradgradcheck(layer, (x.requires_grad_(),))


def test_case_78_the_single_head_differentiates_twice() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 3, 4, dtype=torch.float64, requires_grad=True)
    layer = SelfAttention(4, 3, fused=False).double()
    assert torch.autograd.gradgradcheck(layer, (x,))
    assert_close(layer(x), SelfAttention.forward(_with(layer, fused=True), x))


def _with(layer: Any, *, fused: bool) -> Any:
    layer.fused = fused
    return layer
