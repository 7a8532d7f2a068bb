"""Heads that start as a convolution: what they compute at the start, and that they can leave it."""

import math
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.layers.conv import OffsetBias
from vision_attn.models.conv_init_vit import ConvInitVisionTransformer


def small(**args: Any) -> ConvInitVisionTransformer:
    torch.manual_seed(0)
    given = {"img_size": (10, 14), "patch_size": 2, "in_chans": 1, "num_classes": 3,
             "embed_dim": 18, "depth": 2, **args}  # fmt: skip
    return ConvInitVisionTransformer(**given)


def image(h: int = 10, w: int = 14) -> Tensor:
    return torch.randn(2, 1, h, w, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("projection", ["full", "per_head"])
@pytest.mark.parametrize("heads", [9, 6])
def test_attention_starts_as_a_convolution(heads: int, projection: Any) -> None:
    """A sharp start equals Conv2d with replicate padding, whose taps are W_o W_v of each head."""
    h, w, dim, width = 5, 7, 18, 18 // heads
    model = small(num_heads=heads, projection=projection, alpha=46.0, depth=1).double()
    attn, position = model.blocks[0].attn, model.rel_bias[0]
    conv = nn.Conv2d(dim, dim, 3, padding=1, padding_mode="replicate", dtype=torch.float64)
    nn.init.zeros_(conv.weight)
    with torch.no_grad():
        attn.qkv.bias.uniform_(-1, 1)[:dim] = 0
        values = attn.qkv(torch.eye(dim, dtype=torch.float64)[None])[0, :, 2 * dim :]
        shift = attn.qkv.bias[2 * dim :]
        for n, (row, col) in enumerate(position.centers.int().tolist()):
            part = slice(n * width, (n + 1) * width)
            tap = attn.proj.weight[:, part] @ (values - shift)[:, part].mT
            conv.weight[:, :, row + 1, col + 1] += tap
        conv.bias.copy_(attn.proj.bias + attn.proj.weight @ shift)
        x = torch.randn(2, h * w, dim, dtype=torch.float64)
        got = attn(x, bias=position((h, w)))
        want = conv(x.mT.unflatten(2, (h, w))).flatten(2).mT
    torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"qk_norm": True}, {"projection": "per_head"}], ids=str)
