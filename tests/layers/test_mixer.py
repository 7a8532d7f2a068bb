"""In place of attention and layer norm: a convolution over the grid, nothing, batch norm."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.layers.block import EncoderBlock
from vision_attn.layers.mixer import DepthwiseConv, TokenBatchNorm
from vision_attn.models.registry import attends, create_model
from vision_attn.models.vit import VisionTransformer

GRID = (5, 7)


def tokens(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_depthwise_convolution_by_a_loop() -> None:
    torch.manual_seed(0)
    layer = DepthwiseConv(3, kernel_size=(3, 5)).double()
    x = tokens(2, 35, 3)
    want = layer.conv.bias.expand(2, 35, 3).clone()
    for row in range(5):
        for col in range(7):
            for i in (-1, 0, 1):
                for j in (-2, -1, 0, 1, 2):
                    if 0 <= row + i < 5 and 0 <= col + j < 7:
                        tap = layer.conv.weight[:, 0, i + 1, j + 2]
                        want[:, row * 7 + col] += tap * x[:, (row + i) * 7 + col + j]
    assert_close(layer(x, GRID), want)


def test_depthwise_convolution_refuses_what_does_not_fit() -> None:
    with pytest.raises(UserError, match="kernel_size is 4; wanted odd"):
        DepthwiseConv(3, kernel_size=4)
    with pytest.raises(UserError, match="34 tokens do not fill an image of 5 x 7"):
        DepthwiseConv(3)(torch.zeros(1, 34, 3), GRID)


@pytest.mark.parametrize("shape", [(11, 13, 3), (2, 3, 5, 3)])
def test_batch_norm_is_over_all_tokens_of_all_samples(shape: tuple[int, ...]) -> None:
    norm, x = TokenBatchNorm(3).double(), tokens(*shape)
    axes = tuple(range(len(shape) - 1))
    mean, var = x.mean(axes), x.var(axes, correction=0)
    assert_close(norm(x), (x - mean) / (var + norm.eps).sqrt())
    norm.eval()
    assert_close(norm(x)[:1], norm(x[:1]))


def reach(mixer: Any, norm: Any = "layer") -> Tensor:
    """Which tokens hang on which: bool (N, N)."""
    torch.manual_seed(0)
    model = VisionTransformer(
        GRID, 1, 2, 3, embed_dim=6, depth=1, num_heads=2, mixer=mixer, norm=norm
    )
    model = model.double().eval()
    x = tokens(1, 2, *GRID)
    jac = torch.autograd.functional.jacobian(lambda t: model.forward_features(t).sum((0, 2)), x)
    # a layer norm's channels sum to its bias; weights of one channel do not
    return jac.abs().amax((1, 2)).flatten(1) > 0


def test_tokens_mix_as_the_mixer_says() -> None:
    with torch.random.fork_rng():
        at = torch.cartesian_prod(torch.arange(5), torch.arange(7))
        near = ((at[:, None] - at).abs() <= 1).all(-1)
        assert torch.equal(reach("conv", "batch"), near)
        assert torch.equal(reach("none", "batch"), torch.eye(35, dtype=torch.bool))
        assert reach("attention", "batch").all()


def test_without_attention_there_is_no_norm_of_it() -> None:
    block = EncoderBlock(6, 2, 2.0, attn_layer=None).double()
    x = tokens(2, 5, 6)
    assert_close(block(x), x + block.mlp(block.norm2(x)))
    assert {n.split(".")[0] for n, _ in block.named_parameters()} == {"norm2", "mlp"}


@pytest.mark.parametrize(("mixer", "params"), [("none", 136_942), ("conv", 139_246)])
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_parameters_of_the_arms_without_attention(mixer: str, params: int, norm: str) -> None:
    args: dict[str, Any] = {
        "stem": "pooled", "patch_size": 4, "embed_dim": 64, "depth": 3, "num_heads": 4,
        "mlp_ratio": 4.69, "pos_embed": "sincos2d", "mixer": mixer, "norm": norm,
    }  # fmt: skip
    model = create_model("vit", img_size=(32, 32), in_chans=3, num_classes=10, args=args)
    assert sum(p.numel() for p in model.parameters()) == params
    loss = model(torch.randn(2, 3, 32, 32)).square().sum()
    grads = torch.autograd.grad(loss, list(model.parameters()))
    assert all((g != 0).any() for g in grads)
    assert not attends("vit", args)
    assert attends("vit", {**args, "mixer": "attention"})


@pytest.mark.parametrize(
    "args",
    [
        {"lsa": True}, {"qk_norm": True}, {"num_registers": 2}, {"score": "relu"},
        {"global_pool": "token"}, {"pos_embed": "rotary"}, {"mimetic_init": True},
        {"attn_drop_rate": 0.1},
    ],
)  # fmt: skip
@pytest.mark.parametrize("mixer", ["conv", "none"])
def test_what_belongs_to_attention_is_refused(mixer: Any, args: dict[str, Any]) -> None:
    (name,) = args
    with pytest.raises(UserError, match=f"{name}=.* belongs to attention, but mixer='{mixer}'"):
        VisionTransformer(8, mixer=mixer, **args)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        (
            "vit",
            {"mixer": "pool"},
            "mixer='pool' is not known; choose one of attention, conv, none",
        ),
        ("vit", {"norm": "group"}, "norm='group' is not known; choose one of layer, batch"),
        ("local_vit", {"mixer": "conv"}, "attn_layer=True belongs to attention"),
        ("conv_init_vit", {"mixer": "none"}, "mixer='none' does not go with heads"),
    ],
)
def test_other_names_and_models_are_refused(name: str, args: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        create_model(name, img_size=(8, 8), in_chans=1, num_classes=3, args=args)
