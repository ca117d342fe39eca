"""Embedding of trees and graphs in hyperbolic space of curvature -1, to make hierarchical test data.

A tree uses Sarkar's construction, without training. Its distortion is lower for longer edges. Any other graph
uses a trained Poincaré embedding. Both return points on the unit hyperboloid (`raydr.geometry.hyperbolic`),
one row per node.
"""

from __future__ import annotations

from functools import cache
from math import log, pi, sin

import numpy as np

from raydr.arrays import BoolArray, Float64Array, Int64Array, IntArray
from raydr.errors import DataError
from raydr.geometry.hyperbolic import FARTHEST_RADIUS, contained, moved, on_hyperboloid, seen_from

TRAINING_RADIUS = 12.2
"""Largest distance of a node from the origin in training: |u| = 1 - 1e-5 in the ball, as in Nickel & Kiela."""
LONGEST_STEP = 1.0
LEARNING_RATE = 0.1
"""Training step for a gradient of 1."""
NEGATIVES = 10
"""Negative samples per edge."""
BURN_IN = 20
"""First epochs, at a tenth of the learning rate, so that nodes find their side before they move out."""
BATCH = 32
"""Edges per gradient step."""
DISTORTION = 0.1


def tree_points(
    edges: IntArray,
    dimensions: int = 2,
    *,
    edge_length: float | None = None,
    jitter: float = 0.0,
    seed: int | np.random.Generator = 0,
) -> Float64Array:
    """Place a tree by Sarkar's construction, with edges of one length that spread evenly at each node.

    The middle of the longest path, from which the tree is least deep, is at the origin.

    No path is longer than its hops times the edge length. Each node on a path shortens it by up to about ``2 log(1 /
    sin(angle / 2))``. Here ``angle`` is the smallest between two edges there (2 pi / degree in the plane). So the
    relative error falls as one over the edge length.

    Parameters
    ----------
    edges
        (nodes - 1, 2), the nodes counted from 0.
    dimensions
        Dimensions of the hyperbolic space. With more than 2, there is more room around a node (Sala et al.
        2018), and directions come from points that repel each other on a sphere.
    edge_length
        Distance between neighbours. None uses a length that keeps errors below a tenth, or a shorter one if
        the deepest leaf would pass `FARTHEST_RADIUS`.
    jitter
        Standard deviation, in each direction, of a random final step of every node. A symmetric tree has many
        equal distances, and only rounding would pick the nearest. The step breaks these ties.
    seed
        Seed of that step.

    Returns
    -------
    Float64Array
        (nodes, dimensions + 1).

    Raises
    ------
    DataError
        If the edges are not one tree, the tree is too deep for the edge length, or a node has more than two
        edges in one dimension.

    References
    ----------
    R. Sarkar, *Low distortion Delaunay embedding of trees in hyperbolic plane*, 2011. F. Sala, C. De Sa, A. Gu,
    C. Ré, *Representation tradeoffs for hyperbolic embeddings*, 2018.

    Examples
    --------
    >>> points = tree_points(np.array([[0, 1], [0, 2]]), edge_length=1.0)
    >>> seen_from(points[1], points)[1].round(6)
    array([1., 0., 2.])
    """
    edges, nodes = _checked_edges(edges)
    neighbors = _neighbors(edges, nodes)
    root = _middle(neighbors)
    order, parents = _breadth_first(neighbors, root)
    if len(order) < nodes or len(edges) != nodes - 1:
        raise DataError(
            f"A tree of {nodes} nodes has {nodes - 1} edges and one piece, but there are {len(edges)} edges and "
            f"{len(order)} nodes can be reached from node {root}. Train a Poincaré embedding instead (graph_points)."
        )
    degree = max(map(len, neighbors))
    if dimensions < 1 or (dimensions == 1 and degree > 2):
        raise DataError(
            f"A node with {degree} edges cannot spread them in {dimensions} dimensions. Use 2 or more."
        )
    depths = np.zeros(nodes)
    for node in order[1:]:
        depths[node] = depths[parents[node]] + 1
    if edge_length is None:
        edge_length = min(
            max(1.0, 2 / DISTORTION * log(1 / sin(pi / max(degree, 2)))),
            0.999 * FARTHEST_RADIUS / depths.max(),
        )
    if not 0 < edge_length * depths.max() <= FARTHEST_RADIUS:
        raise DataError(
            f"A tree {depths.max():.0f} edges deep with edges of length {edge_length:g} reaches radius "
            f"{edge_length * depths.max():.3g}, but points are distinct only up to {FARTHEST_RADIUS:g}. Use an edge "
            f"length of at most {FARTHEST_RADIUS / depths.max():.3g}."
        )
    points = np.zeros((nodes, dimensions + 1))
    points[:, 0] = 1.0
    for node in order:
        children = [other for other in neighbors[node] if other != parents[node]]
        spread = spread_directions(len(neighbors[node]), dimensions)
        if node != root:
            towards, _ = seen_from(points[node], points[parents[node]])
            spread = _reflected(spread, towards / np.linalg.norm(towards))[1:]
        if children:
            points[children] = moved(points[node], edge_length * spread)
    if jitter > 0:
        points = moved(points, jitter * np.random.default_rng(seed).normal(size=(nodes, dimensions)))
    return contained(points, FARTHEST_RADIUS)


