"""Resampled mean curves of a few draws, and the table of draws that they are made from.

Choosing 3 draws out of 3 with replacement gives 10 different means, whose spread is too narrow:
intervals from it miss the truth far too often (tests/benchmarks/coverage.py measures it). So the
deviations of the draws from their mean are weighted by normal numbers (the wild bootstrap of Wu
1986) and divided by an independent chi, which makes each linear function of the curve exactly
Student's t with D - 1 degrees of freedom, whatever ties the sizes of one draw together (subsets
are nested, so they are tied) and whatever ties two models together (they share the images).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from vision_attn.stats.paired import select

__all__ = ["Floats", "draws_of", "falling", "resample_means"]

Floats = NDArray[np.float64]


def draws_of(
    results: pd.DataFrame,
    models: Sequence[str],
    *,
    protocol: str = "steps",
    control: str = "none",
) -> dict[str, tuple[Floats, Floats]]:
    """Sizes (S,) and test errors (D, S) of each model, from the same D draws; seeds averaged.

    While a study grows some cells lack. Of all sets of (model, size) with the draws that are whole
    on them, the one with most cells is taken; of two alike, the one with more draws. Nothing where
    a model has no run.
    """
    good = select(results, protocol, control)
    good = good[good["model"].isin(models)].assign(error=lambda t: 1 - t["test_acc"].astype(float))
    table = good.pivot_table(index="draw", columns=["model", "size"], values="error")
    names = [table.columns.get_level_values(level) for level in (0, 1)]
    keys = [(str(model), float(size)) for model, size in zip(*names, strict=True)]
    held = table.to_numpy(float)
    whole = ~np.isnan(held)
    best: tuple[int, list[int], Floats] = (0, [], held)
    for least in sorted(set(whole.sum(0)), reverse=True):
        columns = [i for i, count in enumerate(whole.sum(0)) if count >= least]
        block = held[whole[:, columns].all(1)][:, columns]
        if {keys[i][0] for i in columns} == set(models) and block.size > best[0]:
            best = block.size, columns, block
    found: dict[str, tuple[Floats, Floats]] = {}
    for model in models if best[0] else ():
        mine = [j for j, i in enumerate(best[1]) if keys[i][0] == model]
        found[model] = np.array([keys[best[1][j]][1] for j in mine]), best[2][:, mine]
    return found


def resample_means(values: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    """Means as other draws could have given them, from those of D draws.

    Args:
        values: (D, S), one row a draw, D at least 2.
        resamples: R.
        rng: the source of chance.

    Returns:
        (R, S); `g @ row` of every fixed g is the mean plus t(D - 1) standard errors.
    """
    draws = len(values)
    mean = values.mean(0)
    normal = rng.standard_normal((resamples, draws)) / (draws * (draws - 1)) ** 0.5
    chi = np.sqrt(rng.chisquare(draws - 1, (resamples, 1)) / (draws - 1))
    return mean + normal / chi @ (values - mean)


def falling(curves: Floats) -> Floats:
    """The nearest curves (least squares) that nowhere rise: (R, S) -> (R, S).

    Isotonic regression by its max-min formula (Barlow et al. 1972): at each point the smallest,
    over beginnings, of the largest mean over ends. For the few sizes of a study it is faster than
    pooling row by row.
    """
    count = curves.shape[1]
    sums = np.concatenate([np.zeros((len(curves), 1)), curves.cumsum(1)], 1)
    start, end = np.arange(count)[:, None], np.arange(count)
    length = end - start + 1
    means = (sums[:, None, 1:] - sums[:, :-1, None]) / np.where(length > 0, length, 1)
    out = np.empty_like(curves)
    for i in range(count):
        out[:, i] = means[:, : i + 1, i:].max(2).min(1)
    return out
