"""Resampled mean curves of a few draws, and the table of draws for them.

Choosing 3 draws out of 3 with replacement gives 10 different means, whose spread is too narrow:
intervals from it miss the truth far too often (tests/benchmarks/coverage.py measures it). So the
deviations of the draws from their mean are weighted by normal numbers (the wild bootstrap of Wu
1986) and divided by an independent chi, which makes each linear function of the curve exactly
Student's t with D - 1 degrees of freedom, whatever the correlation between sizes of one draw
(subsets are nested) and between two models (they share the images).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from vision_attn.stats.intervals import Floats

__all__ = ["draws_of", "falling", "paired_bootstrap", "resample_means"]

ENOUGH = 3
"""Draws from which on a curve is better for another size than for another draw."""


def draws_of(runs: pd.DataFrame, models: Sequence[str]) -> dict[str, tuple[Floats, Floats]]:
    """Sizes (S,) and test errors (D, S) of each model, from the same D draws; seeds averaged.

    Some cells may be missing: a study still runs, or has more draws at some sizes. The largest
    complete block of (model, size) x draws is taken, where draws above ENOUGH do not count, so that
    further draws at some sizes hide no other size; on a tie, the one with more draws. Empty if a
    model has no run.
    """
    runs = runs[runs["model"].isin(models)].assign(error=lambda t: 1 - t["test_acc"].astype(float))
    table = runs.pivot_table(index="draw", columns=["model", "size"], values="error")
    names, sizes = (table.columns.get_level_values(level) for level in (0, 1))
    errors = table.to_numpy(float)
    whole = ~np.isnan(errors)
    blocks = []
    for least in sorted(set(whole.sum(0)), reverse=True):
        columns = whole.sum(0) >= least
        if set(names[columns]) == set(models):
            blocks.append((whole[:, columns].all(1), columns))
    if not blocks:
        return {}
    rows, columns = max(blocks, key=lambda block: min(block[0].sum(), ENOUGH) * block[1].sum())
    if not rows.any():
        return {}
    mine = {model: columns & (names == model) for model in models}
    return {m: (sizes[c].to_numpy(float), errors[np.ix_(rows, c)]) for m, c in mine.items()}


def resample_means(values: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    """Means that other draws could give, from those of D draws.

    Args:
        values: (D, S), one row a draw, D at least 2.
        resamples: R.
        rng: the source of chance.

    Returns:
        (R, S); `g @ row` of every fixed g is the mean plus t(D - 1) standard errors.
    """
    mean = values.mean(0)
    return mean + _weights(len(values), resamples, rng) @ (values - mean)


def falling(curves: Floats) -> Floats:
    """The nearest curves (least squares) that nowhere rise: (R, S) -> (R, S)."""
    fallen = curves.copy()
    for i in np.flatnonzero((np.diff(curves) > 0).any(1)):
        fallen[i] = isotonic_regression(curves[i], increasing=False).x
    return fallen


def paired_bootstrap(
    correct_a: NDArray[np.bool_] | Floats,
    correct_b: NDArray[np.bool_] | Floats,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Accuracy of `a` minus that of `b`, with an interval for other draws and other test images.

    In each resample the images are drawn with replacement, the same for both models and all draws,
    and the draws' means on them are resampled as in `resample_means`. Both levels hold the scatter
    of single answers, so the interval is rather too wide than too narrow (Owen 2007, "The
    pigeonhole bootstrap"). One draw: NaN for the interval.

    Args:
        correct_a, correct_b: whether each image is classified rightly, (D draws, N images); of
            several seeds their mean.
        level: of the interval.
        resamples: R.
        seed: of the resamples.

    Returns:
        Mean, low and high.

    Raises:
        ValueError: other draws or images of `a` than of `b`.
    """
    if correct_a.shape != correct_b.shape:
        raise ValueError(f"correct_a is {correct_a.shape} and correct_b {correct_b.shape}")
    apart = correct_a.astype(float) - correct_b
    draws, images = apart.shape
    mean = float(apart.mean())
    if draws < 2:
        return mean, np.nan, np.nan
    rng = np.random.default_rng(seed)
    # images with the same answers in every draw are alike, so only their number is drawn
    kinds, counts = np.unique(apart, axis=1, return_counts=True)
    of_images = rng.multinomial(images, counts / images, resamples) @ kinds.T / images
    weights = _weights(draws, resamples, rng)
    centre = of_images.mean(1)
    means = centre + (weights * (of_images - centre[:, None])).sum(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return mean, float(low), float(high)


def _weights(draws: int, resamples: int, rng: np.random.Generator) -> Floats:
    """Of the draws' deviations from their mean, (R, D)."""
    normal = rng.standard_normal((resamples, draws)) / (draws * (draws - 1)) ** 0.5
    chi = np.sqrt(rng.chisquare(draws - 1, (resamples, 1)) / (draws - 1))
    return normal / chi
