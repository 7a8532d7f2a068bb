"""Images of different sizes in one batch answer as they do one by one."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.layers.block import EncoderBlock
from vision_attn.ops.positions import rotary_2d, sincos_2d
from vision_attn.ops.tokens import image_to_patches, pad_images, unpad_tokens

SIZES = [(6, 4), (2, 10), (4, 4)]  # 6, 5 and 4 tokens of 2 x 2 pixels


def images() -> list[Tensor]:
    make = torch.Generator().manual_seed(0)
    return [torch.randn(3, h, w, generator=make) for h, w in SIZES]


def test_tokens_mask_and_positions_by_hand() -> None:
    a, b = torch.arange(6.0).view(1, 2, 3), torch.arange(2.0).view(1, 2, 1) + 7
    batch = pad_images([b, a])
    assert_close(batch.tokens[..., 0], torch.tensor([[7.0, 8, 0, 0, 0, 0], [0.0, 1, 2, 3, 4, 5]]))
    assert batch.key_mask.tolist() == [[True, True] + [False] * 4, [True] * 6]
    assert batch.positions[0].tolist() == [[0, 0], [1, 0]] + [[0, 0]] * 4
    assert batch.positions[1].tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert batch.grid_sizes == [(2, 1), (2, 3)]


def test_unpad_gives_each_image_back() -> None:
    batch = pad_images(images(), (2, 2))
    for got, image in zip(unpad_tokens(batch.tokens, batch.key_mask), images(), strict=True):
        assert_close(got, image_to_patches(image[None], (2, 2))[0], rtol=0, atol=0)


@pytest.mark.parametrize("rotary", [False, True])
def test_masked_encoder_of_a_batch_equals_one_by_one(rotary: bool) -> None:
    torch.manual_seed(1)
    embed = torch.nn.Linear(12, 24).double()
    blocks = [EncoderBlock(24, 3, num_registers=1).double() for _ in range(2)]
    parameters = [p for m in (embed, *blocks) for p in m.parameters()]

    def encode(some: list[Tensor]) -> list[Tensor]:
        batch = pad_images([x.double() for x in some], (2, 2))
        x = embed(batch.tokens)
        turns = rotary_2d(batch.positions, 8) if rotary else None
        if not rotary:
            x = x + sincos_2d(batch.positions, 24)
        for block in blocks:
            x = block(x, key_mask=batch.key_mask, rotary=turns)
        return unpad_tokens(x, batch.key_mask)

    together = encode(images())
    alone = [encode([x])[0] for x in images()]
    assert [len(y) for y in together] == [6, 5, 4]
    assert_close(together, alone)
    grads = [
        torch.autograd.grad(torch.stack([y.mean(0).square().sum() for y in ys]).sum(), parameters)
        for ys in (together, alone)
    ]
    assert_close(*grads)


def test_what_cannot_be_batched_is_named() -> None:
    with pytest.raises(UserError, match="images is empty"):
        pad_images([])
    with pytest.raises(UserError, match=r"image 1 has shape \(1, 4, 4\), .* C = 3"):
        pad_images([torch.zeros(3, 4, 4), torch.zeros(1, 4, 4)])
    with pytest.raises(UserError, match=r"image 1: patch_size 2 does not divide .* height 5"):
        pad_images([torch.zeros(3, 4, 4), torch.zeros(3, 5, 4)], (2, 2))
    with pytest.raises(UserError, match=r"wanted torch.bool of shape \(2, 3\)"):
        unpad_tokens(torch.zeros(2, 3, 4), torch.ones(2, 4, dtype=torch.bool))
