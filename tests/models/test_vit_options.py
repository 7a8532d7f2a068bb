"""Options of the ViT for small data: mimetic start, locality self-attention, attention pooling."""

import math
from typing import Any

import numpy as np
import pytest
import timm
import torch
from tensors import draw
from timm.models.vision_transformer import VisionTransformer as TimmViT
from timm.optim import param_groups_weight_decay
from torch import Tensor, nn
from torch.testing import assert_close

from vision_attn import VisionTransformer
from vision_attn.errors import UserError
from vision_attn.layers.attention import LocalitySelfAttention, MultiHeadSelfAttention
from vision_attn.models.mimetic import mimetic_
from vision_attn.models.registry import create_model
from vision_attn.ops.positions import sincos_2d

SMALL: dict[str, Any] = {
    "img_size": (6, 10),
    "patch_size": (3, 2),
    "in_chans": 7,
    "num_classes": 11,
    "embed_dim": 15,
    "depth": 2,
    "num_heads": 3,
}


def shaken(model: Any) -> Any:
    """In float64, every parameter away from its start; a temperature stays above 0."""
    model = model.double()
    for i, (name, p) in enumerate(model.named_parameters()):
        p.data = draw(*p.shape, seed=100 + i) * 0.4
        if name.endswith("temperature"):
            p.data = p.data.abs() + 1.3
    return model


# Mimetic initialisation


def diagonal_and_rest(product: Tensor) -> tuple[float, float, float]:
    """Mean of the diagonal; mean and spread of what lies beside it."""
    rest = product[~torch.eye(len(product), dtype=torch.bool)]
    return product.diagonal().mean().item(), rest.mean().item(), rest.std().item()


def expected_diagonal(dim: int, rank: int, a: float, b: float) -> tuple[float, float]:
    """Mean diagonal of the rank-`rank` part of a Z + b I, and its spread, over numpy's draws."""
    make, found = np.random.default_rng(5), []
    for _ in range(20):
        u, s, vh = np.linalg.svd(a * make.normal(size=(dim, dim)) / dim**0.5 + b * np.eye(dim))
        found.append(np.trace(u[:, :rank] * s[:rank] @ vh[:rank]) / dim)
    return float(np.mean(found)), float(np.std(found))


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("given", [{}, {"qk": (0.2, 0.9), "vo": (0.6, 0.3)}], ids=["paper", "own"])
def test_mimetic_products_have_the_diagonals_asked_for(heads: int, given: dict[str, Any]) -> None:
    torch.manual_seed(0)
    D, K = 93, 93 // heads
    (a, b), (c, d) = given.get("qk", (0.7, 0.7)), given.get("vo", (0.4, 0.4))
    attn = MultiHeadSelfAttention(D, heads, qkv_bias=True).double()
    bias = attn.qkv.bias.detach().clone()
    mimetic_(attn, **given)
    w_q, w_k, w_v = attn.qkv.weight.detach().chunk(3)
    products = [w_q[i : i + K].T @ w_k[i : i + K] for i in range(0, D, K)]
    want, spread = expected_diagonal(D, K, a, b)
    for product in products:
        diagonal, mean, _ = diagonal_and_rest(product)
        assert_close(diagonal, want, rtol=0, atol=5 * spread)
        assert_close(mean, 0.0, rtol=0, atol=5 * a / D)
        assert torch.linalg.matrix_rank(product) == K
    if heads == 1:
        assert_close(want, b, rtol=0, atol=0.05)
    else:
        assert (products[0] - products[1]).std() > 0.5 * a / math.sqrt(D)
    diagonal, mean, std = diagonal_and_rest(w_v.T @ attn.proj.weight.detach().T)
    assert_close(diagonal, -d, rtol=0, atol=5 * c / D)
    assert_close(mean, 0.0, rtol=0, atol=5 * c / D)
    assert_close(std, c / math.sqrt(D), rtol=0.05, atol=0)
    assert_close(attn.qkv.bias, bias, rtol=0, atol=0)


def test_mimetic_scores_and_outputs_are_those_of_the_products() -> None:
    """By the layer itself: a token looks at its like, and takes it away."""
    torch.manual_seed(1)
    attn = MultiHeadSelfAttention(24, 1).double()
    mimetic_(attn, qk=(0.0, 6.0), vo=(0.0, 0.5))
    attn.proj.bias.data.zero_()
    x = nn.functional.normalize(draw(2, 5, 24), dim=-1)
    y, w = attn(x, return_weights=True)
    assert_close(w[:, 0], (6 * x @ x.mT / math.sqrt(24)).softmax(-1))
    assert_close(y, -0.5 * w[:, 0] @ x)


