"""Attention by position alone: scores -alpha |d - D_h|^2, d = key - query (Cordonnier et al. 2020).

As alpha grows, head h attends to the one key at offset D_h: a tap of a convolution. The score is a
sum of a row term and a column term, so a head's softmax is the outer product of a row matrix and a
column matrix, and the N x N matrix is never needed.
"""

import torch
from torch import Tensor

from vision_attn.errors import UserError

__all__ = ["axis_weights", "check_alpha", "kernel_offsets", "leak", "nearest_offsets",
           "offset_scores", "padded_pixels"]  # fmt: skip

Pair = tuple[int, int]


def offset_scores(query: Tensor, key: Tensor, center: Tensor, alpha: Tensor) -> Tensor:
    """`-alpha (key - query - center)^2` on one axis: (Nq,), (Nk,), (H,), (H,) -> (H, Nq, Nk).

    Positions and centres are in pixels, `key` and `query` whole numbers. In float32, float64 where
    `alpha` is: half precision overflows, or cannot tell neighbours apart.
    """
    exact = torch.promote_types(alpha.dtype, torch.float32)
    away = (key - query[:, None]).to(exact) - center.to(exact)[:, None, None]
    return -alpha.to(exact)[:, None, None] * away.square()


def axis_weights(
    size: int,
    center: Tensor,
    alpha: Tensor,
    *,
    kernel_size: int,
    stride: int,
    dilation: int,
    pads: Pair,
    key_pads: Pair,
) -> Tensor:
    """One axis of the heads' weights: (H,), (H,) -> (H, Nq, Nk), rows sum to 1.

    Args:
        size: pixels on this axis.
        center, alpha: of each head.
        kernel_size, stride, dilation: of the convolution on this axis.
        pads: pixels that the convolution pads (before, after). They say where its outputs stand.
        key_pads: how many of them are keys. The others leave their share to the nearest key.

    Raises:
        UserError: the padded axis is shorter than the kernel.
    """
    span, padded = dilation * (kernel_size - 1), size + sum(pads)
    if size < 1 or padded <= span:
        raise UserError(
            f"an image side of {size} pixels, padded to {padded}, is shorter than the kernel, which"
            f" spans {span + 1}; give a larger image or more padding"
        )
    query = torch.arange(0, padded - span, stride, device=alpha.device) + span // 2 - pads[0]
    key = torch.arange(-key_pads[0], size + key_pads[1], device=alpha.device)
    return offset_scores(query, key, center, alpha).softmax(-1)


def kernel_offsets(kernel_size: Pair, dilation: Pair) -> Tensor:
    """Offsets (row, column) of a kernel's taps in pixels, row-major: (H, 2), H = taps.

    Counted from the pixel on which torch's padding 'same' lets the output stand.
    """
    rows, cols = (
        torch.arange(k) * d - d * (k - 1) // 2 for k, d in zip(kernel_size, dilation, strict=True)
    )
    return torch.cartesian_prod(rows, cols)


def padded_pixels(padding: str | Pair, kernel_size: Pair, dilation: Pair) -> tuple[Pair, Pair]:
    """Pixels that `Conv2d` pads on (rows, columns), each (before, after)."""
    if padding == "valid":
        return (0, 0), (0, 0)
    if isinstance(padding, str):  # "same"
        r, c = (d * (k - 1) for d, k in zip(dilation, kernel_size, strict=True))
        return (r // 2, r - r // 2), (c // 2, c - c // 2)
    return (padding[0], padding[0]), (padding[1], padding[1])


def nearest_offsets(count: int) -> Tensor:
    """The `count` offsets nearest to (0, 0): (count, 2).

    In square rings from the inside, and in a ring by distance:
    9 is a 3 x 3 kernel, 25 a 5 x 5 one, 5 the pixel and its four neighbours.
    """
    reach = 0
    while (2 * reach + 1) ** 2 < count:
        reach += 1
    steps = range(-reach, reach + 1)
    every = [(r, c) for r in steps for c in steps]
    every.sort(key=lambda o: (max(abs(o[0]), abs(o[1])), o[0] ** 2 + o[1] ** 2, o))
    return torch.tensor(every[:count]).reshape(count, 2)


def leak(alpha: Tensor, centers: Tensor, reach: int) -> Tensor:
    """Most weight that can miss the key nearest to the centre: (H,), (H, 2) -> (H,), each <= 1.

    On one axis the keys lie n = ..., -1, 0, 1, ... from the nearest one, whose own distance from
    the centre is f, |f| <= 1/2. Its weight is `1 / sum_n exp(-alpha (n^2 - 2 n f))`, and the leak
    is one minus the product over the axes; about 4 exp(-alpha) where f = 0. Where the border cuts
    keys off, or the centre lies outside, the sum is smaller.

    Args:
        reach: the longest side of the key grid, at which the sum may stop.
    """
    n = torch.arange(1, reach + 1, dtype=centers.dtype, device=centers.device)
    n = torch.cat((-n, n))
    f = (centers - centers.round())[..., None]
    others = torch.exp(-alpha[:, None, None] * (n.square() - 2 * n * f)).sum(-1)
    lost = -torch.expm1(-torch.log1p(others).sum(-1))
    return torch.where(alpha > 0, lost, 1.0)


def check_alpha(alpha: float) -> float:
    """The same alpha, or a UserError: it must be finite and above 0."""
    if not 0 < alpha < float("inf"):
        raise UserError(
            f"alpha={alpha} given, wanted a finite number above 0; 20 is a convolution to 1e-7,"
            " 1 to 4 start near one and learn fast"
        )
    return float(alpha)
