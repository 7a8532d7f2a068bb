"""Self-attention on images: blocks to reuse, and a comparison of attention with a CNN.

Shape letters, the same in docstrings, einops patterns and error messages:
B batch, N tokens (Nq queries, Nk keys), D width, H heads, K width of a head, C channels;
image axes `h w`, patch axes `p q`. A mask is bool and True means *may attend*.

Names are imported when first used, so that `import vision_attn` costs nothing. Importing any model
(or importing timm before this package) registers `vision_attn_*` with `timm.create_model`.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a type checker reads no strings
    from vision_attn.commands.compare import compare as compare
    from vision_attn.layers.attention import LocalitySelfAttention as LocalitySelfAttention
    from vision_attn.layers.attention import MultiHeadSelfAttention as MultiHeadSelfAttention
    from vision_attn.layers.attention import SelfAttention as SelfAttention
    from vision_attn.layers.block import EncoderBlock as EncoderBlock
    from vision_attn.layers.conv import AttentionConv2d as AttentionConv2d
    from vision_attn.layers.cross import MultiHeadAttention as MultiHeadAttention
    from vision_attn.layers.local import NeighborhoodAttention as NeighborhoodAttention
    from vision_attn.layers.local import WindowAttention as WindowAttention
    from vision_attn.layers.replace import replace_attention as replace_attention
    from vision_attn.layers.spatial import SelfAttention2d as SelfAttention2d
    from vision_attn.layers.spatial import add_attention as add_attention
    from vision_attn.models.cnn import SmallCNN as SmallCNN
    from vision_attn.models.conv_init_vit import (
        ConvInitVisionTransformer as ConvInitVisionTransformer,
    )
    from vision_attn.models.dense import DenseClassifier as DenseClassifier
    from vision_attn.models.detr import SetPredictor as SetPredictor
    from vision_attn.models.linear import LinearClassifier as LinearClassifier
    from vision_attn.models.local_vit import LocalVisionTransformer as LocalVisionTransformer
    from vision_attn.models.vit import VisionTransformer as VisionTransformer
    from vision_attn.ops.statistics import attention_statistics as attention_statistics
    from vision_attn.ops.tokens import pad_images as pad_images
    from vision_attn.report.load import load_study as load_study

__version__ = "0.1.0"

_HOME = {
    name: f"vision_attn.{module}"
    for module, names in {
        "commands.compare": "compare",
        "layers.attention": "LocalitySelfAttention MultiHeadSelfAttention SelfAttention",
        "layers.block": "EncoderBlock",
        "layers.conv": "AttentionConv2d",
        "layers.cross": "MultiHeadAttention",
        "layers.local": "NeighborhoodAttention WindowAttention",
        "layers.replace": "replace_attention",
        "layers.spatial": "SelfAttention2d add_attention",
        "models.cnn": "SmallCNN",
        "models.conv_init_vit": "ConvInitVisionTransformer",
        "models.dense": "DenseClassifier",
        "models.detr": "SetPredictor",
        "models.linear": "LinearClassifier",
        "models.local_vit": "LocalVisionTransformer",
        "models.vit": "VisionTransformer",
        "ops.statistics": "attention_statistics",
        "ops.tokens": "pad_images",
        "report.load": "load_study",
    }.items()
    for name in names.split()
}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'vision_attn' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if "timm" in sys.modules:  # its registry is there: make timm.create_model("vision_attn_vit") work
    importlib.import_module("vision_attn.models")
