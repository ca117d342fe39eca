"""Minimisation of the stress of hyperbolic distances, row by row: damped Gauss-Newton that never goes uphill."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from raydr.arrays import BoolArray, Float64Array
from raydr.errors import DataError
from raydr.geometry.hyperbolic import (
    FARTHEST_RADIUS,
    checked_curvature,
    checked_points,
    contained,
    moved,
    seen_from,
    squared_arcs,
)
from raydr.geometry.points import row_blocks
from raydr.threads import one_blas_thread

LONGEST_STEP = 2.0
"""Longest step of a row at curvature -1: beyond it the linear approximation of distances is wrong."""
LEAST_DAMPING, MOST_DAMPING = 1e-22, 1e6
BLOCK_VALUES = 2**20


@dataclass(frozen=True, eq=False)
class Descent:
    """Result of a descent.

    Attributes
    ----------
    points : (rows, d + 1) float64
        On the unit hyperboloid.
    stress : (rows,) float64
        Each row's sum of squared errors of its distances.
    history : (steps + 1,) float64
        Total stress at the start and after each step.
    """

    points: Float64Array
    stress: Float64Array
    history: Float64Array


def refine(
    points: Float64Array,
    anchors: Float64Array,
    squared_distances: Float64Array,
    *,
    within: Float64Array | None = None,
    curvature: float = 1.0,
    steps: int = 100,
    tolerance: float = 1e-12,
) -> Descent:
    """Move points of the hyperboloid, from any start, to lower the stress of their distances.

    The stress is the sum of ``(distance - given distance)^2`` over the pairs of a row and an anchor. If ``within``
    gives the distances between rows, their pairs count too. From random starts the way to the minimum leads through
    long curved valleys; `LorentzFrame.located` starts at its end.

    Parameters
    ----------
    points : (rows, d + 1)
        Start, on the unit hyperboloid.
    anchors : (anchors, d + 1)
        On the unit hyperboloid; they do not move.
    squared_distances : (rows, anchors)
        The given squared distances.
    within : (rows, rows), optional
        Squared distances among the rows, for one client's block. All rows then step or stay together.
    curvature : float
        kappa of -kappa.
    steps : int
        Largest number of steps.
    tolerance : float
        A row (with ``within``, the block) is done when a step gains less than this part of its stress.

    Raises
    ------
    DataError
        If points or anchors are not on the hyperboloid, or distances negative, not finite or of another shape.
    """
    points, anchors = checked_points(points, "the start"), checked_points(anchors, "the anchors")
    unit = sqrt(checked_curvature(curvature))
    shape = (points.shape[0], anchors.shape[0])
    distances = unit * checked_distances(squared_distances, shape, curvature)
    among = None if within is None else unit * checked_distances(within, (shape[0], shape[0]), curvature)
    with one_blas_thread():
        found = descend(points, anchors, distances, within=among, steps=steps, tolerance=tolerance)
    return Descent(found.points, found.stress / curvature, found.history / curvature)


def random_start(rows: int, anchors: Float64Array, random: np.random.Generator) -> Float64Array:
    """Return random points, (rows, d + 1): normal around the origin, on average as far out as the anchors."""
    dimensions = anchors.shape[1] - 1
    spread = sqrt(float(np.mean(np.arccosh(np.maximum(anchors[:, 0], 1.0)) ** 2)) / dimensions)
    origin = np.eye(1, dimensions + 1)
    return contained(moved(origin, spread * random.normal(size=(rows, dimensions))), FARTHEST_RADIUS)


def descend(
    points: Float64Array,
    anchors: Float64Array,
    distances: Float64Array,
    *,
    within: Float64Array | None = None,
    steps: int,
    tolerance: float = 1e-12,
    floor: Float64Array | float = 0.0,
    damping: float = 1e-3,
) -> Descent:
    """Run `refine` on checked values, with distances, not squared, at curvature -1.

    Each step is Levenberg-Marquardt in the tangent space of each row, solved by QR. The normal equations
    would square the factor e^R between a row's radius and its direction in the distances. A row whose stress
    would rise stays, and is damped more. A row is done at a stress of ``floor``, the rounding of its
    distances. ``damping`` is the initial damping; it is multiplied by 0.1 after an accepted step and by 10
    after a rejected one.
    """
    rows = points.shape[0]
    points = points.copy()
    stress = _stress(points, anchors, distances, within)
    floor = np.broadcast_to(np.asarray(floor, dtype=np.float64), (rows,))
    dampings = np.full(rows, damping)
    active = np.flatnonzero(stress > floor)
    history = [stress.sum()]
    for _ in range(steps):
        if not active.size:
            break
        own = active if within is None else np.arange(rows)
        targets = anchors if within is None else np.concatenate([anchors, points])
        wanted = distances[own] if within is None else np.concatenate([distances, within], axis=1)
        trial = moved(points[own], _steps(points[own], targets, wanted, dampings[own]))
        reached = _stress(trial, anchors, distances[own], within)
        before = stress[own]
        better, gain = _gain(before, reached, together=within is not None)
        points[own[better]], stress[own[better]] = trial[better], reached[better]
        dampings[own] = np.maximum(dampings[own] * np.where(better, 0.1, 10.0), LEAST_DAMPING)
        done = (better & (gain <= tolerance)) | (stress[own] <= floor[own]) | (dampings[own] > MOST_DAMPING)
        active = own[~done]
        history.append(stress.sum())
    return Descent(points, stress, np.array(history))


def checked_distances(squared: Float64Array, shape: tuple[int, int], curvature: float) -> Float64Array:
    """Return distances (not squared); raise `DataError` unless their squares have that shape and a possible size."""
    squared = np.asarray(squared, dtype=np.float64)
    if squared.shape != shape:
        raise DataError(
            f"Squared distances of {shape[0]} rows to {shape[1]} points must have shape {shape}, got"
            f" {squared.shape}."
        )
    largest = (2.0 * FARTHEST_RADIUS) ** 2 / curvature
    wrong = ~((squared >= 0.0) & (squared <= largest * (1.0 + 1e-5)))
    if np.any(wrong):
        row, column = (int(at[0]) for at in np.nonzero(wrong))
        raise DataError(
            f"Squared hyperbolic distances must be from 0 to {largest:g} (points up to radius"
            f" {FARTHEST_RADIUS:g} at curvature -1; here -{curvature:g}), but row {row} sent"
            f" {squared[row, column]} for anchor {column}. Check how that client computes them, and"
            " that all clients use the same method.curvature."
        )
    return np.sqrt(squared)


def _gain(before: Float64Array, after: Float64Array, *, together: bool) -> tuple[BoolArray, Float64Array]:
    """Return which rows step, and the relative gain of each; with ``together``, all rows decide as one."""
    if together:
        before, after = np.full_like(before, before.sum()), np.full_like(after, after.sum())
    better = after < before
    return better, np.divide(before - after, before, out=np.zeros_like(before), where=better)


def _stress(
    points: Float64Array, anchors: Float64Array, distances: Float64Array, within: Float64Array | None
) -> Float64Array:
    """Return the stress of each row, (rows,); a pair of rows counts half in each."""
    stress = ((np.sqrt(squared_arcs(points, anchors)) - distances) ** 2).sum(axis=1)
    if within is not None:
        stress += 0.5 * ((np.sqrt(squared_arcs(points, points)) - within) ** 2).sum(axis=1)
    return np.asarray(stress)


def _steps(
    points: Float64Array, targets: Float64Array, distances: Float64Array, damping: Float64Array
) -> Float64Array:
    """Return steps (rows, d), in the tangent coordinates of `seen_from`."""
    rows, dimensions = points.shape[0], points.shape[1] - 1
    steps = np.empty((rows, dimensions))
    for start, stop in row_blocks(rows, max(1, BLOCK_VALUES // (targets.shape[0] * dimensions))):
        part = slice(start, stop)
        towards, reached = seen_from(points[part, None], targets)
        lengths = np.linalg.norm(towards, axis=2, keepdims=True)
        np.divide(towards, lengths, out=towards, where=lengths > 0)
        ridge = np.sqrt(damping[part])[:, None, None] * np.eye(dimensions)
        q, r = np.linalg.qr(np.concatenate([towards, ridge], axis=1))
        # A distance falls by 1 for each unit moved towards its target.
        wanted = np.einsum("ntd,nt->nd", q[:, : targets.shape[0]], reached - distances[part])
        steps[part] = np.linalg.solve(r, wanted[..., None])[..., 0]
    lengths = np.linalg.norm(steps, axis=1, keepdims=True)
    return np.asarray(steps * np.minimum(1.0, LONGEST_STEP / np.maximum(lengths, LONGEST_STEP)))
