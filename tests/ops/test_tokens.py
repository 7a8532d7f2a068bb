"""Images to tokens and exactly back, in an order written out by hand."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.ops.tokens import (
    check_patch_size,
    image_to_patches,
    image_to_pixels,
    patches_to_image,
    pixels_to_image,
)

# Two channels of 2 x 4 pixels: tens are the channel, units count row by row.
IMAGE = torch.tensor([[[0, 1, 2, 3], [4, 5, 6, 7]], [[10, 11, 12, 13], [14, 15, 16, 17]]])[None]


def test_pixels_come_row_by_row() -> None:
    want = [[0, 10], [1, 11], [2, 12], [3, 13], [4, 14], [5, 15], [6, 16], [7, 17]]
    assert_close(image_to_pixels(IMAGE), torch.tensor([want]))


def test_patches_come_row_by_row_with_channels_slowest_inside() -> None:
    square = [[0, 1, 4, 5, 10, 11, 14, 15], [2, 3, 6, 7, 12, 13, 16, 17]]
    assert_close(image_to_patches(IMAGE, (2, 2)), torch.tensor([square]))
    wide = [[0, 1, 10, 11], [2, 3, 12, 13], [4, 5, 14, 15], [6, 7, 16, 17]]
    assert_close(image_to_patches(IMAGE, (1, 2)), torch.tensor([wide]))
    tall = [[0, 4, 10, 14], [1, 5, 11, 15], [2, 6, 12, 16], [3, 7, 13, 17]]
    assert_close(image_to_patches(IMAGE, (2, 1)), torch.tensor([tall]))


@pytest.mark.parametrize("patch", [(1, 1), (2, 5), (3, 7), (6, 35), (1, 5)])
def test_there_and_back_changes_nothing(patch: tuple[int, int]) -> None:
    x = torch.arange(2 * 11 * 6 * 35).view(2, 11, 6, 35)
    tokens = image_to_patches(x, patch)
    assert tokens.shape == (2, 6 * 35 // (patch[0] * patch[1]), 11 * patch[0] * patch[1])
    assert_close(patches_to_image(tokens, patch, (6, 35)), x)
    assert_close(image_to_patches(patches_to_image(tokens, patch, (6, 35)), patch), tokens)
    assert_close(pixels_to_image(image_to_pixels(x), (6, 35)), x)


def test_patches_of_one_pixel_are_the_pixels() -> None:
    x = torch.randn(2, 3, 5, 7)
    assert_close(image_to_patches(x, (1, 1)), image_to_pixels(x))


def test_a_patch_convolution_is_one_matrix_on_patch_tokens() -> None:
    conv = nn.Conv2d(3, 11, (2, 5), stride=(2, 5))
    x = torch.randn(2, 3, 6, 35)
    tokens = image_to_patches(x, (2, 5)) @ conv.weight.flatten(1).T + conv.bias
    assert_close(tokens, conv(x).flatten(2).transpose(1, 2))
    assert_close(pixels_to_image(tokens, (3, 7)), conv(x))


def test_grid_is_rows_by_columns() -> None:
    assert check_patch_size((6, 35), (2, 5)) == (3, 7)


@pytest.mark.parametrize(
    ("img", "patch", "message"),
    [
        ((32, 28), (6, 4), "patch_size 6 does not divide the image height 32; try 4 or 8"),
        ((32, 28), (4, 8), "patch_size 8 does not divide the image width 28; try 4 or 7"),
        ((7, 7), (0, 1), "patch_size 0 does not divide the image height 7; try 1 or 7"),
        ((3, 5), (3, 99), "patch_size 99 does not divide the image width 5; try 1 or 5"),
    ],
)
def test_a_patch_that_does_not_divide_names_both_and_suggests(
    img: tuple[int, int], patch: tuple[int, int], message: str
) -> None:
    with pytest.raises(UserError) as e:
        check_patch_size(img, patch)
    assert str(e.value) == message
    with pytest.raises(UserError):
        image_to_patches(torch.zeros(1, 1, *img), patch)


def test_tokens_that_do_not_fill_the_image_are_refused_with_the_numbers() -> None:
    with pytest.raises(UserError, match="11 tokens do not fill an image of 2 x 5 = 10 pixels"):
        pixels_to_image(torch.zeros(1, 11, 3), (2, 5))
    with pytest.raises(UserError, match=r"\(1, 7, 12\) do not fill 3 x 2 patches of 2 x 3 pixels"):
        patches_to_image(torch.zeros(1, 7, 12), (2, 3), (6, 6))
    with pytest.raises(UserError, match=r"\(1, 6, 13\) do not fill"):
        patches_to_image(torch.zeros(1, 6, 13), (2, 3), (6, 6))
