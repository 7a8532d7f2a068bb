"""Power laws of learning curves, `err(n) = a n^-b + c`: exponent and forecast.

Hestness et al. 2017, "Deep learning scaling is predictable, empirically".
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import optimize

from vision_attn.errors import UserError
from vision_attn.stats.intervals import Floats
from vision_attn.stats.resample import draws_of, resample_means

__all__ = [
    "Forecast",
    "PowerLaw",
    "errors_of",
    "fit_law",
    "least_squares",
    "profile",
]

FEWEST = 4
"""Sizes that a law is fitted to: one more than it has parameters."""

_EXPONENTS = np.geomspace(1e-3, 10, 120)
_WITHIN = np.linspace(0, 1, 17)


class Forecast(NamedTuple):
    """The law at a size that it was not fitted to; `miss` is observed minus predicted error.

    `low` and `high` are 95 % limits for the observed mean, its own noise included.
    """

    size: int
    predicted: float
    low: float
    high: float
    observed: float
    miss: float


@dataclass(frozen=True, eq=False)
class PowerLaw:
    """`err(n) = a n^-b + c`, fitted to `sizes`; call it for the error at other n.

    Args:
        a, b, c: none negative, c no larger than the smallest error.
        b_low, b_high: 95 % interval of the exponent; see `source`.
        forecast: one entry for each size left out of the fit.
        sizes: sizes that the law was fitted to.
        draws: count of draws.
        source: where the intervals come from: `draws`, or with one draw `residuals`, the scatter
            of the sizes about the law, which is right only if the law is.
        samples: (R, 3), a, b and c of each resample.
    """

    a: float
    b: float
    c: float
    b_low: float
    b_high: float
    forecast: list[Forecast]
    sizes: tuple[int, ...]
    draws: int
    source: str
    samples: Floats = field(repr=False)

    @property
    def held_out(self) -> tuple[int, ...]:
        """Sizes that the forecast was tested on."""
        return tuple(f.size for f in self.forecast)

    def __call__(self, n: ArrayLike) -> Floats:
        """Error at n, of any shape."""
        return self.a * np.asarray(n, dtype=float) ** -self.b + self.c


def errors_of(runs: pd.DataFrame, model: str) -> tuple[Floats, Floats]:
    """Sizes (S,) and test errors (draws, S) of a model, as `fit_law` takes them."""
    curves = draws_of(runs, [model])
    return curves.get(model, (np.zeros(0), np.zeros((0, 0))))


def fit_law(
    sizes: ArrayLike,
    errors: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    hold_out: int = 2,
    resamples: int = 1000,
    seed: int = 0,
) -> PowerLaw:
    """Weighted least squares of `a n^-b + c` to the mean over draws, by scipy.

    Args:
        sizes: (S,).
        errors: (draws, S) or (S,), each above 0.
        weights: (S,) of the squared misses; by default 1 / error^2, since the spread between draws
            is about proportional to the error.
        hold_out: number of the largest sizes that are left out of the fit and forecast; 0 fits all.
        resamples: number of refits for the intervals; see `resample_means`.
        seed: of the resamples.

    Raises:
        UserError: fewer than 4 sizes to fit, or an error that is not above zero.
    """
    n, y = np.asarray(sizes, dtype=float), np.atleast_2d(np.asarray(errors, dtype=float))
    if len(n) - hold_out < FEWEST:
        raise UserError(
            f"a law of 3 parameters needs {FEWEST} sizes and {hold_out} held out to forecast,"
            f" got {len(n)} sizes; add sizes"
        )
    if not (y > 0).all():
        raise UserError(f"a law needs errors above 0, got {np.nanmin(y):g}; use smaller sizes")
    order = np.argsort(n)
    n, y = n[order], y[:, order]
    mean = y.mean(0)
    w = 1 / mean**2 if weights is None else np.asarray(weights, dtype=float)[order]
    count = len(n) - hold_out
    x, w = n[:count], w[:count]
    best = least_squares(x, mean[:count], w)
    rng = np.random.default_rng(seed)
    curves, noise, source = _resamples(y[:, :count], _law(best, x), resamples, rng)
    fits = profile(x, curves, w)
    b_low, b_high = np.quantile(fits[:, 1], [0.025, 0.975])
    forecast = []
    for size, observed in zip(n[count:], mean[count:], strict=True):
        predicted = float(_law(best, size))
        low, high = np.quantile(_law(fits, size) * noise, [0.025, 0.975])
        miss = float(observed) - predicted
        forecast.append(
            Forecast(int(size), predicted, float(low), float(high), float(observed), miss)
        )
    a, b, c = best.tolist()
    fitted = tuple(int(s) for s in x)
    return PowerLaw(a, b, c, float(b_low), float(b_high), forecast, fitted, len(y), source, fits)


def _law(fits: Floats, n: float | Floats) -> Floats:
    """Error at n by one law (3,), or by many (R, 3) at one n."""
    a, b, c = fits.T
    return a * np.asarray(n) ** -b + c


def _resamples(
    y: Floats, fitted: Floats, resamples: int, rng: np.random.Generator
) -> tuple[Floats, Floats, str]:
    """Mean curves (R, S) that other draws could give, a factor of noise (R,), a source.

    On logarithms, so that no resampled error is negative. The factor is the noise of a mean at
    a further size, from the spread pooled over the sizes.
    """
    draws, count = y.shape
    if draws > 1:
        logs, source = np.log(y), "draws"
        logs += np.log(y.mean(0)) - logs.mean(0)  # about the mean error, not the geometric one
        curves = resample_means(logs, resamples, rng)
        free, spread = draws - 1, float(logs.std(0, ddof=1).mean())
    else:
        source = "residuals"
        free = count - 3
        spread = float(np.sqrt(((np.log(y[0]) - np.log(fitted)) ** 2).sum() / free))
        chi = np.sqrt(rng.chisquare(free, (resamples, 1)) / free)
        curves = np.log(fitted) + spread * rng.standard_normal((resamples, count)) / chi
    noise = np.exp(spread / draws**0.5 * rng.standard_t(free, resamples))
    return np.exp(curves), noise, source


def least_squares(x: Floats, y: Floats, w: Floats) -> Floats:
    """a, b and c of one curve by scipy, from the best exponent of a grid.

    With this start it ends in the global minimum, not in a local one.

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
