"""FedNE and its baselines as federated methods: equal to the plain algorithm, in any packing, with tiny clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fedne_tables import TRAINING, asked_to_train, blobs
from inline_federations import KNOWN, federate, federation_over, known
from requests_for_tests import OwnShift
from sklearn.neighbors import KNeighborsClassifier
from tiny import labelled, tiny_run, tiny_scenario

import raydr
from raydr.arrays import FloatArray, Int64Array
from raydr.data import load
from raydr.device import ArrayDevice, computing_at
from raydr.errors import DataError, OutputError, RunError, ScenarioError
from raydr.federation import Client, ClientHost, Federation, HostedClient, InlineTransport, fingerprint
from raydr.federation.checkpoint import Checkpoint
from raydr.federation.failures import Failure, FailurePolicy
from raydr.federation.ring import resolution
from raydr.federation.simulated.faults import FaultPlan
from raydr.federation.streams import client_stream
from raydr.federation.wire import Answered, Call
from raydr.journal import CheckpointTaken, Event, Journal
from raydr.methods import METHODS
from raydr.methods.fedne import server, training
from raydr.methods.fedne.baselines import GlobalNE, LocalNE
from raydr.methods.fedne.clients import (
    LONGEST_STEP,
    Change,
    FieldSource,
    TrainRequest,
    kept_size,
    local_task,
    objective_of,
    others_field,
    train_locally,
    train_together,
)
from raydr.methods.fedne.fedne import FedAvgNE, FedNE, FedProxNE
from raydr.methods.fedne.field import Grid, deposit, repulsion_field
from raydr.methods.fedne.landmark import LandmarkNE
from raydr.methods.fedne.loss import repulsion, squared_distance
from raydr.methods.fedne.model import standardised
from raydr.methods.fedne.round_state import ControlVariates, RoundState
from raydr.methods.fedne.server import first_axes, train_request
from raydr.methods.fedne.settings import ContrastiveEncoder
from raydr.methods.fedne.surrogates import DENSITY_ROWS, DensityRequest, density
from raydr.methods.novelty import NOVELTY
from raydr.methods.outcome import Outcome
from raydr.partition import Dirichlet, OneClass
from raydr.privacy.sealing import Binding, seal, unseal
from raydr.runfolder.model import read_model
from raydr.statistics.principal_axes import principal_axes

KINDS = ("fedne", "fedavg-ne", "fedprox-ne", "local-ne", "global-ne", "landmark-ne")
SMALL: dict[str, Any] = {"hidden": (16, 16), "rounds": 3, "batch": 32, "neighbors": 4}
FEDNE: dict[str, Any] = SMALL | {"prototypes": 4, "warm_steps": 20}
VARIANTS: dict[str, ContrastiveEncoder] = {
    "fedne": FedNE(**FEDNE),
    "fedne, networks": FedNE(**FEDNE | {"surrogate": "mlp"}),
    "fedne, networks at own points": FedNE(**FEDNE | {"surrogate": "mlp", "surrogate_points": "local"}),
    "fedne, principal start": FedNE(**SMALL),
    "fedne, random start": FedNE(**SMALL, start="random"),
    "fedne, nothing": FedNE(**SMALL, surrogate="none", mixing=None, control_variates=False),
    "fedne, every second": FedNE(**FEDNE | {"surrogate_every": 2, "surrogate_from": 0.4}),
    "fedne, published": FedNE(**SMALL, preset="published"),
    "fedne, momentum": FedNE(**SMALL, server_optimizer="nesterov", local_neighbors=2),
    "fedavg-ne": FedAvgNE(**SMALL),
    "fedavg-ne, Adam": FedAvgNE(**SMALL, server_optimizer="fedadam", server_learning_rate=0.01),
    "fedprox-ne": FedProxNE(**SMALL),
    "local-ne": LocalNE(**SMALL),
    "global-ne": GlobalNE(**SMALL),
    "landmark-ne": LandmarkNE(**SMALL),
}


def outcome(settings: ContrastiveEncoder, parts: Sequence[FloatArray], **how: Any) -> Outcome:
    return METHODS[settings.kind].serve(federate(parts, **how), settings)  # type: ignore[attr-defined]


FAST = ("fedne", "fedne, networks at own points", "fedne, momentum", "local-ne", "landmark-ne")
VARIANT_NAMES = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS]


@cache
def plain(name: str) -> Outcome:
    """Return the outcome of a variant on the blobs, in one host, without interruption."""
    return outcome(VARIANTS[name], blobs())


def digits(rows: int = 900) -> tuple[FloatArray, Int64Array]:
    from sklearn.datasets import load_digits

    table, labels = load_digits(return_X_y=True)
    chosen = np.random.default_rng(0).permutation(len(table))[:rows]
    return table[chosen], labels[chosen].astype(np.int64)


# The algorithm


def test_pooled_map_uses_each_edge_once_per_round() -> None:
    rows, maps = np.concatenate(blobs()), set()
    for how in ({}, {"local_epochs": 3}, {"local_steps": 1}):
        maps.add(GlobalNE(**SMALL, **how).central({}, rows, 0, Journal()).embedding.tobytes())
    assert len(maps) == 1


def test_local_neighbors_limits_client_graphs_but_not_the_pooled_map() -> None:
    """Clients may leave neighbours out of their graphs; the pooled map never does."""
    parts, maps = blobs(), {}
    for few in (None, 2, 9):
        settings = FedNE(**SMALL, local_neighbors=few)
        training = settings.training(federate(parts))
        client = Client(index=3, rows=parts[3].astype(np.float32), seed=0, round=1)
        batches = local_task(
            client,
            asked_to_train(np.zeros(0, np.float32), training=replace(training, mixing=0.0)),
        ).schedule
        nearest = np.argsort(((parts[3][:, None] - parts[3]) ** 2).sum(axis=2), axis=1)[:, 1:]
        heads, tails = (ends[batches.live > 0] for ends in (batches.heads, batches.tails))
        ranks = {
            int(np.flatnonzero(nearest[head] == tail)[0]) for head, tail in zip(heads, tails, strict=True)
        }
        assert ranks == set(range(2 if few == 2 else settings.neighbors))
        maps[few] = settings.central({}, np.concatenate(parts), 0, Journal()).embedding.tobytes()
    assert len(set(maps.values())) == 1


def test_round_averages_local_training_weighted_by_rows() -> None:
    """Compare P2 (4), one round, with a loop over clients."""
    parts = blobs()
    settings = FedAvgNE(**SMALL | {"rounds": 1, "update_bits": 64})
    model = outcome(settings, parts).model
    federation = federate(parts)
    scaling, *_ = standardised(federation)
    weights = settings.first_weights(federation)
    request = asked_to_train(weights, training=replace(TRAINING, hidden=settings.hidden, most_steps=100))
    expected = weights.astype(np.float64)
    for index, part in enumerate(parts):
        client = Client(index=index, rows=(part - scaling.shift) * scaling.factor, seed=0, round=1)
        expected += len(part) / 129 * train_locally(client, request).weights
    from raydr.methods.fedne.encoder import Architecture

    averaged = Architecture(5, settings.hidden).flat(
        {name.removeprefix("encoder."): values for name, values in model.items()}
    )
    np.testing.assert_allclose(averaged, expected, atol=1e-7)
    assert np.abs(averaged - weights).max() > 1e-4


def test_rounded_sums_give_the_mean_change_without_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change in 16 bits is within the resolution of the exact one, and their mean over many roundings closer."""
    parts, settings = blobs(), FedAvgNE(**SMALL | {"rounds": 1})
    federation = federate(parts)
    request = train_request(
        settings.training(federation),
        RoundState.first(settings.first_weights(federation), ControlVariates.none()),
        1,
        1e-3,
    )
    assert request.training.bits == 16
    exact = federation.mean(
        replace(request, training=replace(request.training, bits=64)), weights="rows"
    ).weights

    def same_batches(client: Client, request: TrainRequest) -> Any:
        round, client.round = client.round, 0
        found = local_task(client, request)
        client.round = round
        return found

    # Every round draws other roundings, and, in this test alone, the same batches.
    monkeypatch.setattr("raydr.methods.fedne.clients.local_task", same_batches)
    rounded = []
    for _ in federation.rounds(200):
        rounded.append(federation.mean(request, weights="rows").weights)
    step = resolution(LONGEST_STEP * 1e-3 * request.training.most_steps, 129, 16) / 129
    present = sum(len(part) > 0 for part in parts)
    errors = np.stack(rounded) - exact
    assert np.abs(errors).max() < present * step
    assert 0.2 * step < errors.std() < 0.5 * np.sqrt(present) * step
    assert np.abs(errors.mean(axis=0)).max() < 5.0 * 0.5 * np.sqrt(present / 200) * step


