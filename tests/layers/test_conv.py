"""A convolution written as attention, against `Conv2d` and against loops written for reading."""

import copy
import math

import pytest
import torch
from tensors import Largest
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.layers.conv import AttentionConv2d, OffsetBias
from vision_attn.ops.attention import attend
from vision_attn.ops.conv import kernel_offsets, leak, nearest_offsets

# torch's own warning about its Conv2d
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")

# kernel, stride, padding, dilation, groups, padding_mode, bias
CASES = [
    (3, 1, 1, 1, 1, "zeros", True),
    (3, 1, 1, 1, 1, "replicate", True),
    (3, 1, 0, 1, 1, "zeros", False),
    (1, 1, 0, 1, 1, "zeros", True),
    (1, 2, 1, 1, 3, "zeros", True),
    ((5, 3), 1, "same", 1, 1, "zeros", True),
    ((2, 4), 1, "same", 1, 1, "zeros", True),
    ((2, 4), 1, "same", (3, 1), 3, "replicate", True),
    ((4, 3), 1, "valid", 1, 3, "zeros", True),
    ((3, 2), (2, 3), (1, 2), 1, 1, "zeros", True),
    ((3, 2), (2, 3), (4, 0), (1, 2), 1, "replicate", False),
    (3, 2, 2, 2, 3, "zeros", True),
    (3, 2, 5, (2, 3), 1, "zeros", True),
    ((3, 5), 1, 7, 1, 1, "replicate", True),
    (7, 3, 3, 1, 3, "zeros", True),
    (2, 2, 0, 1, 1, "zeros", True),
]


def make_conv(case: tuple, dtype: torch.dtype = torch.float64) -> nn.Conv2d:
    kernel, stride, padding, dilation, groups, mode, bias = case
    torch.manual_seed(0)
    return nn.Conv2d(3, 6, kernel, stride, padding, dilation, groups, bias, mode, dtype=dtype)


def image(dtype: torch.dtype = torch.float64, h: int = 11, w: int = 13) -> Tensor:
    return torch.randn(2, 3, h, w, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_conv2d_within_its_own_bound(case: tuple) -> None:
    conv, x = make_conv(case), image()
    want = conv(x)
    for alpha, limit in ((0.2, 100.0), (1.0, 100.0), (3.0, 10.0), (20.0, 1e-6), (46.0, 1e-12)):
        layer = AttentionConv2d.from_conv(conv, alpha=alpha)
        got = layer(x)
        assert got.shape == want.shape
        error = (got - want).abs().max()
        assert error <= layer.error_bound(x)
        assert error < limit
    assert layer.error_bound(x) < 1e-12  # at 46 the bound itself, rounding and all


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_equal_those_of_conv2d(case: tuple) -> None:
    conv, x, again = make_conv(case), image().requires_grad_(), image().requires_grad_()
    layer = AttentionConv2d.from_conv(conv, alpha=46.0)
    want, got = conv(x), layer(again)
    up = torch.randn(want.shape, generator=torch.Generator().manual_seed(2), dtype=want.dtype)
    want.backward(up)
    got.backward(up)
    torch.testing.assert_close(again.grad, x.grad, rtol=1e-11, atol=1e-11)
    for name, p in conv.named_parameters():
        torch.testing.assert_close(
            layer.get_parameter(name).grad, p.grad, rtol=1e-11, atol=1e-11, msg=name
        )


@pytest.mark.parametrize("mode", ["zeros", "replicate"])
def test_error_falls_as_exp_of_minus_alpha(mode: str) -> None:
    conv, x = make_conv((3, 1, 1, 1, 1, mode, True)), image()
    want, alphas = conv(x), torch.arange(6, 25, 3, dtype=torch.float64)
    logs = []
    for alpha in alphas:
        layer = AttentionConv2d.from_conv(conv, alpha=float(alpha))
        logs.append((layer(x) - want).abs().max().log())
    slope = torch.stack(logs).diff() / alphas.diff()
    torch.testing.assert_close(slope, torch.full_like(slope, -1.0), rtol=0, atol=0.01)


def test_bound_is_reached_by_the_worst_image() -> None:
    """One tap, an image that is 1 at one pixel and -1 elsewhere: all that leaks counts twice."""
    conv = nn.Conv2d(1, 1, 1, bias=False, dtype=torch.float64)
    nn.init.ones_(conv.weight)
    x = -torch.ones(1, 1, 41, 41, dtype=torch.float64)
    x[0, 0, 20, 20] = 1
    for alpha in (0.1, 1.0, 8.0):
        layer = AttentionConv2d.from_conv(conv, alpha=alpha)
        error = (layer(x) - conv(x)).abs().max()
        assert 0.999 * layer.error_bound(x) < error <= layer.error_bound(x)


def test_leak_by_hand() -> None:
    """alpha = log 2: a neighbour weighs 1/2, one at distance 2 weighs 1/16, at reach 2 in all."""
    alpha = torch.tensor([math.log(2), math.log(2), -1.0, 700.0], dtype=torch.float64)
    centers = torch.tensor([[0, 3], [0.5, 0], [0, 0], [0, 0]], dtype=torch.float64)
    half = 1 + 2 * (1 / 2 + 1 / 16)
    # centre half way: keys at -1.5, -.5, .5, 1.5, 2.5 of it; relative to the nearest (.25)
    between = 1 + 1 + 2**-2 + 2**-2 + 2**-6.0
    want = [1 - 1 / half**2, 1 - 1 / (half * between), 1.0, 4 * math.exp(-700)]
    got = leak(alpha, centers, reach=2)
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=1e-12, atol=0)


