"""Attention maps equal the explicit path and timm's own, and leave the model as it was."""

from typing import Any

import pytest
import timm
import torch
from timm.layers import set_fused_attn
from timm.utils import AttentionExtract
from torch import Tensor, nn
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.explain import attention_maps
from vision_attn.layers.local import NeighborhoodAttention, WindowAttention
from vision_attn.models.cnn import SmallCNN
from vision_attn.models.conv_init_vit import ConvInitVisionTransformer
from vision_attn.models.dense import DenseClassifier
from vision_attn.models.local_vit import LocalVisionTransformer
from vision_attn.models.vit import VisionTransformer
from vision_attn.ops.neighborhood import neighborhood_mask
from vision_attn.ops.windows import window_mask

SMALL: dict[str, Any] = {
    "img_size": (10, 14), "patch_size": 2, "in_chans": 3, "num_classes": 7, "embed_dim": 24,
    "depth": 3, "num_heads": 3,
}  # fmt: skip
GRID = (5, 7)


def images(*size: int, batch: int = 2, chans: int = 3) -> Tensor:
    return torch.randn(batch, chans, *(size or (10, 14)), generator=torch.manual_seed(3))


def shaken(model: nn.Module, by: float = 0.3) -> nn.Module:
    """In eval mode, with weights far enough from their start that rows of weights are not flat."""
    g = torch.manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(by * torch.randn(p.shape, generator=g))
    return model.eval()


def hooks(model: nn.Module) -> int:
    """Hooks of every kind on every module."""
    kinds = [k for k in vars(nn.Module()) if k.endswith("hooks")]
    assert len(kinds) > 5
    return sum(len(getattr(m, kind)) for m in model.modules() for kind in kinds)


def by_hand(model: Any, x: Tensor) -> list[Tensor]:
    """Weights of `VisionTransformer` from its own parts, one query at a time, for reading."""
    with torch.no_grad():
        grid = model.patch_embed.grid_of(x)
        x = model.positions(model.patch_embed(x), grid)
        if model.cls_token is not None:
            x = torch.cat((model.cls_token.expand(len(x), -1, -1), x), 1)
        found = []
        for i, block in enumerate(model.blocks):
            given: dict[str, Any] = {}
            if model.rel_bias is not None:
                given["bias"] = model.rel_bias[i](grid)
            if model.rotary is not None:
                given["rotary"] = model.rotary(grid)
            y = block.norm1(x)
            found.append(block.attn(y, return_weights=True, **given)[1])
            x = block(x, **given)
    return found


OURS = {
    "plain": {},
    "pixels": {"patch_size": 1, "img_size": (5, 7)},
    "class token": {"global_pool": "token"},
    "registers": {"num_registers": 2},
    "rotary": {"pos_embed": "rotary"},
    "bias and class token": {"pos_embed": "rel_bias", "global_pool": "token"},
    "relu": {"score": "relu", "qk_norm": True},
    "lsa": {"lsa": True},
    "per head": {"projection": "per_head"},
}


@pytest.mark.parametrize("case", OURS)
def test_ours_equal_the_explicit_path(case: str) -> None:
    model = shaken(VisionTransformer(**{**SMALL, **OURS[case]}))  # type: ignore[arg-type]
    x = images(*OURS[case].get("img_size", (10, 14)))  # type: ignore[arg-type]
    want = by_hand(model, x)
    maps = attention_maps(model, x)
    prefix = int(case.endswith("class token"))
    assert (maps.grid, maps.prefix) == (GRID, prefix)
    assert list(maps.weights) == [0, 1, 2]
    for i, w in enumerate(want):
        assert w.shape == (2, 3, 35 + prefix, 35 + prefix + 2 * (case == "registers"))
        assert_close(maps.weights[i], w, rtol=0, atol=1e-6)
        on_image = maps.image_maps()[i]
        assert_close(on_image[:, :, :, 3, 5], w[..., 3 * 7 + 5 - 35], rtol=0, atol=1e-6)
    chosen = attention_maps(model, x, layers=[2, 0], heads=[2, 0], queries=[(3, 5), -2, 0])
    assert list(chosen.weights) == [2, 0]
    for i, w in chosen.weights.items():
        picked = want[i][:, [2, 0]][:, :, [prefix + 26, prefix + 33, 0]]
        assert_close(w, picked, rtol=0, atol=1e-6)


