"""Intervals for other draws and other test images, against a loop and the normal approximation."""

import numpy as np
import pytest
from numpy.typing import NDArray

from vision_attn.stats.resample import paired_bootstrap

T4 = 2.7764451051977934
"""Student's t at 97.5 % for 4 degrees of freedom."""


def answers(draws: int, images: int, share: float, spread: float, seed: int) -> NDArray[np.bool_]:
    """Right answers, more of them on some images and in some draws."""
    rng = np.random.default_rng(seed)
    easy, good = rng.normal(0, 0.2, images), rng.normal(0, spread, (draws, 1))
    return rng.random((draws, images)) < share + easy + good


def test_it_is_the_loop_over_resampled_images_and_draws() -> None:
    a, b = answers(5, 23, 0.7, 0.05, 1), answers(5, 23, 0.4, 0.05, 2)
    rng, means = np.random.default_rng(3), []
    for _ in range(8000):
        image = rng.integers(23, size=23)
        of_draws = [(a[i, image].astype(int) - b[i, image]).mean() for i in range(5)]
        mean = sum(of_draws) / 5
        chi = np.sqrt(rng.chisquare(4) / 4)
        off = sum(rng.normal() * (value - mean) for value in of_draws)
        means.append(mean + off / (5 * 4) ** 0.5 / chi)
    mean, low, high = paired_bootstrap(a, b, resamples=8000)
    assert mean == pytest.approx(a.mean() - b.mean())
    want = np.quantile(means, [0.025, 0.975])
    np.testing.assert_allclose([low, high], want, atol=0.06 * (want[1] - want[0]))


def test_many_draws_and_images_are_nearly_normal() -> None:
    """Its variance is that of the draws' means and that of the images' means together."""
    a, b = answers(61, 997, 0.6, 0.03, 4), answers(61, 997, 0.5, 0.03, 5)
    apart = a.astype(float) - b
    variance = apart.mean(1).var(ddof=1) / 61 + apart.mean(0).var(ddof=1) / 997
    mean, low, high = paired_bootstrap(a, b)
    half = 1.96 * variance**0.5
    np.testing.assert_allclose([low, high], [mean - half, mean + half], atol=0.12 * half)


def test_where_all_images_are_alike_only_the_draws_count() -> None:
    right = np.array([3, 5, 6, 4, 7])[:, None] > np.arange(10)
    a = np.repeat(right.mean(1, keepdims=True), 31, axis=1)  # a mean over seeds is a share
    mean, low, high = paired_bootstrap(a, np.zeros_like(a), resamples=20_000)
    half = T4 * a[:, 0].std(ddof=1) / 5**0.5
    np.testing.assert_allclose([mean, low, high], [0.5, 0.5 - half, 0.5 + half], atol=0.03 * half)


def test_one_draw_and_other_shapes() -> None:
    a = answers(1, 11, 0.5, 0.0, 6)
    mean, low, high = paired_bootstrap(a, ~a)
    assert mean == pytest.approx(2 * a.mean() - 1)
    assert np.isnan([low, high]).all()
    with pytest.raises(ValueError, match=r"correct_a is \(1, 11\) and correct_b \(1, 7\)"):
        paired_bootstrap(a, a[:, :7])
