"""Expected cosines between residuals of pointwise records, from left-out anchors."""

from __future__ import annotations

import numpy as np
import pytest
from inline_federations import federate
from scipy.spatial.distance import cdist
from sklearn.datasets import load_breast_cancer, load_digits

from raydr.arrays import Float64Array
from raydr.geometry.expected_points import ExpectedPoints
from raydr.geometry.points import Geometry, Points
from raydr.geometry.trilateration import Trilateration, trilateration
from raydr.journal import Journal
from raydr.methods.sense import residual_cosines
from raydr.methods.sense.frames import AffineFrame
from raydr.methods.sense.residual_cosines import fitted_curve
from raydr.methods.sense.server import SENSE, completed, draw, serve


def squared(rows: Float64Array, others: Float64Array) -> Float64Array:
    return np.asarray(cdist(rows, others, "sqeuclidean"))


def solver_of(anchors: Float64Array) -> Trilateration:
    return trilateration(anchors, 4.0 * float(((anchors - anchors.mean(axis=0)) ** 2).sum(axis=1).max()))


def located(rows: Float64Array, anchors: Float64Array) -> tuple[Trilateration, Float64Array, Float64Array]:
    solver = solver_of(anchors)
    seen = squared(rows, anchors)
    coordinates = solver.coordinates(seen)
    return solver, coordinates, np.sqrt(solver.squared_residuals(seen, coordinates))


def test_pairs_are_those_of_trilateration_without_the_anchor() -> None:
    """One frame gives what as many frames as anchors give, each without one of them."""
    rng = np.random.default_rng(0)
    rows, anchors = rng.normal(size=(40, 9)), rng.normal(size=(5, 9))
    t, cosines = residual_cosines._left_out(*_arguments(rows, anchors))
    for left_out in range(5):
        others = np.delete(anchors, left_out, axis=0)
        solver, coordinates, _ = located(rows, others)
        _, own, _ = located(anchors[left_out : left_out + 1], others)
        residuals = rows - solver.points(coordinates)
        residual = anchors[left_out] - solver.points(own)[0]
        lengths, length = np.linalg.norm(residuals, axis=1), np.linalg.norm(residual)
        expected = residuals @ residual / (lengths * length)
        base = ((coordinates - own) ** 2).sum(axis=1) + (lengths - length) ** 2
        np.testing.assert_allclose(cosines.reshape(40, 5)[:, left_out], expected, rtol=1e-9)
        np.testing.assert_allclose(t.reshape(40, 5)[:, left_out], base / (2 * lengths * length), rtol=1e-9)


def _arguments(
    rows: Float64Array, anchors: Float64Array
) -> tuple[Trilateration, Float64Array, Float64Array, Float64Array]:
    solver, coordinates, heights = located(rows, anchors)
    return solver, anchors, coordinates, heights


def test_an_anchor_that_others_span_is_not_left_out() -> None:
    rng = np.random.default_rng(1)
    rows, anchors = rng.normal(size=(20, 9)), rng.normal(size=(5, 9))
    dependent = np.concatenate(
        [anchors, anchors[:2].mean(axis=0, keepdims=True)]
    )  # in the line of two others
    _, cosines = residual_cosines._left_out(*_arguments(rows, dependent))
    assert len(cosines) == 3 * 20  # not itself, and not those two
    line = np.linspace(0.0, 1.0, 6)[:, None] * np.ones(9)
    assert not fitted_curve(*_arguments(rows, line), 0.1).amounts.size


def test_residuals_in_random_directions_are_orthogonal() -> None:
    scattered = np.random.default_rng(2).normal(size=(400, 60))
    arguments = _arguments(scattered[20:], scattered[:20])
    typical = residual_cosines._median_between(*arguments[2:])
    assert abs(fitted_curve(*arguments, 0.1).cosine(np.array(typical))) < 0.1


def test_without_residuals_there_is_no_curve() -> None:
    table = np.random.default_rng(4).normal(size=(30, 3)) @ np.ones((3, 8))
    assert not fitted_curve(*_arguments(table[10:], table[:10]), 0.1).amounts.size


