"""Where two learning curves reach each other: how many times the data, and the size they cross at.

Both are interpolated between measured sizes, never beyond them. Beyond them there is only a bound:
infinity for 'not up to the largest size', zero for 'below the smallest'.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from vision_attn.stats.intervals import Floats
from vision_attn.stats.resample import draws_of, falling, resample_means

__all__ = ["Crossing", "crossing", "data_multiplier"]


def data_multiplier(
    runs: pd.DataFrame, a: str, b: str, *, resamples: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """How many times the images of `a` the model `b` needs for the same test error.

    Logarithm of error against logarithm of n, joined by straight lines between the measured sizes.
    A curve that rises somewhere by chance is replaced by the nearest falling one (isotonic least
    squares), so that each error belongs to one size. The 95 % interval is made from
    resampled draws (`resample_means`), both models by the same weights.

    Returns:
        One row a size `n` of `a`: `count` of draws, `multiplier`, `low`, `high`, `bound`, `limit`.
        Where `b` does not reach the error within its sizes `multiplier` is NaN, `limit` is the
        largest (or smallest) multiple that the data can show and `bound` is it in words, `> 4` or
        `< 0.5`; elsewhere `bound` is empty. `high` is infinite and `low` zero where the interval
        leaves the data. One draw: NaN for both. No row where a run has no error at all.
    """
    columns = ["n", "count", "multiplier", "low", "high", "bound", "limit"]
    curves = draws_of(runs, (a, b))
    if not curves or any((errors <= 0).any() for _, errors in curves.values()):
        return pd.DataFrame(columns=columns)
    (at, of_a), (sizes, of_b) = ((n, np.log(errors)) for n, errors in (curves[a], curves[b]))
    draws = len(of_a)
    point = _sizes_at(sizes, falling(of_a.mean(0)[None]), falling(of_b.mean(0)[None]))[0]
    low = high = np.full(len(at), np.nan)
    if draws > 1:
        both = np.concatenate([of_a, of_b], 1)
        means = resample_means(both, resamples, np.random.default_rng(seed))
        sizes_of_b = _sizes_at(sizes, falling(means[:, : len(at)]), falling(means[:, len(at) :]))
        low, _, high = _quantiles(sizes_of_b)
        # of 'not within the data' the least that it says
        low, high = np.minimum(low, sizes[-1]), np.where(high == 0, sizes[0], high)
    rows = []
    for i, n in enumerate(at):
        row = {"n": int(n), "count": draws, "low": low[i] / n, "high": high[i] / n}
        if 0 < point[i] < np.inf:
            row |= {"multiplier": point[i] / n, "bound": "", "limit": np.nan}
        else:
            sign, edge = (">", sizes[-1]) if point[i] else ("<", sizes[0])
            bound = f"{sign} {edge / n:.3g}"
            row |= {"multiplier": np.nan, "bound": bound, "limit": edge / n}
        rows.append(row)
    return pd.DataFrame(rows, columns=columns)


def _sizes_at(sizes: Floats, levels: Floats, curves: Floats) -> Floats:
    """Size at which each falling curve comes down to each level.

    sizes (S,), levels (R, T), curves (R, S) -> (R, T); 0 where the curve begins below the level,
    infinity where it never comes down to it.
    """
    after = (curves[:, None] > levels[..., None]).sum(-1)  # the first size at or under the level
    right = np.clip(after, 1, len(sizes) - 1) if len(sizes) > 1 else np.zeros_like(after)
    left = np.maximum(right - 1, 0)
    high, low = np.take_along_axis(curves, left, 1), np.take_along_axis(curves, right, 1)
    part = np.divide(high - levels, high - low, out=np.zeros_like(high), where=high > low)
    part = np.clip(part, 0, 1)  # outside of the curve it is not used
    logs = np.log(sizes)
    between = np.exp(logs[left] + part * (logs[right] - logs[left]))
    first = np.where(curves[:, :1] == levels, sizes[0], 0.0)
    return np.where(after == 0, first, np.where(after == len(sizes), np.inf, between))


@dataclass(frozen=True)
class Crossing:
    """Size of the training set from which on `chaser` is ahead of `leader`.

    Args:
        leader, chaser: the two models; where there is no crossing `leader` is ahead throughout.
        sizes: that both models have; of fewer than two nothing can be read.
        median, low, high: 50, 2.5 and 97.5 % of the resamples; infinity is 'none up to the largest
            size', 0 is 'from the smallest size on'. One draw: its own crossing, and NaN. A median
            of NaN over two or more sizes: a run has no error at all, so no logarithm.
        share_none: share of the resamples in which `leader` is ahead at the largest size.
        share_reached: share in which the curves cross between the smallest and the largest size.
        count: draws.
    """

    leader: str
    chaser: str
    sizes: tuple[float, ...]
    median: float = np.nan
    low: float = np.nan
    high: float = np.nan
    share_none: float = np.nan
    share_reached: float = np.nan
    count: int = 0


def crossing(
    runs: pd.DataFrame, a: str, b: str, *, resamples: int = 2000, seed: int = 0
) -> Crossing:
    """Where the test errors of two models meet, as a distribution over resampled draws.

    The logarithm of their ratio is joined by straight lines against the logarithm of n between the
    sizes that both models have, as in `data_multiplier`. The crossing is the last size at which
    `b` comes ahead of `a`, to stay there up to the largest; where `b` begins ahead and `a` ends
    ahead the two change places.
    """
    curves = draws_of(runs, (a, b))
    shared = sorted(set(curves[a][0]) & set(curves[b][0])) if curves else []
    nothing = Crossing(a, b, tuple(shared))
    if len(shared) < 2:
        return nothing
    sizes = np.array(shared)
    of_a, of_b = (errors[:, np.isin(n, sizes)] for n, errors in (curves[a], curves[b]))
    if min(of_a.min(), of_b.min()) <= 0:
        return nothing
    ahead, (leader, chaser) = np.log(of_b) - np.log(of_a), (a, b)  # how far a is ahead of b
    if ahead[:, 0].mean() < 0 < ahead[:, -1].mean():
        ahead, (leader, chaser) = -ahead, (b, a)
    draws = len(ahead)
    if draws < 2:
        return Crossing(leader, chaser, tuple(shared), float(_crossings(sizes, ahead)[0]), count=1)
    meets = _crossings(sizes, resample_means(ahead, resamples, np.random.default_rng(seed)))
    low, median, high = (float(q) for q in _quantiles(meets))
    none, reached = np.isinf(meets).mean(), ((meets > 0) & np.isfinite(meets)).mean()
    shares = float(none), float(reached)
    return Crossing(leader, chaser, tuple(shared), median, low, high, *shares, draws)


def _quantiles(values: Floats) -> list[Floats]:
    """2.5, 50 and 97.5 % over the resamples (first axis), none of them between two of these."""
    return [
        np.quantile(values, 0.025, axis=0, method="lower"),
        np.quantile(values, 0.5, axis=0, method="lower"),
        np.quantile(values, 0.975, axis=0, method="higher"),
    ]


def _crossings(sizes: Floats, ahead: Floats) -> Floats:
    """Last size at which each row of differences (R, S) goes under zero to stay: (R,)."""
    behind = ahead < 0
    stays = np.flip(np.logical_and.accumulate(np.flip(behind, 1), 1), 1).sum(1)
    right = np.clip(ahead.shape[1] - stays, 1, ahead.shape[1] - 1)[:, None]
    high, low = np.take_along_axis(ahead, right - 1, 1), np.take_along_axis(ahead, right, 1)
    part = np.divide(high, high - low, out=np.zeros_like(high), where=high > low)
    part = np.clip(part, 0, 1)
    logs = np.log(sizes)
    between = np.exp(logs[right - 1] + part * (logs[right] - logs[right - 1]))[:, 0]
    return np.where(stays == 0, np.inf, np.where(stays == ahead.shape[1], 0.0, between))
