"""Our attention in models of timm: weights and outputs stay, what cannot be taken is named."""

import copy
import io
from typing import Any

import pytest
import timm
import torch
from timm.models import davit, eva, metaformer, volo
from torch import Tensor, nn
from torch.testing import assert_close

from vision_attn import MultiHeadSelfAttention, VisionTransformer, replace_attention
from vision_attn.errors import UserError
from vision_attn.explain import attention_maps

VIT: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}
WINDOWS: dict[str, Any] = {"img_size": 64, "embed_dim": 12, "depths": (2, 2), "num_heads": (2, 3)}
MODELS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        ("vit_tiny_patch16_224", "vit_base_patch16_gap_224", "vit_base_patch16_siglip_224",
         "vit_base_patch16_clip_224", "vit_base_patch16_rpn_224", "vit_small_patch16_18x2_224",
         "deit_tiny_patch16_224", "deit_tiny_distilled_patch16_224", "deit3_small_patch16_224",
         "flexivit_small", "vit_small_patch14_dinov2", "vit_small_patch14_reg4_dinov2",
         "vit_small_patch16_dinov3", "vit_small_patch16_rope_mixed_224",
         "vit_relpos_small_patch16_224", "vit_srelpos_small_patch16_224",
         "vit_relpos_base_patch16_clsgap_224", "beit_base_patch16_224", "beitv2_base_patch16_224",
         "eva02_tiny_patch14_224", "eva02_base_patch14_224", "eva_giant_patch14_224",
         "aimv2_large_patch14_224", "naflexvit_base_patch16_gap"), VIT,
    ),
    "pit_ti_224": {"img_size": 64},
    "swin_tiny_patch4_window7_224": {**WINDOWS, "window_size": 5},  # 16 and 8 tokens: padded
    "swin_s3_tiny_224": {**WINDOWS, "window_size": (4, 4)},
    "swinv2_tiny_window8_256": {**WINDOWS, "window_size": 5},
}  # fmt: skip


def drawn(model: Any) -> Any:
    """In eval mode, with weights so large that the output depends on who attends to whom."""
    for p in model.parameters():
        if p.ndim == 1:
            nn.init.normal_(p, 0.7, 0.3)
        else:
            nn.init.normal_(p, std=2 * p[0].numel() ** -0.5)
    return model.eval()


def made(name: str, **args: Any) -> tuple[Any, Tensor]:
    torch.manual_seed(0)
    given = MODELS.get(name, VIT) | args
    model = drawn(timm.create_model(name, pretrained=False, num_classes=7, **given))
    side = given.get("img_size", 64)
    return model, torch.randn(2, 3, side, side)


@pytest.mark.parametrize("name", MODELS)
def test_output_gradients_and_names_stay(name: str) -> None:
    model, x = made(name)
    before, want = dict(model.named_parameters()), model(x)
    state = list(model.state_dict())
    grads = torch.autograd.grad(want.square().sum(), [*before.values()], allow_unused=True)
    assert want.abs().max() > 1
    queries = [n for n in before if n.endswith(("qkv.weight", "q_proj.weight"))]
    moved = dict(zip(before, grads, strict=True))
    assert min(moved[n].abs().max() for n in queries) > 0.1
    assert replace_attention(model) is model
    layers = [m for m in model.modules() if isinstance(m, MultiHeadSelfAttention)]
    assert len(layers) >= 2
    assert all(p is before[n] for n, p in model.named_parameters())
    assert list(model.state_dict()) == state
    y = model(x)
    assert_close(y, want, rtol=1e-5, atol=1e-5)
    again = torch.autograd.grad(y.square().sum(), [*before.values()], allow_unused=True)
    assert_close(again, grads, rtol=1e-3, atol=1e-4)


def test_there_are_22_models_and_more() -> None:
    assert len(MODELS) >= 22


@pytest.mark.parametrize(
    ("layer", "shape", "args"),
    [
        (volo.Attention(12, 3), (2, 3, 5, 12), {}),
        (metaformer.Attention(64), (2, 7, 64), {}),
        (davit.WindowAttention(12, (3, 3), 3), (4, 9, 12), {}),
        (eva.EvaAttention(12, 3, norm_layer=nn.LayerNorm, rotate_half=True), (2, 8, 12),
         {"rope": torch.randn(7, 8)}),
    ],
)  # fmt: skip
def test_a_layer_alone(layer: nn.Module, shape: tuple[int, ...], args: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"attn": drawn(layer)})
    x = torch.randn(shape)
    want = layer(x, **args)
    assert_close(replace_attention(model)["attn"](x, **args), want)
    assert isinstance(model["attn"], MultiHeadSelfAttention)


