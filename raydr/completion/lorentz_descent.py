"""Stress of hyperbolic distances, made smaller row by row: Gauss-Newton with damping, never uphill."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array
from raydr.geometry import row_blocks
from raydr.hyperbolic import moved, seen_from

LONGEST_STEP = 2.0
"""In one step a row walks at most this far, at curvature -1: farther out the linear picture of distances is wrong."""
LEAST_DAMPING, MOST_DAMPING = 1e-22, 1e6
BLOCK_VALUES = 2**20


@dataclass(frozen=True, eq=False)
class Descent:
    """Where a descent ended.

    Attributes
    ----------
    points : (rows, d + 1) float64
    stress : (rows,) float64
        Each row's sum of squared errors of its distances, at curvature -1.
    history : (steps + 1,) float64
        The sum over rows before each step and at the end; it never rises.
    """

    points: Float64Array
    stress: Float64Array
    history: Float64Array


def descend(
    points: Float64Array,
    anchors: Float64Array,
    distances: Float64Array,
    *,
    within: Float64Array | None = None,
    steps: int,
    floor: Float64Array | float = 0.0,
    damping: float = 1e-3,
) -> Descent:
    """Move rows of the hyperboloid so that their distances to the anchors come nearer those given.

    Each step is Levenberg-Marquardt in the tangent space of each row, solved by QR (the normal equations would square
    the e^R that separates radial from tangential information); a row that would gain stress stays and is damped more.

    Parameters
    ----------
    points : (rows, d + 1) float64
        Start, on the unit hyperboloid.
    anchors : (anchors, d + 1) float64
    distances : (rows, anchors) float64
        At curvature -1.
    within : (rows, rows) float64, optional
        Distances among the rows. All rows then step or stay together, and a pair counts half in each row's stress.
    steps : int
        At most so many.
    floor : (rows,) or float
        Stress at which a row is done: the rounding of its distances.
    damping : float
        At the start; times 0.1 after a step taken, 10 after one refused.
    """
    rows = points.shape[0]
    points = points.copy()
    stress = _stress(points, anchors, distances, within)
    floor = np.broadcast_to(np.asarray(floor, dtype=np.float64), (rows,))
    dampings = np.full(rows, damping)
    history = [float(stress.sum())]
    active = np.flatnonzero(stress > floor)
    for _ in range(steps):
        if not active.size:
            break
        own = np.arange(rows) if within is not None else active
        targets = anchors if within is None else np.concatenate([anchors, points])
        wanted = distances[own] if within is None else np.concatenate([distances, within], axis=1)
        step = _steps(points[own], targets, wanted, dampings[own])
        trial = moved(points[own], step)
        reached = _stress(trial, anchors, distances[own], within)
        better = reached < stress[own]
        if within is not None:
            better[:] = reached.sum() < stress.sum()
        gained = np.where(better, stress[own] - reached, 0.0)
        if within is not None:
            gained[:] = gained.sum()
        points[own[better]], stress[own[better]] = trial[better], reached[better]
        dampings[own] = np.maximum(dampings[own] * np.where(better, 0.1, 10.0), LEAST_DAMPING)
        stalled = better & (gained <= 1e-12 * (stress.sum() if within is not None else stress[own]))
        done = stalled | (stress[own] <= floor[own]) | (dampings[own] > MOST_DAMPING)
        active = own[~done] if within is None or not done.all() else own[:0]
        history.append(float(stress.sum()))
    return Descent(points, stress, np.array(history))


def _stress(
    points: Float64Array, anchors: Float64Array, distances: Float64Array, within: Float64Array | None
) -> Float64Array:
    from raydr.hyperbolic import _squared_distances

    stress = ((np.sqrt(_squared_distances(points, anchors, 1.0)) - distances) ** 2).sum(axis=1)
    if within is not None:
        stress += 0.5 * ((np.sqrt(_squared_distances(points, points, 1.0)) - within) ** 2).sum(axis=1)
    return np.asarray(stress)


def _steps(
    points: Float64Array, targets: Float64Array, distances: Float64Array, damping: Float64Array
) -> Float64Array:
    """Steps (rows, d), in the coordinates that `seen_from` the rows gives."""
    rows, dimensions = points.shape[0], points.shape[1] - 1
    steps = np.empty((rows, dimensions))
    for start, stop in row_blocks(rows, max(1, BLOCK_VALUES // (targets.shape[0] * dimensions))):
        part = slice(start, stop)
        towards, reached = seen_from(points[part, None], targets)
        lengths = np.linalg.norm(towards, axis=2, keepdims=True)
        np.divide(towards, lengths, out=towards, where=lengths > 0)
        ridge = np.sqrt(damping[part])[:, None, None] * np.eye(dimensions)
        q, r = np.linalg.qr(np.concatenate([towards, ridge], axis=1))
        wanted = np.einsum("ntd,nt->nd", q[:, : targets.shape[0]], reached - distances[part])
        steps[part] = np.linalg.solve(r, wanted[..., None])[..., 0]
    lengths = np.linalg.norm(steps, axis=1, keepdims=True)
    return np.asarray(steps * np.minimum(1.0, LONGEST_STEP / np.maximum(lengths, LONGEST_STEP)))
