"""Weighted least squares of `a n^-b + c` with a, b, c >= 0 and c no larger than any error."""

import numpy as np
from scipy import optimize

from vision_attn.stats.resample import Floats

__all__ = ["least_squares", "profile"]

_EXPONENTS = np.geomspace(1e-3, 10, 120)
_WITHIN = np.linspace(0, 1, 17)


def least_squares(x: Floats, y: Floats, w: Floats) -> Floats:
    """a, b and c of one curve by scipy, begun at the best exponent of a grid.

    So that it ends in the global least, not in a local one.

    Args:
        x: (S,) sizes.
        y: (S,) errors.
        w: (S,) weights of the squared misses.
    """
    scale = float(np.exp(np.log(x).mean()))
    a, b, c = profile(x / scale, y[None], w)[0]
    top = float(y.min())
    fit = optimize.curve_fit(
        lambda n, a, b, c: a * n**-b + c,
        x / scale, y, p0=(a, b, min(c, top)), sigma=w**-0.5,
        bounds=((0, 0, 0), (np.inf, np.inf, top)), xtol=1e-15, ftol=1e-15, gtol=1e-15,
    )[0]  # fmt: skip
    return np.array([fit[0] * scale ** fit[1], fit[1], fit[2]])


def profile(x: Floats, curves: Floats, w: Floats) -> Floats:
    """a, b and c of many curves at once: b by grids and a parabola, a and c in closed form.

    A thousand resampled curves in about 30 ms, where scipy takes seconds.

    Args:
        x: (S,).
        curves: (R, S).
        w: (S,).

    Returns:
        (R, 3).
    """
    scale = float(np.exp(np.log(x).mean()))
    logs = np.log(x / scale)
    grid = np.broadcast_to(_EXPONENTS, (len(curves), len(_EXPONENTS)))
    for _ in range(3):  # twice around the best, since the miss bends sharply where c becomes 0
        _, _, missed = _linear(np.exp(-grid[..., None] * logs), curves[:, None], w)
        at = np.clip(missed.argmin(1), 1, grid.shape[1] - 2)[:, None]
        left, best, right = (np.take_along_axis(grid, at + i, 1) for i in (-1, 0, 1))
        before, least, after = (np.take_along_axis(missed, at + i, 1) for i in (-1, 0, 1))
        grid = left * (right / left) ** _WITHIN
    bend = before - 2 * least + after
    shift = np.divide(before - after, 2 * bend, out=np.zeros_like(bend), where=bend > 0)
    b = (best * (right / best) ** np.clip(shift, -1, 1))[:, 0]
    a, c, _ = _linear(np.exp(-np.outer(b, logs)), curves, w)
    b = np.where(a > 0, b, 0.0)
    return np.stack([a * scale**b, b, c], 1)


def _linear(p: Floats, y: Floats, w: Floats) -> tuple[Floats, Floats, Floats]:
    """Best a and c of `a p + c` with a >= 0 and 0 <= c <= min(y), and the weighted square miss.

    The last axis is over sizes, the others broadcast. For a given c the best a is known, and the
    miss is then convex in c, so a limit of c is met by moving c to it.
    """
    total, mean_p, mean_y = w.sum(), p @ w, y @ w
    square, both = (p * p) @ w, (p * y) @ w
    bent = total * square - mean_p**2
    c = np.clip((square * mean_y - mean_p * both) / bent, 0, y.min(-1))
    a = (both - c * mean_p) / square
    rises = a < 0
    a = np.where(rises, 0.0, a)
    c = np.where(rises, np.minimum(mean_y / total, y.min(-1)), c)
    return a, c, ((y - a[..., None] * p - c[..., None]) ** 2) @ w