@pytest.mark.parametrize("kind", ["bool", "float", "causal"])
def test_masks_go_through_by_timms_names(kind: str) -> None:
    model, x = made("vit_tiny_patch16_224")
    given: dict[str, Any] = {"is_causal": True}
    if kind != "causal":
        mask = torch.rand(2, 1, 17, 17) < 0.5
        mask |= torch.eye(17, dtype=torch.bool)
        given = {"attn_mask": mask if kind == "bool" else mask.float().mul(3)}
    want = model(x, **given)
    assert (want - model(x)).abs().max() > 1e-4
    assert_close(replace_attention(model)(x, **given), want)


def test_dropout_norms_and_training_mode_are_taken_along() -> None:
    model, x = made("vit_tiny_patch16_224", attn_drop_rate=0.4, proj_drop_rate=0.3, qk_norm=True)
    torch.manual_seed(5)
    want = model.train()(x)
    replace_attention(model)
    torch.manual_seed(5)
    assert_close(model(x), want)
    assert model.blocks[0].attn.q_norm.eps == 1e-6
    assert model.blocks[0].attn.training


def test_the_model_can_still_be_copied_pickled_and_moved() -> None:
    model, x = made("beit_base_patch16_224")
    want = replace_attention(model)(x)
    assert_close(copy.deepcopy(model)(x), want)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    assert_close(torch.load(file, weights_only=False)(x), want)
    assert_close(model.double()(x.double()).float(), want)


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "eva02_tiny_patch14_224"])
def test_maps_of_both_are_the_same(name: str) -> None:
    model, x = made(name)
    want = attention_maps(model, x).weights
    assert_close(attention_maps(replace_attention(model), x).weights, want)


def test_what_cannot_be_taken_is_named_and_nothing_changes() -> None:
    model, x = made("cait_xxs24_224")
    with pytest.raises(UserError) as e:
        replace_attention(model)
    assert str(e.value) == (
        "of 4 attentions 4 cannot be replaced: blocks.0.attn and 1 more: cait.TalkingHeadAttn is no"
        " self-attention known here; blocks_token_only.0.attn and 1 more: cait.ClassAttn is no"
        " self-attention known here"
    )
    gated, x = made("vit_tiny_patch16_224")
    gated.blocks[1].attn.gate = nn.Linear(24, 24)
    want = gated(x)
    with pytest.raises(UserError, match=r"blocks\.1\.attn: it has a gate; strict=False replaces"):
        replace_attention(gated)
    assert not [m for m in gated.modules() if isinstance(m, MultiHeadSelfAttention)]
    with pytest.warns(UserWarning, match=r"of 2 attentions 1 cannot be replaced: blocks\.1\.attn"):
        replace_attention(gated, strict=False)
    assert isinstance(gated.blocks[0].attn, MultiHeadSelfAttention)
    assert not isinstance(gated.blocks[1].attn, MultiHeadSelfAttention)
    assert_close(gated(x), want)


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (timm.layers.Attention(24, 3, attn_head_dim=5), "its 3 heads are 15 wide together, its t"),
        (timm.layers.AttentionRope(24, 4, num_kv_heads=2, qkv_fused=False), "heads share a key"),
        (nn.MultiheadAttention(24, 3), "torch.nn.modules.activation.MultiheadAttention is no"),
    ],
)
def test_each_reason(layer: nn.Module, words: str) -> None:
    with pytest.raises(UserError, match=words):
        replace_attention(nn.Sequential(layer))


def test_a_model_without_attention_or_with_ours_is_refused() -> None:
    for model in (timm.create_model("test_resnet"), VisionTransformer(8, depth=1)):
        with pytest.raises(UserError, match="has no attention of timm to replace"):
            replace_attention(model)


def test_a_subclass_that_does_something_else_is_not_taken() -> None:
    class Other(timm.layers.Attention):
        pass

    with pytest.raises(UserError, match=r"Other is no self-attention known here"):
        replace_attention(nn.Sequential(Other(24, 3)))
