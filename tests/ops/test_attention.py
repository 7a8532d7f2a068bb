"""attend and attention_weights: one meaning on both paths, that of a loop written for reading."""

import math
from typing import Any

import pytest
import torch
from tensors import draw
from torch import Tensor
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.ops.attention import Score, attend, attention_weights

B, H, NQ, NK, K, V = 2, 3, 5, 7, 11, 13
SCORES: list[Score] = ["softmax", "relu", "sigmoid"]
# Against float64: (rtol, atol) of a result of size one that was computed in this dtype.
TOLERANCE = {
    torch.float64: (1e-12, 1e-12),
    torch.float32: (1e-5, 1e-5),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (2e-2, 2e-2),
}


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    score: Score = "softmax",
) -> tuple[Tensor, Tensor]:
    """Output and weights, one query and one key at a time."""
    shape = (*q.shape[:-1], k.shape[-2])
    may = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
    add = torch.zeros(shape, dtype=q.dtype) if bias is None else bias.expand(shape)
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    outputs, weights = [], []
    for b, h, i in torch.cartesian_prod(*(torch.arange(n) for n in shape[:3])).tolist():
        keys = [j for j in range(shape[3]) if may[b, h, i, j] and add[b, h, i, j] > -math.inf]
        s = {j: (q[b, h, i] * k[b, h, j]).sum() * factor + add[b, h, i, j] for j in keys}
        if score == "softmax":
            w = {j: 1 / sum(torch.exp(s[n] - s[j]) for n in keys) for j in keys}
        elif score == "relu":
            w = {j: s[j].clamp(min=0) / len(keys) for j in keys}
        else:
            w = {j: 1 / (1 + len(keys) * torch.exp(-s[j])) for j in keys}
        row = [w[j] if j in w else torch.zeros((), dtype=q.dtype) for j in range(shape[3])]
        weights.append(torch.stack(row))
        outputs.append(sum((row[j] * v[b, h, j] for j in keys), torch.zeros_like(v[b, h, 0])))
    return torch.stack(outputs).view(*shape[:3], -1), torch.stack(weights).view(shape)


def qkv(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    shapes = ((B, H, NQ, K), (B, H, NK, K), (B, H, NK, V))
    return [draw(*s, dtype=dtype, seed=i).requires_grad_() for i, s in enumerate(shapes)]


def a_mask() -> Tensor:
    """Random pairs, and one query of one head without any key."""
    mask = draw(B, H, NQ, NK, seed=3) > -0.5
    mask[1, 2, 3] = False
    return mask


def a_bias() -> Tensor:
    """Random, with single pairs at -inf and one query of one sample all at -inf."""
    bias = draw(B, 1, NQ, NK, seed=4)
    bias = bias.masked_fill(draw(B, 1, NQ, NK, seed=5) > 1, -math.inf)
    bias[0, 0, 2] = -math.inf
    return bias.requires_grad_()


@pytest.mark.parametrize("limits", ["nothing", "mask", "bias", "mask and bias"])
@pytest.mark.parametrize("score", SCORES)
def test_forward_and_gradients_equal_the_loop(score: Score, limits: str) -> None:
    inputs = qkv()
    given: dict[str, Any] = {"scale": 0.7 if "and" in limits else None, "score": score}
    if "mask" in limits:
        given["mask"] = a_mask()
    if "bias" in limits:
        given["bias"] = a_bias()
        inputs.append(given["bias"])
    y_loop, w_loop = reference(*inputs[:3], **given)
    upstream = draw(B, H, NQ, V, seed=6), draw(B, H, NQ, NK, seed=7)
    grads_loop = torch.autograd.grad((y_loop, w_loop), inputs, upstream, retain_graph=True)
    w = attention_weights(*inputs[:2], **given)
    assert_close(w, w_loop)
    for fused in (True, False):
        y = attend(*inputs[:3], fused=fused, **given)
        assert_close(y, y_loop)
        grads = torch.autograd.grad((y, w), inputs, upstream, retain_graph=True)
        assert_close(grads, grads_loop)


@pytest.mark.parametrize("score", SCORES)
def test_gradcheck_of_the_explicit_path(score: Score) -> None:
    q, k, v = (t.detach()[1:, 2:, :, :2].requires_grad_() for t in qkv())
    mask, bias = a_mask()[1:, 2:], draw(NQ, NK, seed=4).requires_grad_()

    def explicit(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return attend(q, k, v, mask=mask, bias=bias, score=score, fused=False)

    assert torch.autograd.gradcheck(explicit, (q, k, v, bias))


@pytest.mark.parametrize("kind", ["mask", "bias"])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("fused", [True, False])
def test_query_without_keys_gives_zeros_and_finite_gradients(
    score: Score, kind: str, fused: bool
) -> None:
    keep = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 0, 1]], dtype=torch.bool)
    q, k, v = (draw(1, 1, 3, n, seed=n).requires_grad_() for n in (2, 2, 5))
    inputs = [q, k, v]
    given: dict[str, Any] = {"score": score}
    if kind == "mask":
        given["mask"] = keep
    else:
        additive = torch.zeros(3, 3, dtype=torch.float64).masked_fill(~keep, -math.inf)
        given["bias"] = additive.requires_grad_()
        inputs.append(additive)
    y, w = attend(q, k, v, fused=fused, **given), attention_weights(q, k, **given)
    nothing = torch.zeros(5, dtype=torch.float64)
    assert_close(y[0, 0, 1], nothing, rtol=0, atol=0)
    assert_close(w[0, 0, 1], nothing[:3], rtol=0, atol=0)
    assert_close(w[0, 0][~keep], nothing[:5], rtol=0, atol=0)
    assert y[0, 0, 0].abs().min() > 0
    grads = torch.autograd.grad(y.square().sum() + w.square().sum(), inputs)
    assert all(g.isfinite().all() for g in grads)
    assert_close(grads[0][0, 0, 1], nothing[:2], rtol=0, atol=0)
    assert grads[2][0, 0].abs().min() > 0


