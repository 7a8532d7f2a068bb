"""One label for every pixel: where each answer lands, and what changes places with its patch."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.models.dense import DenseClassifier

TINY: dict[str, Any] = {"embed_dim": 12, "depth": 2, "num_heads": 3}


def model(**more: Any) -> DenseClassifier:
    torch.manual_seed(0)
    given = {"img_size": (6, 15), "patch_size": (2, 3), "in_chans": 2, "num_classes": 7, **TINY}
    made = DenseClassifier(**{**given, **more})
    for p in made.parameters():
        torch.nn.init.normal_(p, std=0.3)  # the small start would hide differences
    return made.double()


def test_each_token_answers_for_its_own_pixels() -> None:
    """Against a loop over patches and pixels, from the encoder's tokens."""
    net = model()
    x = torch.randn(3, 2, 6, 15, dtype=torch.float64)
    got = net(x)
    tokens = net.encoder.forward_features(x)
    want = torch.zeros(3, 7, 6, 15, dtype=torch.float64)
    for row in range(3):
        for col in range(5):
            answer = tokens[:, row * 5 + col] @ net.head.weight.T + net.head.bias
            for c in range(7):
                for i in range(2):
                    for j in range(3):
                        want[:, c, row * 2 + i, col * 3 + j] = answer[:, c * 6 + i * 3 + j]
    assert_close(got, want)


def swap(x: Tensor, order: Tensor, p: int, q: int) -> Tensor:
    """Patches in another order, cut and laid by hand."""
    columns = x.shape[-1] // q
    out = torch.empty_like(x)
    for to, of in enumerate(order.tolist()):
        (a, b), (c, d) = divmod(to, columns), divmod(of, columns)
        out[..., a * p : a * p + p, b * q : b * q + q] = x[
            ..., c * p : c * p + p, d * q : d * q + q
        ]
    return out


def test_patches_take_their_answers_along_unless_there_are_positions() -> None:
    x = torch.randn(2, 2, 6, 15, dtype=torch.float64)
    order = torch.randperm(15, generator=torch.Generator().manual_seed(1))
    free, placed = model(pos_embed="none"), model(pos_embed="learn")
    assert_close(free(swap(x, order, 2, 3)), swap(free(x), order, 2, 3))
    off = placed(swap(x, order, 2, 3)) - swap(placed(x), order, 2, 3)
    assert off.abs().mean() > 0.01


def test_every_pixel_may_look_at_every_pixel() -> None:
    """The Jacobian of one pixel's answer is nowhere zero; with no encoder block, only at home."""
    x = torch.randn(1, 2, 6, 15, dtype=torch.float64, requires_grad=True)
    (g,) = torch.autograd.grad(model()(x)[0, 3, 4, 7], x)
    assert (g != 0).all()
    (g,) = torch.autograd.grad(model(depth=0)(x)[0, 3, 4, 7], x)
    home = torch.zeros(6, 15, dtype=torch.bool)
    home[4:6, 6:9] = True
    assert_close((g != 0).all(1)[0], home)
    assert_close((g != 0).any(1)[0], home)


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"num_classes": 0}, "num_classes is 0"),
        ({"patch_size": 4}, "patch_size 4 .* height 6"),
        ({"num_heads": 5}, "dim 12 .* num_heads 5"),
    ],
)
def test_mistakes(more: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError, match=word):
        model(**more)


def test_no_weight_decay_names_are_parameters() -> None:
    net = model()
    names = dict(net.named_parameters())
    assert "encoder.positions.pos_embed" in net.no_weight_decay()
    assert {n for n in net.no_weight_decay() if "cls" not in n} <= names.keys()