def _error(geometry: Geometry, true: Float64Array) -> float:
    found = np.sqrt(np.maximum(geometry.squared_distance_block(0, geometry.rows), 0.0))
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))


def _kept(geometry: Geometry, true: Float64Array) -> float:
    """Return the F-score of the 10 nearest neighbours."""
    found = geometry.squared_distance_block(0, geometry.rows) + np.diag(np.full(geometry.rows, np.inf))
    nearest = [
        np.argsort(table, axis=1)[:, :10] for table in (found, true + np.diag(np.full(len(true), np.inf)))
    ]
    return float(np.mean([len(np.intersect1d(a, b)) / 10 for a, b in zip(*nearest, strict=True)]))


def test_the_map_is_drawn_with_residuals_in_one_direction() -> None:
    rows = np.random.default_rng(5).normal(size=(70, 9))
    quick = {"kind": "tsne", "early_iterations": 10, "iterations": 10, "perplexity": 10}
    settings = SENSE(regime="pointwise", anchors=5, anchor_source="random", embedder=quick)
    known, outcome = (run(federate(list(rows[:, None])), settings) for run in (completed, serve))
    drawn = draw(Points(known.points.astype(np.float32)), known.points, settings, 0, Journal())
    np.testing.assert_array_equal(outcome.embedding, drawn.embedding)
    assert isinstance(outcome.geometry, ExpectedPoints)


def test_with_two_open_dimensions_residuals_have_one_direction() -> None:
    table = np.random.default_rng(6).normal(size=(60, 8))
    for anchors, expects in ((7, False), (6, True)):
        settings = SENSE(regime="pointwise", anchors=anchors)
        known = completed(federate(list(table[10:, None]), public=table[:10]), settings)
        assert isinstance(known.geometry, ExpectedPoints) == expects


def test_the_iteration_starts_in_all_open_directions() -> None:
    """On a wide table the closed form needs one open direction, and the server keeps no others."""
    table = np.random.default_rng(7).normal(size=(30, 40))
    for solver, directions in (("closed-form", 1), ("smacof", 25)):
        settings = SENSE(regime="pointwise", anchors=5, solver=solver, iterations=3)
        known = completed(federate(list(table[5:, None]), public=table[:5]), settings)
        anchors = known.narrow.of_anchors(known.space.points(known.anchors.common))
        hull = AffineFrame(anchors)
        outside = known.points - hull.solver.points(hull.projected(known.points))
        assert np.linalg.matrix_rank(outside, tol=1e-6) == directions


DIGITS = load_digits().data[:, load_digits().data.std(axis=0) > 0]
CANCER = load_breast_cancer().data
CANCER = (CANCER - CANCER.mean(axis=0)) / CANCER.std(axis=0)


@pytest.mark.parametrize("anchors", [5, 10, 25])
@pytest.mark.parametrize("source", ["sample", "random"])
@pytest.mark.parametrize("table", [DIGITS, CANCER], ids=["digits", "cancer"])
def test_distances_are_nearer_than_those_of_the_iteration_and_neighbours_no_worse(
    table: Float64Array, source: str, anchors: int
) -> None:
    """Compared with residuals in one direction, and with P3's iteration from random points."""
    chosen = table[np.random.default_rng(3).permutation(len(table))]
    rows, public = chosen[60:360], chosen[:60]
    true = np.sqrt(squared(rows, rows))
    base: dict[str, object] = {"regime": "pointwise", "anchors": anchors, "anchor_source": source}
    context = {"public": public} if source == "sample" else {}
    known = completed(federate(list(rows[:, None]), **context), SENSE(**base))
    assert isinstance(known.geometry, ExpectedPoints)
    iterated = completed(
        federate(list(rows[:, None]), **context), SENSE(**base, solver="smacof", iterations=60)
    )
    one_direction = Points(known.points)
    assert _error(known.geometry, true) < _error(iterated.geometry, true)
    assert _error(known.geometry, true) < 0.75 * _error(one_direction, true)
    assert _kept(known.geometry, true) > _kept(one_direction, true) - 0.02
    assert _kept(known.geometry, true) > _kept(iterated.geometry, true)
