"""What a block may have in place of attention and layer norm: a convolution, batch norm.

With these the parts of an attention classifier are taken out one at a time (Yu et al. 2022, who
call what mixes tokens the mixer).
"""

from collections.abc import Callable, Sequence
from typing import Any

from timm.layers import to_2tuple
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.layers.attention import LocalitySelfAttention, MultiHeadSelfAttention
from vision_attn.layers.base import check_tokens
from vision_attn.ops.names import plain_names
from vision_attn.ops.tokens import image_to_pixels, pixels_to_image

__all__ = ["MIXERS", "NORMS", "DepthwiseConv", "Mixer", "TokenBatchNorm", "attention_of_blocks",
           "check_without_attention"]  # fmt: skip

Mixer = Callable[..., nn.Module]
"""Makes what mixes the tokens of a block, of the width, the heads and options."""


class DepthwiseConv(nn.Module):
    """A k x k convolution of each channel over the grid of tokens: (B, h*w, D) -> (B, h*w, D).

    Zeros stand outside the grid. Tokens mix with their neighbours by fixed weights, channels not at
    all; the MLP of a block mixes these.

    Args:
        dim: width D of a token.
        num_heads: not used; a block gives it to whatever mixes its tokens.
        kernel_size: k, odd, one number or (rows, columns).
        proj_drop: dropout on the output.
        norm_layer: not used, as there is nothing inside to normalise.

    Raises:
        UserError: (a ValueError) an even kernel, tokens that do not fill the grid.
    """

    on_grid = True

    @plain_names
    def __init__(
        self,
        dim: int,
        num_heads: int = 1,
        *,
        kernel_size: int | tuple[int, int] = 3,
        proj_drop: float = 0.0,
        norm_layer: Any = None,
    ) -> None:
        super().__init__()
        h, w = to_2tuple(kernel_size)
        if h % 2 == 0 or w % 2 == 0 or min(h, w) < 1:
            raise UserError(f"kernel_size is {kernel_size}; wanted odd numbers, such as 3")
        self.conv = nn.Conv2d(dim, dim, (h, w), padding=(h // 2, w // 2), groups=dim)
        self.proj_drop = nn.Dropout(proj_drop)

    @plain_names
    def forward(self, x: Tensor, grid_size: tuple[int, int]) -> Tensor:
        """(B, h*w, D) -> (B, h*w, D), grid_size (h, w)."""
        check_tokens(x, self.conv.in_channels)
        return self.proj_drop(image_to_pixels(self.conv(pixels_to_image(x, grid_size))))


class TokenBatchNorm(nn.BatchNorm1d):
    """Batch norm of tokens, a channel over all tokens of all samples: (..., D) -> (..., D).

    In eval mode its statistics are fixed numbers, so a token is normalised by itself alone.
    """

    def forward(self, input: Tensor) -> Tensor:
        """(..., D) -> (..., D)."""
        return super().forward(input.reshape(-1, input.shape[-1])).reshape(input.shape)


MIXERS: dict[str, Mixer | None] = {
    "attention": MultiHeadSelfAttention,
    "conv": DepthwiseConv,
    "none": None,
}
NORMS = {"layer": nn.LayerNorm, "batch": TokenBatchNorm}


def attention_of_blocks(
    attn_layer: Mixer | Sequence[Mixer] | None, lsa: bool, depth: int
) -> Sequence[Mixer | None]:
    """What makes the attention of each of `depth` blocks, from one layer or a list.

    Raises:
        UserError: a list of another length, `lsa` beside a layer.
    """
    if lsa and attn_layer is not None:
        raise UserError("lsa=True is an attention of its own; with attn_layer wanted lsa=False")
    if attn_layer is None:
        return [LocalitySelfAttention if lsa else MultiHeadSelfAttention] * depth
    if callable(attn_layer):
        return [attn_layer] * depth
    if len(attn_layer) != depth or not all(map(callable, attn_layer)):
        raise UserError(f"attn_layer is {attn_layer!r}; wanted one layer, or {depth} in a list")
    return attn_layer


def check_without_attention(mixer: str, **of_attention: Any) -> None:
    """A UserError for a value of what only attention has; `fused` says nothing by itself."""
    for name, value in of_attention.items():
        if value and name != "fused":
            raise UserError(f"{name}={value!r} belongs to attention, but mixer={mixer!r} has none")
