"""Federated methods equal their papers' algorithms, and their maps are as faithful as the central one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from inline_federations import cut, federate
from tiny import labelled

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.errors import DataError, ScenarioError
from raydr.federation.checkpoint import Checkpoint
from raydr.geometry.points import Points
from raydr.journal import CheckpointTaken, Journal
from raydr.methods import METHODS
from raydr.methods.landmarks.kernel import row_term
from raydr.methods.landmarks.learning import initial_landmarks, learn_landmarks
from raydr.methods.landmarks.maps import DistanceRequest, FedTSNE, FedUMAP, recovered
from raydr.methods.landmarks.settings import DistributionLearning, default_landmarks
from raydr.methods.outcome import draw_map
from raydr.metrics import Evidence, evaluate
from raydr.partition import IID, Dirichlet, OneClass, Partition
from raydr.statistics.moments import spread

PARTITIONS: dict[str, Callable[[Int64Array], Partition]] = {
    "iid": lambda labels: IID().deal(labelled(labels), 10, 0),
    "dirichlet": lambda labels: Dirichlet(alpha=0.1, min_rows=0).deal(labelled(labels), 10, 0),
    "one class": lambda labels: OneClass().deal(labelled(labels), None, 0),
}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads change no bit of a map, and one thread does not wait for busy cores."""
    monkeypatch.setattr("raydr.methods.outcome.cores", lambda: 1)


@pytest.fixture(scope="module")
def digits() -> tuple[Float64Array, Int64Array]:
    from sklearn.datasets import load_digits

    rows, labels = load_digits(return_X_y=True)
    chosen = np.random.default_rng(0).permutation(len(rows))[:600]
    return rows[chosen], labels[chosen].astype(np.int64)


def clients_of_unequal_size() -> list[Float64Array]:
    """Return unequal clients, so that local steps diverge; one has a single row."""
    random = np.random.default_rng(1)
    sizes, centres = (40, 1, 25, 90), ([0, 0, 0], [3, 0, 0], [0, 2, 0], [-1, -1, 4])
    return [centre + random.normal(size=(size, 3)) for size, centre in zip(sizes, centres, strict=True)]


# Distribution learning: P1, Algorithm 1


def gradient_13(X: Float64Array, Y: Float64Array, gamma: float) -> Float64Array:
    """P1 (13) with rows and landmarks as columns, as printed."""
    n_p, n_y = X.shape[1], Y.shape[1]
    K_XY = np.exp(-gamma * ((X[:, :, None] - Y[:, None, :]) ** 2).sum(axis=0))
    K_YY = np.exp(-gamma * ((Y[:, :, None] - Y[:, None, :]) ** 2).sum(axis=0))
    across = -4 * gamma / (n_p * n_y) * (X @ K_XY - Y @ np.diag(np.ones(n_p) @ K_XY))
    among = 4 * gamma / (n_y * (n_y - 1)) * (Y @ K_YY - Y @ np.diag(np.ones(n_y) @ K_YY))
    return np.asarray(across + among)


def objective_8(
    parts: list[Float64Array], omega: Float64Array, landmarks: Float64Array, gamma: float
) -> float:
    """Return P1 (8) of (9); a client of one row has no pairs of rows, so no first term."""
    n_y = len(landmarks)
    K_YY = np.exp(-gamma * ((landmarks[:, None] - landmarks) ** 2).sum(axis=2))
    total = (K_YY.sum() - n_y) / (n_y * (n_y - 1))
    for part, share in zip(parts, omega, strict=True):
        K_XY = np.exp(-gamma * ((part[:, None] - landmarks) ** 2).sum(axis=2))
        total += share * (row_term(part, gamma) - 2 * K_XY.mean())
    return float(total)


