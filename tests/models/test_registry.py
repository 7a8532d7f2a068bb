"""Models by name: ours and those of timm, and what is refused before anything is built."""

import math
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from vision_attn import SmallCNN, VisionTransformer
from vision_attn.errors import UserError
from vision_attn.models.registry import create_model, known_models

SMALL: dict[str, Any] = {
    "img_size": (6, 10),
    "patch_size": (3, 2),
    "in_chans": 7,
    "num_classes": 11,
    "embed_dim": 15,
    "depth": 2,
    "num_heads": 3,
}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def images(n: int = 2) -> Tensor:
    return torch.randn(n, 7, 6, 10)


def test_timm_builds_our_models_by_name() -> None:
    vit = timm.create_model("vision_attn_vit", **SMALL)
    assert isinstance(vit, VisionTransformer)
    twin = VisionTransformer(**SMALL)
    twin.load_state_dict(vit.state_dict())
    x = images()
    assert_close(vit(x), twin(x))
    assert isinstance(timm.create_model("vision_attn_cnn", widths=[3]), SmallCNN)
    assert {"vit", "pixel_vit", "cnn"} <= set(known_models())
    with pytest.raises(UserError, match="pretrained=True: this package has no trained weights"):
        timm.create_model("vision_attn_vit", pretrained=True)


