r"""Metrics of recovered coordinates against the true rows, up to an isometry (P3, A.11).

Distances determine coordinates only up to a rotation or reflection and a shift. So both tables are centred, and the
recovered one is rotated onto the true one first (:mod:`raydr.geometry.procrustes`). :math:`\hat X` are the centred
recovered coordinates (rows, rank), and X the centred rows (rows, features). R brings :math:`\hat X R` nearest to X.

But the anchors are known, and they define a frame in the data's own coordinates. A.11 compares the tables in
that frame without alignment. The two metrics whose names begin with ``anchored`` do the same. They measure
how near the server comes to the records themselves. They depend on the origin of the data, which no geometry
does: far from it every cosine is 1, and every relative error 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import fsum, sqrt

import numpy as np

from raydr.arrays import Float64Array
from raydr.geometry.expected_points import ExpectedPoints
from raydr.geometry.points import Geometry, Points, map_threaded, row_blocks
from raydr.geometry.procrustes import factors
from raydr.geometry.sparse_points import SparsePoints
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric
from raydr.threads import one_blas_thread

BLOCK_ROWS = 4096


VALUES = 1 << 22
"""Values per block of rows as features: 32 MB."""


@dataclass(frozen=True)
class _Agreement:
    """Sums over some rows: the cosines, and the squared norms of the errors and of the true rows."""

    cosines: float
    error: float
    total: float


@metric(
    "cosine",
    "Cosine of coordinates",
    "mean cosine between recovered and true coordinates, relative to their means, after the best rotation",
    needs={"rows", "recovered"},
    perfect="every record exactly, up to a rotation and a shift",
)
def cosine(examination: Examination) -> float:
    r"""Return the mean cosine between recovered and true rows relative to their means, after alignment: -1 to 1.

    .. math:: \frac{1}{n} \sum_i \frac{\langle x_i, R^T \hat x_i \rangle}{\|x_i\| \|\hat x_i\|}

    A row at the mean has no direction, and counts as 0.
    """
    return examination.once(_aligned).cosines / examination.count


@metric(
    "frobenius",
    "Relative coordinate error",
    "error of the recovered coordinates over the true ones, in Frobenius norm, after the best rotation and shift",
    needs={"rows", "recovered"},
    perfect="every record exactly, up to a rotation and a shift",
    higher_is_better=False,
)
def frobenius(examination: Examination) -> float:
    r"""Return the relative error of the recovered coordinates after alignment: 0 or more.

    This is :math:`\|\hat X R - X\|_F / \|X\|_F`. The norms are those of centred tables. The norms of P3,
    A.11, are not, so they depend on the origin of the data.
    """
    agreement = examination.once(_aligned)
    return sqrt(agreement.error / agreement.total)


def _placed(recovered: Geometry) -> Points | None:
    """Return the Euclidean coordinates of a recovered geometry; None if it has none."""
    if isinstance(recovered, ExpectedPoints):
        return recovered.points
    return recovered if isinstance(recovered, Points) else None


def _aligned(examination: Examination) -> _Agreement:
    truth, recovered = examination.truth, _placed(examination.recovered)
    if recovered is None:
        raise UnmeasurableError("the recovered geometry has no Euclidean coordinates")
    if not isinstance(truth, Points | SparsePoints):
        raise UnmeasurableError(
            "the true geometry is not Euclidean, so no rotation brings coordinates onto it"
        )
    blocks = row_blocks(examination.count, BLOCK_ROWS)
    true, true_mean = _centred(truth, whole=examination.sample is None)
    found, found_mean = _centred(recovered, whole=examination.sample is None)

    def cross(block: tuple[int, int]) -> Float64Array:
        rows = slice(*block)
        crossed: Float64Array = (found(rows) - found_mean).T @ (true(rows) - true_mean)
        return crossed

    crossed = np.zeros((found_mean.size, true_mean.size))
    # in the order of the blocks, so that results are identical bit for bit
    for part in map_threaded(cross, blocks, examination.threads):
        crossed += part
    with one_blas_thread():
        left, _, right = factors(crossed)

    def agree(block: tuple[int, int]) -> _Agreement:
        rows = slice(*block)
        own, other = true(rows) - true_mean, found(rows) - found_mean
        inside = other @ left
        turned = inside @ right
        norms = np.linalg.norm(own, axis=1) * np.linalg.norm(other, axis=1)
        products = np.einsum("ij,ij->i", own, turned)
        cosines = np.divide(products, norms, out=np.zeros(len(own)), where=norms > 0.0)
        # If there are more recovered coordinates than features, the part outside the features is all error.
        beyond = other - inside @ left.T if left.shape[0] > left.shape[1] else np.zeros(1)
        error = float(np.sum((turned - own) ** 2)) + float(np.sum(beyond**2))
        return _Agreement(float(cosines.sum()), error, float(np.sum(own**2)))

    parts = list(map_threaded(agree, blocks, examination.threads))
    total = fsum(part.total for part in parts)
    if total == 0.0:
        raise UnmeasurableError("all rows are equal, so none has a direction from their mean")
    return _Agreement(fsum(part.cosines for part in parts), fsum(part.error for part in parts), total)


def _centred(
    points: Points | SparsePoints, *, whole: bool
) -> tuple[Callable[[slice], Float64Array], Float64Array]:
    """Return a reader of rows in float64, and their mean.

    Rows are nearly centred already, so this is exact at any offset.

    If ``whole``, it holds all rows. Otherwise it reads a block at a time.
    """
    if whole and isinstance(points, Points):
        table = np.asarray(points.centred(slice(None)), dtype=np.float64)
        return table.__getitem__, table.mean(axis=0)

    def bring(rows: slice) -> Float64Array:
        return np.asarray(points.centred(rows), dtype=np.float64)

    parts = [bring(slice(*block)).sum(axis=0) for block in row_blocks(points.rows, BLOCK_ROWS)]
    return bring, np.sum(parts, axis=0) / points.rows


@metric(
    "anchored_cosine",
    "Cosine in the anchors' frame",
    "mean cosine between recovered and true rows without alignment (P3, A.11); depends on the data's origin",
    needs={"rows", "recovered", "lift"},
    by_default=False,  # depends on the data's origin
    perfect="every record exactly",
)
def anchored_cosine(examination: Examination) -> float:
    r"""Return the mean cosine between true and recovered rows relative to the data's origin: -1 to 1 (P3, A.11).

    .. math:: \frac{1}{N} \sum_i \frac{\langle x_i, \hat x_i \rangle}{\|x_i\| \|\hat x_i\|}

    Neither table is rotated, moved or centred. So it is 1 to many digits if the data lie far from their
    origin, for any recovered rows. A row at the origin has no direction, and counts as 0.
    """
    return examination.once(_anchored).cosines / examination.count


@metric(
    "anchored_frobenius",
    "Relative error in the anchors' frame",
    "error of the recovered rows over the true ones without alignment, in Frobenius norm (P3, A.11); depends on the"
    " data's origin",
    needs={"rows", "recovered", "lift"},
    by_default=False,  # depends on the data's origin
    perfect="every record exactly",
    higher_is_better=False,
)
def anchored_frobenius(examination: Examination) -> float:
    r"""Return the relative error of the recovered rows without alignment: 0 or more (P3, A.11).

    This is :math:`\|\hat X - X\|_F / \|X\|_F`. Neither table is rotated, moved or centred. The denominator is
    relative to the data's origin, so an offset of 1e8 makes any error tiny.
    """
    agreement = examination.once(_anchored)
    return sqrt(agreement.error / agreement.total)


def _anchored(examination: Examination) -> _Agreement:
    """Compare rows as features, a block at a time, so that there is no second table of them."""
    evidence, recovered = examination.evidence, _placed(examination.recovered)
    if evidence.lift is None or recovered is None:
        raise UnmeasurableError("the server cannot convert the recovered positions into feature values")
    parts = []
    with one_blas_thread():
        for block in row_blocks(examination.count, max(1, VALUES // evidence.rows.shape[1])):
            rows = slice(*block)
            true = evidence.rows[rows].astype(np.float64)
            found = evidence.lift(recovered.coordinates[rows])
            products = np.einsum("ij,ij->i", true, found)
            norms = np.linalg.norm(true, axis=1) * np.linalg.norm(found, axis=1)
            cosines = np.divide(products, norms, out=np.zeros(len(true)), where=norms > 0.0)
            found -= true
            parts.append(_Agreement(float(cosines.sum()), float(np.sum(found**2)), float(np.sum(true**2))))
    total = fsum(part.total for part in parts)
    if total == 0.0:
        raise UnmeasurableError("all rows lie at the origin, so none has a direction from it")
    return _Agreement(fsum(part.cosines for part in parts), fsum(part.error for part in parts), total)
