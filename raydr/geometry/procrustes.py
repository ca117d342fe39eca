r"""Orthogonal Procrustes: the rotation of one table of points onto another, row by row.

Let :math:`X^T Y = U S V^T` be the cross product of centred tables X and Y. The orthogonal :math:`R = U V^T` brings
:math:`X R` nearest to Y (Schonemann 1966). The narrower table counts as padded with zeros. If X has fewer columns than
Y, R has orthonormal rows, and if it has more, orthonormal columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array


@dataclass(frozen=True)
class Similarity:
    """A similarity of the plane or of space: ``x -> scale * (x - origin) @ rotation + target``.

    ``rotation`` is orthogonal, (2, 2) or (3, 3), and can be a reflection. All distances change by the factor
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


def rotation(cross_product: Float64Array) -> Float64Array:
    """Return R of a cross product (columns of X, columns of Y), which can have low rank."""
    from scipy.linalg import svd

    # LAPACK's divide and conquer does not always converge on matrices of low rank; its QR iteration does.
    left, _, right = svd(cross_product, full_matrices=False, lapack_driver="gesvd")
    return np.asarray(left @ right)


def factors(cross_product: Float64Array) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return U, S and V^T of a cross product, by divide and conquer.

    They are not bit-identical to those of `rotation`.
    """
    left, singular, right = np.linalg.svd(cross_product, full_matrices=False)
    return left, singular, right


def procrustes(moving: Float64Array, fixed: Float64Array) -> Similarity:
    r"""Find the similarity that brings one map nearest to another, row by row.

    Minimises :math:`\sum_i \| s (x_i - \bar x) R - (y_i - \bar y) \|^2` over the scale :math:`s > 0` and the
    orthogonal :math:`R`. R is that of the module, and :math:`s = \mathrm{tr} S / \| X - \bar x \|^2` (Gower
    1975).

    Parameters
    ----------
    moving, fixed : Float64Array, (rows, 2) or (rows, 3)
        The same rows in both maps.

    Returns
    -------
    Similarity
        It never changes neighbourhoods. It is the identity up to a shift if either map is a single point.

    Examples
    --------
    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> turned = 3.0 * square @ np.array([[0.0, 1.0], [-1.0, 0.0]]) + 7.0
    >>> bool(np.allclose(procrustes(turned, square)(turned), square))
    True
    """
    origin, target = moving.mean(axis=0), fixed.mean(axis=0)
    centred = moving - origin
    left, singular, right = factors(centred.T @ (fixed - target))
    spread = float((centred**2).sum())
    if spread == 0.0 or singular.sum() == 0.0:
        return Similarity(1.0, np.eye(moving.shape[1]), origin, target)
    return Similarity(float(singular.sum()) / spread, left @ right, origin, target)


def turn(moving: Float64Array, fixed: Float64Array) -> Similarity:
    """Find the rotation or reflection about the origin that brings one map nearest to another, row by row.

    Only these similarities keep the Poincaré disk in place, and with it hyperbolic distances.

    Examples
    --------
    >>> points = np.array([[0.0, 0.9], [0.1, 0.0]])
    >>> bool(np.allclose(turn(points[:, ::-1], points)(points[:, ::-1]), points))
    True
    """
    left, _, right = factors(moving.T @ fixed)
    nowhere = np.zeros(moving.shape[1])
    return Similarity(1.0, left @ right, nowhere, nowhere)
