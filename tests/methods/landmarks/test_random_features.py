"""Random features approximate the kernel, their gradient is exact, and one release is enough to learn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from inline_federations import cut, federate
from tiny import tiny_scenario

from raydr.arrays import Float64Array
from raydr.errors import RunError, ScenarioError
from raydr.federation import Client
from raydr.journal import Journal
from raydr.methods.landmarks import mean_embedding
from raydr.methods.landmarks.features import FourierFeatures, directions, fourier_features
from raydr.methods.landmarks.kernel import cross_term, gaussian_kernel, landmark_term, row_term
from raydr.methods.landmarks.learning import learn_landmarks
from raydr.methods.landmarks.mean_embedding import MeanEmbedding, MeanEmbeddingRequest
from raydr.methods.landmarks.settings import DistributionLearning

GAMMA = 0.2


def rows_of(rows: int = 80, features: int = 4, seed: int = 0, offset: float = 0.0) -> Float64Array:
    """Return rows on a grid so fine that an offset of 1e8 is exact."""
    table = np.random.default_rng(seed).normal(size=(rows, features))
    return np.asarray(np.round(table * 2**12) / 2**12 + offset)


def embedded(features: FourierFeatures, points: Float64Array) -> Float64Array:
    """Return z of each point, as the mean over that point."""
    return np.array([features.mean(point[None]) for point in points])


def request_of(features: int = 4, count: int = 32, axes: Float64Array | None = None) -> MeanEmbeddingRequest:
    centre = np.zeros(features)
    drawn = fourier_features(7, count, GAMMA, centre, axes)
    return MeanEmbeddingRequest(
        seed=7, count=count, gamma=GAMMA, centre=centre, axes=axes, witnesses=drawn.frequencies[-1, -4:]
    )


@pytest.mark.parametrize("dimensions", [1, 3, 50])
@pytest.mark.parametrize("count", [2, 7, 100])
def test_frequencies_are_orthogonal_in_blocks(dimensions: int, count: int) -> None:
    drawn = directions(5, dimensions, count)
    assert drawn.shape == (dimensions, count)
    for start in range(0, count, dimensions):
        block = drawn[:, start : start + dimensions]
        products = block.T @ block
        np.testing.assert_allclose(products - np.diag(np.diag(products)), 0.0, atol=1e-10 * products.max())


@pytest.mark.parametrize("dimensions", [1, 3, 50])
def test_frequencies_have_the_lengths_of_gaussian_vectors(dimensions: int) -> None:
    many = directions(6, dimensions, 5_000)
    np.testing.assert_allclose((many**2).sum(axis=0).mean(), dimensions, rtol=0.05)
    assert abs(many.mean()) < 0.05


def test_features_have_length_1() -> None:
    lengths = np.linalg.norm(embedded(request_of().features, rows_of()), axis=1)
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-8)


def test_products_converge_to_the_kernel_with_more_features() -> None:
    rows = rows_of(30)
    kernel = gaussian_kernel(rows, rows, GAMMA)
    errors = []
    for count in (64, 512, 4096):
        each = []
        for seed in range(8):
            z = embedded(fourier_features(seed, count, GAMMA, np.zeros(4)), rows)
            each.append(((z @ z.T - kernel) ** 2).mean())
        errors.append(float(np.sqrt(np.mean(each))))
    np.testing.assert_allclose(np.array(errors[:-1]) / errors[1:], np.sqrt(8.0), rtol=0.35)


def test_objective_converges_to_the_kernel_objective() -> None:
    rows, landmarks = rows_of(), 0.5 * rows_of(6, seed=1)
    exact = cross_term(rows, landmarks, GAMMA)[0] + landmark_term(landmarks, GAMMA)[0]
    gradient = cross_term(rows, landmarks, GAMMA)[1] + landmark_term(landmarks, GAMMA)[1]
    errors = []
    for count in (64, 512, 4096):
        each = []
        for seed in range(12):
            features = fourier_features(seed, count, GAMMA, np.zeros(4))
            objective, slope = features.objective(features.mean(rows), landmarks)
            each.append((objective - exact) ** 2)
        errors.append(float(np.sqrt(np.mean(each))))
    np.testing.assert_allclose(np.array(errors[:-1]) / errors[1:], np.sqrt(8.0), rtol=0.6)
    np.testing.assert_allclose(slope, gradient, atol=0.05 * np.abs(gradient).max())


@pytest.mark.parametrize("axes", [None, 2])
@pytest.mark.parametrize("landmarks", [2, 6])
def test_gradient_equals_central_differences(axes: int | None, landmarks: int) -> None:
    random = np.random.default_rng(3)
    frame = None if axes is None else np.linalg.qr(random.normal(size=(4, axes)))[0]
    features = fourier_features(1, 32, GAMMA, np.full(4, 0.3), frame)
    embedding, points = features.mean(rows_of()), random.normal(size=(landmarks, 4))
    gradient = features.objective(embedding, points)[1]
    differences = np.empty_like(points)
    for at in np.ndindex(*points.shape):
        up, down = points.copy(), points.copy()
        up[at] += 1e-5
        down[at] -= 1e-5
        there, back = (features.objective(embedding, moved)[0] for moved in (up, down))
        differences[at] = (there - back) / 2e-5
    np.testing.assert_allclose(gradient, differences, atol=1e-6 * np.abs(differences).max())


def test_float32_and_blocks_change_only_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    features, rows = request_of().features, rows_of(300)
    whole = features.mean(rows)
    np.testing.assert_allclose(features.mean(rows.astype(np.float32)), whole, atol=2e-7)
    monkeypatch.setattr("raydr.methods.landmarks.features._BLOCK", 7 * 32)
    np.testing.assert_allclose(features.mean(rows), whole, atol=1e-15)


def test_record_changes_the_sum_by_1_within_its_range() -> None:
    request = request_of()
    rows = rows_of(9) * 1e3
    whole, without = (
        len(part) * mean_embedding.mean_embedding(Client(index=0, rows=part, seed=0), request).embedding
        for part in (rows, rows[:-1])
    )
    assert np.linalg.norm(whole - without) == pytest.approx(1.0, rel=1e-6)
    largest = MeanEmbedding.ranges(request, 1)["embedding"].largest
    for precision in (np.float32, np.float64):
        for row in np.zeros((1, 4)), rows[:1]:
            reply = mean_embedding.mean_embedding(
                Client(index=0, rows=row.astype(precision), seed=0), request
            )
            assert np.abs(reply.embedding).max() <= largest
    assert (
        np.abs(
            mean_embedding.mean_embedding(Client(index=0, rows=np.zeros((1, 4)), seed=0), request).embedding
        ).max()
        > 0.99 * largest
    )


def test_client_with_a_different_numpy_stream_is_refused() -> None:
    request = request_of()
    with pytest.raises(RunError, match="same version of numpy"):
        mean_embedding.mean_embedding(Client(index=0, rows=rows_of(), seed=0), replace(request, seed=8))


EVERYWHERE: list[dict[str, Any]] = [
    {"frequencies_in": "full"},
    {"frequencies_in": "principal", "frequency_axes": 2},
    {"frequencies_in": "random", "frequency_axes": 2},
]


def settings_of(**more: Any) -> DistributionLearning:
    return DistributionLearning(**({"landmarks": 8, "share": "embedding", "random_features": 512} | more))


@pytest.mark.parametrize("where", EVERYWHERE, ids=str)
def test_clients_are_asked_once_and_the_objective_falls(where: dict[str, Any]) -> None:
    journal = Journal()
    federation = federate(cut(rows_of(), 4, 0), journal=journal)
    learn_landmarks(federation, settings_of(rounds=30, **where))
    sent = [entry.count for entry in federation.ledger.entries.values() if entry.kind == "MeanEmbedding"]
    assert sent == [4 - sum(size == 0 for size in federation.sizes)]
    assert [(record.bytes_up, record.bytes_down, record.asked) for record in journal.rounds] == [
        (0, 0, 0)
    ] * 30
    recorded = np.array([record.objective for record in journal.rounds], np.float64)
    assert (np.diff(recorded) < 0).all()


def test_one_release_matches_rounds_of_gradients() -> None:
    rows = rows_of(200)
    settings = {
        "rounds": DistributionLearning(landmarks=8, rounds=60, weights="rows"),
        "release": settings_of(rounds=60, weights="rows", random_features=32_768),
        "start": DistributionLearning(landmarks=8, rounds=0),
    }
    learnt = {name: learn_landmarks(federate(cut(rows, 4, 0)), each) for name, each in settings.items()}
    gamma = learnt["rounds"].gamma
    objective = {
        name: cross_term(rows, each.points, gamma)[0] + landmark_term(each.points, gamma)[0]
        for name, each in learnt.items()
    }
    descent = objective["start"] - objective["rounds"]
    assert objective["release"] < objective["rounds"] + 0.01 * descent


def test_recorded_objective_equals_the_papers() -> None:
    parts, journals = cut(rows_of(), 4, 0), (Journal(), Journal())
    for journal, settings in zip(
        journals,
        (settings_of(rounds=3, random_features=32_768), DistributionLearning(landmarks=8, rounds=3)),
        strict=True,
    ):
        learn_landmarks(federate(parts, journal=journal), settings)
    recorded = np.array([[record.objective for record in journal.rounds] for journal in journals], np.float64)
    np.testing.assert_allclose(recorded[0], recorded[1], atol=0.01)


def test_recorded_objective_with_axes_is_that_of_projected_rows() -> None:
    """Rows and landmarks have three axes, and the frequencies only the first."""
    rows, journal = rows_of(60, 3) * [5.0, 0.1, 0.1], Journal()
    settings = settings_of(rounds=1, random_features=16_384, frequency_axes=1, landmarks=20)
    learnt = learn_landmarks(federate([rows, rows], journal=journal), settings)
    start = learn_landmarks(federate([rows, rows]), settings.model_copy(update={"rounds": 0})).points
    axis = np.linalg.svd(rows - rows.mean(axis=0))[2][:1].T
    seen, landmarks = rows @ axis, start @ axis
    terms = cross_term(seen, landmarks, learnt.gamma)[0], landmark_term(landmarks, learnt.gamma)[0]
    assert journal.rounds[0].objective == pytest.approx(row_term(seen, learnt.gamma) + sum(terms), abs=0.01)


@pytest.mark.parametrize("where", EVERYWHERE, ids=str)
@pytest.mark.parametrize("offset", [1e3, 1e8])
def test_landmarks_follow_a_shift_of_the_data(where: dict[str, Any], offset: float) -> None:
    settings = settings_of(rounds=10, **where)
    here = learn_landmarks(federate(cut(rows_of(), 4, 0)), settings)
    there = learn_landmarks(federate(cut(rows_of(offset=offset), 4, 0)), settings)
    assert there.gamma == pytest.approx(here.gamma, rel=1e-6)
    np.testing.assert_allclose(there.points - offset, here.points, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_unit_of_the_data_changes_nothing(scale: float) -> None:
    settings = settings_of(rounds=10)
    here, there = (
        learn_landmarks(federate(cut(rows_of() * factor, 4, 0)), settings).points / factor
        for factor in (1.0, scale)
    )
    np.testing.assert_allclose(there, here, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("where", EVERYWHERE, ids=str)
def test_partition_changes_only_rounding(where: dict[str, Any]) -> None:
    settings = settings_of(weights="rows", rounds=10, gamma=GAMMA, **where)
    rows = rows_of()
    pooled, dealt = (learn_landmarks(federate(parts), settings).points for parts in ([rows], cut(rows, 9, 0)))
    np.testing.assert_allclose(dealt, pooled, atol=1e-8)


@pytest.mark.parametrize("where", EVERYWHERE, ids=str)
def test_packing_changes_no_bit(where: dict[str, Any]) -> None:
    parts = [*cut(rows_of(), 4, 0), np.zeros((0, 4))]
    settings = settings_of(rounds=5, **where)
    packings = ([5], [1] * 5, [2, 3])
    points = {
        learn_landmarks(federate(parts, packing=packing), settings).points.tobytes() for packing in packings
    }
    assert len(points) == 1


def test_landmarks_move_only_along_the_frequency_axes() -> None:
    parts = cut(rows_of(), 4, 0)
    start = learn_landmarks(federate(parts), settings_of(rounds=0)).points
    moved = learn_landmarks(federate(parts), settings_of(rounds=20, frequency_axes=2)).points - start
    assert (np.linalg.svd(moved, compute_uv=False) > 1e-6).sum() == 2


def test_sharing_an_embedding_needs_no_rounds() -> None:
    for settings, rounds in (({"share": "embedding"}, 0), ({"rounds": 7}, 7)):
        method = tiny_scenario(method={"kind": "fed-umap", **settings}).method
        assert method.rounds_asked == rounds
    with pytest.raises(ScenarioError, match=r"it applies to rounds, and method\.kind .* has none"):
        tiny_scenario(method={"kind": "fed-tsne", "share": "embedding"}, clients__participation=0.5)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"share": "embedding", "local_steps": 2}, "local_steps is 2, .* only the server takes steps"),
        ({"share": "embedding", "random_features": 4097}, "random_features .*multiple of 2"),
        ({"share": "embedding", "random_features": 10}, "random_features .*at least 64"),
        (
            {"rounds": 5, "random_features": 128},
            "random features need share: embedding, .* leave random_features out",
        ),
        ({"rounds": 5, "frequency_axes": 3}, "leave frequency_axes out"),
        ({"share": "embedding", "frequencies_in": "full", "frequency_axes": 3}, "full, which uses all axes"),
        ({"share": "embedding", "server_step": 1.0}, "server_step applies to averaged gradients"),
        (
            {"rounds": 5, "share": "landmarks", "server_step": 1.0},
            "server_step applies to averaged gradients",
        ),
        ({"rounds": 5, "step": 1.0, "server_step": 1.0}, "local_steps is 1, so they take none"),
        ({"share": "embedding", "landmarks_from": "principal"}, "share is for learnt landmarks"),
    ],
)
def test_settings_without_effect_are_refused(method: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as caught:
        tiny_scenario(method={"kind": "fed-tsne", **method})
    assert "\n\n" not in str(caught.value)
