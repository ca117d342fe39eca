"""Encoder, loss, batches, training: gradients by central differences, batches that deal every edge once."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from raydr.geometry.prototypes import prototype_count, prototypes
from raydr.methods.fedne.clients import LONGEST_STEP
from raydr.methods.fedne.edges import local_neighbors, schedule, steps_of
from raydr.methods.fedne.encoder import Architecture, initial_weights, one_torch_thread, place
from raydr.methods.fedne.fedne import FedNE
from raydr.methods.fedne.loss import SOFTENING, attraction, repulsion, squared_distance
from raydr.methods.fedne.optimizer import (
    ADAPTIVITY,
    NESTEROV_MOMENTUM,
    cosine_rate,
    initial_memory,
    server_step,
    stepped_rate,
)
from raydr.methods.fedne.training import FLOOR, Batches, Local, Objective, Trained, batch_loss, train
from raydr.methods.fedne.warm_start import warm_start

ONE = np.ones(1, np.float32)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Train as clients do, on one thread: more are slower for such small networks."""
    with one_torch_thread():
        yield


def some_rows(count: int = 60, features: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, features)).astype(np.float32)


def local_of(rows: np.ndarray, *, seed: int = 0, mixing: float | None = 0.2, epochs: int = 1) -> Local:
    batches = schedule(
        local_neighbors(rows, 4),
        batch=32,
        epochs=epochs,
        negatives=5,
        mixing=mixing,
        random=np.random.default_rng(seed),
    )
    return Local(rows, batches)


# The encoder


def test_encoder_equals_torch_linear_layers_with_relu() -> None:
    architecture = Architecture(5, (7, 6))
    weights = initial_weights(architecture, np.random.default_rng(0))
    layers = architecture.layers(weights)
    network = torch.nn.Sequential(
        torch.nn.Linear(5, 7),
        torch.nn.ReLU(),
        torch.nn.Linear(7, 6),
        torch.nn.ReLU(),
        torch.nn.Linear(6, 2),
    )
    own = {
        f"{2 * layer}.{kind}": f"layers.{layer}.{kind}" for layer in range(3) for kind in ("weight", "bias")
    }
    network.load_state_dict({theirs: torch.from_numpy(layers[ours]) for theirs, ours in own.items()})
    rows = some_rows()
    expected = network(torch.from_numpy(rows)).detach().numpy()
    np.testing.assert_allclose(place(architecture, weights, rows), expected, atol=1e-6)
    assert architecture.flat(layers).tobytes() == weights.tobytes()


