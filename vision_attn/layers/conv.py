"""A convolution is an attention layer, one head for each tap (Cordonnier et al. 2020).

`AttentionConv2d` computes a convolution; `OffsetBias` makes heads that start as one.
"""

from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn

from vision_attn.errors import UserError
from vision_attn.ops.conv import (
    Pair,
    axis_weights,
    check_alpha,
    kernel_offsets,
    leak,
    nearest_offsets,
    offset_scores,
    padded_pixels,
)
from vision_attn.ops.names import plain_names

__all__ = ["AttentionConv2d", "OffsetBias"]

_SETTINGS = ("stride", "padding", "dilation", "groups", "padding_mode")


class AttentionConv2d(nn.Module):
    """Attention that computes a `Conv2d`: (B, C, h, w) -> (B, out_channels, h', w').

    Head h is one tap of the kernel. It attends by position alone, with scores -alpha |d - D_h|^2,
    d = key - query; its values are the pixels, and the output projection stacks the taps' matrices.
    As alpha grows, the output becomes the convolution's, with an error that falls as exp(-alpha);
    `error_bound` says how far it can be off. Queries are the positions of the convolution's output.
    Keys are the pixels, and for zero padding also the zero tokens all round, which are not masked.
    Without them the nearest pixel wins outside the image: that is replicate padding.

    Names of parameters and their layout are those of `Conv2d`: one loads the other's weights.
    Memory is that of the patches of an unfolded image, taps * B * C * h' * w'. A pixel that is not
    finite spoils more than its own field, as 0 times it is not 0.

    Args:
        in_channels, out_channels, kernel_size: those of `Conv2d`.
        place, options: further arguments of `Conv2d`, by place or by keyword: stride, padding,
            dilation, groups, bias, padding_mode (zeros or replicate), device, dtype.
        alpha: how sharp a head is; 20 leaves 1e-8 of the weight elsewhere, 46 nothing in float64.
        learn: make alpha (H,) and the heads' centres (H, 2), in pixels, parameters. Take a small
            alpha (1 to 4) for that: the gradient of a sharp head is as small as its leak.

    Raises:
        UserError: (a ValueError) what `Conv2d` refuses, another padding mode, an alpha not above 0,
            images of another shape or smaller than the kernel.
    """

    kernel_size: Pair
    stride: Pair
    dilation: Pair
    padding: str | Pair
    padding_mode: str
    groups: int

    @plain_names
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        *place: Any,
        alpha: float = 20.0,
        learn: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        try:
            conv = nn.Conv2d(in_channels, out_channels, kernel_size, *place, **options)
        except (TypeError, ValueError) as e:
            raise UserError(
                f"Conv2d of in_channels {in_channels}, out_channels {out_channels}"
                f" and {options or place}: {e}"
            ) from e
        if conv.padding_mode not in ("zeros", "replicate"):
            raise UserError(
                f"padding_mode={conv.padding_mode!r} is not attention to the nearest key;"
                " choose zeros or replicate"
            )
        self.weight, self.bias = conv.weight, conv.bias
        self.in_channels, self.out_channels = in_channels, out_channels
        for name in ("kernel_size", *_SETTINGS):
            setattr(self, name, getattr(conv, name))
        self._pads = padded_pixels(self.padding, self.kernel_size, self.dilation)
        # keys that stand for padding: zero tokens; replicate padding needs none
        self._key_pads = self._pads if conv.padding_mode == "zeros" else ((0, 0), (0, 0))
        offsets = kernel_offsets(self.kernel_size, self.dilation).to(self.weight)
        sharp = offsets.new_full((len(offsets),), check_alpha(alpha))
        if learn:
            self.alpha, self.centers = nn.Parameter(sharp), nn.Parameter(offsets)
        else:
            self.register_buffer("alpha", sharp, persistent=False)
            self.register_buffer("centers", offsets, persistent=False)

    @classmethod
    def from_conv(
        cls, conv: nn.Conv2d, alpha: float = 20.0, *, learn: bool = False
    ) -> "AttentionConv2d":
        """An attention layer that computes `conv`, with a copy of its weights.

        Raises:
            UserError: not a `Conv2d`, a padding mode other than zeros and replicate, a bad alpha.
        """
        if not isinstance(conv, nn.Conv2d) or isinstance(conv.weight, nn.UninitializedParameter):
            raise UserError(f"conv is a {type(conv).__name__}, wanted an initialised nn.Conv2d")
        same = ("in_channels", "out_channels", "kernel_size", *_SETTINGS)
        layer = cls(
            **{name: getattr(conv, name) for name in same}, bias=conv.bias is not None, alpha=alpha,
            learn=learn, device=conv.weight.device, dtype=conv.weight.dtype,
        )  # fmt: skip
        for mine, given in ((layer.weight, conv.weight), (layer.bias, conv.bias)):
            if mine is not None and given is not None:
                mine.data.copy_(given.detach())
                mine.requires_grad_(given.requires_grad)
        return layer.train(conv.training)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, out_channels, h', w'), or without B, as `Conv2d` takes it."""
        if x.ndim == 3:
            return self(x[None])[0]
        if x.ndim != 4 or x.shape[1] != self.in_channels:
            raise UserError(
                f"x has shape {tuple(x.shape)}, wanted (B, {self.in_channels}, h, w): this layer"
                f" has in_channels {self.in_channels}"
            )
        rows, cols = self._axis_weights((x.shape[2], x.shape[3]), x.dtype)
        # a zero token adds nothing to the sum: it only takes its share of the softmax
        (top, _), (left, _) = self._key_pads
        rows = rows[..., top : top + x.shape[2]].to(x.dtype)
        cols = cols[..., left : left + x.shape[3]].to(x.dtype)
        heads = torch.einsum("nih,bchw->nbciw", rows, x)
        heads = torch.einsum("nbciw,njw->nbcij", heads, cols)
        heads = rearrange(heads, "n b (g c) i j -> n b g c i j", g=self.groups)
        taps = rearrange(self.weight, "(g o) c p q -> g o c (p q)", g=self.groups)
        y = torch.einsum("nbgcij,gocn->bgoij", heads, taps).flatten(1, 2)
        return y if self.bias is None else y + self.bias[:, None, None]

    def weights(self, img_size: Pair) -> Tensor:
        """Each head's weights on an image of (h, w) pixels: (H, Nq, Nk), rows sum to 1.

        Queries are the h' * w' outputs and keys the pixels, both row-major; with zero padding the
        keys are those of the padded image. In float32, float64 where the layer is.
        """
        rows, cols = self._axis_weights(img_size, self.weight.dtype)
        w = rows[:, :, None, :, None] * cols[:, None, :, None, :]
        return rearrange(w, "H i j h w -> H (i j) (h w)")

    @torch.no_grad()
    def error_bound(self, x: Tensor) -> Tensor:
        """A bound on max |self(x) - conv(x)|, a float64 scalar on the CPU.

        At most `leak` of a head's weight lies on other pixels, and these differ from the right one
        by at most 2 max|x|. So the bound is `2 max|x| sum_h leak_h |W_h|`, |W| the largest sum of
        absolute values over the inputs of an output channel; about `8 exp(-alpha) max|x| sum |W|`.
        A second term covers rounding in the dtype of x, in both layers (not autocast or TF32).
        Where alpha and centres have been trained, `conv` has the centres rounded to whole pixels.
        """
        reach = max(n + sum(p) for n, p in zip(x.shape[-2:], self._key_pads, strict=True))
        size = self.weight.cpu().double().abs().sum(1).flatten(1)  # (out_channels, H)
        lost = leak(self.alpha.cpu().double(), self.centers.cpu().double(), reach)
        largest = x.abs().max().cpu().double() if x.numel() else torch.zeros((), dtype=size.dtype)
        eps = torch.finfo(x.dtype).eps
        rounding = eps * (self.weight[0].numel() + 2 * reach + 8)  # both layers' sums, eps/2 a term
        bound = (largest * (size * (2 * lost + rounding)).sum(1)).max()
        return (
            bound if self.bias is None else bound + 2 * eps * self.bias.abs().max().cpu().double()
        )

    def extra_repr(self) -> str:
        """Settings as `Conv2d` prints them, and whether positions are learned."""
        shown = [f"{name}={getattr(self, name)!r}" for name in ("kernel_size", *_SETTINGS)]
        learn = isinstance(self.alpha, nn.Parameter)
        return f"{self.in_channels}, {self.out_channels}, {', '.join(shown)}, {learn=}"

    def _axis_weights(self, img_size: Pair, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Softmax over the keys of each axis: (H, h', rows of keys) and (H, w', columns)."""
        alpha = self.alpha.to(torch.promote_types(self.alpha.dtype, dtype))
        rows, cols = (
            axis_weights(
                size, self.centers[:, i], alpha, kernel_size=self.kernel_size[i],
                stride=self.stride[i], dilation=self.dilation[i], pads=self._pads[i],
                key_pads=self._key_pads[i],
            )
            for i, size in enumerate(img_size)
        )  # fmt: skip
        return rows, cols


