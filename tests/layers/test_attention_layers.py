"""Attention layers: equal to torch's and timm's with copied weights, masks meaning one thing."""

import math
from typing import Any

import pytest
import torch
from timm.layers import Attention
from timm.models.vision_transformer import Block
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.testing import assert_close

from vision_attn import EncoderBlock, MultiHeadSelfAttention, SelfAttention
from vision_attn.errors import UserError
from vision_attn.layers.base import PerHeadLinear
from vision_attn.layers.embed import PatchEmbed, PositionEmbed
from vision_attn.ops.attention import Score

B, N, H, K = 2, 7, 3, 5
D = H * K
SCORES: list[Score] = ["softmax", "relu", "sigmoid"]
# Against the same layer in float64: (rtol, atol).
TOLERANCE = {
    torch.float64: (0.0, 0.0),
    torch.float32: (1e-5, 1e-5),
    torch.float16: (5e-3, 5e-3),
    torch.bfloat16: (4e-2, 4e-2),
}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def tokens() -> Tensor:
    return torch.randn(B, N, D)


def key_mask() -> Tensor:
    keep = torch.ones(B, N, dtype=torch.bool)
    keep[0, 4:], keep[1, 1] = False, False
    return keep


def pair_mask() -> Tensor:
    return torch.rand(N, N) + torch.eye(N) > 0.4


def gradients(module: nn.Module, y: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*module.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad((y**2).sum(), parameters), strict=True))