def test_vit_starts_mimetic_in_every_block_with_sincos_positions() -> None:
    torch.manual_seed(0)
    given: dict[str, Any] = {**SMALL, "embed_dim": 96}
    vit = VisionTransformer(**given, mimetic_init=True)
    for block in vit.blocks:
        w_v, w_o = block.attn.qkv.weight.detach().chunk(3)[2], block.attn.proj.weight.detach()
        diagonal, _, std = diagonal_and_rest(w_v.T @ w_o.T)
        assert_close([diagonal, std], [-0.4, 0.4 / 96**0.5], rtol=0.06, atol=0)
        assert not block.attn.qkv.bias.any()
    first, second = (b.attn.qkv.weight for b in vit.blocks)
    assert (first - second).abs().max() > 0.1
    assert_close(vit.positions.pos_embed[0], sincos_2d((2, 5), 96))
    assert vit.positions.pos_embed.requires_grad
    vit(torch.randn(2, 7, 6, 10)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in vit.parameters())


@pytest.mark.parametrize("name", ["vit", "pixel_vit", "conv_stem_vit", "local_vit"])
def test_mimetic_start_changes_nothing_but_attention_and_positions(name: str) -> None:
    def build(**args: Any) -> dict[str, Tensor]:
        torch.manual_seed(3)
        given = {"embed_dim": 12, "patch_size": 2, "depth": 2, **args}
        shape: dict[str, Any] = {"img_size": (6, 10), "in_chans": 1, "num_classes": 5}
        return create_model(name, args=given, **shape).state_dict()

    plain, mimetic = build(), build(mimetic_init=True)
    changed = {k for k in plain if not torch.equal(plain[k], mimetic[k])}
    weights = {f"blocks.{i}.attn.{n}.weight" for i in range(2) for n in ("qkv", "proj")}
    assert changed == weights | {"positions.pos_embed"}


# Locality self-attention

D, H, N = 21, 3, 5


