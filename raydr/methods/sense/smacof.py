"""SMACOF against fixed anchors: P3 (9)-(11) and algorithm 2, for the rows of one client.

Anchors do not move and clients do not see each other's rows, so V_NN of (11) is block diagonal by client.
Each client is a separate problem. A client's n rows see r anchors and each other, so its block is (r + n) I - 1 1^T.
Its Sherman-Morrison inverse is V_NN^-1 b = (b + 1 (1^T b) / r) / (r + n). If rows do not see each other it is b / r.

The update is computed as a step from the current rows. With w_ij = delta_ij / d_ij - 1 over observed pairs,
(11) is

    X <- X + V_NN^-1 g,    g_i = sum_j w_ij (x_i - x_j)    (j: anchors, and rows of the same client)

which equals V_NN^-1 (B_NN X + B_AN^T X_A - V_AN^T X_A). At the true rows it is zero, not a difference of
large numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, FloatArray
from raydr.device import ArrayDevice, workplace
from raydr.errors import DataError, ScenarioError
from raydr.geometry.points import check_finite, row_blocks
from raydr.threads import one_blas_thread

BLOCK_ROWS = 512
"""Rows of a tile: 512 x 512 float64 (2 MB) stay in cache between the three products that read them."""
_PRODUCT, _PAIR = 1.0 / 6.0, 70.0
"""Cost of an operation in products, and of a pair's distances besides them, as operations, for plans. *Measured* on one
core, seconds of processor for 10^9 pairs and iterations: 16 at 20 features, 18 at 64 and 99 at 784."""
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class SmacofPlacement:
    """SMACOF's result for the rows of one client.

    Attributes
    ----------
    coordinates : (rows, features) float64
        In the anchors' frame.
    stress : (iterations + 1,) float64
        Stress at the start and after each iteration: the sum of (delta - d)^2 over observed pairs, each pair
        once (P3 (17)), in squared units of the data. It never increases.
    converged : bool
        Whether the stress stopped falling before ``max_iterations``.
    """

    coordinates: Float64Array
    stress: Float64Array
    converged: bool

    @property
    def iterations(self) -> int:
        """Number of updates behind ``coordinates``."""
        return self.stress.size - 1


@dataclass(frozen=True)
class _Observed:
    """The server's observations of one client, relative to the anchors' mean, on the device of large products."""

    anchors: Any  # (anchors, features)
    distances: Any  # (rows, anchors)
    inside: Any  # (rows, dimensions), or None
    here: ArrayDevice  # device of all of them


def smacof(
    anchors: FloatArray,
    squared_distances: FloatArray,
    start: FloatArray,
    *,
    inside: FloatArray | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 300,
) -> SmacofPlacement:
    """Place the rows of one client by iterating P3 (11).

    Memory is O(rows * (features + anchors)): distances between rows are computed and used in tiles.

    Parameters
    ----------
    anchors : (anchors, features)
        Anchors that this client sees, at least two. They may be affinely dependent; rows can then rotate
        about the anchors' hull, and their final position depends on the start.
    squared_distances : (rows, anchors)
        As the client sent them. May have no rows.
    start : (rows, features)
        Initial coordinates: the closed form's, or `random_start`.
    inside : (rows, dimensions), optional
        The client's rows in any frame of their own: distances between them are the observed distances within
        the client. None: rows do not see each other (pointwise). Several clients that see the same anchors
        may then be given together; they share only the decision when to stop.
    tolerance : float
        Stop when an iteration lowers the stress by no more than this part of it. With 0, only rounding stops it.
    max_iterations : int
        Largest number of iterations.

    Raises
    ------
    DataError
        If there are fewer than two anchors, shapes do not fit together, a value is not finite, or a squared
        distance is negative.
    ScenarioError
        If ``tolerance`` or ``max_iterations`` is out of its range.

    Examples
    --------
    >>> anchors = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> placed = smacof(anchors, np.array([[2.0, 2.0, 2.0]]), np.array([[0.3, 0.9]]), tolerance=1e-12)
    >>> placed.coordinates.round(3), placed.converged
    (array([[1., 1.]]), True)
    """
    check_settings(tolerance, max_iterations)
    anchors, squared = checked(anchors, squared_distances)
    rows, features = squared.shape[0], anchors.shape[1]
    centre = anchors.mean(axis=0)
    current = checked_table(start, (rows, features), "the start") - centre
    own = None
    if inside is not None:
        own = checked_table(inside, (rows, None), "the configuration of the client's own rows")
        own = own - own.sum(axis=0) / max(rows, 1)
    here = workplace()
    inside_there = None if own is None else here.put(own)
    observed = _Observed(here.put(anchors - centre), here.put(np.sqrt(squared)), inside_there, here)
    current = here.put(current)

    with one_blas_thread():
        stress, pull = _stress_and_pull(observed, current)
        history, converged = [stress], False
        for _ in range(max_iterations):
            moved = current + _solve(observed, pull)
            stress, pull = _stress_and_pull(observed, moved)
            # Near the minimum rounding can raise the stress; the position before is then kept.
            if stress <= history[-1]:
                current = moved
                history.append(stress)
                converged = history[-2] - stress <= tolerance * history[-2]
            else:
                converged = True
            if converged:
                break
    return SmacofPlacement(here.fetch(current) + centre, np.array(history), converged)


def smacof_operations(pairs: int, features: int, iterations: int) -> float:
    """Return about the operations of this many iterations over observed pairs of points (rows, features), for plans."""
    return float(iterations) * pairs * (4.0 * _PRODUCT * features + _PAIR)


def random_start(
    anchors: FloatArray, squared_distances: FloatArray, random: np.random.Generator
) -> Float64Array:
    """Return the start of algorithm 2: each row in a random direction, at its own distance from the anchors' mean.

    That distance is known: ``|x - c|^2`` is the mean of ``|x - a_j|^2`` minus that of ``|a_j - c|^2``.

    Parameters
    ----------
    anchors : (anchors, features)
        At least two.
    squared_distances : (rows, anchors)
        Squared distances of the client's rows to them.
    random : Generator
        Draws ``rows * features`` normal numbers.

    Returns
    -------
    Float64Array
        (rows, features).

    Raises
    ------
    DataError
        As `smacof`.
    """
    anchors, squared = checked(anchors, squared_distances)
    centre = anchors.mean(axis=0)
    heights = squared.mean(axis=1) - ((anchors - centre) ** 2).sum(axis=1).mean()
    directions = random.normal(size=(squared.shape[0], anchors.shape[1]))
    directions *= (np.sqrt(np.maximum(heights, 0.0)) / np.linalg.norm(directions, axis=1))[:, None]
    return np.asarray(centre + directions)


def _solve(observed: _Observed, right: Any) -> Any:
    """Return ``V_NN^-1 right``, by Sherman-Morrison."""
    rows, anchors = observed.distances.shape
    if observed.inside is None:
        return right / anchors
    return (right + right.sum(axis=0) / anchors) / (anchors + rows)


def _stress_and_pull(observed: _Observed, current: Any) -> tuple[float, Any]:
    """Return the stress (17) of ``current`` and g of the module's text, (rows, features), in one pass."""
    blocks = [slice(*block) for block in row_blocks(current.shape[0], BLOCK_ROWS)]
    here = observed.here
    pull = here.functions.empty_like(current)
    stresses = []
    for own in blocks:
        tile = _distances(current[own], observed.anchors, here)
        stress, weights = _compare(observed.distances[own], tile, here)
        stresses.append(stress)
        pull[own] = weights.sum(axis=1)[:, None] * current[own] - weights @ observed.anchors
    if observed.inside is not None:
        for at, own in enumerate(blocks):
            for others in blocks[at:]:
                wanted = _distances(observed.inside[own], observed.inside[others], here)
                tile = _distances(current[own], current[others], here)
                if own is others:
                    diagonal = here.put(np.arange(len(tile)))
                    wanted[diagonal, diagonal] = tile[diagonal, diagonal] = 0.0
                stress, weights = _compare(wanted, tile, here)
                stresses.append(stress / 2 if own is others else stress)
                pull[own] += weights.sum(axis=1)[:, None] * current[own] - weights @ current[others]
                if own is not others:
                    pull[others] += weights.sum(axis=0)[:, None] * current[others] - weights.T @ current[own]
    return math.fsum(stresses), pull


