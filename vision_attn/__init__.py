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
    from vision_attn.layers.attention import MultiHeadSelfAttention, SelfAttention
    from vision_attn.layers.block import EncoderBlock
    from vision_attn.models.cnn import SmallCNN
    from vision_attn.models.vit import VisionTransformer

__version__ = "0.1.0"

__all__ = [
    "EncoderBlock",
    "MultiHeadSelfAttention",
    "SelfAttention",
    "SmallCNN",
    "VisionTransformer",
]

_HOME = {
    "EncoderBlock": "vision_attn.layers.block",
    "MultiHeadSelfAttention": "vision_attn.layers.attention",
    "SelfAttention": "vision_attn.layers.attention",
    "SmallCNN": "vision_attn.models.cnn",
    "VisionTransformer": "vision_attn.models.vit",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'vision_attn' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if "timm" in sys.modules:  # its registry is there: make timm.create_model("vision_attn_vit") work
    importlib.import_module("vision_attn.models")