def test_sums_are_exact_where_rounding_is_refused() -> None:
    assert FedNE(aggregation={"kind": "coordinate-median"}).sum_bits(federate(blobs())) == 64
    with pytest.raises(ValueError, match="leave update_bits out, or choose aggregation: mean"):
        FedNE(aggregation={"kind": "coordinate-median"}, update_bits=16)
    with pytest.raises(ScenarioError, match=r"leave method\.update_bits out"):
        tiny_scenario(
            method={"kind": "fedne", "bounds": [0, 8], "update_bits": 16},
            privacy__noise={"on": "update", "epsilon": 8.0, "clip": 1.0},
        )


def test_messages_of_a_round_are_small() -> None:
    def bytes_of(bits: int) -> dict[str, int]:
        federation = federate(blobs([30] * 3))
        METHODS["fedne"].serve(federation, FedNE(**SMALL, update_bits=bits))
        return {entry.kind: entry.bytes for entry in federation.ledger.entries.values()}

    narrow, wide = bytes_of(16), bytes_of(64)
    messages, parameters = 3 * SMALL["rounds"], 402
    assert wide["Change"] - narrow["Change"] == messages * parameters * (6 + 4)
    assert narrow["TrainRequest"] < 0.7 * wide["TrainRequest"]
    assert narrow["Density"] < 0.5 * wide["Density"]


class FarAway(FedNE):
    """FedNE whose first map is 50 units from the origin."""

    def first_weights(self, federation: Federation, axes: Any = None) -> Any:
        weights = super().first_weights(federation, axes)
        weights[-2:] += 50.0
        return weights


def test_map_stays_around_the_origin() -> None:
    """The grid around it would else grow with the map's way. The move changes no distance on the map."""
    away, near = (
        METHODS["fedne"].serve(federate(blobs()), kind(**SMALL | {"rounds": 1, "update_bits": 64}))
        for kind in (FarAway, FedNE)
    )
    for found in (away, near):
        assert np.abs(found.embedding.mean(axis=0)).max() < 2.0
    moved = away.embedding - near.embedding
    np.testing.assert_allclose(moved, np.broadcast_to(moved.mean(axis=0), moved.shape), atol=0.05)


def test_centre_of_a_density_is_the_mean_position() -> None:
    positions = np.random.default_rng(0).normal((1.0, -2.0), 1.0, (50, 2))
    grid = Grid.covering(8.0, 0.3)
    np.testing.assert_allclose(grid.centre(deposit(grid, positions)), positions.mean(axis=0), atol=1e-4)
    np.testing.assert_array_equal(grid.centre(np.zeros((grid.nodes, grid.nodes))), 0.0)


