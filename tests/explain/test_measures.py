"""Measures by layer and head: those of the full matrix, for every kind of model; the callback."""

import math
from typing import Any

import pandas as pd
import pytest
import timm
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

from vision_attn.claims.cost import PeakMemory
from vision_attn.data.module import ImageData
from vision_attn.errors import UserError
from vision_attn.explain.measures import MEASURES, attention_measures, some_images
from vision_attn.explain.observe import observe
from vision_attn.layers.attention import MultiHeadSelfAttention
from vision_attn.layers.local import WindowAttention
from vision_attn.models.registry import create_model
from vision_attn.ops.masks import neighborhood_mask, window_mask
from vision_attn.training.classifier import Classifier

# Lightning's notes on devices and log intervals
pytestmark = pytest.mark.filterwarnings("ignore:::lightning")

SIZE, PATCH, GRID = (6, 20), (2, 4), (3, 5)


def build(name: str = "vit", *, spread: float = 8.0, **args: Any) -> nn.Module:
    """A small model on rectangles whose queries and keys are large enough for uneven weights."""
    torch.manual_seed(0)
    given = {"patch_size": PATCH, "embed_dim": 24, "depth": 2, "num_heads": 3} | args
    model = create_model(name, img_size=SIZE, in_chans=2, num_classes=7, args=given)
    for n, p in model.named_parameters():
        if "qkv" in n or "bias_table" in n or "registers" in n:
            p.data.mul_(spread)
    return model.eval()


def pictures(count: int = 5) -> Tensor:
    return torch.randn(count, 2, *SIZE, generator=torch.Generator().manual_seed(1))


