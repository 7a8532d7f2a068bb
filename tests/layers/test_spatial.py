"""Attention for feature maps: the papers' formulas in float64, and layers behind named stages."""

import copy

import pytest
import timm
import torch
import torchvision
from torch import nn
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.layers.attention import MultiHeadSelfAttention
from vision_attn.layers.spatial import KINDS, SelfAttention2d, add_attention
from vision_attn.models.cost import cost


def opened(layer):
    """A layer in float64, whose gate is open, in eval mode."""
    layer = layer.double().eval()
    gate = layer.norm.weight if layer.gamma is None else layer.gamma
    gate.data.uniform_(0.5, 1.5)
    if layer.gamma is None:
        layer.norm.running_mean.normal_()
        layer.norm.running_var.uniform_(0.5, 2)
    return layer


def image(channels=16, h=5, w=7):
    return torch.randn(2, channels, h, w, dtype=torch.float64, requires_grad=True)


def pixel(conv, x):
    """A 1 x 1 convolution of one pixel (C,)."""
    y = conv.weight[:, :, 0, 0] @ x
    return y if conv.bias is None else y + conv.bias


def by_loops(layer, x, keys, weigh):
    """sum_j w_ij W_v x_j, then W: one sample, one query, one key after the other."""
    y = torch.zeros_like(x)
    for b in range(x.shape[0]):
        key, value = keys(layer, x[b])
        for r in range(x.shape[2]):
            for c in range(x.shape[3]):
                w = weigh(torch.stack([pixel(layer.q, x[b, :, r, c]) @ k for k in key]))
                y[b, :, r, c] = pixel(layer.proj, sum(w[j] * v for j, v in enumerate(value)))
    return y


def every_pixel(layer, x):
    pixels = x.flatten(1).T
    return [pixel(layer.k, p) for p in pixels], [pixel(layer.v, p) for p in pixels]


def pooled(layer, x):
    """The largest of each 2 x 2 pixels, channel by channel, after the projection."""
    found = []
    for conv in (layer.k, layer.v):
        cells = []
        for r in range(0, x.shape[1], 2):
            for c in range(0, x.shape[2], 2):
                cell = x[:, r : r + 2, c : c + 2].flatten(1).T
                cells.append(torch.stack([pixel(conv, p) for p in cell]).amax(0))
        found.append(cells)
    return found


def softmax(s):
    return s.exp() / s.exp().sum()


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        ({}, every_pixel),
        ({"v_dim": 8, "pool": True}, pooled),
        ({"gate": "layer_scale"}, every_pixel),
    ],
)
def test_sagan_is_its_formula(options, keys):
    torch.manual_seed(0)
    layer, x = opened(SelfAttention2d(16, "sagan", **options)), image(h=3, w=5)
    assert layer.q.weight.shape[:2] == (2, 16)
    assert layer.q.bias is None
    want = x + layer.gamma * by_loops(layer, x, keys, softmax)
    assert_close(layer(x), want)
    probe = torch.randn_like(want)
    grads = [torch.autograd.grad((y * probe).sum(), x) for y in (layer(x), want)]
    assert_close(*grads)


@pytest.mark.parametrize("score", ["softmax", "dot"])
def test_nonlocal_is_its_formula(score):
    torch.manual_seed(0)
    layer, x = opened(SelfAttention2d(6, "nonlocal", score=score)), image(6, 3, 5)
    assert layer.k.weight.shape[:2] == (3, 6)
    weigh = softmax if score == "softmax" else (lambda s: s / 15)
    bn = layer.norm
    y = by_loops(layer, x, every_pixel, weigh)
    z = (y - bn.running_mean[:, None, None]) / (bn.running_var[:, None, None] + bn.eps).sqrt()
    want = x + z * bn.weight[:, None, None] + bn.bias[:, None, None]
    assert_close(layer(x), want)


