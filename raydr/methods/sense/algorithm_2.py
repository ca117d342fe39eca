r"""P3's algorithm 2 to the letter: (9) to (11) with dense matrices over all anchors and all clients' rows.

Omega is the set of observed pairs of P3, table 6. A pair is a row and an anchor that its client sees, or in the
multisite regimes two rows of one client. Over the K anchors and N rows, in that order,

.. math:: X_{NA} \leftarrow V_{NN}^\dagger (B_{NN} X_{NA} + B_{AN}^T X_A - V_{AN}^T X_A)

B of (22) compares distances, not their squares, like the stress (17). :mod:`raydr.methods.sense.smacof` takes
the same steps client by client, without these matrices. There each client stops by itself; here all stop
together. This module serves as a reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raydr.arrays import BoolArray, Float64Array, FloatArray, Int64Array
from raydr.errors import ScenarioError
from raydr.geometry.points import Progress, unheard
from raydr.methods.sense.smacof import (
    SmacofPlacement,
    check_settings,
    checked,
    checked_table,
    distances_between,
)
from raydr.threads import one_blas_thread

MOST_POINTS = 4_000
"""Largest number of anchors and rows together: each matrix then has 128 MB."""


@dataclass(frozen=True)
class VisibleAnchors:
    """Observations of a client, or of pointwise clients that see the same anchors.

    Attributes
    ----------
    visible : (seen,) int64
        Indices of the visible anchors.
    squared : (rows, seen) float64
        Squared distances to them.
    inside : (rows, dimensions) float64 or None
        The rows in any frame of their own, whose distances are observed; None if rows do not see each other.
    """

    visible: Int64Array
    squared: Float64Array
    inside: Float64Array | None = None


def require_small(points: int) -> None:
    """Raise ScenarioError for more anchors and rows than the dense matrices allow."""
    if points > MOST_POINTS:
        raise ScenarioError(
            f"method.solver: smacof-dense holds matrices over all anchors and rows, here {points:,};"
            f" the limit is {MOST_POINTS:,}. Choose method.solver: smacof, which takes the same steps"
            " without these matrices, or lower data.rows."
        )


def algorithm_2(
    anchors: FloatArray,
    clients: Sequence[VisibleAnchors],
    start: FloatArray,
    *,
    tolerance: float = 1e-6,
    max_iterations: int = 300,
    progress: Progress = unheard,
) -> SmacofPlacement:
    """Place the rows of all clients together.

    Parameters
    ----------
    anchors : (anchors, features)
        All anchors of all clients.
    clients : sequence of VisibleAnchors
        Observations of each client.
    start : (rows, features)
        Initial coordinates, client by client.
    tolerance : float
        epsilon: stop once an iteration lowers the stress of all by less, in squared units of the data.
    max_iterations : int
        T: largest number of iterations.
    progress : callable
        Called as ``progress(done, total)``, in iterations of ``max_iterations``.

    Returns
    -------
    placement : SmacofPlacement
        The stress is over all observed pairs, each once. Near the minimum rounding may raise it; there the
        paper's rule stops.

    Raises
    ------
    DataError
        As :func:`raydr.methods.sense.smacof.smacof`.
    ScenarioError
        As there, and if there are too many anchors and rows.

    Examples
    --------
    >>> anchors = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0]])
    >>> seen = VisibleAnchors(np.arange(3), np.array([[2.0, 2.0, 2.0]]))
    >>> placed = algorithm_2(anchors, [seen], np.array([[0.3, 0.9]]), tolerance=1e-12)
    >>> placed.coordinates.round(3), placed.converged
    (array([[1., 1.]]), True)
    """
    check_settings(tolerance, max_iterations)
    rows = sum(len(client.squared) for client in clients)
    require_small(len(anchors) + rows)
    count, centre = len(anchors), np.asarray(anchors, dtype=np.float64).mean(axis=0)
    known = anchors - centre
    current = checked_table(start, (rows, known.shape[1]), "the start") - centre
    observed, wanted = _observed(known, clients, count + rows)

    with one_blas_thread():
        V = np.diag(observed.sum(axis=1, dtype=np.float64)) - observed
        inverse, V_AN = np.linalg.pinv(V[count:, count:], hermitian=True), V[:count, count:].copy()
        del V
        found = _distances(known, current)
        history, converged = [_stress(observed, wanted, found)], False
        for iteration in range(max_iterations):
            progress(iteration, max_iterations)
            B = -np.divide(wanted, found, out=np.zeros_like(found), where=observed & (found > 0.0))
            np.fill_diagonal(B, -B.sum(axis=1))
            current = inverse @ (B[count:, count:] @ current + B[:count, count:].T @ known - V_AN.T @ known)
            found = _distances(known, current)
            history.append(_stress(observed, wanted, found))
            if history[-2] - history[-1] < tolerance:
                converged = True
                break
    return SmacofPlacement(current + centre, np.array(history), converged)


def _observed(
    anchors: Float64Array, clients: Sequence[VisibleAnchors], points: int
) -> tuple[BoolArray, Float64Array]:
    """Return Omega (points, points) as a mask, and delta, which is 0 outside of it."""
    observed, wanted = np.zeros((points, points), dtype=bool), np.zeros((points, points))
    first = len(anchors)
    for client in clients:
        _, squared = checked(anchors[client.visible], client.squared)
        own = slice(first, first + len(squared))
        first = own.stop
        observed[own, client.visible], wanted[own, client.visible] = True, np.sqrt(squared)
        observed[client.visible, own], wanted[client.visible, own] = True, np.sqrt(squared).T
        if client.inside is not None and len(squared):
            inside = checked_table(
                client.inside, (len(squared), None), "the configuration of the client's own rows"
            )
            inside = inside - inside.mean(axis=0)
            observed[own, own], wanted[own, own] = True, distances_between(inside, inside)
    np.fill_diagonal(observed, False)
    np.fill_diagonal(wanted, 0.0)
    return observed, wanted


def _distances(anchors: Float64Array, rows: Float64Array) -> Float64Array:
    """Return distances between all points, anchors first."""
    points = np.concatenate([anchors, rows])
    return distances_between(points, points)


def _stress(observed: BoolArray, wanted: Float64Array, found: Float64Array) -> float:
    """Return the stress (17), with every observed pair once."""
    off = wanted - found
    off *= observed
    return 0.5 * float(np.einsum("ij,ij->", off, off))
