"""Frames take points apart and put them together; residuals of all clients end up in one space."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist
from scipy.stats import special_ortho_group

from raydr.errors import DataError
from raydr.methods.sense import alignment
from raydr.methods.sense.alignment import LEAST_CORRELATION, align
from raydr.methods.sense.frames import AffineFrame, residual_factor
from raydr.methods.sense.prior import Prior


def drawn(rows: int, features: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, features))


@pytest.mark.parametrize(("anchors", "rank"), [(3, 2), (5, 4), (9, 6)])
def test_a_frame_takes_points_apart_and_puts_them_together(anchors: int, rank: int) -> None:
    frame, points = AffineFrame(drawn(anchors, 6) + 5.0), drawn(11, 6, seed=1)
    assert (frame.rank, frame.codimension) == (rank, 6 - rank)
    np.testing.assert_allclose(frame.points(frame.inside(points), frame.beside(points)), points, atol=1e-12)


def test_distances_to_anchors_tell_what_is_inside_and_how_far_the_rest_is() -> None:
    anchors, points = drawn(5, 8), drawn(7, 8, seed=1)
    frame = AffineFrame(anchors)
    coordinates, heights = frame.located(cdist(points, anchors, "sqeuclidean"))
    np.testing.assert_allclose(coordinates, frame.inside(points), atol=1e-12)
    np.testing.assert_allclose(heights, np.linalg.norm(frame.beside(points), axis=1), atol=1e-12)


def test_affinely_dependent_anchors_span_less_and_stay_exact_in_it() -> None:
    anchors = drawn(4, 8)
    dependent = np.vstack([anchors, anchors.mean(axis=0), 2 * anchors[0] - anchors[1]])
    assert AffineFrame(dependent).rank == AffineFrame(anchors).rank == 3
    points = drawn(5, 8, seed=2)
    inside, _ = AffineFrame(dependent).located(cdist(points, dependent, "sqeuclidean"))
    alone, _ = AffineFrame(anchors).located(cdist(points, anchors, "sqeuclidean"))
    np.testing.assert_allclose(pdist(inside), pdist(alone), atol=1e-12)


@pytest.mark.parametrize("rows", [0, 1, 3, 40])
def test_the_factor_tells_the_distances_within_a_client_and_no_direction(rows: int) -> None:
    anchors, points = drawn(5, 12), drawn(rows, 12, seed=3)
    frame = AffineFrame(anchors)
    factor = residual_factor(frame, points)
    assert factor.shape == (rows, min(rows, frame.codimension))
    coordinates, heights = frame.located(cdist(points, anchors, "sqeuclidean") if rows else np.zeros((0, 5)))
    np.testing.assert_allclose(np.linalg.norm(factor, axis=1), heights, atol=1e-9)
    if rows > 1:
        np.testing.assert_allclose(pdist(np.column_stack([coordinates, factor])), pdist(points), atol=1e-9)
    turn = special_ortho_group.rvs(frame.codimension, random_state=np.random.default_rng(0))
    turned = frame.points(frame.inside(points), frame.beside(points) @ turn)
    np.testing.assert_allclose(residual_factor(frame, turned), factor, atol=1e-9)


@pytest.mark.parametrize(
    ("anchors", "words"),
    [
        (np.zeros((1, 3)), "at least 2 anchors"),
        (np.array([[0.0, 1.0], [np.nan, 0.0]]), "Anchor 1 is not finite"),
        (np.ones((4, 3)), "place nothing"),
    ],
)
def test_anchors_that_span_nothing_are_refused(anchors: np.ndarray, words: str) -> None:
    with pytest.raises(DataError, match=words):
        AffineFrame(anchors)


@pytest.mark.parametrize("wrong", [-1e-9, np.nan, np.inf])
def test_squared_distances_that_cannot_be_are_refused(wrong: float) -> None:
    anchors, squared = drawn(4, 3), np.ones((2, 4))
    squared[1, 2] = wrong
    with pytest.raises(DataError, match="row 1 to anchor 2"):
        AffineFrame(anchors).located(squared)


class TestAlignment:
    """Rows whose residual is a function of their coordinates, cut into clients that see only themselves."""

    @staticmethod
    def clients(
        noise: float, sizes: tuple[int, ...] = (90, 60, 0, 1, 80)
    ) -> tuple[list[AffineFrame], list[np.ndarray]]:
        rng = np.random.default_rng(4)
        latent = rng.normal(size=(sum(sizes), 3))
        beside = np.column_stack([np.sin(latent[:, 0]) + 2.0, latent[:, 1] ** 2, latent[:, 2] * 0.5])
        beside = (1 - noise) * beside + noise * rng.normal(size=beside.shape)
        rows = np.hstack([latent, beside])
        anchors = np.hstack([rng.normal(size=(4, 3)), np.zeros((4, 3))])
        return [AffineFrame(anchors)] * len(sizes), np.split(rows, np.cumsum(sizes)[:-1])

    @staticmethod
    def aligned(frames: list[AffineFrame], rows: list[np.ndarray]):
        inside = [frame.inside(part) for frame, part in zip(frames, rows, strict=True)]
        factors = [residual_factor(frame, part) for frame, part in zip(frames, rows, strict=True)]
        return align(frames, inside, factors, np.random.default_rng(0))

    def test_residuals_that_coordinates_predict_come_out_as_they_were(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        frames, rows = self.clients(noise=0.0)
        result = self.aligned(frames, rows)
        true, found = pdist(np.concatenate(rows)), pdist(result.points)
        monkeypatch.setattr(alignment, "SWEEPS", 0)
        begun = pdist(self.aligned(frames, rows).points)
        assert np.linalg.norm(found - true) < np.linalg.norm(begun - true) / 10
        assert (result.correlations[[0, 1, 4]] > LEAST_CORRELATION).all()
        assert np.isnan(result.correlations[2])

    def test_distances_within_a_client_and_to_anchors_stay_exact_whatever_is_turned(self) -> None:
        for noise in (0.0, 1.0):
            frames, rows = self.clients(noise)
            points = np.split(self.aligned(frames, rows).points, np.cumsum([len(part) for part in rows])[:-1])
            for frame, part, placed in zip(frames, rows, points, strict=True):
                np.testing.assert_allclose(
                    cdist(placed, frame.anchors), cdist(part, frame.anchors), atol=1e-9
                )
                np.testing.assert_allclose(pdist(placed), pdist(part), atol=1e-9)

    def test_residuals_that_nothing_predicts_stay_as_they_began(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        frames, rows = self.clients(noise=1.0)
        result = self.aligned(frames, rows)
        monkeypatch.setattr(alignment, "SWEEPS", 0)
        begun = self.aligned(frames, rows).points
        ends = np.cumsum([len(part) for part in rows])
        stayed = result.correlations <= LEAST_CORRELATION
        assert stayed[[0, 1, 4]].sum() >= 2
        for client in np.flatnonzero(stayed):
            own = slice(ends[client] - len(rows[client]), ends[client])
            np.testing.assert_array_equal(result.points[own], begun[own])

    def test_equal_streams_give_equal_bits(self) -> None:
        frames, rows = self.clients(noise=0.2)
        assert self.aligned(frames, rows).points.tobytes() == self.aligned(frames, rows).points.tobytes()


def test_the_prior_expects_what_a_regression_on_many_points_predicts() -> None:
    """E[x | V x] of a Gaussian is the linear regression of x on V x; its residual is orthogonal to V x."""
    rng = np.random.default_rng(0)
    known = rng.normal(size=(4000, 3)) @ rng.normal(size=(3, 6)) + 0.3 * rng.normal(size=(4000, 6)) + 2.0
    frame = AffineFrame(known[:4])
    inside = frame.inside(known)
    expected = Prior.of(known).expected(frame, inside)
    design = np.column_stack([np.ones(len(known)), inside])
    regression = design @ np.linalg.lstsq(design, known, rcond=None)[0]
    np.testing.assert_allclose(expected, regression, atol=1e-3)
    np.testing.assert_allclose(frame.inside(expected), inside, atol=1e-3)
