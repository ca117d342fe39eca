"""The private map's numbers: sums, frames, cells and places equal plain formulas on all rows together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attacked import federation_seen
from inline_federations import federate
from pydantic import ValidationError
from scipy.spatial.distance import cdist
from tiny import tiny_scenario

from raydr.arrays import Float64Array, FloatArray
from raydr.embedding.placing import conditional
from raydr.federation import Client, Context, Request
from raydr.federation.rehearsal import Rehearsal, RehearsalClients
from raydr.methods import METHODS
from raydr.methods.private_map import cells as cells_room
from raydr.methods.private_map import frame as frame_room
from raydr.methods.private_map.cells import heavy_cells, private_cells, shrunken_steps
from raydr.methods.private_map.frame import FrameAxes, leading_axes, private_axes, view
from raydr.methods.private_map.messages import (
    CellSumsRequest,
    FirstMomentsRequest,
    Frame,
    PlaceRequest,
    ScatterRequest,
    View,
    cell_sums,
    first_moments,
    places,
    scatter,
)
from raydr.methods.private_map.placing import Landmarks, own_rows, place
from raydr.methods.private_map.server import PrivateMap, draw
from raydr.methods.private_map.settings import NoiseShares
from raydr.privacy.accounting import Budget, gaussian_multiplier
from raydr.privacy.mechanism import Relation

QUICK: dict[str, Any] = {"early_iterations": 5, "iterations": 5, "placing_iterations": 5}


def settings_of(**more: Any) -> PrivateMap:
    return PrivateMap(**{"epsilon": 1e9, "bounds": (2.0, 10.0), **QUICK, **more})


def budget_of(settings: PrivateMap, clients: int = 1) -> NoiseShares:
    return NoiseShares.of(settings, Budget(), clients)


def summand(request: Request[Any], rows: FloatArray) -> Float64Array:
    reply = type(request).client_part(Client(index=0, rows=rows, seed=0), request)
    return np.concatenate([np.ravel(value) for value in vars(reply).values()])


class TestSums:
    """The sums of a client, and the effect of a record on them."""

    @pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
    def test_declared_sensitivity_is_the_largest_change(self, relation: Relation) -> None:
        """Remove a record at the clip, or replace it: opposite, orthogonal, or opposite in the same cell."""
        sight, frame_mean = View(0.0, 2.0, None, None, 4), np.zeros(4)
        frame = Frame(sight, frame_mean, np.eye(4)[:, :2])
        here, noise = 2.0 * np.eye(4)[:1], budget_of(settings_of(relation=relation)).noise(1.0, 2.0)
        across = 2.0 * np.eye(4)[1:2]
        requests: list[tuple[Request[Any], FloatArray]] = [
            (FirstMomentsRequest(sight, 1, noise), -here),
            (ScatterRequest(sight, frame_mean, 2.0, 1, noise), across),
            (CellSumsRequest(frame, np.zeros((1, 2)), 2.0, 1, noise), -here),
        ]
        for request, there in requests:
            other = summand(request, there) if relation == "replace-one" else 0.0
            moved = float(np.linalg.norm(summand(request, here) - other))
            assert moved <= request.claimed_sensitivity(1) <= moved * (1.0 + 1e-8)

    def test_sums_stay_in_range_with_all_rows_at_the_clip(self) -> None:
        rows = np.full((5, 4), 9.0)
        sight = View(0.0, 2.0, None, None, 4)
        frame = Frame(sight, np.zeros(4), np.full((4, 1), 0.5))
        for request, most in (
            (FirstMomentsRequest(sight, 5), 5.0),
            (ScatterRequest(sight, np.zeros(4), 2.0, 5), 1.25),
            (CellSumsRequest(frame, np.zeros((1, 1)), 1.0, 5), 5.0),
        ):
            reply = type(request).client_part(Client(index=0, rows=rows, seed=0), request)
            ranges = type(reply).ranges(request, 5)
            assert max(np.abs(value).max() for value in vars(reply).values()) == pytest.approx(most)
            for name, value in vars(reply).items():
                assert ranges[name].shape == value.shape
                assert 5.0 <= ranges[name].largest <= 5.0 * (1.0 + 1e-8)

    def test_sums_do_not_depend_on_the_number_of_blocks(self) -> None:
        """With 5,000 rows, a fifth of them beyond the clip, and with none."""
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(5000, 3)) * np.array([1.0, 0.6, 0.3]) + 6.0
        sight, mean = View(6.0, 1.5, None, None, 3), np.array([0.1, -0.2, 0.05])
        turn = np.linalg.qr(rng.normal(size=(3, 2)))[0]
        centres = rng.normal(size=(4, 2))

        def cut(values: FloatArray, clip: float) -> Float64Array:
            lengths = np.linalg.norm(values, axis=1, keepdims=True)
            return np.asarray(values * np.minimum(1.0, clip / lengths))

        seen = cut(rows - 6.0, 1.5)
        assert 0.15 < (np.linalg.norm(rows - 6.0, axis=1) > 1.5).mean() < 0.25
        reported = first_moments(Client(index=0, rows=rows, seed=0), FirstMomentsRequest(sight, 5000)).packed
        plain = np.append(seen.sum(axis=0) / 1.5, (seen**2).sum() / 1.5**2)
        np.testing.assert_allclose(reported, plain, rtol=1e-5, atol=0.05)
        around = cut(seen - mean, 0.8) / 0.8
        triangle = scatter(
            Client(index=0, rows=rows, seed=0), ScatterRequest(sight, mean, 0.8, 5000)
        ).triangle
        np.testing.assert_allclose(triangle, (around.T @ around)[np.triu_indices(3)], rtol=1e-4, atol=0.05)
        frame = Frame(sight, mean, turn)
        points = (seen - mean) @ turn
        np.testing.assert_allclose(frame.coordinates(rows), points, atol=1e-6)
        np.testing.assert_array_equal(frame.coordinates(rows)[4321:4322], frame.coordinates(rows[4321:4322]))
        nearest = cdist(points, centres).argmin(axis=1)
        steps = cut(points - centres[nearest], 0.7) / 0.7
        found = cell_sums(Client(index=0, rows=rows, seed=0), CellSumsRequest(frame, centres, 0.7, 5000))
        np.testing.assert_array_equal(found.counts, 0.5 * np.bincount(nearest, minlength=4))
        np.testing.assert_allclose(
            found.residuals, [steps[nearest == cell].sum(axis=0) for cell in range(4)], rtol=1e-5, atol=1e-3
        )
        assert frame.coordinates(rows[:0]).shape == (0, 2)

    def test_coordinates_are_computed_once_for_all_rounds(self) -> None:
        frame = Frame(View(0.0, 2.0, None, None, 3), np.zeros(3), np.eye(3)[:, :2])
        client = Client(index=0, rows=np.ones((4, 3)), seed=0)
        kept = []
        for cells in (2, 3):
            cell_sums(client, CellSumsRequest(frame, np.zeros((cells, 2)), 1.0, 4))
            kept.append(client.memory["private map"])
        assert kept[0] is kept[1]

    def test_sums_are_exact_on_a_grid(self) -> None:
        """The order of 4,096 rows changes no digit; a single row is off by half a step of 2^-26."""
        rng = np.random.default_rng(1)
        rows, sight = rng.normal(size=(4096, 3)), View(0.0, 2.0, None, None, 3)
        orders = [rng.permutation(4096) for _ in range(8)]
        frame = Frame(sight, np.zeros(3), np.eye(3)[:, :2])
        mean, clip = np.full(3, 0.125), 1.5

        def asked(count: int) -> tuple[Request[Any], ...]:
            return (
                FirstMomentsRequest(sight, count),
                ScatterRequest(sight, mean, clip, count),
                CellSumsRequest(frame, np.zeros((1, 2)), clip, count),
            )

        for request in asked(4096):
            assert len({summand(request, rows[order]).tobytes() for order in orders}) == 1
        row = np.array([[0.3, -0.4, 0.7]])
        seen, around = row[0] / 2.0, (row[0] - mean) / clip
        expected = (
            np.append(seen, seen @ seen),
            np.outer(around, around)[np.triu_indices(3)],
            np.append(row[0, :2] / clip, 0.5),
        )
        for request, plain in zip(asked(1), expected, strict=True):
            np.testing.assert_allclose(summand(request, row), plain, rtol=0, atol=2.0**-25)


class TestSight:
    """Preparation of rows: centring, clipping, and folding of wide rows."""

    def test_rows_with_over_1024_features_are_folded(self) -> None:
        for features in (1024, 1025):
            seen = view(federate([np.zeros((2, features))]), settings_of())
            assert seen.sums == 1024
            assert (seen.bucket is None) == (seen.sign is None) == (features == 1024)
        assert seen.bucket is not None
        assert seen.sign is not None
        assert set(np.unique(seen.sign)) == {-1.0, 1.0}
        assert (seen.bucket.min() >= 0, seen.bucket.max() < 1024) == (True, True)

    def test_farthest_corner_of_the_bounds_is_not_clipped(self) -> None:
        method, corner = settings_of(), np.array([[2.0, 10.0, 10.0]])
        assert method.centre == 6.0
        np.testing.assert_array_equal(view(federate([corner]), method).of(corner), corner - 6.0)
        assert method.reach(3) <= np.linalg.norm(corner - 6.0) * (1.0 + 1e-8)
        assert settings_of(clip=3.0).reach(3) == 3.0
        unbounded = settings_of(bounds=None, clip=3.0)
        assert (unbounded.centre, unbounded.reach(7)) == (0.0, 3.0)

    def test_folded_features_are_on_a_grid_and_added_exactly(self) -> None:
        """Eight features: steps of 2^-39 of the clip, so that any sum of eight stays below 2^53 of them."""
        rng = np.random.default_rng(2)
        rows, clip = rng.normal(size=(400, 8)) / 3.0, 2.0
        rows *= np.minimum(1.0, 1.9 / np.linalg.norm(rows, axis=1, keepdims=True))
        sign, step = rng.choice(np.array([-1.0, 1.0]), 8), clip * 2.0**-39
        apart = View(0.0, clip, rng.permutation(8), sign, 8)
        assert apart.bucket is not None
        seen = apart.of(rows)
        np.testing.assert_array_equal(seen / step, np.rint(seen / step))
        errors = np.abs(seen[:, apart.bucket] - rows * sign)
        assert 0.4 * step < errors.max() <= 0.5 * step
        order, bucket = rng.permutation(8), np.array([0, 2, 2, 0, 2, 0, 0, 2])
        folded = View(0.0, clip, bucket, sign, 3).of(rows)
        again = View(0.0, clip, bucket[order], sign[order], 3).of(rows[:, order])
        np.testing.assert_array_equal(folded, again)
        plain = np.stack([(rows * sign)[:, bucket == each].sum(axis=1) for each in range(3)], axis=1)
        plain *= np.minimum(1.0, clip / np.linalg.norm(plain, axis=1, keepdims=True))
        np.testing.assert_allclose(folded, plain, atol=8 * step)
        assert View(0.0, clip, bucket, sign, 3).of(rows[:0]).shape == (0, 3)


class TestBudget:
    """Shares of the budget, and the numbers of cells that they allow."""

    @pytest.mark.parametrize("rounds", [1, 3, 7])
    def test_shares_equal_the_settings(self, rounds: int) -> None:
        """A twenty-fifth for the mean, three for the scatter; rounds by 1, 2, 3 and then 4 parts."""
        method = settings_of(epsilon=2.0, rounds=rounds)
        budget, whole = budget_of(method), gaussian_multiplier(2.0, Budget().delta)
        parts = np.minimum(4.0, np.arange(1.0, rounds + 1.0))
        spent = [(whole / each) ** 2 for each in (budget.first, budget.scatter, *budget.rounds)]
        assert spent == pytest.approx([0.04, 0.12, *(0.84 * parts / parts.sum())])

    @pytest.mark.parametrize(
        ("more", "rows", "expected"),
        [
            ({}, 10**6, (125, 500, 2000, 2000, 2000)),
            ({"rounds": 2}, 10**6, (500, 2000)),
            ({"rounds": 1}, 10**6, (2000,)),
            ({}, 50, (8, 12, 50, 50, 50)),
            ({"cells": 100, "rounds": 3}, 60, (8, 15, 60)),
            ({"cells": 100, "rounds": 3}, 1000, (8, 25, 100)),
            ({"cells": 5000, "rounds": 3}, 10**6, (312, 1250, 5000)),
            ({"epsilon": 1e-3, "rounds": 2}, 50, (4, 4)),
        ],
    )
    def test_cells_grow_from_a_sixteenth_up_to_the_rows(
        self, more: dict[str, Any], rows: int, expected: tuple[int, ...]
    ) -> None:
        method = settings_of(**more)
        assert budget_of(method).cells(method, rows) == expected

    def test_number_of_cells_follows_the_last_rounds_noise(self) -> None:
        """With two rounds, the last has two thirds of the budget after mean and scatter."""
        method = settings_of(epsilon=1.0, rounds=2)
        last = gaussian_multiplier(1.0, Budget().delta) / np.sqrt(0.84 * 2 / 3) * np.sqrt(1.25)
        count = int(20_000 / (7.0 * last))
        assert budget_of(method).cells(method, 20_000) == (count // 4, count)

    @pytest.mark.parametrize(
        ("key", "allowed", "refused"),
        [
            ("epsilon", 1e-3, 0.0),
            ("clip", 1e-3, 0.0),
            ("axes", 1, 0),
            ("axes", 200, 201),
            ("cells", 2, 1),
            ("cells", 20_000, 20_001),
            ("rounds", 1, 0),
            ("rounds", 100, 101),
            ("own", 0.0, -0.01),
            ("own", 0.99, 1.0),
            ("placing_iterations", 0, -1),
        ],
    )
    def test_settings_out_of_range_are_refused(self, key: str, allowed: float, refused: float) -> None:
        assert getattr(settings_of(**{key: allowed}), key) == allowed
        with pytest.raises(ValidationError, match=key):
            settings_of(**{key: refused})

    def test_default_settings_are_used(self) -> None:
        """Other defaults would change the map of the same scenario file."""
        bare = PrivateMap(epsilon=1.0, clip=1.0)
        assert (bare.axes, bare.rounds, bare.own, bare.placing_iterations) == (20, 5, 0.4, 100)


class TestFrame:
    """Mean, width and axes."""

    def test_both_releases_declare_their_protection(self) -> None:
        federation, transcript = federation_seen([np.random.default_rng(0).uniform(2.0, 10.0, (60, 3))])
        method = settings_of(epsilon=1e6, per="client", relation="replace-one")
        budget = budget_of(method)
        private_axes(federation, method, budget)
        sums = [seen.request for seen in transcript if seen.client is None]
        (first,) = [each for each in sums if isinstance(each, FirstMomentsRequest)]
        (second,) = [each for each in sums if isinstance(each, ScatterRequest)]
        assert first.mechanism == budget.noise(budget.first, method.reach(3))
        assert second.mechanism == budget.noise(budget.scatter, second.clip)
        assert (first.rows, second.rows) == (60, 60)
        noise = budget.noise(1.5, 2.5)
        assert (noise.multiplier, noise.clip, noise.per, noise.relation) == (
            1.5,
            2.5,
            "client",
            "replace-one",
        )

    def test_axes_without_noise_equal_those_of_clipped_rows(self) -> None:
        rows = np.random.default_rng(4).uniform(2.0, 10.0, (60, 3)) * np.array([1.0, 0.8, 0.5])
        method = settings_of(bounds=(0.0, 10.0), axes=3)
        found = private_axes(federate([rows]), method, budget_of(method))
        away = rows - rows.mean(axis=0)
        lengths = np.linalg.norm(away, axis=1, keepdims=True)
        away *= np.minimum(1.0, np.sqrt((lengths**2).mean()) / lengths)
        np.testing.assert_allclose(found.frame.mean, rows.mean(axis=0) - 5.0, atol=1e-3)
        np.testing.assert_allclose(found.variances, np.linalg.eigvalsh(away.T @ away / 60)[::-1], rtol=1e-3)

    def test_constant_rows_get_a_thousandth_of_the_clip(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No axis has less variance than the noise in an entry of the scatter."""
        rows, method = np.full((50, 4), 7.0), settings_of()
        federation, transcript = federation_seen([rows])
        noises: list[float] = []

        def recorded(*given: Any) -> Any:
            noises.append(given[2])
            return leading_axes(*given)

        monkeypatch.setattr(frame_room, "leading_axes", recorded)
        axes = private_axes(federation, method, budget_of(method))
        width = {seen.request.clip for seen in transcript if isinstance(seen.request, ScatterRequest)}
        assert [*width] == [pytest.approx(1e-3 * method.reach(4), rel=1e-6)]
        deviation = (1e-3 * method.reach(4)) ** 2 * budget_of(method).scatter_deviation / 50
        assert noises == [pytest.approx(deviation, rel=1e-5)]
        assert (axes.variances >= noises[0]).all()

    def test_axes_of_exact_moments_are_the_varying_ones(self) -> None:
        """Three of six; at least two, and at most the requested number or the number of features."""
        square = np.diag([3.0, 0.0, 2.0, 0.0, 1.0, 0.0])
        axes, variances = leading_axes(square[np.triu_indices(6)], 6, 0.0, 20)
        np.testing.assert_allclose(np.abs(axes), np.eye(6)[:, [0, 2, 4]], atol=1e-12)
        np.testing.assert_allclose(variances, [3.0, 2.0, 1.0])
        for size, most, expected in ((6, 1, 1), (1, 20, 1), (2, 20, 2), (6, 2, 2)):
            found, _ = leading_axes(np.zeros(size * (size + 1) // 2), size, 1.0, most)
            assert found.shape == (size, expected)

    def test_variance_of_three_deviations_is_dropped(self) -> None:
        square = np.array([[9.0, 5.0, 4.0], [5.0, 8.0, 4.0], [4.0, 4.0, 3.0]])
        axes, variances = leading_axes(square[np.triu_indices(3)], 3, 1.0, 3)
        assert not axes[2].any()
        values, vectors = np.linalg.eigh(np.array([[9.0, 4.5], [4.5, 8.0]]))
        np.testing.assert_allclose(np.abs(axes[:2]), np.abs(vectors[:, ::-1]))
        plain = [vector @ square[:2, :2] @ vector for vector in vectors[:, ::-1].T]
        np.testing.assert_allclose(variances, plain)
        assert values[0] > 2.0 * np.sqrt(2.0)

    def test_variance_of_three_and_a_half_deviations_is_kept(self) -> None:
        axes, _ = leading_axes(np.array([9.0, 5.0, 3.5]), 2, 1.0, 2)
        vectors = np.linalg.eigh(np.array([[9.0, 4.5], [4.5, 3.5]]))[1]
        np.testing.assert_allclose(np.abs(axes), np.abs(vectors[:, ::-1]))

    def test_covariances_below_half_a_deviation_are_zero(self) -> None:
        axes, _ = leading_axes(np.array([9.0, 0.3, 8.0]), 2, 1.0, 2)
        np.testing.assert_array_equal(np.abs(axes), np.eye(2))

    def test_dropped_feature_counts_as_zero_variance(self) -> None:
        """Noise gives the first two features variances of 8.5 and -0.5, so the second axis is the third feature."""
        axes, _ = leading_axes(np.array([4.0, 5.0, 0.0, 4.0, 0.0, 1.0]), 3, 1.0, 2)
        np.testing.assert_allclose(np.abs(axes), [[0.5**0.5, 0.0], [0.5**0.5, 0.0], [0.0, 1.0]], atol=1e-12)

    def test_noise_edge_grows_with_the_kept_features(self) -> None:
        """For four of five features, 2 sqrt(4) deviations: 4.2 is above it and 3.8 below; two are always kept."""
        for third, count in ((4.2, 3), (3.8, 2)):
            square = np.diag([9.0, 8.0, third, 3.5, 1.0])
            assert leading_axes(square[np.triu_indices(5)], 5, 1.0, 5)[0].shape == (5, count)


class TestCells:
    """Noisy rounds of Lloyd's algorithm."""

    def test_round_without_noise_is_a_lloyd_step(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each centre moves by its rows' clipped mean residual; a light cell has under 1.5 deviations."""
        rng = np.random.default_rng(3)
        rows = rng.normal(size=(900, 3)) * np.array([1.5, 1.0, 0.5]) + 6.0
        method = settings_of(rounds=3, cells=64)
        budget = budget_of(method)
        sight = view(federate([rows]), method)
        axes = FrameAxes(Frame(sight, np.zeros(3), np.eye(3)[:, :2]), np.array([2.25, 1.0]), 3.25)
        clip = 0.55 * np.sqrt(3.25)
        halved: list[tuple[Any, ...]] = []
        shrunk: list[tuple[Any, ...]] = []
        ended: list[tuple[Any, ...]] = []
        split = cells_room.split
        for name, calls, plain in (
            ("split", halved, split),
            ("shrunken_steps", shrunk, shrunken_steps),
            ("heavy_cells", ended, heavy_cells),
        ):

            def recorded(*given: Any, calls: list[Any] = calls, plain: Any = plain) -> Any:
                calls.append(given)
                return plain(*given)

            monkeypatch.setattr(cells_room, name, recorded)
        federation, transcript = federation_seen([rows])
        moves: list[float] = []
        monkeypatch.setattr(federation, "report", lambda objective, moved: moves.append(moved))
        centres, counts = private_cells(federation, method, budget, axes)

        asked = [
            seen.request
            for seen in transcript
            if isinstance(seen.request, CellSumsRequest) and seen.client is None
        ]
        points, after, tally = rows[:, :2] - 6.0, np.zeros((0, 2)), np.zeros(0, np.int64)
        assert [request.centres.shape for request in asked] == [(8, 2), (16, 2), (64, 2)]
        for index, (request, (_, reported, _, noise)) in enumerate(zip(asked, shrunk, strict=True)):
            assert request.clip == pytest.approx(clip)
            assert request.mechanism == budget.noise(budget.rounds[index], request.clip)
            assert noise == budget.deviation(index)
            if index:
                given = halved[index - 1]
                np.testing.assert_allclose(given[0], after, atol=1e-3)
                np.testing.assert_allclose(given[1], tally, atol=1e-2)
                assert given[2] == len(request.centres)
                np.testing.assert_allclose(given[3], 0.3 * np.sqrt(axes.variances))
                assert given[4] == pytest.approx(1.5 * budget.deviation(index - 1) / 0.5)
            nearest = cdist(points, request.centres).argmin(axis=1)
            away = points - request.centres[nearest]
            away *= np.minimum(1.0, clip / np.linalg.norm(away, axis=1, keepdims=True))
            tally = np.bincount(nearest, minlength=len(request.centres))
            steps = np.array([away[nearest == cell].sum(axis=0) for cell in range(len(tally))])
            steps /= np.maximum(tally, 1)[:, None]
            after = request.centres + steps
            assert moves[index] == pytest.approx((steps**2).sum(), rel=1e-2)
            np.testing.assert_allclose(reported, tally, atol=1e-2)
        (last,) = ended
        np.testing.assert_allclose(last[0], after, atol=1e-3)
        np.testing.assert_allclose(last[1], tally, atol=1e-2)
        assert last[2] == budget.deviation(2)
        heavy = np.argsort(-last[1], kind="stable")[: len(counts)]
        np.testing.assert_array_equal(centres, last[0][heavy])
        np.testing.assert_array_equal(counts, np.maximum(last[1][heavy], 1.0))

    def test_initial_centres_spread_by_four_fifths_of_the_deviations(self) -> None:
        rows = np.zeros((4000, 3)) + 6.0
        method = settings_of(rounds=1, cells=2000)
        federation, transcript = federation_seen([rows])
        axes = FrameAxes(
            Frame(view(federation, method), np.zeros(3), np.eye(3)[:, :2]), np.array([4.0, 1.0]), 5.0
        )
        private_cells(federation, method, budget_of(method), axes)
        (centres,) = [
            seen.request.centres
            for seen in transcript
            if isinstance(seen.request, CellSumsRequest) and seen.client is None
        ]
        np.testing.assert_allclose(centres.std(axis=0), [1.6, 0.8], rtol=0.06)

    @pytest.mark.parametrize("axes", [1, 2, 5])
    @pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
    def test_steps_have_stein_shrinkage_in_any_dimension(self, axes: int, scale: float) -> None:
        """Each entry of a step has noise of noise * clip / count; cells with no more rows than noise stay."""
        rng = np.random.default_rng(axes)
        counts, clip, noise = np.array([60.0, 9.0, 4.0, 2.5, 2.0, 0.4]), 3.0, 2.5
        sums = scale * rng.normal(size=(6, axes))
        sums[1] = 0.0
        moved, reported = shrunken_steps(sums, counts, clip, noise)
        np.testing.assert_array_equal(reported, counts)
        steps = sums / np.maximum(counts, noise)[:, None]
        squared, noisy = (steps**2).sum(axis=1), axes * (noise * clip / np.maximum(counts, noise)) ** 2
        signal = max(np.mean(squared - noisy), 1e-3 * clip**2)
        for cell in range(6):
            own = 1.0 - max(axes - 2, 0) / axes * noisy[cell] / squared[cell] if squared[cell] else 0.0
            kept = max(signal / (signal + noisy[cell]), own) if counts[cell] > noise else 0.0
            np.testing.assert_allclose(moved[cell], kept * steps[cell], rtol=1e-12)

    def test_cells_above_the_noise_are_ordered_by_count(self) -> None:
        centres = np.arange(12.0).reshape(6, 2)
        found, counts = heavy_cells(centres, np.array([0.5, 7.0, 0.2, 3.0, 7.0, 0.3]), 0.2)
        np.testing.assert_array_equal(found, centres[[1, 4, 3, 0, 5]])
        np.testing.assert_array_equal(counts, [7.0, 7.0, 3.0, 1.0, 1.0])
        found, counts = heavy_cells(centres[:3], np.array([-2.0, 3.0, 1.0]), 4.0)
        np.testing.assert_array_equal(found, centres[1:2])
        np.testing.assert_array_equal(counts, [3.0])


def landmarks(count: int) -> Landmarks:
    rng = np.random.default_rng(5)
    return Landmarks(
        rng.standard_normal((count, 3)), rng.uniform(1.0, 9.0, count), 3.0 * rng.standard_normal((count, 2))
    )


def nearest_of(rows: FloatArray, count: int) -> tuple[Any, Float64Array]:
    """Return the nearest other rows by brute force, with their distances."""
    apart = cdist(rows, rows)
    np.fill_diagonal(apart, np.inf)
    order = np.argsort(apart, axis=1)[:, :count]
    return order, np.take_along_axis(apart, order, axis=1)


class TestPlaces:
    """Placement of rows by clients."""

    @pytest.mark.parametrize(
        ("count", "features", "few", "perplexity", "neighbors"),
        [
            (100, 3, 1, 100 / 60, 5),
            (250, 3, 2, 250 / 60, 12),
            (570, 3, 5, 9.5, 28),
            (700, 3, 5, 10.0, 30),
            (150, 50, 1, 2.5, 7),
            (150, 51, 1, 2.5, 7),
        ],
    )
    def test_own_affinities_use_nearest_rows_along_fifty_axes(
        self, count: int, features: int, few: int, perplexity: float, neighbors: int
    ) -> None:
        """One neighbour per hundred rows, up to five; one unit of perplexity per sixty, up to ten."""
        rows = np.random.default_rng(count).normal(size=(count, features))
        own = own_rows(rows, 0.3)
        assert own is not None
        assert own.weight == 0.3
        centred = rows - rows.mean(axis=0)
        space = centred @ np.linalg.svd(centred, full_matrices=False)[2][:50].T
        nearest, apart = nearest_of(space, neighbors)
        weights = np.zeros((count, count))
        np.put_along_axis(weights, nearest, conditional(apart, perplexity), axis=1)
        np.testing.assert_array_equal(own.nearest, nearest[:, :few])
        np.testing.assert_allclose(own.affinities.toarray(), (weights + weights.T) / 2.0, atol=1e-4)
        assert own_rows(rows[:99], 0.3) is None
        assert own_rows(np.tile(rows[:1], (count, 1)), 0.3) is None

    def test_rows_are_placed_by_landmarks_and_own_neighbours(self) -> None:
        """The force of the module's docstring vanishes; own neighbours have .65 of the affinities."""
        rng = np.random.default_rng(6)
        known, points = landmarks(30), rng.standard_normal((250, 3))
        own = own_rows(points, 0.4)
        assert own is not None
        order = np.argsort(cdist(points, known.centres), axis=1)[:, :18]
        distances = np.take_along_axis(cdist(points, known.centres), order, axis=1)
        alone = np.zeros((250, 30))
        np.put_along_axis(alone, order, conditional(distances, 6.0), axis=1)
        affinities = 0.35 * alone + 0.65 * alone[own.nearest].mean(axis=1)
        among = own.affinities.toarray()
        counts = known.counts * 30 / known.counts.sum()
        between = 1.0 / (1.0 + cdist(known.places, known.places) ** 2)
        whole = (counts @ (between - np.eye(30)) @ counts) / 30

        def force(at: FloatArray) -> FloatArray:
            apart, each = at[:, None] - known.places, at[:, None] - at
            student, others = (1.0 / (1.0 + (gap**2).sum(axis=2)) for gap in (apart, each))
            pulled = 0.6 * affinities * student - counts * student**2 / whole
            return np.asarray(
                np.einsum("il,ild->id", pulled, apart) + 0.4 * np.einsum("ij,ijd->id", among * others, each)
            )

        assert np.abs(force(place(points, known, own, iterations=0))).max() > 0.1
        assert np.abs(force(place(points, known, own, iterations=300))).max() < 1e-3

    def test_own_neighbours_are_used_only_on_request(self) -> None:
        rows = np.random.default_rng(7).normal(size=(200, 3))
        frame, known = Frame(View(0.0, 9.0, None, None, 3), np.zeros(3), np.eye(3)), landmarks(12)
        for weight, own in ((0.0, None), (0.4, own_rows(rows, 0.4))):
            found = places(Client(index=0, rows=rows, seed=0), PlaceRequest(frame, known, weight, 3)).places
            np.testing.assert_allclose(
                found, place(frame.coordinates(rows), known, own, iterations=3), atol=1e-9
            )


class TestMap:
    """The server's map and the content of a model."""

    @pytest.mark.parametrize(("cells", "perplexity", "other"), [(40, 13.0, 12.9), (120, 30.0, 29.9)])
    def test_landmark_map_is_centred_with_a_third_as_perplexity(
        self, cells: int, perplexity: float, other: float
    ) -> None:
        """At most 30."""
        centres = np.random.default_rng(8).normal(size=(cells, 4))
        found, same, another = (
            draw(settings_of(perplexity=each), centres, 0) for each in (None, perplexity, other)
        )
        assert found.tobytes() == same.tobytes()
        assert found.tobytes() != another.tobytes()
        np.testing.assert_allclose(found.mean(axis=0), 0.0, atol=1e-9)

    def test_fewer_than_eight_landmarks_use_principal_axes(self) -> None:
        centres = np.random.default_rng(9).normal(size=(8, 4))
        for count in (7, 8):
            centred = centres[:count] - centres[:count].mean(axis=0)
            plain = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
            straight = np.allclose(np.abs(draw(settings_of(), centres[:count], 0)), np.abs(plain))
            assert straight == (count == 7)

    @pytest.mark.parametrize("features", [6, 1200])
    @pytest.mark.parametrize("per", ["sum", "client"])
    def test_model_places_rows_as_clients_without_own_neighbours(self, features: int, per: Any) -> None:
        rows = np.random.default_rng(10).uniform(2.0, 10.0, (60, features))
        method = settings_of(own=0.0, per=per, rounds=1, axes=3, cells=20)
        outcome = METHODS["private-map"].serve(federate([rows]), method)
        np.testing.assert_allclose(method.transform(outcome.model, rows), outcome.embedding, atol=1e-9)
        assert not outcome.published
        (note,) = outcome.notes
        assert ("Noise on sums" if per == "sum" else "Noise on each client's uploads") in note.text
        assert f"epsilon 1e+09. From them the server has {len(outcome.model['axes'].T)} axes" in note.text
        assert f"and {len(outcome.model['counts'])} landmarks" in note.text


def test_rehearsal_counts_equal_those_of_the_run() -> None:
    """Return operation counts of 900 rows of 6 features with themselves and with 8, 8 and 20 cells along 3 axes."""
    method = settings_of(epsilon=1e4, rounds=3, axes=3, cells=20, early_iterations=7)
    rehearsal = Rehearsal(
        RehearsalClients(sizes=(600, 300), sample=np.zeros((1, 6)), homes=((0,), (1,))), Context(seed=0)
    )
    method.rehearse(rehearsal)
    efforts = {stage: (each.at_clients, each.at_server) for stage, each in rehearsal.efforts.items() if stage}
    assert efforts == {
        "frame": (2.0 * 900 * 6**2, 10.0 * 6**3),
        "cells": (2.0 * 900 * 3 * (8 + 8 + 20), 0.0),
        "map": (0.0, 1000.0 * (7 + 5) * 20),
        "places": (10.0 * 5 * 900 * 20, 0.0),
    }
    rows = np.random.default_rng(11).uniform(2.0, 10.0, (900, 6))
    federation = federate([rows[:600], rows[600:]])
    METHODS["private-map"].serve(federation, method)
    sent, charged = (
        [
            sorted((entry.kind, entry.direction, entry.bytes) for entry in each.ledger.entries.values())
            for each in (rehearsal, federation)
        ],
        [
            sorted((charge.kind, charge.multiplier, count) for charge, count in each.ledger.charges.items())
            for each in (rehearsal, federation)
        ],
    )
    assert sent[0] == sent[1]
    (places,) = [
        size for kind, direction, size in sent[1] if (kind, direction) == ("Places", "simulation-only")
    ]
    assert places - 900 * 2 * 8 in range(200)
    for planned, spent in zip(*charged, strict=True):
        assert (planned[0], planned[2]) == (spent[0], spent[2])
        assert planned[1] == pytest.approx(spent[1], rel=1e-9)
    assert method.keeps_places


def test_scenario_counts_as_noisy() -> None:
    method = {"kind": "private-map", "epsilon": 1.0, "bounds": [0, 8]}
    scenario = tiny_scenario(method=method, privacy={"strict": "sums"})
    assert scenario.noisy
    assert scenario.privacy.noise is None
