"""Landmarks of a frame give the rows' projections onto it, for any offset and partition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from inline_federations import cut, federate
from tiny import tiny_scenario

from raydr.arrays import Float64Array, FloatArray
from raydr.errors import DataError, ScenarioError
from raydr.geometry.points import Points
from raydr.geometry.trilateration import trilaterate
from raydr.methods import METHODS
from raydr.methods.landmarks.frames import frame
from raydr.methods.landmarks.maps import DistanceRequest, FedTSNE, recovered
from raydr.methods.method import MethodSettings
from raydr.statistics import principal_axes

ORIGINS = ["principal", "random"]
TOLD = "What the landmarks reveal, and what the map leaves out"


def rows_of(
    rows: int = 120, features: int = 9, seed: int = 0, offset: float = 0.0, scale: float = 1.0
) -> Float64Array:
    """Return rows of different deviations, on a grid so fine that an offset of 1e8 is exact."""
    random = np.random.default_rng(seed)
    table = random.normal(size=(rows, features)) * 0.7 ** np.arange(features)
    return scale * (np.round(table * 2**12) / 2**12 + offset)


def coordinates_of(parts: list[FloatArray], **settings: Any) -> tuple[Float64Array, Float64Array]:
    """Landmarks, and coordinates of the rows, in client order."""
    federation = federate(parts)
    landmarks = frame(federation, FedTSNE(**settings))
    replies = federation.ask(DistanceRequest(landmarks))
    return landmarks, trilaterate(landmarks, [reply.squared for reply in replies])[0]


def squared(points: FloatArray) -> Float64Array:
    return np.asarray(((points[:, None] - points) ** 2).sum(axis=2))


def projection(landmarks: Float64Array, rows: Float64Array) -> Float64Array:
    """Return projections of the rows on the frame, from its centre, along the landmarks' directions."""
    steps = landmarks[1:] - landmarks[0]
    directions = steps / np.linalg.norm(steps, axis=1, keepdims=True)
    return np.asarray((rows - landmarks[0]) @ directions.T)


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("landmarks", [2, 5, 10])
def test_distances_to_a_frame_give_coordinates(origin: str, landmarks: int) -> None:
    rows = rows_of()
    frame_points, coordinates = coordinates_of(cut(rows, 5, 0), landmarks_from=origin, landmarks=landmarks)
    assert len(frame_points) == landmarks
    expected = projection(frame_points, rows)
    np.testing.assert_allclose(squared(coordinates), squared(expected), atol=1e-9 * squared(expected).max())


@pytest.mark.parametrize("origin", ORIGINS)
def test_directions_are_orthonormal_around_the_mean(origin: str) -> None:
    rows = rows_of()
    landmarks = frame(federate(cut(rows, 5, 0)), FedTSNE(landmarks_from=origin, landmarks=6))
    np.testing.assert_allclose(landmarks[0], rows.mean(axis=0), atol=1e-12)
    steps = landmarks[1:] - landmarks[0]
    length = np.sqrt(rows.var(axis=0).sum())
    np.testing.assert_allclose(steps @ steps.T, length**2 * np.eye(5), atol=1e-11)


@pytest.mark.parametrize("many", [False, True], ids=["moments", "iteration"])
def test_principal_directions_equal_pooled_axes(many: bool) -> None:
    """Both kinds of sums: six products with one direction are fewer numbers than all moments of 30 features."""
    rows = rows_of(features=30 if many else 9)
    federation = federate(cut(rows, 5, 0))
    landmarks = frame(federation, FedTSNE(landmarks_from="principal", landmarks=3 if many else 4))
    kinds = {entry.kind for entry in federation.ledger.entries.values()}
    assert ("CovarianceRequest" in kinds, "SecondMomentsRequest" in kinds) == (many, not many)
    axes = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2]
    steps = landmarks[1:] - landmarks[0]
    cosines = np.abs((steps * axes[: len(steps)]).sum(axis=1)) / np.linalg.norm(steps, axis=1)
    np.testing.assert_allclose(cosines, 1.0, atol=1e-2 if many else 1e-9)


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_full_frame_gives_exact_distances(origin: str, scale: float, offset: float) -> None:
    rows = rows_of(offset=offset, scale=scale)
    landmarks, coordinates = coordinates_of(cut(rows, 4, 1), landmarks_from=origin)
    assert len(landmarks) == rows.shape[1] + 1
    truth = squared(rows)
    # At 1e8 landmarks themselves are rounded to 1e-8 of their distance, which trilateration's centring multiplies.
    tolerance = 1e-5 if offset else 1e-9
    np.testing.assert_allclose(squared(coordinates), truth, rtol=0, atol=tolerance * truth.max())


