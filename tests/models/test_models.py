"""The classifiers: equal to timm's with copied weights, honest about order, size and names."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.models.vision_transformer import VisionTransformer as TimmViT
from torch import Tensor, nn
from torch.testing import assert_close

from vision_attn import SmallCNN, VisionTransformer
from vision_attn.errors import UserError
from vision_attn.models.cnn import stage_sizes
from vision_attn.models.conv_init_vit import ConvInitVisionTransformer
from vision_attn.models.dense import DenseClassifier
from vision_attn.models.detr import SetPredictor
from vision_attn.models.local_vit import LocalVisionTransformer
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
PIXELS: dict[str, Any] = {**SMALL, "img_size": (3, 5), "patch_size": 1}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def images(n: int = 2) -> Tensor:
    return torch.randn(n, 7, 6, 10)


def shaken(model: nn.Module) -> nn.Module:
    """Every parameter away from its start, so that none is zero or one by chance."""
    for p in model.parameters():
        nn.init.normal_(p, std=0.4)
    return model


def as_timm(ours: nn.Module) -> dict[str, Tensor]:
    """Our weights under timm's names; its patch projection is a convolution."""
    weights = {k.replace("positions.", ""): v for k, v in ours.state_dict().items()}
    flat = weights["patch_embed.proj.weight"]
    return weights | {"patch_embed.proj.weight": flat.view(-1, 7, 3, 2)}


@pytest.mark.parametrize("pool", ["avg", "token"])
@pytest.mark.parametrize(
    "options", [{}, {"qk_norm": True, "qkv_bias": False, "init_values": 0.5}], ids=["plain", "all"]
)
def test_vit_equals_timm_with_copied_weights(options: dict[str, Any], pool: Any) -> None:
    given = {**SMALL, "global_pool": pool, "mlp_ratio": 2.6, **options}
    ours = shaken(VisionTransformer(**given))
    theirs = TimmViT(
        **given,
        class_token=pool == "token",
        no_embed_class=True,
        fc_norm=False,
        norm_layer=nn.LayerNorm,
    )
    theirs.load_state_dict(as_timm(ours))
    ours, theirs, x = ours.double(), theirs.double(), images().double()
    got, want = ours(x), theirs(x)
    assert_close(got, want)
    assert_close(ours.forward_features(x), theirs.forward_features(x))
    (got**2).sum().backward()
    (want**2).sum().backward()
    its = {k: p.grad for k, p in theirs.named_parameters()}
    for name, p in ours.named_parameters():
        assert_close(p.grad, its[name.replace("positions.", "")].view_as(p))


def test_one_pixel_patches_are_pixel_tokens() -> None:
    vit, x = VisionTransformer(**PIXELS).eval(), torch.randn(2, 7, 3, 5)
    pixels = x.flatten(2).transpose(1, 2) @ vit.patch_embed.proj.weight.T
    tokens = pixels + vit.patch_embed.proj.bias + vit.positions.pos_embed
    assert_close(vit(x), vit.forward_head(vit.norm(vit.blocks(tokens))))
    named = timm.create_model("vision_attn_pixel_vit", **{**PIXELS, "patch_size": 1})
    assert named.patch_embed.grid_size == (3, 5)


@pytest.mark.parametrize("pos_embed", ["none", "learn", "sincos2d"])
@pytest.mark.parametrize("pool", ["avg", "token"])
def test_only_positions_tell_the_order_of_pixels(pool: Any, pos_embed: Any) -> None:
    given = {**PIXELS, "embed_dim": 12, "global_pool": pool, "pos_embed": pos_embed}
    vit = shaken(VisionTransformer(**given)).double()
    x = torch.randn(2, 7, 3, 5).double()
    mixed = x.flatten(2)[..., torch.randperm(15)].view_as(x)
    if pos_embed == "none":
        assert_close(vit(mixed), vit(x))
    else:
        assert (vit(mixed) - vit(x)).abs().max() > 1e-3


