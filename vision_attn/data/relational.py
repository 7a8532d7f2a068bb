"""Images made on the fly whose answer can be a relation: which object has the cue's colour."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["GLYPHS", "SIDE", "relational_images", "relational_parts"]

SIDE = 18
"""Pixels a side."""

GLYPHS = {
    "plus": ("010", "111", "010"),
    "cross": ("101", "010", "101"),
    "corner": ("100", "100", "111"),
    "tee": ("111", "010", "010"),
}
"""The objects, of five pixels each, so that none is told by its brightness."""

TRAIN, TEST = 200_000, 5_000
"""Images that are made; a size of 96,000 is 1,500 updates of 64 that see each image once."""

_SHAPES = np.array([[[c == "1" for c in row] for row in rows] for rows in GLYPHS.values()])
_SIZE, _CUE = 3, 2
_RANGE = range(SIDE - _SIZE + 1)
_PLACES = np.array([(y, x) for y in _RANGE for x in _RANGE if max(y, x) >= _CUE])
"""Upper left pixels of an object that leave the cue's corner free."""


def relational_images(
    n: int, relation: float, rng: np.random.RandomState
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (n, 3, 18, 18) and the number of the glyph that is asked for, (n,).

    An object of 3 x 3 pixels, red or green, lies anywhere on a noisy ground; the corner at the
    upper left has a cue of its colour. A share `relation` of the images has a second object of the
    other colour, so that the answer is the glyph with the cue's colour. Whoever does not see the
    cue is right there in 62.5 of 100 images at most: half of them, and a quarter of the rest.
    """
    images = rng.randint(0, 64, (n, 3, SIDE, SIDE), np.uint8)
    kinds, colours = rng.randint(0, len(GLYPHS), (n, 2)), rng.randint(0, 2, n)
    light = rng.randint(160, 256, (n, 3), np.uint8)
    places = _PLACES[rng.randint(0, len(_PLACES), (n, 2))]
    while len(near := np.flatnonzero((abs(places[:, 0] - places[:, 1]) < _SIZE).all(1))):
        places[near, 1] = _PLACES[rng.randint(0, len(_PLACES), len(near))]
    everyone, second = np.arange(n), np.flatnonzero(rng.random_sample(n) < relation)
    for i, (which, colour) in enumerate(((everyone, colours), (second, 1 - colours))):
        of, y, x = np.nonzero(_SHAPES[kinds[which, i]])
        image = which[of]
        y, x = y + places[image, i, 0], x + places[image, i, 1]
        images[image, colour[image], y, x] = light[image, i]
    images[everyone, colours, :_CUE, :_CUE] = light[:, 2, None, None]
    return images, kinds[:, 0].astype(np.int64)


def relational_parts(relation: float, train: int = TRAIN, test: int = TEST) -> dict[str, Any]:
    """The data set of that share: always the same images, from numpy's frozen generator."""
    images, labels = relational_images(train + test, relation, np.random.RandomState(0))
    return {
        "classes": tuple(GLYPHS),
        "flip": False,
        "train_images": images[:train],
        "train_labels": labels[:train],
        "test_images": images[train:],
        "test_labels": labels[train:],
    }