def lsa_by_hand(x: Tensor, attn: LocalitySelfAttention, keep: Tensor | None = None) -> Tensor:
    """Query by query, head by head, over the other tokens only."""
    q, k, v = (attn.qkv(x).unflatten(-1, (3, H, D // H))[..., i, :, :] for i in range(3))
    y = torch.zeros(len(x), N, H, D // H, dtype=x.dtype)
    for b in range(len(x)):
        for h in range(H):
            for i in range(N):
                others = [j for j in range(N) if j != i and (keep is None or keep[b, j])]
                s = torch.stack([q[b, i, h] @ k[b, j, h] / attn.temperature for j in others])
                w = s.exp() / s.exp().sum()
                for share, j in zip(w, others, strict=True):
                    y[b, i, h] = y[b, i, h] + share * v[b, j, h]
    return attn.proj(y.flatten(2))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("masked", [False, True])
def test_lsa_is_softmax_over_the_others_by_a_learned_temperature(masked: bool, fused: bool) -> None:
    attn, x = shaken(LocalitySelfAttention(D, H, qkv_bias=True, fused=fused)), draw(2, N, D)
    keep = torch.tensor([[1, 1, 0, 1, 1], [1, 0, 1, 1, 0]]).bool() if masked else None
    got, want = attn(x, key_mask=keep), lsa_by_hand(x, attn, keep)
    assert_close(got, want)
    params = list(attn.parameters())
    theirs = torch.autograd.grad(want.square().sum(), params)
    for mine, its in zip(torch.autograd.grad(got.square().sum(), params), theirs, strict=True):
        assert_close(mine, its)
    y, w = attn(x, key_mask=keep, return_weights=True)
    assert_close(y, got, rtol=0, atol=0)
    assert_close(w.diagonal(dim1=-2, dim2=-1), torch.zeros(2, H, N).double(), rtol=0, atol=0)
    assert_close(w.sum(-1), torch.ones(2, H, N).double())


def test_lsa_starts_as_attention_under_a_mask_of_the_diagonal() -> None:
    attn = LocalitySelfAttention(D, H, qkv_bias=True)
    plain = MultiHeadSelfAttention(D, H, qkv_bias=True)
    state = attn.state_dict()
    assert_close(state.pop("temperature"), torch.tensor(math.sqrt(D // H)))
    plain.load_state_dict(state)
    x = draw(2, N, D).float()
    pairs = torch.rand(2, N, N, generator=torch.Generator().manual_seed(2)) < 0.7
    others = ~torch.eye(N, dtype=torch.bool)
    assert_close(attn(x), plain(x, mask=others))
    assert_close(attn(x, mask=pairs), plain(x, mask=pairs & others))
    assert_close(attn(x, causal=True), plain(x, mask=others, causal=True))


def test_lsa_hides_only_the_own_token_beside_registers() -> None:
    attn = shaken(LocalitySelfAttention(D, H, num_registers=2))
    _, w = attn(draw(2, N, D), return_weights=True)
    zero = torch.zeros(N, N + 2, dtype=torch.bool)
    zero[:, 2:] = torch.eye(N, dtype=torch.bool)
    assert torch.equal(w == 0, zero.expand(2, H, -1, -1))


def test_lsa_of_a_lone_token_is_the_bias_with_finite_gradients() -> None:
    attn, x = shaken(LocalitySelfAttention(D, H)), draw(2, 1, D).requires_grad_()
    assert_close(attn(x), attn.proj.bias.expand(2, 1, D))
    attn(x).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in attn.parameters())


def test_lsa_keeps_half_precision() -> None:
    attn = LocalitySelfAttention(D, H).bfloat16()
    assert attn(draw(2, N, D).bfloat16()).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert LocalitySelfAttention(D, H)(draw(2, N, D).float()).dtype == torch.bfloat16


@pytest.mark.parametrize("pool", ["avg", "token", "map"])
def test_lsa_in_the_vit_learns_a_temperature_a_block_without_decay(pool: Any) -> None:
    torch.manual_seed(0)
    vit = VisionTransformer(**SMALL, lsa=True, global_pool=pool)
    names = {f"blocks.{i}.attn.temperature" for i in range(2)}
    params = dict(vit.named_parameters())
    assert names == {n for n in params if "temperature" in n} == names & vit.no_weight_decay()
    free = param_groups_weight_decay(vit, 0.7, no_weight_decay_list=vit.no_weight_decay())[0]
    assert free["weight_decay"] == 0
    ids = {id(p) for p in free["params"]}
    vit(torch.randn(3, 7, 6, 10)).square().sum().backward()
    for name in names:
        assert id(params[name]) in ids
        assert_close(params[name].item(), math.sqrt(5))
        assert params[name].grad is not None
        assert params[name].grad.abs() > 0


def test_lsa_adds_one_number_a_block_and_nothing_else() -> None:
    def build(**more: Any) -> dict[str, Tensor]:
        torch.manual_seed(4)
        return VisionTransformer(**SMALL, **more).state_dict()

    plain, lsa = build(), build(lsa=True)
    assert lsa.keys() - plain.keys() == {f"blocks.{i}.attn.temperature" for i in range(2)}
    for name, value in plain.items():
        assert torch.equal(lsa[name], value), name


# Attention pooling


def test_attention_pooling_equals_timm_with_copied_weights() -> None:
    given: dict[str, Any] = {**SMALL, "global_pool": "map", "mlp_ratio": 2.6}
    ours = shaken(VisionTransformer(**given))
    theirs = TimmViT(**given, class_token=False, fc_norm=False, norm_layer=nn.LayerNorm).double()
    weights = {k.replace("positions.", ""): v for k, v in ours.state_dict().items()}
    flat = weights["patch_embed.proj.weight"]
    theirs.load_state_dict(weights | {"patch_embed.proj.weight": flat.view(-1, 7, 3, 2)})
    x = draw(2, 7, 6, 10)
    got, want = ours(x), theirs(x)
    assert_close(got, want)
    got.square().sum().backward()
    want.square().sum().backward()
    its = {k: p.grad for k, p in theirs.named_parameters()}
    for name, p in ours.named_parameters():
        assert_close(p.grad, its[name.replace("positions.", "")].view_as(p))


def test_attention_pooling_knows_no_order_and_any_number_of_tokens() -> None:
    given: dict[str, Any] = {**SMALL, "patch_size": 1, "pos_embed": "none", "global_pool": "map"}
    vit, x = shaken(VisionTransformer(**given, dynamic_img_size=True)), draw(2, 7, 6, 10)
    mixed = x.flatten(2)[..., torch.randperm(60)].view_as(x)
    assert_close(vit(mixed), vit(x))
    assert vit(draw(2, 7, 3, 4)).shape == (2, 11)


def test_the_pooling_query_is_learned_and_not_decayed() -> None:
    torch.manual_seed(0)
    vit = VisionTransformer(**SMALL, global_pool="map")
    assert "attn_pool.latent" in vit.no_weight_decay() & dict(vit.named_parameters()).keys()
    assert vit.attn_pool.latent.std() > 0.1
    assert_close(vit.attn_pool.kv.weight.std().item(), (2 / 45) ** 0.5, rtol=0.1, atol=0)
    vit(torch.randn(2, 7, 6, 10)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in vit.parameters())
    assert vit.attn_pool.latent.grad.abs().max() > 0
    bare = VisionTransformer(**{**SMALL, "num_classes": 0}, global_pool="map")
    assert bare(torch.randn(2, 7, 6, 10)).shape == (2, 15)


# All together, and what does not go together


ALL = {"mimetic_init": True, "lsa": True, "global_pool": "map", "stem": "shifted"}


@pytest.mark.parametrize("pos_embed", ["learn", "sincos2d", "none", "rel_bias", "rotary"])
def test_options_go_together_and_survive_saving(pos_embed: str) -> None:
    def build(seed: int) -> Any:
        torch.manual_seed(seed)
        given = {**SMALL, "embed_dim": 24, "pos_embed": pos_embed, **ALL}
        return timm.create_model("vision_attn_vit", **given, drop_path_rate=0.5).eval()

    first, second, x = build(1), build(2), torch.randn(3, 7, 6, 10)
    assert (first(x) - second(x)).abs().max() > 1e-3
    second.load_state_dict(first.state_dict())
    assert_close(second(x), first(x), rtol=0, atol=0)
    assert_close(torch.cat([first(one[None]) for one in x]), first(x))


@pytest.mark.parametrize("name", ["local_vit", "conv_init_vit"])
def test_other_vits_take_the_options_that_fit(name: str) -> None:
    torch.manual_seed(0)
    args = {"embed_dim": 36, "num_heads": 9, "global_pool": "map", "stem": "shifted", "depth": 2}
    model = create_model(name, img_size=(8, 12), in_chans=1, num_classes=5, args=args)
    model(torch.randn(3, 1, 8, 12)).square().sum().backward()
    for key, p in model.named_parameters():
        assert p.grad is not None, key
        assert p.grad.isfinite().all(), key
    assert "attn_pool.latent" in model.no_weight_decay()


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("vit", {"global_pool": "max"}, "global_pool='max' is not known.* avg, token, map"),
        ("vit", {"stem": "cnov"}, "stem='cnov' is not known.* linear, conv, pooled, shifted"),
        ("vit", {"lsa": True, "scale": 0.5}, "scale is 0.5, but lsa learns it"),
        ("vit", {"mimetic_init": True, "projection": "per_head"}, "per_head.*wants 'full'"),
        ("vit", {"mimetic_init": True, "embed_dim": 18}, "dim 18 is not divisible by 4"),
        ("vit", {"mimetic": True}, "'mimetic'"),
        ("local_vit", {"lsa": True}, "lsa=True is an attention of its own.*wanted lsa=False"),
        ("local_vit", {"global_pool": "token"}, "global_pool='token'.*'avg' or 'map'"),
        ("local_vit", {"global_pool": "max"}, "global_pool='max'.*'avg' or 'map'"),
        ("conv_init_vit", {"lsa": True}, "lsa=True does not go .*choose False"),
        ("conv_init_vit", {"mimetic_init": True}, "mimetic_init=True does not go .*choose False"),
        ("conv_init_vit", {"global_pool": "token"}, "global_pool='token'.*avg or map"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    name: str, args: dict[str, Any], message: str
) -> None:
    shape: dict[str, Any] = {"img_size": (8, 8), "in_chans": 1, "num_classes": 3}
    with pytest.raises(UserError, match=f"model '{name}'.*{message}"):
        create_model(name, args=args, **shape)
