"""New rows on a finished map: P3 (23), all rows at once.

Rows of the map serve as fixed pseudo-anchors. A new row with distances delta_i to them goes to the minimum of

    sum_i (|p_i - y| - scale * delta_i)^2

(23) itself has scale = 1: it assumes that the map is in the units of the data, as completed coordinates are.
Maps of t-SNE, UMAP and similar methods are not isometric in any unit: only distances to near rows agree. For
such a map, give the scale of near pairs (`map_scale`), and use only a few pseudo-anchors per new row
(``neighbors``). docs/new-rows.md has the figures.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import Float64Array, FloatArray
from raydr.errors import DataError, ScenarioError
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import check_finite, row_blocks
from raydr.threads import one_blas_thread

BLOCK_VALUES = 2**18
"""Values per block of new rows: three or four arrays of 2 MB are alive at once."""
_START_NEIGHBORS = 5


def place(
    distances: FloatArray,
    positions: FloatArray,
    *,
    neighbors: int | None = None,
    scale: float = 1.0,
    tolerance: float = 1e-6,
    max_iterations: int = 300,
) -> Float64Array:
    """Place new rows by their distances to rows of a map, each on its own.

    Each row starts at the mean of the 5 nearest pseudo-anchors (of ``neighbors`` if fewer), weighted by 1 /
    delta^2. It moves by majorisation: to the mean of the points at distance scale * delta_i from p_i, on the
    row's side of it. This never raises its stress. With hundreds of dimensions it converges slowly;
    trilateration then solves the same in one product.

    Parameters
    ----------
    distances : (rows, anchors)
        Not squared, in units of the data; 0 or more. May have no rows.
    positions : (anchors, dimensions)
        Pseudo-anchors on the map; at least two.
    neighbors : int, optional
        Number of nearest pseudo-anchors for each row, at least 2. None: all. With as many as the map has
        dimensions, each row stays in the plane or on the line that they span.
    scale : float
        Map units per data unit; positive. See the module's text.
    tolerance : float
        A row stops when it moves by no more than this part of its largest scaled distance.
    max_iterations : int
        Largest number of iterations.

    Returns
    -------
    Float64Array
        (rows, dimensions).

    Raises
    ------
    DataError
        If there are fewer than two pseudo-anchors, shapes do not fit together, a value is not finite or a
        distance is negative.
    ScenarioError
        If a setting is out of its range.

    Examples
    --------
    >>> corners = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    >>> place(np.array([[5.0, 3.0, 17.0**0.5]]), corners).round(3) + 0.0
    array([[4., 3.]])
    """
    distances, positions = _checked(distances, positions)
    rows, count = distances.shape
    dimensions = positions.shape[1]
    _check_settings(neighbors, count, scale, tolerance, max_iterations)
    used = count if neighbors is None else neighbors
    placed = np.empty((rows, dimensions))
    with one_blas_thread():
        for start, stop in row_blocks(rows, max(1, BLOCK_VALUES // (used * dimensions))):
            block = distances[start:stop]
            first = _start(block, positions, min(used, _START_NEIGHBORS))
            if used < count:
                chosen = _nearest(block, used)
                targets = scale * np.take_along_axis(block, chosen, axis=1)
                anchors = np.ascontiguousarray(np.moveaxis(positions[chosen], 2, 0))
            else:
                targets = scale * block
                anchors = np.broadcast_to(positions.T[:, None], (dimensions, stop - start, count))
            placed[start:stop] = _majorise(first, anchors, targets, tolerance, max_iterations)
    return placed


def map_scale(graph: NeighborGraph, positions: FloatArray) -> float:
    """Return map units per data unit among near rows: the median over neighbours of map distance / data distance.

    Parameters
    ----------
    graph : NeighborGraph
        Neighbours of the pseudo-anchors, in the data; as many as `place` will use.
    positions : (anchors, dimensions)
        Pseudo-anchors on the map.

    Raises
    ------
    DataError
        If the positions are not finite, or not one for each row of the graph. Also if the median is 0: most neighbours
        coincide in the data or on the map, so they have no common scale.
    """
    _, positions = _checked(np.empty((0, graph.rows)), positions)
    wanted = graph.distances.astype(np.float64)
    found = np.sqrt(sum((column[:, None] - column[graph.indices]) ** 2 for column in positions.T))
    differ = wanted > 0
    scale = float(np.median(found[differ] / wanted[differ])) if differ.any() else 0.0
    if scale == 0.0:
        raise DataError(
            f"Most neighbours among the {graph.rows} pseudo-anchors coincide, in the data or on the"
            " map, so the scale between the two is unknown. Give other pseudo-anchors."
        )
    return scale


def _majorise(
    first: Float64Array, anchors: Float64Array, targets: Float64Array, tolerance: float, max_iterations: int
) -> Float64Array:
    """Minimise ``sum_i (|p_i - y| - t_i)^2`` for each row.

    ``first`` is (rows, dimensions), ``anchors`` (dimensions, rows, used), ``targets`` (rows, used).
    """
    placed = first.copy()
    moving = np.arange(first.shape[0])
    current = first.T.copy()
    means = anchors.mean(axis=2)
    reach = targets.max(axis=1)
    for _ in range(max_iterations):
        if not moving.size:
            break
        offsets = current[:, :, None] - anchors
        lengths = np.sqrt(np.einsum("dij,dij->ij", offsets, offsets))
        # A row on a pseudo-anchor has no side, so that pseudo-anchor draws it to itself.
        ratios = np.divide(targets, lengths, out=np.zeros_like(lengths), where=lengths > 0)
        moved = means + np.einsum("dij,ij->di", offsets, ratios) / targets.shape[1]
        steps = np.sqrt(((moved - current) ** 2).sum(axis=0))
        placed[moving] = moved.T
        current = moved
        still = steps > tolerance * reach
        if not still.all():
            moving, current, means = moving[still], current[:, still], means[:, still]
            anchors, targets, reach = anchors[:, still], targets[still], reach[still]
    return placed


def _start(distances: Float64Array, positions: Float64Array, count: int) -> Float64Array:
    """Return the mean of the ``count`` nearest pseudo-anchors, weighted by 1 / delta^2; at distance 0, that one."""
    chosen = _nearest(distances, count)
    near = np.take_along_axis(distances, chosen, axis=1)
    nearest = near.min(axis=1, keepdims=True)
    # Relative to the nearest, so that no weight overflows.
    weights = np.divide(nearest, near, out=np.ones_like(near), where=near > 0) ** 2
    return np.asarray(
        np.einsum("ij,ijd->id", weights / weights.sum(axis=1, keepdims=True), positions[chosen])
    )


def _nearest(distances: Float64Array, count: int) -> NDArray[np.intp]:
    if count == distances.shape[1]:
        return np.broadcast_to(np.arange(count), distances.shape)
    return np.argpartition(distances, count - 1, axis=1)[:, :count]


def _check_settings(
    neighbors: int | None, count: int, scale: float, tolerance: float, max_iterations: int
) -> None:
    if neighbors is not None and not 2 <= neighbors <= count:
        raise ScenarioError(
            f"Cannot place new rows by {neighbors} of {count} pseudo-anchors. Set neighbors from 2 to"
            f" {count}, or leave it out to use all."
        )
    if not (math.isfinite(scale) and scale > 0):
        raise ScenarioError(
            f"The map's scale is {scale!r}. It must be a positive number of map units per data unit."
        )
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise ScenarioError(f"The tolerance for new rows is {tolerance!r}. It must be 0 or more.")
    if max_iterations < 0:
        raise ScenarioError(f"The max_iterations for new rows is {max_iterations!r}. It must be 0 or more.")


def _checked(distances: FloatArray, positions: FloatArray) -> tuple[Float64Array, Float64Array]:
    measured = np.ascontiguousarray(distances, dtype=np.float64)
    anchors = np.ascontiguousarray(positions, dtype=np.float64)
    if measured.ndim != 2 or anchors.ndim != 2 or measured.shape[1] != anchors.shape[0]:
        raise DataError(
            "New rows need distances to every pseudo-anchor, but the distances have shape"
            f" {measured.shape} and the positions {anchors.shape}. Give (rows, anchors) and (anchors,"
            " dimensions)."
        )
    if anchors.shape[0] < 2 or anchors.shape[1] < 1:
        raise DataError(
            f"Cannot place new rows by pseudo-anchors of shape {anchors.shape}. Give at least 2"
            " pseudo-anchors, in at least 1 dimension."
        )
    for name, table in (("the distances", measured), ("the pseudo-anchors' positions", anchors)):
        check_finite(table, name, "New rows are placed by")
    if measured.size and measured.min() < 0:
        row, anchor = (int(at[0]) for at in np.nonzero(measured < 0))
        raise DataError(
            f"The distance of new row {row} to pseudo-anchor {anchor} is {measured[row, anchor]:.6g}."
            " Distances are 0 or more: clip distances that noise made negative."
        )
    return measured, anchors
