"""SENSE of tables with many more features than anchors, in reduced coordinates without loss."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from inline_federations import federate
from scipy.spatial.distance import cdist, pdist

from raydr.arrays import Float64Array
from raydr.methods.sense.reduced_basis import Lift, Narrow
from raydr.methods.sense.server import SENSE, Completed, completed

FEATURES = 500


def drawn(rows: int, features: int, seed: int = 0) -> Float64Array:
    return np.random.default_rng(seed).normal(size=(rows, features))


def wide(rows: int, seed: int) -> Float64Array:
    """Return rows of a curved surface, so that the anchors determine the open part."""
    a, b = drawn(2, rows, seed)
    bent = np.column_stack([3.0 * a, 3.0 * b, a * b, a * a - 1.0, b * b - 1.0, np.sin(2.0 * a)])
    return np.asarray(bent @ drawn(6, FEATURES, 99) / 40.0)


@pytest.mark.parametrize(("count", "features"), [(1, 20), (5, 20), (12, 400)])
def test_narrow_coordinates_keep_the_inner_products_of_anchors(count: int, features: int) -> None:
    anchors = drawn(count, features)
    narrow = Narrow.of(anchors, 3)
    coordinates = narrow.of_anchors(anchors)
    assert coordinates.shape == (count, count + 3)
    np.testing.assert_allclose(coordinates @ coordinates.T, anchors @ anchors.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(coordinates[:, count:], 0.0)
    some = narrow.of_anchors(anchors[:1])  # the same for a subset of the anchors
    np.testing.assert_allclose(some, coordinates[:1], atol=1e-12)


def test_dependent_anchors_keep_their_inner_products() -> None:
    anchors = drawn(3, 50)[[0, 1, 2, 0, 1]]
    anchors[4] += anchors[2]
    coordinates = Narrow.of(anchors, 2).of_anchors(anchors)
    np.testing.assert_allclose(coordinates @ coordinates.T, anchors @ anchors.T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("room", "narrowed"), [(4, True), (5, False), (9, False)])
def test_few_features_are_not_reduced(room: int, narrowed: bool) -> None:
    anchors = drawn(5, 10)
    narrow = Narrow.of(anchors, room)
    assert (narrow.basis is not None) is narrowed
    if not narrowed:
        assert narrow.of_anchors(anchors) is anchors
        assert narrow.widened(anchors, np.random.default_rng(0)) is anchors


@pytest.mark.parametrize("points", [2, 30])
def test_widened_points_keep_all_distances(points: int) -> None:
    """With fewer points than free dimensions and with more, for any random directions."""
    anchors, room = drawn(6, FEATURES), 8
    narrow = Narrow.of(anchors, room)
    coordinates = drawn(points, 6 + room, seed=1)
    both = np.concatenate([narrow.of_anchors(anchors), coordinates])
    for seed in range(2):
        widened = narrow.widened(coordinates, np.random.default_rng(seed))
        assert widened.shape == (points, FEATURES)
        np.testing.assert_allclose(pdist(np.concatenate([anchors, widened])), pdist(both), rtol=1e-10)


def test_widening_restores_the_anchors() -> None:
    anchors = drawn(6, FEATURES)
    narrow = Narrow.of(anchors, 4)
    widened = narrow.widened(narrow.of_anchors(anchors), np.random.default_rng(0))
    np.testing.assert_allclose(widened, anchors, atol=1e-12)


@pytest.mark.parametrize("origin", [0.0, 1e6])
def test_lift_restores_anchors_and_keeps_distances(origin: float) -> None:
    """For any subset of rows, and with anchors of several tables, some dependent on others."""
    anchors, room = drawn(8, FEATURES), 5
    anchors[6] = anchors[2] + anchors[3]
    narrow = Narrow.of(anchors, room)
    coordinates = drawn(30, 8 + room, seed=1)
    both = np.concatenate([narrow.of_anchors(anchors), coordinates])
    shown = np.full(FEATURES, origin)
    tables = (anchors[:5] + origin, anchors[5:7] + origin, anchors[7:] + origin)
    lift = Lift(shown, tables, narrow.spanned)
    lifted = lift(both) - origin
    np.testing.assert_allclose(lifted[:8], anchors, atol=1e-8 if origin else 1e-12)
    np.testing.assert_allclose(pdist(lifted), pdist(both), rtol=1e-8)
    np.testing.assert_allclose(lift(both[3:4]) - origin, lifted[3:4], atol=1e-8)
    assert lift(both[:0]).shape == (0, FEATURES)


def test_lift_of_unreduced_coordinates_adds_the_origin() -> None:
    table = drawn(4, 3)
    np.testing.assert_array_equal(Lift(None)(table.astype(np.float32)), table.astype(np.float32))
    np.testing.assert_array_equal(Lift(np.arange(3.0))(table), table + np.arange(3.0))


@pytest.mark.parametrize("visibility", ["full", "partial"])
@pytest.mark.parametrize("regime", ["multisite", "pointwise"])
def test_lifted_points_equal_the_records_along_the_anchors(regime: str, visibility: str) -> None:
    """Lifted points also keep the records' distances to every anchor that their client sees."""
    table, public = wide(40, seed=3) + 2.0, wide(200, seed=50) + 2.0
    parts = list(table[:, None]) if regime == "pointwise" else np.split(table, [14, 27])
    settings = SENSE(regime=regime, visibility=visibility, anchors=5, embedder="umap")
    known = completed(federate(parts, public=public), settings)
    assert known.narrow.basis is not None
    assert known.lift is not None
    rows = known.lift(known.points)
    for client, part in enumerate(parts):
        own, rows = rows[: len(part)], rows[len(part) :]
        anchors = known.anchors.seen_by(client)
        np.testing.assert_allclose(cdist(own, anchors), cdist(part, anchors), rtol=1e-6)
        # The part of a record that anchors determine is exact in every feature.
        along = np.linalg.svd(anchors - anchors[0], full_matrices=False)[2][: len(anchors) - 1]
        np.testing.assert_allclose(own @ along.T, part @ along.T, atol=1e-6)


