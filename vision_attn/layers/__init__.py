"""Modules over `ops`: attention over tokens, windows and maps; embeddings, blocks, convolution."""

from vision_attn.layers.attention import MultiHeadAttention, MultiHeadSelfAttention, SelfAttention
from vision_attn.layers.block import EncoderBlock
from vision_attn.layers.conv import AttentionConv2d
from vision_attn.layers.embed import PatchEmbed, PositionEmbed
from vision_attn.layers.neighborhood import NeighborhoodAttention
from vision_attn.layers.spatial import SelfAttention2d, add_attention
from vision_attn.layers.window import WindowAttention

__all__ = [
    "AttentionConv2d",
    "EncoderBlock",
    "MultiHeadAttention",
    "MultiHeadSelfAttention",
    "NeighborhoodAttention",
    "PatchEmbed",
    "PositionEmbed",
    "SelfAttention",
    "SelfAttention2d",
    "WindowAttention",
    "add_attention",
]