def test_a_layer_that_is_named_twice_is_seen_once() -> None:
    vit = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=3).eval()
    for model, x in ((VisionTransformer(**SMALL), images()), (vit, images(32, 32))):
        maps = attention_maps(model, x, layers=[2, 0, -1, 2])
        assert list(maps.weights) == [2, 0]
        assert hooks(model) == 0
        assert not any("observer" in vars(m) for m in model.modules())


@pytest.mark.parametrize("train", [False, True])
def test_the_output_mode_and_hooks_stay(train: bool) -> None:
    model = VisionTransformer(**SMALL, attn_drop_rate=0.2, drop_path_rate=0.2).train(train)
    model.blocks[1].attn.register_forward_hook(lambda *_: None)
    x = images()
    torch.manual_seed(0)
    plain = model(x)
    torch.manual_seed(0)
    maps = attention_maps(model, x, layers=[1])
    assert torch.equal(maps.output, plain)
    assert not maps.output.requires_grad
    assert all(m.training is train for m in model.modules())
    assert hooks(model) == 1
    torch.manual_seed(0)
    assert torch.equal(model(x), plain)


def test_only_what_is_asked_for_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    from vision_attn.explain import observe as home

    made: list[tuple[int, ...]] = []
    real = home.attention_weights

    def noted(*args: Any, **kwargs: Any) -> Tensor:
        made.append(real(*args, **kwargs).shape)
        return real(*args, **kwargs)

    monkeypatch.setattr(home, "attention_weights", noted)
    attention_maps(VisionTransformer(**SMALL), images(), layers=[1], heads=[0], queries=[4])
    assert made == [(2, 1, 1, 35)]


def test_a_fault_in_the_middle_leaves_no_hook() -> None:
    model = VisionTransformer(**SMALL)
    model.blocks[1].mlp.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        attention_maps(model, images())
    assert hooks(model) == 1


def neighbours(model: LocalVisionTransformer, i: int) -> Tensor:
    attn = model.blocks[i].attn
    return neighborhood_mask(GRID, attn.kernel_size, attn.dilation)  # type: ignore[arg-type, union-attr]


@pytest.mark.parametrize("given", [{}, {"pos_embed": "rel_bias"}, {"pos_embed": "rotary"},
                                   {"dilation": 2, "score": "sigmoid"}])  # fmt: skip
def test_neighbourhoods_lie_on_the_whole_grid(given: dict[str, Any]) -> None:
    given = {"radius": [1, 2, 6], "qk_norm": True, **given}
    model = shaken(LocalVisionTransformer(**SMALL, **given))
    x = images()
    seen: list[tuple[Tensor, Tensor]] = []
    for block in model.blocks:  # type: ignore[union-attr]
        block.attn.register_forward_hook(lambda m, args, out: seen.append((args[0], out)))
    maps = attention_maps(model, x)
    some = attention_maps(model, x, heads=[1], queries=[(4, 6), 3])
    assert torch.equal(maps.output, model(x))
    for i, w in maps.weights.items():
        near = neighbours(model, i)
        assert near.sum() < 35 * 35 or i == 2
        assert (w[..., ~near] == 0).all()
        assert (w[..., near] > 0).all()
        assert_close(some.weights[i], w[:, [1]][:, :, [34, 3]], rtol=0, atol=1e-6)
        attn: Any = model.blocks[i].attn  # type: ignore[index]
        v = attn.qkv(seen[i][0])[..., 48:].unflatten(-1, (3, 8)).transpose(1, 2)
        y = attn.proj((w @ v).transpose(1, 2).flatten(2))
        assert_close(y, seen[i][1], rtol=1e-4, atol=1e-5)