class OffsetBias(nn.Module):
    """A learned additive bias -alpha |d - D_h|^2 for attention on a grid of tokens: (1, H, N, N).

    With no content in the scores, head h attends to the token at D_h: heads that start as a
    convolution and can leave it (Cordonnier et al. 2020; d'Ascoli et al. 2021 gate the same term).
    The best key of each row is given 0, which a softmax does not see and half precision needs.

    Args:
        num_heads: heads H; they take the H nearest offsets, 9 those of a 3 x 3 kernel.
        alpha: how sharp the heads start.

    Raises:
        UserError: an alpha that is not above 0.
    """

    def __init__(self, num_heads: int, alpha: float = 2.0) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.full((num_heads,), check_alpha(alpha)))
        self.centers = nn.Parameter(nearest_offsets(num_heads).to(self.alpha))

    def forward(self, grid_size: Pair) -> Tensor:
        """Rows and columns of tokens (h, w), any size -> (1, H, h*w, h*w), float32 or wider."""
        terms = []
        for axis, size in enumerate(grid_size):
            at = torch.arange(size, device=self.alpha.device)
            s = offset_scores(at, at, self.centers[:, axis], self.alpha)
            terms.append(s - s.detach().amax(-1, keepdim=True))
        both = terms[0][:, :, None, :, None] + terms[1][:, None, :, None, :]
        return rearrange(both, "H h w i j -> 1 H (h w) (i j)")
