"""Turning one map onto another, so that the eye compares shapes and not orientations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array


@dataclass(frozen=True)
class Similarity:
    """A similarity of the plane or of space: ``x -> scale * (x - origin) @ rotation + target``.

    ``rotation`` is orthogonal, (2, 2) or (3, 3), reflections included; all distances change by the one factor
    ``scale``.
    """

    scale: float
    rotation: Float64Array
    origin: Float64Array
    target: Float64Array

    def __call__(self, points: Float64Array) -> Float64Array:
        """Move points of shape (rows, 2 or 3)."""
        moved: Float64Array = self.scale * (points - self.origin) @ self.rotation + self.target
        return moved


def procrustes(moving: Float64Array, fixed: Float64Array) -> Similarity:
    r"""Find the similarity that brings one map nearest to another, row by row.

    Minimises :math:`\sum_i \| s (x_i - \bar x) R - (y_i - \bar y) \|^2` over the scale :math:`s > 0` and the
    orthogonal :math:`R`: with :math:`(X - \bar x)^T (Y - \bar y) = U S V^T`, :math:`R = U V^T` and
    :math:`s = \mathrm{tr} S / \| X - \bar x \|^2` (Schonemann 1966; Gower 1975).

    Parameters
    ----------
    moving, fixed : Float64Array, (rows, 2) or (rows, 3)
        The same rows in both maps.

    Returns
    -------
    Similarity
        Never changes neighbourhoods; the identity up to a shift when either map is a single point.

    Examples
    --------
    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> turned = 3.0 * square @ np.array([[0.0, 1.0], [-1.0, 0.0]]) + 7.0
    >>> bool(np.allclose(procrustes(turned, square)(turned), square))
    True
    """
    origin, target = moving.mean(axis=0), fixed.mean(axis=0)
    centred = moving - origin
    left, singular, right = np.linalg.svd(centred.T @ (fixed - target))
    spread = float((centred**2).sum())
    if spread == 0.0 or singular.sum() == 0.0:
        return Similarity(1.0, np.eye(moving.shape[1]), origin, target)
    return Similarity(float(singular.sum()) / spread, left @ right, origin, target)


def turn(moving: Float64Array, fixed: Float64Array) -> Similarity:
    """Find the rotation or reflection about the origin that brings one map nearest to another, row by row.

    Of all similarities only these keep the Poincaré disk where it is, and with it hyperbolic distances.

    Examples
    --------
    >>> points = np.array([[0.0, 0.9], [0.1, 0.0]])
    >>> bool(np.allclose(turn(points[:, ::-1], points)(points[:, ::-1]), points))
    True
    """
    left, _, right = np.linalg.svd(moving.T @ fixed)
    nowhere = np.zeros(moving.shape[1])
    return Similarity(1.0, left @ right, nowhere, nowhere)