SHAPES = [
    (), (1,), (NK,), (1, NK), (NQ, 1), (NQ, NK), (1, NQ, NK), (H, 1, NK), (H, NQ, NK),
    (B, 1, 1, NK), (B, 1, NQ, NK), (1, H, NQ, NK), (B, H, 1, NK), (B, H, NQ, 1), (B, H, NQ, NK),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["mask", "bias", "both"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_broadcastable_shape_means_its_expansion(shape: tuple[int, ...], kind: str) -> None:
    full = (B, H, NQ, NK)
    mask, bias = draw(*shape, seed=7) > -0.3, draw(*shape, seed=8)
    if kind != "mask":
        bias = bias.masked_fill(draw(*shape, seed=9) > 0.8, -math.inf)
    given = {"mask": mask, "bias": bias}
    given = given if kind == "both" else {kind: given[kind]}
    expanded = {name: t.expand(full) for name, t in given.items()}
    want = attend(*qkv(), fused=False, **expanded)
    assert_close(attend(*qkv(), **given), want)
    assert_close(attend(*qkv(), fused=False, **given), want)
    want = attention_weights(*qkv()[:2], **expanded)
    assert_close(attention_weights(*qkv()[:2], **given), want)


@pytest.mark.parametrize("score", ["relu", "sigmoid"])
@pytest.mark.parametrize("shape", SHAPES)
def test_relu_and_sigmoid_count_the_keys_of_a_broadcast_mask(
    shape: tuple[int, ...], score: Score
) -> None:
    mask = draw(*shape, seed=7) > -0.3
    want = attend(*qkv(), mask=mask.expand(B, H, NQ, NK), score=score)
    assert_close(attend(*qkv(), mask=mask, score=score), want)


@pytest.mark.parametrize(
    ("score", "want"),
    [
        ("softmax", [[0.75, 0.25, 0], [1, 0, 0]]),
        ("relu", [[math.log(3) / 2, 0, 0], [math.log(3), 0, 0]]),
        ("sigmoid", [[0.6, 1 / 3, 0], [0.75, 0, 0]]),
    ],
)
def test_weights_by_hand(score: Score, want: list[list[float]]) -> None:
    q = torch.tensor([[math.log(3)], [math.log(3)]])[None, None]
    k = torch.tensor([[1.0], [0.0], [5.0]])[None, None]
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert_close(attention_weights(q, k, mask=mask, score=score), torch.tensor([[want]]))


def test_scale_is_one_over_the_root_of_the_head_width() -> None:
    q, k = torch.full((1, 1, 1, 9), 1.0), torch.stack((torch.ones(9), torch.zeros(9)))[None, None]
    first = torch.sigmoid(torch.tensor([3.0, 9.0]))
    assert_close(attention_weights(q, k)[0, 0, 0, 0], first[0])
    assert_close(attention_weights(q, k, scale=1.0)[0, 0, 0, 0], first[1])
    assert_close(attend(q, k, k, scale=1.0)[0, 0, 0], first[1].expand(9))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_each_dtype_is_near_float64_under_masks(dtype: torch.dtype, fused: bool) -> None:
    rtol, atol = TOLERANCE[dtype]
    q, k, v = (t.detach().to(dtype) for t in qkv())
    mask, bias = a_mask(), a_bias().detach()
    want, want_w = reference(q.double(), k.double(), v.double(), mask=mask, bias=bias)
    y = attend(q, k, v, mask=mask, bias=bias, fused=fused)
    w = attention_weights(q, k, mask=mask, bias=bias)
    assert y.dtype == w.dtype == dtype
    assert_close(y.double(), want, rtol=rtol, atol=atol)
    assert_close(w.double(), want_w, rtol=rtol, atol=atol)


@pytest.mark.parametrize("fused", [True, False])
def test_bias_of_another_dtype_than_the_queries_is_taken(fused: bool) -> None:
    q, k, v = (t.detach().float() for t in qkv())
    bias = draw(NQ, NK, seed=4)
    want, _ = reference(q.double(), k.double(), v.double(), bias=bias)
    assert_close(attend(q, k, v, bias=bias, fused=fused), want.float())


@pytest.mark.parametrize("fused", [True, False])
def test_bool_mask_filters_and_float_bias_is_added(fused: bool) -> None:
    q, v = torch.zeros(1, 1, 1, 2), torch.eye(2)[None, None]
    keep = torch.tensor([[True, False]])
    got = attend(q, torch.ones(1, 1, 2, 2), v, mask=keep, fused=fused)
    assert_close(got[0, 0, 0], torch.tensor([1.0, 0.0]), rtol=0, atol=0)
    got = attend(q, torch.ones(1, 1, 2, 2), v, bias=keep.float(), fused=fused)
    assert_close(got[0, 0, 0], torch.tensor([0.731059, 0.268941]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.int64])
def test_a_mask_of_zeros_and_ones_is_refused(dtype: torch.dtype) -> None:
    q, k, v = qkv()
    mask = torch.ones(NQ, NK, dtype=dtype)
    with pytest.raises(UserError, match=rf"mask has dtype {dtype}.*True = may attend.*use bias"):
        attend(q, k, v, mask=mask)
    with pytest.raises(UserError, match=f"mask has dtype {dtype}"):
        attention_weights(q, k, mask=mask)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64])