def _compare(wanted: Any, tile: Any, here: ArrayDevice) -> tuple[float, Any]:
    """Return the stress of a tile of distances, and its w = wanted / tile - 1.

    If two points coincide, (22) has b = 0. Their difference is also zero, so w = 0 is equivalent.
    """
    residual = wanted - tile
    stress = float(here.functions.einsum("ij,ij->", residual, residual))
    tile[tile == 0.0] = np.inf
    residual /= tile
    return stress, residual


def distances_between(a: Float64Array, b: Float64Array) -> Float64Array:
    """Return distances between two sets of points by one product, exactly 0 if rounding cannot separate them.

    A squared distance has an error of some eps times the squared norms; a ratio to such an error would be
    unbounded noise.
    """
    here = workplace()
    found: Float64Array = here.fetch(_distances(here.put(a), here.put(b), here))
    return found


def _distances(a: Any, b: Any, here: ArrayDevice) -> Any:
    """Return :func:`distances_between` points on that device."""
    functions = here.functions
    norms_a, norms_b = functions.einsum("ij,ij->i", a, a), functions.einsum("ij,ij->i", b, b)
    tile = a @ b.T
    tile *= -2.0
    tile += norms_a[:, None]
    tile += norms_b
    tile[tile <= 8.0 * _EPS * (norms_a[:, None] + norms_b)] = 0.0
    return functions.sqrt(tile, out=tile)


