"""One label for every pixel: the attention encoder with a linear head on each token."""

from typing import Any

from timm.layers import to_2tuple, trunc_normal_
from torch import Tensor, nn

from vision_attn.models.vit import VisionTransformer
from vision_attn.ops.checks import check_whole
from vision_attn.ops.tokens import patches_to_image

__all__ = ["DenseClassifier"]


class DenseClassifier(nn.Module):
    """Every pixel gets a class: (B, C, h, w) -> (B, classes, h, w).

    The encoder is `VisionTransformer`'s. Each token of p x q pixels answers for all of its pixels,
    so the head is one matrix, D -> classes*p*q. Without positions, whole patches that change places
    take their answers along, and nothing else changes.

    Args:
        img_size: pixels, one number or (height, width).
        patch_size: pixels of a token's side, one number or a pair; 1 makes every pixel a token.
        in_chans: channels C.
        num_classes: labels that a pixel may have, background among them.
        embed_dim, depth, num_heads, mlp_ratio: see `VisionTransformer`.
        encoder: further arguments of `VisionTransformer`, such as `pos_embed`; unknown ones are
            refused there.

    Raises:
        UserError: (a ValueError) no class, and what `VisionTransformer` refuses.
    """

    def __init__(
        self,
        img_size: int | tuple[int, int] = 24,
        patch_size: int | tuple[int, int] = 2,
        in_chans: int = 1,
        num_classes: int = 11,
        embed_dim: int = 64,
        depth: int = 4,
        num_heads: int = 4,
        mlp_ratio: float = 2.0,
        **encoder: Any,
    ) -> None:
        super().__init__()
        check_whole(num_classes=num_classes)
        self.img_size, self.patch_size = to_2tuple(img_size), to_2tuple(patch_size)
        self.num_classes = num_classes
        self.encoder = VisionTransformer(
            self.img_size,
            self.patch_size,
            in_chans,
            num_classes=0,
            global_pool="avg",
            embed_dim=embed_dim,
            depth=depth,
            num_heads=num_heads,
            mlp_ratio=mlp_ratio,
            **encoder,
        )
        self.head = nn.Linear(embed_dim, num_classes * self.patch_size[0] * self.patch_size[1])
        trunc_normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    def no_weight_decay(self) -> set[str]:
        """Names of parameters, beside norms and biases, that weight decay must leave alone."""
        return {f"encoder.{name}" for name in self.encoder.no_weight_decay()}

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, classes, h, w)."""
        tokens = self.head(self.encoder.forward_features(x))
        return patches_to_image(tokens, self.patch_size, self.img_size)
