"""Laws, multipliers and crossings on made data whose truth is known."""

import importlib.util
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import optimize
from torch.testing import assert_close

from vision_attn.errors import UserError
from vision_attn.stats.multiplier import crossing, data_multiplier
from vision_attn.stats.power_law import errors_of, fit_law, profile
from vision_attn.stats.resample import draws_of, falling, resample_means

SIZES = np.array([100, 200, 500, 1000, 3000, 10000])
T2 = 4.302652729696142
"""Student's t at 97.5 % for 2 degrees of freedom, from printed tables."""


def made(
    curves: dict[str, Callable[[float], float]], draws: int = 3, noise: float = 0.0
) -> pd.DataFrame:
    """Results whose test errors follow the curves, each run off by its own `noise`."""
    rng = np.random.default_rng(7)
    rows = [
        (model, int(n), draw, 1 - curve(float(n)) * np.exp(noise * rng.standard_normal()))
        for model, curve in curves.items()
        for draw in range(draws)
        for n in SIZES
    ]
    table = pd.DataFrame(rows, columns=["model", "size", "draw", "test_acc"])
    return table.assign(seed=0)


# Resampled means


def test_resampled_means_are_student_t_in_every_direction() -> None:
    values = np.array([[0.1, 0.5], [0.4, 0.3], [0.3, 0.1]])
    means = resample_means(values, 200_000, np.random.default_rng(3))
    for direction in (np.array([1.0, 0.0]), np.array([1.0, -1.0]), np.array([2.0, 3.0])):
        draws = values @ direction
        half = T2 * draws.std(ddof=1) / 3**0.5
        got = np.quantile(means @ direction, [0.025, 0.5, 0.975])
        want = draws.mean() + half * np.array([-1, 0, 1])
        np.testing.assert_allclose(got, want, atol=0.03 * half)


def test_falling_is_isotonic_regression_of_each_row() -> None:
    """Max-min formula (Barlow et al. 1972): least over starts of the largest mean over ends."""
    curves = np.random.default_rng(5).standard_normal((11, 7))
    want = [
        [min(max(c[i : k + 1].mean() for k in range(j, 7)) for i in range(j + 1)) for j in range(7)]
        for c in curves
    ]
    np.testing.assert_allclose(falling(curves), want, atol=1e-12)


def test_draws_are_the_largest_table_without_holes() -> None:
    table = made({"cnn": lambda n: n**-0.5, "vit": lambda n: 2 * n**-0.5}, draws=4, noise=0.1)
    lacks = (table["draw"] == 3) & (table["model"] == "vit") & (table["size"] > 200)
    lacks |= (table["size"] == 10000) & (table["model"] == "vit") & (table["draw"] > 0)
    got = draws_of(table[~lacks], ["cnn", "vit"])
    assert got["cnn"][0].tolist() == SIZES.tolist()
    assert got["vit"][0].tolist() == SIZES[:-1].tolist()
    want = 1 - table.pivot_table(index="draw", columns=["model", "size"], values="test_acc")
    np.testing.assert_allclose(got["cnn"][1], want["cnn"].iloc[:3])
    np.testing.assert_allclose(got["vit"][1], want["vit"].iloc[:3, :-1])
    assert draws_of(table, ["cnn", "linear"]) == {}


def test_of_two_tables_of_one_size_the_one_with_more_draws_counts() -> None:
    """Two sizes of 3 draws or three sizes of 2 draws: six runs both times."""
    table = made({"vit": lambda n: n**-0.5}, draws=3, noise=0.1)
    last = (table["size"] == 500) & (table["draw"] == 2)
    sizes, errors = draws_of(table[(table["size"] <= 500) & ~last], ["vit"])["vit"]
    assert sizes.tolist() == [100, 200]
    assert errors.shape == (3, 2)