def algorithm_1(
    parts: list[Float64Array], Y: Float64Array, settings: DistributionLearning, omega: Float64Array
) -> Float64Array:
    """P1, Algorithm 1 in one process; the gradient uploaded is that of the last local step."""
    gamma, eta = settings.gamma, settings.step
    assert gamma is not None
    assert eta is not None
    Y = Y.T
    for _ in range(settings.steps):
        uploads = []
        for part in parts:
            Y_p = Y.copy()
            for _ in range(settings.local_steps):
                gradient = gradient_13(part.T, Y_p, gamma)
                Y_p = Y_p - eta * gradient
            uploads.append(Y_p if settings.share == "landmarks" else gradient)
        average = np.tensordot(omega, np.array(uploads), 1)
        Y = average if settings.share == "landmarks" else Y - eta * average
    return np.asarray(Y.T)


def omega_of(parts: list[Float64Array], weights: str) -> Float64Array:
    sizes = np.array([len(part) for part in parts], float)
    return sizes / sizes.sum() if weights == "rows" else np.full(len(parts), 1 / len(parts))


@pytest.mark.parametrize("share", ["gradient", "landmarks"])
@pytest.mark.parametrize("weights", ["clients", "rows"])
@pytest.mark.parametrize("local_steps", [1, 2, 5])
def test_learning_equals_algorithm_1(
    share: Literal["gradient", "landmarks"], weights: Literal["clients", "rows"], local_steps: int
) -> None:
    parts = clients_of_unequal_size()
    settings = DistributionLearning(
        landmarks=6, rounds=7, local_steps=local_steps, share=share, weights=weights, gamma=0.2, step=3.0
    )
    federation = federate(parts)
    start = initial_landmarks(federation, spread(federation), 6, settings.initial_spread)
    expected = algorithm_1(parts, start, settings, omega_of(parts, weights))
    learnt = learn_landmarks(federate(parts), settings)
    assert learnt.gamma == 0.2
    np.testing.assert_allclose(learnt.points, expected, atol=1e-9)
    assert np.abs(expected - start).max() > 0.1


