"""Graphs to embed, and digests of what came of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from raydr.arrays import Float64Array, FloatArray
from raydr.embedding import TSNE, UMAP, Embedder, principal_components
from raydr.geometry.neighbors import NeighborGraph

BRIEF: list[Embedder] = [TSNE(early_iterations=50, iterations=50), UMAP(epochs=40)]


def exact_graph(coordinates: FloatArray, neighbors: int) -> NeighborGraph:
    """Neighbours by scikit-learn, an implementation of its own."""
    distances, indices = NearestNeighbors(n_neighbors=neighbors).fit(coordinates).kneighbors()
    return NeighborGraph(indices=indices, distances=distances.astype(np.float32))


def prepared(embedder: Embedder, coordinates: FloatArray) -> tuple[NeighborGraph, FloatArray]:
    graph = exact_graph(coordinates, embedder.neighbors_needed(len(coordinates)))
    return graph, principal_components(coordinates)


def digest(layout: FloatArray) -> str:
    return hashlib.sha256(np.ascontiguousarray(layout).tobytes()).hexdigest()


def digits(rows: int) -> FloatArray:
    return np.asarray(load_digits().data[:rows])


def central_differences(
    function: Callable[[Float64Array], float], layout: Float64Array, width: float = 1e-6
) -> Float64Array:
    slopes = np.empty_like(layout)
    for at in np.ndindex(layout.shape):
        ahead, behind = layout.copy(), layout.copy()
        ahead[at] += width
        behind[at] -= width
        slopes[at] = (function(ahead) - function(behind)) / (2 * width)
    return slopes