def slow_attention(layer: AttentionConv2d, x: Tensor) -> tuple[Tensor, Tensor]:
    """Full N x N softmax, one query, head and key at a time; x is one image (C, h, w)."""
    (top, bottom), (left, right) = layer._pads
    (kh, kw), (sh, sw), (dh, dw) = layer.kernel_size, layer.stride, layer.dilation
    if layer.padding_mode == "zeros":
        keys = [
            (r, c)
            for r in range(-top, x.shape[1] + bottom)
            for c in range(-left, x.shape[2] + right)
        ]
    else:
        keys = [(r, c) for r in range(x.shape[1]) for c in range(x.shape[2])]
    inside = [0 <= r < x.shape[1] and 0 <= c < x.shape[2] for r, c in keys]
    zero = torch.zeros_like(x[:, 0, 0])
    values = torch.stack(
        [x[:, r, c] if ok else zero for (r, c), ok in zip(keys, inside, strict=True)]
    )
    queries = [
        (r - top + dh * (kh - 1) // 2, c - left + dw * (kw - 1) // 2)
        for r in range(0, x.shape[1] + top + bottom - dh * (kh - 1), sh)
        for c in range(0, x.shape[2] + left + right - dw * (kw - 1), sw)
    ]
    every, out = [], []
    wide = layer.in_channels // layer.groups
    deep = layer.out_channels // layer.groups
    for qr, qc in queries:
        y = layer.bias.clone() if layer.bias is not None else torch.zeros(layer.out_channels)
        for head, (alpha, (dr, dc)) in enumerate(zip(layer.alpha, layer.centers, strict=True)):
            s = torch.stack([-alpha * ((r - qr - dr) ** 2 + (c - qc - dc) ** 2) for r, c in keys])
            w = s.softmax(0)
            every.append(w)
            seen = w @ values
            tap = layer.weight[:, :, head // kw, head % kw]
            for o in range(layer.out_channels):
                first = (o // deep) * wide
                y[o] = y[o] + tap[o] @ seen[first : first + wide]
        out.append(y)
    weights = torch.stack(every).unflatten(0, (len(queries), -1)).transpose(0, 1)
    return torch.stack(out, 1), weights


@pytest.mark.parametrize(
    "case",
    [
        (3, 1, 1, 1, 1, "zeros", True),
        ((3, 2), (2, 1), (2, 0), (1, 3), 3, "replicate", True),
        ((2, 3), 1, "same", (2, 1), 3, "zeros", True),
    ],
    ids=str,
)
def test_rows_and_columns_equal_the_full_softmax(case: tuple) -> None:
    """Also where heads have left the pixel grid and each has its own alpha."""
    layer = AttentionConv2d.from_conv(make_conv(case), alpha=1.0, learn=True)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        layer.alpha.uniform_(0.1, 2.0, generator=generator)
        layer.centers.add_(torch.randn(layer.centers.shape, generator=generator))
        x = image(h=5, w=7)
        want, weights = slow_attention(layer, x[1])
        got = layer(x)
    torch.testing.assert_close(layer.weights((5, 7)), weights, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(got[1].flatten(1), want, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(layer(x[1]), got[1])  # an image without B, and batched = one by one


def test_is_the_attention_of_this_package() -> None:
    """`attend` with content 0, the scores as its bias and the padded pixels as values."""
    layer = AttentionConv2d.from_conv(make_conv((3, 1, 1, 1, 1, "zeros", True)), alpha=0.7)
    x = image(h=5, w=7)
    tokens = nn.functional.pad(x, (1, 1, 1, 1)).flatten(2).mT[:, None].expand(-1, 9, -1, -1)
    keys = torch.cartesian_prod(torch.arange(-1.0, 6), torch.arange(-1.0, 8))
    queries = torch.cartesian_prod(torch.arange(5.0), torch.arange(7.0))
    away = keys[None, None] - queries[None, :, None] - layer.centers[:, None, None]
    bias = -0.7 * away.square().sum(-1)
    q, k = x.new_zeros(2, 9, 35, 4), x.new_zeros(2, 9, 63, 4)
    heads = attend(q, k, tokens, bias=bias[None])
    y = torch.einsum("bnqc,ocn->boq", heads, layer.weight.flatten(2)) + layer.bias[:, None]
    torch.testing.assert_close(layer(x).flatten(2), y, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("mode", ["zeros", "replicate"])
def test_weights_sit_on_the_shifted_pixel(mode: str) -> None:
    h, w = 5, 7
    conv = make_conv((3, 1, 1, 1, 1, mode, True))
    weights = AttentionConv2d.from_conv(conv, alpha=20.0).weights((h, w))
    edge = 1 if mode == "zeros" else 0
    assert weights.shape == (9, h * w, (h + 2 * edge) * (w + 2 * edge))
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    want = []
    for dr in (-1, 0, 1):
        for dc in (-1, 0, 1):
            for r in range(h):
                for c in range(w):
                    row = r + dr + edge if edge else min(max(r + dr, 0), h - 1)
                    col = c + dc + edge if edge else min(max(c + dc, 0), w - 1)
                    want.append(row * (w + 2 * edge) + col)
    assert weights.argmax(-1).flatten().tolist() == want
    assert weights.amax(-1).min() > 1 - 1e-8


def test_weights_by_hand() -> None:
    """One head on three pixels in a row, alpha = log 2: 1/2 a step, 1/16 for two."""
    layer = AttentionConv2d(1, 1, 1, alpha=math.log(2), dtype=torch.float64)
    want = [[16 / 25, 8 / 25, 1 / 25], [1 / 4, 1 / 2, 1 / 4], [1 / 25, 8 / 25, 16 / 25]]
    torch.testing.assert_close(
        layer.weights((1, 3))[0], torch.tensor(want, dtype=torch.float64), rtol=1e-12, atol=0
    )


@pytest.mark.parametrize("case", [CASES[0], CASES[1], CASES[7], CASES[11]], ids=str)
def test_no_pixel_outside_the_field_is_read(case: tuple) -> None:
    """At alpha = 800 other weights are exactly 0, so the Jacobian is the convolution's."""
    conv, x = make_conv(case), image(h=5, w=7)[:1]
    layer = AttentionConv2d.from_conv(conv, alpha=800.0)
    want = torch.autograd.functional.jacobian(conv, x)
    got = torch.autograd.functional.jacobian(layer, x)
    assert torch.equal(got != 0, want != 0)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-14)


TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 8e-2}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", [CASES[0], CASES[1], CASES[10], CASES[12]], ids=str)
def test_other_float_types(case: tuple, dtype: torch.dtype) -> None:
    """Against float64 with the same, already rounded numbers; dilated neighbours stay apart."""
    conv, x = make_conv(case, dtype), image(dtype)
    layer = AttentionConv2d.from_conv(conv)
    got = layer(x)
    assert got.dtype == dtype
    error = (got.double() - copy.deepcopy(conv).double()(x.double())).abs().max()
    assert error < TOLERANCE[dtype]
    assert error <= layer.error_bound(x)


def test_float32_weight_is_exactly_one_from_18() -> None:
    weights = AttentionConv2d(1, 1, 3, padding=1, alpha=18.0).weights((9, 9))
    assert weights.dtype == torch.float32
    assert weights.amax(-1).min() == 1
    assert AttentionConv2d(1, 1, 3, padding=1, alpha=12.0).weights((9, 9)).amax(-1).min() < 1
    half = AttentionConv2d(1, 1, 3, padding=1, alpha=18.0, dtype=torch.float16)
    assert half.weights((300, 300 // 50)).isfinite().all()


def test_autocast_and_large_maps() -> None:
    """Scores reach -alpha * 500^2, beyond what half precision can hold."""
    conv = nn.Conv2d(1, 2, 3, padding=1)
    x = torch.randn(1, 1, 500, 11, generator=torch.Generator().manual_seed(4))
    layer = AttentionConv2d.from_conv(conv)
    with torch.autocast("cpu", torch.bfloat16):
        got = layer(x)
    torch.testing.assert_close(got.float(), conv(x), rtol=0, atol=5e-2)


def test_memory_layouts_and_empty_batches() -> None:
    conv, x = make_conv(CASES[0]), image()
    layer = AttentionConv2d.from_conv(conv, alpha=46.0)
    for y in (x.contiguous(memory_format=torch.channels_last), x.mT, x[:, :, ::2, 1:], x[:0]):
        torch.testing.assert_close(layer(y), conv(y), rtol=1e-12, atol=1e-12)
    assert layer.error_bound(x[:0]) < 1e-14


def test_no_n_by_n_matrix_is_built() -> None:
    layer, x = AttentionConv2d(2, 2, 3, padding=1), torch.randn(1, 2, 61, 67)
    with Largest() as seen:
        layer(x)
    assert seen.count == 9 * 2 * 61 * 67  # the taps' patches; N x N would be 16.7 million a head


def test_learned_positions_have_right_gradients() -> None:
    case = ((2, 3), (2, 1), (1, 2), 1, 1, "zeros", True)
    layer = AttentionConv2d.from_conv(make_conv(case), alpha=0.8, learn=True)
    assert {n for n, _ in layer.named_parameters()} == {"weight", "bias", "alpha", "centers"}
    x = image(h=3, w=4)[:1].requires_grad_()

    def run(x: Tensor, alpha: Tensor, centers: Tensor) -> Tensor:
        return torch.func.functional_call(layer, {"alpha": alpha, "centers": centers}, (x,))

    given = (x, layer.alpha.detach().requires_grad_(), layer.centers.detach().requires_grad_())
    assert torch.autograd.gradcheck(run, given)
    few = AttentionConv2d(1, 1, (1, 2), alpha=0.8, learn=True, dtype=torch.float64)

    def run_few(alpha: Tensor, centers: Tensor) -> Tensor:
        return torch.func.functional_call(
            few, {"alpha": alpha, "centers": centers}, (x.detach()[:, :1],)
        )

    assert torch.autograd.gradgradcheck(
        run_few, (few.alpha.detach().requires_grad_(), few.centers.detach().requires_grad_())
    )


def test_a_head_learns_to_leave_its_pixel() -> None:
    """A 1 x 1 convolution moves its head to (2, -1) and sharpens, to copy a shifted image."""
    layer = AttentionConv2d(1, 1, 1, bias=False, alpha=0.5, learn=True, dtype=torch.float64)
    nn.init.ones_(layer.weight)
    layer.weight.requires_grad_(False)
    smooth = nn.functional.avg_pool2d(image()[:, :1], 3, 1)
    want = smooth.roll((-2, 1), (2, 3))[..., :-2, 1:]
    adam = torch.optim.Adam([layer.alpha, layer.centers], lr=0.05)
    for _ in range(150):
        loss = (layer(smooth)[..., :-2, 1:] - want).square().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    want_center = torch.tensor([[2.0, -1.0]], dtype=torch.float64)
    torch.testing.assert_close(layer.centers.detach(), want_center, rtol=0, atol=0.15)
    assert layer.alpha > 1


def test_bound_of_moved_heads_holds_for_the_rounded_convolution() -> None:
    conv, x = make_conv((3, 1, 1, 1, 1, "replicate", True)), image()
    layer = AttentionConv2d.from_conv(conv, alpha=1.5, learn=True)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        layer.alpha.uniform_(0.5, 8, generator=generator)
        moved = torch.rand(layer.centers.shape, generator=generator, dtype=torch.float64) - 0.5
        layer.centers.add_(moved)
        error = (layer(x) - conv(x)).abs().max()
    bound = layer.error_bound(x)
    assert not bound.requires_grad
    assert error <= bound


def test_from_conv_copies_and_keeps_flags() -> None:
    conv = make_conv(CASES[0], torch.float32).eval()
    conv.weight.requires_grad_(False)
    layer = AttentionConv2d.from_conv(conv, 12.0)
    assert not layer.training
    assert not layer.weight.requires_grad
    assert layer.bias is not None
    assert layer.bias.requires_grad
    torch.testing.assert_close(layer.alpha, torch.full((9,), 12.0))
    before = layer(image(torch.float32))
    nn.init.zeros_(conv.weight)
    torch.testing.assert_close(layer(image(torch.float32)), before, rtol=0, atol=0)


def test_save_and_load(tmp_path) -> None:  # type: ignore[no-untyped-def]
    conv, x = make_conv(CASES[0]), image()
    plain = AttentionConv2d(3, 6, 3, padding=1, alpha=46.0, dtype=torch.float64)
    plain.load_state_dict(conv.state_dict())  # strict: the names are those of Conv2d
    torch.testing.assert_close(plain(x), conv(x), rtol=1e-12, atol=1e-12)
    layer = AttentionConv2d.from_conv(conv, alpha=2.0, learn=True)
    with torch.no_grad():
        layer.centers.add_(0.3)
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    again = AttentionConv2d(3, 6, 3, padding=1, learn=True, dtype=torch.float64)
    again.load_state_dict(torch.load(tmp_path / "layer.pt", weights_only=True))
    torch.testing.assert_close(again(x), layer(x), rtol=0, atol=0)


def test_compiles_in_one_graph_and_exports() -> None:
    layer, x = AttentionConv2d.from_conv(make_conv(CASES[0])), image()
    fast = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(fast(x), layer(x), rtol=1e-12, atol=1e-12)
    program = torch.export.export(layer, (x,))
    torch.testing.assert_close(program.module()(x), layer(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel", [(2, 5), (3, 3), (1, 4)])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 3)])
def test_offsets_start_where_padding_same_starts(
    kernel: tuple[int, int], dilation: tuple[int, int]
) -> None:
    conv = nn.Conv2d(1, 1, kernel, padding="same", dilation=dilation)
    left, _, top, _ = conv._reversed_padding_repeated_twice
    offsets = kernel_offsets(kernel, dilation)
    assert offsets[0].tolist() == [-top, -left]
    assert (offsets[-1] - offsets[0]).tolist() == [
        (k - 1) * d for k, d in zip(kernel, dilation, strict=True)
    ]


def test_nearest_offsets_by_hand() -> None:
    assert nearest_offsets(1).tolist() == [[0, 0]]
    assert nearest_offsets(5).tolist() == [[0, 0], [-1, 0], [0, -1], [0, 1], [1, 0]]
    for side in (3, 5, 7):
        square = {tuple(o) for o in kernel_offsets((side, side), (1, 1)).tolist()}
        assert {tuple(o) for o in nearest_offsets(side * side).tolist()} == square


@pytest.mark.parametrize("grid", [(3, 5), (1, 7)])
def test_offset_bias_against_loops(grid: tuple[int, int]) -> None:
    layer = OffsetBias(5, alpha=1.3).double()
    with torch.no_grad():
        layer.centers.add_(torch.tensor([0.25, -0.5]))
    s = layer(grid)
    h, w = grid
    want = torch.empty(5, h * w, h * w, dtype=torch.float64)
    for n, (dr, dc) in enumerate(layer.centers.tolist()):
        for i in range(h * w):
            for j in range(h * w):
                r, c = j // w - i // w, j % w - i % w
                want[n, i, j] = -layer.alpha[n] * ((r - dr) ** 2 + (c - dc) ** 2)
    assert s.shape == (1, 5, h * w, h * w)
    torch.testing.assert_close(s[0].softmax(-1), want.softmax(-1), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(s.amax(-1), torch.zeros_like(s[..., 0]))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: AttentionConv2d(3, 6, 3, padding_mode="circular"), "circular.*zeros or replicate"),
        (
            lambda: AttentionConv2d(3, 6, 3, groups=2),
            "in_channels 3.*groups.: 2.*divisible",
        ),
        (lambda: AttentionConv2d(3, 6, 3, alpha=0.0), "alpha=0.0 .*above 0"),
        (lambda: AttentionConv2d(3, 6, 3, alpha=float("nan")), "alpha=nan"),
        (lambda: OffsetBias(9, alpha=-1.0), "alpha=-1.0"),
        (lambda: AttentionConv2d.from_conv(nn.Linear(3, 6)), "Linear, wanted .*Conv2d"),
        (lambda: AttentionConv2d.from_conv(nn.ConvTranspose2d(3, 6, 3)), "ConvTranspose2d"),
        (lambda: AttentionConv2d.from_conv(nn.LazyConv2d(6, 3)), "LazyConv2d"),
        (
            lambda: AttentionConv2d.from_conv(nn.Conv2d(3, 6, 3, padding_mode="reflect")),
            "reflect",
        ),
        (lambda: AttentionConv2d(3, 6, 3)(torch.ones(1, 4, 5, 5)), "4, 5, 5.*in_channels 3"),
        (lambda: AttentionConv2d(3, 6, 3)(torch.ones(5, 5)), "5, 5"),
        (
            lambda: AttentionConv2d(3, 6, (3, 5), dilation=2)(torch.ones(1, 3, 5, 8)),
            "8 pixels, padded to 8, .*spans 9",
        ),
    ],
)
def test_mistakes_are_named(call, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match=words):
        call()
