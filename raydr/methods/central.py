"""The pooled-data map: what every federated map is measured against, and no federation would allow."""

from __future__ import annotations

from raydr.arrays import FloatArray
from raydr.embedding import Embedder
from raydr.geometry import Points
from raydr.journal import Journal
from raydr.methods.outcome import draw_map


def central_map(rows: FloatArray, embedder: Embedder, *, seed: int, journal: Journal) -> FloatArray:
    """Map of pooled rows (rows, features), by the path that federated maps take too."""
    return draw_map(Points(rows), rows, embedder, seed=seed, journal=journal).embedding
