"""The model decides how many outputs there are: DETR (Carion et al. 2020)."""

import torch
from timm.layers import Mlp, to_2tuple
from torch import Tensor, nn
from typing_extensions import Unpack

from vision_attn.layers.base import AttentionOptions
from vision_attn.layers.cross import MultiHeadAttention
from vision_attn.layers.embed import PatchEmbed, PositionEmbed
from vision_attn.layers.state import GridTables
from vision_attn.models.vit import check_sizes
from vision_attn.ops.checks import check_whole
from vision_attn.ops.positions import sincos_2d

__all__ = ["MemoryBlock", "QueryBlock", "SetPredictor"]

TEMPERATURE = 20.0
"""Of the sine-cosine positions; the usual 10,000 is for long axes and would leave most channels
alike on few patches."""


class MemoryBlock(nn.Module):
    """Encoder block of DETR, pre-norm: (B, N, D) -> (B, N, D).

    Positions are added to queries and keys, never to values: `q = k = x + P`, `v = x`.
    """

    def __init__(
        self, dim: int, num_heads: int, mlp_ratio: float = 4.0, **attn: Unpack[AttentionOptions]
    ) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = MultiHeadAttention(dim, num_heads, **attn)
        self.mlp = Mlp(dim, int(dim * mlp_ratio))

    def forward(self, x: Tensor, pos: Tensor, key_mask: Tensor | None = None) -> Tensor:
        """(B, N, D), positions (N, D), keys that may be attended to (B, N) -> (B, N, D)."""
        y = self.norm1(x)
        x = x + self.attn(y, y, y, query_pos=pos, key_pos=pos, key_mask=key_mask)
        return x + self.mlp(self.norm2(x))


class QueryBlock(nn.Module):
    """Decoder block of DETR, pre-norm: queries (B, Nq, D) look at each other, then at the memory.

    Self-attention has `q = k = t + E`, `v = t`; cross-attention `q = t + E`, `k = m + P`, `v = m`.
    """

    def __init__(
        self, dim: int, num_heads: int, mlp_ratio: float = 4.0, **attn: Unpack[AttentionOptions]
    ) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(dim) for _ in range(3))
        self.attn = MultiHeadAttention(dim, num_heads, **attn)
        self.cross = MultiHeadAttention(dim, num_heads, **attn)
        self.mlp = Mlp(dim, int(dim * mlp_ratio))

    def forward(
        self,
        t: Tensor,
        memory: Tensor,
        query_pos: Tensor,
        memory_pos: Tensor,
        key_mask: Tensor | None = None,
    ) -> Tensor:
        """(B, Nq, D), memory (B, N, D), E (Nq, D), P (N, D), (B, N) -> (B, Nq, D)."""
        y = self.norm1(t)
        t = t + self.attn(y, y, y, query_pos=query_pos, key_pos=query_pos)
        t = t + self.cross(
            self.norm2(t), memory, memory,
            query_pos=query_pos, key_pos=memory_pos, key_mask=key_mask,
        )  # fmt: skip
        return t + self.mlp(self.norm3(t))


class SetPredictor(GridTables):
    """An image to a set of objects: (B, C, h, w) -> classes (B, Nq, classes+1), boxes (B, Nq, 4).

    Each of the learned queries E answers a class, the last of which is 'nothing', and a box: centre
    x, centre y, width and height as shares of the image, 0 to 1. So the number of objects is the
    number of queries that do not answer 'nothing'. The queries are a set: in another order they
    give the same answers in that order.

    Args:
        img_size: pixels, one number or (height, width).
        patch_size: pixels of a token's side, one number or a pair.
        in_chans: channels C.
        num_classes: classes of things, 'nothing' apart.
        num_queries: the most objects that can be found.
        embed_dim: width D; divisible by 4 (2-D sine-cosine positions) and by `num_heads`.
        depth, dec_depth: encoder and decoder blocks.
        num_heads: heads of every attention.
        mlp_ratio: hidden width of an MLP over D.
        attn: see `AttentionOptions`; `qkv_bias` is True here.

    Raises:
        UserError: (a ValueError) sizes that do not divide, no query, no decoder block.
    """

    pos: Tensor

    def __init__(
        self,
        img_size: int | tuple[int, int] = 24,
        patch_size: int | tuple[int, int] = 2,
        in_chans: int = 1,
        num_classes: int = 10,
        num_queries: int = 8,
        embed_dim: int = 64,
        depth: int = 3,
        dec_depth: int = 3,
        num_heads: int = 4,
        mlp_ratio: float = 2.0,
        **attn: Unpack[AttentionOptions],
    ) -> None:
        super().__init__()
        attn = {"qkv_bias": True, **attn}
        check_sizes(img_size, patch_size, in_chans, embed_dim, depth, num_heads, mlp_ratio)
        check_whole(num_classes=num_classes, num_queries=num_queries)
        check_whole(1, 1000, dec_depth=dec_depth)
        self.num_classes, self.num_queries = num_classes, num_queries
        self.patch_embed = PatchEmbed(
            to_2tuple(img_size), to_2tuple(patch_size), in_chans, embed_dim
        )
        grid = self.patch_embed.grid_size
        # values carry no P, and patches, unlike a CNN's padded maps, do not know where they lie
        self.positions = PositionEmbed("learn", grid, embed_dim)
        self.fixed_table("pos", sincos_2d(grid, embed_dim, temperature=TEMPERATURE))
        self.queries = nn.Parameter(torch.randn(num_queries, embed_dim))
        self.encoder = nn.ModuleList(
            MemoryBlock(embed_dim, num_heads, mlp_ratio, **attn) for _ in range(depth)
        )
        self.decoder = nn.ModuleList(
            QueryBlock(embed_dim, num_heads, mlp_ratio, **attn) for _ in range(dec_depth)
        )
        self.enc_norm, self.norm = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)
        self.class_head = nn.Linear(embed_dim, num_classes + 1)
        self.box_head = Mlp(embed_dim, embed_dim, 4, act_layer=nn.ReLU)

    def no_weight_decay(self) -> set[str]:
        """Names of parameters, beside norms and biases, that weight decay must leave alone."""
        return {"queries", "positions.pos_embed"}

    def encode(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> memory (B, N, D)."""
        x = self.positions(self.patch_embed(x))
        for block in self.encoder:
            x = block(x, self.pos)
        return self.enc_norm(x)

    def decode(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """(B, N, D) -> logits (L, B, Nq, classes+1), boxes (L, B, Nq, 4), L the decoder blocks.

        Every block answers, through the same norm and heads; the last answer is the one to use.
        """
        t = self.queries.new_zeros(memory.shape[0], *self.queries.shape)
        answers = []
        for block in self.decoder:
            t = block(t, memory, self.queries, self.pos)
            answers.append(self.norm(t))
        y = torch.stack(answers)
        return self.class_head(y), self.box_head(y).sigmoid()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, h, w) -> logits (B, Nq, classes+1), boxes (B, Nq, 4)."""
        logits, boxes = self.decode(self.encode(x))
        return logits[-1], boxes[-1]
