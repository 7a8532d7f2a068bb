"""What type checkers see of a call: a Tensor, or a Tensor and the weights. mypy reads this file."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from typing_extensions import assert_type

from vision_attn import LocalitySelfAttention, MultiHeadAttention, MultiHeadSelfAttention
from vision_attn import SelfAttention as SingleHead

x, mask = torch.zeros(2, 7, 15), torch.ones(7, 7, dtype=torch.bool)


def test_a_call_is_typed_by_whether_it_gives_weights() -> None:
    attn, lsa, cross = (
        MultiHeadSelfAttention(15, 3),
        LocalitySelfAttention(15, 3),
        MultiHeadAttention(15, 3),
    )
    one = SingleHead(15)
    pairs: list[tuple[Any, Any]] = [
        (
            assert_type(one(x), Tensor),
            assert_type(one(x, return_weights=True), tuple[Tensor, Tensor]),
        ),
        (
            assert_type(attn(x, mask, is_causal=True), Tensor),
            assert_type(attn(x, mask=mask, return_weights=True), tuple[Tensor, Tensor]),
        ),
        (
            assert_type(lsa(x, key_mask=None, return_weights=False), Tensor),
            assert_type(lsa.forward(x, return_weights=True), tuple[Tensor, Tensor]),
        ),
        (
            assert_type(cross(x, x, x, query_pos=x), Tensor),
            assert_type(cross(x, x, x, mask=mask, return_weights=True), tuple[Tensor, Tensor]),
        ),
    ]
    flag = bool(torch.rand(()) > 0.5)  # what a checker cannot know
    assert_type(attn(x, return_weights=flag), Tensor | tuple[Tensor, Tensor])
    assert_type(one(x, return_weights=flag), Tensor | tuple[Tensor, Tensor])
    assert_type(cross(x, x, x, return_weights=flag), Tensor | tuple[Tensor, Tensor])
    for y, both in pairs:
        assert isinstance(y, Tensor)
        assert [type(t) for t in both] == [Tensor, Tensor]


def test_mistakes_are_seen_before_they_run() -> None:
    attn = MultiHeadSelfAttention(15, 3)
    with pytest.raises(ValueError, match="no argument 'maks'"):
        attn(x, maks=mask)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="no argument 'qkv_bais'"):
        MultiHeadSelfAttention(15, 3, qkv_bais=True)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        attn(x, return_weights=True).shape  # type: ignore[attr-defined]  # noqa: B018


def test_mypy_reads_this_file() -> None:
    assert (
        '"tests/layers/test_typing.py"'
        in Path(__file__).parents[2].joinpath("pyproject.toml").read_text()
    )
