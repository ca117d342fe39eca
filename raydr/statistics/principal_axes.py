"""Principal axes of all clients' rows, from sums alone, by subspace iteration (Halko, Martinsson & Tropp 2011).

The covariance of 10,000 features takes 800 MB. Its product with a few directions is small, and a sum over clients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, shaped
from raydr.federation import Client, Federation, Granularity, Range, Rehearsal, Reply, Request, answers
from raydr.sparse_rows import SparseRows
from raydr.threads import one_blas_thread

ITERATIONS = 6
"""Number of sums. The first 10 of 64 axes of MNIST then hold 1.00000 of the exact axes' variance, all 64 0.998."""


@dataclass(frozen=True)
class CovarianceProduct(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="in which directions a client's rows spread: the product of their second moments with some directions",
):
    """``product`` (features, directions) float64, a mean over the client's rows."""

    product: Float64Array

    @staticmethod
    def ranges(request: CovarianceRequest, rows: int) -> dict[str, Range]:
        """Bound each entry of x x^T q by the bound on the entry of x times that on the length of x."""
        bound = request.reach[:, None] * float(np.linalg.norm(request.reach)) * (1.0 + 1e-9)
        return {"product": Range(request.directions.shape, np.broadcast_to(bound, request.directions.shape))}


@dataclass(frozen=True)
class CovarianceRequest(Request[CovarianceProduct], what="some directions, and the range of each feature"):
    """Request for the mean of x x^T q for each column q of ``directions``, of length 1.

    ``reach`` (features,) bounds ``|x|``; x is a row, relative to ``centre`` (features,) if it is set.
    """

    directions: Float64Array
    reach: Float64Array
    centre: Float64Array | None = None


@answers(CovarianceRequest)
def covariance_product(client: Client, request: CovarianceRequest) -> CovarianceProduct:
    """Client part, in float64."""
    if client.rows.shape[0] == 0:
        return CovarianceProduct(np.zeros(request.directions.shape))
    if isinstance(client.rows, SparseRows):
        return CovarianceProduct(_sparse_product(client.rows, request) / len(client.rows))
    rows = client.rows.astype(np.float64)
    if request.centre is not None:
        rows -= request.centre
    product = rows.T @ (rows @ request.directions)
    product /= len(rows)
    return CovarianceProduct(product)


def _sparse_product(rows: SparseRows, request: CovarianceRequest) -> Float64Array:
    """Return the sum of x x^T q by products with the nonzero numbers alone; equal to the dense one up to rounding."""
    shifted, shift = rows.shifted()
    table = shifted.csr
    centre = -shift if request.centre is None else request.centre - shift
    seen = table @ request.directions - centre @ request.directions
    return np.asarray(table.T @ seen - np.outer(centre, seen.sum(axis=0)))


@dataclass(frozen=True)
class PrincipalAxes:
    """Directions of largest variance, largest first.

    Attributes
    ----------
    directions : (features, axes) float64
        Orthonormal columns.
    deviations : (axes,) float64
        Standard deviation of the rows along each axis.
    """

    directions: Float64Array
    deviations: Float64Array


def principal_axes(
    federation: Federation, reach: Float64Array, count: int, centre: Float64Array | None = None
) -> PrincipalAxes:
    """Return the first ``count`` principal axes of all rows, or as many as there are features.

    Parameters
    ----------
    federation : Federation
        Clients whose rows have mean ``centre``.
    reach : (features,) float64
        Bound on the absolute value of each feature, relative to the centre.
    count : int
        Number of axes, at least 1.
    centre : (features,) float64, optional
        Mean of all rows; default: 0.
    """
    count = min(count, len(reach))

    def product(directions: Float64Array) -> Float64Array:
        return federation.mean(CovarianceRequest(directions, reach, centre), weights="rows").product

    # Keep no reference to intermediate results: 500 directions of 20,000 features take 80 MB.
    directions = _spanning(federation.stream("principal axes").standard_normal((len(reach), count)))
    for _ in range(ITERATIONS - 1):
        directions = _spanning(product(directions))
    image = product(directions)
    with one_blas_thread():
        # Rayleigh-Ritz: the axes within the span of the last directions.
        within = directions.T @ image
        variances, turn = np.linalg.eigh((within + within.T) / 2.0)
        axes = directions @ turn[:, ::-1]
    return PrincipalAxes(signed(axes), np.sqrt(np.maximum(variances[::-1], 0.0)))


def _spanning(table: Float64Array) -> Float64Array:
    """Return orthonormal columns with the same span."""
    with one_blas_thread():
        return np.linalg.qr(table)[0]


def rehearse_axes(
    federation: Rehearsal, reach: Float64Array, count: int, centre: Float64Array | None = None
) -> None:
    """Send the requests of :func:`principal_axes`."""
    directions = shaped((len(reach), min(count, len(reach))))
    for _ in range(ITERATIONS):
        federation.mean(CovarianceRequest(directions, reach, centre), weights="rows")


def signed(axes: Float64Array) -> Float64Array:
    """Return columns of length 1 with positive largest entries: a sign that does not depend on the library.

    Among entries that are equally large, to rounding, the first decides.
    """
    sizes = np.abs(axes)
    largest = axes[(sizes >= (1.0 - 1e-9) * sizes.max(axis=0)).argmax(axis=0), np.arange(axes.shape[1])]
    return np.asarray(axes * np.sign(largest))
