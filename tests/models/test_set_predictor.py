"""Set prediction: queries are a set, and blocks are their formulas."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.models.detr import SetPredictor

TINY: dict[str, Any] = {"embed_dim": 12, "depth": 2, "dec_depth": 3, "num_heads": 3}


def model(**more: Any) -> SetPredictor:
    torch.manual_seed(0)
    given = {"img_size": (6, 15), "patch_size": (2, 3), "in_chans": 2, "num_classes": 7, **TINY}
    return SetPredictor(**{**given, "num_queries": 5, **more}).double()


def test_the_queries_are_a_set() -> None:
    net = model()
    x = torch.randn(3, 2, 6, 15, dtype=torch.float64)
    logits, boxes = net.decode(net.encode(x))
    assert_close((logits[-1], boxes[-1]), net(x))
    order = torch.tensor([2, 4, 0, 3, 1])
    with torch.no_grad():
        net.queries.copy_(net.queries[order])
    moved = net.decode(net.encode(x))
    assert_close(moved, (logits[:, :, order], boxes[:, :, order]))
    assert (logits[:, :, 0] - logits[:, :, 1]).abs().min() > 0  # and tell queries apart


def test_one_query_and_block_against_the_formulas() -> None:
    """q = t + E, k = m + P, v = m with t = 0, written out for one head, memory given."""
    net = model(depth=0, dec_depth=1, num_heads=1, num_queries=1)
    memory = torch.randn(2, 15, 12, dtype=torch.float64)
    block, e = net.decoder[0], net.queries

    def linear(layer: Any, x: Tensor) -> Tensor:
        return x @ layer.weight.T + layer.bias

    t = torch.zeros(2, 1, 12, dtype=torch.float64)
    y = block.norm1(t)
    # one query attends to itself alone, whatever E is: its value is v = t, without E
    t = t + linear(block.attn.proj, linear(block.attn.v, y))
    q = linear(block.cross.q, block.norm2(t) + e)
    k, v = linear(block.cross.k, memory + net.pos), linear(block.cross.v, memory)
    w = (q @ k.mT / math.sqrt(12)).softmax(-1)
    t = t + linear(block.cross.proj, w @ v)
    t = t + block.mlp(block.norm3(t))
    logits, boxes = net.decode(memory)
    assert_close(logits[0], net.class_head(net.norm(t)))
    assert_close(boxes[0], net.box_head(net.norm(t)).sigmoid())


def test_encoder_block_against_the_formulas() -> None:
    net = model(num_heads=1)
    block = net.encoder[0]
    x = torch.randn(2, 15, 12, dtype=torch.float64)
    y, a = block.norm1(x), block.attn
    q, k = ((y + net.pos) @ m.weight.T + m.bias for m in (a.q, a.k))
    v = y @ a.v.weight.T + a.v.bias
    x1 = x + (q @ k.mT / math.sqrt(12)).softmax(-1) @ v @ a.proj.weight.T + a.proj.bias
    assert_close(block(x, net.pos), x1 + block.mlp(block.norm2(x1)))


def test_positions_enter_every_layer() -> None:
    """Without positions the memory is a set, so the answers do not depend on where patches lie."""
    net = model()
    assert net.positions.pos_embed is not None
    torch.nn.init.zeros_(net.positions.pos_embed)
    x = torch.randn(1, 2, 6, 15, dtype=torch.float64)
    flipped = x.unflatten(3, (5, 3)).flip(3).flatten(3)
    assert (net(x)[1] - net(flipped)[1]).abs().max() > 1e-6
    net.pos.zero_()
    assert_close(net(x), net(flipped))


def test_blocks_do_not_look_at_masked_tokens() -> None:
    net = model()
    memory = torch.randn(2, 15, 12, dtype=torch.float64)
    keep = torch.ones(2, 15, dtype=torch.bool)
    keep[0, 4:9] = False
    other = memory.clone()
    other[0, 4:9] += 3
    t = torch.randn(2, 5, 12, dtype=torch.float64)
    see = [net.decoder[0](t, m, net.queries, net.pos, keep) for m in (memory, other)]
    assert_close(see[0], see[1])
    see = [net.encoder[0](m, net.pos, keep)[keep] for m in (memory, other)]
    assert_close(see[0], see[1])


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"num_queries": 0}, "num_queries is 0"),
        ({"dec_depth": 0}, "dec_depth is 0"),
        ({"embed_dim": 14, "num_heads": 7}, "dim 14 .* 4"),
    ],
)
def test_mistakes(more: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError, match=word):
        model(**more)
