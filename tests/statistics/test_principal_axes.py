"""Principal axes from sums equal those of pooled rows, and an encoder can start from them."""

from __future__ import annotations

import numpy as np
import pytest
from inline_federations import cut, federate

from raydr.arrays import FloatArray
from raydr.federation import Client, Context
from raydr.federation.codec import encode
from raydr.federation.rehearsal import Rehearsal, RehearsalClients
from raydr.methods.fedne.encoder import Architecture, initial_weights, place, principal_weights
from raydr.statistics.principal_axes import (
    CovarianceProduct,
    CovarianceRequest,
    PrincipalAxes,
    covariance_product,
    principal_axes,
    rehearse_axes,
    signed,
)


def centred(rows: int = 500, features: int = 12, seed: int = 0) -> FloatArray:
    """Return rows with deviations 1, 1/2, 1/4, ... along random axes."""
    random = np.random.default_rng(seed)
    turn = np.linalg.qr(random.normal(size=(features, features)))[0]
    table = random.normal(size=(rows, features)) * 0.5 ** np.arange(features) @ turn
    return np.asarray(table - table.mean(axis=0))


def exact(rows: FloatArray, count: int) -> tuple[np.ndarray, np.ndarray]:
    _, deviations, axes = np.linalg.svd(rows, full_matrices=False)
    return axes[:count].T, deviations[:count] / np.sqrt(len(rows))


def axes_of(rows: FloatArray, count: int, clients: int = 5) -> PrincipalAxes:
    return principal_axes(federate(cut(rows, clients, 0)), np.abs(rows).max(axis=0), count)


def test_axes_equal_those_of_pooled_rows() -> None:
    rows = centred()
    found, (directions, deviations) = axes_of(rows, 6), exact(rows, 6)
    np.testing.assert_allclose(found.deviations, deviations, rtol=1e-3)
    assert np.all(np.abs((found.directions * directions).sum(axis=0))[:4] > 0.999)
    np.testing.assert_allclose(found.directions.T @ found.directions, np.eye(6), atol=1e-12)


def test_axes_are_exact_and_at_most_the_rank() -> None:
    rows = centred(features=4)
    found, (directions, deviations) = axes_of(rows, 64), exact(rows, 4)
    np.testing.assert_allclose(found.deviations, deviations, rtol=1e-9)
    np.testing.assert_allclose(np.abs((found.directions * directions).sum(axis=0)), 1.0, atol=1e-9)


def test_partition_changes_axes_only_within_resolution() -> None:
    rows = centred()
    one, many = axes_of(rows, 3, clients=1), axes_of(rows, 3, clients=30)
    np.testing.assert_allclose(one.directions, many.directions, atol=1e-9)
    np.testing.assert_allclose(one.deviations, many.deviations, rtol=1e-12)


def test_constant_rows_have_zero_deviation() -> None:
    found = axes_of(np.zeros((9, 3)), 2)
    assert np.isfinite(found.directions).all()
    assert found.deviations.tolist() == [0.0, 0.0]


def test_product_stays_within_its_declared_range() -> None:
    """At the bound, all rows are equal and the direction is along them."""
    rows = np.tile([3.0, -4.0], (7, 1))
    federation = federate([rows, -rows])
    request = CovarianceRequest(np.array([[0.6], [-0.8]]), np.array([3.0, 4.0]))
    np.testing.assert_allclose(federation.mean(request).product, [[15.0], [-20.0]])


@pytest.mark.parametrize(
    ("hidden", "least"), [((), 0.95), ((4,), 0.7), ((9, 20), 0.8), ((64, 64, 64), 0.95)], ids=str
)
def test_encoder_starts_near_the_first_components(hidden: tuple[int, ...], least: float) -> None:
    rows = centred()
    axes = axes_of(rows, 8)
    architecture = Architecture(12, hidden)
    weights = principal_weights(architecture, axes.directions, axes.deviations, np.random.default_rng(0))
    assert weights.dtype == np.float32
    positions = place(architecture, weights, rows)
    components = rows @ axes.directions[:, :2] / axes.deviations[0]
    for axis in range(2):
        assert np.corrcoef(positions[:, axis], components[:, axis])[0, 1] > least
    assert 0.5 < positions[:, 0].std() < 2.0


