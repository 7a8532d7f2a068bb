"""Colours of attention over an image: blue below the even share, orange above, bare at it.

The even share is the weight of each key if all that a query may attend to weighed the same. A
ratio is a weight over it.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["COVER", "FLOOR", "LESS", "MORE", "Scale", "blend", "reach", "strength"]

Scale = Literal["even", "max", "shared"]

MORE, LESS = (0.86, 0.32, 0.0), (0.08, 0.33, 0.78)
COVER = 0.7
"""Of the image is covered by the strongest colour, so that it is seen under each."""
FLOOR = 2.0
"""The least ratio of scale `even` that takes the strongest colour: what is all but even is pale."""

Floats = NDArray[np.float64]


def reach(ratios: Floats, scale: str) -> float:
    """The ratio of the strongest colour: the largest, or what lies as far below the even share.

    No more than a quarter counts from below: weights near 0 would make all others pale.
    """
    most = float(ratios.max(initial=0.0))
    if scale == "max":
        return most
    some = ratios[ratios > 0]
    below = min(1 / float(some.min()), 4.0) if some.size else 0.0
    return max(most, below, FLOOR if scale == "even" else 1 + 1e-6)


def strength(ratios: Floats, scale: str, top: float) -> Floats:
    """Colours of ratios whose strongest is at `top`: -1 (blue) to 1 (orange), NaN for nothing.

    On the logarithm of the ratio, 0 at the even share; with scale `max` on the ratio itself.
    """
    if scale == "max":
        return ratios / max(top, 1e-30)
    with np.errstate(divide="ignore"):
        levels = np.log(ratios) / np.log(top)
    return np.where(ratios > 0, levels.clip(-1, 1), np.nan)


def blend(pixels: NDArray[np.uint8], levels: Floats) -> Floats:
    """Colour over a grey image: (C, h, w) and (rows, columns) in -1 to 1 -> RGB (h, w, 3), 0 to 1.

    The image is grey and light. NaN, no weight at all, is dark.
    """
    grey = (0.35 + 0.65 * pixels.mean(0) / 255)[..., None]
    scale = [n // m for n, m in zip(grey.shape[:2], levels.shape, strict=True)]
    level = np.repeat(np.repeat(levels, scale[0], 0), scale[1], 1)[..., None]
    cover = COVER * np.abs(np.where(np.isnan(level), 0.0, level))
    mixed = (1 - cover) * grey + cover * np.where(level > 0, MORE, LESS)
    return np.where(np.isnan(level), 0.45 * grey, mixed)