def graph_points(
    edges: IntArray,
    dimensions: int,
    *,
    seed: int | np.random.Generator,
    epochs: int = 200,
) -> Float64Array:
    r"""Place a graph by a Poincaré embedding, with neighbours near and others far (Nickel & Kiela 2017).

    Minimises :math:`-\log\, e^{-d(u, v)} / \sum_{w} e^{-d(u, w)}` over the edges (u, v) in both directions. Here w runs
    over v and `NEGATIVES` nodes drawn from those that are not neighbours of u. Uses Riemannian stochastic gradient
    descent with exact exponential maps on the hyperboloid, instead of the paper's retraction.

    Parameters
    ----------
    edges
        (edges, 2), with nodes numbered from 0. Edges are undirected.
    dimensions
        Dimensions of the hyperbolic space.
    seed
        Seed of the start, the order of the edges and the negatives.
    epochs
        Passes over all edges.

    Returns
    -------
    Float64Array
        (nodes, dimensions + 1).

    Raises
    ------
    DataError
        If the edges are not an (edges, 2) table of node numbers, or a setting is not positive.
    """
    edges, nodes = _checked_edges(edges)
    for name, value in (("dimensions", dimensions), ("epochs", epochs)):
        if value < 1:
            raise DataError(f"A Poincaré embedding needs {name} of at least 1, not {value}.")
    random = np.random.default_rng(seed)
    both = np.concatenate([edges, edges[:, ::-1]])
    known = np.unique(np.concatenate([both @ [nodes, 1], np.arange(nodes) * (nodes + 1)]))
    points = on_hyperboloid(random.uniform(-1e-3, 1e-3, (nodes, dimensions)))
    for epoch in range(epochs):
        rate = LEARNING_RATE * (0.1 if epoch < BURN_IN else 1.0)
        shuffled = random.permutation(both)
        for pairs in np.array_split(shuffled, -(-len(shuffled) // BATCH)):
            own = pairs[:, :1]
            drawn = random.integers(0, nodes, (len(pairs), NEGATIVES))
            codes = own * nodes + drawn
            found = known[np.minimum(np.searchsorted(known, codes), len(known) - 1)] == codes
            others = np.concatenate([pairs[:, 1:], drawn], axis=1)
            ignored = np.concatenate([np.zeros((len(pairs), 1), np.bool_), found], axis=1)
            points = moved(points, -rate * riemannian_gradient(points, own, others, ignored))
            points = contained(points, TRAINING_RADIUS)
    return points


def riemannian_gradient(
    points: Float64Array, own: Int64Array, others: Int64Array, ignored: BoolArray
) -> Float64Array:
    """Return the clipped gradient (nodes, d) of the batch's loss, in the tangent coordinates of each node."""
    towards, distances = seen_from(points[own], points[others])
    back, _ = seen_from(points[others], points[own])
    likelihood = np.where(ignored, 0.0, np.exp(distances.min(axis=1, keepdims=True) - distances))
    likelihood /= likelihood.sum(axis=1, keepdims=True)
    weights = -likelihood
    weights[:, 0] += 1.0
    # A distance falls by 1 for each unit of movement towards its other end.
    gradient = np.zeros((points.shape[0], points.shape[1] - 1))
    np.add.at(gradient, own[:, 0], -(weights[..., None] * _unit(towards)).sum(axis=1))
    np.add.at(gradient, others, -weights[..., None] * _unit(back))
    lengths = np.linalg.norm(gradient, axis=1, keepdims=True)
    return np.asarray(gradient * np.minimum(1.0, LONGEST_STEP / np.maximum(lengths, LONGEST_STEP)))


def _unit(vectors: Float64Array) -> Float64Array:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0))