def test_random_directions_within_bounds_need_no_client_data() -> None:
    rows = rows_of(offset=3.0)
    federation = federate(cut(rows, 4, 0))
    settings = FedTSNE(landmarks_from="random", bounds=(-1.0, 8.0), landmarks=4)
    landmarks = frame(federation, settings)
    assert {entry.kind for entry in federation.ledger.entries.values()} == {"Enrol", "Enrolment"}
    np.testing.assert_allclose(landmarks[0], 3.5)
    replies = federation.ask(DistanceRequest(landmarks))
    geometry = recovered([reply.squared for reply in replies], landmarks, settings).geometry
    expected = squared(projection(landmarks, rows))
    np.testing.assert_allclose(geometry.squared_distance_block(0, 120), expected, atol=1e-5 * expected.max())


def test_random_directions_follow_the_seed() -> None:
    parts = cut(rows_of(), 4, 0)
    settings = FedTSNE(landmarks_from="random", landmarks=4)
    points = [frame(federate(parts, seed=seed), settings).tobytes() for seed in (0, 0, 1)]
    assert points[0] == points[1] != points[2]


@pytest.mark.parametrize("origin", ORIGINS)
def test_partition_changes_only_rounding(origin: str) -> None:
    rows = rows_of()
    settings = FedTSNE(landmarks_from=origin, landmarks=5)
    one, many = (frame(federate(parts), settings) for parts in ([rows], cut(rows, 30, 2)))
    np.testing.assert_allclose(one, many, atol=1e-8)


@pytest.mark.parametrize("origin", ORIGINS)
def test_packing_changes_no_bit(origin: str) -> None:
    parts = [*cut(rows_of(), 4, 0), np.zeros((0, 9))]
    settings = FedTSNE(landmarks_from=origin, landmarks=5)
    packings = ([5], [1] * 5, [2, 3])
    assert len({frame(federate(parts, packing=packing), settings).tobytes() for packing in packings}) == 1


@pytest.mark.parametrize(
    ("origin", "rows", "features", "asked", "expected"),
    [
        ("principal", 100, 9, None, 10),
        ("principal", 100, 9, 4, 4),
        ("principal", 100, 9, 60, 10),
        ("principal", 6, 9, None, 6),
        ("principal", 1000, 784, None, 500),
        ("random", 6, 9, None, 10),
        ("random", 1000, 784, 700, 700),
    ],
)
def test_number_of_directions_is_limited_by_the_data(
    origin: str, rows: int, features: int, asked: int | None, expected: int
) -> None:
    assert FedTSNE(landmarks_from=origin, landmarks=asked).frame_count(rows, features) == expected


def test_map_notes_report_fewer_landmarks_than_requested() -> None:
    rows = rows_of(30, 3)
    for asked, titles in ((4, []), (50, ["Fewer landmarks than asked for"])):
        settings = FedTSNE(landmarks=asked, early_iterations=5, iterations=5)
        outcome = METHODS["fed-tsne"].serve(federate(cut(rows, 3, 0)), settings)
        assert [note.title for note in outcome.notes] == [*titles, TOLD]
        assert "gamma" not in outcome.model
        truth = Points(rows).squared_distance_block(0, 30)
        assert outcome.geometry is not None
        np.testing.assert_allclose(outcome.geometry.squared_distance_block(0, 30), truth, atol=1e-5)


@pytest.mark.parametrize("landmarks", [4, 10])
def test_map_notes_report_what_distances_reveal(landmarks: int) -> None:
    """Computed here from the rows: their distance from the landmarks' span."""
    parts = cut(rows_of(60, 9), 3, 0)
    parts[0][:7] = rows_of(7, 9).mean(axis=0)
    settings = FedTSNE(landmarks=landmarks, early_iterations=5, iterations=5)
    outcome = METHODS["fed-tsne"].serve(federate(parts), settings)
    centre = outcome.model["landmarks"].mean(axis=0)
    basis = np.linalg.svd(outcome.model["landmarks"] - centre, full_matrices=False)[2][: landmarks - 1]
    off = np.concatenate(parts) - centre
    outer = np.linalg.norm(off - off @ basis.T @ basis, axis=1) / np.linalg.norm(off, axis=1)
    note = next(note for note in outcome.notes if note.title == TOLD)
    assert f"which span {landmarks - 1} of 9 dimensions" in note.text
    assert f"Here {(outer < 1e-3).sum()} of 60 records" in note.text
    assert f"For the median record it is {np.median(outer):.2%}" in note.text


def test_more_features_than_rows_are_exact() -> None:
    rows = rows_of(20, 400)
    _, coordinates = coordinates_of(cut(rows, 3, 0), landmarks_from="principal")
    np.testing.assert_allclose(squared(coordinates), squared(rows), atol=1e-9 * squared(rows).max())


