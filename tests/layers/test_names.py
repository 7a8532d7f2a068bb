"""Names of torch, timm and diffusers: taken where they mean the same, else refused with ours."""

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from timm.layers import Attention as TimmAttention
from timm.models.vision_transformer import Block as TimmBlock
from torch import Tensor, nn
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.layers.attention import (
    LocalitySelfAttention,
    MultiHeadSelfAttention,
    SelfAttention,
)
from vision_attn.layers.block import EncoderBlock
from vision_attn.layers.conv import AttentionConv2d
from vision_attn.layers.cross import MultiHeadAttention
from vision_attn.layers.local import NeighborhoodAttention, WindowAttention
from vision_attn.layers.mixer import DepthwiseConv
from vision_attn.layers.spatial import SelfAttention2d
from vision_attn.ops.attention import attend, attention_weights

B, N, D, H = 2, 7, 15, 3

bools = torch.rand(B, H, N, N, generator=torch.Generator().manual_seed(0)) > 0.4
bools[..., 0] = True  # timm's products give NaN where nothing is allowed
floats = torch.randn(B, H, N, N, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    "given",
    [
        {"attn_mask": bools},
        {"attn_mask": bools[0, 0]},
        {"attn_mask": bools[:, :1]},
        {"attn_mask": bools[:1, 0]},
        {"attn_mask": floats},
        {"attn_mask": floats[1, 2]},
        {"is_causal": True},
        {"attn_mask": None, "is_causal": False},
    ],
    ids=str,
)
def test_masks_by_torchs_names_mean_what_timm_means(given: dict[str, Any], fused: bool) -> None:
    torch.manual_seed(0)
    timm = TimmAttention(D, H, qkv_bias=True, qk_norm=True, norm_layer=nn.LayerNorm)
    timm.fused_attn = fused  # type: ignore[misc]
    ours = MultiHeadSelfAttention(D, H, qkv_bias=True, qk_norm=True, fused=fused)
    ours.load_state_dict(timm.state_dict())
    x = torch.randn(B, N, D)
    assert_close(ours(x, **given), timm(x, **given))
    assert_close(
        ours(x, *given.values()) if len(given) == 2 else ours(x, **given), timm(x, **given)
    )


def test_torchs_names_count_beside_ours() -> None:
    torch.manual_seed(0)
    layer, x = MultiHeadSelfAttention(D, H), torch.randn(B, N, D)
    for shape in ((N, N), (B, N, N), (B, H, N, N)):
        mask, bias = torch.rand(shape) > 0.3, torch.randn(shape)
        pairs = [t[:, None] if t.ndim == 3 else t for t in (mask, bias)]
        assert_close(layer(x, bools, mask=mask), layer(x, mask=bools & pairs[0]))
        assert_close(layer(x, floats, bias=bias), layer(x, bias=floats + pairs[1]))
        assert_close(layer(x, bools, True, bias=bias), layer(x, mask=bools, causal=True, bias=bias))
    y, w = layer(x, bools, is_causal=True, return_weights=True)
    assert_close(layer(x, bools, True), y)
    assert not w[~(bools & torch.ones(N, N, dtype=torch.bool).tril())].any()


def test_cross_attention_takes_what_torchs_layer_takes() -> None:
    torch.manual_seed(0)
    torchs = nn.MultiheadAttention(D, H, bias=True, batch_first=True)
    ours = MultiHeadAttention(D, H, qkv_bias=True)
    for name, w, b in zip(
        "qkv", torchs.in_proj_weight.chunk(3), torchs.in_proj_bias.chunk(3), strict=True
    ):
        getattr(ours, name).load_state_dict({"weight": w, "bias": b})
    ours.proj.load_state_dict(torchs.out_proj.state_dict())
    x, mask = torch.randn(B, N, D), floats[0, 0]
    assert_close(ours(x, x, x, attn_mask=mask), torchs(x, x, x, attn_mask=mask)[0])
    causal = nn.Transformer.generate_square_subsequent_mask(N)
    want, weights = torchs(x, x, x, attn_mask=causal, is_causal=True, average_attn_weights=False)
    y, w = ours(x, x, x, is_causal=True, return_weights=True)
    assert_close((y, w), (want, weights))
    with pytest.raises(
        UserError, match=r"attn_mask is bool.*forbids where it is True.*give it as mask"
    ):
        ours(x, x, x, attn_mask=bools[0, 0])
    with pytest.raises(UserError, match=r"is_causal with 5 queries and 7 keys.*give causal"):
        ours(x[:, :5], x, x, is_causal=True)


CASES: list[dict[str, Any]] = [
    {},
    {"qkv_bias": True, "qk_norm": True, "init_values": 0.3, "mlp_ratio": 3.0},
    {"qkv_bias": True, "proj_bias": False, "mlp_ratio": 1.7},
    {"norm_layer": partial(nn.LayerNorm, eps=1e-3), "qk_norm": True, "act_layer": nn.ReLU},
]