@pytest.mark.parametrize(
    ("geometry", "regime", "visibility"),
    [
        pytest.param(*case, marks=pytest.mark.slow if case == ("euclidean", "pointwise", "partial") else ())
        for case in product(("euclidean", "hyperbolic"), ("multisite", "pointwise"), ("full", "partial"))
    ],
)
def test_distances_equal_those_in_all_features(
    geometry: str, regime: str, visibility: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare all distances between records, except where alignment stops a few per cent short of its limit.

    This exception is `multisite` with local anchors, where only records of one client are compared.
    """
    table, public = wide(40, seed=3), wide(200, seed=50)
    parts = list(table[:, None]) if regime == "pointwise" else np.split(table, [14, 27])
    settings = SENSE(geometry=geometry, regime=regime, visibility=visibility, anchors=5, embedder="umap")

    def served() -> Completed:
        return completed(federate(parts, public=public), settings)

    def distances(known: Completed) -> Float64Array:
        return np.sqrt(known.geometry.squared_distance_block(0, 40), dtype=np.float64)

    narrow = served()
    assert narrow.narrow.basis is not None
    assert narrow.points.shape[1] < FEATURES
    monkeypatch.setattr(Narrow, "of", _all_features)
    whole = served()
    assert whole.narrow.basis is None
    off = np.abs(distances(narrow) - distances(whole)) / distances(whole).mean()
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    compared = np.ones_like(off, bool)
    if (regime, visibility) == ("multisite", "partial"):
        compared = np.equal.outer(owner, owner)
        assert off.max() < 0.1
    assert off[compared].max() < 1e-4
    # The rest depends on alignment.
    texts = [known.notes[0].text.split("\n\n")[:2] for known in (narrow, whole)]
    assert texts[0] == texts[1]


def _all_features(anchors: Float64Array, room: int) -> Any:
    return Narrow(None, 0)


def test_plan_counts_the_coordinates_of_pointwise_records() -> None:
    parts = list(drawn(30, FEATURES)[:, None])
    settings = SENSE(regime="pointwise", anchors=9, anchor_source="random")
    points = completed(federate(parts), settings).points
    assert settings.coordinate_bytes(30, FEATURES) == 4 * points.nbytes
    assert SENSE(anchors=9).coordinate_bytes(30, FEATURES) == 4 * 8 * 30 * FEATURES