@pytest.mark.parametrize("drop", ["drop_rate", "pos_drop_rate", "proj_drop_rate", "attn_drop_rate"])
def test_each_dropout_acts_in_training_only(drop: str) -> None:
    vit, x = shaken(VisionTransformer(**SMALL, **{drop: 0.5})), images()
    assert (vit(x) - vit(x)).abs().max() > 1e-3
    vit.eval()
    assert_close(vit(x), vit(x), rtol=0, atol=0)


def test_stochastic_depth_grows_linearly_from_zero() -> None:
    vit = VisionTransformer(**{**SMALL, "depth": 5}, drop_path_rate=0.2)
    rates = [getattr(b.drop_path2, "drop_prob", 0.0) for b in vit.blocks]
    assert_close(rates, [0.0, 0.05, 0.1, 0.15, 0.2])


def test_options_of_the_attention_reach_every_block() -> None:
    given: dict[str, Any] = {"projection": "per_head", "score": "sigmoid", "scale": 0.7}
    vit = VisionTransformer(**SMALL, **given)
    for block in vit.blocks:
        assert block.attn.qkv.weight.shape == (3, 3, 5, 5)
        assert (block.attn.score, block.attn.scale) == ("sigmoid", 0.7)


@pytest.mark.parametrize("cls", [VisionTransformer, SmallCNN])
def test_no_classes_gives_the_pooled_features(cls: type[nn.Module]) -> None:
    extra = SMALL if cls is VisionTransformer else {"in_chans": 7, "img_size": (6, 10)}
    model = cls(**extra).eval()
    bare = cls(**{**extra, "num_classes": 0}).eval()
    bare.load_state_dict({k: v for k, v in model.state_dict().items() if "head." not in k})
    x = images()
    assert_close(model.get_classifier()(bare(x)), model(x))
    features = model.forward_head(model.forward_features(x), pre_logits=True)
    assert_close(features, bare(x))


@pytest.mark.parametrize("name", ["vit", "cnn"])
def test_saved_weights_give_the_same_logits(name: str, tmp_path: Path) -> None:
    def build() -> nn.Module:
        return create_model(name, img_size=(6, 10), in_chans=7, num_classes=11, args=args)

    args = {"vit": {"patch_size": 2, "global_pool": "token"}, "cnn": {"widths": [5, 13]}}[name]
    model, x = build(), images(5)
    model(x)
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    again = build()
    assert (again.eval()(x) - model.eval()(x)).abs().max() > 1e-3
    again.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    assert_close(again(x), model(x), rtol=0, atol=0)


def test_batched_is_one_by_one() -> None:
    x = images(3)
    for model in (VisionTransformer(**SMALL), SmallCNN((6, 10), 7, 11, widths=(5, 13))):
        model.eval()
        assert_close(model(x), torch.cat([model(one[None]) for one in x]))