def test_multihead_is_multi_head_self_attention_on_pixels():
    torch.manual_seed(0)
    layer, x = opened(SelfAttention2d(12, "multihead", num_heads=3)), image(12)
    full = MultiHeadSelfAttention(12, 3, qkv_bias=True).double()
    convs = (layer.q, layer.k, layer.v)
    full.qkv.weight.data = torch.cat([c.weight[:, :, 0, 0] for c in convs])
    full.qkv.bias.data = torch.cat([c.bias for c in convs])
    full.proj.weight.data, full.proj.bias.data = layer.proj.weight[:, :, 0, 0], layer.proj.bias
    y = full(x.flatten(2).mT).mT.unflatten(2, (5, 7))
    assert_close(layer(x), x + layer.gamma * y)


def test_spectral_norm_bounds_each_map():
    torch.manual_seed(0)
    layer = SelfAttention2d(16, spectral_norm=True)
    for conv in (layer.q, layer.k, layer.v, layer.proj):
        conv.parametrizations.weight.original.data.mul_(9)
    for _ in range(50):
        layer(torch.randn(2, 16, 3, 5))
    layer.eval()
    for conv in (layer.q, layer.k, layer.v, layer.proj):
        assert torch.linalg.matrix_norm(conv.weight[:, :, 0, 0], 2).item() == pytest.approx(1, 1e-3)


@pytest.mark.parametrize("kind", ["sagan", "nonlocal", "multihead"])
def test_a_closed_gate_is_the_identity_but_learns(kind):
    torch.manual_seed(0)
    layer, x = SelfAttention2d(16, kind), torch.randn(2, 16, 5, 7)
    assert torch.equal(layer.eval()(x), x)
    layer.train()(x).square().sum().backward()
    gate = layer.norm.weight if layer.gamma is None else layer.gamma
    assert gate.grad.abs().sum() > 0
    again = SelfAttention2d(16, kind).double()
    again.load_state_dict(opened(layer).state_dict())
    assert torch.equal(again.eval()(x.double()), layer(x.double()))


@pytest.mark.parametrize("pool", [False, True])
def test_one_pixel_gives_its_own_value(pool):
    layer = opened(SelfAttention2d(16, pool=pool))
    x = image(h=1, w=1)
    assert_close(layer(x), x + layer.gamma * layer.proj(layer.v(x)))


NETWORKS = [
    (lambda: torchvision.models.resnet18(num_classes=5), "layer3", 256),
    (lambda: timm.create_model("resnet10t", num_classes=5), "layer2", 128),
    (lambda: timm.create_model("convnext_atto", num_classes=5), "stages.1", 80),
    (lambda: timm.create_model("mobilenetv3_small_050", num_classes=5), "blocks.2", 24),
]


@pytest.mark.parametrize(("make", "stage", "channels"), NETWORKS, ids=[n[1] for n in NETWORKS])
@pytest.mark.parametrize("given", [False, True])
def test_output_is_unchanged_until_gamma_moves(make, stage, channels, given):
    torch.manual_seed(0)
    model = make().train()
    x = torch.randn(2, 3, 48, 56)
    plain = copy.deepcopy(model).eval()(x)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    assert add_attention(model, stage, channels=channels if given else None) is model
    after = model.state_dict()
    assert all(torch.equal(after[k], v) for k, v in before.items())
    assert all(f"{stage}.self_attention2d." in k for k in after.keys() - before.keys())
    assert all(m.training for m in model.modules())
    layer = model.get_submodule(f"{stage}.self_attention2d")
    assert layer.dim == channels
    model.eval()
    assert torch.equal(model(x), plain)
    layer.gamma.data.fill_(1.0)
    moved = model(x)
    assert (moved - plain).abs().max() > 1e-6
    twin = copy.deepcopy(model)
    layer.gamma.data.fill_(0.0)
    assert_close(twin(x), moved)  # a copy uses its own layer
    assert torch.equal(model(x), plain)


def test_the_layer_acts_on_the_stages_output():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.Flatten())
    add_attention(model, "0", "multihead", num_heads=2, init_values=1.0)
    x = torch.randn(2, 3, 7, 5)
    conv, layer = model[0], model[0].self_attention2d
    want = layer(nn.functional.conv2d(x, conv.weight, conv.bias)).flatten(1)
    assert_close(model(x), want)


