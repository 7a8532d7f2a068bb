"""Rollout against products of matrices written for reading; rows sum to 1 on every model."""

from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.explain import attention_maps, attention_rollout
from vision_attn.models.conv_init_vit import ConvInitVisionTransformer
from vision_attn.models.dense import DenseClassifier
from vision_attn.models.local_vit import LocalVisionTransformer
from vision_attn.models.vit import VisionTransformer

SMALL: dict[str, Any] = {
    "img_size": (6, 10), "patch_size": 2, "in_chans": 3, "num_classes": 7, "embed_dim": 24,
    "depth": 3, "num_heads": 3,
}  # fmt: skip


def images(*size: int) -> Tensor:
    return torch.randn(2, 3, *(size or (6, 10)), generator=torch.manual_seed(3))


def shaken(model: nn.Module) -> nn.Module:
    g = torch.manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=g))
    return model.eval()


def ours(**given: Any) -> nn.Module:
    return shaken(VisionTransformer(**{**SMALL, **given}))


MODELS = {
    "pooled": lambda: ours(),
    "class token": lambda: ours(global_pool="token"),
    "registers": lambda: ours(num_registers=2),
    "relu": lambda: ours(score="relu"),
    "sigmoid": lambda: ours(score="sigmoid"),
    "rotary": lambda: ours(pos_embed="rotary", qk_norm=True, projection="per_head"),
    "lsa": lambda: ours(lsa=True),
    "map": lambda: ours(global_pool="map"),
    "local": lambda: shaken(LocalVisionTransformer(**SMALL, radius=1)),
    "conv init": lambda: shaken(ConvInitVisionTransformer((6, 10), 2, 3, 7, embed_dim=36, depth=2)),
    "dense": lambda: shaken(DenseClassifier(**SMALL)),
    "timm token": lambda: shaken(
        timm.create_model("vit_tiny_patch16_224", img_size=(48, 80), depth=2, num_classes=7)
    ),
    "timm mean": lambda: shaken(
        timm.create_model(
            "vit_tiny_patch16_224", img_size=(48, 80), depth=2, num_classes=7, reg_tokens=2,
            global_pool="avg", qk_norm=True,
        )
    ),
    "deit": lambda: shaken(
        timm.create_model(
            "deit_tiny_distilled_patch16_224", img_size=(48, 80), depth=2, num_classes=7
        )
    ),
    "timm map": lambda: shaken(
        timm.create_model(
            "vit_tiny_patch16_224", img_size=(48, 80), depth=2, num_classes=7, global_pool="map"
        )
    ),
    "scale norm": lambda: shaken(
        timm.create_model(
            "vit_tiny_patch16_224", img_size=(48, 80), depth=2, num_classes=7, scale_attn_norm=True
        )
    ),
}  # fmt: skip
READ = {"class token": [0], "timm token": [0], "scale norm": [0], "deit": [0, 1]}


@pytest.mark.parametrize("gradient", [None, 3])
@pytest.mark.parametrize("name", MODELS)
def test_rows_sum_to_one(name: str, gradient: int | None) -> None:
    x = images(*((48, 80) if name.startswith(("timm", "deit", "scale")) else ()))
    found = attention_rollout(MODELS[name](), x, gradient=gradient, return_matrix=True)
    assert found.matrix is not None
    n, prefix = found.matrix.shape[-1], found.prefix.shape[-1]
    assert found.relevance.shape == (2, 3, 5)
    assert n == 15 + prefix
    assert (found.matrix >= 0).all()
    assert_close(found.matrix.sum(-1), torch.ones(2, n).double(), rtol=0, atol=1e-12)
    whole = found.relevance.sum((1, 2)) + found.prefix.sum(-1)
    assert_close(whole, torch.ones(2).double(), rtol=0, atol=1e-12)
    if name.endswith("map"):
        return  # read at a weighted mean, see below
    rows = READ.get(name, list(range(prefix, n)))
    row = found.matrix[:, rows].mean(1)
    assert_close(torch.cat((found.prefix, found.relevance.flatten(1)), 1), row)


def product(maps: list[Tensor], fuse: Any) -> Tensor:
    """A_L ... A_1 with the residual, of one image, row by row."""
    whole = torch.eye(maps[0].shape[-1], dtype=torch.float64)
    for w in maps:
        fused = fuse(w.double())
        a = torch.zeros_like(fused)
        for i, row in enumerate(fused):
            row = row / 2
            row[i] += 0.5
            a[i] = row / row.sum()
        whole = a @ whole
    return whole


@pytest.mark.parametrize("fusion", ["mean", "max", "min"])
def test_rollout_is_the_product(fusion: Any) -> None:
    fuse = {"mean": lambda w: w.mean(0), "max": lambda w: w.amax(0), "min": lambda w: w.amin(0)}
    model, x = ours(), images()
    found = attention_rollout(model, x, head_fusion=fusion, return_matrix=True)
    maps = attention_maps(model, x).weights.values()
    assert found.matrix is not None
    for b in range(2):
        want = product([w[b] for w in maps], fuse[fusion])
        assert_close(found.matrix[b], want)
        assert_close(found.relevance[b].flatten(), want.mean(0))
    assert torch.equal(found.output, model(x))
    assert attention_rollout(model, x).matrix is None