@pytest.mark.parametrize("size", [1.0, 1e-2, 1e-3])
@pytest.mark.parametrize("options", CASES, ids=str)
def test_a_timm_blocks_weights_give_its_output(options: dict[str, Any], size: float) -> None:
    torch.manual_seed(0)
    timm, ours = TimmBlock(D, H, **options).eval(), EncoderBlock(D, H, **options).eval()
    for p in timm.parameters():  # not the ones and zeros that they start at
        nn.init.normal_(p, std=0.3)
    ours.load_state_dict(timm.state_dict())
    x = size * torch.randn(B, N, D)
    for given in ({}, {"attn_mask": bools}, {"attn_mask": floats[0, 0]}, {"is_causal": True}):
        assert_close(ours(x, **given), timm(x, **given), rtol=1e-6, atol=1e-6)
    assert_close(ours(x, bools[0, 0]), timm(x, bools[0, 0]), rtol=1e-6, atol=1e-6)


def test_a_block_may_hold_timms_attention() -> None:
    block = EncoderBlock(D, H, attn_layer=TimmAttention).eval()
    x = torch.randn(B, N, D)
    again = EncoderBlock(D, H).eval()
    again.load_state_dict(block.state_dict())
    assert_close(block(x, attn_mask=bools, is_causal=False), again(x, attn_mask=bools))


tokens, maps = torch.zeros(2, 9, 12), torch.zeros(2, 12, 5, 7)
build = {
    "self": lambda **o: MultiHeadSelfAttention(**{"dim": 12, "num_heads": 3, **o}),
    "open": MultiHeadSelfAttention,
    "block": EncoderBlock,
    "full block": lambda **o: EncoderBlock(12, 3, **o),
    "cross": lambda **o: MultiHeadAttention(12, 3, **o),
    "lsa": LocalitySelfAttention,
    "single": SelfAttention,
    "window": lambda **o: WindowAttention(12, 3, **o),
    "map": SelfAttention2d,
    "conv": AttentionConv2d,
}


