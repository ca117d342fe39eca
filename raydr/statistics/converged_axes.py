"""Principal axes to rounding, through sums alone, by block Lanczos (Golub & Underwood 1977; Musco & Musco 2015).

:mod:`raydr.statistics.principal_axes` takes six sums, after which many axes span nearly what exact ones do. Here few
axes are wanted, and those of the pooled rows: all directions that were ever asked for are kept, and so many more sums
are taken as it needs until the axes are such that the covariance turns none of them any more.
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
"""Directions of a sum, at least."""
MOST_SUMS = 60
TURNED = 1e-12
"""Part of the largest variance up to which what turns an axis is rounding."""

Product = Callable[[Float64Array], Float64Array]


@dataclass(frozen=True)
class Converged:
    """Axes, and how far the covariance still turns them.

    Attributes
    ----------
    axes : PrincipalAxes
        As many as were asked for, or as rows and features allow.
    turned : float
        Largest length of ``C v - variance v`` over the axes v, in units of the largest variance. An axis is off by
        about that over the gap between its variance and the next, both in the same units.
    sums : int
        Products that were taken.
    """

    axes: PrincipalAxes
    turned: float
    sums: int


def converged_axes(
    federation: Federation, reach: Float64Array, count: int, centre: Float64Array
) -> Converged:
    """First ``count`` principal axes of all rows, whose mean is ``centre``; ``reach`` bounds ``|x - centre|``."""

    def product(directions: Float64Array) -> Float64Array:
        return federation.mean(CovarianceRequest(directions, reach, centre), weights="rows").product

    return leading_axes(product, federation.features, count)


def leading_axes(product: Product, features: int, count: int) -> Converged:
    """First ``count`` eigenvectors of a positive semi-definite matrix (features, features).

    Parameters
    ----------
    product : callable
        The matrix times some directions, (features, directions).
    features, count : int
        Of the matrix, and of its eigenvectors.
    """
    count = min(count, features)
    # One start for all seeds: what comes of it is no draw.
    fresh = np.random.default_rng(0).standard_normal((features, min(features, max(BLOCK, count))))
    basis, images = np.zeros((features, 0)), np.zeros((features, 0))
    variances, turned, scale, sums = np.zeros(0), np.inf, 0.0, 0
    axes = basis
    while sums < MOST_SUMS:
        with one_blas_thread():
            fresh = _beside(basis, fresh, TURNED * scale)
        if not fresh.shape[1]:  # the matrix leads nowhere else
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


def _beside(basis: Float64Array, directions: Float64Array, least: float) -> Float64Array:
    """Orthonormal columns of what directions have beside a basis, where that is longer than ``least``."""
    for _ in range(2):  # twice is enough (Kahan and Parlett)
        directions = directions - basis @ (basis.T @ directions)
    left, lengths, _ = np.linalg.svd(directions, full_matrices=False)
    kept = left[:, lengths > least]
    kept = kept - basis @ (basis.T @ kept)
    return np.asarray(np.linalg.qr(kept)[0])
