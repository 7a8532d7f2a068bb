"""Windows and neighbourhoods: values against loops, timm's Swin and full attention under a mask."""

import math

import pytest
import torch
from timm.models.swin_transformer import SwinTransformerBlock
from timm.models.swin_transformer import WindowAttention as TimmWindowAttention
from torch.testing import assert_close
from torchvision.models.swin_transformer import ShiftedWindowAttention

from vision_attn.errors import UserError
from vision_attn.layers.attention import MultiHeadSelfAttention
from vision_attn.layers.local import NeighborhoodAttention, WindowAttention
from vision_attn.ops import neighborhood
from vision_attn.ops.attention import attend
from vision_attn.ops.masks import neighborhood_mask, window_mask
from vision_attn.ops.neighborhood import neighborhood_attend
from vision_attn.ops.positions import rotary_2d
from vision_attn.ops.windows import window_attend

NEIGHBORHOODS = [  # grid, kernel, dilation
    ((5, 7), (3, 3), (1, 1)),
    ((23, 29), (3, 5), (1, 1)),
    ((23, 13), (3, 5), (2, 3)),
    ((37, 5), (5, 3), (3, 1)),
    ((2, 31), (3, 3), (5, 2)),
    ((3, 3), (7, 7), (1, 1)),
    ((4, 5), (5, 7), (1, 1)),  # one step short of the whole grid both ways
    ((5, 9), (5, 7), (2, 2)),
    ((1, 29), (1, 3), (1, 1)),
]
WINDOWS = [  # grid, window, shift
    ((8, 12), (4, 4), (2, 2)),
    ((7, 11), (3, 4), (1, 2)),
    ((7, 11), (3, 4), (0, 0)),
    ((3, 11), (5, 4), (2, 3)),
    ((13, 5), (4, 7), (3, 0)),
    ((5, 5), (7, 7), (3, 3)),
]


def tensors(grid, heads=3, width=5, batch=2):
    torch.manual_seed(0)
    shape = (3, batch, heads, grid[0] * grid[1], width)
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


def same_with_gradients(found, wanted, *inputs):
    probe = torch.randn_like(wanted)
    grads = [torch.autograd.grad((y * probe).sum(), inputs) for y in (found, wanted)]
    assert_close(found, wanted)
    assert_close(*grads)