def test_initial_weights_are_seeded_and_bounded() -> None:
    architecture = Architecture(100, (50,))
    weights, same, other = (initial_weights(architecture, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert weights.tobytes() == same.tobytes() != other.tobytes()
    assert np.abs(weights[:5050]).max() <= 0.1
    assert np.abs(weights[:5050]).max() > 0.099
    assert 0.1 < np.abs(weights[5050:]).max() <= 1 / math.sqrt(50)


def test_placing_keeps_the_number_of_torch_threads() -> None:
    architecture = Architecture(5, (4,))
    before = torch.get_num_threads()
    place(architecture, initial_weights(architecture, np.random.default_rng(0)), some_rows())
    assert torch.get_num_threads() == before


def test_placing_no_rows_gives_an_empty_map() -> None:
    architecture = Architecture(5, (4,))
    weights = initial_weights(architecture, np.random.default_rng(0))
    assert place(architecture, weights, np.zeros((0, 5))).shape == (0, 2)


# The loss


def test_attraction_and_repulsion_are_the_cauchy_kernels() -> None:
    distances = torch.linspace(0.5, 20.0, 50, dtype=torch.float64)
    phi = 1 / (1 + distances**2)
    torch.testing.assert_close(attraction(distances**2), -torch.log(phi))
    softened = (SOFTENING + distances**2) / (1 + distances**2)
    torch.testing.assert_close(repulsion(distances**2), -torch.log(softened))
    torch.testing.assert_close(repulsion(distances**2), -torch.log1p(-phi), rtol=4e-3, atol=0.0)


def test_loss_is_finite_at_extreme_distances() -> None:
    distances = torch.tensor([0.0, 1e-20, 1e-3, 1e15], requires_grad=True)
    for term in (attraction, repulsion):
        values = term(distances**2)
        (gradient,) = torch.autograd.grad(values.sum(), distances)
        assert torch.isfinite(values).all()
        assert torch.isfinite(gradient).all()
    assert repulsion(torch.tensor(1e10)) > 0, "far pairs keep their digits"


def test_softening_bounds_the_repulsive_gradient() -> None:
    distances = torch.logspace(-5, 2, 4000, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(repulsion(distances**2).sum(), distances)
    assert (slope <= 0).all()
    assert 0.9 / math.sqrt(SOFTENING) < -slope.min() <= 1 / math.sqrt(SOFTENING)


@pytest.mark.parametrize(
    "objective",
    [
        Objective(5.0, ONE),
        Objective(5.0, 0.25 * ONE, lambda at: torch.exp(-(at**2).sum(dim=-1)), 0.0),
        Objective(2.0, None, lambda at: torch.cos(at).sum(dim=-1)),
    ],
    ids=["own rows", "own rows and surrogate", "surrogate alone"],
)
def test_gradient_equals_central_differences(objective: Objective) -> None:
    """In float64, in 12 random directions."""
    architecture = Architecture(5, (8, 8))
    batches = Batches([local_of(some_rows())], "cpu")
    batches.table = batches.table.double()
    batches.live, batches.weights = batches.live.double(), batches.weights.double()
    if objective.own_share is not None:
        objective = Objective(
            objective.negatives,
            objective.own_share.astype(np.float64),
            objective.surrogate,  # type: ignore[arg-type]
        )
    random = np.random.default_rng(0)
    start = torch.from_numpy(initial_weights(architecture, random).astype(np.float64))[None].requires_grad_()

    def loss(weights: Tensor) -> Tensor:
        return batch_loss(architecture, weights, batches, 0, objective).sum()

    (gradient,) = torch.autograd.grad(loss(start), start)
    for _ in range(12):
        direction = torch.from_numpy(random.normal(size=start.shape))
        step = 1e-6 * direction
        slope = (loss(start.detach() + step) - loss(start.detach() - step)) / 2e-6
        assert float(slope) == pytest.approx(float((gradient * direction).sum()), rel=1e-5, abs=1e-7)


# Batches


@pytest.mark.parametrize(("count", "k", "batch"), [(60, 4, 32), (9, 3, 512), (2, 7, 4), (33, 1, 32)])
def test_epoch_contains_every_edge_once(count: int, k: int, batch: int) -> None:
    nearest = local_neighbors(some_rows(count), k)
    dealt = schedule(
        nearest, batch=batch, epochs=2, negatives=3, mixing=None, random=np.random.default_rng(0)
    )
    assert dealt.steps == 2 * steps_of(count, k, batch)
    live = dealt.live.astype(bool)
    sizes = live.sum(axis=1)
    assert sizes.max() <= batch
    assert sizes.max() - sizes.min() <= 1
    pairs = np.column_stack([dealt.heads[live], dealt.tails[live]])
    expected = np.column_stack([np.repeat(np.arange(count), nearest.shape[1]), nearest.ravel()])
    np.testing.assert_array_equal(
        pairs[np.lexsort(pairs.T)], np.repeat(expected[np.lexsort(expected.T)], 2, axis=0)
    )


@pytest.mark.parametrize("mixing", [0.2, None])
@pytest.mark.parametrize("counts", [(60,), (60, 33)])
def test_batch_holds_mixed_heads_followed_by_tails(counts: tuple[int, ...], mixing: float | None) -> None:
    clients = [local_of(some_rows(count), seed=count, mixing=mixing) for count in counts]
    batches = Batches(clients, "cpu")
    for step in range(batches.steps):
        found = torch.cat(batches.ends(step, batches.rows(step)), dim=1).numpy()
        for client, rows in zip(clients, found, strict=True):
            if step >= client.schedule.steps:
                continue
            dealt = client.schedule
            share = dealt.share[step][:, None]
            heads = share * client.rows[dealt.heads[step]] + (1 - share) * client.rows[dealt.partners[step]]
            width, half = len(heads), len(rows) // 2
            np.testing.assert_allclose(rows[:width], heads, atol=1e-6)
            np.testing.assert_array_equal(rows[half : half + width], client.rows[dealt.tails[step]])


def test_step_limit_takes_the_first_batches() -> None:
    nearest = local_neighbors(some_rows(), 4)
    whole, cut = (
        schedule(
            nearest, batch=32, epochs=2, negatives=3, mixing=None, steps=s, random=np.random.default_rng(0)
        )
        for s in (None, 3)
    )
    assert cut.steps == 3
    np.testing.assert_array_equal(cut.heads, whole.heads[:3])


def test_negatives_are_uniform_over_other_edges_of_the_batch() -> None:
    nearest = local_neighbors(some_rows(10), 1)
    dealt = schedule(nearest, batch=4, epochs=1, negatives=3000, mixing=None, random=np.random.default_rng(0))
    for line, live in zip(dealt.negatives, dealt.live.astype(bool), strict=True):
        for place_, drawn in enumerate(line[live]):
            others = [other for other in np.flatnonzero(live) if other != place_]
            counts = np.bincount(drawn, minlength=len(live))
            assert set(np.flatnonzero(counts)) == set(others)
            assert counts[others].min() > 3000 / len(others) * 0.9


def test_batch_of_one_edge_has_no_repulsion() -> None:
    nearest = np.array([[1], [0], [0]])
    dealt = schedule(nearest, batch=2, epochs=1, negatives=5, mixing=None, random=np.random.default_rng(0))
    assert sorted(dealt.repelled.tolist()) == [0.0, 1.0]


def test_mixed_rows_lie_between_a_row_and_its_neighbour() -> None:
    rows = some_rows()
    nearest = local_neighbors(rows, 4)
    dealt = schedule(nearest, batch=32, epochs=40, negatives=1, mixing=0.2, random=np.random.default_rng(0))
    live = dealt.live.astype(bool)
    assert all(
        partner in nearest[head]
        for head, partner in zip(dealt.heads[live], dealt.partners[live], strict=True)
    )
    share = dealt.share[live]
    assert share.min() >= 0.0
    assert share.max() <= 1.0
    assert share.mean() == pytest.approx(0.5, abs=0.02)
    assert share.var() == pytest.approx(0.25 / 1.4, abs=0.01), "Beta(0.2, 0.2)"


@pytest.mark.parametrize("count", [0, 1])
def test_single_row_has_no_edges(count: int) -> None:
    rows = some_rows(count)
    assert local_neighbors(rows, 7).shape == (count, 0)
    local = local_of(rows)
    assert local.schedule.steps == 0
    architecture = Architecture(5, (4,))
    weights = initial_weights(architecture, np.random.default_rng(0))
    trained = train(architecture, weights, [local], Objective(5.0, ONE), learning_rate=1e-3)
    assert trained.weights[0].tobytes() == weights.tobytes()
    assert trained.losses.tolist() == [0.0]
    assert not trained.gradients.any()


# Training


def test_training_equals_torch_adam() -> None:
    architecture = Architecture(5, (8,))
    local = local_of(some_rows())
    weights = initial_weights(architecture, np.random.default_rng(0))
    correction = np.random.default_rng(1).normal(size=(1, len(weights))).astype(np.float32)
    for corrections in (None, correction):
        trained = train(
            architecture, weights, [local], Objective(5.0, ONE), learning_rate=1e-2, corrections=corrections
        )
        batches = Batches([local], "cpu")
        flat = torch.from_numpy(weights.copy())[None].requires_grad_()
        adam = torch.optim.Adam([flat], lr=1e-2, eps=FLOOR)
        gradients = []
        for step in range(batches.steps):
            adam.zero_grad()
            batch_loss(architecture, flat, batches, step, Objective(5.0, ONE)).sum().backward()  # type: ignore[no-untyped-call]
            assert flat.grad is not None
            gradients.append(flat.grad.numpy().copy())
            if corrections is not None:
                flat.grad += torch.from_numpy(corrections)
            adam.step()
        # Without the last bias, which moves the whole map: its gradient is rounding error, and so are its steps.
        np.testing.assert_allclose(trained.weights[:, :-2], flat.detach().numpy()[:, :-2], atol=1e-3)
        np.testing.assert_allclose(trained.gradients, np.mean(gradients, axis=0), atol=1e-4)
        assert np.abs(trained.weights[0] - weights).max() > 1e-2


def test_training_lowers_the_loss_and_is_reproducible() -> None:
    rows = np.concatenate([some_rows(40), some_rows(40, seed=1) + 5])
    architecture = Architecture(5, (16,))
    weights = initial_weights(architecture, np.random.default_rng(0))
    local = local_of(rows, epochs=30)
    once, twice = (
        train(architecture, weights, [local], Objective(5.0, ONE), learning_rate=1e-2) for _ in range(2)
    )
    assert once.weights.tobytes() == twice.weights.tobytes()
    again = train(architecture, once.weights[0], [local], Objective(5.0, ONE), learning_rate=1e-2)
    assert again.losses[0] < 0.95 * once.losses[0]


@pytest.mark.parametrize("proximity", [0.0, 0.1])
def test_stacked_clients_train_like_single_ones(proximity: float) -> None:
    """Clients have unequal sizes, one a single row, one two; equal within rounding."""
    architecture = Architecture(5, (16, 16))
    weights = initial_weights(architecture, np.random.default_rng(0))
    sizes = (60, 1, 2, 13, 90)
    locals_ = [local_of(some_rows(size, seed=size), seed=size, epochs=2) for size in sizes]
    corrections = 1e-2 * np.random.default_rng(1).normal(size=(5, len(weights))).astype(np.float32)
    together = train(
        architecture,
        weights,
        locals_,
        Objective(5.0, np.ones(5, np.float32), None, proximity),
        learning_rate=1e-3,
        corrections=corrections,
    )
    for index, local in enumerate(locals_):
        alone = train(
            architecture,
            weights,
            [local],
            Objective(5.0, ONE, None, proximity),
            learning_rate=1e-3,
            corrections=corrections[index : index + 1],
        )
        np.testing.assert_allclose(together.weights[index], alone.weights[0], atol=3e-4)
        np.testing.assert_allclose(together.gradients[index], alone.gradients[0], atol=1e-4)
        assert together.losses[index] == pytest.approx(alone.losses[0], rel=1e-4)


def test_proximity_limits_the_change_of_weights() -> None:
    architecture = Architecture(5, (16,))
    weights = initial_weights(architecture, np.random.default_rng(0))
    local = local_of(some_rows(), epochs=20)
    moved = [
        np.linalg.norm(
            train(architecture, weights, [local], Objective(5.0, ONE, None, mu), learning_rate=1e-2).weights[
                0
            ]
            - weights
        )
        for mu in (0.0, 1.0, 100.0)
    ]
    assert moved[0] > 1.5 * moved[1] > 1.5 * moved[2]


def test_weight_decay_adds_its_multiple_of_the_weights_to_the_gradient() -> None:
    """Of both clients, in one batch each."""
    architecture = Architecture(5, (16,))
    weights = initial_weights(architecture, np.random.default_rng(0))
    locals_ = [local_of(some_rows(size), seed=size) for size in (6, 8)]
    plain, decayed = (
        train(
            architecture,
            weights,
            locals_,
            Objective(5.0, np.ones(2, np.float32), weight_decay=decay),
            learning_rate=1e-3,
        )
        for decay in (0.0, 0.25)
    )
    assert all(local.schedule.steps == 1 for local in locals_)
    for client in range(2):
        added = decayed.gradients[client] - plain.gradients[client]
        np.testing.assert_allclose(added, 0.25 * weights, atol=1e-5)
    squared = float((weights.astype(np.float64) ** 2).sum())
    np.testing.assert_allclose(decayed.losses - plain.losses, 0.125 * squared, rtol=1e-4)


def test_adam_step_is_within_its_bound() -> None:
    """The worst gradients by Cauchy-Schwarz: g_i proportional to a_i / b_i, newest last."""
    steps = 2000
    back = np.arange(steps)[::-1]
    gradients = (0.1 * 0.9**back) / (0.001 * 0.999**back)
    first = second = 0.0
    for count, gradient in enumerate(gradients, 1):
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        length = first / (1 - 0.9**count) / math.sqrt(second / (1 - 0.999**count))
        assert length <= LONGEST_STEP
    assert length > 0.8 * LONGEST_STEP


# Prototypes and the warm start


@pytest.mark.parametrize("count", [0, 1, 4, 5, 9, 10, 11, 127, 640])
def test_prototypes_are_means_of_disjoint_groups(count: int) -> None:
    """Rows are unit vectors, so a mean shows the members and the size of its group."""
    means = prototypes(np.eye(count, max(count, 1)), 5)
    assert len(means) == prototype_count(count, 5)
    assert means.dtype == np.float32
    members = means > 0
    assert (members.sum(axis=0) <= 1).all()
    if count >= 5:
        assert members.any(axis=0).all()
        assert 5 <= members.sum(axis=1).min() <= members.sum(axis=1).max() <= 9
        np.testing.assert_allclose(means.sum(axis=1), 1.0, rtol=1e-6)


def test_prototypes_stay_within_clusters() -> None:
    centres = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 90.0], [40.0, 80.0]])
    rows = np.concatenate([centre + some_rows(64, 2, seed) for seed, centre in enumerate(centres)])
    means = prototypes(rows, 8)
    apart = np.linalg.norm(means[:, None] - centres, axis=2).min(axis=1)
    assert apart.max() < 4