@pytest.mark.parametrize(
    ("which", "options", "words"),
    [
        ("open", {"embed_dim": 12, "num_heads": 3}, "no argument 'embed_dim'; use dim$"),
        ("lsa", {"d_model": 12, "nhead": 3}, "no argument 'd_model'; use dim$"),
        ("single", {"query_dim": 12}, "no argument 'query_dim'; use dim$"),
        ("map", {"in_channels": 12}, "no argument 'in_channels'; use dim$"),
        ("block", {"d_model": 12, "nhead": 3}, "no argument 'd_model'; use dim$"),
        (
            "full block",
            {"dim_feedforward": 24},
            "'dim_feedforward'; use mlp_ratio, the hidden width",
        ),
        ("full block", {"layer_norm_eps": 1e-5}, "'layer_norm_eps'; use norm_layer=partial"),
        ("full block", {"head_dim": 4}, "'head_dim'; use num_heads, as a head is"),
        (
            "conv",
            {"in_chans": 3, "out_channels": 4, "kernel_size": 3},
            "in_chans'; use in_channels",
        ),
        ("self", {"heads": 3}, "no argument 'heads'; use num_heads$"),
        ("self", {"dim_head": 4}, "'dim_head'; use num_heads, as a head is dim / num_heads wide"),
        ("self", {"dropout": 0.1}, "'dropout'; use attn_drop or proj_drop"),
        ("self", {"bias": True}, "'bias'; use qkv_bias and proj_bias"),
        ("self", {"batch_first": True}, "'batch_first'; tokens are always"),
        ("self", {"device": "cpu"}, "'device'; move the layer by .to"),
        ("self", {"add_bias_kv": True}, "'add_bias_kv'; use num_registers=1"),
        ("self", {"cross_attention_dim": 5}, "here; MultiHeadAttention has kdim and vdim"),
        ("cross", {"cross_attention_dim": 5}, "'cross_attention_dim'; use kdim and vdim"),
        ("cross", {"fused_attn": True}, "'fused_attn'; use fused"),
        ("window", {"window": 3}, "no argument 'window'; try window_size"),
        ("map", {"heads": 2}, "'heads'; use num_heads"),
    ],
)
def test_other_names_of_options_are_refused_with_ours(
    which: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        build[which](**options)


call = {
    "self": lambda **o: MultiHeadSelfAttention(12, 3)(**{"x": tokens, **o}),
    "open": lambda **o: MultiHeadSelfAttention(12, 3)(**o),
    "block": lambda **o: EncoderBlock(12, 3)(tokens, **o),
    "cross": lambda **o: MultiHeadAttention(12, 3)(tokens, tokens, tokens, **o),
    "single": lambda **o: SelfAttention(12)(tokens, **o),
    "window": lambda **o: WindowAttention(12, 3)(tokens, (3, 3), **o),
    "map": lambda **o: SelfAttention2d(12)(maps, **o),
    "attend": lambda **o: attend(maps, maps, maps, **o),
    "weights": lambda **o: attention_weights(maps, maps, **o),
}


@pytest.mark.parametrize(
    ("which", "given", "words"),
    [
        ("self", {"key_padding_mask": tokens[..., 0] > 0},
         "'key_padding_mask'; use key_mask=~key_padding_mask, True = may be attended to"),
        ("block", {"src_mask": None}, "'src_mask'; use mask=~src_mask, True = may attend"),
        ("block", {"attention_mask": None}, r"use key_mask=attention_mask\.bool\(\), \(B, N\)"),
        ("cross", {"need_weights": True}, "'need_weights'; use return_weights$"),
        ("cross", {"average_attn_weights": True}, r"use return_weights and w\.mean\(1\)"),
        ("cross", {"encoder_hidden_states": tokens}, "use key and value"),
        ("open", {"hidden_states": tokens}, "'hidden_states'; use x$"),
        ("self", {"encoder_hidden_states": tokens}, "here; MultiHeadAttention has key and value"),
        ("self", {"rope": None}, "'rope'; use rotary"),
        ("self", {"attn_bias": None}, "'attn_bias'; use bias"),
        ("single", {"attn_mask": None}, "here; MultiHeadSelfAttention has mask or"),
        ("window", {"key_mask": None}, "'key_mask' here; MultiHeadSelfAttention has key_mask"),
        ("map", {"attention_mask": None}, "here; MultiHeadSelfAttention has key_mask"),
        ("attend", {"attn_mask": None}, "'attn_mask'; use mask or, to add to the scores, bias"),
        ("attend", {"is_causal": True}, "'is_causal'; use causal"),
        ("weights", {"maks": None}, "no argument 'maks'; try mask"),
    ],
)  # fmt: skip
def test_other_names_in_a_call_are_refused_with_ours(
    which: str, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words) as e:
        call[which](**given)
    assert "\n" not in str(e.value)


def refuse(function: Any, *args: Any, words: str, **given: Any) -> None:
    with pytest.raises(UserError, match=words):
        function(*args, **given)


def test_masks_that_mean_several_things_are_refused() -> None:
    layer = MultiHeadSelfAttention(12, 3)
    x = torch.zeros(3, 9, 12)
    refuse(layer, x, torch.zeros(9, 9, 9), words=r"attn_mask has shape \(9, 9, 9\).*goes to mask")
    refuse(layer, x, torch.ones(9, 9, dtype=torch.long), words="attn_mask has dtype torch.int64")
    for beside in ({"key_mask": x[..., 0] == 0}, {"attn_mask": torch.ones(9, 9) > 0}):
        refuse(layer, x, mask=x @ x.mT, **beside, words="mask has dtype torch.float32.*use bias")
    refuse(layer, x, x, x, words="takes its tokens once, for query, key and value use MultiHeadAtt")


LAYERS = [
    lambda x: SelfAttention(12)(x),
    lambda x: MultiHeadSelfAttention(12, 3)(x),
    lambda x: LocalitySelfAttention(12, 3)(x),
    lambda x: MultiHeadAttention(12, 3)(x, x, x),
    lambda x: EncoderBlock(12, 3)(x),
    lambda x: WindowAttention(12, 3)(x, (5, 7)),
    lambda x: NeighborhoodAttention(12, 3)(x, (5, 7)),
    lambda x: DepthwiseConv(12)(x, (5, 7)),
]


@pytest.mark.parametrize("layer", LAYERS)
def test_a_map_is_refused_with_the_layer_for_maps(layer: Any) -> None:
    words = r"got a map \(2, 12, 5, 7\).*use SelfAttention2d\(12\), or x\.flatten\(2\)\.mT$"
    refuse(layer, maps, words=words)
    assert SelfAttention2d(12)(maps).shape == maps.shape
    refuse(layer, maps.movedim(1, 3), words=r"channels are last, so use x\.flatten\(1, 2\)$")


@pytest.mark.parametrize("layer", LAYERS)
def test_what_the_message_on_a_map_says_works(layer: Any) -> None:
    assert layer(maps.flatten(2).mT).shape == (2, 35, 12)
    assert layer(maps.movedim(1, 3).flatten(1, 2)).shape == (2, 35, 12)


def test_tokens_without_a_batch_are_refused_as_such() -> None:
    refuse(
        MultiHeadSelfAttention(12, 3), tokens[0], words=r"\(9, 12\) have no batch.*use x\[None\]"
    )
    refuse(
        SelfAttention2d(12),
        tokens,
        words=r"for tokens \(B, N, 12\) use MultiHeadSelfAttention\(12\)",
    )


def test_a_subclass_may_add_options_of_its_own() -> None:
    class Mine(MultiHeadSelfAttention):
        def __init__(self, dim: int, num_heads: int = 8, *, mine: int, **options: Any) -> None:
            super().__init__(dim, num_heads, **options)
            self.mine = mine

        def forward(self, x: Tensor, **given: Any) -> Any:  # type: ignore[override]
            return super().forward(F.relu(x), **given)

    layer = Mine(12, 3, mine=4, qkv_bias=True)
    assert layer.mine == 4
    assert layer(tokens, is_causal=True).shape == tokens.shape