def test_weight_decay_leaves_positions_and_class_token_alone() -> None:
    vit = VisionTransformer(**{**SMALL, "global_pool": "token"})
    assert vit.no_weight_decay() == {"positions.pos_embed", "cls_token"}
    assert vit.no_weight_decay() <= dict(vit.named_parameters()).keys()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 4}, "dim 15 is not divisible by num_heads 4; try num_heads 3 or 5"),
        ({"patch_size": 4}, "patch_size 4 does not divide the image height 6; try 2 or 3"),
        ({"pos_embed": "sincos2d"}, "dim 15 is not divisible by 4.*; try 12 or 16"),
        ({"global_pool": "max"}, "global_pool='max' is not known; choose one of avg, token, map"),
        ({"projection": "half"}, "projection='half' is not known; choose full or per_head"),
        ({"pos_embed": "rope"}, "pos_embed='rope' is not known; choose one of learn, sincos2d"),
    ],
)
def test_vit_refuses_what_does_not_fit_with_the_numbers(
    change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        VisionTransformer(**{**SMALL, **change})


@pytest.mark.parametrize("shape", [(7, 10, 6), (3, 6, 10), (7, 6, 8)])
def test_vit_refuses_images_of_another_shape_with_both(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError) as e:
        VisionTransformer(**SMALL)(torch.zeros(2, *shape))
    assert str(e.value) == f"images of shape {shape} (C, h, w) given, this model takes (7, 6, 10)"


@pytest.mark.parametrize(
    ("img", "stages", "want"),
    [
        ((8, 8), 3, [(8, 8), (4, 4), (2, 2)]),
        ((28, 28), 4, [(28, 28), (14, 14), (7, 7), (4, 4)]),
        ((5, 9), 4, [(5, 9), (3, 5), (2, 3), (2, 3)]),
        ((2, 17), 2, [(2, 17), (2, 17)]),
    ],
)
def test_maps_halve_but_never_below_two(
    img: tuple[int, int], stages: int, want: list[tuple[int, int]]
) -> None:
    assert stage_sizes(img, stages) == want
    cnn = SmallCNN(img, 1, 3, widths=[2] * stages)
    x, seen = torch.zeros(1, 1, *img), []
    for stage in cnn.stages:
        x = stage(x)
        seen.append(tuple(x.shape[2:]))
    assert seen == want


@pytest.mark.parametrize("stages", [1, 3, 6])
def test_cnn_trains_with_a_batch_of_one(stages: int) -> None:
    cnn = SmallCNN((8, 8), 1, 3, widths=[5] * stages)
    optimizer = torch.optim.SGD(cnn.parameters(), 0.3)
    x, label, losses = torch.randn(1, 1, 8, 8), torch.tensor([2]), []
    for _ in range(9):
        loss = nn.functional.cross_entropy(cnn(x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in cnn.parameters())


def test_cnn_is_its_layers_one_after_another() -> None:
    cnn, x = SmallCNN((6, 10), 7, 11, widths=(5, 13), depth=1).eval(), images()
    first, second = cnn.stages[0], cnn.stages[1]
    for norm in (first[1], second[1]):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    maps = x
    for stride, stage in ((1, first), (2, second)):
        conv, norm = stage[0], stage[1]
        maps = nn.functional.conv2d(maps, conv.weight, stride=stride, padding=1)
        spread = (norm.running_var + norm.eps).sqrt()[:, None, None]
        maps = ((maps - norm.running_mean[:, None, None]) / spread).clamp(min=0)
    assert_close(cnn(x), maps.mean((2, 3)) @ cnn.head.weight.T + cnn.head.bias)


@pytest.mark.parametrize(("widths", "depth"), [([], 2), ([4, 0], 2), ([4], 0)])
def test_cnn_refuses_empty_widths_and_depth(widths: list[int], depth: int) -> None:
    with pytest.raises(UserError) as e:
        SmallCNN(widths=widths, depth=depth)
    assert "; wanted a " in str(e.value)
    assert "widths is" in str(e.value) or "depth is 0" in str(e.value)


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


@pytest.mark.parametrize(
    "build",
    [
        VisionTransformer,
        partial(VisionTransformer, global_pool="map", pos_embed="rel_bias"),
        LocalVisionTransformer,
        ConvInitVisionTransformer,
        DenseClassifier,
        SetPredictor,
    ],
)
def test_case_78_models_take_fused_and_then_differentiate_twice(build: Any) -> None:
    model = build(8, 2, 1, 3, embed_dim=16, depth=1, num_heads=2, fused=False).double().eval()
    x = torch.randn(1, 1, 8, 8, dtype=torch.float64, requires_grad=True)
    y = model(x)
    y = sum(t.square().sum() for t in (y if isinstance(y, tuple) else (y,)))
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    (gg,) = torch.autograd.grad(g.square().sum(), x)
    assert torch.isfinite(gg).all()
    assert (gg != 0).any()
