r"""How near recovered coordinates are to the true rows, up to an isometry (P3, A.11).

Distances tell coordinates up to a rotation or reflection and a shift only. So both tables are centred, and the
recovered one is turned onto the true one first (:mod:`raydr.geometry.procrustes`): :math:`\hat X` are the centred
recovered coordinates (rows, rank), X the centred rows (rows, features), and R brings :math:`\hat X R` nearest to X.

The anchors are known, though, and with them a frame in the data's own coordinates: A.11 compares the tables in it, as
they are. So do the two metrics whose names begin with ``anchored``. They tell how near the server comes to the records
themselves, and they depend on where the origin of the data lies, which no geometry does: far from it every cosine is 1,
and every relative error 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import fsum, sqrt

import numpy as np

from raydr.arrays import Float64Array
from raydr.geometry.points import Points, map_threaded, row_blocks
from raydr.geometry.procrustes import factors
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric
from raydr.threads import one_blas_thread

BLOCK_ROWS = 4096


VALUES = 1 << 22
"""Of a block of rows as features, 32 MB."""


@dataclass(frozen=True)
class _Agreement:
    """Over some rows: the sum of the cosines, and the squared norms of the error and of the true rows."""

    cosines: float
    error: float
    total: float


@metric(
    "cosine",
    "Cosine of coordinates",
    "mean cosine between recovered and true coordinates, seen from their means, after the best rotation",
    needs={"rows", "recovered"},
    perfect="every record exactly, up to a rotation and a shift",
)
def cosine(examination: Examination) -> float:
    r"""Mean cosine of the angle between recovered and true rows, from their means, after alignment; -1 to 1.

    .. math:: \frac{1}{n} \sum_i \frac{\langle x_i, R^T \hat x_i \rangle}{\|x_i\| \|\hat x_i\|}

    A row in the mean has no direction, and counts as 0.
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
    r"""Relative error of the recovered coordinates, :math:`\|\hat X R - X\|_F / \|X\|_F`, after alignment; 0 and up.

    The norms are of centred tables: those of P3, A.11, which are not, depend on where the origin of the data lies.
    """
    agreement = examination.once(_aligned)
    return sqrt(agreement.error / agreement.total)


def _aligned(examination: Examination) -> _Agreement:
    truth, recovered = examination.truth, examination.recovered
    if not isinstance(recovered, Points):
        raise UnmeasurableError("the recovered geometry has no Euclidean coordinates")
    if not isinstance(truth, Points):
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
    for part in map_threaded(cross, blocks, examination.threads):  # in the order of the blocks: the same bits
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
        # With more recovered coordinates than features, what no rotation brings into the features is all error.
        beyond = other - inside @ left.T if left.shape[0] > left.shape[1] else np.zeros(1)
        error = float(np.sum((turned - own) ** 2)) + float(np.sum(beyond**2))
        return _Agreement(float(cosines.sum()), error, float(np.sum(own**2)))

    parts = list(map_threaded(agree, blocks, examination.threads))
    total = fsum(part.total for part in parts)
    if total == 0.0:
        raise UnmeasurableError("all rows are equal, so none has a direction from their mean")
    return _Agreement(fsum(part.cosines for part in parts), fsum(part.error for part in parts), total)


def _centred(points: Points, *, whole: bool) -> tuple[Callable[[slice], Float64Array], Float64Array]:
    """Rows in double precision, and their mean: nearly centred already, so exact far from the origin, too.

    ``whole`` holds them all; else they are brought a block at a time.
    """
    if whole:
        table = np.asarray(points.centred(slice(None)), dtype=np.float64)
        return table.__getitem__, table.mean(axis=0)

    def bring(rows: slice) -> Float64Array:
        return np.asarray(points.centred(rows), dtype=np.float64)

    parts = [bring(slice(*block)).sum(axis=0) for block in row_blocks(points.rows, BLOCK_ROWS)]
    return bring, np.sum(parts, axis=0) / points.rows


@metric(
    "anchored_cosine",
    "Cosine in the anchors' frame",
    "mean cosine between recovered and true rows as they are (P3, A.11); depends on the data's origin",
    needs={"rows", "recovered", "lift"},
    by_default=False,  # depends on where the data's origin lies
    perfect="every record exactly",
)
def anchored_cosine(examination: Examination) -> float:
    r"""Mean cosine of the angle between true and recovered rows, seen from the data's origin; -1 to 1 (P3, A.11).

    .. math:: \frac{1}{N} \sum_i \frac{\langle x_i, \hat x_i \rangle}{\|x_i\| \|\hat x_i\|}

    Neither table is turned, moved or centred. So it is 1 to many digits wherever the data lie far from their origin,
    whatever was recovered. A row in the origin has no direction, and counts as 0.
    """
    return examination.once(_anchored).cosines / examination.count


@metric(
    "anchored_frobenius",
    "Relative error in the anchors' frame",
    "error of the recovered rows over the true ones as they are, in Frobenius norm (P3, A.11); depends on the data's"
    " origin",
    needs={"rows", "recovered", "lift"},
    by_default=False,  # depends on where the data's origin lies
    perfect="every record exactly",
    higher_is_better=False,
)
def anchored_frobenius(examination: Examination) -> float:
    r"""Relative error of the recovered rows, :math:`\|\hat X - X\|_F / \|X\|_F`, as they are; 0 and up (P3, A.11).

    Neither table is turned, moved or centred. The norm below is from the data's origin: an offset of 1e8 makes any
    error tiny.
    """
    agreement = examination.once(_anchored)
    return sqrt(agreement.error / agreement.total)


def _anchored(examination: Examination) -> _Agreement:
    """Of rows as features, a block at a time: there is no second table of them."""
    evidence, recovered = examination.evidence, examination.recovered
    if evidence.lift is None or not isinstance(recovered, Points):
        raise UnmeasurableError("the server does not tell where among the data's features the rows lie")
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
        raise UnmeasurableError("all rows lie in the origin, so none has a direction from there")
    return _Agreement(fsum(part.cosines for part in parts), fsum(part.error for part in parts), total)
