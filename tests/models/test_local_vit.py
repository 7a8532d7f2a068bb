"""The ViT with a limited field: full radius is the ViT, a small one sees what it may."""

import io

import pytest
import timm
import torch
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.models.local_vit import LocalVisionTransformer
from vision_attn.models.vit import VisionTransformer

SMALL = {"in_chans": 1, "num_classes": 5, "embed_dim": 24, "num_heads": 3, "depth": 2}


def pair(radius, **options):
    torch.manual_seed(0)
    full = VisionTransformer((10, 14), 2, **SMALL, **options).double()
    local = LocalVisionTransformer((10, 14), 2, radius=radius, **SMALL, **options).double()
    return full, local


@pytest.mark.parametrize("pos_embed", ["learn", "sincos2d", "none", "rotary"])
@pytest.mark.parametrize("radius", [6, 9])
def test_a_radius_over_the_whole_grid_is_the_vit(pos_embed, radius):
    full, local = pair(radius, pos_embed=pos_embed, init_values=0.5, qk_norm=True)
    local.load_state_dict(full.state_dict())
    x = torch.randn(3, 1, 10, 14, dtype=torch.float64, requires_grad=True)
    y, want = local(x), full(x)
    assert_close(y, want)
    assert_close(torch.autograd.grad(y[:, 1].sum(), x), torch.autograd.grad(want[:, 1].sum(), x))


def test_relative_bias_tables_agree_on_a_square_grid():
    """On 5 x 5 tokens radius 4 has the 9 x 9 differences of the ViT's table, in its order."""
    torch.manual_seed(0)
    full = VisionTransformer(10, 2, pos_embed="rel_bias", **SMALL).double()
    local = LocalVisionTransformer(10, 2, radius=4, pos_embed="rel_bias", **SMALL).double()
    state = {
        k.replace("rel_bias.", "blocks.").replace(".relative", ".attn.relative"): v
        for k, v in full.state_dict().items()
    }
    local.load_state_dict(state)
    x = torch.randn(2, 1, 10, 10, dtype=torch.float64)
    assert_close(local(x), full(x))


@pytest.mark.parametrize(("radius", "reach"), [(1, 2), ([1, 2], 3)])
def test_the_field_grows_by_the_radius_of_each_block(radius, reach):
    _, local = pair(radius)
    x = torch.randn(1, 1, 10, 14, dtype=torch.float64)
    row, col = torch.arange(5), torch.arange(7)
    far = torch.maximum((row[:, None] - row).abs()[:, None, :, None],
                        (col[:, None] - col).abs()[None, :, None, :])  # fmt: skip
    # without it the sum over the channels of a normalised token is a constant
    local.norm.weight.data.uniform_()
    jac = torch.autograd.functional.jacobian(lambda t: local.forward_features(t)[0].sum(-1), x)
    seen = jac[:, 0, 0].abs().unflatten(1, (5, 2)).unflatten(3, (7, 2)).sum((2, 4)) > 0
    assert torch.equal(seen, (far <= reach).flatten(0, 1))


def test_save_load_and_the_registry():
    torch.manual_seed(0)
    args = {"img_size": (10, 14), "patch_size": 2, "radius": [1, 3], **SMALL}
    model = timm.create_model("vision_attn_local_vit", **args)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    again = timm.create_model("vision_attn_local_vit", **args)
    again.load_state_dict(torch.load(buffer))
    x = torch.randn(2, 1, 10, 14)
    assert torch.equal(model.eval()(x), again.eval()(x))


def test_other_sizes_run_and_every_parameter_gets_a_gradient():
    torch.manual_seed(0)
    model = LocalVisionTransformer(
        8, 2, radius=1, pos_embed="rel_bias", dynamic_img_size=True, **SMALL
    )
    model(torch.randn(2, 1, 38, 26)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
    assert {n for n in model.no_weight_decay() if "table" in n} == {
        f"blocks.{i}.attn.relative_position_bias_table" for i in range(2)
    }


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"radius": 0}, "radius is 0; wanted a whole number"),
        ({"radius": [1, 2, 3]}, "depth 2.*or 2"),
        ({"global_pool": "token"}, "global_pool='token'"),
        ({"num_registers": 2}, "num_registers is 2"),
    ],
)
def test_mistakes_are_named(args, words):
    with pytest.raises(UserError, match=words):
        LocalVisionTransformer(8, 2, **SMALL, **args)