def reference(
    weights: list[Tensor], *, prefix: int = 0, registers: int = 0, field: int = 3
) -> pd.DataFrame:
    """The table out of whole matrices (B, H, N, registers + N), one query at a time."""
    rows = []
    at = [(PATCH[0] * (i // GRID[1]), PATCH[1] * (i % GRID[1])) for i in range(math.prod(GRID))]
    for layer, w in enumerate(weights):
        for head in range(w.shape[1]):
            sums = dict.fromkeys(MEASURES, 0.0)
            for image in w[:, head].double():
                for i, row in enumerate(image[prefix:].tolist()):
                    row = [p / sum(row) for p in row]
                    tokens = row[registers:]
                    seen = tokens[prefix:]
                    sums["entropy"] -= sum(p * math.log(p) for p in row if p > 0)
                    sums["largest"] += max(row)
                    sums["self_weight"] += tokens[prefix + i]
                    for j, p in enumerate(seen):
                        sums["distance"] += p / sum(seen) * math.dist(at[i], at[j])
                        steps = [
                            abs(a - b) / s for a, b, s in zip(at[i], at[j], PATCH, strict=True)
                        ]
                        sums["field_share"] += p / sum(seen) * (max(steps) <= field // 2)
            count = len(w) * (w.shape[2] - prefix)
            rows.append({"layer": layer, "head": head} | {k: v / count for k, v in sums.items()})
    return pd.DataFrame(rows)[["layer", "head", *MEASURES]]


def asked_for(model: Any, x: Tensor) -> list[Tensor]:
    """Weights that our global layers give when they are asked."""
    found, hooks = [], []

    def ask(layer: Any, args: Any, given: Any) -> None:
        found.append(type(layer).forward(layer, *args, **given, return_weights=True)[1])

    for block in model.blocks:
        hooks.append(block.attn.register_forward_pre_hook(ask, with_kwargs=True))
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    return found


def same(got: pd.DataFrame, want: pd.DataFrame, rtol: float = 1e-4) -> None:
    pd.testing.assert_frame_equal(got, want, rtol=rtol, atol=1e-6, check_dtype=False)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("vit", {}),
        ("vit", {"global_pool": "token", "num_registers": 2, "qk_norm": True}),
        ("vit", {"pos_embed": "rotary", "embed_dim": 48, "scale": 0.7}),
        ("vit", {"pos_embed": "rel_bias", "global_pool": "token"}),
        ("vit", {"projection": "per_head", "score": "sigmoid"}),
        ("vit", {"score": "relu"}),
        ("vit", {"lsa": True}),
        ("vit", {"global_pool": "map"}),
        ("conv_init_vit", {}),
    ],
)
def test_equal_to_those_of_the_full_matrix(name: str, args: dict[str, Any]) -> None:
    model, x = build(name, **args), pictures()
    prefix = int(args.get("global_pool") == "token")
    want = reference(asked_for(model, x), prefix=prefix, registers=args.get("num_registers", 0))
    same(attention_measures(model, x, chunk=4), want)
    assert want["self_weight"].between(0.001, 0.9).any() or "lsa" in args


@pytest.mark.parametrize("args", [{}, {"dilation": 2, "radius": [1, 2]}, {"pos_embed": "rel_bias"},
                                  {"pos_embed": "rotary", "embed_dim": 48}])  # fmt: skip
def test_local_models(args: dict[str, Any]) -> None:
    model: Any = build("local_vit", **args)
    x, masks = pictures(), []
    want: list[Tensor] = []

    def ask(layer: Any, given: Any, more: Any) -> None:
        whole = MultiHeadSelfAttention(layer.dim, layer.num_heads, qkv_bias=True)
        state = layer.state_dict()
        table = state.pop("relative_position_bias_table", None)
        whole.load_state_dict(state)
        mask = neighborhood_mask(GRID, layer.kernel_size, layer.dilation)
        bias = None
        if table is not None:  # 3 x 3 taps, query minus key
            at = torch.cartesian_prod(torch.arange(GRID[0]), torch.arange(GRID[1]))
            step = (at[:, None] - at + 1).clamp(0, 2)
            bias = table[step[..., 0] * 3 + step[..., 1]].permute(2, 0, 1)[None]
        masks.append(mask)
        want.append(
            whole(given[0], mask=mask, bias=bias, rotary=more.get("rotary"), return_weights=True)[1]
        )

    hooks = [b.attn.register_forward_pre_hook(ask, with_kwargs=True) for b in model.blocks]
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    assert not masks[0].all()
    same(attention_measures(model, x, field=5, chunk=4), reference(want, field=5))


def test_windows_too() -> None:
    """No model of ours has windows, but a block of somebody's may."""
    layer = WindowAttention(24, 3, window_size=(2, 3), shift_size=(1, 1))
    for p in layer.parameters():
        p.data.mul_(8)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn = layer

        def forward(self, tokens: Tensor) -> Tensor:
            return self.attn(tokens, grid_size=GRID)

    model: Any = build()
    model.blocks = nn.Sequential(Block())
    x = pictures()
    found = attention_measures(model, x)
    mask = window_mask(GRID, (2, 3), (1, 1))
    weights = torch.zeros(5, 3, 15, 15)
    with torch.no_grad():
        tokens = model.positions(model.patch_embed(x))
        q, k, _ = layer.qkv(tokens).reshape(5, 15, 3, 3, 8).permute(2, 0, 3, 1, 4)
        table = layer.relative_position_bias_table
        for i in range(15):
            for j in range(15):
                row = (i // 5 - j // 5 + 1) * 5 + i % 5 - j % 5 + 2
                score = (q[:, :, i] * k[:, :, j]).sum(-1) * 8**-0.5
                weights[:, :, i, j] = score + table[row] if mask[i, j] else -math.inf
    same(found, reference([weights.softmax(-1)]))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("args", [{"reg_tokens": 2, "qk_norm": True}, {"class_token": False,
                                  "global_pool": "avg"}])  # fmt: skip
def test_timm(args: dict[str, Any], fused: bool) -> None:
    from timm.models.vision_transformer import VisionTransformer

    torch.manual_seed(0)
    model = VisionTransformer(SIZE, PATCH, 2, 7, embed_dim=24, depth=2, num_heads=3, **args).eval()
    weights: list[Tensor] = []
    for block in model.blocks:
        block.attn.qkv.weight.data.mul_(20)
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(lambda m, a, y: weights.append(y))
    x = pictures()
    with torch.no_grad():
        output = model(x)
    want = reference(weights, prefix=3 if "reg_tokens" in args else 0)
    weights.clear()
    for block in model.blocks:
        block.attn.fused_attn = fused
    same(attention_measures(model, x), want)
    assert not weights  # the fused kernel was on
    assert all(b.attn.fused_attn is fused for b in model.blocks)
    assert all(not b._forward_hooks and not b._forward_pre_hooks for b in model.blocks)
    seen: list[int] = []
    assert_close(observe(model, x, lambda heads: seen.append(heads.layer)), output)
    assert seen == [0, 1]


@pytest.mark.parametrize(
    ("name", "patch"), [("beit_base_patch16_224", 16), ("eva02_tiny_patch14_224", 14)]
)
def test_other_vits_of_timm(name: str, patch: int) -> None:
    size = 4 * patch
    model = timm.create_model(name, img_size=size, embed_dim=24, depth=1, num_heads=3)
    found = attention_measures(model, torch.randn(2, 3, size, size))
    assert len(found) == 3
    assert found["self_weight"].to_numpy() == pytest.approx(1 / 16, rel=0.2)


def test_case_49_no_measure_of_images_that_are_not_wholly_seen() -> None:
    model = timm.create_model("vit_tiny_patch16_224", img_size=40, embed_dim=24, depth=1,
                              num_heads=3)  # fmt: skip
    with pytest.raises(UserError, match="40 x 40 pixels: patches of 16 x 16 leave"):
        attention_measures(model, torch.randn(2, 3, 40, 40))


def test_hand_numbers() -> None:
    model = build(spread=0.0)  # every weight is 1/15
    found = attention_measures(model, pictures())
    assert list(found.columns) == ["layer", "head", *MEASURES]
    assert found[["layer", "head"]].to_numpy().tolist() == [
        [a, b] for a in (0, 1) for b in range(3)
    ]
    assert found["entropy"].to_numpy() == pytest.approx(math.log(15))
    assert found["self_weight"].to_numpy() == pytest.approx(1 / 15)
    assert found["largest"].to_numpy() == pytest.approx(1 / 15)
    # rows of 3: 2, 3, 2 neighbours with oneself; columns of 5: 2, 3, 3, 3, 2
    assert found["field_share"].to_numpy() == pytest.approx(7 * 13 / 15 / 15)
    one = attention_measures(model, pictures(), field=1)
    assert one["field_share"].to_numpy() == pytest.approx(1 / 15)


def test_distance_is_in_pixels_whatever_the_patch() -> None:
    x = torch.randn(2, 1, 8, 8)
    means = []
    for patch in (1, 2):
        model = create_model("vit", img_size=(8, 8), in_chans=1, num_classes=3,
                             args={"patch_size": patch, "depth": 1})  # fmt: skip
        model.blocks[0].attn.qkv.weight.data.zero_()  # type: ignore[index,union-attr]
        means.append(attention_measures(model, x)["distance"].mean())
    grid = torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0))
    coarse = torch.cartesian_prod(torch.arange(0.0, 8, 2), torch.arange(0.0, 8, 2))
    assert means == pytest.approx([float(torch.cdist(g, g).mean()) for g in (grid, coarse)])


def test_batches_labels_and_modules_give_the_same() -> None:
    x = pictures(7)
    model = build()
    want = attention_measures(model, x)
    same(attention_measures(model, x, batch_size=2), want, 1e-5)
    loader = DataLoader(TensorDataset(x, torch.zeros(7)), batch_size=3)
    same(attention_measures(model, loader), want, 1e-5)
    same(attention_measures(model, [x[:6], x[6:]]), want, 1e-5)
    module = Classifier("vit", {"patch_size": 2}, img_size=(8, 8), in_chans=1)
    y = torch.randn(2, 1, 8, 8)
    same(attention_measures(module, y), attention_measures(module.model, y), 1e-6)


def test_the_model_is_left_as_it_was() -> None:
    model: Any = build(drop_path_rate=0.5, attn_drop_rate=0.5)
    model.train()
    model.blocks[0].eval()
    modes = [m.training for m in model.modules()]
    before = {k: v.clone() for k, v in model.state_dict().items()}
    random = torch.get_rng_state()
    attention_measures(model, pictures())
    with pytest.raises(UserError, match="images of shape"):
        attention_measures(model, torch.zeros(1, 2, 6, 6))
    with pytest.raises(ZeroDivisionError):
        observe(model, pictures(), lambda heads: 1 // 0)  # type: ignore[arg-type,return-value]
    assert [m.training for m in model.modules()] == modes
    assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert_close(torch.get_rng_state(), random)
    assert all(not m._forward_pre_hooks and "observer" not in vars(m) for m in model.modules())


def test_compiled_models_and_half_precision() -> None:
    model, x = build(), pictures()
    want = attention_measures(model, x)
    wrapped: Any = torch.compile(model, backend="eager")
    same(attention_measures(wrapped, x), want, 1e-6)
    model.compile(backend="eager")
    same(attention_measures(model, x), want, 1e-6)
    same(attention_measures(build().bfloat16(), x), want, 0.05)


def test_local_attention_is_never_a_whole_matrix() -> None:
    peaks = []
    small = {"patch_size": 1, "depth": 1, "embed_dim": 8, "num_heads": 1}
    for side in (16, 32):
        size = {"img_size": (side, side), "in_chans": 1, "num_classes": 2}
        model = create_model("local_vit", **size, args=small)
        with PeakMemory() as seen:
            attention_measures(model, torch.randn(1, 1, side, side), chunk=4)
        peaks.append(seen.peak)
    assert peaks[1] < 5 * peaks[0]
    assert peaks[1] < 1024 * 1024 * 4  # the weights alone would be 4 MiB


def test_bad_input() -> None:
    cnn = create_model("cnn", img_size=(8, 8), in_chans=1, num_classes=2)
    with pytest.raises(UserError, match="SmallCNN has no attention layer that can be shown"):
        attention_measures(cnn, torch.randn(1, 1, 8, 8))
    with pytest.raises(UserError, match="ResNet has no attention layer"):
        attention_measures(timm.create_model("resnet18"), torch.randn(1, 3, 32, 32))
    cait = timm.create_model("cait_xxs24_224", embed_dim=24, num_heads=3, depth=1)
    with pytest.raises(UserError, match=r"LayerScaleBlock, does not call F\.scaled_dot_product"):
        attention_measures(cait, torch.randn(1, 3, 224, 224))
    model = build()
    with pytest.raises(UserError, match=r"shape \(2, 6, 20\); wanted \(B, C, h, w\)"):
        attention_measures(model, pictures()[0])
    for nothing in ([], pictures()[:0]):
        with pytest.raises(UserError, match="no images to measure"):
            attention_measures(model, nothing)
    with pytest.raises(UserError, match="field is 2; wanted an odd side"):
        attention_measures(model, pictures(), field=2)


def test_images_are_spread_over_a_set_that_comes_class_by_class() -> None:
    data = ImageData("digits")
    loader = data.test_dataloader()
    x = some_images(loader, 5)
    every = torch.cat([batch for batch, _ in loader])
    assert len(every) == 599
    assert_close(x, every[[0, 149, 299, 448, 598]])
    assert len(some_images(loader, 10_000)) == 599
    plain = DataLoader(TensorDataset(every[:9], torch.zeros(9)), batch_size=4)
    assert_close(some_images(plain, 3), every[:3])
