"""Principal axes to rounding, from sums alone, by block Lanczos (Golub & Underwood 1977; Musco & Musco 2015).

:mod:`raydr.statistics.principal_axes` takes six sums, after which many axes span nearly the same space as the exact
ones. Here a few exact axes of the pooled rows are wanted. All earlier directions are kept, and sums are taken until
the covariance no longer turns the axes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array
from raydr.federation import Federation
from raydr.statistics.principal_axes import CovarianceRequest, PrincipalAxes, signed
from raydr.threads import one_blas_thread

BLOCK = 8
"""Least number of directions in a sum."""
MOST_SUMS = 60
TURNED = 1e-12
"""Residual, relative to the largest variance, below which an axis differs from the exact one only by rounding."""

Product = Callable[[Float64Array], Float64Array]


@dataclass(frozen=True)
class Converged:
    """Axes, and how far the covariance still turns them.

    Attributes
    ----------
    axes : PrincipalAxes
        As many axes as requested, or as rows and features allow.
    turned : float
        Largest length of ``C v - variance v`` over the axes v, relative to the largest variance. The error of an axis
        is about this value divided by the relative gap between its variance and the next.
    sums : int
        Number of products with the covariance.
    """

    axes: PrincipalAxes
    turned: float
    sums: int


def converged_axes(
    federation: Federation, reach: Float64Array, count: int, centre: Float64Array
) -> Converged:
    """Return the first ``count`` principal axes of all rows with mean ``centre``; ``reach`` bounds ``|x - centre|``."""

    def product(directions: Float64Array) -> Float64Array:
        return federation.mean(CovarianceRequest(directions, reach, centre), weights="rows").product

    return leading_axes(product, federation.features, count)


def leading_axes(product: Product, features: int, count: int) -> Converged:
    """Return the first ``count`` eigenvectors of a positive semi-definite matrix (features, features).

    Parameters
    ----------
    product : callable
        Multiplies the matrix with directions (features, directions).
    features, count : int
        Size of the matrix, and number of its eigenvectors.
    """
    count = min(count, features)
    # The same start for all seeds: the result is not random.
    fresh = np.random.default_rng(0).standard_normal((features, min(features, max(BLOCK, count))))
    basis, images = np.zeros((features, 0)), np.zeros((features, 0))
    variances, turned, scale, sums = np.zeros(0), np.inf, 0.0, 0
    axes = basis
    while sums < MOST_SUMS:
        with one_blas_thread():
            fresh = _orthonormal_rest(basis, fresh, TURNED * scale)
        if not fresh.shape[1]:  # the product adds no new direction
            break
        image = product(fresh)
        sums += 1
        with one_blas_thread():
            basis, images = np.hstack([basis, fresh]), np.hstack([images, image])
            within = basis.T @ images
            values, turn = np.linalg.eigh((within + within.T) / 2.0)
            variances, turn = values[: -count - 1 : -1], turn[:, : -count - 1 : -1]
            axes = basis @ turn
            scale = float(max(variances[0], 0.0))
            left = np.linalg.norm(images @ turn - axes * variances, axis=0).max()
        turned = float(left / scale) if scale else 0.0
        if turned <= TURNED:
            break
        fresh = image
    found = PrincipalAxes(signed(axes), np.sqrt(np.maximum(variances, 0.0)))
    return Converged(found, turned, sums)


def _orthonormal_rest(basis: Float64Array, directions: Float64Array, least: float) -> Float64Array:
    """Return orthonormal columns for the parts of directions outside a basis that are longer than ``least``."""
    for _ in range(2):  # twice is enough (Kahan and Parlett)
        directions = directions - basis @ (basis.T @ directions)
    left, lengths, _ = np.linalg.svd(directions, full_matrices=False)
    kept = left[:, lengths > least]
    kept = kept - basis @ (basis.T @ kept)
    return np.asarray(np.linalg.qr(kept)[0])
