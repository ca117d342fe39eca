"""An encoder of features, from which landmark NE starts again, as one of coordinates."""

from __future__ import annotations

import numpy as np
import pytest

from raydr.arrays import Float64Array
from raydr.methods.fedne.encoder import Architecture, initial_weights, place
from raydr.methods.fedne.landmark import of_coordinates, of_features
from raydr.statistics.scaling import Scaling


def axes(features: int, count: int, seed: int) -> Float64Array:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(features, count)))[0]


@pytest.mark.parametrize("count", [3, 7])
def test_places_within_the_span_are_the_same(count: int) -> None:
    """The earlier run had another mean, another scale and other axes."""
    random = np.random.default_rng(0)
    wide, narrow = Architecture(7, (16, 8)), Architecture(count, (16, 8))
    weights = initial_weights(wide, random)
    before = Scaling(random.normal(size=7), np.full(7, 0.4))
    now = Scaling(random.normal(size=7), np.full(7, 1.7))
    directions = axes(7, count, 1)
    coordinates = random.normal(size=(50, count)).astype(np.float32)
    rows = now.shift + (coordinates / 1.7) @ directions.T
    ours = of_coordinates(wide.parts(weights), directions, before, now)
    theirs = place(wide, weights, ((rows - before.shift) * before.factor).astype(np.float32))
    assert np.allclose(place(narrow, ours, coordinates), theirs, atol=1e-5)
    assert not np.allclose(theirs, 0.0, atol=1e-2)


def test_an_encoder_of_coordinates_comes_back() -> None:
    directions, narrow = axes(6, 4, 0), Architecture(4, (5,))
    weights = initial_weights(narrow, np.random.default_rng(0))
    same = Scaling(np.arange(6.0), np.full(6, 0.3))
    wide = Architecture(6, (5,))
    there = wide.parts(of_features(narrow.parts(weights), directions))
    assert np.allclose(of_coordinates(there, directions, same, same), weights, atol=1e-6)
