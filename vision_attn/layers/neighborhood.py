"""Attention to the neighbourhood of each token (Ramachandran et al. 2019)."""

from collections.abc import Callable
from typing import Literal

from timm.layers import to_2tuple
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.layers.attention import MultiHeadSelfAttention
from vision_attn.layers.local import LocalAttention, Pair
from vision_attn.ops.attention import Score
from vision_attn.ops.neighborhood import neighborhood_attend

__all__ = ["NeighborhoodAttention"]


class NeighborhoodAttention(LocalAttention):
    """Each token attends to a k x k neighbourhood of it: (B, N, D) -> (B, N, D).

    At the border keys outside the image are masked, so a corner has fewer keys. NATTEN (Hassani et
    al. 2023) instead moves the neighbourhood inside: its border tokens differ from these. The same
    as `MultiHeadSelfAttention` under `ops.neighborhood.neighborhood_mask`, in memory and time that
    are linear in N.

    Args:
        dim: width D of a token.
        num_heads: heads H; must divide `dim`.
        kernel_size: k, odd, one number or (rows, columns); 2 r + 1 reaches r tokens each way.
        dilation: steps between the keys, one number or a pair.
        rel_bias: a learned bias for each head and tap, (k*k, H).
        others: as in `MultiHeadSelfAttention`.

    Raises:
        UserError: (a ValueError) heads that do not divide the width, an even kernel, tokens that do
            not fill the grid.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        kernel_size: int | Pair = 7,
        dilation: int | Pair = 1,
        rel_bias: bool = False,
        qkv_bias: bool = False,
        qk_norm: bool = False,
        proj_bias: bool = True,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        norm_layer: Callable[[int], nn.Module] = nn.LayerNorm,
        scale: float | None = None,
        projection: Literal["full", "per_head"] = "full",
        score: Score = "softmax",
        fused: bool = True,
    ) -> None:
        kernel, steps = to_2tuple(kernel_size), to_2tuple(dilation)
        for k, d in zip(kernel, steps, strict=True):
            if k < 1 or k % 2 == 0 or d < 1:
                raise UserError(
                    f"kernel_size {kernel_size} with dilation {dilation}: wanted odd kernels, such"
                    f" as {max(k, 1) // 2 * 2 + 1}, and dilations of at least 1"
                )
        super().__init__(
            dim,
            num_heads,
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
            proj_bias=proj_bias,
            attn_drop=attn_drop,
            proj_drop=proj_drop,
            norm_layer=norm_layer,
            scale=scale,
            projection=projection,
            score=score,
            fused=fused,
            table_grid=kernel if rel_bias else None,
        )
        self.kernel_size: Pair = kernel
        self.dilation: Pair = steps

    @classmethod
    def from_attention(
        cls,
        attn: MultiHeadSelfAttention,
        *,
        kernel_size: int | Pair = 7,
        dilation: int | Pair = 1,
        rel_bias: bool = False,
    ) -> "NeighborhoodAttention":
        """The local form of a global layer, which gives it its own projections and norms.

        Raises:
            UserError: a layer with registers, which have no place on the grid.
        """
        if attn.num_registers:
            raise UserError(
                f"num_registers is {attn.num_registers}; a neighbourhood has none, wanted 0"
            )
        local = cls(
            attn.dim,
            attn.num_heads,
            kernel_size=kernel_size,
            dilation=dilation,
            rel_bias=rel_bias,
            scale=attn.scale,
            score=attn.score,
            fused=attn.fused,
        )
        for name, part in attn.named_children():
            setattr(local, name, part)
        if local.relative_position_bias_table is not None:
            local.relative_position_bias_table.data = local.relative_position_bias_table.data.to(
                attn.proj.weight
            )
        return local.train(attn.training)

    def _near(self, q: Tensor, k: Tensor, v: Tensor, grid_size: Pair) -> Tensor:
        return neighborhood_attend(
            q,
            k,
            v,
            grid_size,
            self.kernel_size,
            dilation=self.dilation,
            bias_table=self.relative_position_bias_table,
            scale=self.scale,
            score=self.score,
            dropout_p=self.attn_drop.p if self.training else 0.0,
            fused=self.fused,
        )
