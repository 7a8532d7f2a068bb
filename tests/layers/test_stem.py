"""Stems: convolutions and shifted patches against loops, their grids, gradients and refusals."""

from typing import Any

import pytest
import timm
import torch
from torch import Tensor
from torch.testing import assert_close

from vision_attn import VisionTransformer
from vision_attn.errors import UserError
from vision_attn.layers.embed import PatchEmbed
from vision_attn.layers.stem import ConvStem, PooledConvStem, ShiftedPatchEmbed
from vision_attn.models.registry import create_model


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def pixel(x: Tensor, b: int, c: int, row: int, col: int) -> float:
    """A pixel, or 0 outside of the image."""
    inside = 0 <= row < x.shape[2] and 0 <= col < x.shape[3]
    return float(x[b, c, row, col]) if inside else 0.0


def shifted_by_hand(x: Tensor, stem: ShiftedPatchEmbed) -> Tensor:
    """Patch by patch: pixels of the image, then of it moved down-right, down-left, up-right, ..."""
    p, q = stem.patch_size
    rows, cols = x.shape[2] // p, x.shape[3] // q
    corners = [(0, 0)] + [(i, j) for i in (-(p // 2), p // 2) for j in (-(q // 2), q // 2)]
    tokens = []
    for b in range(len(x)):
        for r in range(rows):
            for s in range(cols):
                patch = torch.tensor(
                    [
                        pixel(x, b, c, r * p + i + up, s * q + j + left)
                        for up, left in corners
                        for c in range(x.shape[1])
                        for i in range(p)
                        for j in range(q)
                    ]
                ).double()
                patch = (patch - patch.mean()) / (patch.var(correction=0) + 1e-5).sqrt()
                patch = patch * stem.norm.weight + stem.norm.bias
                tokens.append(stem.proj.weight @ patch + stem.proj.bias)
    return torch.stack(tokens).view(len(x), rows * cols, -1)


@pytest.mark.parametrize("patch", [(2, 2), (3, 5), (4, 3)])
def test_shifted_patches_equal_a_loop(patch: tuple[int, int]) -> None:
    stem = ShiftedPatchEmbed((2 * patch[0], 3 * patch[1]), patch, 2, 7).double()
    for p in stem.parameters():
        p.data.normal_()
    x = torch.randn(2, 2, *stem.img_size).double()
    assert stem.grid_size == stem.grid_of(x) == (2, 3)
    assert_close(stem(x), shifted_by_hand(x, stem))


def reach(stem: PatchEmbed, token: int, size: tuple[int, int]) -> Tensor:
    """Which pixels a token depends on, (h, w)."""
    x = torch.randn(1, stem.in_chans, *size).double().requires_grad_()
    stem(x)[0, token].square().sum().backward()
    assert x.grad is not None
    return x.grad.abs().sum((0, 1)) > 0


def test_a_shifted_token_sees_half_a_patch_more_each_way() -> None:
    stem = ShiftedPatchEmbed((12, 20), (4, 4), 3, 5).double()
    want = torch.zeros(12, 20, dtype=torch.bool)
    want[2:10, 6:14] = True  # the token in row 1, column 2 of 3 x 5
    assert torch.equal(reach(stem, 7, (12, 20)), want)


def test_a_conv_token_sees_what_its_kernels_reach() -> None:
    """Two 3 x 3 kernels of stride 2: 7 x 7 pixels around the first pixel of the patch."""
    stem = ConvStem((16, 20), (4, 4), 3, 8).double().eval()
    seen = reach(stem, 7, (16, 20)).nonzero()
    low, high = seen.amin(0).tolist(), seen.amax(0).tolist()
    assert (low, high) == ([4 - 3, 8 - 3], [4 + 3, 8 + 3])


@pytest.mark.parametrize(
    ("patch", "channels", "strides"),
    [(1, [3, 24], [1]), (2, [3, 24], [2]), (4, [3, 12, 24], [2, 2]), (8, [3, 6, 12, 24], [2] * 3)],
)
def test_conv_stem_halves_to_the_patch_and_doubles_to_the_width(
    patch: int, channels: list[int], strides: list[int]
) -> None:
    stem = ConvStem((16, 24), (patch, patch), 3, 24)
    convs = [m for m in stem.modules() if isinstance(m, torch.nn.Conv2d)]
    assert [c.in_channels for c in convs] == channels
    assert [c.stride[0] for c in convs] == [*strides, 1]
    assert [c.kernel_size[0] for c in convs] == [3] * len(strides) + [1]
    x = torch.randn(2, 3, 16, 24)
    assert stem.grid_size == stem.grid_of(x) == (16 // patch, 24 // patch)
    tokens = stem(x)
    assert tokens.shape == (2, 16 * 24 // patch**2, 24)
    maps = stem.proj(x)
    assert_close(tokens[:, 1], maps[:, :, 0, 1])  # row first, then column


def test_conv_stem_is_its_layers_by_hand() -> None:
    stem = ConvStem((6, 10), (2, 2), 3, 5).double().eval()
    conv, norm, _, last = stem.proj
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    x = torch.randn(2, 3, 6, 10).double()
    maps = torch.nn.functional.conv2d(x, conv.weight, stride=2, padding=1)
    spread = (norm.running_var + norm.eps).sqrt()[:, None, None]
    maps = ((maps - norm.running_mean[:, None, None]) / spread).clamp(min=0)
    want = torch.einsum("bchw,dc->bhwd", maps, last.weight[:, :, 0, 0]) + last.bias
    assert_close(stem(x), want.flatten(1, 2))


def test_pooled_stem_is_its_layers_by_hand() -> None:
    """Each token of 2 x 2 pixels is the largest of the 3 x 3 around its first pixel."""
    stem = PooledConvStem((6, 10), (2, 2), 3, 5).double().eval()
    conv, norm, _, _ = stem.proj
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    x = torch.randn(2, 3, 6, 10).double()
    maps = torch.nn.functional.conv2d(x, conv.weight, padding=1)
    spread = (norm.running_var + norm.eps).sqrt()[:, None, None]
    maps = ((maps - norm.running_mean[:, None, None]) / spread).clamp(min=0)
    want = torch.empty(2, 3, 5, 5).double()
    for i in range(3):
        for j in range(5):
            around = maps[..., max(2 * i - 1, 0) : 2 * i + 2, max(2 * j - 1, 0) : 2 * j + 2]
            want[:, i, j] = around.amax((2, 3))
    assert_close(stem(x), want.flatten(1, 2))


@pytest.mark.parametrize(("patch", "convs"), [(1, 1), (2, 1), (4, 2), (8, 3)])
def test_pooled_stem_halves_by_pools_alone(patch: int, convs: int) -> None:
    stem = PooledConvStem((16, 24), (patch, patch), 3, 24)
    made = [m for m in stem.modules() if isinstance(m, torch.nn.Conv2d)]
    assert [m.stride for m in made] == [(1, 1)] * convs
    assert made[-1].out_channels == 24
    assert stem(torch.randn(2, 3, 16, 24)).shape == (2, 16 * 24 // patch**2, 24)


@pytest.mark.parametrize("stem", ["conv", "pooled", "shifted"])
def test_every_parameter_of_a_vit_with_a_stem_learns(stem: Any) -> None:
    vit = VisionTransformer((8, 12), 4, 3, 5, embed_dim=12, depth=1, num_heads=3, stem=stem)
    vit(torch.randn(3, 3, 8, 12)).square().sum().backward()
    for name, p in vit.named_parameters():
        assert p.grad is not None, name
        assert p.grad.isfinite().all(), name
    starts = [p for n, p in vit.patch_embed.named_parameters() if n.endswith("weight")]
    assert all(p.grad.abs().max() > 0 for p in starts)


@pytest.mark.parametrize("stem", ["conv", "pooled", "shifted"])
def test_other_sizes_and_other_places(stem: Any) -> None:
    given: dict[str, Any] = {"embed_dim": 12, "depth": 1, "num_heads": 3, "stem": stem}
    with torch.device("meta"):
        elsewhere = VisionTransformer((8, 12), 4, 3, 5, **given)(torch.zeros(2, 3, 8, 12))
    assert (elsewhere.device.type, elsewhere.shape) == ("meta", (2, 5))
    vit = VisionTransformer((8, 12), 4, 3, 5, dynamic_img_size=True, **given).eval()
    assert vit(torch.randn(2, 3, 16, 4)).shape == (2, 5)
    x = torch.randn(2, 3, 8, 12)
    assert_close(vit(x.contiguous(memory_format=torch.channels_last)), vit(x))
    with pytest.raises(UserError, match=r"\(1, 8, 12\) \(C, h, w\) given, this model takes \(3, 8"):
        vit(torch.zeros(2, 1, 8, 12))


def test_conv_stem_vit_by_name() -> None:
    given: dict[str, Any] = {"img_size": 8, "patch_size": 2, "embed_dim": 12, "depth": 1}
    model = timm.create_model("vision_attn_conv_stem_vit", **given)
    assert isinstance(model.patch_embed, ConvStem)
    twin = VisionTransformer(stem="conv", **given)
    twin.load_state_dict(model.state_dict())
    x = torch.randn(2, 3, 8, 8)
    assert_close(twin.eval()(x), model.eval()(x), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("conv_stem_vit", {"patch_size": 3}, r"patch_size \(3, 3\): a conv stem wants 1, 2, 4, 8"),
        ("conv_stem_vit", {"patch_size": (2, 4)}, r"patch_size \(2, 4\): a conv stem wants 1, 2"),
        ("conv_stem_vit", {"patch_size": 8}, "patch_size 8 does not divide the image height 12"),
        (
            "conv_stem_vit",
            {"patch_size": 4, "embed_dim": 1, "num_heads": 1, "pos_embed": "none"},
            "embed_dim 1 is too small for patch_size 4",
        ),
        ("vit", {"stem": "shifted", "patch_size": 1}, r"patch_size \(1, 1\) has no half to shift"),
        ("vit", {"stem": "shifted", "patch_size": (4, 1)}, r"patch_size \(4, 1\) has no half"),
        ("pixel_vit", {"stem": "shifted"}, r"patch_size \(1, 1\) has no half to shift by"),
        ("vit", {"stem": "shifted", "patch_size": 5}, "patch_size 5 does not divide the image"),
    ],
)
def test_refusals(name: str, args: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"model '{name}': {message}"):
        create_model(name, img_size=(12, 12), in_chans=3, num_classes=5, args=args)
