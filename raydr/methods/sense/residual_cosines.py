r"""Expected cosines between the residuals of pointwise records, from the anchors, whose place is known.

Leave anchor a out. The distances to the others then leave one more direction open, the normal of their hull at a.
In that direction the server knows every record: with barycentric coordinates :math:`\beta_a(x)` of a record's
foot in the hull of all anchors, and :math:`w_a` their gradient, its component is
:math:`u = \beta_a(x) / |w_a|`, and that of the anchor itself :math:`1 / |w_a|`. So the cosine between the
record's residual and the anchor's, of lengths :math:`h' = \sqrt{h^2 + u^2}` and :math:`1 / |w_a|`, is :math:`u / h'`.

Pairs of a record and a left-out anchor thus show how the cosine falls with the known part of their distance, and
the curve of :class:`raydr.geometry.expected_points.CosineCurve` is fitted to them by non-negative least squares.
"""

from __future__ import annotations

import numpy as np

from raydr.arrays import BoolArray, Float64Array, Int64Array
from raydr.geometry.expected_points import CosineCurve
from raydr.geometry.points import squared_distances
from raydr.geometry.trilateration import Trilateration
from raydr.threads import one_blas_thread

ROWS = 1_000
"""Records, evenly spread, whose pairs with left-out anchors are used."""
ANCHORS = 64
"""Most anchors that are left out, each alone."""
TERMS = 10
"""Terms of the curve, with scales in geometric progression."""
WIDEST = 100.0
"""Largest scale, in units of the median t of two records."""
LEAST_PRODUCT = 1e-6
"""Least product of two residuals' lengths, over the largest, at which their cosine is not rounding."""
LEAST_OWN_SHARE = 1.0 - 1e-6
"""Least barycentric coordinate of an anchor in itself; less means that the others span it too."""


def fitted_curve(
    solver: Trilateration,
    anchors: Float64Array,
    coordinates: Float64Array,
    heights: Float64Array,
    least_scale: float,
) -> CosineCurve:
    """Fit the expected cosine between residuals of records to pairs of records and left-out anchors.

    Parameters
    ----------
    solver : Trilateration
        Solver of the anchors that all records see, without noise.
    anchors : (anchors, features) float64
        These anchors.
    coordinates : (rows, rank) float64
        Records in the anchors' hull.
    heights : (rows,) float64
        Their distances from it.
    least_scale : float
        Least scale of the curve, in units of the median t of two records. It bounds how fast the cosine falls for
        near records, which are seldom as near to an anchor.

    Returns
    -------
    CosineCurve
        Without terms if no anchor can be left out, or no record has a residual.
    """
    sample = np.linspace(0, len(heights) - 1, min(len(heights), ROWS)).round().astype(np.int64)
    coordinates, heights = coordinates[sample], heights[sample]
    nothing = CosineCurve(np.zeros(0), np.zeros(0))
    with one_blas_thread():
        typical = _median_between(coordinates, heights)
        t, cosines = _left_out(solver, anchors, coordinates, heights)
        if not len(t) or typical <= 0.0:
            return nothing
        from scipy.optimize import nnls

        scales = typical * np.geomspace(least_scale, WIDEST, TERMS)
        amounts, _ = nnls(t[:, None] / (scales + t[:, None]), 1.0 - cosines)
    used = amounts > 0.0
    return CosineCurve(amounts[used], scales[used])


def _median_between(coordinates: Float64Array, heights: Float64Array) -> float:
    """Return the median t of two records; 0 if residuals are rounding."""
    base = squared_distances(coordinates, coordinates) + np.subtract.outer(heights, heights) ** 2
    products = 2.0 * np.multiply.outer(heights, heights)
    meant = ~np.eye(len(heights), dtype=np.bool_) & _meant(products)
    return float(np.median(base[meant] / products[meant])) if meant.any() else 0.0


def _left_out(
    solver: Trilateration, anchors: Float64Array, coordinates: Float64Array, heights: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Return t and the cosine (pairs,) of pairs of a record and an anchor, if that anchor is left out."""
    places = (anchors - solver.centre) @ solver.basis.T
    itself = 1.0 / len(anchors) + np.einsum("ij,ij->i", places, solver.solution)
    chosen: Int64Array = np.flatnonzero(itself >= LEAST_OWN_SHARE)
    if not chosen.size:
        return np.zeros(0), np.zeros(0)
    chosen = chosen[np.linspace(0, len(chosen) - 1, min(len(chosen), ANCHORS)).round().astype(np.int64)]
    gradients = solver.solution[chosen]
    own = 1.0 / np.linalg.norm(gradients, axis=1)
    along = (1.0 / len(anchors) + coordinates @ gradients.T) * own
    lengths = np.sqrt(heights[:, None] ** 2 + along**2)
    base = squared_distances(coordinates, places[chosen]) - (along - own) ** 2 + (lengths - own) ** 2
    products = 2.0 * lengths * own
    meant = _meant(products)
    cosines = np.divide(along, lengths, out=np.zeros_like(along), where=lengths > 0.0)
    return np.maximum(base[meant], 0.0) / products[meant], cosines[meant]


def _meant(products: Float64Array) -> BoolArray:
    """Return whether products of residuals' lengths are more than rounding."""
    return np.asarray(products > LEAST_PRODUCT * products.max(initial=0.0))
