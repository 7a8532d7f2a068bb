"""Weights of timm's ViTs in `VisionTransformer`: the same output, from a state or from a file."""

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.layers import resample_abs_pos_embed, resample_patch_embed
from torch import nn
from torch.testing import assert_close

from vision_attn import VisionTransformer
from vision_attn.errors import UserError
from vision_attn.models.timm_vit import checkpoint_filter_fn

PATCH = 4
SMALL: dict[str, Any] = {"img_size": 12, "patch_size": PATCH, "embed_dim": 24, "depth": 2,
                         "num_heads": 3, "num_classes": 7}  # fmt: skip


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def of_timm(**args: Any) -> Any:
    model = timm.create_model("vit_tiny_patch16_224", **SMALL | args).eval()
    for p in model.parameters():
        nn.init.normal_(p, std=0.2)
    return model


def ours(**args: Any) -> VisionTransformer:
    return VisionTransformer(**SMALL | {"mlp_ratio": 4.0, "norm_eps": 1e-6} | args).eval()


@pytest.mark.parametrize(
    ("theirs", "own"),
    [
        ({}, {"global_pool": "token"}),
        ({"img_size": (8, 20)}, {"global_pool": "token", "img_size": (8, 20)}),
        ({"no_embed_class": True, "init_values": 0.1},
         {"global_pool": "token", "init_values": 0.1}),
        ({"global_pool": "avg", "class_token": False, "fc_norm": False, "qk_norm": True},
         {"global_pool": "avg", "qk_norm": True}),
        ({"global_pool": "map", "class_token": False, "qkv_bias": False, "in_chans": 1},
         {"global_pool": "map", "qkv_bias": False, "in_chans": 1}),
    ],
)  # fmt: skip
def test_output_is_that_of_timm(theirs: dict[str, Any], own: dict[str, Any]) -> None:
    source, model = of_timm(**theirs), ours(**own)
    model.load_state_dict(checkpoint_filter_fn(source.state_dict(), model))
    x = torch.randn(3, model.in_chans, *model.img_size)
    assert source(x).abs().max() > 0.1
    assert_close(model(x), source(x), rtol=1e-5, atol=1e-5)
    assert_close(model.forward_intermediates(x)[1], source.forward_intermediates(x)[1])


def test_another_grid_patch_and_channels_are_resampled_as_by_timm() -> None:
    state = of_timm(img_size=16).state_dict()
    model = ours(img_size=(12, 30), patch_size=6, in_chans=1, global_pool="token")
    made = checkpoint_filter_fn({"state_dict": state}, model)
    want = resample_abs_pos_embed(state["pos_embed"], [2, 5], [4, 4])
    assert_close(made["positions.pos_embed"], want[:, 1:])
    assert_close(made["cls_token"], state["cls_token"] + want[:, :1])
    kernel = resample_patch_embed(state["patch_embed.proj.weight"], [6, 6])
    assert_close(made["patch_embed.proj.weight"], kernel.sum(1).flatten(1))
    model.load_state_dict(made)


def test_a_state_of_ours_stays_as_it_is() -> None:
    model = ours()
    assert_close(checkpoint_filter_fn(model.state_dict(), model), dict(model.state_dict()))


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        ({"reg_tokens": 2}, "this ViT of timm has reg_token, which VisionTransformer has not"),
        ({"global_pool": "avg", "pre_norm": True}, "has fc_norm, norm_pre, which"),
        ({"img_size": (8, 12)}, "pos_embed is of 7 tokens, no square grid; the model has 3 x 3"),
    ],
)
def test_what_it_has_not_is_named(theirs: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        checkpoint_filter_fn(of_timm(**theirs).state_dict(), ours(global_pool="token"))


@pytest.mark.parametrize("chans", [3, 1])
def test_timm_builds_it_with_weights_from_a_file(chans: int, tmp_path: Path) -> None:
    source = of_timm(num_classes=5)
    torch.save(source.state_dict(), tmp_path / "vit.pt")
    model: Any = timm.create_model(
        "vision_attn_vit", pretrained=True, in_chans=chans, global_pool="token", mlp_ratio=4.0,
        norm_eps=1e-6, pretrained_cfg_overlay={"file": str(tmp_path / "vit.pt")}, **SMALL,
    )  # fmt: skip
    assert model.head.weight.shape == (7, 24)  # other classes, a head of its own
    x = torch.randn(2, chans, 12, 12)
    want = source.forward_head(source.forward_features(x.expand(-1, 3, -1, -1)), pre_logits=True)
    assert_close(model.eval().forward_head(model.forward_features(x), pre_logits=True), want)
    assert model.pretrained_cfg["input_size"] == (chans, 12, 12)
