"""torch.export and ONNX with a dynamic batch: every public module, run at another batch size."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import vision_attn
from vision_attn import (
    AttentionConv2d,
    DenseClassifier,
    EncoderBlock,
    LocalitySelfAttention,
    MultiHeadAttention,
    MultiHeadSelfAttention,
    NeighborhoodAttention,
    SelfAttention,
    SelfAttention2d,
    SetPredictor,
    SmallCNN,
    VisionTransformer,
    WindowAttention,
)
from vision_attn.models.conv_init_vit import ConvInitVisionTransformer
from vision_attn.models.linear import LinearClassifier
from vision_attn.models.local_vit import LocalVisionTransformer

GRID = (5, 7)
VIT: dict[str, Any] = {"embed_dim": 12, "depth": 1, "num_heads": 3}


class Local(nn.Module):
    """A layer on a grid as a module of one tensor."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, GRID)


class Masked(nn.Module):
    """A layer under a key mask as a module of two tensors; its weights too."""

    def __init__(self, layer: nn.Module, **options: Any) -> None:
        super().__init__()
        self.layer, self.options = layer, options

    def forward(self, x: Tensor, keep: Tensor) -> Any:
        return self.layer(x, key_mask=keep, **self.options)


class Cross(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, other: Tensor, keep: Tensor) -> Tensor:
        return self.layer(x, other, other, key_mask=keep)


def tokens(n: int = 35) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda b: (torch.randn(b, n, 12),)


def masked(b: int) -> tuple[Tensor, ...]:
    keep = torch.rand(b, 6) < 0.6
    keep[0] = False
    return torch.randn(b, 6, 12), keep


def cross(b: int) -> tuple[Tensor, ...]:
    other, keep = masked(b)
    return torch.randn(b, 4, 12), other.masked_fill(~keep[..., None], math.nan), keep


def images(chans: int, h: int, w: int) -> Callable[[int], tuple[Tensor, ...]]:
    return lambda b: (torch.randn(b, chans, h, w),)


Case = tuple[Callable[[], nn.Module], Callable[[int], tuple[Tensor, ...]]]
CASES: dict[str, Case] = {
    "SelfAttention": (lambda: SelfAttention(12, 5), tokens()),
    "MultiHeadSelfAttention": (
        lambda: Masked(MultiHeadSelfAttention(12, 3, num_registers=1), return_weights=True),
        masked,
    ),
    "LocalitySelfAttention": (lambda: Masked(LocalitySelfAttention(12, 3)), masked),
    "MultiHeadAttention": (lambda: Cross(MultiHeadAttention(12, 3)), cross),
    "EncoderBlock": (lambda: Masked(EncoderBlock(12, 3), causal=True), masked),
    "SelfAttention2d": (
        lambda: SelfAttention2d(12, "multihead", num_heads=3, init_values=0.7, pool=True),
        images(12, 5, 7),
    ),
    "WindowAttention": (
        lambda: Local(WindowAttention(12, 3, window_size=(3, 2), shift_size=(1, 1))), tokens(),
    ),
    "NeighborhoodAttention": (
        lambda: Local(NeighborhoodAttention(12, 3, kernel_size=3, rel_bias=True)), tokens(),
    ),
    "AttentionConv2d": (lambda: AttentionConv2d(2, 3, 3, stride=2, padding=1), images(2, 5, 7)),
    "VisionTransformer": (
        lambda: VisionTransformer((6, 10), 2, 2, 5, "token", pos_embed="rel_bias", **VIT),
        images(2, 6, 10),
    ),
    "LocalVisionTransformer": (
        lambda: LocalVisionTransformer((6, 10), 1, 2, 5, pos_embed="rel_bias", **VIT),
        images(2, 6, 10),
    ),
    "ConvInitVisionTransformer": (
        lambda: ConvInitVisionTransformer((6, 10), 2, 2, 5, **VIT), images(2, 6, 10),
    ),
    "SmallCNN": (lambda: SmallCNN((6, 10), 2, 5, widths=(3, 5)), images(2, 6, 10)),
    "LinearClassifier": (lambda: LinearClassifier((3, 5), 2, 7), images(2, 3, 5)),
    "DenseClassifier": (lambda: DenseClassifier((6, 10), 2, 2, 5, **VIT), images(2, 6, 10)),
    "SetPredictor": (lambda: SetPredictor((6, 10), 2, 2, 5, dec_depth=1, **VIT), images(2, 6, 10)),
}  # fmt: skip


def built(name: str) -> tuple[nn.Module, Callable[[int], tuple[Tensor, ...]]]:
    torch.manual_seed(0)
    build, draw = CASES[name]
    module = build().eval()
    for p in module.parameters():
        nn.init.normal_(p, std=0.3)
    return module, draw


def listed(out: Any) -> list[Tensor]:
    return list(out) if isinstance(out, tuple) else [out]


def test_every_public_module_is_exported_here() -> None:
    public = {n for n in vision_attn.__all__ if isinstance(getattr(vision_attn, n), type)}
    assert {n for n in public if issubclass(getattr(vision_attn, n), nn.Module)} == CASES.keys()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore")  # the exporters' own
def test_case_61_62_exported_and_run_at_other_batch_sizes(name: str) -> None:
    module, draw = built(name)
    given = draw(2)
    shapes = tuple({0: torch.export.Dim("batch")} for _ in given)
    program = torch.export.export(module, given, dynamic_shapes=shapes)
    converted = torch.onnx.export(program, verbose=False)
    assert converted is not None
    session = onnxruntime.InferenceSession(converted.model_proto.SerializeToString())
    names = [i.name for i in session.get_inputs()]
    for b in (5, 1):
        given = draw(b)
        want = listed(module(*given))
        assert all(t.isfinite().all() for t in want)
        assert_close(listed(program.module()(*given)), want)
        fed = dict(zip(names, (np.asarray(t) for t in given), strict=True))
        got = [torch.from_numpy(t) for t in session.run(None, fed)]
        assert_close(got, want, rtol=1e-4, atol=1e-5)
