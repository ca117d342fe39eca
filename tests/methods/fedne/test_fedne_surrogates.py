"""Surrogates: fields are linear and converge with the grid; networks of all clients are one product."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from raydr.arrays import Float64Array
from raydr.methods.fedne.encoder import one_torch_thread
from raydr.methods.fedne.fedne import FedNE
from raydr.methods.fedne.field import Grid, as_field, deposit, interpolated, repulsion_field
from raydr.methods.fedne.loss import SOFTENING, repulsion, squared_distance
from raydr.methods.fedne.networks import (
    PARAMETERS,
    fit_surrogate,
    initial_surrogate,
    query_grid,
    targets,
    together,
)
from raydr.methods.fedne.settings import SURROGATE_UNITS


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Train as clients do, on one thread: more are slower for such small networks."""
    with one_torch_thread():
        yield


def some_points(count: int = 200, seed: int = 0) -> Float64Array:
    return np.random.default_rng(seed).normal(scale=2.0, size=(count, 2))


@pytest.mark.parametrize("parts", [2, 20])
def test_sum_of_fields_is_the_field_of_the_union(parts: int) -> None:
    grid = Grid.covering(8.0, 0.3)
    points = some_points()
    whole = repulsion_field(grid, deposit(grid, points))
    summed = sum(repulsion_field(grid, deposit(grid, part)) for part in np.array_split(points, parts))
    np.testing.assert_allclose(summed, whole, rtol=1e-6)
    assert whole.max() > 50


def test_deposit_counts_rows_outside_the_grid_too() -> None:
    grid = Grid.covering(3.0, 0.3)
    points = np.concatenate([some_points(), [[100.0, -100.0], [3.0, 3.0], [-3.0, 0.1]]])
    counts = deposit(grid, points)
    assert counts.min() >= 0
    assert counts.sum() == pytest.approx(len(points))
    assert deposit(grid, np.zeros((0, 2))).sum() == 0


def test_point_on_a_node_counts_only_there() -> None:
    grid = Grid(2.0, 5)
    counts = deposit(grid, np.array([[-1.0, 2.0]]))
    assert counts[1, 4] == 1.0
    assert np.count_nonzero(counts) == 1


def test_field_at_nodes_is_the_repulsion_between_nodes() -> None:
    """Compare the convolution with a double loop; only the node's own cell is averaged."""
    grid = Grid(3.0, 13)
    counts = np.random.default_rng(0).integers(0, 5, size=(13, 13)).astype(np.float64)
    field = repulsion_field(grid, counts)
    axis = np.linspace(-3.0, 3.0, 13)
    for i, j in ((0, 0), (6, 6), (12, 3)):
        squared = (axis[i] - axis[:, None]) ** 2 + (axis[j] - axis) ** 2
        table = np.log1p((1 - SOFTENING) / (SOFTENING + squared))
        fine = (np.arange(400) + 0.5) / 400 * grid.step - grid.step / 2
        cell = fine[:, None] ** 2 + fine**2
        table[i, j] = np.log1p((1 - SOFTENING) / (SOFTENING + cell)).mean()
        assert field[i, j] == pytest.approx((table * counts).sum(), rel=1e-3)


def test_interpolation_is_exact_at_nodes_with_a_matching_gradient() -> None:
    grid = Grid(2.0, 9)
    table = torch.from_numpy(np.random.default_rng(0).normal(size=(9, 9)))
    axis = torch.linspace(-2.0, 2.0, 9, dtype=torch.float64)
    nodes = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1)
    torch.testing.assert_close(interpolated(grid, table, nodes), table)
    at = torch.from_numpy(np.random.default_rng(1).uniform(-1.9, 1.9, size=(3, 50, 2))).requires_grad_()
    (gradient,) = torch.autograd.grad(interpolated(grid, table, at).sum(), at)
    for axis_ in range(2):
        step = torch.zeros(2, dtype=torch.float64)
        step[axis_] = 1e-7
        slope = (interpolated(grid, table, at + step) - interpolated(grid, table, at - step)) / 2e-7
        torch.testing.assert_close(slope, gradient[..., axis_], rtol=1e-5, atol=1e-5)


def test_each_client_reads_its_own_field() -> None:
    grid, random = Grid(2.0, 9), np.random.default_rng(0)
    tables = torch.from_numpy(random.normal(size=(3, 9, 9)))
    at = torch.from_numpy(random.uniform(-2.5, 2.5, size=(3, 20, 2)))
    alone = [interpolated(grid, *each) for each in zip(tables, at, strict=True)]
    torch.testing.assert_close(interpolated(grid, tables, at), torch.stack(alone))


def test_field_beyond_the_grid_has_no_gradient() -> None:
    grid = Grid(2.0, 9)
    at = torch.tensor([[5.0, -7.0], [2.5, 2.5]], requires_grad=True)
    value = interpolated(grid, as_field(np.arange(81.0).reshape(9, 9)), at)
    (gradient,) = torch.autograd.grad(value.sum(), at)
    assert value.tolist() == [72.0, 80.0]
    assert not gradient.any()