def test_warm_start_lowers_its_rate_in_three_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from raydr.methods.fedne import warm_start as room

    parts: list[tuple[float, int]] = []

    def recorded(
        architecture: Architecture,
        weights: np.ndarray,
        clients: list[Local],
        *more: Objective,
        learning_rate: float,
        floor: float,
    ) -> Trained:
        parts.append((learning_rate, clients[0].schedule.steps))
        return train(architecture, weights, clients, *more, learning_rate=learning_rate, floor=floor)

    monkeypatch.setattr(room, "train", recorded)
    architecture = Architecture(4, (8,))
    rng = np.random.default_rng(0)
    warm_start(
        architecture,
        initial_weights(architecture, rng),
        rng.normal(size=(40, 4)).astype(np.float32),
        FedNE(neighbors=4, batch=32, learning_rate=0.01, decay=0.5),
        rng,
        steps=100,
        mixing=None,
    )
    np.testing.assert_allclose([rate for rate, _ in parts], [0.01, 0.005, 0.0025])
    assert [steps for _, steps in parts] == [40, 30, 30]


def test_warm_start_separates_clusters() -> None:
    rows = np.concatenate([some_rows(30), some_rows(30, seed=1) + 6])
    architecture = Architecture(5, (16,))
    weights = initial_weights(architecture, np.random.default_rng(0))

    settings = FedNE(neighbors=4, batch=64, learning_rate=1e-2, decay=0.1)

    def started(prototypes: np.ndarray) -> np.ndarray:
        random = np.random.default_rng(0)
        return warm_start(architecture, weights, prototypes, settings, random, steps=200, mixing=0.2)

    def separation(weights: np.ndarray) -> float:
        """Distance between the clusters' centres on the map, in deviations of their members."""
        first, second = np.split(place(architecture, weights, rows), 2)
        spread = np.sqrt(first.var(axis=0).sum() + second.var(axis=0).sum())
        return float(np.linalg.norm(first.mean(axis=0) - second.mean(axis=0)) / spread)

    assert separation(started(rows)) > 1.5 * separation(weights)
    assert started(rows[:1]).tobytes() == weights.tobytes()