def test_both_server_forms_coincide_for_one_local_step() -> None:
    parts = clients_of_unequal_size()
    forms: tuple[Literal["gradient", "landmarks"], ...] = ("gradient", "landmarks")
    learnt = [
        learn_landmarks(federate(parts), DistributionLearning(landmarks=6, share=share)) for share in forms
    ]
    np.testing.assert_allclose(learnt[0].points, learnt[1].points, atol=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
@pytest.mark.parametrize("local_steps", [1, 3])
def test_server_steps_use_nesterov_momentum(momentum: float, local_steps: int) -> None:
    parts, gamma, eta, server_eta = clients_of_unequal_size(), 0.2, 2.0, 1.3
    settings = DistributionLearning(
        landmarks=6,
        rounds=7,
        local_steps=local_steps,
        gamma=gamma,
        step=eta if local_steps > 1 else None,
        server_step=server_eta,
        momentum=momentum,
    )
    federation = federate(parts)
    Y = initial_landmarks(federation, spread(federation), 6, settings.initial_spread).T
    velocity = np.zeros_like(Y)
    for _ in range(7):
        uploads = []
        for part in parts:
            Y_p = Y.copy()
            for _ in range(local_steps):
                gradient = gradient_13(part.T, Y_p, gamma)
                Y_p = Y_p - eta * gradient
            uploads.append(gradient)
        average = np.mean(uploads, axis=0)
        velocity = momentum * velocity + average
        Y = Y - server_eta * (average + momentum * velocity)
    learnt = learn_landmarks(federate(parts), settings)
    np.testing.assert_allclose(learnt.points.T, Y, atol=1e-9)


@pytest.mark.parametrize("share", ["gradient", "landmarks", "embedding"])
def test_momentum_needs_fewer_rounds(
    digits: tuple[Float64Array, Int64Array], share: Literal["gradient", "landmarks", "embedding"]
) -> None:
    recorded = []
    for momentum, rounds in ((0.0, 50), (0.9, 20)):
        journal = Journal()
        settings = DistributionLearning(landmarks=50, rounds=rounds, share=share, momentum=momentum)
        learn_landmarks(federate(cut(digits[0], 5, 0), journal=journal), settings)
        recorded.append(float(journal.rounds[-1].objective or 0.0))
    assert recorded[1] < recorded[0]


@pytest.mark.parametrize("share", ["gradient", "embedding"])
def test_resumed_learning_with_momentum_has_the_same_bits(share: Literal["gradient", "embedding"]) -> None:
    parts = clients_of_unequal_size()
    settings = DistributionLearning(landmarks=6, rounds=9, share=share, momentum=0.9)
    taken: list[bytes] = []

    def keep(event: object) -> None:
        if isinstance(event, CheckpointTaken):
            taken.append(event.content)

    whole = learn_landmarks(federate(parts, journal=Journal(keep), checkpoint_every=4), settings)
    resumed = federate(parts, checkpoint_every=4, resume=Checkpoint.from_bytes(taken[0]))
    assert learn_landmarks(resumed, settings).points.tobytes() == whole.points.tobytes()
    assert resumed.round == 9


@pytest.mark.parametrize("weights", ["clients", "rows"])
def test_recorded_objective_equals_the_papers_and_falls(weights: Literal["clients", "rows"]) -> None:
    parts = clients_of_unequal_size()
    journal = Journal()
    settings = DistributionLearning(landmarks=6, rounds=30, weights=weights)
    federation = federate(parts, journal=journal)
    start = initial_landmarks(federation, spread(federation), 6, settings.initial_spread)
    learnt = learn_landmarks(federation, settings)
    recorded = [record.objective for record in journal.rounds]
    assert recorded[0] == pytest.approx(
        objective_8(parts, omega_of(parts, weights), start, learnt.gamma), rel=1e-9
    )
    objectives = np.array(recorded, np.float64)
    assert (np.diff(objectives) < 0).all()
    assert objectives[-1] > objective_8(parts, omega_of(parts, weights), learnt.points, learnt.gamma)


def test_learning_weighted_by_rows_equals_pooled_learning() -> None:
    parts = clients_of_unequal_size()
    settings = DistributionLearning(landmarks=6, rounds=20, weights="rows", gamma=0.2)
    pooled = learn_landmarks(federate([np.concatenate(parts)]), settings)
    federated = learn_landmarks(federate(parts), settings)
    np.testing.assert_allclose(federated.points, pooled.points, atol=1e-9)


@pytest.mark.parametrize("share", ["gradient", "landmarks"])
def test_packing_changes_no_bit(share: Literal["gradient", "landmarks"]) -> None:
    parts = [*clients_of_unequal_size(), np.zeros((0, 3))]
    settings = DistributionLearning(landmarks=6, rounds=5, local_steps=2, share=share)
    packings = ([5], [1] * 5, [2, 2, 1], [1, 4])
    learnt = [learn_landmarks(federate(parts, packing=packing), settings) for packing in packings]
    assert len({(one.points.tobytes(), one.gamma) for one in learnt}) == 1
    other = learn_landmarks(federate(parts, seed=1), settings)
    assert other.points.tobytes() != learnt[0].points.tobytes()


def test_clients_without_rows_change_nothing() -> None:
    parts = clients_of_unequal_size()
    empty = np.zeros((0, 3))
    settings = DistributionLearning(landmarks=6, rounds=5)
    alone = learn_landmarks(federate(parts), settings)
    padded = learn_landmarks(federate([empty, *parts, empty]), settings)
    assert padded.gamma == alone.gamma
    np.testing.assert_allclose(padded.points, alone.points, atol=1e-9)


@pytest.mark.parametrize("offset", [-1e3, 2.0**30])
def test_landmarks_follow_a_shift_of_the_data(offset: float) -> None:
    parts = [np.round(part * 2**20) / 2**20 for part in clients_of_unequal_size()]
    settings = DistributionLearning(landmarks=6, rounds=20)
    here = learn_landmarks(federate(parts), settings)
    there = learn_landmarks(federate([part + offset for part in parts]), settings)
    assert there.gamma == pytest.approx(here.gamma, rel=1e-6)
    np.testing.assert_allclose(there.points - offset, here.points, atol=1e-5)


def test_more_landmarks_than_rows_are_refused() -> None:
    parts = [np.random.default_rng(0).normal(size=(4, 2)), np.zeros((0, 2)), np.ones((1, 2))]
    learn_landmarks(federate(parts), DistributionLearning(landmarks=5, rounds=1))
    with pytest.raises(ScenarioError, match=r"method.landmarks is 6, .* only 5 rows"):
        learn_landmarks(federate(parts), DistributionLearning(landmarks=6, rounds=1))


@pytest.mark.parametrize("gamma", [None, 1.0])
def test_equal_rows_are_refused(gamma: float | None) -> None:
    parts = [np.full((4, 2), 0.1), np.full((3, 2), 0.1)]
    with pytest.raises(DataError, match="All rows of all clients are equal"):
        learn_landmarks(federate(parts), DistributionLearning(landmarks=3, gamma=gamma))


@pytest.mark.parametrize(
    ("rows", "features", "expected"),
    [(2, 3, 2), (30, 3, 15), (10_000, 3, 50), (1797, 64, 128), (70_000, 784, 500), (600, 784, 300)],
)
def test_default_number_of_landmarks(rows: int, features: int, expected: int) -> None:
    assert default_landmarks(rows, features) == expected


# The estimators of the geometry


def recall(rows: FloatArray, parts: list[FloatArray], settings: FedTSNE) -> float:
    """Share of the true ten neighbours that are neighbours in the geometry, recovered by the same landmarks."""
    federation = federate(parts)
    landmarks = learn_landmarks(federation, settings.model_copy(update={"estimator": "trilateration"})).points
    messages = [reply.squared for reply in federation.ask(DistanceRequest(landmarks))]
    geometry = recovered(messages, landmarks, settings).geometry
    evidence = Evidence(rows=rows, embedding=np.zeros((len(rows), 2)), recovered=geometry)
    return evaluate(["f_score"], evidence, threads=1).values["f_score"]


@pytest.mark.parametrize("landmarks", [30, pytest.param(50, marks=pytest.mark.slow)])
def test_trilateration_recovers_more_neighbours_than_nystrom(
    digits: tuple[Float64Array, Int64Array], landmarks: int
) -> None:
    rows, _ = digits
    parts = cut(rows, 6, 0)
    trilaterated, squared, plain = (
        recall(rows, parts, FedTSNE(landmarks=landmarks, rounds=20, estimator=estimator))
        for estimator in ("trilateration", "nystrom-squared", "nystrom")
    )
    assert trilaterated > squared > plain + 0.1
    more = recall(rows, parts, FedTSNE(landmarks=landmarks + 30, rounds=20))
    assert more > trilaterated


def test_client_sends_the_squared_distances_of_its_rows() -> None:
    parts = [*clients_of_unequal_size(), np.zeros((0, 3))]
    parts[0] = parts[0].astype(np.float32)
    landmarks = np.random.default_rng(2).normal(size=(5, 3))
    replies = federate(parts).ask(DistanceRequest(landmarks))
    for part, reply in zip(parts, replies, strict=True):
        expected = ((part.astype(np.float64)[:, None] - landmarks) ** 2).sum(axis=2)
        assert reply.squared.dtype == np.float64
        np.testing.assert_allclose(reply.squared, expected, atol=1e-12)


# Maps


def federated_map(
    rows: FloatArray, partition: Partition, settings: FedTSNE | FedUMAP, seed: int
) -> tuple[FloatArray, Any]:
    """Map in the order of ``rows``, and the ledger."""
    by_client = [partition.rows_of(client) for client in range(partition.count)]
    federation = federate([rows[own] for own in by_client], seed=seed)
    outcome = METHODS[settings.kind].serve(federation, settings)
    assert "landmarks" in outcome.model
    assert ("gamma" in outcome.model) == (settings.origin == "learnt"), "a frame has no bandwidth"
    embedding = np.empty_like(outcome.embedding)
    embedding[np.concatenate(by_client)] = outcome.embedding
    return embedding, federation.ledger


def npa_10(rows: FloatArray, embedding: FloatArray) -> float:
    return evaluate(["npa_10"], Evidence(rows=rows, embedding=embedding), threads=1).values["npa_10"]


@pytest.fixture(scope="module")
def central_faithfulness(digits: tuple[Float64Array, Int64Array]) -> Callable[[FedTSNE | FedUMAP], float]:
    """Return the faithfulness of the central map, computed once for each embedder."""
    known: dict[str, float] = {}

    def of(settings: FedTSNE | FedUMAP) -> float:
        if settings.kind not in known:
            embedding = settings.central({}, digits[0], 0, Journal()).embedding
            known[settings.kind] = npa_10(digits[0], embedding)
        return known[settings.kind]

    return of


@pytest.mark.parametrize(
    "partition",
    ["one class", *(pytest.param(name, marks=pytest.mark.slow) for name in ("iid", "dirichlet"))],
)
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(FedTSNE(landmarks=100, rounds=20), id="fed-tsne"),
        pytest.param(FedUMAP(landmarks=100, rounds=20), id="fed-umap", marks=pytest.mark.slow),
    ],
)
def test_federated_map_is_as_faithful_as_the_central_one(
    digits: tuple[Float64Array, Int64Array],
    central_faithfulness: Callable[[FedTSNE | FedUMAP], float],
    settings: FedTSNE | FedUMAP,
    partition: str,
) -> None:
    """Also with clients of a single class and clients without rows."""
    rows, labels = digits
    dealt = PARTITIONS[partition](labels)
    embedding, ledger = federated_map(rows, dealt, settings, seed=0)
    assert npa_10(rows, embedding) >= 0.985 * central_faithfulness(settings)
    per_record = {entry.kind for entry in ledger.entries.values() if entry.granularity == "per-record"}
    assert per_record == {"Distances"}


