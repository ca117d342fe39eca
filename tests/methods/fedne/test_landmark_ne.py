"""Landmark NE: an encoder of coordinates equals one of features, on neighbours among all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from inline_federations import federate

from raydr.arrays import FloatArray
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points
from raydr.methods.fedne.landmark import LandmarkNE, serve
from raydr.methods.outcome import Outcome
from raydr.sparse_rows import SparseRows

SMALL: dict[str, Any] = {"hidden": (16, 16), "rounds": 3, "batch": 32, "neighbors": 4}


def clusters(sizes: tuple[int, ...], features: int, seed: int = 0) -> list[FloatArray]:
    """Return clients with rows of all clusters in different shares."""
    random = np.random.default_rng(seed)
    centres = 4.0 * random.normal(size=(4, features))
    return [
        centres[random.choice(4, size, p=random.dirichlet(np.ones(4)))] + random.normal(size=(size, features))
        for size in sizes
    ]


def mapped(parts: list[FloatArray], **settings: Any) -> Outcome:
    return serve(federate(parts), LandmarkNE(**SMALL | settings))


@pytest.mark.parametrize(("features", "offset"), [(3, 1e8), (40, 0.0), (40, 1e8), (200, 1e8)])
@pytest.mark.parametrize("origin", ["principal", "random"])
def test_encoder_places_rows_at_their_map_positions(features: int, offset: float, origin: str) -> None:
    """The server's coordinates and the encoder's features agree in the landmarks' span and outside it."""
    parts = [part + offset for part in clusters((30, 1, 0, 25), features)]
    found = mapped(parts, landmarks_from=origin)
    placed = LandmarkNE(**SMALL).transform(found.model, np.concatenate(parts))
    np.testing.assert_allclose(placed, found.embedding, atol=1e-4 * np.abs(found.embedding).max())


def test_spanning_landmarks_reveal_all_neighbours() -> None:
    parts = clusters((30, 1, 25), 8)
    found = mapped(parts)
    assert found.geometry is not None
    true = nearest_neighbors(Points(np.concatenate(parts)), 4)
    np.testing.assert_array_equal(nearest_neighbors(found.geometry, 4).indices, true.indices)


def test_partition_and_unit_change_only_rounding() -> None:
    rows = np.concatenate(clusters((60,), 5))
    here = mapped([rows[:20], rows[20:]], rounds=1).embedding
    for parts in ([rows[:1], rows[1:50], rows[50:]], [1024.0 * rows[:20], 1024.0 * rows[20:]]):
        np.testing.assert_allclose(mapped(parts, rounds=1).embedding, here, atol=1e-2)


def test_sparse_rows_have_the_map_of_dense_ones() -> None:
    parts = [np.maximum(part, 0.0) for part in clusters((30, 1, 0, 25), 40)]
    dense, sparse = mapped(parts), mapped([SparseRows.of(part) for part in parts])  # type: ignore[misc]
    np.testing.assert_allclose(sparse.embedding, dense.embedding, atol=1e-5)


def test_fewer_landmarks_keep_fewer_neighbours() -> None:
    parts = clusters((100, 100), 20)
    rows, kept = np.concatenate(parts), []
    for landmarks in (3, 21):
        found = mapped(parts, landmarks=landmarks, rounds=40)
        graph = nearest_neighbors(Points(rows), 10).indices
        near = nearest_neighbors(Points(found.embedding), 10).indices
        kept.append(np.mean([np.isin(*pair).mean() for pair in zip(graph, near, strict=True)]))
        (note,) = found.notes
        assert (
            f"to {landmarks} landmarks (principal), which span {landmarks - 1} of 20 dimensions" in note.text
        )
    assert kept[0] < kept[1]


def test_encoder_and_positions_are_never_sent() -> None:
    """Clients send distances once and sums for the frame; no weights or positions are sent."""
    federation = federate(clusters((20, 15), 5))
    serve(federation, LandmarkNE(**SMALL))
    uploaded = {entry.kind for entry in federation.ledger.entries.values() if entry.direction == "up"}
    records = {
        entry.kind for entry in federation.ledger.entries.values() if entry.granularity == "per-record"
    }
    assert records == {"Distances"}
    assert not uploaded & {"Change", "Positions", "Rows"}
    asked = [entry for entry in federation.ledger.entries.values() if entry.kind == "Distances"]
    assert sum(entry.count for entry in asked) == 2
