"""The attention classifier: equal to timm's with copied weights, honest about order and size."""

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
from vision_attn.models.conv_init_vit import ConvInitVisionTransformer
from vision_attn.models.dense import DenseClassifier
from vision_attn.models.detr import SetPredictor
from vision_attn.models.local_vit import LocalVisionTransformer
from vision_attn.models.registry import create_model

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
        ({"projection": "half"}, "projection='half' is not known; choose one of full, per_head"),
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
