"""The floor: one linear map of all pixels, by hand, by name and in training."""

from typing import Any

import pytest
import timm
import torch
from torch.testing import assert_close

import vision_attn
from vision_attn.errors import UserError
from vision_attn.models.cost import cost
from vision_attn.models.linear import LinearClassifier
from vision_attn.models.registry import create_model, known_models


def test_it_is_the_matrix_times_the_pixels() -> None:
    torch.manual_seed(0)
    model, x = LinearClassifier((3, 5), 2, 7).double(), torch.randn(4, 2, 3, 5).double()
    assert_close(model(x), torch.zeros(4, 7).double(), rtol=0, atol=0)
    w, b = model.head.weight.data.normal_(), model.head.bias.data.normal_()
    want = torch.einsum("bchw,kchw->bk", x, w.view(7, 2, 3, 5)) + b
    assert_close(model(x), want)
    assert_close(model(x.contiguous(memory_format=torch.channels_last)), want)


def test_the_first_gradient_is_that_of_softmax_regression() -> None:
    torch.manual_seed(0)
    model, x = LinearClassifier((3, 5), 2, 7).double(), torch.randn(11, 2, 3, 5).double()
    y = torch.randint(7, (11,))
    torch.nn.functional.cross_entropy(model(x), y).backward()
    off = torch.full((11, 7), 1 / 7).double() - torch.nn.functional.one_hot(y, 7)
    assert_close(model.head.weight.grad, off.T @ x.flatten(1) / 11)
    assert_close(model.head.bias.grad, off.mean(0))


def test_by_name_in_the_registry_and_at_its_price() -> None:
    assert "linear" in known_models()
    assert vision_attn.LinearClassifier is LinearClassifier
    given: dict[str, Any] = {"img_size": (3, 5), "in_chans": 2, "num_classes": 7}
    model = create_model("linear", **given)
    assert isinstance(model, LinearClassifier)
    assert isinstance(timm.create_model("vision_attn_linear", **given), LinearClassifier)
    assert model.get_classifier() is model.head
    price = cost(model, 2, (3, 5))
    assert (price.params, price.flops) == (7 * 30 + 7, 2 * 7 * 30)
    with torch.device("meta"):
        assert LinearClassifier(8, 1, 3)(torch.zeros(2, 1, 8, 8)).device.type == "meta"


@pytest.mark.parametrize("shape", [(2, 5, 3), (1, 3, 5), (2, 3, 10)])
def test_images_of_another_shape_are_refused_with_both(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError) as e:
        LinearClassifier((3, 5), 2, 7)(torch.zeros(2, *shape))
    assert str(e.value) == f"images of shape {shape} (C, h, w) given, this model takes (2, 3, 5)"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"depth": 2}, "model 'linear': there is no argument 'depth'"),
        ({"pretrained": True}, "model 'linear': argument 'pretrained' names"),
        ({"in_chans": 2}, "model 'linear': in_chans comes from the data"),
    ],
)
def test_unknown_arguments_are_refused(args: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        create_model("linear", img_size=(3, 5), in_chans=2, num_classes=7, args=args)