def check_settings(tolerance: float, max_iterations: int) -> None:
    """Raise ScenarioError if one is out of its range."""
    if not (math.isfinite(tolerance) and tolerance >= 0):
        raise ScenarioError(
            f"SMACOF's tolerance is {tolerance!r}. It is the fall of stress at which to stop, and must"
            " be 0 or more."
        )
    if max_iterations < 0:
        raise ScenarioError(f"SMACOF's max_iterations is {max_iterations!r}. It must be 0 or more.")


def checked(anchors: FloatArray, squared_distances: FloatArray) -> tuple[Float64Array, Float64Array]:
    """Return anchors (anchors, features) and squared distances (rows, anchors) in float64, or raise DataError."""
    count = len(anchors)
    if count < 2:
        raise DataError(
            f"A client sees {count} anchors, but placing its rows needs at least 2. Raise"
            " method.anchors, or let this client see more of them."
        )
    anchors = checked_table(anchors, (count, None), "the anchors")
    squared = checked_table(squared_distances, (None, count), "the squared distances to the anchors")
    if squared.size and squared.min() < 0:
        row, anchor = (int(at[0]) for at in np.nonzero(squared < 0))
        raise DataError(
            f"The squared distance of row {row} to anchor {anchor} is {squared[row, anchor]:.6g}."
            " Squared distances are 0 or more: clip those that noise made negative, or lower"
            " privacy.noise.level."
        )
    return anchors, squared


def checked_table(values: FloatArray, shape: tuple[int | None, int | None], name: str) -> Float64Array:
    """Return a finite table of this shape, where None is any size, or raise DataError with its name."""
    table = np.ascontiguousarray(values, dtype=np.float64)
    if table.ndim != 2 or any(
        wanted not in (None, found) for wanted, found in zip(shape, table.shape, strict=True)
    ):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise DataError(
            f"The tables do not fit together: {name} have shape {table.shape}, expected ({wanted})."
            " Give one row for each row or anchor, in the same order."
        )
    check_finite(table, name, "Rows are placed from")
    return table
