"""The layout starts at the rows' coordinates along the data's principal components."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, FloatArray
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Points
from raydr.journal import Journal
from raydr.methods.outcome import draw_map


@dataclass
class Still:
    """An embedder that keeps the initialization and remembers its graph."""

    graphs: list[NeighborGraph] = field(default_factory=list)

    def neighbors_needed(self, rows: int) -> int:
        return 2

    def embed(self, graph: NeighborGraph, initialization: FloatArray, **_: Any) -> FloatArray:
        self.graphs.append(graph)
        return initialization


def components(rows: Float64Array) -> Float64Array:
    centred = rows - rows.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    return np.asarray(centred @ axes[:2].T)


def test_initial_layout_is_the_principal_components() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 4)) * [4.0, 2.0, 1.0, 0.5]
    embedder = Still()
    drawn = draw_map(Points(rows), rows, embedder, seed=0, journal=Journal())
    expected = components(rows)
    np.testing.assert_allclose(np.abs(drawn.embedding), np.abs(expected), atol=1e-9)
    distances = np.linalg.norm(rows[:, None] - rows, axis=2) + np.diag(np.full(30, np.inf))
    np.testing.assert_array_equal(embedder.graphs[0].indices[:, 0], distances.argmin(axis=1))