def test_field_repulsion_equals_pooled_pair_repulsion() -> None:
    """The gradient of b times the mean repulsion of pairs, where both ends move, equals that of the field term."""
    places = torch.from_numpy(2 * np.random.default_rng(0).normal(size=(1500, 2)).astype(np.float32))
    pairs = places.clone().requires_grad_()
    apart = repulsion(squared_distance(pairs[:, None], pairs[None]))
    mean = 5.0 * (apart.sum() - apart.diagonal().sum()) / (1500 * 1499)
    (exact,) = torch.autograd.grad(mean, pairs)
    grid = Grid.covering(10.0, 0.1)
    field = repulsion_field(grid, deposit(grid, places.numpy()) / 1500).astype(np.float32)
    request = asked_to_train(
        np.zeros(9, np.float32),
        training=replace(TRAINING, hidden=(), mixing=0.2),
        field=field,
        reach=grid.reach,
    )
    objective = objective_of([Client(index=0, rows=np.zeros((5, 2)), seed=0)], [request])
    assert objective.own_share is None
    assert objective.surrogate is not None
    heads = places.clone().requires_grad_()
    (felt,) = torch.autograd.grad(objective.negatives * objective.surrogate(heads[None]).mean(), heads)
    assert float((felt * exact).sum() / (exact**2).sum()) == pytest.approx(1.0, abs=0.05)
    assert float((felt - exact).norm() / exact.norm()) < 0.2


def test_own_rows_and_field_of_others_repel_like_pooled_rows() -> None:
    """For three separate clients, the sum of their gradients is that of all pairs, where both ends move."""
    places = 2 * np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    places = places[np.argsort(places[:, 0])]
    parts = np.split(places, [60, 200])
    pairs = torch.from_numpy(places).requires_grad_()
    apart = repulsion(squared_distance(pairs[:, None], pairs[None]))
    (exact,) = torch.autograd.grad(5.0 * (apart.sum() - apart.diagonal().sum()) / 300**2, pairs)
    grid = Grid.covering(9.0, 0.1)
    shares = np.array([60, 140, 100], np.float32) / 300
    request = asked_to_train(
        np.array([1, 0, 0, 1, 0, 0], np.float32),
        training=replace(TRAINING, hidden=()),
        field=repulsion_field(grid, deposit(grid, places) / 300).astype(np.float32),
        reach=grid.reach,
        spoken=shares,
    )
    clients = [Client(index=index, rows=part, seed=0) for index, part in enumerate(parts)]
    objective = objective_of(clients, [request.addressed_to(index) for index in range(3)])
    assert objective.own_share is not None
    assert objective.surrogate is not None
    np.testing.assert_array_equal(objective.own_share, shares)
    moving = [torch.from_numpy(part).requires_grad_() for part in parts]
    width = max(map(len, parts))
    stacked = torch.stack([torch.nn.functional.pad(part, (0, 0, 0, width - len(part))) for part in moving])
    far, loss = objective.surrogate(stacked), torch.zeros(())
    for index, part in enumerate(moving):
        near = repulsion(squared_distance(part[:, None], part[None]))
        own = (near.sum() - near.diagonal().sum()) / len(part) ** 2 * float(shares[index])
        loss = loss + 5.0 * float(shares[index]) * (own + far[index, : len(part)].mean())
    felt = torch.cat(torch.autograd.grad(loss, moving))
    assert float((felt * exact).sum() / (exact**2).sum()) == pytest.approx(1.0, abs=0.05)
    assert float((felt - exact).norm() / exact.norm()) < 0.2


def test_client_is_not_repelled_by_its_own_field() -> None:
    rows = np.random.default_rng(0).normal(size=(3 * DENSITY_ROWS, 2)).astype(np.float32)
    client, weights = Client(index=0, rows=rows, seed=0, round=4), np.array([1, 0, 0, 1, 0, 0], np.float32)
    grid = Grid(8.0, 41)
    reply = density(
        client, DensityRequest(weights=weights, hidden=(), reach=grid.reach, nodes=grid.nodes)
    ).share
    request = asked_to_train(
        weights,
        training=replace(TRAINING, hidden=()),
        field=repulsion_field(grid, reply).astype(np.float32),
        reach=grid.reach,
        spoken=np.ones(1, np.float32),
    )
    np.testing.assert_allclose(others_field(client, request, grid), 0.0, atol=1e-5)
    later, moved = replace(client, round=5), replace(request, weights=2 * weights)
    assert np.abs(others_field(later, request, grid)).max() > 1e-3  # a new sample of rows
    source = FieldSource(weights, 4)
    np.testing.assert_allclose(others_field(later, replace(moved, source=source), grid), 0.0, atol=1e-5)


def test_rows_that_a_field_lacks_repel_each_other_by_their_share_of_all_rows() -> None:
    client, field = Client(index=0, rows=np.ones((30, 2), np.float32), seed=0), np.ones((5, 5), np.float32)
    request = asked_to_train(
        np.array([1, 0, 0, 1, 0, 0], np.float32),
        training=replace(TRAINING, hidden=(), rows=120),
        field=field,
        spoken=np.zeros(1, np.float32),
    )
    objective = objective_of([client], [request])
    np.testing.assert_allclose(objective.own_share, 0.25)
    assert objective.surrogate is not None
    np.testing.assert_allclose(objective.surrogate(torch.zeros(1, 1, 2)), 2.0 * 0.75)


def test_later_rounds_of_a_field_name_the_encoder_that_it_was_made_with() -> None:
    settings = FedNE(**SMALL | {"rounds": 5, "surrogate_every": 3})
    federation = federate(blobs())
    _, reach, _ = standardised(federation)
    axes = principal_axes(federation, reach, first_axes(settings.widths(5)))
    first = settings.first_weights(federation, axes)
    state, found = RoundState.first(first, ControlVariates.none()), {}
    for round in federation.rounds(5):
        state = settings.renew_surrogates(federation, state, round)
        found[round] = train_request(settings.training(federation), state, round, 1e-3).source
        state = replace(state, weights=state.weights + np.float32(0.125))
    assert {round: source and source.round for round, source in found.items()} == {
        1: None,
        2: 1,
        3: 1,
        4: None,
        5: 4,
    }
    for round, made_with in ((2, first), (3, first), (5, first + np.float32(0.375))):
        np.testing.assert_array_equal(found[round].weights, made_with.astype(np.float16))