@pytest.mark.parametrize("hidden", [(3,), (16, 2)])
def test_layers_too_narrow_for_components_start_at_random(hidden: tuple[int, ...]) -> None:
    architecture = Architecture(12, hidden)
    axes = axes_of(centred(), 8)
    weights = principal_weights(architecture, axes.directions, axes.deviations, np.random.default_rng(3))
    assert weights.tobytes() == initial_weights(architecture, np.random.default_rng(3)).tobytes()


def test_axes_take_six_sums() -> None:
    rows = centred()
    federation = federate(cut(rows, 5, 0))
    principal_axes(federation, np.abs(rows).max(axis=0), 3)
    sums = [entry for entry in federation.ledger.entries.values() if entry.kind == "CovarianceProduct"]
    summand = len(encode({"product": np.zeros((12, 3), np.int64)}))
    assert [(entry.count, entry.bytes) for entry in sums] == [(6 * 5, 6 * 5 * summand)]
    rehearsal = Rehearsal(
        RehearsalClients(sizes=(5,) * 5, sample=np.zeros((1, 12)), homes=((0, 1, 2, 3, 4),)), Context(seed=0)
    )
    rehearse_axes(rehearsal, np.ones(12), 3)
    planned = [entry for entry in rehearsal.ledger.entries.values() if entry.kind == "CovarianceProduct"]
    assert [(entry.count, entry.bytes) for entry in planned] == [(6 * 5, 6 * 5 * summand)]


def test_clients_of_one_row_count_and_empty_clients_do_not() -> None:
    rows = centred(rows=40, features=4)
    found, (_, deviations) = axes_of(rows, 4, clients=1), exact(rows, 4)
    reach = np.abs(rows).max(axis=0)
    alone = principal_axes(federate([*rows[:, None], rows[:0]]), reach, 4)
    np.testing.assert_allclose(alone.deviations, deviations, rtol=1e-9)
    np.testing.assert_allclose(alone.directions, found.directions, atol=1e-6)
    request = CovarianceRequest(np.eye(4), reach)
    np.testing.assert_array_equal(
        covariance_product(Client(index=0, rows=rows[:0], seed=0), request).product, np.zeros((4, 4))
    )


def test_product_range_is_its_largest_entry_plus_a_billionth() -> None:
    request = CovarianceRequest(np.array([[0.6], [0.8]]), np.array([3.0, 4.0]))
    declared = CovarianceProduct.ranges(request, 7)["product"]
    assert declared.shape == (2, 1)
    largest = np.asarray(declared.largest).ravel()
    assert (largest > [15.0, 20.0]).all()
    assert (largest < np.array([15.0, 20.0]) * (1 + 3e-9)).all()


def test_rows_on_a_line_have_no_negative_variance() -> None:
    """Rounding can make these variances slightly negative."""
    random = np.random.default_rng(7)
    for _ in range(20):
        rows = np.outer(random.normal(size=30), random.normal(size=5))
        rows -= rows.mean(axis=0)
        found = axes_of(rows, 5, clients=2)
        assert (found.deviations >= 0).all()
        assert (found.deviations[1:] < 1e-6 * found.deviations[0]).all()


def test_largest_entry_of_an_axis_is_positive() -> None:
    """Of two entries equal up to rounding, the first is positive."""
    axes = np.array([[0.1, -0.6, 0.7, 0.7], [-0.9, 0.5, -0.7 * (1 + 1e-12), -0.7 * (1 + 1e-6)]])
    assert np.sign(signed(axes)).tolist() == [[-1.0, 1.0, 1.0, -1.0], [1.0, -1.0, -1.0, 1.0]]
