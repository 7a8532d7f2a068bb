"""Modules over `ops`: attention, embeddings, blocks."""

from vision_attn.layers.attention import MultiHeadSelfAttention, SelfAttention
from vision_attn.layers.block import EncoderBlock
from vision_attn.layers.embed import PatchEmbed, PositionEmbed

__all__ = ["EncoderBlock", "MultiHeadSelfAttention", "PatchEmbed", "PositionEmbed", "SelfAttention"]