def neighbor(i, j, grid, kernel, dilation):
    """Key j is a tap of the kernel on query i, written for reading."""
    (r, c), (y, x) = divmod(i, grid[1]), divmod(j, grid[1])
    taps_r = [dilation[0] * t for t in range(-(kernel[0] // 2), kernel[0] // 2 + 1)]
    taps_c = [dilation[1] * t for t in range(-(kernel[1] // 2), kernel[1] // 2 + 1)]
    return y - r in taps_r and x - c in taps_c


@pytest.mark.parametrize(("grid", "kernel", "dilation"), NEIGHBORHOODS)
def test_neighborhood_equals_full_attention_under_its_mask(grid, kernel, dilation):
    qkv = tensors(grid)
    mask = neighborhood_mask(grid, kernel, dilation)
    n = grid[0] * grid[1]
    want = [[neighbor(i, j, grid, kernel, dilation) for j in range(n)] for i in range(0, n, 7)]
    assert mask[::7].tolist() == want
    y = neighborhood_attend(*qkv, grid, kernel, dilation=dilation, scale=0.7)
    same_with_gradients(y, attend(*qkv, mask=mask, scale=0.7), qkv)


@pytest.mark.parametrize(("grid", "kernel", "dilation"), NEIGHBORHOODS[1:5])
def test_neighborhood_bias_is_indexed_by_query_minus_key(grid, kernel, dilation):
    qkv = tensors(grid)
    table = torch.randn(kernel[0] * kernel[1], 3, dtype=torch.float64, requires_grad=True)
    n = grid[0] * grid[1]
    rows = torch.zeros(n, n, dtype=torch.long)
    for i in range(n):
        for j in range(n):
            if neighbor(i, j, grid, kernel, dilation):
                (r, c), (y, x) = divmod(i, grid[1]), divmod(j, grid[1])
                down, right = (r - y) // dilation[0], (c - x) // dilation[1]
                rows[i, j] = (down + kernel[0] // 2) * kernel[1] + right + kernel[1] // 2
    y = neighborhood_attend(*qkv, grid, kernel, dilation=dilation, bias_table=table)
    mask = neighborhood_mask(grid, kernel, dilation)
    same_with_gradients(y, attend(*qkv, mask=mask, bias=table[rows].permute(2, 0, 1)), qkv, table)


@pytest.mark.parametrize("score", ["relu", "sigmoid"])
def test_other_scores_count_only_the_allowed_keys(score):
    qkv = tensors((11, 13))
    y = neighborhood_attend(*qkv, (11, 13), (3, 3), score=score)
    want = attend(*qkv, mask=neighborhood_mask((11, 13), (3, 3)), score=score)
    same_with_gradients(y, want, qkv)
    y = window_attend(*qkv, (11, 13), (4, 5), shift_size=(2, 1), score=score)
    want = attend(*qkv, mask=window_mask((11, 13), (4, 5), (2, 1)), score=score)
    same_with_gradients(y, want, qkv)


def test_neighborhood_against_a_loop():
    """A float64 loop over queries and keys: no mask, no matrix."""
    grid, kernel = (3, 11), (3, 5)
    q, k, v = tensors(grid, heads=1, batch=1)[:, 0, 0].detach()
    want = torch.zeros_like(v)
    for i in range(33):
        keys = [j for j in range(33) if neighbor(i, j, grid, kernel, (1, 1))]
        e = [math.exp(float(q[i] @ k[j]) / math.sqrt(5)) for j in keys]
        for j, weight in zip(keys, e, strict=True):
            want[i] += weight / sum(e) * v[j]
    found = neighborhood_attend(q[None, None], k[None, None], v[None, None], grid, kernel)
    assert_close(found[0, 0], want)


def test_a_corner_has_fewer_keys_and_none_is_moved_inside():
    """Zero scores: the output is the mean over the keys that are inside. Hand numbers."""
    v = torch.arange(25.0).reshape(1, 1, 25, 1)
    zero = torch.zeros(1, 1, 25, 1)
    y = neighborhood_attend(zero, zero, v, (5, 5), (3, 3)).reshape(5, 5)
    assert y[0, 0].item() == pytest.approx((0 + 1 + 5 + 6) / 4)
    assert y[0, 2].item() == pytest.approx((1 + 2 + 3 + 6 + 7 + 8) / 6)
    assert y[2, 2].item() == pytest.approx(12)
    assert neighborhood_mask((5, 5), (3, 3)).sum(-1).reshape(5, 5)[0].tolist() == [4, 6, 6, 6, 4]


@pytest.mark.parametrize("tile", [1, 3, 8])
def test_result_does_not_depend_on_the_tiles(tile, monkeypatch):
    qkv = tensors((17, 19))
    want = neighborhood_attend(*qkv, (17, 19), (3, 3), dilation=(2, 1))
    monkeypatch.setattr(neighborhood, "_TILE", tile)
    assert_close(neighborhood_attend(*qkv, (17, 19), (3, 3), dilation=(2, 1)), want)


def test_large_batches_are_done_in_parts(monkeypatch):
    qkv = tensors((11, 13), batch=5)
    table = torch.randn(9, 3, dtype=torch.float64, requires_grad=True)
    want = neighborhood_attend(*qkv, (11, 13), (3, 3), bias_table=table)
    monkeypatch.setattr(neighborhood, "_CHUNK", 2 * 3 * 143 * 5)
    real, batches = neighborhood.attend_tiles, []

    def counted(q, *rest, **options):
        batches.append(q.shape[1])
        return real(q, *rest, **options)

    monkeypatch.setattr(neighborhood, "attend_tiles", counted)
    found = neighborhood_attend(*qkv, (11, 13), (3, 3), bias_table=table)
    assert batches == [2, 2, 1]
    same_with_gradients(found, want, qkv, table)
    batches.clear()
    neighborhood_attend(*qkv[:, :2], (11, 13), (3, 3), bias_table=table)
    assert batches == [2]


@pytest.mark.parametrize(("grid", "window", "shift"), WINDOWS)
def test_window_equals_full_attention_under_its_mask(grid, window, shift):
    qkv = tensors(grid)
    y = window_attend(*qkv, grid, window, shift_size=shift)
    same_with_gradients(y, attend(*qkv, mask=window_mask(grid, window, shift)), qkv)


@pytest.mark.parametrize(("grid", "window", "shift"), WINDOWS)
def test_window_bias_is_that_of_the_difference_of_positions(grid, window, shift):
    qkv = tensors(grid)
    rows = (2 * window[0] - 1) * (2 * window[1] - 1)
    table = torch.randn(rows, 3, dtype=torch.float64, requires_grad=True)
    at = torch.cartesian_prod(torch.arange(grid[0]), torch.arange(grid[1]))
    down, right = (at[:, None] - at).unbind(-1)
    index = (down + window[0] - 1) * (2 * window[1] - 1) + right + window[1] - 1
    bias = table[index.clamp(0, rows - 1)].permute(2, 0, 1)
    y = window_attend(*qkv, grid, window, shift_size=shift, bias_table=table)
    want = attend(*qkv, mask=window_mask(grid, window, shift), bias=bias)
    same_with_gradients(y, want, qkv, table)


def test_window_mask_by_hand():
    """One row of 7, windows of 3, moved by 1: 0 | 1 2 3 | 4 5 6; not moved: 0 1 2 | 3 4 5 | 6."""
    for shift, groups in ((1, "0111222"), (0, "0001112")):
        want = [[a == b for b in groups] for a in groups]
        assert window_mask((1, 7), (1, 3), (0, shift)).tolist() == want
    assert window_mask((3, 3), (3, 5), (1, 2)).all()  # one window covers both axes: no shift


@pytest.mark.parametrize("shift", [0, 2])
def test_window_layer_equals_timms_swin_block(shift):
    torch.manual_seed(1)
    block = SwinTransformerBlock(12, (12, 8), 3, window_size=4, shift_size=shift).double().eval()
    ours = WindowAttention(12, 3, window_size=4, shift_size=shift).double().eval()
    ours.load_state_dict(block.attn.state_dict())
    x = torch.randn(2, 12, 8, 12, dtype=torch.float64, requires_grad=True)
    same_with_gradients(ours(x.flatten(1, 2), (12, 8)), block._attn(x).flatten(1, 2), x)


def test_window_layer_equals_timms_attention_in_a_rectangle():
    torch.manual_seed(1)
    theirs = TimmWindowAttention(12, 3, window_size=(3, 5)).double().eval()
    ours = WindowAttention(12, 3, window_size=(3, 5)).double().eval()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 15, 12, dtype=torch.float64)
    assert_close(ours(x, (3, 5)), theirs(x))


@pytest.mark.parametrize(
    ("grid", "window", "shift"),
    [((5, 7), (3, 4), (1, 2)), ((5, 7), (4, 3), (0, 0)), ((2, 7), (3, 4), (1, 3)),
     ((6, 8), (3, 4), (1, 2)), ((1, 1), (2, 2), (1, 1))],
)  # fmt: skip
def test_padding_tokens_take_weight_as_in_torchvisions_swin(grid, window, shift):
    torch.manual_seed(4)
    theirs = ShiftedWindowAttention(12, [*window], [*shift], 3).eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p)
    state = {k: v for k, v in theirs.state_dict().items() if not k.endswith("index")}
    ours = WindowAttention(12, 3, window_size=window, shift_size=shift, pad_tokens=True).eval()
    ours.load_state_dict(state)
    x = torch.randn(2, *grid, 12)
    assert_close(ours(x.flatten(1, 2), grid), theirs(x).flatten(1, 2), rtol=1e-5, atol=1e-5)
    grids = []
    ours.observer = lambda q, grid_size, **rest: grids.append((grid_size, q.shape[2]))
    ours(x.flatten(1, 2), grid)
    full = tuple(-(-n // m) * m for n, m in zip(grid, window, strict=True))
    assert grids == [(full, full[0] * full[1])]


def test_pads_take_no_weight():
    """5 x 7 in windows of 4: with all scores equal each token gets the mean of its own window."""
    zero = torch.zeros(1, 1, 35, 1)
    y = window_attend(zero, zero, torch.ones(1, 1, 35, 1), (5, 7), (4, 4), shift_size=(1, 1))
    assert_close(y, torch.ones(1, 1, 35, 1))


@pytest.mark.parametrize(
    ("layer", "mask"),
    [
        (
            NeighborhoodAttention(4, 2, kernel_size=(3, 5), rel_bias=True),
            neighborhood_mask((11, 13), (3, 5)),
        ),
        (
            NeighborhoodAttention(4, 2, kernel_size=3, dilation=(2, 3)),
            neighborhood_mask((11, 13), (3, 3), (2, 3)),
        ),
        (WindowAttention(4, 2, window_size=(3, 4)), window_mask((11, 13), (3, 4))),
        (
            WindowAttention(4, 2, window_size=(3, 4), shift_size=(1, 2)),
            window_mask((11, 13), (3, 4), (1, 2)),
        ),
    ],
)
def test_output_depends_exactly_on_the_allowed_keys(layer, mask):
    torch.manual_seed(2)
    layer = layer.double()
    x = torch.randn(1, 143, 4, dtype=torch.float64)
    jac = torch.autograd.functional.jacobian(lambda t: layer(t, (11, 13)).sum((0, 2)), x)
    assert torch.equal(jac[:, 0].abs().amax(-1) > 0, mask)


@pytest.mark.parametrize("options", [{}, {"qkv_bias": True, "qk_norm": True, "scale": 0.3}])
def test_layer_equals_multi_head_self_attention_under_the_mask(options):
    torch.manual_seed(3)
    full = MultiHeadSelfAttention(24, 3, **options).double()
    local = NeighborhoodAttention(24, 3, kernel_size=5, dilation=2, **options).double()
    local.load_state_dict(full.state_dict())
    x = torch.randn(2, 13 * 17, 24, dtype=torch.float64, requires_grad=True)
    turn = rotary_2d((13, 17), 8).double()
    want = full(x, mask=neighborhood_mask((13, 17), (5, 5), (2, 2)), rotary=turn)
    got = local(x, (13, 17), rotary=turn)
    probe = torch.randn_like(want)
    grads = [
        torch.autograd.grad((y * probe).sum(), (x, *layer.parameters()))
        for layer, y in ((full, want), (local, got))
    ]
    assert_close(got, want)
    assert_close(*grads)


@pytest.mark.parametrize("cls", [WindowAttention, NeighborhoodAttention])
def test_dropout_only_while_training(cls):
    layer = cls(8, 2, attn_drop=0.5, proj_drop=0.5)
    x = torch.randn(1, 35, 8)
    assert not torch.equal(layer(x, (5, 7)), layer(x, (5, 7)))
    layer.eval()
    assert torch.equal(layer(x, (5, 7)), layer(x, (5, 7)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cls", [WindowAttention, NeighborhoodAttention])
def test_half_precision_is_near_double(cls, dtype):
    torch.manual_seed(4)
    layer, x = cls(8, 2, rel_bias=True), torch.randn(2, 11 * 13, 8)
    want = layer.double()(x.to(dtype).double(), (11, 13))
    found = layer.to(dtype)(x.to(dtype), (11, 13))
    assert_close(found.double(), want, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("cls", [WindowAttention, NeighborhoodAttention])
def test_empty_batches_and_one_sample_at_a_time(cls):
    torch.manual_seed(5)
    layer, x = cls(8, 2, rel_bias=True).double(), torch.randn(3, 143, 8, dtype=torch.float64)
    assert layer(x[:0], (11, 13)).shape == (0, 143, 8)
    assert_close(layer(x, (11, 13)), torch.cat([layer(t[None], (11, 13)) for t in x]))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: NeighborhoodAttention(8, 2, kernel_size=4), r"kernel_size \(4, 4\).*odd.* 5"),
        (lambda: NeighborhoodAttention(8, 2, dilation=0), r"dilation \(0, 0\).*at least 1"),
        (lambda: NeighborhoodAttention(8, 2, kernel=3), "no argument 'kernel'; try kernel_size"),
        (lambda: NeighborhoodAttention(8, 3), "dim 8.*num_heads 3.*try"),
        (lambda: WindowAttention(8, 2, window_size=4, shift_size=4), "4.*0 to window - 1; try"),
        (lambda: WindowAttention(8, 2)(torch.zeros(1, 34, 8), (5, 7)), r"34, 8.*5 x 7.*35, 8"),
        (lambda: window_attend(*torch.zeros(3, 1, 1, 6, 1), (2, 2), (2, 2)), "6.*grid_size"),
        (
            lambda: NeighborhoodAttention(8, 2, num_registers=3),
            "num_registers is 3",
        ),
    ],
)
def test_mistakes_are_named(make, words):
    with pytest.raises(UserError, match=words):
        make()