class Windows(nn.Module):
    """A model with window attention, which none of the package's has."""

    def __init__(self, window: tuple[int, int], shift: tuple[int, int]) -> None:
        super().__init__()
        vit = VisionTransformer(**{**SMALL, "depth": 0})
        self.patch_embed, self.head = vit.patch_embed, vit.head
        self.attn = WindowAttention(24, 3, window_size=window, shift_size=shift)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attn(self.patch_embed(x), GRID).mean(1))


@pytest.mark.parametrize(
    ("window", "shift"), [((2, 3), (1, 2)), ((3, 3), (0, 0)), ((4, 9), (2, 4))]
)
def test_windows_lie_on_the_whole_grid(window: tuple[int, int], shift: tuple[int, int]) -> None:
    model = shaken(Windows(window, shift))
    x = images()
    maps = attention_maps(model, x)
    w = maps.weights[0]
    same = window_mask(GRID, window, shift)
    assert (w[..., ~same] == 0).all()
    assert (w[..., same] > 0).all()
    tokens = model.patch_embed(x)  # type: ignore[operator]
    attn: Any = model.attn
    v = attn.qkv(tokens)[..., 48:].unflatten(-1, (3, 8)).transpose(1, 2)
    assert_close(attn.proj((w @ v).transpose(1, 2).flatten(2)), attn(tokens, GRID))
    one = attention_maps(model, x, queries=[(2, 3)]).weights[0]
    assert_close(one, w[:, :, [2 * 7 + 3]])


def test_conv_init_dense_and_a_wrapped_model() -> None:
    size = {k: v for k, v in SMALL.items() if k not in ("embed_dim", "num_heads")}
    conv = shaken(ConvInitVisionTransformer(**size, embed_dim=36))
    for i, w in enumerate(by_hand(conv, images())):
        assert_close(attention_maps(conv, images()).weights[i], w, rtol=0, atol=1e-6)
    dense = shaken(DenseClassifier(**SMALL))
    maps = attention_maps(nn.Sequential(dense), images(), layers=[1])
    assert_close(maps.weights[1], by_hand(dense.encoder, images())[1])
    assert maps.output.shape == (2, 7, 10, 14)


@pytest.mark.parametrize(
    ("name", "given", "prefix"),
    [
        ("vit_tiny_patch16_224", {"qk_norm": True}, 1),
        ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "avg"}, 0),
        ("vit_tiny_patch16_224", {"reg_tokens": 4, "no_embed_class": True}, 5),
        ("deit_tiny_distilled_patch16_224", {}, 2),
    ],
)
def test_timm_equals_its_own_extraction(name: str, given: dict[str, Any], prefix: int) -> None:
    size = {"img_size": (32, 48), "patch_size": 16, "depth": 2, "num_classes": 3}
    fused = shaken(timm.create_model(name, **size, **given), 0.1)
    set_fused_attn(False)
    try:
        plain = timm.create_model(name, **size, **given)
    finally:
        set_fused_attn(True)
    plain.load_state_dict(fused.state_dict())
    assert all(block.attn.fused_attn for block in fused.blocks)
    x = images(32, 48)
    want = AttentionExtract(plain, method="fx")(x)
    maps = attention_maps(fused, x)
    assert (maps.grid, maps.prefix) == ((2, 3), prefix)
    assert len(want) == len(maps.weights) == 2
    for got, w in zip(maps.weights.values(), want.values(), strict=True):
        assert got.shape == (2, 3, 6 + prefix, 6 + prefix)
        assert_close(got, w, rtol=0, atol=1e-5)
    assert torch.equal(maps.output, fused(x))
    assert hooks(fused) == 0