def test_discarded_weights_are_the_least_of_their_row() -> None:
    model, x = ours(), images()
    kept = attention_rollout(model, x, discard_ratio=0.7, return_matrix=True)

    def fuse(w: Tensor) -> Tensor:
        fused = w.mean(0)
        for row in fused:
            row[row.argsort()[:10]] = 0  # 0.7 of 15 keys
        return fused

    maps = attention_maps(model, x).weights.values()
    assert kept.matrix is not None
    assert_close(kept.matrix[1], product([w[1] for w in maps], fuse))


class Explicit(nn.Module):
    """The same classifier with its weights as leaves of the graph, so that autograd gives dA."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.weights = model, []

    def forward(self, x: Tensor) -> Tensor:
        m = self.model
        x = m.positions(m.patch_embed(x), m.patch_embed.grid_size)
        for block in m.blocks:
            y = block.norm1(x)
            attn = block.attn
            q, k, v = attn.qkv(y).unflatten(-1, (3, 3, 8)).permute(2, 0, 3, 1, 4)
            w = (q @ k.mT / 8**0.5).softmax(-1)
            w.retain_grad()
            self.weights.append(w)
            x = x + attn.proj((w @ v).transpose(1, 2).flatten(2))
            x = x + block.mlp(block.norm2(x))
        return m.head(m.norm(x).mean(1))


def test_gradient_is_that_of_the_weights() -> None:
    model, x = ours().double(), images().double()
    explicit = Explicit(model)
    out = explicit(x)
    (out[0, 2] + out[1, 5]).backward()
    model.zero_grad()
    found = attention_rollout(model, x, gradient=[2, 5], return_matrix=True)
    assert_close(found.output, out.detach())
    assert found.matrix is not None
    whole = torch.eye(15).double().expand(2, -1, -1)
    for w in explicit.weights:
        part = (w * w.grad).clamp_min(0).detach()
        part = part / part.sum(-1).amax((1, 2))[:, None, None, None]
        a = part.mean(1) + torch.eye(15)
        whole = a / a.sum(-1, keepdim=True) @ whole
    assert_close(found.matrix, whole)
    plain = attention_rollout(model, x)
    assert (found.relevance - plain.relevance).abs().max() > 1e-3


def test_gradient_leaves_the_model_alone_and_has_no_unit() -> None:
    model, x = ours(), images()
    for p in model.parameters():
        p.requires_grad_(False)
    first = attention_rollout(model, x, gradient="predicted")
    classes = first.output.argmax(1).tolist()
    assert_close(attention_rollout(model, x, gradient=classes).relevance, first.relevance)
    with torch.no_grad():
        model.head.weight.mul_(10), model.head.bias.mul_(10)  # type: ignore[operator, union-attr]
        again = attention_rollout(model, x, gradient=classes)
    assert_close(again.relevance, first.relevance, rtol=1e-4, atol=1e-6)
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert not x.requires_grad


def test_a_window_that_sees_nothing_else_keeps_relevance_where_it_is() -> None:
    model = shaken(LocalVisionTransformer(**SMALL | {"depth": 1}, radius=1))
    found = attention_rollout(model, images(), return_matrix=True)
    assert found.matrix is not None
    assert (found.matrix[:, 0, 2:5] == 0).all()  # two columns away and more
    assert (found.matrix[:, 0, :2] > 0).all()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"head_fusion": "sum"}, "'sum' is not known; choose mean, max, min"),
        ({"discard_ratio": 1.0}, "discard_ratio is 1.0"),
        ({"gradient": 7}, "class 7 of 7; wanted 0 to 6"),
        ({"gradient": [1, 2, 3]}, "3 classes for 2 images"),
        ({"gradient": "best"}, "'best' is not known"),
    ],
)
def test_bad_arguments(given: dict[str, Any], says: str) -> None:
    model = ours()
    with pytest.raises(UserError, match=says):
        attention_rollout(model, images(), **given)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_attention_pooling_is_read_as_it_weighs() -> None:
    model: Any = ours(global_pool="map")
    x = images()
    found = attention_rollout(model, x, return_matrix=True)
    tokens, pool = model.forward_features(x), model.attn_pool
    k = pool.kv(tokens)[..., :24].unflatten(-1, (3, 8)).transpose(1, 2)
    q = pool.q(pool.latent).unflatten(-1, (3, 8)).transpose(1, 2)
    w = (q @ k.mT / 8**0.5).softmax(-1).mean(1).double()
    assert (w.std(-1) > 1e-3).all()
    assert found.matrix is not None
    assert_close(found.relevance.flatten(1), (w @ found.matrix)[:, 0], rtol=1e-5, atol=1e-7)


def test_other_pooling_is_refused() -> None:
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, global_pool="max")
    with pytest.raises(UserError, match="global_pool='max'"):
        attention_rollout(model, images(32, 32))