def test_more_draws_at_some_sizes_hide_no_other_size() -> None:
    """Six draws at three sizes are more runs than three at six, of which the curves meet."""
    table = made({"cnn": lambda n: n**-0.5, "vit": lambda n: 30 / n}, draws=6, noise=0.05)
    few = table[(table["size"] < 1000) | (table["draw"] < 3)]
    sizes, errors = draws_of(few, ["cnn", "vit"])["vit"]
    assert sizes.tolist() == SIZES.tolist()
    assert errors.shape == (3, len(SIZES))
    sizes, errors = draws_of(table[(table["size"] < 1000) | (table["draw"] < 2)], ["vit"])["vit"]
    assert (sizes.tolist(), errors.shape) == (SIZES.tolist(), (2, len(SIZES)))


# Laws


@pytest.mark.parametrize(
    ("a", "b", "c"), [(3.0, 0.5, 0.0), (3.0, 0.35, 0.04), (1.2, 0.1, 0.0), (11.0, 1.1, 0.07)]
)
def test_an_exact_law_is_recovered(a: float, b: float, c: float) -> None:
    errors = a * SIZES**-b + c
    law = fit_law(SIZES, np.stack([errors] * 2))
    np.testing.assert_allclose((law.a, law.b, law.c), (a, b, c), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose((law.b_low, law.b_high), b, rtol=1e-3)
    assert (law.sizes, law.held_out) == ((100, 200, 500, 1000), (3000, 10000))
    for entry, n in zip(law.forecast, (3000, 10000), strict=True):
        want = a * n**-b + c
        np.testing.assert_allclose((entry.predicted, entry.observed), want, rtol=1e-5)
        assert abs(entry.miss) < 1e-6
    np.testing.assert_allclose(law(SIZES), errors, rtol=1e-5)


def test_the_forecast_misses_what_bends_later() -> None:
    errors = 3.0 * SIZES**-0.5
    errors[-1] += 0.02
    law = fit_law(SIZES, errors * np.array([[0.99], [1.0], [1.01]]))
    near, far = law.forecast
    np.testing.assert_allclose((near.miss, far.miss), (0.0, 0.02), atol=1e-6)
    assert near.low < near.observed < near.high
    assert far.high < far.observed
    whole = fit_law(SIZES, errors, hold_out=0)
    assert whole.sizes == tuple(SIZES)
    assert whole.forecast == []
    assert whole.c > 0.01  # it saw the bend


def test_weights_decide_where_a_law_is_close() -> None:
    n = np.array([100.0, 200, 400, 800, 1600])
    y = np.array([0.5, 0.3, 0.22, 0.16, 0.15])
    weights = np.array([1.0, 1e6, 1e6, 1.0, 1e6])
    law = fit_law(n, y, weights, hold_out=0)
    np.testing.assert_allclose(law(n)[[1, 2, 4]], y[[1, 2, 4]], rtol=1e-3)
    plain = fit_law(n, y, hold_out=0)
    assert abs(plain(n)[0] / y[0] - 1) < abs(law(n)[0] / y[0] - 1)


def test_many_fits_at_once_are_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    x = SIZES / 800
    truth = np.stack([rng.uniform(*r, 23) for r in ((0.1, 0.5), (0.2, 1.2), (0.0, 0.1))], 1)
    curves = truth[:, :1] * x ** -truth[:, 1:2] + truth[:, 2:]
    curves *= np.exp(0.02 * rng.standard_normal(curves.shape))
    weights = 1 / curves.mean(0) ** 2
    for curve, (a, b, c) in zip(curves, profile(x, curves, weights), strict=True):
        top = (np.inf, np.inf, curve.min())
        want = optimize.curve_fit(
            lambda n, a, b, c: a * n**-b + c, x, curve, p0=(0.3, 0.5, 0.4 * curve.min()),
            sigma=weights**-0.5, bounds=((0, 0, 0), top), ftol=1e-14, xtol=1e-14, gtol=1e-14,
        )[0]  # fmt: skip
        np.testing.assert_allclose((a, b, c), want, rtol=5e-3, atol=2e-3)

        def miss(p: np.ndarray, curve: np.ndarray = curve) -> float:
            return float(weights @ (p[0] * x ** -p[1] + p[2] - curve) ** 2)

        assert miss(np.array([a, b, c])) < miss(want) * 1.001


def test_a_curve_that_rises_is_a_flat_law() -> None:
    law = fit_law(SIZES, 0.1 * SIZES**0.1, hold_out=0)
    np.testing.assert_allclose(law(SIZES), law(100), rtol=1e-4)
    assert 0.1 * 100**0.1 < law(100) < 0.1 * 10000**0.1


def test_one_draw_takes_its_interval_from_the_residuals() -> None:
    law = fit_law(SIZES, 3 * SIZES**-0.5 * np.exp([0.01, -0.02, 0.01, 0.01, 0, -0.01]), hold_out=0)
    assert (law.source, law.draws) == ("residuals", 1)
    assert 0 < law.b_low < 0.5 < law.b_high
    three = fit_law(SIZES, 3 * SIZES**-0.5 * np.array([[0.9], [1.0], [1.1]]), hold_out=0)
    assert three.source == "draws"
    np.testing.assert_allclose((three.b_low, three.b_high), 0.5, atol=1e-3)  # only `a` varies


def test_one_draw_leaves_as_many_freedoms_as_sizes_beyond_three() -> None:
    """Misses at four sizes have one degree of freedom, so the curves are scattered by Student's t
    with one, whose upper quartile is 1, times the square root of the sum of squared misses.
    """
    n = SIZES[:4].astype(float)
    a, b, c = 5.0, 0.5, 0.1
    power = n**-b
    slopes = np.stack([power, -a * power * np.log(n), np.ones(4)], 1) / (a * power + c)[:, None]
    hat = slopes @ np.linalg.pinv(slopes)
    miss = 0.005 * np.linalg.svd(np.eye(4) - hat)[0][:, 0]  # no law is nearer than the true one
    law = fit_law(n, (a * power + c) * np.exp(miss), hold_out=0, resamples=4000)
    fits = law.samples
    curves = fits[:, :1] * n ** -fits[:, 1:2] + fits[:, 2:]
    off = np.median(np.abs(np.log(curves / law(n))), axis=0)
    np.testing.assert_allclose(off, 0.005 * np.sqrt(np.diag(hat)), rtol=0.1)


def test_resampled_laws_lie_about_the_law_of_the_mean_error() -> None:
    """The geometric mean of the draws, 0.91 of the mean error, is not what a law is fitted to."""
    law = fit_law(SIZES, 3 * SIZES**-0.5 * np.array([[0.5], [1.0], [1.5]]), hold_out=0)
    np.testing.assert_allclose(np.median(law.samples[:, 0]) / law.a, 1, atol=0.04)


def test_a_forecast_has_the_noise_of_a_mean_over_the_draws() -> None:
    """Its logarithm varies as the law does and as a mean of as many further runs does."""
    logs = np.linspace(-0.2, 0.2, 41)[:, None]
    law = fit_law(SIZES, 3 * SIZES**-0.5 * np.exp(logs), resamples=4000)
    half = 1.96 * logs.std(ddof=1) * (1 / 41 + 1 / 41) ** 0.5
    for entry in law.forecast:
        np.testing.assert_allclose(np.log(entry.high / entry.low) / 2, half, rtol=0.1)


def test_sizes_come_in_any_order() -> None:
    results = made({"vit": lambda n: 2 * n**-0.4 + 0.1}, noise=0.02)
    sizes, errors = errors_of(results, "vit")
    weights, order = np.arange(1.0, 7.0), np.array([3, 0, 5, 1, 4, 2])
    sorted_, mixed = (fit_law(sizes[o], errors[:, o], weights[o]) for o in (np.arange(6), order))
    assert mixed.sizes == (100, 200, 500, 1000)
    assert mixed.held_out == (3000, 10000)
    assert (mixed.a, mixed.b, mixed.c) == (sorted_.a, sorted_.b, sorted_.c)
    assert mixed.forecast == sorted_.forecast


def test_errors_of_results_and_the_seed() -> None:
    results = made({"vit": lambda n: 2 * n**-0.4 + 0.1}, noise=0.02)
    sizes, errors = errors_of(results, "vit")
    assert sizes.tolist() == SIZES.tolist()
    assert errors.shape == (3, 6)
    assert_close(errors[0].tolist(), (1 - results["test_acc"][:6]).tolist())
    one, same, other = (fit_law(sizes, errors, seed=s) for s in (0, 0, 1))
    assert one.forecast == same.forecast
    assert (one.b_low, one.b_high) == (same.b_low, same.b_high)
    assert one.b == other.b
    assert one.b_low != other.b_low


def test_too_little_for_a_law() -> None:
    with pytest.raises(UserError, match=r"needs 4 sizes and 2 held out to forecast, got 5 sizes"):
        fit_law(SIZES[:5], SIZES[:5] ** -0.5)
    with pytest.raises(UserError, match="needs 4 sizes"):
        fit_law(*errors_of(made({"vit": lambda n: n**-0.5}), "cnn"))
    with pytest.raises(UserError, match=r"above 0, got 0;"):
        fit_law(SIZES, [0.5, 0.4, 0.3, 0.2, 0.1, 0.0])


# Data multiplier


def test_a_known_multiplier() -> None:
    """Straight lines on log-log axes: the same multiple at every size that the data reach."""
    results = made({"cnn": lambda n: 3 * n**-0.5, "vit": lambda n: 3 * (n / 2.5) ** -0.5})
    got = data_multiplier(results, "cnn", "vit")
    assert got["n"].tolist() == SIZES.tolist()
    assert (got["count"] == 3).all()
    for column in ("multiplier", "low", "high"):
        assert_close(got[column][:5].tolist(), [2.5] * 5)
    assert got["bound"].tolist() == [""] * 5 + ["> 1"]
    assert np.isnan(got["multiplier"][5])
    assert (got["limit"][5], got["low"][5], got["high"][5]) == (1.0, 1.0, np.inf)
    back = data_multiplier(results, "vit", "cnn")
    assert_close(back["multiplier"][2:].tolist(), [0.4] * 4)
    assert back["bound"].tolist() == ["< 1", "< 0.5", "", "", "", ""]
    assert back["limit"][:2].tolist() == [1.0, 0.5]
    assert_close((back["low"][1], back["high"][1]), (0.0, 0.5))


def test_a_model_needs_once_its_own_images() -> None:
    results = made({"cnn": lambda n: 3 * n**-0.5}, noise=0.02)
    got = data_multiplier(results, "cnn", "cnn")
    np.testing.assert_allclose(got[["multiplier", "low", "high"]], 1)


def test_multiplier_reads_between_the_sizes_and_over_a_bump() -> None:
    """`vit` falls 0.8, 0.4, then a bump of 0.1 and 0.3 that is levelled at its mean of logs."""
    vit = dict(zip(SIZES, (0.8, 0.4, 0.1, 0.3, 0.05, 0.02), strict=True))
    above = 0.03**0.5 * (1 + 1e-9)  # on the level itself rounding would decide
    cnn = dict(zip(SIZES, (0.5, above, 0.1, 0.05, 0.03, 0.01), strict=True))
    results = made({"cnn": lambda n: cnn[int(n)], "vit": lambda n: vit[int(n)]}, draws=1)
    got = data_multiplier(results, "cnn", "vit")
    level = np.log(0.03) / 2
    want = [
        2 ** (np.log(0.8 / 0.5) / np.log(2)),
        500 / 200,
        np.exp(np.interp(-np.log(0.1), [-level, -np.log(0.05)], np.log([1000, 3000]))) / 500,
        3000 / 1000,
        np.exp(np.interp(-np.log(0.03), -np.log([0.05, 0.02]), np.log([3000, 10000]))) / 3000,
    ]
    assert_close(got["multiplier"][:5].tolist(), want)
    assert got["bound"][5] == "> 1"
    assert got[["low", "high"]].isna().to_numpy().all()  # one draw


def test_multiplier_of_what_cannot_be_compared_is_empty() -> None:
    results = made({"cnn": lambda n: 3 * n**-0.5})
    assert data_multiplier(results, "cnn", "vit").empty
    assert data_multiplier(results[:0], "cnn", "cnn").empty
    none = pd.concat([results, made({"vit": lambda n: 0.0})])
    assert data_multiplier(none, "cnn", "vit").columns[0] == "n"
    assert data_multiplier(none, "cnn", "vit").empty


# Crossing


def meets(at: float) -> Callable[[float], float]:
    """A straight line on log-log axes that meets 3 n^-0.4 at the given size, and then is below."""
    return lambda n: 3 * at**0.1 * n**-0.5


@pytest.mark.parametrize("at", [120.0, 700.0, 9000.0])
def test_curves_that_meet_at_a_known_size(at: float) -> None:
    results = made({"cnn": lambda n: 3 * n**-0.4, "vit": meets(at)})
    got = crossing(results, "cnn", "vit")
    np.testing.assert_allclose((got.median, got.low, got.high), at, rtol=1e-6)
    assert (got.share_none, got.share_reached) == (0.0, 1.0)
    assert (got.leader, got.chaser, got.count) == ("cnn", "vit", 3)
    assert got.sizes == tuple(SIZES)
    # asked the other way round, the same answer
    assert astuple(crossing(results, "vit", "cnn")) == astuple(got)


def test_curves_that_never_meet() -> None:
    results = made({"cnn": lambda n: 3 * n**-0.4, "vit": lambda n: 4 * n**-0.4}, noise=0.01)
    got = crossing(results, "cnn", "vit")
    assert (got.median, got.low, got.high) == (np.inf, np.inf, np.inf)
    assert (got.share_none, got.share_reached) == (1.0, 0.0)
    back = crossing(results, "vit", "cnn")
    assert (back.median, back.low, back.high) == (0.0, 0.0, 0.0)


def test_a_crossing_near_the_end_may_lie_beyond_it() -> None:
    results = made({"cnn": lambda n: 3 * n**-0.4, "vit": meets(8000)}, noise=0.02)
    got = crossing(results, "cnn", "vit")
    assert got.low < 8000
    assert got.high == np.inf
    assert 0.05 < got.share_none < 0.95
    assert abs(got.share_none + got.share_reached - 1) < 0.05
    assert astuple(got) == astuple(crossing(results, "cnn", "vit"))
    assert astuple(got) != astuple(crossing(results, "cnn", "vit", seed=1))


def test_intervals_end_at_the_outer_resamples() -> None:
    """Of two resamples the lower is the lower limit and the median, the upper the upper limit."""
    results = made({"cnn": lambda n: 3 * n**-0.4, "vit": meets(700)}, noise=0.02)
    got = crossing(results, "cnn", "vit", resamples=2)
    assert got.low == got.median < got.high
    times = data_multiplier(results, "cnn", "vit", resamples=2).iloc[1:4]
    assert (times["low"] < times["high"]).all()


def test_crossing_of_one_draw_and_of_nothing() -> None:
    curves = {"cnn": lambda n: 3 * n**-0.4, "vit": meets(700)}
    one = crossing(made(curves, draws=1), "cnn", "vit")
    np.testing.assert_allclose(one.median, 700)
    assert np.isnan([one.low, one.high, one.share_none, one.share_reached]).all()
    assert (one.leader, one.chaser, one.count) == ("cnn", "vit", 1)
    none = crossing(made(curves), "cnn", "linear")
    assert np.isnan(none.median)
    assert none.sizes == ()
    exact = crossing(made({"cnn": lambda n: 0.0, "vit": meets(700)}), "cnn", "vit")
    assert np.isnan(exact.median)
    assert len(exact.sizes) == 6


# Coverage


def test_intervals_hold_the_truth_in_most_studies() -> None:
    """A short form of tests/benchmarks/coverage.py; 5 of 60 is 3 sigma under 95 %."""
    path = Path(__file__).parents[1] / "benchmarks" / "coverage.py"
    spec = importlib.util.spec_from_file_location("study_coverage", path)  # not pytest-cov's
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    found = benchmark.coverage(3, 60, resamples=300)
    naive, _ = found.pop("(plain bootstrap of draws)")
    assert naive < 0.88
    for name, (share, width) in found.items():
        assert share >= 0.85, name
        assert not width <= 0, name