def test_clients_that_did_not_answer_have_no_share_in_the_field() -> None:
    parts = blobs([30, 0, 10, 60, 20])
    settings = FedNE(**SMALL)
    federation = federate(parts, participation=0.5)
    _, reach, _ = standardised(federation)
    axes = principal_axes(federation, reach, first_axes(settings.widths(parts[0].shape[1])))
    state = RoundState.first(settings.first_weights(federation, axes), ControlVariates.none())
    for round in federation.rounds(6):
        state = settings.renew_surrogates(federation, state, round)
        answered = list(federation.answered)
        expected = np.zeros(5)
        expected[answered] = [len(parts[client]) for client in answered]
        np.testing.assert_allclose(state.spoken, expected / expected.sum(), rtol=1e-6)
        assert 0 < np.count_nonzero(expected) < 4
    median = FedNE(**SMALL, aggregation={"kind": "coordinate-median"})
    assert not median.spoken(federation).size


def test_global_ne_does_not_depend_on_the_partition() -> None:
    rows = np.concatenate(blobs())
    pooled = outcome(GlobalNE(**SMALL), [rows]).embedding
    apart = outcome(GlobalNE(**SMALL), np.array_split(rows, 5)).embedding
    np.testing.assert_allclose(apart, pooled, atol=1e-3)


@pytest.mark.parametrize("name", VARIANT_NAMES)
def test_any_packing_gives_the_same_bits(name: str) -> None:
    settings, parts = VARIANTS[name], blobs()
    expected = plain(name).embedding.tobytes()
    assert outcome(settings, parts, packing=[2, 3, 1]).embedding.tobytes() == expected
    if name == "fedne":
        assert outcome(settings, parts, packing=[1] * 6).embedding.tobytes() == expected
        assert outcome(settings, parts, seed=1).embedding.tobytes() != expected


@pytest.mark.parametrize("name", VARIANT_NAMES)
def test_rows_of_tiny_clients_are_on_the_map(name: str) -> None:
    found = plain(name)
    assert (found.geometry is None) == (name != "landmark-ne")
    assert found.embedding.shape == (129, 2)
    assert np.isfinite(found.embedding).all()


@pytest.mark.parametrize("name", VARIANTS)
def test_clients_with_single_rows_give_a_finite_map(name: str) -> None:
    parts = [np.random.default_rng(seed).normal(size=(1, 3)) for seed in range(4)]
    if name == "global-ne":
        pytest.skip("pooled rows have neighbours")
    assert np.isfinite(outcome(VARIANTS[name], parts).embedding).all()


def test_methods_differ_in_their_training_settings() -> None:
    """FedProx has a proximal term, FedNE mixed rows and left-out networks; FedAvg has none of these."""
    federation = federate(blobs())
    plain = FedAvgNE(**SMALL).training(federation)
    assert (plain.proximity, plain.mixing, plain.left_out) == (0.0, 0.0, 0.0)
    assert FedProxNE(**SMALL, proximity=0.3).training(federation) == replace(plain, proximity=0.3)
    mixed = FedNE(**SMALL, surrogate="mlp", surrogates_left_out=0.25, mixing=0.7, mixed="rows")
    asked = mixed.training(federation)
    assert (asked.proximity, asked.mixing, asked.left_out, asked.mixed) == (0.0, 0.7, 0.25, "rows")
    assert FedNE(**SMALL, mixing=None).training(federation).mixing == 0.0
    usual, decaying = (FedNE(**SMALL, **more).training(federation) for more in ({}, {"weight_decay": 0.5}))
    assert (usual.weight_decay, decaying) == (0.0, replace(usual, weight_decay=0.5))
    pulled, free = (
        outcome(method(**SMALL, **more), blobs()).embedding
        for method, more in ((FedProxNE, {"proximity": 10.0}), (FedAvgNE, {}))
    )
    assert np.ptp(pulled - free) > 1e-3


def test_weight_decay_makes_the_encoder_s_weights_smaller() -> None:
    faster = SMALL | {"learning_rate": 0.03}
    free, decayed = (
        outcome(FedNE(**faster, weight_decay=decay), blobs()).model or {} for decay in (0.0, 0.5)
    )
    layers = [name for name in free if name.startswith("encoder.layers.")]
    assert len(layers) == 6
    lengths = [sum(float((model[name] ** 2).sum()) for name in layers) for model in (free, decayed)]
    assert lengths[1] < 0.6 * lengths[0]


def test_clients_train_with_the_weight_decay_that_the_server_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    train, seen = training.train, []

    def noted(architecture: Any, weights: Any, tasks: Any, objective: Any, **more: Any) -> Any:
        seen.append(objective.weight_decay)
        return train(architecture, weights, tasks, objective, **more)

    monkeypatch.setattr(training, "train", noted)
    outcome(FedNE(**SMALL, weight_decay=0.5), blobs())
    assert set(seen) == {0.5}


def test_equal_rows_are_refused() -> None:
    with pytest.raises(DataError, match="All rows of all clients are equal"):
        outcome(FedNE(**FEDNE), [np.ones((5, 3)), np.ones((4, 3))])


def test_unit_of_the_data_changes_nothing() -> None:
    parts = blobs()
    here = plain("fedne").embedding
    there = outcome(FedNE(**FEDNE), [1024.0 * part for part in parts]).embedding
    np.testing.assert_allclose(there, here, atol=1e-2)


def test_rows_with_nan_are_refused_by_client_name() -> None:
    parts = blobs()
    client = Client(index=3, rows=np.where(parts[3] > 1e9, 0, parts[3]), seed=0, round=1)
    client.rows[2, 1] = np.nan
    client.memory["neighbors"] = np.tile(np.arange(1, 5), (60, 1))
    federation = federate(parts)
    request = asked_to_train(FedAvgNE(**SMALL).first_weights(federation))
    with pytest.raises(RunError, match="the loss is not finite"):
        train_locally(client, request)