@pytest.mark.parametrize("masks", ["none", "mask", "key_mask", "both", "bias"])
def test_equals_torch_multihead_attention(masks: str) -> None:
    ours = MultiHeadSelfAttention(D, H, qkv_bias=True)
    theirs = nn.MultiheadAttention(D, H, batch_first=True)
    theirs.load_state_dict(
        {
            "in_proj_weight": ours.qkv.weight,
            "in_proj_bias": ours.qkv.bias,
            "out_proj.weight": ours.proj.weight,
            "out_proj.bias": ours.proj.bias,
        }
    )
    x, mask, keep = tokens(), pair_mask(), key_mask()
    mask[:, 0] = True  # torch gives NaN where nothing is left
    given: dict[str, Tensor] = {}
    torchs: dict[str, Tensor] = {}
    if masks in ("mask", "both"):
        given["mask"], torchs["attn_mask"] = mask, ~mask
    if masks in ("key_mask", "both"):
        given["key_mask"], torchs["key_padding_mask"] = keep, ~keep
    if masks == "bias":
        given["bias"] = torchs["attn_mask"] = torch.randn(N, N)
    y, w = ours(x, return_weights=True, **given)
    y_torch, w_torch = theirs(x, x, x, average_attn_weights=False, **torchs)
    assert_close(y, y_torch)
    assert_close(w, w_torch)
    mine, its = gradients(ours, y), gradients(theirs, y_torch)
    assert_close(mine["qkv.weight"], its["in_proj_weight"], rtol=1e-4, atol=1e-5)
    assert_close(mine["qkv.bias"], its["in_proj_bias"], rtol=1e-4, atol=1e-5)
    assert_close(mine["proj.weight"], its["out_proj.weight"], rtol=1e-4, atol=1e-5)
    assert_close(mine["proj.bias"], its["out_proj.bias"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("qkv_bias", [False, True])
@pytest.mark.parametrize("qk_norm", [False, True])
def test_equals_timm_attention(qkv_bias: bool, qk_norm: bool) -> None:
    theirs = Attention(D, H, qkv_bias=qkv_bias, qk_norm=qk_norm, norm_layer=nn.LayerNorm)
    for p in theirs.parameters():
        nn.init.normal_(p, std=0.5)
    ours = MultiHeadSelfAttention(D, H, qkv_bias=qkv_bias, qk_norm=qk_norm)
    ours.load_state_dict(theirs.state_dict())
    x = tokens()
    y, y_timm = ours(x), theirs(x)
    assert_close(y, y_timm)
    assert_close(gradients(ours, y), gradients(theirs, y_timm), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("init_values", [None, 0.3])
def test_encoder_block_equals_timm_block(init_values: float | None, qk_norm: bool) -> None:
    given: dict[str, Any] = {
        "mlp_ratio": 2.6,
        "qkv_bias": True,
        "qk_norm": qk_norm,
        "init_values": init_values,
        "norm_layer": nn.LayerNorm,
    }
    theirs, ours = Block(D, H, **given), EncoderBlock(D, H, **given)
    for p in theirs.parameters():
        nn.init.normal_(p, std=0.3)
    ours.load_state_dict(theirs.state_dict())
    x = tokens()
    y, y_timm = ours(x), theirs(x)
    assert_close(y, y_timm)
    assert_close(gradients(ours, y), gradients(theirs, y_timm), rtol=1e-4, atol=1e-3)


def test_encoder_block_drops_whole_samples_of_a_branch_in_training_only() -> None:
    block = EncoderBlock(D, H, drop_path=0.5)
    x = torch.randn(64, N, D)
    same = (block(x) == x).flatten(1).all(1).float().mean().item()
    assert 0.1 < same < 0.45  # both branches are skipped for a quarter of the samples
    assert_close(block.eval()(x), block(x), rtol=0, atol=0)
    assert not (block(x) == x).flatten(1).all(1).any()


def test_encoder_block_drops_in_both_branches() -> None:
    x = tokens()
    for silent in ("attn.proj", "mlp.fc2"):
        block = EncoderBlock(D, H, proj_drop=0.5)
        for p in block.get_submodule(silent).parameters():
            nn.init.zeros_(p)
        assert (block(x) - block(x)).abs().max() > 1e-3
        assert_close(block.eval()(x), block(x), rtol=0, atol=0)


def test_encoder_block_hands_masks_and_bias_to_its_attention() -> None:
    block, x = EncoderBlock(D, H), tokens()
    given = {"mask": pair_mask(), "key_mask": key_mask(), "bias": torch.randn(N, N)}
    attended = x + block.attn(block.norm1(x), **given)
    assert_close(block(x, **given), attended + block.mlp(block.norm2(attended)))


@pytest.mark.parametrize("scale", [None, 1.0])
@pytest.mark.parametrize("head_dim", [None, 11])
def test_single_head_is_the_formula(head_dim: int | None, scale: float | None) -> None:
    attn, x = SelfAttention(D, head_dim, qkv_bias=True, scale=scale), tokens()
    width = head_dim or D
    (w_q, w_k, w_v), (b_q, b_k, b_v) = attn.qkv.weight.split(width), attn.qkv.bias.split(width)
    q, k, v = x @ w_q.T + b_q, x @ w_k.T + b_k, x @ w_v.T + b_v
    weight = torch.exp(q @ k.mT * (scale or 1 / math.sqrt(width)))
    weight = weight / weight.sum(-1, keepdim=True)
    y, w = attn(x, return_weights=True)
    assert_close(w, weight)
    assert_close(y, weight @ v)


@pytest.mark.parametrize("score", SCORES)
def test_scale_of_the_heads_is_the_one_given(score: Score) -> None:
    attn, x = MultiHeadSelfAttention(D, H, score=score, scale=0.7), tokens()
    with torch.no_grad():
        attn.qkv.weight[:D] *= 5
    plain = MultiHeadSelfAttention(D, H, score=score)
    plain.load_state_dict(attn.state_dict())
    with torch.no_grad():
        plain.qkv.weight[:D] *= 0.7 * math.sqrt(K)
    for got, want in zip(attn(x, return_weights=True), plain(x, return_weights=True), strict=True):
        assert_close(got, want)


def test_one_head_of_many_is_the_single_head() -> None:
    single, multi, x = SelfAttention(D), MultiHeadSelfAttention(D, 1), tokens()
    multi.qkv.load_state_dict(single.qkv.state_dict())
    assert_close(multi(x), multi.proj(single(x)))


def test_per_head_projection_is_the_full_one_with_block_diagonal_weights() -> None:
    ours = MultiHeadSelfAttention(D, H, qkv_bias=True, projection="per_head")
    full = MultiHeadSelfAttention(D, H, qkv_bias=True)
    nn.init.normal_(ours.qkv.bias)
    full.load_state_dict({k: v for k, v in ours.state_dict().items() if "qkv" not in k}, False)
    with torch.no_grad():
        full.qkv.bias.copy_(ours.qkv.bias)
        full.qkv.weight.zero_()
        for part in range(3):
            for h in range(H):
                rows, columns = part * D + h * K, h * K
                block = ours.qkv.weight[part, h]
                full.qkv.weight[rows : rows + K, columns : columns + K] = block
    x = tokens()
    assert_close(ours(x), full(x))
    assert ours.qkv.weight.numel() == 3 * D * D // H
    assert full.qkv.weight.numel() == 3 * D * D


def test_per_head_projection_starts_in_the_range_of_a_linear_layer_of_its_width() -> None:
    weight = PerHeadLinear(400, 4, 3).weight
    assert_close(weight.abs().max().item(), 0.1, rtol=0.01, atol=0)
    assert_close(weight.std().item(), 0.1 / math.sqrt(3), rtol=0.01, atol=0)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("masks", ["none", "key_mask", "all of a sample", "mask"])
@pytest.mark.parametrize("score", SCORES)
def test_asking_for_weights_never_changes_the_output(
    score: Score, masks: str, training: bool
) -> None:
    attn, x = MultiHeadSelfAttention(D, H, score=score).train(training), tokens()
    given: dict[str, Tensor] = {}
    if masks == "mask":
        given["mask"] = pair_mask()
    elif masks != "none":
        given["key_mask"] = key_mask()
        given["key_mask"][1] &= masks == "key_mask"
    y, w = attn(x, return_weights=True, **given)
    assert_close(attn(x, **given), y, rtol=0, atol=0)
    if masks == "all of a sample":
        assert_close(y[1], attn.proj.bias.expand(N, D), rtol=0, atol=0)
        assert_close(w[1], torch.zeros(H, N, N), rtol=0, atol=0)
    if score == "softmax":
        rows = torch.ones(B, H, N)
        rows[1] = masks != "all of a sample"
        assert_close(w.sum(-1), rows)
    v = attn.qkv(x)[..., 2 * D :].unflatten(-1, (H, K)).transpose(1, 2)
    assert_close(attn.proj((w @ v).transpose(1, 2).flatten(2)), y)


def test_single_head_output_stays_when_weights_are_asked_for() -> None:
    attn, x = SelfAttention(D, 11), tokens()
    assert_close(attn(x), attn(x, return_weights=True)[0], rtol=0, atol=0)


def copying(attn: nn.Module, width: int) -> None:
    """Values are the tokens themselves, all scores are zero, the output is not projected."""
    with torch.no_grad():
        attn.qkv.weight.zero_()
        attn.qkv.weight[-width:] = torch.eye(width)
        if hasattr(attn, "proj"):
            attn.proj.weight.copy_(torch.eye(width))
            attn.proj.bias.zero_()


def test_heads_are_merged_channel_by_channel() -> None:
    attn = MultiHeadSelfAttention(4, 2)
    copying(attn, 4)
    heads = torch.arange(8.0).view(1, 2, 2, 2)
    x = torch.tensor([[[0.0, 1, 4, 5], [2, 3, 6, 7]]])
    assert_close(x[0].view(2, 2, 2).transpose(0, 1), heads[0])
    assert_close(attn(x, mask=torch.eye(2, dtype=torch.bool)), x, rtol=0, atol=0)


@pytest.mark.parametrize("cls", [SelfAttention, MultiHeadSelfAttention])
def test_weight_dropout_is_off_in_eval_and_never_in_the_weights_returned(
    cls: type[nn.Module],
) -> None:
    attn = cls(1, 1, attn_drop=0.5)
    copying(attn, 1)
    x = torch.ones(40, 1, 1)
    y, w = attn(x, return_weights=True)
    assert set(y.flatten().tolist()) == {0.0, 2.0}
    assert_close(w.flatten(), torch.ones(40), rtol=0, atol=0)
    attn.eval()
    assert_close(attn(x), x, rtol=0, atol=0)
    assert_close(attn(x), attn(x), rtol=0, atol=0)


def test_output_dropout_is_off_in_eval() -> None:
    attn, x = MultiHeadSelfAttention(D, H, proj_drop=0.5), tokens()
    y = attn(x)
    kept = y != 0
    assert 0.3 < kept.float().mean().item() < 0.7
    assert_close(y[kept], 2 * attn.eval()(x)[kept])


@pytest.mark.parametrize("projection", ["full", "per_head"])
@pytest.mark.parametrize("score", SCORES)
def test_permuting_tokens_permutes_outputs(score: Score, projection: Any) -> None:
    attn, x = MultiHeadSelfAttention(D, H, score=score, projection=projection), tokens()
    order = torch.randperm(N)
    assert_close(attn(x[:, order]), attn(x)[:, order])


@pytest.mark.parametrize("score", SCORES)
def test_jacobian_is_zero_exactly_where_the_mask_forbids(score: Score) -> None:
    attn = MultiHeadSelfAttention(D, H, score=score).double()
    mask = pair_mask()
    mask[3] = False
    x = tokens()[:1].double()
    moves = jacobian(lambda t: attn(t, mask=mask), x)[0, :, :, 0].abs().amax((1, 3))
    weighs = (attn(x, mask=mask, return_weights=True)[1] > 0).any(1)[0]  # relu: not every key
    reach = mask & weighs
    own_query = torch.eye(N, dtype=torch.bool) & reach.any(-1, keepdim=True)
    assert_close(moves > 0, reach | own_query)
    assert score == "relu" or torch.equal(weighs, mask)


def test_key_mask_true_means_may_be_attended_to() -> None:
    attn, x = MultiHeadSelfAttention(D, H), tokens()
    keep = (torch.arange(N) < 3).expand(B, N)
    other = x.clone()
    other[:, 3:] = 100.0
    assert_close(attn(x, key_mask=keep)[:, :3], attn(x[:, :3]))
    assert_close(attn(x, key_mask=keep)[:, :3], attn(other, key_mask=keep)[:, :3], rtol=0, atol=0)
    assert (attn(x, key_mask=~keep)[:, :3] - attn(other, key_mask=~keep)[:, :3]).abs().max() > 0.1


@pytest.mark.parametrize("kind", ["key_mask", "mask", "bias"])
def test_a_sample_does_not_depend_on_its_batch_mates(kind: str) -> None:
    attn, x = MultiHeadSelfAttention(D, H), tokens()
    given = {
        "key_mask": key_mask(),
        "mask": torch.rand(B, N, N) > 0.4,
        "bias": torch.randn(B, N, N),
    }[kind]
    alone = [attn(x[i : i + 1], **{kind: given[i : i + 1]}) for i in range(B)]
    assert_close(attn(x, **{kind: given}), torch.cat(alone))


def test_a_mask_of_each_head_reaches_its_head() -> None:
    attn, x = MultiHeadSelfAttention(D, H), tokens()
    mask = torch.rand(B, H, N, N) > 0.4
    _, w = attn(x, mask=mask, return_weights=True)
    assert_close(w > 0, mask)


def test_both_masks_must_allow() -> None:
    attn, x = MultiHeadSelfAttention(D, H), tokens()
    mask, keep = pair_mask(), key_mask()
    together = attn(x, mask=mask & keep[:, None, :])
    assert_close(attn(x, mask=mask, key_mask=keep), together, rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["key_mask", "bias"])
def test_a_padded_sample_trains_with_finite_gradients(kind: str) -> None:
    block, x = EncoderBlock(D, H), tokens().requires_grad_()
    keep = key_mask()
    keep[1] = False
    fill = torch.zeros(B, 1, 1, N).masked_fill(~keep[:, None, None], -math.inf)
    y = block(x, **({"key_mask": keep} if kind == "key_mask" else {"bias": fill}))
    grads = torch.autograd.grad(y.square().sum(), [x, *block.parameters()])
    assert y.isfinite().all()
    assert all(g.isfinite().all() for g in grads)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_every_dtype_is_near_float64(dtype: torch.dtype) -> None:
    rtol, atol = TOLERANCE[dtype]
    attn, x, keep = MultiHeadSelfAttention(D, H, qk_norm=True), tokens(), key_mask()
    x = x.to(dtype)
    attn = attn.to(dtype)
    y, w = attn(x, key_mask=keep, return_weights=True)
    grad = torch.autograd.grad(y.square().sum(), attn.proj.weight)[0]
    assert y.dtype == w.dtype == grad.dtype == dtype
    exact = attn.double()
    y_exact, w_exact = exact(x.double(), key_mask=keep, return_weights=True)
    grad_exact = torch.autograd.grad(y_exact.square().sum(), exact.proj.weight)[0]
    assert_close(y.double(), y_exact, rtol=rtol, atol=atol)
    assert_close(w.double(), w_exact, rtol=rtol, atol=atol)
    assert_close(grad.double(), grad_exact, rtol=rtol, atol=atol * 5)


@pytest.mark.parametrize(("dim", "heads", "near"), [(96, 5, "4 or 6"), (15, 7, "5 or 3")])
def test_heads_that_do_not_divide_the_width_name_both_and_suggest(
    dim: int, heads: int, near: str
) -> None:
    with pytest.raises(UserError) as e:
        MultiHeadSelfAttention(dim, heads)
    assert str(e.value).startswith(f"dim {dim} is not divisible by num_heads {heads}; try")
    assert set(near.split(" or ")) == set(str(e.value).rsplit("num_heads ", 1)[1].split(" or "))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"key_mask": torch.ones(B, N)}, r"key_mask has dtype torch.float32 .*True = may be"),
        ({"key_mask": torch.ones(N, dtype=torch.bool)}, r"key_mask has .*shape \(7,\)"),
        ({"mask": torch.ones(N, N)}, "mask has dtype torch.float32"),
        ({"mask": torch.ones(N, N + 1, dtype=torch.bool)}, r"mask has shape \(7, 8\)"),
        ({"bias": torch.ones(N, N, dtype=torch.bool)}, "bias has dtype torch.bool"),
    ],
)
def test_wrong_masks_are_refused_by_name(given: dict[str, Tensor], message: str) -> None:
    with pytest.raises(UserError, match=message):
        MultiHeadSelfAttention(D, H)(tokens(), **given)


