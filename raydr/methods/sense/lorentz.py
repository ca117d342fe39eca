r"""Hyperbolic trilateration: points of the hyperboloid from their squared distances to known anchors.

(14) is linear in the row x: :math:`x \circ a_j = \cosh(\sqrt\kappa\, d_j)` (L-HYDRA, Keller-Ressel & Nargang
2022). Relative to the anchors' centre, a row is (1 + T, p, n). p is in the space directions that the anchors span, and
n in their complement. The complement is space-like and so equivalent to Euclidean space. With the anchors at (t_j, q_j,
0),

    T t_j - p . q_j = cosh(sqrt(kappa) d_j) - t_j                    one linear solve gives T and p,
    |n|^2 = T (2 + T) - |p|^2                                        being on the hyperboloid gives |n|.

With d + 1 anchors in general position there is no n, and rows are exact. Fewer anchors leave the direction of
n open; the inner products of a client's own rows (`raydr.methods.sense.frames.residual_factor`) fix it within
the client.

A direct solution of these equations loses digits. With anchors at radius 0.01 and 20, the anchors' Gram matrix gives an
f_score of 0.36. Least squares gives errors of 1e-4 between neighbours; here they are 1e-11. Three things keep the
digits: the frame at the anchors' centre, T and cosh - 1 instead of cosh, and division of each equation by t_j, to which
its rounding is proportional. Gauss-Newton on the distances then refines the rows whose stress exceeds rounding: with
noise, all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np

from raydr.arrays import Float64Array
from raydr.errors import DataError
from raydr.geometry.hyperbolic import (
    FARTHEST_RADIUS,
    checked_curvature,
    checked_points,
    contained,
    moved,
    on_hyperboloid,
    seen_from,
    squared_arcs,
)
from raydr.methods.sense.frames import wide, without
from raydr.methods.sense.lorentz_descent import checked_distances, descend
from raydr.threads import one_blas_thread

EPS = float(np.finfo(np.float64).eps)
REFINEMENT_STEPS = 30
FIRST_DAMPING = 1e-9
"""Small: rows start at the solution of the linear equations, which is close to the end."""
CENTRING_STEPS = 20
CERTAIN_HEIGHT = 1e-2
"""A row whose |n| exceeds a tenth of its time coordinate is certainly off the anchors' span."""


