"""SMACOF by blocks equals P3 (11), never raises the stress, and stays where the stress is zero."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raydr.arrays import BoolArray, Float64Array
from raydr.errors import DataError, ScenarioError
from raydr.methods.sense import smacof as module
from raydr.methods.sense.algorithm_2 import MOST_POINTS, VisibleAnchors, algorithm_2
from raydr.methods.sense.smacof import random_start, smacof, smacof_operations
from raydr.scenarios.planning.run_time import OPERATIONS_PER_S


def between(a: Float64Array, b: Float64Array) -> Float64Array:
    """Distances by differences, without any cancellation."""
    return np.asarray(np.sqrt(((a[:, None] - b[None]) ** 2).sum(axis=2)))


@dataclass(frozen=True)
class Sites:
    """Anchors and the rows of some clients, each of which sees some of the anchors."""

    anchors: Float64Array
    rows: Float64Array
    clients: list[slice]
    visible: list[list[int]]
    inside: bool

    def observed(self) -> BoolArray:
        """Omega over anchors and rows, (K + N, K + N)."""
        count = len(self.anchors)
        mask = np.zeros((count + len(self.rows),) * 2, bool)
        mask[:count, :count] = True
        for client, visible in zip(self.clients, self.visible, strict=True):
            own = np.arange(len(self.rows))[client] + count
            mask[np.ix_(own, visible)] = True
            mask[np.ix_(visible, own)] = True
            mask[np.ix_(own, own)] = self.inside
        np.fill_diagonal(mask, False)
        return mask


def sites(*, partial: bool, inside: bool, sizes: tuple[int, ...] = (7, 12, 5), seed: int = 0) -> Sites:
    random = np.random.default_rng(seed)
    anchors, rows = random.normal(size=(9, 6)), random.normal(size=(sum(sizes), 6))
    ends = np.cumsum(sizes)
    clients = [slice(int(end) - size, int(end)) for end, size in zip(ends, sizes, strict=True)]
    seen = [[0, 1, 2, 3 + 2 * at, 4 + 2 * at] if partial else list(range(9)) for at in range(len(sizes))]
    return Sites(anchors, rows, clients, seen, inside)


def oracle(given: Sites, start: Float64Array, iterations: int) -> tuple[Float64Array, list[float]]:
    """Return coordinates of all rows by (11) with whole matrices and a pseudo-inverse, and the stress (17)."""
    count, mask = len(given.anchors), given.observed()
    whole = np.concatenate([given.anchors, given.rows])
    wanted = np.where(mask, between(whole, whole), 0.0)
    V = np.diag(mask.sum(axis=1)).astype(float) - mask
    inverse = np.linalg.pinv(V[count:, count:])
    current, stress = start, []
    for _ in range(iterations + 1):
        whole = np.concatenate([given.anchors, current])
        found = between(whole, whole)
        pairs = np.triu(mask)
        pairs[:count, :count] = False
        stress.append(float(((wanted - found)[pairs] ** 2).sum()))
        B = -np.divide(wanted, found, out=np.zeros_like(found), where=mask & (found > 0))
        B -= np.diag(B.sum(axis=1))
        right = B[count:, count:] @ current + (B - V)[count:, :count] @ given.anchors
        before, current = current, inverse @ right
    return before, stress


def turned_rows(given: Sites) -> Float64Array:
    """Return the rows in another frame: other axes and another origin."""
    random = np.random.default_rng(7)
    return np.asarray(given.rows @ np.linalg.qr(random.normal(size=(6, 6)))[0] + 3.0)


def seen(given: Sites) -> list[VisibleAnchors]:
    """Return the server's observations of each client."""
    turned = turned_rows(given)
    return [
        VisibleAnchors(
            np.array(visible),
            between(given.rows[client], given.anchors[visible]) ** 2,
            turned[client] if given.inside else None,
        )
        for client, visible in zip(given.clients, given.visible, strict=True)
    ]