def make(name: str, **args: Any) -> nn.Module:
    return create_model(name, img_size=(32, 32), in_chans=1, num_classes=11, args=args)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("vit", {"embed_dim": 12}),
        ("pixel_vit", {"embed_dim": 12, "depth": 1}),
        ("cnn", {"widths": [2, 3]}),
        ("timm:test_vit", {"patch_size": 8}),
        ("timm:test_byobnet", {}),
    ],
)
def test_create_model_takes_our_names_and_those_of_timm(name: str, args: dict[str, Any]) -> None:
    model = make(name, **args).eval()
    x = torch.randn(2, 1, 32, 32)
    logits = model(x)
    assert logits.shape == (2, 11)
    assert (logits[0] - logits[1]).abs().max() > 0


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("vti", {}, "model 'vti' is not known; try .*vit.*, or timm:NAME"),
        ("vision_attn_vit", {}, "model 'vision_attn_vit' is not known; try"),
        ("timm:test_byobnt", {}, "model 'timm:test_byobnt' is not known; try timm:test_byobnet"),
        ("vit", {"embed": 12}, "model 'vit': there is no argument 'embed'; try .*embed_dim"),
        ("cnn", {"width": 12}, "model 'cnn': there is no argument 'width'; try widths"),
        ("timm:test_byobnet", {"wdith": 2}, "model 'timm:test_byobnet': cannot .*'wdith'"),
        ("timm:test_vit", {"num_heads": 7}, "model 'timm:test_vit': cannot be built"),
        ("vit", {"num_heads": 5}, "model 'vit': dim 96 is not divisible by num_heads 5; try .*4"),
        ("vit", {"patch_size": 5}, "model 'vit': patch_size 5 does not divide the image height 32"),
        ("vit", {"img_size": 8}, "model 'vit': img_size comes from the data"),
        ("vit", {"pretrained": True}, "model 'vit': argument 'pretrained' names a source"),
    ],
)
def test_create_model_refuses_by_name(name: str, args: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(name, **args)


SOURCES: list[dict[str, Any]] = [
    {"pretrained": True},
    {"pretrained": True, "pretrained_cfg_overlay": {"file": "evil.pth"}},
    {"pretrained_cfg": {"url": "https://example.org/evil.pth"}},
    {"pretrained_cfg_overlay": {"hf_hub_id": "some/one"}},
    {"checkpoint_path": "evil.pth"},
    {"cache_dir": "somewhere"},
    {"hf_hub_id": "some/one"},
    {"own": [{"checkpoint_path": "evil.pth"}]},
]


@pytest.mark.parametrize("name", ["timm:test_byobnet", "vit", "linear"])
@pytest.mark.parametrize("args", SOURCES)
def test_case_46_arguments_that_name_weights_build_nothing(
    name: str, args: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(*given: Any, **more: Any) -> None:
        raise AssertionError("something was read")

    monkeypatch.setattr(torch, "load", opened)
    monkeypatch.setattr(timm, "create_model", opened)
    with pytest.raises(UserError, match="names a source of trained weights"):
        create_model(name, img_size=(32, 32), in_chans=3, num_classes=7, args=args)


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("timm:vit_tiny_patch16_224", (40, 40), "16, 16.* pixels, leaves 8 rows unseen"),
        ("timm:vit_tiny_patch16_224", (48, 40), "leaves 8 columns unseen"),
        ("timm:mixer_s32_224", (36, 36), "leaves 4 rows unseen"),
        ("timm:convnext_atto", (34, 32), "leaves 2 rows unseen"),
        ("timm:tnt_s_patch16_224", (40, 40), r"patches of .* on a map of .* leave pixels unseen"),
    ],
)
def test_case_49_timm_models_that_leave_pixels_unseen_are_refused(
    name: str, size: tuple[int, int], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        create_model(name, img_size=size, in_chans=1, num_classes=5)


@pytest.mark.parametrize(
    "name", ["timm:test_byobnet", "timm:vit_tiny_patch16_224", "timm:test_vit"]
)
def test_case_49_timm_models_that_see_all_are_built_and_left_as_they_were(name: str) -> None:
    size = (33, 35) if name.endswith("byobnet") else (48, 32)
    torch.manual_seed(0)
    args = {"img_size": size} if "vit" in name else {}
    want = timm.create_model(name.removeprefix("timm:"), in_chans=1, num_classes=5, **args)
    after = torch.rand(3)
    torch.manual_seed(0)
    got = create_model(name, img_size=size, in_chans=1, num_classes=5)
    assert_close(torch.rand(3), after, rtol=0, atol=0)  # the look at it draws nothing
    assert got.training
    assert_close(dict(got.state_dict()), dict(want.state_dict()), rtol=0, atol=0)


def test_a_convolution_covers_what_its_taps_touch() -> None:
    """Against the gradient of a convolution of ones, over strides, gaps and pads."""
    from vision_attn.models.probe import _covered

    for kernel in (1, 2, 3, 5):
        for stride in (1, 2, 3, 4):
            for dilation in (1, 2):
                for pad in (0, 1, "same" if stride == 1 and kernel % 2 else 0):
                    conv = nn.Conv2d(1, 1, kernel, stride, pad, dilation, bias=False)
                    nn.init.ones_(conv.weight)
                    x = torch.zeros(1, 1, 13, 11, requires_grad=True)
                    y = conv(x)
                    (g,) = torch.autograd.grad(y.sum(), x)
                    touched = g[0, 0] != 0
                    assert _covered(conv, 0, 13, y.shape[2]).equal(touched.any(1))
                    assert _covered(conv, 1, 11, y.shape[3]).equal(touched.any(0))


@pytest.mark.parametrize("stem", ["linear", "conv", "pooled", "shifted"])
def test_case_49_every_pixel_is_seen_or_the_size_is_refused(stem: Any) -> None:
    vit = VisionTransformer(32, 4, 1, 5, embed_dim=32, depth=1, num_heads=2, stem=stem,
                            dynamic_img_size=True).eval()  # fmt: skip
    with pytest.raises(UserError, match="patch_size 4 does not divide the image height 30"):
        vit(torch.zeros(2, 1, 30, 30))
    for p in vit.parameters():
        nn.init.normal_(p, std=0.3)
    x = torch.randn(1, 1, 20, 28, requires_grad=True)
    (g,) = torch.autograd.grad((vit.forward_features(x) * torch.randn(1, 35, 32)).sum(), x)
    assert (g != 0).sum() > 0.9 * x.numel()  # a pooled pixel may lose everywhere
    assert (g != 0).any(2).all()
    assert (g != 0).any(3).all()


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("timm:inception_v3", (8, 8), "8 x 8 pixels do not run through it: "),
        ("timm:vit_tiny_patch16_224", (8, 8), "8 x 8 pixels do not run through it: "),
    ],
)
def test_case_73_models_that_fail_in_forward_are_one_line(
    name: str, size: tuple[int, int], message: str
) -> None:
    with pytest.raises(UserError, match=message) as e:
        create_model(name, img_size=size, in_chans=1, num_classes=10)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("name", "args", "words"),
    [
        ("vit", {"depth": -1}, "depth is -1; wanted a whole number, 0 to 1,000"),
        ("vit", {"depth": 10**20}, "depth is 1000"),
        ("vit", {"depth": [1]}, r"depth is \[1\]; wanted a whole number"),
        ("vit", {"depth": "2"}, "depth is '2'; wanted a whole number"),
        ("vit", {"depth": 2.0}, "depth is 2.0; wanted a whole number"),
        ("vit", {"depth": True}, "depth is True; wanted a whole number"),
        ("vit", {"depth": None}, "argument 'depth' is null; leave it out"),
        ("vit", {"x": None}, "no argument 'x'"),
        ("timm:test_vit", {"x": None}, "argument 'x' is null; leave it out"),
        ("vit", {"drop_rate": 2}, "drop_rate is 2; wanted a number from 0 to under 1"),
        ("vit", {"drop_path_rate": 1.5}, "drop_path_rate is 1.5; wanted a number"),
        ("vit", {"attn_drop_rate": "0.1"}, "attn_drop_rate is '0.1'; wanted a number"),
        ("vit", {"mlp_ratio": -1}, "mlp_ratio is -1; wanted a number above 0"),
        ("vit", {"mlp_ratio": 0.001}, "mlp_ratio 0.001 .* no hidden width"),
        ("vit", {"init_values": math.nan}, "init_values is nan; wanted a number"),
        ("vit", {"num_heads": 0}, "num_heads is 0; wanted a whole number"),
        ("vit", {"embed_dim": 0}, "embed_dim is 0; wanted a whole number"),
        ("vit", {"embed_dim": -96}, "embed_dim is -96; wanted"),
        ("vit", {"embed_dim": 2**20, "num_heads": 2}, "GiB"),
        ("vit", {"patch_size": 0}, "patch_size is 0; wanted"),
        ("vit", {"scale": math.nan}, "scale is nan; wanted a number"),
        ("vit", {"score": "tanh"}, "score='tanh' is not known; choose one of softmax"),
        ("vit", {"qk_norm": "false"}, "qk_norm is 'false'; wanted true or false"),
        ("vit", {"patchsize": 2}, "no argument 'patchsize'; try patch_size"),
        ("local_vit", {"radius": 1.5}, "radius is 1.5; wanted"),
        ("local_vit", {"depth": "3"}, "depth is '3'; wanted"),
        ("local_vit", {"embed": 8}, "no argument 'embed'; try .*embed_dim"),
        ("conv_init_vit", {"alpha": math.nan}, "alpha"),
        ("cnn", {"widths": 5}, "widths is 5; wanted a list"),
        ("cnn", {"widths": "24"}, "widths is '24'; wanted a list"),
        ("cnn", {"widths": [2**19, 2**19]}, "GiB"),
        ("cnn", {"depth": [1]}, r"depth is \[1\]; wanted"),
        ("cnn", {"drop_rate": -0.1}, "drop_rate is -0.1; wanted"),
        ("timm:test_vit", {"depth": "x"}, "cannot be built: "),
        ("timm:test_vit", {"features_only": True}, "something else than a classifier"),
        ("timm:test_byobnet", {"drop_rate": [2]}, "cannot be built|do not run"),
    ],
)
def test_case_74_nonsense_is_refused_by_name_in_one_line(
    name: str, args: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words) as e:
        create_model(name, img_size=(32, 32), in_chans=3, num_classes=7, args=args)
    assert "\n" not in str(e.value)
    assert str(e.value).startswith(f"model '{name}': ")


@pytest.mark.parametrize("name", [*known_models(), "timm:test_vit", "timm:test_byobnet"])
def test_case_75_huge_images_are_refused_at_once_with_their_memory(name: str) -> None:
    with pytest.raises(UserError, match=r"img_size 100000 x 100000: a batch of 64 images .* GiB"):
        create_model(name, img_size=(100_000, 100_000), in_chans=3, num_classes=7)


def test_case_75_too_many_tokens_are_named_with_their_memory() -> None:
    with pytest.raises(UserError, match=r"250,000 tokens that all attend .* 233 GiB; take larger"):
        create_model("pixel_vit", img_size=(500, 500), in_chans=3, num_classes=7)
    with pytest.raises(UserError, match=r"img_size 100,000 x 100,000 in patches of 4 x 4: .* GiB"):
        VisionTransformer(100_000)
