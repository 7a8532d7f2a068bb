"""Sine-cosine positions: values by hand, a shift is a rotation, rows and columns apart."""

import math

import pytest
import torch
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.ops.positions import sincos_1d, sincos_2d


def test_one_dimension_by_hand() -> None:
    got = sincos_1d(torch.tensor([0, 1, 3]), 4)
    want = [
        [0, 1, 0, 1],
        [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)],
        [math.sin(3), math.cos(3), math.sin(0.03), math.cos(0.03)],
    ]
    assert_close(got, torch.tensor(want))


def test_rates_are_powers_of_the_temperature() -> None:
    got = sincos_1d(torch.tensor([5.0]), 6, temperature=64.0)
    angles = torch.tensor([5.0, 5 / 4, 5 / 16])
    assert_close(got, torch.stack((angles.sin(), angles.cos()), -1).flatten()[None])


@pytest.mark.parametrize("shift", [1, 7])
def test_a_shift_is_a_rotation_that_does_not_depend_on_the_position(shift: int) -> None:
    dim = 10
    rotation = torch.zeros(dim, dim)
    for i in range(0, dim, 2):
        a = shift / 10_000 ** (i / dim)
        rotation[i : i + 2, i : i + 2] = torch.tensor(
            [[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]
        )
    at = torch.arange(31)
    moved, still = sincos_1d(at + shift, dim), sincos_1d(at, dim)
    assert_close(moved, still @ rotation.T, rtol=1e-5, atol=1e-5)


def test_rows_fill_the_first_half_and_columns_the_second() -> None:
    got = sincos_2d((3, 4), 8)
    row, column = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2], [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]
    assert_close(got[:, 0], torch.tensor(row, dtype=torch.float64).sin().float())
    assert_close(got[:, 4], torch.tensor(column, dtype=torch.float64).sin().float())
    assert_close(got[:, :4], sincos_1d(torch.tensor(row), 4))
    assert_close(got[:, 4:], sincos_1d(torch.tensor(column), 4))


def test_a_transposed_grid_swaps_the_halves() -> None:
    there = sincos_2d((3, 7), 12).view(3, 7, 2, 6)
    back = sincos_2d((7, 3), 12).view(7, 3, 2, 6)
    assert_close(there, back.transpose(0, 1).flip(2))
    assert len(there.flatten(2).flatten(0, 1).unique(dim=0)) == 21


def test_values_stay_exact_far_out() -> None:
    got = sincos_1d(torch.tensor([100_003]), 2)
    assert_close(got, torch.tensor([[math.sin(100_003), math.cos(100_003)]]))


def test_widths_that_cannot_be_split_name_themselves_and_suggest() -> None:
    with pytest.raises(UserError, match=r"dim 7 is odd.*try 8"):
        sincos_1d(torch.arange(3), 7)
    with pytest.raises(UserError, match=r"dim 10 is not divisible by 4.*try 8 or 12"):
        sincos_2d((2, 3), 10)
    with pytest.raises(UserError, match=r"dim 2 is not divisible by 4.*try 4$"):
        sincos_2d((2, 3), 2)