# The server


def test_server_steps() -> None:
    weights, change = np.array([1.0, 2.0], np.float32), np.array([0.5, -1.0])
    memory = initial_memory(2)
    averaged, kept = server_step("fedavg", weights, change, memory, 1.0)
    np.testing.assert_allclose(averaged, [1.5, 1.0])
    assert not kept.any()
    once, kept = server_step("fedavgm", weights, change, memory, 1.0)
    twice, _ = server_step("fedavgm", once, change, kept, 1.0)
    np.testing.assert_allclose(twice - once, 1.9 * change, rtol=1e-6)
    once, kept = server_step("nesterov", weights, change, memory, 1.0)
    np.testing.assert_allclose(once - weights, (1.0 + NESTEROV_MOMENTUM) * change, rtol=1e-6)
    assert kept.shape == memory.shape
    stepped, _ = server_step("fedadam", weights, change, memory, 0.1)
    np.testing.assert_allclose(
        stepped - weights, 0.1 * 0.1 * change / (0.1 * np.abs(change) + ADAPTIVITY), rtol=1e-5
    )


def test_nesterov_step_uses_the_lookahead_gradient() -> None:
    """On a quadratic: v = beta v - rate grad(theta + beta v), theta += v; clients start from theta + beta v."""
    curvature, rate, beta = np.array([3.0, 0.2]), 0.1, NESTEROV_MOMENTUM
    place, velocity = np.array([1.0, -2.0]), np.zeros(2)
    weights, memory = place.astype(np.float32), initial_memory(2)
    for _ in range(30):
        change = -rate * curvature * weights.astype(np.float64)
        weights, memory = server_step("nesterov", weights, change, memory, 1.0)
        velocity = beta * velocity - rate * curvature * (place + beta * velocity)
        place = place + velocity
        np.testing.assert_allclose(weights, place + beta * velocity, atol=1e-5)


def test_stepped_rate_falls_at_30_and_60_percent() -> None:
    rates = [stepped_rate(round, 10, 1e-3, 0.1) for round in range(1, 11)]
    np.testing.assert_allclose(rates, [1e-3] * 3 + [1e-4] * 3 + [1e-5] * 4)


def test_cosine_rate_falls_along_a_half_cosine() -> None:
    rates = np.array([cosine_rate(round, 100, 1e-3) for round in range(1, 101)])
    assert rates[0] == 1e-3
    assert rates[50] == pytest.approx(5e-4)
    assert np.all(np.diff(rates) < 0)
    assert 0 < rates[-1] < 1e-6


def test_squared_distance_sums_over_the_last_axis() -> None:
    left, right = torch.tensor([[0.0, 3.0]]), torch.tensor([[4.0, 0.0]])
    assert squared_distance(left, right).tolist() == [25.0]