@pytest.mark.parametrize("origin", ORIGINS)
def test_equal_rows_are_refused(origin: str) -> None:
    with pytest.raises(DataError, match="All rows of all clients are equal"):
        frame(federate([np.full((4, 2), 0.1)]), FedTSNE(landmarks_from=origin))


def test_rounds_select_learning() -> None:
    assert FedTSNE().origin == "principal"
    assert FedTSNE(rounds=0).origin == "learnt"
    assert FedTSNE(landmarks_from="learnt").steps == 50
    for settings, rounds in (({}, 0), ({"rounds": 7}, 7), ({"landmarks_from": "learnt"}, 50)):
        method = tiny_scenario(method={"kind": "fed-tsne", **settings}).method
        assert isinstance(method, MethodSettings)
        assert method.rounds_asked == rounds


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"estimator": "nystrom"}, "needs landmarks that lie among the rows"),
        ({"landmarks_from": "principal", "rounds": 5}, "rounds is for learnt landmarks, .* landmarks from principal"),
        ({"gamma": 1.0, "local_steps": 2}, "local_steps and gamma are for learnt landmarks, .* leave them out"),
        ({"landmarks_from": "random", "aggregation": {"kind": "coordinate-median"}}, "aggregation is for learnt"),
        ({"landmarks_from": "random", "bounds": [1, 0]}, "bounds are 1 and 0. Give the lower bound first"),
    ],
)  # fmt: skip
def test_settings_unused_by_a_frame_are_refused(method: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as caught:
        tiny_scenario(method={"kind": "fed-tsne", **method})
    assert "\n\n" not in str(caught.value)


def test_faults_need_rounds() -> None:
    with pytest.raises(ScenarioError, match=r"it applies to rounds, and method\.kind .* has none"):
        tiny_scenario(method={"kind": "fed-tsne"}, clients__participation=0.5)


def test_axes_around_a_centre_equal_those_of_centred_rows() -> None:
    rows = rows_of(offset=5.0)
    centre = rows.mean(axis=0)
    reach = np.abs(rows - centre).max(axis=0)
    around = principal_axes.principal_axes(federate([rows]), reach, 3, centre)
    centred = principal_axes.principal_axes(federate([rows - centre]), reach, 3)
    np.testing.assert_allclose(around.directions, centred.directions, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_errors_grow_linearly_with_the_condition_of_anchors(seed: int) -> None:
    """Condition 1e7, rows exact to 19 digits: no error exceeds the rounding of the distances."""
    draw = np.random.default_rng(seed)
    turn = np.linalg.qr(draw.standard_normal((8, 8)))[0]
    rows, anchors = (
        (draw.standard_normal((count, 8)) * np.geomspace(1e4, 1e-3, 8)) @ turn for count in (40, 9)
    )
    apart = rows.astype(np.longdouble)[:, None] - anchors.astype(np.longdouble)[None]
    squared = (apart**2).sum(axis=2).astype(np.float64)
    placed, solver = trilaterate(anchors, [squared])
    true = (rows.astype(np.longdouble) - solver.centre) @ solver.basis.T.astype(np.longdouble)
    smallest = 1.0 / np.linalg.norm(solver.solution, axis=0).max()
    rounding = np.finfo(np.float64).eps * squared.max() * np.sqrt(len(anchors)) / smallest
    assert solver.rank == 8
    assert float(np.abs(placed - true).max()) < 10.0 * rounding


@pytest.mark.parametrize("offset", [1e4, 1e8])
def test_landmarks_far_from_the_origin_are_as_accurate(offset: float) -> None:
    """The mean is rounded there, by more in a wide table than the smallest valid direction."""
    random = np.random.default_rng(0)
    landmarks, rows = (random.normal(size=(count, 2000)) + offset for count in (56, 20))
    squared = ((rows[:, None] - landmarks) ** 2).sum(axis=2)
    placed, solver = trilaterate(landmarks, [squared])
    assert solver.rank == 55
    np.testing.assert_allclose(placed, (rows - solver.centre) @ solver.basis.T, atol=1e-5)


@pytest.mark.parametrize("features", [5, 40])
def test_rows_in_the_hull_of_landmarks_are_recovered(features: int) -> None:
    """By the singular vectors of a narrow table, and of a wide one through its triangular factor."""
    random = np.random.default_rng(0)
    landmarks = random.normal(size=(6, features)) + 3.0
    kept = landmarks.copy()
    rows = random.dirichlet(np.ones(6), size=20) @ landmarks
    squared = ((rows[:, None] - landmarks) ** 2).sum(axis=2)
    coordinates, solver = trilaterate(landmarks, [squared])
    np.testing.assert_allclose(solver.points(coordinates), rows, atol=1e-9)
    np.testing.assert_allclose(solver.basis @ solver.basis.T, np.eye(5), atol=1e-12)
    np.testing.assert_array_equal(landmarks, kept)