@pytest.mark.parametrize("size", [(10, 14), (6, 8)])
def test_heads_start_on_the_shifted_token(options: dict[str, Any], size: tuple[int, int]) -> None:
    """Whatever an image of whatever size shows, the weights are the formula's at alpha = 2."""
    model, h, w = small(**options, dynamic_img_size=True), size[0] // 2, size[1] // 2
    seen = []
    for block in model.blocks:
        block.attn.register_forward_pre_hook(
            lambda m, a, k: seen.append((m, a[0], k["bias"])), with_kwargs=True
        )
    with torch.no_grad():
        model(image(*size))
    middle = sum(math.exp(-2.0 * n * n) for n in range(-9, 10)) ** -2
    assert len(seen) == 2
    for attn, x, bias in tuple(seen):  # the hook goes on collecting
        with torch.no_grad():
            _, weights = attn(x, bias=bias, return_weights=True)
        want = torch.empty(9, h * w, h * w)
        nearest = []
        for n, (dr, dc) in enumerate(model.rel_bias[0].centers.int().tolist()):
            for i in range(h * w):
                r, c = i // w + dr, i % w + dc
                nearest.append(min(max(r, 0), h - 1) * w + min(max(c, 0), w - 1))
                for j in range(h * w):
                    want[n, i, j] = -2.0 * ((j // w - r) ** 2 + (j % w - c) ** 2)
        torch.testing.assert_close(weights, want.softmax(-1).expand(2, -1, -1, -1))
        assert weights[1].argmax(-1).flatten().tolist() == nearest
        assert weights.amax(-1).min() == pytest.approx(middle, abs=1e-3)  # least in the middle


@pytest.mark.parametrize("qk_norm", [False, True])
def test_gradients_reach_position_and_content(qk_norm: bool) -> None:
    model = small(qk_norm=qk_norm)
    F.cross_entropy(model(image()), torch.tensor([0, 2])).backward()
    for block, position in zip(model.blocks, model.rel_bias, strict=True):
        query = block.attn.q_norm.weight.grad if qk_norm else block.attn.qkv.weight.grad[:18]
        value = block.attn.qkv.weight.grad[36:]
        for grad in (position.alpha.grad, position.centers.grad, query, value):
            assert grad.isfinite().all()
            assert (grad != 0).float().mean() > 0.9


def test_gradient_of_the_positions_is_right() -> None:
    position = OffsetBias(5, alpha=0.9).double()
    up = torch.randn(1, 5, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))

    def weights(alpha: Tensor, centers: Tensor) -> Tensor:
        given = {"alpha": alpha, "centers": centers}
        return (torch.func.functional_call(position, given, ((2, 3),)).softmax(-1) * up).sum()

    given = [p.detach().clone().requires_grad_() for p in (position.alpha, position.centers)]
    assert torch.autograd.gradcheck(weights, given)


def test_it_trains_and_leaves_the_convolution() -> None:
    """The class is the half of the image that holds a bright square."""
    torch.manual_seed(0)
    y = torch.arange(16) % 2
    x = 0.3 * torch.randn(16, 1, 10, 14)
    x[y == 0, :, 3:6, 2:5] += 1
    x[y == 1, :, 3:6, 9:12] += 1
    model = small(num_classes=2, depth=1)
    position = model.rel_bias[0]
    start = position.alpha.detach().clone(), position.centers.detach().clone()
    adam = torch.optim.AdamW(model.parameters(), lr=5e-3)
    losses = []
    for _ in range(25):
        loss = F.cross_entropy(model(x), y)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    assert losses[0] > 0.6
    assert losses[-1] < 0.1
    assert (position.alpha - start[0]).abs().mean() > 5e-3
    assert (position.centers - start[1]).abs().mean() > 5e-3
    assert model.blocks[0].attn.qkv.weight[:18].abs().mean() > 1e-3


def test_registered_saved_and_loaded(tmp_path) -> None:  # type: ignore[no-untyped-def]
    args = {"img_size": (10, 14), "patch_size": 2, "in_chans": 1, "num_classes": 3}
    model = timm.create_model("vision_attn_conv_init_vit", **args, alpha=3.0)
    assert (model.rel_bias[0].alpha == 3).all()
    assert len(model.rel_bias[3].centers) == 9
    torch.save(model.state_dict(), tmp_path / "model.pt")
    again = timm.create_model("vision_attn_conv_init_vit", **args)
    again.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    torch.testing.assert_close(again(image()), model(image()), rtol=0, atol=0)


def test_positions_are_not_decayed() -> None:
    model = small()
    names = model.no_weight_decay()
    assert {"rel_bias.1.alpha", "rel_bias.0.centers", "positions.pos_embed"} <= names
    assert names - {"cls_token"} <= {n for n, _ in model.named_parameters()}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(dtype: torch.dtype) -> None:
    """A long map, where the scores -alpha |d|^2 pass what half precision can hold."""
    model = small(img_size=(2, 400), patch_size=(1, 2), alpha=4.0, depth=1)
    want = model(image(2, 400))
    got = model.to(dtype)(image(2, 400).to(dtype))
    torch.testing.assert_close(got.float(), want, rtol=0.1, atol=2e-2)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"num_heads": 5}, "dim 18 .*num_heads 5"),
        ({"global_pool": "token"}, "global_pool='token'.*avg"),
        ({"score": "relu"}, "score='relu'.*softmax"),
        ({"num_registers": 2}, "num_registers=2"),
        ({"pos_embed": "rotary"}, "pos_embed='rotary'.*learn or sincos2d or none"),
        ({"alpha": 0}, "alpha=0"),
    ],
)
def test_mistakes_are_named(args: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        small(**args)


def test_unknown_argument_is_refused() -> None:
    with pytest.raises(TypeError, match="alfa"):
        small(alfa=2.0)