# Quality


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["dirichlet", "one class"])
def test_fedne_separates_classes_better_than_averaging(partition: str) -> None:
    rows, labels = digits(1700)
    train, test = np.arange(1300), np.arange(1300, 1700)
    dealing = Dirichlet(alpha=0.1, min_rows=0) if partition == "dirichlet" else OneClass()
    dealt = dealing.deal(labelled(labels[train]), 10, 0)
    own = [dealt.rows_of(client) for client in range(10)]
    accuracies = {}
    for settings in (
        FedNE(rounds=60, batch=128),
        FedAvgNE(rounds=60, batch=128, local_steps=10),
        GlobalNE(rounds=60, batch=128, local_steps=100),
    ):
        found = outcome(settings, [rows[part] for part in own])
        placed = settings.transform(found.model, rows[test])
        voters = KNeighborsClassifier(n_neighbors=7).fit(
            found.embedding, labels[np.concatenate(own)]
        )  # P2 5.1
        accuracies[settings.kind] = voters.score(placed, labels[test])
    assert accuracies["fedne"] > accuracies["fedavg-ne"] + 0.25
    assert accuracies["fedne"] > accuracies["global-ne"] - 0.05


# Control variates


def key_of(client: int) -> bytes:
    """Key under which a client of the known root seals."""
    return KNOWN.derived("client", client).key("sealing")


def test_server_control_variate_is_the_mean_of_client_ones() -> None:
    """C is the mean by rows of all c_i, including those of earlier rounds; each client reads only its own."""
    parts, taken = blobs([30, 10, 0, 25, 8, 19]), []

    def collect(event: Event) -> None:
        if isinstance(event, CheckpointTaken):
            taken.append(Checkpoint.from_bytes(event.content))

    hosted = [HostedClient(index, rows, fingerprint(rows)) for index, rows in enumerate(parts)]
    federation = federation_over(
        InlineTransport([ClientHost(hosted=hosted, seed=0, host_secrets=known(hosted))]),
        len(hosted),
        seed=0,
        journal=Journal(collect),
        checkpoint_every=1,
        participation=0.4,
    )
    METHODS["fedne"].serve(federation, FedNE(**SMALL | {"rounds": 5}))
    for checkpoint in taken:
        state = checkpoint.loops[-1].state
        expected = np.zeros(state["control"].shape)
        for client, sealed in enumerate(state["kept"]):
            if sealed.any():
                secret = key_of(client)
                binding = Binding("", client, int(state["kept_rounds"][client]), "control variate")
                own = unseal(sealed, secret, binding).view(np.float16)
                expected += len(parts[client]) / 92 * own.astype(np.float64)
                for other in (key_of(client + 1), secret):
                    with pytest.raises(RunError, match="another client"):
                        unseal(sealed, other, replace(binding, client=client + 1))
        # 32 bits for a range of 128, and at most 3 clients in each of 5 rounds
        np.testing.assert_allclose(state["control"], expected, atol=15 * 2.0**-23)
        assert np.abs(expected).max() > 1e-3
    assert {int(sealed.any()) for sealed in taken[0].loops[-1].state["kept"]} == {0, 1}


def test_client_applies_and_updates_its_control_variate() -> None:
    """The first step of Adam follows the sign of g_i + c - c_i; the client sends its new c_i minus the old."""
    rows = blobs()[0].astype(np.float32)
    client = Client(index=0, rows=rows, seed=0, round=1, secret=KNOWN.derived("client", 0))
    weights = FedAvgNE(**SMALL).first_weights(federate(blobs()))
    random = np.random.default_rng(0)
    mean = random.normal(0, 5, len(weights)).astype(np.float32)
    own = random.normal(0, 5, len(weights)).astype(np.float16)
    key = key_of(0)
    plain = asked_to_train(
        weights,
        training=replace(TRAINING, batch=512, most_steps=1),
        control=mean,
        kept=np.zeros((1, kept_size(len(weights))), np.uint8),
        kept_rounds=np.zeros(1, np.int64),
    )
    now = Binding("", 0, 1, "control variate")
    first = train_locally(client, plain.addressed_to(0))
    gradient = first.control.astype(np.float16)
    np.testing.assert_array_equal(gradient, first.control, "the message equals what is kept, bit for bit")
    assert unseal(first.kept, key, now).tobytes() == gradient.tobytes()
    handed = replace(plain, kept=seal(own.view(np.uint8), key, now)[None])
    second = train_locally(client, replace(handed, kept_rounds=np.array([1])).addressed_to(0))
    with pytest.raises(RunError, match=r"received its control variate of round 0 after that of round 1"):
        train_locally(client, plain.addressed_to(0))
    with pytest.raises(RunError, match=r"in round 2 .* another client, round or run"):
        train_locally(client, replace(handed, kept_rounds=np.array([2])).addressed_to(0))
    assert unseal(second.kept, key, now).tobytes() == gradient.tobytes(), "one batch, at the weights received"
    np.testing.assert_allclose(second.control, gradient.astype(np.float64) - own.astype(np.float64))
    np.testing.assert_array_equal(np.sign(first.weights), -np.sign(gradient + mean))
    np.testing.assert_array_equal(np.sign(second.weights), -np.sign(gradient + mean - own))


def test_server_sends_mean_control_and_each_sealed_variate() -> None:
    federation, settings = federate(blobs([30] * 3)), FedNE(**SMALL)
    random = np.random.default_rng(0)
    controls = ControlVariates(
        control=random.normal(size=402),
        kept=random.integers(256, size=(3, kept_size(402)), dtype=np.uint8),
        kept_rounds=np.array([4, 0, 2]),
    )
    state = RoundState.first(np.zeros(402, np.float32), controls)
    request = train_request(settings.training(federation), state, 1, 1e-3)
    np.testing.assert_array_equal(request.control, controls.control.astype(np.float16))
    for client in range(3):
        own = request.addressed_to(client)
        np.testing.assert_array_equal(own.kept, controls.kept[client][None])
        np.testing.assert_array_equal(own.kept_rounds, controls.kept_rounds[client])