@dataclass(kw_only=True, frozen=True, eq=False)
class LorentzFrame:
    """The `Frame` of anchors on the hyperboloid, relative to their centre; made by `lorentz_frame`.

    Products of a block go through BLAS: the same block gives the same bits, the same row in another block
    agrees only up to rounding.

    Attributes
    ----------
    curvature : float
        kappa of -kappa.
    centre : (d + 1,) float64
        A point on the hyperboloid in the midst of the anchors.
    spanned : (rank, d) float64
        Orthonormal space directions at the centre, in rows, that span the anchors.
    anchors : (anchors, rank + 1) float64
        The anchors relative to the centre, along the first ``rank`` directions; on the hyperboloid of that dimension.
    solution : (rank + 1, anchors) float64
        Pseudo-inverse of the linear equations, each divided by its t_j.
    noise : float
        Absolute error of distances beyond rounding, at curvature -1.
    """

    curvature: float
    centre: Float64Array
    spanned: Float64Array
    anchors: Float64Array
    solution: Float64Array
    noise: float

    @property
    def rank(self) -> int:
        """Dimension of the smallest hyperbolic subspace through the anchors; d if they are in general position."""
        return int(self.anchors.shape[1]) - 1

    @property
    def codimension(self) -> int:
        """Dimensions that distances to the anchors leave open, d - rank."""
        return int(self.spanned.shape[1]) - self.rank

    @cached_property
    def complement(self) -> Float64Array:
        """Orthonormal space directions outside those, (codimension, d)."""
        with one_blas_thread():
            return np.asarray(np.linalg.svd(self.spanned, full_matrices=True)[2][self.rank :])

    def located(self, squared_distances: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Return p, (rows, rank), and |n|, (rows,), from squared distances (rows, anchors) to the anchors.

        Raises
        ------
        DataError
            If distances are negative, not finite, too large or too few.
        """
        given = np.atleast_1d(np.asarray(squared_distances, dtype=np.float64))
        known = checked_distances(given, (given.shape[0], self.anchors.shape[0]), self.curvature)
        distances = sqrt(self.curvature) * known
        with one_blas_thread():
            times = self.anchors[:, 0]
            less_one = (self.anchors[:, 1:] ** 2).sum(axis=1) / (1.0 + times)
            solved = ((2.0 * np.sinh(0.5 * distances) ** 2 - less_one) / times) @ self.solution.T
            T, span = solved[:, 0], solved[:, 1:].copy()
            squared = T * (2.0 + T) - (span * span).sum(axis=1)
            heights = np.zeros(len(span))
            aside = (
                squared > CERTAIN_HEIGHT * (1.0 + T) ** 2
                if self.codimension
                else np.zeros(len(span), np.bool_)
            )

            near = np.flatnonzero(~aside)
            start = on_hyperboloid(span[near])
            floor = self._rounding(start, distances[near])
            found = descend(
                start,
                self.anchors,
                distances[near],
                steps=REFINEMENT_STEPS,
                floor=floor,
                damping=FIRST_DAMPING,
            )
            # A row is off the span only if no point of the span explains the distances: a small |n| is the
            # root of rounding.
            explained = (found.stress <= floor) | (squared[near] <= 0) | (self.codimension == 0)
            span[near[explained]] = found.points[explained, 1:]
            aside[near[~explained]] = True

            off = np.flatnonzero(aside)
            start = on_hyperboloid(np.column_stack([span[off], np.sqrt(squared[off])]))
            floor = self._rounding(start, distances[off])
            flat = np.column_stack([self.anchors, np.zeros(len(times))])
            found = descend(
                start, flat, distances[off], steps=REFINEMENT_STEPS, floor=floor, damping=FIRST_DAMPING
            )
            span[off], heights[off] = found.points[:, 1:-1], np.abs(found.points[:, -1])
        return span, heights

    def inside(self, points: Float64Array) -> Float64Array:
        """Return coordinates inside, (rows, rank), of known points (rows, d + 1)."""
        return np.asarray(self._seen(points) @ self.spanned.T)

    def outside(self, points: Float64Array) -> Float64Array:
        """Return components outside, (rows, codimension), of known points (rows, d + 1)."""
        return np.asarray(self._seen(points) @ self.complement.T)

    def residuals(self, points: Float64Array) -> Float64Array:
        """Return components outside, in as many directions as features if these are many."""
        if not wide(points, self.rank):
            return self.outside(points)
        return without(self._seen(points), self.spanned)

    def points(self, coordinates: Float64Array, components: Float64Array) -> Float64Array:
        """Return points on the unit hyperboloid with parts p (rows, rank) and n (rows, at most ``codimension``)."""
        with one_blas_thread():
            space = coordinates @ self.spanned
            if components.shape[1]:
                space += components @ self.complement[: components.shape[1]]
            # Undo the boost that moved the centre to the origin.
            time = np.sqrt(1.0 + (space * space).sum(axis=1))
            along = time + space @ self.centre[1:] / (1.0 + self.centre[0])
            points = on_hyperboloid(space + along[:, None] * self.centre[1:])
        return contained(points, FARTHEST_RADIUS)

    def _seen(self, points: Float64Array) -> Float64Array:
        """Return space coordinates (rows, d) relative to the centre."""
        return seen_from(self.centre, points)[0] if len(points) else np.zeros((0, self.spanned.shape[1]))

    def _rounding(self, points: Float64Array, distances: Float64Array) -> Float64Array:
        """Return the stress, (rows,), of rounding: distances come from ball coordinates with errors of 1e-16."""
        depths = 4.0 / ((1.0 + points[:, :1]) * (1.0 + self.anchors[:, 0]))
        # Relative to the data's origin, rows and anchors are farther out than from the centre, by up to its
        # radius.
        stretch = 2.0 * self.centre[0]
        errors = 8.0 * EPS * (distances + 2.0 * stretch / (np.sqrt(depths) * np.cosh(0.5 * distances)))
        return np.asarray(((errors + self.noise) ** 2).sum(axis=1))


def lorentz_frame(anchors: Float64Array, curvature: float = 1.0, noise: float = 0.0) -> LorentzFrame:
    """Prepare hyperbolic trilateration against anchors.

    Anchors may be fewer than d + 1, or lie in a subspace. A direction counts as spanned if the anchors' Klein
    coordinates have a large enough singular value s in it. The error of s is a = ``noise`` + 2e-16 times the farthest
    anchor. It moves a row by a / s of its time coordinate; leaving the direction out costs about s. So directions with
    s^2 <= 10 a are cut, and the rows' parts in them become part of n. The result is the same as for anchors that lie
    exactly in the rest.

    Parameters
    ----------
    anchors : (anchors, d + 1)
        On the unit hyperboloid; at least two that differ.
    curvature : float
        kappa of -kappa.
    noise : float
        Absolute error of the distances (not squared) beyond rounding, 0 if none was added.

    Raises
    ------
    DataError
        If there are fewer than 2 anchors, or they are off the hyperboloid, or cannot be separated by distances.

    Examples
    --------
    >>> from raydr.geometry.hyperbolic import exponential_map, squared_distances
    >>> anchors = exponential_map(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]))
    >>> row = exponential_map(np.array([[-1.0, 3.0]]))
    >>> frame = lorentz_frame(anchors)
    >>> coordinates, heights = frame.located(squared_distances(row, anchors))
    >>> bool(np.allclose(frame.points(coordinates, heights[:, None][:, : frame.codimension]), row))
    True
    """
    anchors = checked_points(anchors, "the anchors")
    scale = sqrt(checked_curvature(curvature))
    if anchors.shape[0] < 2:
        raise DataError(
            f"Hyperbolic trilateration needs at least 2 different anchors, got {anchors.shape[0]}."
            " Raise method.anchors."
        )
    if not (np.isfinite(noise) and noise >= 0):
        raise DataError(f"The noise of distances must be a finite number of at least 0, got {noise!r}.")
    with one_blas_thread():
        centre = _centre(anchors)
        space, distances = seen_from(centre, anchors)
        _, singular, basis = np.linalg.svd(_klein(space), full_matrices=False)
        rounding = 16.0 * EPS * centre[0] * sqrt(len(anchors))
        usable = sqrt(10.0 * (EPS * float(distances.max()) + scale * noise))
        rank = int(np.count_nonzero(singular > max(rounding, usable)))
        if rank == 0:
            raise DataError(
                f"The {len(anchors)} anchors are practically one point of hyperbolic space (within"
                f" {distances.max():.3g} of their centre, at curvature -1), so distances to them cannot"
                " place rows. Choose anchors that differ, or scale the data up (data.scale)."
            )
        seen = on_hyperboloid(space @ basis[:rank].T)
        equations = np.column_stack([np.ones(len(anchors)), -seen[:, 1:] / seen[:, :1]])
        solution = np.linalg.pinv(equations)
    return LorentzFrame(
        curvature=float(curvature),
        centre=centre,
        spanned=basis[:rank],
        anchors=seen,
        solution=solution,
        noise=scale * noise,
    )


def _centre(anchors: Float64Array) -> Float64Array:
    """Lower the sum of log cosh of the distances to the anchors, from the most central anchor.

    A distant anchor pulls the Lorentz centroid with a weight of e^R; here it pulls no harder than any other.
    At the minimum the mean Klein coordinates are 0, and a step to their mean never raises the sum. Any point
    of the anchors' span would do, so a few steps suffice.
    """
    centre: Float64Array = anchors[int(np.argmin(np.sqrt(squared_arcs(anchors, anchors)).sum(axis=1)))]
    for _ in range(CENTRING_STEPS):
        middle = _klein(seen_from(centre, anchors)[0]).mean(axis=0)
        length = float(np.linalg.norm(middle))
        if length < 1e-3:
            break
        centre = moved(centre, middle * (np.arctanh(length) / length))
    return centre


def _klein(space: Float64Array) -> Float64Array:
    """Return Klein coordinates: space over time."""
    return np.asarray(space / np.sqrt(1.0 + (space * space).sum(axis=-1, keepdims=True)))