def test_seed_reaches_the_embedder(digits: tuple[Float64Array, Int64Array]) -> None:
    """The geometry is the same, so that only the embedder's randomness can differ."""
    embedder = FedTSNE(early_iterations=5, iterations=5)
    some = digits[0][:100]
    maps = [
        draw_map(Points(some), some, embedder, seed=seed, journal=Journal()).embedding for seed in (0, 1, 1)
    ]
    assert maps[0].tobytes() != maps[1].tobytes() == maps[2].tobytes()


def test_smallest_federation_has_a_map() -> None:
    """Four rows at three clients, one of which is empty."""
    rows = np.random.default_rng(3).normal(size=(4, 2))
    settings = FedTSNE(landmarks=3, rounds=2, early_iterations=5, iterations=5)
    federation = federate([rows[:1], rows[:0], rows[1:]])
    outcome = METHODS["fed-tsne"].serve(federation, settings)
    assert outcome.embedding.shape == (4, 2)
    assert np.isfinite(outcome.embedding).all()


@pytest.mark.parametrize("estimator", ["trilateration", "nystrom", "nystrom-squared"])
def test_every_estimator_beats_chance(
    digits: tuple[Float64Array, Int64Array], estimator: Literal["trilateration", "nystrom", "nystrom-squared"]
) -> None:
    rows = digits[0][:200]
    settings = FedTSNE(
        landmarks=60, rounds=10, estimator=estimator, perplexity=10, early_iterations=100, iterations=100
    )
    embedding, _ = federated_map(rows, IID().deal(labelled(digits[1][:200]), 4, 0), settings, seed=0)
    assert npa_10(rows, embedding) > 4 * 10 / 199


@pytest.mark.slow
@pytest.mark.parametrize("partition", ["iid", "one class"])
@pytest.mark.parametrize("rounds", [None, 50], ids=["frame", "learnt"])
@pytest.mark.parametrize("kind", [FedTSNE, FedUMAP], ids=["fed-tsne", "fed-umap"])
def test_mnist_maps_are_as_faithful_as_the_central_ones(
    data_dir: Path, kind: type[FedTSNE | FedUMAP], rounds: int | None, partition: str
) -> None:
    settings = kind(landmarks=500, rounds=rounds)
    with np.load(data_dir / "mnist.npz", allow_pickle=False) as file:
        rows, labels = file["X"][:2000].astype(np.float32), file["y"][:2000].astype(np.int64)
    central = npa_10(rows, settings.central({}, rows, 0, Journal()).embedding)
    embedding, _ = federated_map(rows, PARTITIONS[partition](labels), settings, seed=0)
    assert npa_10(rows, embedding) >= 0.985 * central
