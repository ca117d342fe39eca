r"""Hyperbolic trilateration: points of the hyperboloid from their squared distances to known anchors.

(14) is linear in the row x: :math:`x \circ a_j = \cosh(\sqrt\kappa\, d_j)` (L-HYDRA, Keller-Ressel & Nargang 2022).
Seen from the anchors' centroid, a row is (1 + T, p, n): p in the space directions that the anchors span, n in their
complement, which is space-like, so no different from Euclidean space. With the anchors at (t_j, q_j, 0),

    T t_j - p . q_j = cosh(sqrt(kappa) d_j) - t_j                    one linear solve gives T and p,
    |n|^2 = T (2 + T) - |p|^2                                        being on the hyperboloid gives |n|.

From d + 1 anchors in general position there is no n, and rows are exact. Fewer leave the direction of n open; what
a client's own rows have in common there (`LorentzFrame.residual_factor`) settles it within the client.

The linear solve loses about e^(2R) of its digits for rows at radius R, so Gauss-Newton on the distances themselves
follows, row by row, until their rounding is reached. Products of a block go through BLAS: the same block gives the
same bits, rows in another block agree to rounding only.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Literal, TypeAlias

import numpy as np

from raydr.arrays import Float64Array
from raydr.completion.lorentz_descent import descend
from raydr.errors import DataError
from raydr.hyperbolic import (
    FARTHEST_RADIUS,
    checked_curvature,
    checked_points,
    lorentz_product,
    moved,
    seen_from,
    to_ball,
)
from raydr.threads import one_blas_thread

Residual: TypeAlias = Literal["shared", "dropped"]
EPS = float(np.finfo(np.float64).eps)
REFINEMENT_STEPS = 30


@dataclass(frozen=True, eq=False)
class LorentzFrame:
    """The anchors as seen from their centroid, and the solver against them.

    Attributes
    ----------
    curvature : float
    centre : (d + 1,) float64
        The anchors' centroid on the hyperboloid: their mean over its Lorentz norm.
    basis : (d, d) float64
        Orthonormal space directions at the centre; the first ``rank`` span the anchors, the rest their complement.
    anchors : (anchors, rank + 1) float64
        The anchors in that frame, on the hyperboloid of dimension ``rank``.
    solution : (rank + 1, anchors) float64
        Pseudo-inverse of the linear equations, each divided by its anchor's time coordinate.
    noise : float
        Absolute error of a distance beyond rounding, at curvature -1.
    """

    curvature: float
    centre: Float64Array
    basis: Float64Array
    anchors: Float64Array
    solution: Float64Array
    noise: float

    @property
    def rank(self) -> int:
        """Dimension of the smallest hyperbolic subspace through the anchors; d where they are in general position."""
        return int(self.anchors.shape[1]) - 1

    @property
    def complement(self) -> int:
        """Dimensions that distances to the anchors leave open, d - rank."""
        return int(self.basis.shape[0]) - self.rank

    def solve(
        self,
        squared_distances: Float64Array,
        inside: Float64Array | None = None,
        residual: Residual = "shared",
    ) -> Float64Array:
        distances = sqrt(self.curvature) * np.sqrt(_checked_distances(squared_distances, self.anchors.shape[0]))
        with one_blas_thread():
            span, heights = self._span_and_heights(distances)
            if inside is not None:
                aside = inside
            elif residual == "shared" and self.complement:
                aside = heights[:, None]
            else:
                span, aside = span / np.sqrt(1.0 + heights**2)[:, None], np.zeros((len(span), 0))
            space = span @ self.basis[: self.rank] + aside @ self.basis[self.rank : self.rank + aside.shape[1]]
            return _seen_from_origin(self.centre, space)

    def _span_and_heights(self, distances: Float64Array) -> tuple[Float64Array, Float64Array]:
        times = self.anchors[:, 0]
        excess = 2.0 * np.sinh(0.5 * distances) ** 2
        nearness = (self.anchors[:, 1:] ** 2).sum(axis=1) / (1.0 + times)  # t_j - 1
        solved = ((excess - nearness) / times) @ self.solution.T
        T, span = solved[:, 0], solved[:, 1:]
        squared = T * (2.0 + T) - (span**2).sum(axis=1)
        rounding = EPS * (1.0 + distances.max(axis=1)) * 16
        points = _with_time(span)
        # the rounding of distances that were computed in ball coordinates
        reach = self.centre[0] + np.sqrt(max(self.centre[0] ** 2 - 1, 0))
        w = np.sqrt((2 / (1 + points[:, :1])) * (2 / (1 + times))) * np.cosh(distances / 2) / reach
        floor = ((8 * EPS * (distances + 2 / w) + self.noise) ** 2).sum(axis=1)
        inner = descend(points, self.anchors, distances, steps=REFINEMENT_STEPS, floor=floor, damping=1e-9)
        p, h = inner.points[:, 1:].copy(), np.zeros(len(points))
        if self.complement:
            aside = np.flatnonzero((inner.stress > floor) & (squared > 0))
            if aside.size:
                start = _with_time(np.concatenate([span[aside], np.sqrt(squared[aside])[:, None]], axis=1))
                flat = np.concatenate([self.anchors, np.zeros((len(times), 1))], axis=1)
                outer = descend(start, flat, distances[aside], steps=REFINEMENT_STEPS, floor=floor[aside], damping=1e-9)
                p[aside], h[aside] = outer.points[:, 1:-1], np.abs(outer.points[:, -1])
        return p, h


def lorentz_frame(anchors: Float64Array, curvature: float = 1.0, noise: float = 0.0) -> LorentzFrame:
    anchors = checked_points(anchors, "the anchors")
    centre = _centre(anchors)
    space, distances = seen_from(centre, anchors)
    klein = space / np.sqrt(1.0 + (space * space).sum(axis=1, keepdims=True))
    _, singular, basis = np.linalg.svd(klein, full_matrices=True)
    rounding = 8 * EPS * 2 * centre[0] * sqrt(len(anchors))
    kept = singular > max(rounding, sqrt(10 * (EPS * distances.max() + noise)))
    rank = int(kept.sum())
    inside = _with_time(space @ basis[:rank].T)
    solution = np.linalg.pinv(np.concatenate([np.ones((len(anchors), 1)), -inside[:, 1:] / inside[:, :1]], axis=1), rcond=1e-15)
    return LorentzFrame(curvature, centre, basis, inside, solution, noise)


def _centre(anchors: Float64Array) -> Float64Array:
    mean = anchors.mean(axis=0)
    centre = _with_time((mean / np.sqrt(lorentz_product(mean, mean)))[1:])
    for _ in range(20):
        space, _ = seen_from(centre, anchors)
        middle = (space / np.sqrt(1.0 + (space * space).sum(axis=1, keepdims=True))).mean(axis=0)
        length = np.linalg.norm(middle)
        if length<1e-3: break
        centre = moved(centre, middle * (np.arctanh(length) / length))
    return centre


def _seen_from_origin(centre, space):
    time = np.sqrt(1.0 + (space * space).sum(axis=-1, keepdims=True))
    along = (space @ centre[1:])[:, None] / (1.0 + centre[0])
    return _with_time(space + (time + along) * centre[1:])


def _with_time(space: Float64Array) -> Float64Array:
    time = np.sqrt(1.0 + (space * space).sum(axis=-1, keepdims=True))
    return np.concatenate([time, space], axis=-1)


def _checked_distances(d, k):
    return d