def test_robust_rules_disable_control_variates() -> None:
    median = {"aggregation": {"kind": "coordinate-median"}}
    assert not FedNE(**median).has_control_variates
    with pytest.raises(ValueError, match="Leave control_variates out"):
        FedNE(**median, control_variates=True)
    assert np.isfinite(outcome(FedNE(**SMALL | median), blobs([30] * 5)).embedding).all()


def test_too_large_control_variates_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raydr.methods.fedne.fedne.MOST_KEPT_BYTES", 4_900)
    with pytest.raises(ScenarioError, match="The control variates of 6 clients, with 402 parameters"):
        outcome(FedNE(**SMALL), blobs())
    outcome(FedNE(**SMALL, control_variates=False), blobs())


@pytest.mark.parametrize("every", [2, 5])
def test_map_stays_with_a_field_that_serves_several_rounds(every: int) -> None:
    """The map is moved to the origin once for each field: moved in each round, it would be ever farther away."""
    often = outcome(FedNE(**SMALL | {"rounds": 30}), blobs()).embedding
    rarely = outcome(FedNE(**SMALL | {"rounds": 30, "surrogate_every": every}), blobs()).embedding
    assert np.linalg.norm(rarely.mean(axis=0)) < np.linalg.norm(often.std(axis=0))
    assert 0.2 < np.linalg.norm(rarely.std(axis=0)) / np.linalg.norm(often.std(axis=0)) < 2.0