@cache
def spread_directions(count: int, dimensions: int) -> Float64Array:
    """Return unit vectors (count, dimensions) that keep apart: evenly on a circle, by repulsion on a sphere."""
    if dimensions == 1:
        return np.array([[1.0], [-1.0]])[:count]
    if dimensions == 2:
        angles = 2 * pi * np.arange(count) / max(count, 1)
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)
    directions = _unit(np.random.default_rng(count).normal(size=(count, dimensions)))
    for step in np.linspace(1.0, 0.01, 100):
        apart = directions[:, None] - directions
        squared = (apart**2).sum(axis=2)
        np.fill_diagonal(squared, 1.0)
        force = _unit((apart / squared[..., None] ** 2).sum(axis=1))
        directions = _unit(directions + step / count ** (1 / (dimensions - 1)) * 0.5 * force)
    return directions


def _reflected(directions: Float64Array, first: Float64Array) -> Float64Array:
    """Mirror the directions so that the first of them becomes ``first``."""
    normal = directions[0] - first
    squared = float(normal @ normal)
    if squared < 1e-30:
        return directions
    return np.asarray(directions - np.outer(directions @ normal * (2.0 / squared), normal))


def _neighbors(edges: Int64Array, nodes: int) -> list[list[int]]:
    neighbors: list[list[int]] = [[] for _ in range(nodes)]
    for a, b in edges.tolist():
        neighbors[a].append(b)
        neighbors[b].append(a)
    return neighbors


def _breadth_first(neighbors: list[list[int]], root: int) -> tuple[list[int], list[int]]:
    """Return the nodes in breadth-first order, and each node's parent (-1 for the root and unreachable nodes)."""
    parents = [-1] * len(neighbors)
    order, seen = [root], {root}
    for node in order:
        for other in neighbors[node]:
            if other not in seen:
                seen.add(other)
                parents[other] = node
                order.append(other)
    return order, parents


def _middle(neighbors: list[list[int]]) -> int:
    end = _breadth_first(neighbors, 0)[0][-1]
    order, parents = _breadth_first(neighbors, end)
    path = [order[-1]]
    while parents[path[-1]] != -1:
        path.append(parents[path[-1]])
    return path[len(path) // 2]


def _checked_edges(edges: IntArray) -> tuple[Int64Array, int]:
    table = np.asarray(edges)
    if table.ndim != 2 or table.shape[1] != 2 or not len(table) or not np.issubdtype(table.dtype, np.integer):
        raise DataError(
            f"Edges must be a table with two node numbers in each row, but got {table.dtype} of shape {table.shape}."
        )
    if table.min() < 0 or np.any(table[:, 0] == table[:, 1]):
        row = int(np.argmax((table < 0).any(axis=1) | (table[:, 0] == table[:, 1])))
        raise DataError(
            f"An edge joins two different nodes, numbered from 0, but edge {row} is {table[row].tolist()}. Remove it."
        )
    return np.unique(np.sort(table.astype(np.int64), axis=1), axis=0), int(table.max()) + 1
