"""Self-attention on images: blocks to reuse, and a fair comparison of attention with a CNN.

Shape letters, the same in docstrings, einops patterns and error messages:
B batch, N tokens (Nq queries, Nk keys), D width, H heads, K width of a head, C channels;
image axes `h w`, patch axes `p q`. A mask is bool and True means *may attend*.

Names are imported when first used, so that `import vision_attn` costs nothing. Importing any model
(or importing timm before this package) registers `vision_attn_*` with `timm.create_model`.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vision_attn.layers.attention import (
        LocalitySelfAttention,
        MultiHeadSelfAttention,
        SelfAttention,
    )
    from vision_attn.layers.block import EncoderBlock
    from vision_attn.layers.conv import AttentionConv2d
    from vision_attn.layers.cross import MultiHeadAttention
    from vision_attn.layers.local import NeighborhoodAttention, WindowAttention
    from vision_attn.layers.spatial import SelfAttention2d, add_attention
    from vision_attn.models.cnn import SmallCNN
    from vision_attn.models.conv_init_vit import ConvInitVisionTransformer
    from vision_attn.models.dense import DenseClassifier
    from vision_attn.models.detr import SetPredictor
    from vision_attn.models.linear import LinearClassifier
    from vision_attn.models.local_vit import LocalVisionTransformer
    from vision_attn.models.vit import VisionTransformer
    from vision_attn.ops.statistics import attention_statistics
    from vision_attn.ops.tokens import pad_images
    from vision_attn.report.load import load_study

__version__ = "0.1.0"

__all__ = [
    "AttentionConv2d",
    "ConvInitVisionTransformer",
    "DenseClassifier",
    "EncoderBlock",
    "LinearClassifier",
    "LocalVisionTransformer",
    "LocalitySelfAttention",
    "MultiHeadAttention",
    "MultiHeadSelfAttention",
    "NeighborhoodAttention",
    "SelfAttention",
    "SelfAttention2d",
    "SetPredictor",
    "SmallCNN",
    "VisionTransformer",
    "WindowAttention",
    "add_attention",
    "attention_statistics",
    "load_study",
    "pad_images",
]

_HOME = {
    "AttentionConv2d": "vision_attn.layers.conv",
    "ConvInitVisionTransformer": "vision_attn.models.conv_init_vit",
    "DenseClassifier": "vision_attn.models.dense",
    "EncoderBlock": "vision_attn.layers.block",
    "LinearClassifier": "vision_attn.models.linear",
    "LocalVisionTransformer": "vision_attn.models.local_vit",
    "LocalitySelfAttention": "vision_attn.layers.attention",
    "MultiHeadAttention": "vision_attn.layers.cross",
    "MultiHeadSelfAttention": "vision_attn.layers.attention",
    "NeighborhoodAttention": "vision_attn.layers.local",
    "SelfAttention": "vision_attn.layers.attention",
    "SelfAttention2d": "vision_attn.layers.spatial",
    "SetPredictor": "vision_attn.models.detr",
    "SmallCNN": "vision_attn.models.cnn",
    "VisionTransformer": "vision_attn.models.vit",
    "WindowAttention": "vision_attn.layers.local",
    "add_attention": "vision_attn.layers.spatial",
    "attention_statistics": "vision_attn.ops.statistics",
    "load_study": "vision_attn.report.load",
    "pad_images": "vision_attn.ops.tokens",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'vision_attn' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if "timm" in sys.modules:  # its registry is there: make timm.create_model("vision_attn_vit") work
    importlib.import_module("vision_attn.models")
