"""Row statistics: those of the full matrix, at any chunk, in memory that grows with N."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tensors import Largest, draw
from torch import Tensor
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.ops.attention import attention_weights
from vision_attn.ops.statistics import attention_statistics

B, H, K, GRID = 2, 3, 5, (3, 4)
N = 12


def chess(a: tuple[int, int], b: tuple[int, int]) -> int:
    return max(abs(a[0] - b[0]), abs(a[1] - b[1]))


def loop(w: Tensor, grid: tuple[int, int], prefix: int) -> tuple[Tensor, ...]:
    """Entropy, largest, self weight, distance and share of 3 x 3, one number at a time."""
    found = [torch.zeros(w.shape[:-1], dtype=w.dtype) for _ in range(5)]
    for b, h, i in torch.cartesian_prod(*(torch.arange(n) for n in w.shape[:3])).tolist():
        row = w[b, h, i].tolist()
        found[0][b, h, i] = -sum(p * math.log(p) for p in row if p > 0)
        found[1][b, h, i] = max(row)
        found[2][b, h, i] = row[i]
        here = divmod(i - prefix, grid[1])
        seen = sum(row[prefix:])
        far = sum(p * math.dist(here, divmod(j, grid[1])) for j, p in enumerate(row[prefix:]))
        found[3][b, h, i] = math.nan if i < prefix else far / seen if seen else 0.0
        near = sum(p for j, p in enumerate(row[prefix:]) if chess(here, divmod(j, grid[1])) <= 1)
        found[4][b, h, i] = math.nan if i < prefix else near / seen if seen else 0.0
    return tuple(found)


@pytest.mark.parametrize("chunk", [None, 1, 5, 100])
@pytest.mark.parametrize("prefix", [0, 1, 3])
@pytest.mark.parametrize("limits", ["nothing", "mask", "bias", "causal", "all"])
def test_equal_to_those_of_the_full_matrix(limits: str, prefix: int, chunk: int | None) -> None:
    n = N + prefix
    q, k = (draw(B, H, n, K, seed=i) * 2 for i in range(2))
    given: dict[str, Any] = {}
    if limits in ("mask", "all"):
        given["mask"] = draw(B, 1, n, n, seed=2) > 0
        given["mask"][1, 0, 4] = False
        given["scale"] = 0.8
    if limits in ("bias", "all"):
        given["bias"] = draw(H, n, n, seed=3).masked_fill(draw(H, n, n, seed=4) > 1, -math.inf)
    if limits in ("causal", "all"):
        given["causal"] = True
    got = attention_statistics(q, k, grid_size=GRID, num_prefix_tokens=prefix, chunk=chunk, **given)
    want = loop(attention_weights(q, k, **given), GRID, prefix)
    for name, one, two in zip(got._fields, got, want, strict=True):
        assert_close(one, two, equal_nan=True, msg=lambda m, name=name: f"{name}: {m}")


def test_hand_numbers() -> None:
    q = torch.zeros(1, 1, 4, 2)  # every key alike, on a square of side 1
    s = attention_statistics(q, q, grid_size=(2, 2))
    full = torch.ones(1, 1, 4)
    assert_close(s.entropy, full * math.log(4))
    assert_close(s.largest, full / 4)
    assert_close(s.self_weight, full / 4)
    assert_close(s.distance, full * (2 + math.sqrt(2)) / 4)
    assert_close(s.field_share, full)
    sharp = torch.eye(4)[None, None] * 100
    s = attention_statistics(sharp, sharp.roll(-1, -2), grid_size=(1, 4), scale=1.0)
    assert_close(s.entropy, full * 0)
    assert_close(s.self_weight, full * 0)  # the key of token i + 1 is what query i looks for
    assert_close(s.distance, torch.tensor([[[3.0, 1, 1, 1]]]))
    assert_close(s.field_share, torch.tensor([[[0.0, 1, 1, 1]]]))


def test_cross_attention_has_no_self_weight_and_no_grid_no_distance() -> None:
    q, k = draw(B, H, 5, K), draw(B, H, 7, K, seed=1)
    s = attention_statistics(q, k, causal=True, chunk=2)
    w = attention_weights(q, k, causal=True)
    assert s.self_weight is None
    assert s.distance is None
    assert s.field_share is None
    assert_close(s.largest, w.amax(-1))
    assert_close(s.entropy, torch.special.entr(w).sum(-1))
    assert_close(attention_statistics(q, k[:, :, :0]).largest, torch.zeros(B, H, 5).double())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    q, k = (draw(B, H, N, K, seed=i).to(dtype) for i in range(2))
    low = attention_statistics(q, k, grid_size=GRID)
    high = attention_statistics(q.float(), k.float(), grid_size=GRID)
    assert all(t is not None and t.dtype == torch.float32 for t in low)
    assert_close(tuple(low), tuple(high), rtol=0, atol=0)


def test_pixels_of_a_token_and_the_side_of_the_field() -> None:
    q, k = (draw(B, H, N, K, seed=i) for i in range(2))
    w = attention_weights(q, k)
    at = torch.tensor([divmod(i, GRID[1]) for i in range(N)])
    step = (at[:, None] - at).double()
    for field in (1, 3, 5):
        s = attention_statistics(q, k, grid_size=GRID, token_size=(2, 7), field=field, chunk=5)
        assert_close(s.distance, (w * torch.hypot(2 * step[..., 0], 7 * step[..., 1])).sum(-1))
        near = step.abs().amax(-1) <= field // 2
        assert_close(s.field_share, (w * near).sum(-1))
    assert_close(attention_statistics(q, k, grid_size=GRID, field=1).field_share,
                 attention_statistics(q, k).self_weight)  # fmt: skip


@pytest.mark.parametrize("score", ["relu", "sigmoid"])
def test_rows_of_other_scores_are_shares(score: Any) -> None:
    q, k = (draw(B, H, N, K, seed=i) for i in range(2))
    q[0, 0, 3], k[0, 0] = -1, k[0, 0].abs()  # relu leaves this query nothing
    w = attention_weights(q, k, score=score)
    w = w / w.sum(-1, keepdim=True).clamp_min(1e-300)
    got = attention_statistics(q, k, grid_size=GRID, score=score, chunk=5)
    for one, two in zip(got, loop(w, GRID, 0), strict=True):
        assert_close(one, two)


@pytest.mark.parametrize("prefix", [0, 2])
def test_registers_are_keys_but_no_tokens(prefix: int) -> None:
    n, extra = N + prefix, 3
    q, k = draw(B, H, n, K), draw(B, H, extra + n, K, seed=1)
    w = attention_weights(q, k)
    got = attention_statistics(q, k, grid_size=GRID, num_prefix_tokens=prefix, num_registers=extra,
                               chunk=5)  # fmt: skip
    _, _, own, distance, share = loop(w[..., extra:], GRID, prefix)
    assert_close(got.entropy, torch.special.entr(w).sum(-1))
    assert_close(got.largest, w.amax(-1))
    assert_close(got.self_weight, own)
    assert_close(got.distance, distance, equal_nan=True)
    assert_close(got.field_share, share, equal_nan=True)


def test_masks_and_bias_row_by_row() -> None:
    q, k = (draw(B, H, N, K, seed=i) for i in range(2))
    mask, bias = draw(B, 1, N, N, seed=2) > 0, draw(H, N, N, seed=3)
    asked: list[int] = []

    def rows(part: range) -> Tensor:
        asked.extend(part)
        return mask[..., part.start : part.stop, :]

    got = attention_statistics(
        q, k, grid_size=GRID, mask=rows, bias=lambda part: bias[:, list(part)], causal=True, chunk=5
    )
    want = attention_statistics(q, k, grid_size=GRID, mask=mask, bias=bias, causal=True)
    assert asked == list(range(N))
    assert_close(tuple(got), tuple(want))


def test_what_does_not_fit_is_named() -> None:
    q = torch.zeros(1, 1, 12, 4)
    with pytest.raises(UserError, match=r"3 x 5 with 0 prefix tokens makes 15 tokens.* 12 queries"):
        attention_statistics(q, q, grid_size=(3, 5))
    with pytest.raises(UserError, match="chunk is 0"):
        attention_statistics(q, q, chunk=0)
    with pytest.raises(UserError, match="field is 4; wanted an odd side, such as 5"):
        attention_statistics(q, q, field=4)
    with pytest.raises(UserError, match="12 queries and 14 keys and 3 registers"):
        attention_statistics(q, torch.zeros(1, 1, 14, 4), grid_size=(3, 4), num_registers=3)


def test_no_tensor_grows_faster_than_the_number_of_tokens() -> None:
    counts = []
    for side in (16, 32):
        q = torch.randn(1, 2, side * side, 4)
        with Largest() as largest:
            attention_statistics(q, q, grid_size=(side, side), chunk=8, causal=True)
        counts.append(largest.bytes)
    assert counts[1] == 4 * counts[0]


PEAK = """
import torch
from vision_attn.ops.statistics import attention_statistics

def peak():  # of this process, in MB; ru_maxrss would count its parent too
    status = open("/proc/self/status").read().split()
    return int(status[status.index("VmHWM:") + 1]) // 1024

attention_statistics(torch.randn(1, 1, 64, 8), torch.randn(1, 1, 64, 8), grid_size=(8, 8))
before = peak()
q, k = torch.randn(2, 1, 1, 8192, 8)
attention_statistics(q, k, grid_size=(64, 128))
print(before, peak())
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")
def test_8192_tokens_take_less_than_their_matrix() -> None:
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before < 1000
    assert after - before < 180  # the matrix alone would be 256 MB