@pytest.mark.parametrize("name", ["eva02_tiny_patch14_224", "beit_base_patch16_224"])
def test_other_vits_of_timm(name: str) -> None:
    """Rotary positions and a bias table, against what the unfused block makes of its values."""
    given = {"img_size": (64, 48), "patch_size": 16, "embed_dim": 24, "num_heads": 3, "depth": 2}
    model = shaken(timm.create_model(name, **given), 0.1)
    x = images(64, 48)
    maps = attention_maps(model, x)
    assert (maps.grid, maps.prefix) == ((4, 3), 1)
    assert_close(maps.output, model(x))
    made: list[Tensor] = []
    for block in model.blocks:
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(lambda m, args, w: made.append(w))
    with torch.no_grad():
        model(x)
    for got, want in zip(maps.weights.values(), made, strict=True):
        assert got.shape == (2, 3, 13, 13)
        assert_close(got, want, rtol=0, atol=1e-6)
    assert_close(attention_maps(model, x, layers=[1]).weights[1], made[1], rtol=0, atol=1e-6)
    assert not any(block.attn.fused_attn for block in model.blocks)


def test_what_attends_otherwise_is_refused() -> None:
    diff = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, attn_layer="diff")
    swin = timm.create_model("swin_tiny_patch4_window7_224", img_size=32, window_size=2)
    for model, says in (
        (diff, "wanted one layer over all 5 tokens"),
        (swin, "SwinTransformer has"),
    ):
        with pytest.raises(UserError, match=says):
            attention_maps(model, images(32, 32))


def test_timm_masks_reach_the_maps() -> None:
    model = shaken(timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2))
    allowed = torch.ones(5, 5, dtype=torch.bool).tril()
    for mask in (allowed, torch.zeros(5, 5).masked_fill(~allowed, float("-inf"))):
        wrapped = _Masked(model, mask)
        for w in attention_maps(wrapped, images(32, 32)).weights.values():
            assert (w[..., ~allowed] == 0).all()
            assert_close(w.sum(-1), torch.ones(2, 3, 5))


class _Masked(nn.Module):
    def __init__(self, model: nn.Module, mask: Tensor) -> None:
        super().__init__()
        self.model, self.mask = model, mask

    def forward(self, x: Tensor) -> Tensor:
        return self.model.forward_features(x, attn_mask=self.mask)  # type: ignore[operator]


def test_half_precision_and_another_size() -> None:
    model = shaken(VisionTransformer(**SMALL, dynamic_img_size=True))
    maps = attention_maps(model, images(6, 22), layers=[0])
    assert maps.grid == (3, 11)
    assert maps.image_maps()[0].shape == (2, 3, 33, 3, 11)
    half = attention_maps(model.bfloat16(), images(6, 22).bfloat16(), layers=[0])
    assert_close(half.weights[0].float(), maps.weights[0], rtol=0.1, atol=0.02)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"layers": [3]}, "layers has 3, but there are 3; wanted 0 to 2"),
        ({"heads": [0, 5]}, "heads has 5, but there are 3; wanted 0 to 2"),
        ({"queries": [35]}, "queries has 35, but there are 35; wanted 0 to 34"),
        ({"queries": [(5, 0)]}, r"queries has \(row 5, column 0\), but the grid is 5 x 7"),
        ({"queries": [(0, -1)]}, "columns 0 to 6"),
    ],
)
def test_what_there_is_not(given: dict[str, Any], says: str) -> None:
    model = VisionTransformer(**SMALL)
    with pytest.raises(UserError, match=says):
        attention_maps(model, images(), **given)
    assert hooks(model) == 0


def test_models_without_attention() -> None:
    with pytest.raises(UserError, match="SmallCNN"):
        attention_maps(SmallCNN(img_size=(10, 14)), images())
    with pytest.raises(UserError, match="NeighborhoodAttention on images"):
        attention_maps(NeighborhoodAttention(24, 3), images())