@pytest.mark.parametrize(
    ("stage", "options", "words"),
    [
        ("layr3", {}, "'layr3' is not in the model; try .*layer3"),
        ("", {}, "not in the model"),
        ("fc", {}, r"'fc' gave .*5.*feature map"),
        ("layer3", {"kind": "sagam"}, "kind='sagam'.*sagan, nonlocal, multihead"),
        ("layer3", {"num_head": 2}, "num_head"),
        ("layer3", {"gate": "open"}, "gate='open'.*gamma"),
        ("layer3", {"img_size": -1}, "channels="),
        ("layer3", {"kind": "multihead", "num_heads": 3}, "256.*num_heads 3"),
    ],
)
def test_mistakes_are_named(stage, options, words):
    model = torchvision.models.resnet18(num_classes=5)
    with pytest.raises(UserError, match=words):
        add_attention(model, stage, **options)


def test_a_stage_that_cannot_take_it_is_refused():
    model = torchvision.models.densenet121(num_classes=5)
    with pytest.raises(UserError, match="runs over its children"):
        add_attention(model, "features.denseblock1")
    add_attention(model, "features.transition1", channels=128)
    with pytest.raises(UserError, match="has attention already"):
        add_attention(model, "features.transition1", channels=128)
    with pytest.raises(UserError, match=r"3, 5.*dim 16"):
        SelfAttention2d(16)(torch.zeros(1, 3, 5, 5))


def test_the_table_of_kinds_is_measured_and_stands_in_the_docstring():
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in SelfAttention2d.__doc__.splitlines()
        if line.strip().startswith("|")
    ]
    head, _, *kinds = rows
    assert head == ["kind", "use", "GFLOP at 64 x 64", "with pool", "source"]
    assert [row[0] for row in kinds] == list(KINDS)
    for kind, use, gflops, pooled, source in kinds:
        preset = KINDS[kind]
        assert (use, float(gflops), float(pooled), source) == preset[:4]
        for pool, stated in ((False, gflops), (True, pooled)):
            flops = cost(SelfAttention2d(64, kind, pool=pool).to("meta"), 64, (64, 64)).flops
            assert f"{flops / 1e9:.2f}" == stated


class UNet(nn.Module):
    """Two maps of each size but the smallest."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())
        self.middle = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, padding=1))
        self.up = nn.Sequential(nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(4, 4, 3, padding=1))
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x):
        x = self.down(x)
        return self.head(torch.cat((x, self.up(self.middle(x))), 1))


@pytest.mark.parametrize(
    ("model", "size", "words"),
    [
        (
            torchvision.models.resnet18(num_classes=5),
            64,
            r"64 x 64 pixels there are relu \(64 x 32 x 32, 1,024 tokens\), layer1 \(64 x 16 x 16,"
            r" 256 tokens\), layer2 .*, layer4 \(512 x 2 x 2, 4 tokens\);"
            r" take add_attention\(model, 'layer1'\)$",
        ),
        (torchvision.models.resnet18(num_classes=5), (224, 200), r"\(model, 'layer2'\)$"),
        (UNet(), (20, 30), r"head \(2 x 20 x 30, 600 tokens\), middle \(8 x 10 x 15, 150 tokens\)"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()), (9, 7), r"0 \(4 x 7 x 5.*'0'\)$"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()), 3, "no stage that gives a feature map"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()), 2, "does not run: .*; give stage"),
        (nn.Linear(3, 4), 8, "no Conv2d that shows its channels; give stage"),
    ],
)
def test_without_a_stage_it_proposes_one(model, size, words):
    with pytest.raises(UserError, match=words) as e:
        add_attention(model, img_size=size)
    assert "\n" not in str(e.value)


def test_the_proposed_stage_is_free_and_takes_it():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3))
    for stage in ("0", "1"):
        with pytest.raises(UserError, match=rf"take add_attention\(model, '{stage}'\)"):
            add_attention(model, img_size=(10, 14))
        add_attention(model, stage)
