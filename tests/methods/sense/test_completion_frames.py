"""Frames split and restore points; residuals of all clients end up in one space."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist
from scipy.stats import special_ortho_group

from raydr.errors import DataError
from raydr.methods.sense.alignment import align
from raydr.methods.sense.comparison import NEIGHBORS, SEARCHED_ROWS, Residuals, any_rotations, some_of
from raydr.methods.sense.frames import AffineFrame, residual_factor, sparse_residual_factor
from raydr.methods.sense.prior import Prior
from raydr.methods.sense.recurrence import Recurrence, showing
from raydr.methods.sense.spaces import EuclideanSpace
from raydr.sparse_rows import SparseRows


def drawn(rows: int, features: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, features))


@pytest.mark.parametrize(("anchors", "rank"), [(3, 2), (5, 4), (9, 6)])
def test_frame_splits_and_restores_points(anchors: int, rank: int) -> None:
    frame, points = AffineFrame(drawn(anchors, 6) + 5.0), drawn(11, 6, seed=1)
    assert (frame.rank, frame.codimension) == (rank, 6 - rank)
    np.testing.assert_allclose(frame.points(frame.inside(points), frame.outside(points)), points, atol=1e-12)


def test_distances_to_anchors_give_coordinates_and_heights() -> None:
    anchors, points = drawn(5, 8), drawn(7, 8, seed=1)
    frame = AffineFrame(anchors)
    coordinates, heights = frame.located(cdist(points, anchors, "sqeuclidean"))
    np.testing.assert_allclose(coordinates, frame.inside(points), atol=1e-12)
    np.testing.assert_allclose(heights, np.linalg.norm(frame.outside(points), axis=1), atol=1e-12)


def test_dependent_anchors_are_exact_in_their_span() -> None:
    anchors = drawn(4, 8)
    dependent = np.vstack([anchors, anchors.mean(axis=0), 2 * anchors[0] - anchors[1]])
    assert AffineFrame(dependent).rank == AffineFrame(anchors).rank == 3
    points = drawn(5, 8, seed=2)
    inside, _ = AffineFrame(dependent).located(cdist(points, dependent, "sqeuclidean"))
    alone, _ = AffineFrame(anchors).located(cdist(points, anchors, "sqeuclidean"))
    np.testing.assert_allclose(pdist(inside), pdist(alone), atol=1e-12)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_residual_factor_of_sparse_rows(rows: int, offset: float) -> None:
    """Rows without numbers, equal rows, a row that is an anchor, and a column without zeros far from 0."""
    random = np.random.default_rng(0)
    table = np.where(random.random((45, 30)) < 0.2, random.normal(size=(45, 30)), 0.0)
    table[[1, 2]], table[3], table[40] = 0.0, table[4], table[5]
    table[:, 7] = random.normal(size=45) + offset
    space = EuclideanSpace().around(table[40:])
    frame, own = space.frame(space.points(table[40:])), table[:rows]
    factor = sparse_residual_factor(frame, SparseRows.of(own), space.origin)
    expected = residual_factor(frame, space.points(own))
    assert factor.shape == expected.shape
    np.testing.assert_allclose(factor, expected, atol=1e-8)
    np.testing.assert_allclose(factor @ factor.T, expected @ expected.T, atol=1e-9)


@pytest.mark.parametrize("rows", [0, 1, 3, 40])
def test_residual_factor_reveals_distances_but_no_direction(rows: int) -> None:
    anchors, points = drawn(5, 12), drawn(rows, 12, seed=3)
    frame = AffineFrame(anchors)
    factor = residual_factor(frame, points)
    assert factor.shape == (rows, min(rows, frame.codimension))
    coordinates, heights = frame.located(cdist(points, anchors, "sqeuclidean") if rows else np.zeros((0, 5)))
    np.testing.assert_allclose(np.linalg.norm(factor, axis=1), heights, atol=1e-9)
    if rows > 1:
        np.testing.assert_allclose(pdist(np.column_stack([coordinates, factor])), pdist(points), atol=1e-9)
    turn = special_ortho_group.rvs(frame.codimension, random_state=np.random.default_rng(0))
    turned = frame.points(frame.inside(points), frame.outside(points) @ turn)
    np.testing.assert_allclose(residual_factor(frame, turned), factor, atol=1e-9)


@pytest.mark.parametrize(
    ("anchors", "words"),
    [
        (np.zeros((1, 3)), "at least 2 anchors"),
        (np.array([[0.0, 1.0], [np.nan, 0.0]]), "Anchor 1 is not finite"),
        (np.ones((4, 3)), "cannot place rows"),
    ],
)
def test_anchors_without_a_span_are_refused(anchors: np.ndarray, words: str) -> None:
    with pytest.raises(DataError, match=words):
        AffineFrame(anchors)


@pytest.mark.parametrize("wrong", [-1e-9, np.nan, np.inf])
def test_invalid_squared_distances_are_refused(wrong: float) -> None:
    anchors, squared = drawn(4, 3), np.ones((2, 4))
    squared[1, 2] = wrong
    with pytest.raises(DataError, match="row 1 to anchor 2"):
        AffineFrame(anchors).located(squared)


def refused(frame: AffineFrame, squared: np.ndarray) -> bool:
    """Return whether rows at these squared distances are refused for their precision."""
    try:
        frame.located(squared)
    except DataError as reason:
        return "anchor_path" in str(reason)
    return False


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("unit", "width"), [(1.0, 1.0), (1e-3, 1.0), (1.0, 30.0)])
def test_rows_are_refused_exactly_where_precision_is_lost(seed: int, unit: float, width: float) -> None:
    """Placed rows keep their distances; rows just beyond the limit would not."""
    anchors, rows = unit * drawn(5, 4, seed=seed), unit * width * drawn(40, 4, seed=seed + 10)
    direction = np.ones(4) / 2.0
    frame, errors = AffineFrame(anchors), {}
    for exponent in range(3, 11):
        far = rows + unit * 10.0**exponent * direction
        squared = ((far[:, None] - anchors[None]) ** 2).sum(axis=2)
        error = np.abs(pdist(frame.solver.coordinates(squared)) - pdist(far)).max() / np.median(pdist(far))
        if refused(frame, squared):
            errors[exponent] = error
        else:
            assert not errors  # nearer ones are placed, farther ones not
            assert error < 3e-2
    assert errors
    assert errors[10] > 0.1
    AffineFrame(anchors, noise=unit**2).located(squared)  # noise disables the check


def test_row_far_from_all_others_is_placed() -> None:
    """Its rounding is large next to the others' distances but not next to its own."""
    anchors, rows = drawn(5, 4), drawn(40, 4, seed=3)
    rows[0] *= 1e8
    coordinates, _ = AffineFrame(anchors).located(((rows[:, None] - anchors[None]) ** 2).sum(axis=2))
    np.testing.assert_allclose(pdist(coordinates), pdist(rows), rtol=1e-6)