def test_map_is_moved_after_the_last_round_of_a_field(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moved earlier, rows would be repelled by a field that stayed behind."""
    done: list[str] = []

    def noted(module: Any, name: str) -> None:
        original = getattr(module, name)

        def call(*given: Any, **named: Any) -> Any:
            done.append(name)
            return original(*given, **named)

        monkeypatch.setattr(module, name, call)

    noted(FedNE, "renew_field")
    noted(server, "train_request")
    noted(server, "recentred")
    outcome(FedNE(**SMALL | {"rounds": 7, "surrogate_every": 3}), blobs())
    field = ["renew_field", *["train_request"] * 3, "recentred"]
    assert done == field + field + field[:2]


# Messages


def test_ledger_records_what_clients_send() -> None:
    def per(granularity: str, settings: ContrastiveEncoder) -> set[str]:
        federation = federate(blobs())
        METHODS[settings.kind].serve(federation, settings)  # type: ignore[attr-defined]
        entries = [entry for entry in federation.ledger.entries.values() if entry.direction == "up"]
        return {entry.kind for entry in entries if entry.granularity == granularity}

    assert per("per-record", FedNE(**FEDNE)) == {"Positions"}
    assert "Prototypes" in per("per-client", FedNE(**FEDNE))
    assert {"Change", "Density"} <= per("aggregate", FedNE(**FEDNE))
    assert per("per-client", FedNE(**SMALL)) == {"Enrolment"}, (
        "else sums alone, and every record's place in the end"
    )
    assert "Surrogate" in per("per-client", FedNE(**FEDNE | {"surrogate": "mlp"}))
    assert per("per-record", GlobalNE(**SMALL)) == {"Positions", "Rows"} - {"Positions"}
    assert per("per-record", LocalNE(**SMALL)) == {"Positions"}


def test_large_client_samples_new_rows_for_the_field_each_round() -> None:
    """Use an identity encoder, so that shares are those of the rows."""
    rows = np.random.default_rng(0).normal(size=(4 * DENSITY_ROWS, 2)).astype(np.float32)
    rows[:DENSITY_ROWS] += 3
    client = Client(index=0, rows=rows, seed=0, round=1)
    request = DensityRequest(weights=np.array([1, 0, 0, 1, 0, 0], np.float32), hidden=(), reach=8.0, nodes=17)
    first = density(client, request).share
    client.round = 2
    second = density(client, request).share
    everybody = deposit(Grid(8.0, 17), rows) / len(rows)
    assert not np.array_equal(first, second)
    # Standard deviation of a mean of rows drawn without replacement, for each node.
    each = np.array([deposit(Grid(8.0, 17), row[None]) for row in rows])
    deviation = np.sqrt(each.var(axis=0) * (1 / DENSITY_ROWS - 1 / len(rows))).sum()
    for share in (first, second):
        assert share.sum() == pytest.approx(1.0)
        assert np.abs(share - everybody).sum() < 1.5 * deviation
    client.rows = rows[:DENSITY_ROWS]
    np.testing.assert_allclose(
        density(client, request).share, deposit(Grid(8.0, 17), client.rows) / DENSITY_ROWS
    )


def test_download_grows_with_clients_for_networks_but_not_field() -> None:
    def down(surrogate: str, clients: int) -> float:
        parts = blobs([8] * clients)
        federation = federate(parts)
        settings = FedNE(**SMALL, surrogate=surrogate, prototypes=None, surrogate_from=0.0)
        METHODS["fedne"].serve(federation, settings)
        return (
            sum(entry.bytes for entry in federation.ledger.entries.values() if entry.kind == "TrainRequest")
            / clients
        )

    assert down("mlp", 12) > 1.5 * down("mlp", 3)
    assert down("field", 12) < 1.3 * down("field", 3)


# Participation and dropout


def lossy(
    parts: Sequence[FloatArray], settings: ContrastiveEncoder, *, participation: float, dropout: float
) -> tuple[Outcome, Federation]:
    hosted = [HostedClient(index, rows, fingerprint(rows)) for index, rows in enumerate(parts)]
    transport = InlineTransport([ClientHost(hosted=hosted, seed=0, faults=FaultPlan(dropout=dropout))])
    federation = federation_over(
        transport, len(hosted), seed=0, policy=FailurePolicy(quorum=0.2), participation=participation
    )
    return METHODS[settings.kind].serve(federation, settings), federation  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "name",
    [
        name if name in FAST else pytest.param(name, marks=pytest.mark.slow)
        for name in VARIANTS
        if name not in ("global-ne", "landmark-ne")
    ],
)
def test_rounds_continue_without_some_clients(name: str) -> None:
    parts = blobs([30] * 10)
    found, federation = lossy(parts, VARIANTS[name], participation=0.5, dropout=0.2)
    assert np.isfinite(found.embedding).all()
    trained = [e for e in federation.ledger.entries.values() if e.kind in ("Change", "Loss")]
    assert 3 * 2 <= sum(entry.count for entry in trained) <= 3 * 5


def test_robust_rule_sees_each_clients_change() -> None:
    """The median of changes ignores an attacker; every upload is visible to the server."""
    settings = FedAvgNE(**SMALL, aggregation={"kind": "coordinate-median"})  # type: ignore[arg-type]
    federation = federate(blobs([30] * 5))
    found = METHODS["fedavg-ne"].serve(federation, settings)
    assert np.isfinite(found.embedding).all()
    changes = [entry for entry in federation.ledger.entries.values() if entry.kind == "Change"]
    assert {entry.granularity for entry in changes} == {"per-client"}


@pytest.mark.parametrize("name", VARIANT_NAMES)
def test_resumed_run_has_the_same_bits(name: str) -> None:
    parts, taken = blobs(), []

    def collect(event: Event) -> None:
        if isinstance(event, CheckpointTaken):
            taken.append(event.content)

    def run(resume: Checkpoint | None) -> bytes:
        hosted = [HostedClient(index, rows, fingerprint(rows)) for index, rows in enumerate(parts)]
        federation = federation_over(
            InlineTransport([ClientHost(hosted=hosted, seed=0, host_secrets=known(hosted))]),
            len(hosted),
            seed=0,
            journal=Journal(collect),
            checkpoint_every=1,
            resume=resume,
        )
        settings = VARIANTS[name]
        return METHODS[settings.kind].serve(federation, settings).embedding.tobytes()  # type: ignore[attr-defined]

    whole = run(None)
    assert len(taken) == 3
    for content in taken[1:3]:
        assert run(Checkpoint.from_bytes(content)) == whole


def test_lost_local_encoder_is_trained_again() -> None:
    from raydr.methods.fedne.baselines import AloneRequest, train_alone

    rows = blobs()[0].astype(np.float32)
    settings = LocalNE(**SMALL)
    steady, forgetful = Client(index=0, rows=rows, seed=0), Client(index=0, rows=rows, seed=0)
    for round in (1, 2, 3):
        steady.round = forgetful.round = round
        reply = train_alone(steady, AloneRequest(settings, round))
    forgetful.memory.clear()
    assert train_alone(forgetful, AloneRequest(settings, 3)) == reply


# Batched clients


def jointly(clients: Sequence[Client], request: TrainRequest) -> Sequence[Change]:
    return train_together(clients, [request.addressed_to(client.index) for client in clients])


def test_batched_clients_change_like_single_ones() -> None:
    parts = blobs()
    federation = federate(parts)
    field = np.random.default_rng(0).random((9, 9)).astype(np.float32)
    request = asked_to_train(
        FedAvgNE(**SMALL).first_weights(federation),
        training=replace(TRAINING, local_epochs=2, mixing=0.2, together=True),
        field=field,
        reach=5.0,
    )
    surrogates = np.random.default_rng(0).random((6, 257)).astype(np.float32)
    networks = replace(
        request, field=np.zeros((0, 0), np.float32), surrogates=surrogates, shares=np.full(6, 0.2, np.float32)
    )
    size = len(request.weights)
    courses = np.random.default_rng(0).normal(0, 1e-2, (6, size)).astype(np.float16)
    kept = np.stack(
        [
            seal(
                own.view(np.uint8),
                key_of(index),
                Binding("", index, 1, "control variate"),
            )
            for index, own in enumerate(courses)
        ]
    )
    corrected = replace(
        request,
        control=courses.mean(axis=0, dtype=np.float32),
        kept=kept,
        kept_rounds=np.ones(6, np.int64),
    )
    parted = replace(request, spoken=np.array([0.3, 0.0, 0.2, 0.4, 0.0, 0.1], np.float32))
    published = replace(
        networks, training=replace(request.training, mixed="rows", negatives_from="rows", adam_floor=1e-8)
    )
    for asked in (request, networks, corrected, parted, published):
        clients = [
            Client(
                index=index,
                rows=part.astype(np.float32),
                seed=0,
                round=1,
                secret=KNOWN.derived("client", index),
            )
            for index, part in enumerate(parts)
        ]
        for client, together in zip(clients, jointly(clients, asked), strict=True):
            alone = train_locally(client, asked.addressed_to(client.index))
            np.testing.assert_allclose(together.weights, alone.weights, atol=3e-4)
            np.testing.assert_allclose(together.control, alone.control, atol=1e-3)
            assert together.loss == pytest.approx(alone.loss, rel=1e-3)


def test_only_batched_clients_use_a_gpu() -> None:
    """Batches of one client are too small for a GPU; batched clients use it if the run computes on one."""
    for there, device in ((ArrayDevice(), "cpu"), (ArrayDevice("cuda"), "cuda")):
        with computing_at(there):
            assert TRAINING.device == "cpu"
            assert replace(TRAINING, together=True).device == device


def test_batched_clients_give_the_map_of_single_ones(tmp_path: Path) -> None:
    method = {"kind": "fedne", "rounds": 2, "hidden": [16], "prototypes": 4, "warm_steps": 5}
    maps = [
        raydr.Result(
            tiny_run(tmp_path / str(together), method=method, runtime__batch_clients=together)
        ).embedding
        for together in (False, True)
    ]
    np.testing.assert_allclose(maps[1], maps[0], atol=1e-2)


def test_failing_client_does_not_affect_others_on_its_host() -> None:
    """If the joint part fails, each client answers alone, and the failing one is named."""
    parts = [part.astype(np.float32) for part in blobs([20, 20, 20])]
    host = ClientHost(
        hosted=[HostedClient(index, part, fingerprint(part)) for index, part in enumerate(parts)], seed=0
    )
    everybody = {"round": 1, "attempt": 0, "clients": (0, 1, 2), "in_rounds": True}
    away = OwnShift(np.array([0.0, np.inf, 0.0]))
    assert len(host.ask(Call(request=away, number=1, **everybody))) == 3  # type: ignore[arg-type]
    request = asked_to_train(
        np.zeros(12, np.float32), training=replace(TRAINING, hidden=(), mixing=0.2, together=True)
    )
    answers = host.ask(Call(request=request, number=2, **everybody))  # type: ignore[arg-type]
    assert isinstance(answers[1], Failure)
    assert answers[1].client == 1
    for index in (0, 2):
        answer = answers[index]
        assert isinstance(answer, Answered)
        alone = train_locally(Client(index=index, rows=parts[index], seed=0, round=1), request)
        assert answer.reply.weights.tobytes() == alone.weights.tobytes()


# Randomness and imports


def test_clients_draw_from_their_own_streams() -> None:
    draws = {client_stream(0, client, 1, "batches").integers(2**62) for client in range(20)}
    assert len(draws) == 20


# New rows


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    method = {"kind": "fedne", "rounds": 2, "hidden": [16], "prototypes": 4, "warm_steps": 5}
    return tiny_run(tmp_path / "run", method=method, data__scale="standard", compare=["central"])


def test_transform_places_rows_as_the_run_did(run_folder: Path, tmp_path: Path) -> None:
    from sklearn.datasets import load_iris

    rows = load_iris().data
    table = tmp_path / "new.csv"
    np.savetxt(
        table, rows, delimiter=",", header=",".join(load(source="iris").features), comments="", fmt="%.10g"
    )
    for out in (tmp_path / "placed.csv", tmp_path / "placed.parquet"):
        assert raydr.transform(run_folder, table, out=out) == out
    placed = np.genfromtxt(tmp_path / "placed.csv", delimiter=",", skip_header=1)
    mapped = raydr.Result(run_folder).embedding
    np.testing.assert_allclose(placed[:, 1:3], mapped, atol=1e-3)
    one = tmp_path / "one.csv"
    one.write_text("\n".join(table.read_text().splitlines()[:2]) + "\n")
    raydr.transform(run_folder, one, out=tmp_path / "one-placed.csv")
    alone = np.genfromtxt(tmp_path / "one-placed.csv", delimiter=",", skip_header=1)
    np.testing.assert_allclose(alone[1:3], mapped[0], atol=1e-3)


def test_model_is_a_torch_network_in_safetensors(run_folder: Path) -> None:
    from safetensors.numpy import load_file

    tensors = load_file(run_folder / "model" / "encoder.safetensors")
    assert tensors["layers.0.weight"].shape == (16, 4)
    assert {name: values.shape for name, values in tensors.items()} == {
        "layers.0.weight": (16, 4),
        "layers.0.bias": (16,),
        "layers.1.weight": (2, 16),
        "layers.1.bias": (2,),
        "shift": (4,),
        "factor": (4,),
    }
    assert set(read_model(run_folder).arrays) == {f"encoder.{name}" for name in tensors} | {
        "shift",
        "factor",
        *NOVELTY,
    }


def test_invalid_transform_requests_are_refused(run_folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "new.csv"
    table.write_text("a,b,c\n1,2,3\n2,3,4\n")
    with pytest.raises(DataError, match=r"does not have 4 of the 4 columns of the run in "):
        raydr.transform(run_folder, table, out=tmp_path / "placed.csv")
    with pytest.raises(OutputError, match=r"not '.txt'"):
        raydr.transform(run_folder, table, out=tmp_path / "placed.txt")
    with pytest.raises(OutputError, match="is not a run folder"):
        raydr.transform(tmp_path, table, out=tmp_path / "placed.csv")
    other = tiny_run(tmp_path / "other", method={"kind": "local-ne", "rounds": 1, "hidden": [4]})
    with pytest.raises(ScenarioError, match="'local-ne' take no new rows"):
        raydr.transform(other, table, out=tmp_path / "placed.csv")


# Scenarios


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_runs_from_a_scenario(kind: str, tmp_path: Path) -> None:
    settings = {"kind": kind, "rounds": 2, "hidden": [8]}
    folder = tiny_run(tmp_path / kind, method=settings, metrics=["npa_10", "f_score"], compare=["central"])
    metrics = raydr.Result(folder).metrics
    # The others recover no geometry, so there is no f_score.
    assert set(metrics["federated"]) == ({"npa_10", "f_score"} if kind == "landmark-ne" else {"npa_10"})
    assert "npa_10" in metrics["central"]


@pytest.mark.parametrize(
    ("key", "value"), [("batch", 1), ("mixing", 0), ("surrogate", "filed"), ("prototypes", 1), ("rounds", 0)]
)
def test_invalid_settings_are_refused(key: str, value: object) -> None:
    with pytest.raises(ScenarioError, match=f"method.{key}"):
        tiny_scenario(method={"kind": "fedne", key: value})


def test_surrogates_start_at_the_papers_round() -> None:
    assert FedNE(rounds=10, prototypes=None, surrogate="mlp").first_surrogate_round == 4
    assert FedNE(rounds=10).first_surrogate_round == 1
    assert FedNE(rounds=10, surrogate_from=0.5).first_surrogate_round == 6


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fedne", "local-ne", "fedne, networks", "fedne, published"])
def test_ray_matches_inline_federation(cluster: None, name: str) -> None:
    from raydr.actors.backend import RayBackend
    from raydr.methods.serving import Plan
    from raydr.scenarios.running.backend import InlineBackend

    settings = VARIANTS[name]
    plan = Plan(method=settings.kind, settings=settings, scale="none", seed=0)  # type: ignore[attr-defined]
    maps = {
        backend.serve(blobs(), plan, listener=lambda event: None).outcome.embedding.tobytes()
        for backend in (InlineBackend(), RayBackend(2), RayBackend("per-client"))
    }
    assert len(maps) == 1