@pytest.mark.parametrize("partial", [False, True], ids=["full", "partial"])
@pytest.mark.parametrize("inside", [False, True], ids=["pointwise", "multisite"])
def test_algorithm_2_equals_equation_11_step_by_step(partial: bool, inside: bool) -> None:
    given = sites(partial=partial, inside=inside, sizes=(7, 0, 1))
    start = np.random.default_rng(1).normal(size=given.rows.shape)
    start[2] = given.anchors[0]  # where (22) has b = 0
    for steps in (0, 1, 2, 40):
        expected, stress = oracle(given, start, steps)
        placed = algorithm_2(given.anchors, seen(given), start, tolerance=0.0, max_iterations=steps)
        np.testing.assert_allclose(placed.coordinates, expected, atol=1e-10)
        np.testing.assert_allclose(placed.stress, stress, rtol=1e-10)
        assert not placed.converged


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_algorithm_2_stops_when_the_total_stress_falls_too_little(offset: float) -> None:
    given = sites(partial=True, inside=True)
    start = np.random.default_rng(1).normal(size=given.rows.shape)
    _, stress = oracle(given, start, 60)
    falls = -np.diff(stress)
    for epsilon in (1.0, 0.3):
        placed = algorithm_2(given.anchors + offset, seen(given), start + offset, tolerance=epsilon)
        assert placed.converged
        assert placed.iterations == 1 + int(np.argmax(falls < epsilon))


def test_algorithm_2_refuses_too_many_points() -> None:
    anchors = np.random.default_rng(0).normal(size=(2, 3))
    many = VisibleAnchors(np.arange(2), np.ones((MOST_POINTS - 1, 2)))
    with pytest.raises(ScenarioError, match=r"the limit is 4,000\. Choose method\.solver: smacof,"):
        algorithm_2(anchors, [many], np.zeros((MOST_POINTS - 1, 3)))