def test_widely_spread_rows_are_placed_by_close_anchors() -> None:
    anchors, rows = drawn(5, 4), 1e8 * drawn(40, 4, seed=3)
    coordinates, _ = AffineFrame(anchors).located(((rows[:, None] - anchors[None]) ** 2).sum(axis=2))
    np.testing.assert_allclose(pdist(coordinates), pdist(rows), rtol=1e-6)


@pytest.mark.parametrize("rows", [1, 2, SEARCHED_ROWS, SEARCHED_ROWS + 1, 7 * SEARCHED_ROWS + 3])
def test_searched_rows_are_few_and_spread_over_the_table(rows: int) -> None:
    """A file that is sorted by class would show the first class alone."""
    tried = np.arange(rows)[some_of(rows)]
    assert min(rows, SEARCHED_ROWS // 2) <= len(tried) <= SEARCHED_ROWS
    assert rows - tried[-1] <= np.diff(tried, prepend=-1).max()


class TestAlignment:
    """Rows whose residual is a function of their coordinates, cut into clients that see only themselves."""

    @staticmethod
    def clients(
        noise: float, sizes: tuple[int, ...] = (90, 60, 0, 1, 80)
    ) -> tuple[list[AffineFrame], list[np.ndarray]]:
        rng = np.random.default_rng(4)
        latent = rng.normal(size=(sum(sizes), 3))
        outer = np.column_stack([np.sin(latent[:, 0]) + 2.0, latent[:, 1] ** 2, latent[:, 2] * 0.5])
        outer = (1 - noise) * outer + noise * rng.normal(size=outer.shape)
        rows = np.hstack([latent, outer])
        anchors = np.hstack([rng.normal(size=(4, 3)), np.zeros((4, 3))])
        return [AffineFrame(anchors)] * len(sizes), np.split(rows, np.cumsum(sizes)[:-1])

    @staticmethod
    def aligned(frames: list[AffineFrame], rows: list[np.ndarray], **how):
        inside = [frame.inside(part) for frame, part in zip(frames, rows, strict=True)]
        factors = [residual_factor(frame, part) for frame, part in zip(frames, rows, strict=True)]
        return align(frames, inside, factors, np.random.default_rng(0), **how)

    @pytest.mark.parametrize("values_too", [False, True])
    def test_predictable_residuals_are_recovered(self, values_too: bool) -> None:
        frames, rows = self.clients(noise=0.0)
        result = self.aligned(frames, rows, anchors=frames[0].anchors if values_too else None)
        several = np.repeat([len(part) > 1 for part in rows], [len(part) for part in rows])
        true, found = pdist(np.concatenate(rows)[several]), pdist(result.points[several])
        begun = pdist(self.aligned(frames, rows, sweeps=0).points[several])
        assert np.linalg.norm(found - true) < np.linalg.norm(begun - true) / 30
        assert result.turned[[0, 1, 4]].all()
        assert result.settled[[0, 1, 4]].all()
        assert not result.turned[[2, 3]].any()

    def test_alignment_keeps_distances_within_clients_and_to_anchors(self) -> None:
        for noise in (0.0, 1.0):
            frames, rows = self.clients(noise)
            points = np.split(self.aligned(frames, rows).points, np.cumsum([len(part) for part in rows])[:-1])
            for frame, part, placed in zip(frames, rows, points, strict=True):
                np.testing.assert_allclose(
                    cdist(placed, frame.anchors), cdist(part, frame.anchors), atol=1e-9
                )
                np.testing.assert_allclose(pdist(placed), pdist(part), atol=1e-9)

    def test_unpredictable_residuals_are_not_rotated(self) -> None:
        frames, rows = self.clients(noise=1.0)
        result = self.aligned(frames, rows)
        begun = self.aligned(frames, rows, sweeps=0).points
        ends = np.cumsum([len(part) for part in rows])
        stayed = ~result.turned
        assert stayed[[0, 1, 4]].sum() >= 2
        for client in np.flatnonzero(stayed):
            own = slice(ends[client] - len(rows[client]), ends[client])
            np.testing.assert_array_equal(result.points[own], begun[own])

    def test_unconfirmed_clients_are_not_rotated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Values recur or not: no rotation is better than all that are drawn, and the first alone sets the frame."""
        monkeypatch.setattr("raydr.methods.sense.alignment.LEAST_RANK", 1.0)
        frames, rows = self.clients(noise=0.2)
        result = self.aligned(frames, rows, anchors=frames[0].anchors)
        begun = self.aligned(frames, rows, sweeps=0)
        assert not result.turned.any()
        first = len(rows[0])
        np.testing.assert_array_equal(result.points[first:], begun.points[first:])

    def test_equal_streams_give_equal_bits(self) -> None:
        frames, rows = (of_all[:2] for of_all in self.clients(noise=0.2))
        for anchors in (None, frames[0].anchors):
            first, second = (self.aligned(frames, rows, anchors=anchors, sweeps=1) for _ in range(2))
            assert first.points.tobytes() == second.points.tobytes()


class TestRecurringValues:
    """Rows of codes and measurements that nothing predicts, of sites that have them in different shares."""

    @staticmethod
    def clients(open_dimensions: int, seed: int) -> tuple[AffineFrame, list[np.ndarray]]:
        rng = np.random.default_rng(seed)
        sites = []
        for shift in (-0.5, 0.0, 0.5):
            codes = np.rint(rng.normal(shift, 1.0, size=(150, 4)))
            sites.append(np.column_stack([codes, rng.normal(3 * shift, 1.0, size=(150, 2))]))
        directions = np.linalg.qr(rng.normal(size=(6, 6)))[0][: 6 - open_dimensions]
        anchors = rng.normal(size=(12, 6 - open_dimensions)) @ directions
        return AffineFrame(anchors), sites

    @pytest.mark.parametrize(
        ("open_dimensions", "seed", "offset"), [(1, 0, 0.0), (1, 1, 1e6), (2, 2, 1e6), (2, 3, 0.0)]
    )
    def test_recurring_values_determine_each_clients_rotation(
        self, open_dimensions: int, seed: int, offset: float
    ) -> None:
        frame, rows = self.clients(open_dimensions, seed)
        frame, rows = AffineFrame(frame.anchors + offset), [part + offset for part in rows]
        result = TestAlignment.aligned([frame] * 3, rows, anchors=frame.anchors)
        np.testing.assert_allclose(pdist(result.points), pdist(np.concatenate(rows)), atol=0.15)
        assert result.turned.all()
        assert result.settled.any()
        assert result.recurring >= 4

    @pytest.mark.parametrize("copies", [1, 6])
    def test_comparison_uses_only_the_rows_of_each_part(self, copies: int) -> None:
        """Beside brute force; more rows than a block has, of which threads take turns."""
        frame, rows = self.clients(2, 0)
        rng = np.random.default_rng(1)
        own = np.concatenate([rows[0]] * copies)
        own += 1e-3 * rng.normal(size=own.shape)
        others, low = np.concatenate(rows[1:]), np.arange(300) < 150
        residuals = Residuals(frame, frame.inside(own), residual_factor(frame, own), frame.anchors)
        parts = [np.ones(300, dtype=bool), low, ~low]
        known = np.column_stack([residuals.coordinates, np.linalg.norm(residuals.factor, axis=1)])
        for part, found in zip(parts, residuals.compared_with(others, parts), strict=True):
            theirs = others[part]
            outer = frame.outside(theirs)
            squared = cdist(
                known, np.column_stack([frame.inside(theirs), np.linalg.norm(outer, axis=1)]), "sqeuclidean"
            )
            nearest = np.argsort(squared, axis=1)[:, :NEIGHBORS]
            near = np.take_along_axis(squared, nearest, axis=1)
            floor = 1e-3 * float(np.median(squared))
            weights = 1.0 / (near + floor)
            predicted = (weights[:, :, None] * outer[nearest]).sum(axis=1) / weights.sum(axis=1)[:, None]
            # The floor uses some of the distances, which changes an average of neighbours slightly.
            np.testing.assert_allclose(found.predicted, predicted, atol=2e-3)
            np.testing.assert_allclose(found.weights, 1.0 / np.sqrt(near.mean(axis=1) + floor), rtol=0.02)
            alone = Recurrence.of(np.concatenate([frame.anchors, theirs]))
            assert found.recurrence is not None
            np.testing.assert_array_equal(found.recurrence.logs, alone.logs)

    def test_columns_that_no_rotation_moves_are_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rows = np.rint(drawn(150, 9) * 2)
        anchors = drawn(12, 9, seed=1)
        anchors[:, [2, 5]] = 0.0
        frame, widths, of = AffineFrame(anchors), [], Recurrence.of

        def recorded(rows: np.ndarray) -> Recurrence:
            widths.append(rows.shape[1])
            return of(rows)

        monkeypatch.setattr(Recurrence, "of", recorded)
        residuals = Residuals(frame, frame.inside(rows), residual_factor(frame, rows), anchors)
        best = residuals.alone()
        assert set(widths) == {2}
        monkeypatch.setattr(
            "raydr.methods.sense.comparison.showing", lambda inside, moves: np.arange(inside.shape[1])
        )
        all_columns = residuals.alone()
        assert widths[-1] == 9
        worth, expected = (
            of(frame.points(residuals.coordinates, residuals.factor @ turn)).worth
            for turn in (best, all_columns)
        )
        assert worth == pytest.approx(expected, rel=1e-3)  # either column can be either axis

    @pytest.mark.parametrize("offset", [0.0, 1e8])
    def test_a_distant_value_does_not_hide_moves_of_the_others(self, offset: float) -> None:
        rows = drawn(300, 3) + offset
        rows[7, 1] += 1e6
        moves = np.array([0.0, 0.01, 0.01])
        np.testing.assert_array_equal(showing(rows, moves), [1, 2])

    def test_client_with_different_values_is_not_settled(self) -> None:
        rng = np.random.default_rng(0)
        settled = 0
        for seed in range(3):
            frame, rows = self.clients(2, seed)
            rows[2] = rng.normal(size=rows[2].shape)
            settled += int(TestAlignment.aligned([frame] * 3, rows, anchors=frame.anchors).settled[2])
        assert settled <= 1

    def test_codes_recur_and_measurements_do_not_in_any_unit(self) -> None:
        rng = np.random.default_rng(0)
        rows = np.column_stack([rng.normal(size=(400, 30)), rng.integers(0, 5, size=(400, 2)), np.ones(400)])
        found = Recurrence.of(rows)
        assert {30, 31} <= set(found.columns) <= set(range(32))
        assert len(found.columns) <= 3
        for scale, offset in ((1e-6, 0.0), (1e6, 0.0), (1.0, 1e5)):
            again = Recurrence.of(rows * scale + offset)
            np.testing.assert_array_equal(again.columns, found.columns)
            assert again.worth == pytest.approx(found.worth, rel=1e-3)

    def test_unique_value_is_no_evidence(self) -> None:
        found = Recurrence.of(np.random.default_rng(0).integers(0, 5, size=(400, 1)).astype(float))
        none = np.zeros((1, 1))
        codes, between, far = (
            found.evidence(np.full((1, 1), value), none, none, none[None])[0] for value in (3.0, 3.5, 1e9)
        )
        assert codes > 0.5 > 0.0 > between
        assert far == 0.0

    def test_evidence_interpolates_densities_at_rotated_rows(self) -> None:
        rng = np.random.default_rng(0)
        rows = np.column_stack([rng.integers(0, 5, size=(400, 3)), rng.normal(size=(400, 2))]).astype(float)
        found = Recurrence.of(rows[:, [3, 0, 1, 4, 2]])
        inside, factor, axes = rng.normal(size=(7, 5)), rng.normal(size=(7, 2)), rng.normal(size=(3, 5))
        turns = any_rotations(4, 2, 3, rng)
        expected = [
            sum(
                np.interp(
                    values[:, column], first + step * np.arange(len(logs)), logs, left=0.0, right=0.0
                ).sum()
                for column, first, step, logs in zip(
                    found.columns, found.first, found.step, found.logs, strict=True
                )
            )
            for values in (inside + factor @ turn @ axes for turn in turns)
        ]
        assert found.columns.tolist() == [1, 2, 4]
        np.testing.assert_allclose(found.evidence(inside, factor, axes, turns), expected, rtol=1e-9)


def test_prior_expectation_equals_linear_regression() -> None:
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


class TestPriorOfAllRecords:
    """Records with their own random anchors, drawn without the correlations of features."""

    @staticmethod
    def records(count: int, seed: int = 0) -> tuple[np.ndarray, list[AffineFrame], list[np.ndarray], Prior]:
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=(count, 2)) @ rng.normal(size=(2, 6)) + 0.1 * rng.normal(size=(count, 6)) + 5.0
        anchors = rows.mean(axis=0) + rows.std(axis=0) * rng.normal(size=(count, 5, 6))
        frames = [AffineFrame(seen) for seen in anchors]
        inside = [frame.inside(row[None]) for frame, row in zip(frames, rows, strict=True)]
        return rows, frames, inside, Prior.of(anchors.reshape(-1, 6))

    @staticmethod
    def points(prior: Prior, frames: list[AffineFrame], inside: list[np.ndarray]) -> np.ndarray:
        return np.concatenate([prior.expected(*known) for known in zip(frames, inside, strict=True)])

    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_fitting_to_records_improves_the_prior(self, seed: int) -> None:
        rows, frames, inside, prior = self.records(200, seed)
        fitted = prior.fitted(frames, [coordinates[0] for coordinates in inside])
        before, after = (
            np.linalg.norm(self.points(known, frames, inside) - rows) for known in (prior, fitted)
        )
        assert after < before / 3

    def test_moments_of_many_records_outweigh_few_records(self) -> None:
        _, frames, inside, _ = self.records(12)
        known = Prior.of(self.records(4_000)[0])
        coordinates = [found[0] for found in inside]
        moved = [
            np.abs(known.fitted(frames, coordinates, records).covariance - known.covariance).max()
            for records in (4_000, 40)
        ]
        assert 0.0 < moved[0] < moved[1] / 10

    def test_covariance_is_fitted_unless_it_is_too_wide(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _, frames, inside, prior = self.records(5)
        needed = 5 * len(prior.mean) ** 2 * frames[0].rank
        for effort, fitted in ((needed, True), (needed - 1, False)):
            monkeypatch.setattr("raydr.methods.sense.prior._EFFORT", effort)
            assert (prior.fitted(frames, [found[0] for found in inside]) is not prior) is fitted

    def test_distances_to_anchors_and_from_their_span_are_kept(self) -> None:
        rows, frames, inside, prior = self.records(20)
        for frame, found, row in zip(frames, inside, rows, strict=True):
            heights = np.linalg.norm(frame.outside(row[None]), axis=1)
            point = prior.expected(frame, found, heights)
            np.testing.assert_allclose(
                cdist(point, frame.anchors), cdist(row[None], frame.anchors), atol=1e-9
            )
