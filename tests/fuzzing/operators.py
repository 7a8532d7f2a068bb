"""Random calls of the attention operators against a loop in float64, written for reading.

Shapes from 0 and 1 up, masks, biases with -inf and beyond the dtype, numbers that are not finite in
masked places and elsewhere, four dtypes, three scores, fused and not; outputs, weights, gradients.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from vision_attn.ops.attention import attend, attention_weights
from vision_attn.ops.neighborhood import neighborhood_attend
from vision_attn.ops.windows import window_attend

CLOSE = {
    torch.float64: (1e-9, 1e-9),
    torch.float32: (1e-4, 2e-5),
    torch.float16: (2e-2, 4e-3),
    torch.bfloat16: (8e-2, 3e-2),
}


@dataclass(frozen=True)
class Call:
    seed: int
    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    value_width: int
    dtype: torch.dtype
    mask: str
    bias: str
    causal: bool
    scale: float | None
    score: str
    fused: bool
    poison: str


@dataclass(frozen=True)
class Local:
    seed: int
    batch: int
    grid: tuple[int, int]
    window: tuple[int, int]
    shift: tuple[float, float]
    radius: tuple[int, int]
    dilation: tuple[int, int]
    table: bool
    score: str
    fused: bool
    poison: bool


CALLS = st.builds(
    Call,
    seed=st.integers(0, 2**31),
    batch=st.integers(0, 3),
    heads=st.integers(1, 3),
    queries=st.integers(0, 5),
    keys=st.integers(0, 7),
    width=st.sampled_from([0, 1, 2, 5, 8]),
    value_width=st.sampled_from([1, 3, 5, 8]),
    dtype=st.sampled_from(list(CLOSE)),
    mask=st.sampled_from(["none", "one", "keys", "pairs", "shared", "full"]),
    bias=st.sampled_from(["none", "shared", "full", "forbids", "huge"]),
    causal=st.booleans(),
    scale=st.sampled_from([None, None, 0.7, -1.3, 0.0]),
    score=st.sampled_from(["softmax", "softmax", "relu", "sigmoid"]),
    fused=st.booleans(),
    poison=st.sampled_from(["none", "hidden", "anywhere"]),
)
PAIRS = st.tuples(st.integers(1, 4), st.integers(1, 4))
SHARES = st.floats(0, 1, exclude_max=True)
LOCALS = st.builds(
    Local,
    seed=st.integers(0, 2**31),
    batch=st.integers(0, 2),
    grid=st.tuples(st.integers(1, 13), st.integers(1, 5)),
    window=PAIRS,
    shift=st.tuples(SHARES, SHARES),
    radius=st.tuples(st.integers(0, 3), st.integers(0, 2)),
    dilation=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    table=st.booleans(),
    score=st.sampled_from(["softmax", "relu", "sigmoid"]),
    fused=st.booleans(),
    poison=st.booleans(),
)


def loop(
    q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, bias: Tensor, scale: float, score: str
) -> tuple[Tensor, Tensor]:
    """Output (B, H, Nq, V) and weights (B, H, Nq, Nk) in float64, one query at a time.

    Only what a query may attend to is touched. A query that is not finite, or may attend to a key
    or value that is not, is NaN; one that may attend to nothing is 0.
    """
    B, H, Nq, _ = q.shape
    rows, weights = [], []
    for b in range(B):
        for h in range(H):
            for i in range(Nq):
                keys = [j for j in range(k.shape[2]) if allowed[b, h, i, j]]
                w = q.new_zeros(k.shape[2])
                if not keys:
                    rows.append(q.new_zeros(v.shape[3]))
                    weights.append(w)
                    continue
                near_k, near_v = k[b, h, keys], v[b, h, keys]
                s = near_k @ q[b, h, i] * scale + bias[b, h, i, keys]
                count = len(keys)
                if score == "softmax":
                    some = torch.softmax(s, 0)
                elif score == "relu":
                    some = torch.relu(s) / count
                else:
                    some = torch.sigmoid(s - math.log(count))
                fine = all(bool(t.isfinite().all()) for t in (q[b, h, i], near_k, near_v))
                rows.append(some @ near_v if fine else q.new_full((v.shape[3],), math.nan))
                weights.append(w.index_put((torch.tensor(keys),), some))
    empty = q.new_zeros(0)
    y = torch.stack(rows) if rows else empty
    w = torch.stack(weights) if weights else empty
    return y.reshape(B, H, Nq, v.shape[3]), w.reshape(B, H, Nq, k.shape[2])


def given_mask(call: Call, shape: tuple[int, ...], source: torch.Generator) -> Tensor | None:
    B, _, Nq, Nk = shape
    kinds = {
        "one": (Nk,), "keys": (B, 1, 1, Nk), "pairs": (Nq, Nk), "shared": (B, 1, Nq, Nk),
        "full": shape,
    }  # fmt: skip
    if call.mask == "none":
        return None
    return torch.rand(kinds[call.mask], generator=source) < 0.6


def given_bias(call: Call, shape: tuple[int, ...], source: torch.Generator) -> Tensor | None:
    if call.bias == "none":
        return None
    wide = torch.float64 if call.dtype == torch.float64 else torch.float32
    bias = torch.randn(shape[1:] if call.bias == "shared" else shape, generator=source).to(wide)
    if call.bias == "forbids":
        bias[torch.rand(bias.shape, generator=source) < 0.4] = -math.inf
    if call.bias == "huge" and call.dtype.itemsize == 2:
        bias[torch.rand(bias.shape, generator=source) < 0.5] = -torch.finfo(torch.float32).max
        bias[torch.rand(bias.shape, generator=source) < 0.2] = -1e5
    return bias


def fitted(bias: Tensor | None, call: Call, shape: tuple[int, ...]) -> Tensor:
    """The bias as the operators promise to take it, float64."""
    if bias is None:
        return torch.zeros(shape, dtype=torch.float64)
    if call.dtype.itemsize == 2:
        most = torch.finfo(call.dtype).max / 2
        bias = torch.where(bias.isinf(), bias, bias.clamp(-most, most))
    return bias.to(call.dtype).double().expand(shape)


def check_call(call: Call) -> None:
    """One call of `attend` and `attention_weights`, forward and backward."""
    source = torch.Generator().manual_seed(call.seed)
    B, H, Nq, Nk = shape = (call.batch, call.heads, call.queries, call.keys)
    q, k, v = (
        torch.randn(B, H, n, width, generator=source).to(call.dtype)
        for n, width in ((Nq, call.width), (Nk, call.width), (Nk, call.value_width))
    )
    mask, bias = given_mask(call, shape, source), given_bias(call, shape, source)
    allowed = torch.ones(shape, dtype=torch.bool)
    if mask is not None:
        allowed = allowed & mask
    if bias is not None:
        allowed = allowed & ~bias.isneginf()
    if call.causal:
        late = torch.arange(Nk) > torch.arange(Nq)[:, None] + Nk - Nq
        allowed = allowed & ~late
    if call.poison != "none" and (mask is not None or bias is not None or call.causal):
        bad = torch.tensor([math.nan, math.inf, -math.inf])[
            torch.randint(3, (), generator=source)
        ].to(call.dtype)
        hits = [torch.rand(B, H, n, generator=source) < 0.3 for n in (Nq, Nk, Nk)]
        if call.poison == "hidden":
            hits = [hits[0] & ~allowed.any(3), hits[1] & ~allowed.any(2), hits[2] & ~allowed.any(2)]
        q, k, v = (
            torch.where(hit[..., None], bad, t) for hit, t in zip(hits, (q, k, v), strict=True)
        )
        if bias is not None and mask is not None:
            away = (~mask).expand(shape) & (torch.rand(shape, generator=source) < 0.3)
            bias = torch.where(away, math.nan, bias.expand(shape))
    q, k, v = (t.requires_grad_() for t in (q, k, v))
    wide = [t.detach().double().requires_grad_() for t in (q, k, v)]
    scale = max(call.width, 1) ** -0.5 if call.scale is None else call.scale
    added = torch.where(allowed, fitted(bias, call, shape), 0)
    want_y, want_w = loop(*wide, allowed, added, scale, call.score)
    options: dict[str, Any] = {
        "mask": mask, "bias": bias, "causal": call.causal, "scale": call.scale, "score": call.score,
    }  # fmt: skip
    y = attend(q, k, v, fused=call.fused, **options)
    w = attention_weights(q, k, **options)
    rtol, atol = CLOSE[call.dtype]
    assert y.dtype == w.dtype == call.dtype
    assert_close(y.double(), want_y, rtol=rtol, atol=atol, equal_nan=True)
    seen = ~want_y.isnan().any(-1)
    assert_close(w.double()[seen], want_w[seen], rtol=rtol, atol=atol)
    assert not w.detach()[~allowed].any()
    probe = torch.randn(y.shape, generator=source)
    grads = torch.autograd.grad((y[seen] * probe[seen]).sum(), (q, k, v))
    for g in grads:
        assert g.isfinite().all(), "a gradient is not finite"
    if call.dtype.itemsize >= 4 and seen.any():
        wanted: Any = (None, None, None)  # no row attends to anything
        if want_y.requires_grad:
            loss = (want_y[seen] * probe[seen]).sum()
            wanted = torch.autograd.grad(loss, wide, allow_unused=True)
        for got, want in zip(grads, wanted, strict=True):
            zero = torch.zeros_like(got, dtype=torch.float64)
            assert_close(got.double(), zero if want is None else want, rtol=10 * rtol, atol=atol)
    weight_grads = torch.autograd.grad((w[seen] ** 2).sum(), (q, k))
    for g in weight_grads:
        assert g.isfinite().all(), "a gradient of the weights is not finite"


def check_local(call: Local) -> None:
    """One call each of `window_attend` and `neighborhood_attend`, forward and backward."""
    source = torch.Generator().manual_seed(call.seed)
    (h, w), heads = call.grid, 2
    n = h * w
    qkv = torch.randn(3, call.batch, heads, n, 3, generator=source, dtype=torch.float64)
    if call.poison and call.batch:
        # a value: of queries and keys torch's kernel may lose a NaN where nothing is masked
        qkv[2, 0, :, int(torch.randint(n, (), generator=source))] = math.nan
    kernel = (2 * call.radius[0] + 1, 2 * call.radius[1] + 1)
    shift = tuple(int(s * m) for s, m in zip(call.shift, call.window, strict=True))
    window = tuple(min(m, size) for m, size in zip(call.window, call.grid, strict=True))
    moved = tuple(
        0 if size <= m else s for s, m, size in zip(shift, call.window, call.grid, strict=True)
    )
    tables = [
        torch.randn(rows, heads, generator=source, dtype=torch.float64)
        for rows in (
            (2 * call.window[0] - 1) * (2 * call.window[1] - 1), kernel[0] * kernel[1],
        )
    ]  # fmt: skip
    for local in ("window", "neighborhood"):
        allowed = torch.zeros(n, n, dtype=torch.bool)
        bias = torch.zeros(heads, n, n, dtype=torch.float64)
        for i in range(n):
            for j in range(n):
                (r, c), (y, x) = divmod(i, w), divmod(j, w)
                if local == "window":
                    homes = [
                        ((a - s) // m, (b - t) // o)
                        for (a, b) in ((r, c), (y, x))
                        for (s, t), (m, o) in ((moved, window),)
                    ]
                    allowed[i, j] = homes[0] == homes[1]
                    row = (r - y + call.window[0] - 1) * (2 * call.window[1] - 1)
                    row += c - x + call.window[1] - 1
                else:
                    (down, rest), (right, left) = (
                        divmod(away, step)
                        for away, step in zip((r - y, c - x), call.dilation, strict=True)
                    )
                    near = abs(down) <= call.radius[0] and abs(right) <= call.radius[1]
                    allowed[i, j] = near and rest == left == 0
                    row = (down + call.radius[0]) * kernel[1] + right + call.radius[1]
                if allowed[i, j] and call.table:
                    bias[:, i, j] = tables[local == "neighborhood"][row]
        shape = (call.batch, heads, n, n)
        both = [qkv.clone().requires_grad_() for _ in range(2)]
        want, _ = loop(*both[0], allowed.expand(shape), bias.expand(shape), 0.6, call.score)
        options: dict[str, Any] = {
            "bias_table": tables[local == "neighborhood"] if call.table else None,
            "scale": 0.6, "score": call.score, "fused": call.fused,
        }  # fmt: skip
        if local == "window":
            got = window_attend(*both[1], call.grid, call.window, shift_size=shift, **options)
        else:
            got = neighborhood_attend(
                *both[1], call.grid, kernel, dilation=call.dilation, **options
            )
        assert_close(got, want, equal_nan=True)
        seen = ~want.isnan().any(-1)
        probe = torch.randn(want.shape, generator=source, dtype=torch.float64)
        if not call.poison and call.batch:
            grads = [
                torch.autograd.grad((t[seen] * probe[seen]).sum(), x)[0]
                for t, x in ((want, both[0]), (got, both[1]))
            ]
            assert_close(*grads)


def run(calls: int, *, start: int | None = None) -> None:
    """`calls` random calls of the global operators, and a third as many of the local ones."""
    for check, strategy, count in (
        (check_call, CALLS, calls), (check_local, LOCALS, max(1, calls // 3)),
    ):  # fmt: skip
        test = settings(
            max_examples=count,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
            print_blob=True,
        )(given(strategy)(check))
        if start is not None:
            test = seed(start)(test)
        test()