def test_tokens_of_another_width_and_unknown_projections_are_refused() -> None:
    with pytest.raises(UserError, match="tokens have width 14, but this layer has dim 15"):
        MultiHeadSelfAttention(D, H)(torch.randn(B, N, 14))
    with pytest.raises(
        UserError, match="projection='half' is not known; choose one of full, per_head"
    ):
        MultiHeadSelfAttention(D, H, projection="half")  # type: ignore[arg-type]


def test_patch_embedding_equals_a_convolution_with_its_weights() -> None:
    embed = PatchEmbed((6, 15), (2, 5), 7, 11)
    conv = nn.Conv2d(7, 11, (2, 5), stride=(2, 5))
    with torch.no_grad():
        conv.weight.copy_(embed.proj.weight.view(11, 7, 2, 5))
        conv.bias.copy_(embed.proj.bias)
    x = torch.randn(B, 7, 6, 15)
    assert_close(embed(x), conv(x).flatten(2).transpose(1, 2))
    with pytest.raises(UserError, match=r"\(7, 15, 6\).*takes \(7, 6, 15\)"):
        embed(x.transpose(2, 3))


def test_positions_are_added_and_only_the_learned_ones_train() -> None:
    x = torch.zeros(B, 6, 8)
    row_one = torch.tensor([0.841471, 0.540302, 0.0099998, 0.99995])  # of 1 and of 1/100
    learned, fixed = PositionEmbed("learn", (2, 3), 8), PositionEmbed("sincos2d", (2, 3), 8)
    assert_close(learned(x)[1], learned.pos_embed[0])
    assert_close(fixed(x)[0, 4, :4], row_one)
    assert_close(PositionEmbed("none", (2, 3), 8)(x), x)
    assert [len(list(m.parameters())) for m in (learned, fixed)] == [1, 0]
    with pytest.raises(UserError, match="pos_embed='rope' is not known; choose one of learn, sinc"):
        PositionEmbed("rope", (2, 3), 8)  # type: ignore[arg-type]