def test_a_bias_that_is_not_floating_point_is_refused(dtype: torch.dtype) -> None:
    with pytest.raises(UserError, match=rf"bias has dtype {dtype}.*use mask"):
        attend(*qkv(), bias=torch.ones(NQ, NK, dtype=dtype))


@pytest.mark.parametrize("shape", [(NK, NQ), (NQ,), (H, B, NQ, NK), (1, 1, 1, 1, NK)])
def test_a_mask_that_does_not_fit_is_refused_with_both_shapes(shape: tuple[int, ...]) -> None:
    for name, t in (("mask", torch.ones(shape, dtype=torch.bool)), ("bias", torch.ones(shape))):
        with pytest.raises(UserError) as e:
            attend(*qkv(), **{name: t})
        assert f"{name} has shape {shape}" in str(e.value)
        assert str((B, H, NQ, NK)) in str(e.value)


def test_queries_and_keys_of_different_widths_are_refused_with_both_numbers() -> None:
    _, k, v = qkv()
    with pytest.raises(UserError, match=rf"width {V}, keys {K}"):
        attend(draw(B, H, NQ, V), k, v)


def test_an_unknown_score_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="'tanh' is not known; choose one of softmax, relu, sigm"):
        attend(*qkv(), score="tanh")  # type: ignore[arg-type]


def test_a_mask_hides_what_its_keys_hold() -> None:
    q, k, v = (t.detach() for t in qkv())
    mask = torch.tensor([True] * 5 + [False] * 2)
    k2, v2 = k.clone(), v.clone()
    k2[..., 5:, :], v2[..., 5:, :] = 1e3, -1e3
    assert_close(attend(q, k2, v2, mask=mask), attend(q, k[..., :5, :], v[..., :5, :]))


@pytest.mark.parametrize("fused", [True, False])
def test_dropout_is_what_the_call_says_and_nothing_else(fused: bool) -> None:
    one = torch.ones(1, 1, 1, 1)
    assert attend(one, one, one, fused=fused).item() == 1.0
    with torch.random.fork_rng():
        torch.manual_seed(0)
        seen = {attend(one, one, one, dropout_p=0.5, fused=fused).item() for _ in range(40)}
    assert seen == {0.0, 2.0}


def test_short_rows_on_several_threads_give_the_same_as_on_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 2, 11, 5, requires_grad=True) for _ in range(3))
    results = []
    for threads in (1, 2):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        y = attend(q, k, v)
        path = "scaled_dot_product" if threads == 1 else "UnsafeView"
        assert path.replace("_", "").lower() in type(y.grad_fn).__name__.lower()
        results.append((y, *torch.autograd.grad(y.square().sum(), (q, k, v))))
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two)
