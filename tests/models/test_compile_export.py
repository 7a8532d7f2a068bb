"""torch.compile without graph breaks and torch.export, there and back, give the eager values."""

import io
import os
import shutil
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from vision_attn.layers.attention import MultiHeadSelfAttention
from vision_attn.layers.block import EncoderBlock
from vision_attn.layers.cross import MultiHeadAttention
from vision_attn.models.vit import VisionTransformer
from vision_attn.ops.attention import attend
from vision_attn.ops.positions import rotary_2d

B, N, D, H = 2, 6, 24, 3
COMPILER = any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++")))
HEADERS = Path(sysconfig.get_paths()["include"], "Python.h").exists()
needs_compiler = pytest.mark.skipif(
    not (COMPILER and HEADERS),
    reason="there is no C++ compiler (CXX, g++ or clang++), or no Python.h",
)
BACKENDS = ["aot_eager", pytest.param("inductor", marks=needs_compiler)]


def key_mask() -> Tensor:
    return torch.arange(N) < torch.tensor([[N], [0]])


OPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"num_registers": 2, "qk_norm": True}, {"key_mask": key_mask(), "return_weights": True}),
    ({"score": "relu"}, {"causal": True, "bias": torch.ones(N, N).tril()}),
    ({"projection": "per_head", "fused": False}, {"mask": torch.eye(N, dtype=torch.bool)}),
    ({}, {"rotary": rotary_2d((2, 3), D // H), "causal": True}),
    ({}, {"return_weights": True, "weight_heads": [1], "weight_queries": [0, -1]}),
]


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("options", "given"), OPTIONS)
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_compiled_layer_equals_eager(
    options: dict[str, Any], given: dict[str, Any], backend: str
) -> None:
    layer = MultiHeadSelfAttention(D, H, **options)
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    x = torch.randn(B, N, D, requires_grad=True)
    y, want = compiled(x, **given), layer(x, **given)
    assert_close(y, want)
    grads = []
    for out in (y, want):
        first = out[0] if isinstance(out, tuple) else out
        grads.append(torch.autograd.grad(first.square().sum(), [x, *layer.parameters()]))
    assert_close(*grads)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("ignore")
def test_compiled_cross_attention_and_other_lengths_equal_eager(backend: str) -> None:
    layer = MultiHeadAttention(D, H, kdim=10, vdim=14)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=backend)
    for b, nq, nk in ((2, 3, 5), (3, 5, 4), (4, 7, 7)):
        tokens = torch.randn(b, nq, D), torch.randn(b, nk, 10), torch.randn(b, nk, 14)
        positions = {"query_pos": torch.randn(nq, D), "key_pos": torch.randn(nk, 10)}
        assert_close(compiled(*tokens, **positions), layer(*tokens, **positions))
        assert_close(compiled(*tokens, causal=True), layer(*tokens, causal=True))


@pytest.mark.parametrize("kind", ["learn", "rotary"])
@pytest.mark.filterwarnings("ignore")
def test_compiled_model_equals_eager_at_other_sizes_too(kind: Any) -> None:
    model = VisionTransformer((6, 4), 2, 1, 5, embed_dim=D, depth=1, num_heads=H, pos_embed=kind,
                              dynamic_img_size=True).eval()  # fmt: skip
    # not dynamic: torch cannot trace the gradient of a bicubic resize to a size it does not know
    compiled = torch.compile(model, fullgraph=True, dynamic=False, backend="aot_eager")
    for size in ((6, 4), (4, 6)):
        x = torch.randn(B, 1, *size)
        assert_close(compiled(x), model(x))


def round_trip(program: torch.export.ExportedProgram) -> nn.Module:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file).module()


@pytest.mark.filterwarnings("ignore")
def test_exported_block_equals_eager_at_other_batches_and_lengths() -> None:
    block = EncoderBlock(D, H, num_registers=1).eval()
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens")}
    program = torch.export.export(
        block,
        (torch.randn(B, N, D),),
        {"key_mask": key_mask()},
        dynamic_shapes={"x": axes, "key_mask": axes},
    )
    again = round_trip(program)
    for b, n in ((2, 6), (3, 11)):
        x, keep = torch.randn(b, n, D), torch.rand(b, n) > 0.5
        assert_close(again(x, key_mask=keep), block(x, key_mask=keep))


@pytest.mark.parametrize("kind", ["learn", "sincos2d", "rel_bias", "rotary", "none"])
@pytest.mark.filterwarnings("ignore")
def test_exported_model_equals_eager_at_other_batches(kind: Any) -> None:
    model = VisionTransformer((6, 4), 2, 1, 5, embed_dim=D, depth=1, num_heads=H, pos_embed=kind,
                              global_pool="token").eval()  # fmt: skip
    program = torch.export.export(
        model, (torch.randn(2, 1, 6, 4),), dynamic_shapes={"x": {0: torch.export.Dim("batch")}}
    )
    x = torch.randn(5, 1, 6, 4)
    assert_close(round_trip(program)(x), model(x))


@pytest.mark.filterwarnings("ignore")
def test_exported_attend_keeps_empty_rows_at_zero() -> None:
    class Attend(nn.Module):
        def forward(self, q: Tensor, mask: Tensor) -> Tensor:
            return attend(q, q, q, mask=mask, causal=True)

    q, mask = torch.randn(1, 2, 4, 8), torch.ones(4, 4, dtype=torch.bool)
    again = round_trip(torch.export.export(Attend(), (q, mask)))
    mask[2] = False
    assert_close(again(q, mask), Attend()(q, mask))
    assert_close(again(q, mask)[:, :, 2], torch.zeros(1, 2, 8))