def test_gradient_converges_as_the_grid_is_refined() -> None:
    """Mean error over the mean gradient: 27% at a step of 0.6, 18% at 0.3, less below."""
    points = some_points(3000)
    at = torch.from_numpy(some_points(400, seed=1)).requires_grad_()
    exact_value = repulsion(squared_distance(at[:, None], torch.from_numpy(points))).sum()
    (exact,) = torch.autograd.grad(exact_value, at)
    errors = []
    for step in (0.6, 0.3, 0.15, 0.075):
        grid = Grid.covering(10.0, step)
        field = torch.from_numpy(repulsion_field(grid, deposit(grid, points)))
        (gradient,) = torch.autograd.grad(interpolated(grid, field, at).sum(), at)
        errors.append(float((gradient - exact).norm(dim=1).mean() / exact.norm(dim=1).mean()))
    assert errors == sorted(errors, reverse=True)
    assert errors[3] < errors[0] / 2


def test_field_far_from_points_is_exact() -> None:
    points = some_points(300) / 4
    grid = Grid.covering(12.0, 0.3)
    field = torch.from_numpy(repulsion_field(grid, deposit(grid, points)))
    at = torch.tensor([[8.0, 1.0], [-9.0, 9.0], [3.1, -8.2]], dtype=torch.float64)
    exact = repulsion(squared_distance(at[:, None], torch.from_numpy(points))).sum(dim=1)
    torch.testing.assert_close(interpolated(grid, field, at), exact, rtol=2e-3, atol=0.0)


# Networks


def test_batched_networks_equal_single_networks() -> None:
    random, units = np.random.default_rng(0), SURROGATE_UNITS
    networks = np.stack([initial_surrogate(random) for _ in range(7)])
    weights = random.random((2, 7)).astype(np.float32)
    at = torch.from_numpy(random.normal(size=(2, 30, 2)).astype(np.float32))
    expected = np.zeros((2, 30))
    for index, network in enumerate(networks):
        inward, offset, outward, last = np.split(network, [2 * units, 3 * units, 4 * units])
        hidden = np.maximum(at.numpy() @ inward.reshape(units, 2).T + offset, 0.0)
        expected += weights[:, index, None] * np.maximum(hidden @ outward + last, 0.0)
    np.testing.assert_allclose(together(networks, weights)(at).numpy(), expected, atol=1e-5)
    assert networks.shape[1] == PARAMETERS


def test_a_network_below_0_neither_repels_nor_attracts() -> None:
    """It is below 0 only by error: rows would go on along its slope, and the map with them."""
    random = np.random.default_rng(0)
    network = initial_surrogate(random)
    network[-1] = -100.0
    other = initial_surrogate(random)
    other[-1] = 100.0
    at = torch.from_numpy(random.normal(size=(1, 30, 2)).astype(np.float32)).requires_grad_()
    share = np.array([[0.25, 0.75]], np.float32)
    values = together(np.stack([network, other]), share)(at)
    alone = together(other[None], share[:, 1:])(at)
    assert bool((together(network[None], share[:, :1])(at) == 0.0).all())
    torch.testing.assert_close(values, alone)
    (slope,) = torch.autograd.grad(values.sum(), at)
    torch.testing.assert_close(slope, torch.autograd.grad(alone.sum(), at)[0])
    assert bool((slope != 0.0).any())


def test_network_learns_the_mean_repulsion() -> None:
    random = np.random.default_rng(0)
    positions = some_points(500).astype(np.float32)
    queries = query_grid(positions, 0.3, 3.0)
    values = targets(queries, positions, 200, random)
    untrained = initial_surrogate(random)
    learnt = fit_surrogate(untrained, queries, values, epochs=80, learning_rate=1e-2, random=random)
    at = some_points(300, seed=1).astype(np.float32)
    exact = targets(at, positions, 500, random)

    def error(network: np.ndarray) -> float:
        value = together(network[None], np.ones((1, 1), np.float32))(torch.from_numpy(at)[None])
        return float(np.abs(value.numpy()[0] - exact).mean())

    constant = float(np.abs(np.median(exact) - exact).mean())  # the best error that ignores the position
    assert error(learnt) < constant / 2 < error(untrained)


def test_queries_cover_the_map_and_its_margin() -> None:
    positions = np.array([[0.0, 0.0], [1.0, 2.0]], np.float32)
    queries = query_grid(positions, 0.3, 3.0)
    assert queries.min(axis=0).tolist() == [-3.0, -3.0]
    assert (queries.max(axis=0) >= [4.0, 5.0]).all()


def test_a_grid_without_a_given_step_keeps_its_nodes_few() -> None:
    """Its step is 0.3 for usual maps, and wider for maps of far-away rows; a given step is kept."""
    assert Grid.covering(10.0) == Grid.covering(10.0, 0.3) == Grid(10.0, 68)
    assert Grid.covering(60.0) == Grid(60.0, 128)
    assert Grid.covering(60.0, 0.3) == Grid(60.0, 401)
    assert Grid.covering(1e6, 0.3) == Grid(1e6, 1024)


def test_noise_on_updates_keeps_the_step_of_a_large_grid() -> None:
    """Its grid is planned for the number of rows, wider than the map: fewer nodes would blur the map itself."""
    grid = FedNE().paid_grid(SimpleNamespace(rows=60_000))  # type: ignore[arg-type]
    assert grid.nodes > 128
    assert grid.step <= 0.3