@pytest.mark.parametrize("partial", [False, True], ids=["full", "partial"])
@pytest.mark.parametrize("inside", [False, True], ids=["pointwise", "multisite"])
@pytest.mark.parametrize("block", [4, 512])
def test_clients_one_by_one_equal_equation_11_of_all(
    partial: bool, inside: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's own rows are given in a frame with other axes and another origin."""
    monkeypatch.setattr(module, "BLOCK_ROWS", block)
    given = sites(partial=partial, inside=inside)
    random = np.random.default_rng(1)
    start = random.normal(size=given.rows.shape)
    expected, stress = oracle(given, start, 40)
    turned = turned_rows(given)
    found, history = np.empty_like(start), np.zeros(41)
    for client, visible in zip(given.clients, given.visible, strict=True):
        anchors = given.anchors[visible]
        placed = smacof(
            anchors,
            between(given.rows[client], anchors) ** 2,
            start[client],
            inside=turned[client] if inside else None,
            tolerance=0.0,
            max_iterations=40,
        )
        assert placed.iterations == 40
        assert not placed.converged
        found[client] = placed.coordinates
        history += placed.stress
    np.testing.assert_allclose(found, expected, atol=1e-10)
    np.testing.assert_allclose(history, stress, rtol=1e-10)


@settings(max_examples=60)
@given(
    rows=st.integers(1, 30),
    anchors=st.integers(2, 12),
    features=st.integers(1, 8),
    inside=st.booleans(),
    noise=st.sampled_from([0.0, 0.3]),
    offset=st.sampled_from([0.0, 1e4]),
    seed=st.integers(0, 2**32),
)
def test_stress_never_rises(
    rows: int, anchors: int, features: int, inside: bool, noise: float, offset: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    known, truth = random.normal(size=(anchors, features)), random.normal(size=(rows, features))
    squared = between(truth, known) ** 2 * np.exp(noise * random.normal(size=(rows, anchors)))
    start = random_start(known + offset, squared, random)
    placed = smacof(
        known + offset, squared, start, inside=truth if inside else None, tolerance=0.0, max_iterations=100
    )
    assert np.all(np.diff(placed.stress) <= 0)
    # The last one is that of the coordinates.
    found = ((between(placed.coordinates - offset, known) - np.sqrt(squared)) ** 2).sum()
    if inside:
        found += ((between(placed.coordinates, placed.coordinates) - between(truth, truth)) ** 2).sum() / 2
    np.testing.assert_allclose(
        placed.stress[-1], found, rtol=1e-7, atol=1e-6 * (1e-12 if offset == 0 else 1.0)
    )


@pytest.mark.parametrize("inside", [False, True], ids=["pointwise", "multisite"])
def test_true_points_are_a_fixed_point(inside: bool) -> None:
    """Include equal rows and rows on an anchor."""
    given = sites(partial=False, inside=inside, sizes=(20,))
    rows = given.rows.copy()
    rows[3], rows[4] = rows[2], given.anchors[1]
    placed = smacof(
        given.anchors,
        between(rows, given.anchors) ** 2,
        rows,
        inside=rows if inside else None,
        tolerance=0.0,
        max_iterations=50,
    )
    np.testing.assert_allclose(placed.coordinates, rows, atol=1e-12)
    assert placed.stress[0] < 1e-24
    assert placed.converged


def test_random_start_converges_to_the_true_points() -> None:
    random = np.random.default_rng(2)
    anchors, rows = random.normal(size=(12, 3)), random.normal(size=(40, 3))
    squared = between(rows, anchors) ** 2
    start = random_start(anchors, squared, np.random.default_rng(3))
    placed = smacof(anchors, squared, start, inside=rows, tolerance=1e-10, max_iterations=3000)
    assert placed.converged
    np.testing.assert_allclose(placed.coordinates, rows, atol=1e-4)


def test_random_start_has_the_right_radius_and_is_seeded() -> None:
    random = np.random.default_rng(4)
    anchors, rows = 100 + random.normal(size=(5, 8)), 100 + random.normal(size=(30, 8))
    squared = between(rows, anchors) ** 2
    start = random_start(anchors, squared, np.random.default_rng(5))
    centre = anchors.mean(axis=0)
    np.testing.assert_allclose(
        np.linalg.norm(start - centre, axis=1), np.linalg.norm(rows - centre, axis=1), rtol=1e-10
    )
    assert np.array_equal(start, random_start(anchors, squared, np.random.default_rng(5)))
    assert not np.array_equal(start, random_start(anchors, squared, np.random.default_rng(6)))


def test_blocks_of_rows_change_only_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    given = sites(partial=False, inside=True, sizes=(50,))
    squared = between(given.rows, given.anchors) ** 2
    start = random_start(given.anchors, squared, np.random.default_rng(7))
    found = []
    for block in (7, 50, 512):
        monkeypatch.setattr(module, "BLOCK_ROWS", block)
        found.append(smacof(given.anchors, squared, start, inside=given.rows).coordinates)
    np.testing.assert_allclose(found[0], found[2], atol=1e-11)
    assert np.array_equal(found[1], found[2])


def test_pointwise_rows_are_solved_independently() -> None:
    given = sites(partial=False, inside=False, sizes=(20,))
    squared = between(given.rows, given.anchors) ** 2
    start = np.random.default_rng(8).normal(size=given.rows.shape)
    whole = smacof(given.anchors, squared, start, tolerance=0.0, max_iterations=30).coordinates
    part = smacof(given.anchors, squared[3:9], start[3:9], tolerance=0.0, max_iterations=30).coordinates
    np.testing.assert_allclose(part, whole[3:9], atol=1e-12)


def test_tolerance_and_iterations_stop_the_solver() -> None:
    given = sites(partial=True, inside=True, sizes=(20,))
    anchors = given.anchors[given.visible[0]]
    squared = between(given.rows, anchors) ** 2
    start = random_start(anchors, squared, np.random.default_rng(9))
    placed = smacof(
        anchors,
        squared,
        start,
        inside=given.rows,
        tolerance=0.01,
    )
    falls = -np.diff(placed.stress) / placed.stress[:-1]
    assert placed.converged
    assert falls[-1] <= 0.01
    assert np.all(falls[:-1] > 0.01)
    still = smacof(anchors, squared, start, max_iterations=0)
    assert still.iterations == 0
    assert not still.converged
    np.testing.assert_allclose(still.coordinates, start, atol=1e-15)


@pytest.mark.parametrize("inside", [False, True])
def test_client_without_rows_is_accepted(inside: bool) -> None:
    none = np.empty((0, 3))
    placed = smacof(np.eye(3), none, none, inside=none if inside else None)
    assert placed.coordinates.shape == (0, 3)
    assert placed.converged


def test_dependent_anchors_keep_distances_to_them() -> None:
    """A row may end anywhere on the circle about their line."""
    anchors = np.outer([-1.0, 0.0, 0.5, 2.0], [1.0, 1.0, 1.0])
    rows = np.random.default_rng(10).normal(size=(10, 3))
    squared = between(rows, anchors) ** 2
    start = random_start(anchors, squared, np.random.default_rng(11))
    placed = smacof(anchors, squared, start, tolerance=1e-12, max_iterations=5000)
    np.testing.assert_allclose(between(placed.coordinates, anchors) ** 2, squared, atol=1e-3)


def bad(values: Float64Array, at: tuple[int, int], value: float) -> Float64Array:
    changed = values.copy()
    changed[at] = value
    return changed


ANCHORS, SQUARED, START = np.eye(3), np.ones((4, 3)), np.zeros((4, 3))


@pytest.mark.parametrize(
    ("anchors", "squared", "start", "inside", "message"),
    [
        (ANCHORS[:0], SQUARED[:, :0], START, None, r"sees 0 anchors, .* at least 2\. Raise method\.anchors"),
        (ANCHORS[:1], SQUARED[:, :1], START, None, "sees 1 anchors"),
        (ANCHORS[:2], SQUARED, START, None, r"squared distances .* shape \(4, 3\), expected \(any, 2\)"),
        (ANCHORS, SQUARED, START[:3], None, r"the start have shape \(3, 3\), expected \(4, 3\)"),
        (ANCHORS, SQUARED, START, START[:2], r"client's own rows have shape \(2, 3\), expected \(4, any\)"),
        (ANCHORS, SQUARED[0], START, None, r"shape \(3,\), expected"),
        (ANCHORS, bad(SQUARED, (2, 1), -0.5), START, None, "row 2 to anchor 1 is -0.5. .* clip"),
        (
            ANCHORS,
            bad(SQUARED, (1, 2), np.nan),
            START,
            None,
            "row 1, column 2 of the squared distances .* is nan",
        ),
        (ANCHORS, bad(SQUARED, (1, 2), np.inf), START, None, "is inf"),
        (bad(ANCHORS, (0, 1), np.nan), SQUARED, START, None, "row 0, column 1 of the anchors is nan"),
        (ANCHORS, SQUARED, bad(START, (3, 0), -np.inf), None, "row 3, column 0 of the start is -inf"),
        (ANCHORS, SQUARED, START, bad(START, (3, 0), np.nan), "row 3, column 0 of .* own rows is nan"),
    ],
)
def test_bad_input_is_refused_by_name(
    anchors: Float64Array,
    squared: Float64Array,
    start: Float64Array,
    inside: Float64Array | None,
    message: str,
) -> None:
    with pytest.raises(DataError, match=message):
        smacof(anchors, squared, start, inside=inside)


def test_random_start_refuses_bad_input() -> None:
    random = np.random.default_rng(0)
    with pytest.raises(DataError, match="sees 1 anchors"):
        random_start(ANCHORS[:1], SQUARED[:, :1], random)
    with pytest.raises(DataError, match="is -1"):
        random_start(ANCHORS, -SQUARED, random)


@pytest.mark.parametrize("tolerance", [-1e-6, np.nan, np.inf])
def test_invalid_tolerance_is_refused(tolerance: float) -> None:
    with pytest.raises(ScenarioError, match="tolerance"):
        smacof(ANCHORS, SQUARED, START, tolerance=tolerance)


def test_invalid_iterations_are_refused() -> None:
    with pytest.raises(ScenarioError, match="max_iterations is -1"):
        smacof(ANCHORS, SQUARED, START, max_iterations=-1)


MEASURED = {
    "german_credit_20, 12 anchors": (151_296, 20, 2_000, 4.2),
    "german_credit_20, 19 anchors": (155_954, 20, 2_000, 5.6),
    "german_credit_20, 26 anchors": (160_618, 20, 2_000, 4.2),
    "1,000 digits, 30 anchors": (135_080, 64, 200, 0.5),
    "1,000 digits, 60 anchors": (165_080, 64, 2_000, 5.9),
    "breastmnist, 546 rows, 156 anchors": (131_696, 784, 200, 2.6),
}
"""Observed pairs of ten clients (dirichlet, alpha 0.5, seed 0), features, iterations, and seconds of one core that
:func:`smacof` took in `raydr run` with `preset: published` and `scale: minmax`."""


@pytest.mark.parametrize("name", MEASURED)
def test_planned_seconds_are_within_a_factor_of_one_and_a_half_of_measured_ones(name: str) -> None:
    pairs, features, iterations, seconds = MEASURED[name]
    planned = smacof_operations(pairs, features, iterations) / OPERATIONS_PER_S
    assert 1 / 1.5 < planned / seconds < 1.5
