"""Colours of ratios: what is bare, what is strongest, and the image under them."""

import numpy as np
import pytest

from vision_attn.explain.colour import COVER, FLOOR, LESS, MORE, blend, reach, strength


@pytest.mark.parametrize(
    ("ratios", "wanted"),
    [
        ([0.97, 1.0, 1.03], FLOOR),  # all but even: pale, whatever noise there is
        ([0.2, 1.0, 7.0], 7.0),
        ([1 / 3, 1.0, 1.5], 3.0),  # the end below is farther
        ([1e-9, 1.0, 2.5], 4.0),  # but no farther than a quarter
        ([0.0, 0.0], FLOOR),
    ],
)
def test_the_strongest_colour_is_at_the_farther_end(ratios: list[float], wanted: float) -> None:
    assert reach(np.array(ratios), "even") == pytest.approx(wanted)


def test_a_shared_scale_fits_maps_that_are_all_but_even() -> None:
    ratios = np.array([0.97, 1.0, 1.02])
    top = reach(ratios, "shared")
    assert top == pytest.approx(1 / 0.97)
    np.testing.assert_allclose(strength(ratios, "shared", top)[:2], [-1, 0], atol=1e-12)
    assert np.isfinite(strength(np.ones(3), "shared", reach(np.ones(3), "shared"))).all()


def test_even_is_bare_and_as_much_below_is_as_strong_as_above() -> None:
    levels = strength(np.array([0.0, 0.125, 0.5, 1.0, 2.0, 4.0, 9.0]), "even", 4.0)
    np.testing.assert_allclose(levels[1:], [-1, -0.5, 0, 0.5, 1, 1])
    assert np.isnan(levels[0])


def test_the_scale_max_begins_at_nothing() -> None:
    ratios = np.array([0.0, 1.5, 3.0])
    assert reach(ratios, "max") == 3
    np.testing.assert_allclose(strength(ratios, "max", 3.0), [0, 0.5, 1])
    np.testing.assert_allclose(strength(np.zeros(2), "max", 0.0), [0, 0])


def test_the_image_is_seen_under_each_colour() -> None:
    pixels = np.array([[[0, 255, 0, 255, 0, 255, 0, 255]]], np.uint8)
    mixed = blend(pixels, np.array([[-1.0, 0.0, 1.0, np.nan]]))
    assert mixed.shape == (1, 8, 3)
    dark, light = 0.35, 1.0
    np.testing.assert_allclose(mixed[0, 2], [dark] * 3)  # bare at the even share
    np.testing.assert_allclose(mixed[0, 3], [light] * 3)
    np.testing.assert_allclose(mixed[0, 1], (1 - COVER) * light + COVER * np.array(LESS))
    np.testing.assert_allclose(mixed[0, 4], (1 - COVER) * dark + COVER * np.array(MORE))
    np.testing.assert_allclose(mixed[0, 6:, 0], [0.45 * dark, 0.45 * light])
    assert (mixed[0, 1::2] - mixed[0, 0::2] > 0.12).all()


def test_a_token_covers_its_pixels() -> None:
    mixed = blend(np.full((3, 4, 9), 255, np.uint8), np.array([[0.0, 0.5, 1.0], [0.0, 0.0, 0.0]]))
    assert mixed.shape == (4, 9, 3)
    np.testing.assert_allclose(mixed[:, :3], 1.0)
    np.testing.assert_allclose(
        mixed[:2, 3:6], np.broadcast_to(0.65 + 0.35 * np.array(MORE), (2, 3, 3))
    )
    np.testing.assert_allclose(mixed[2:], 1.0)
