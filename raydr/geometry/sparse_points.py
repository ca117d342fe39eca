"""Distances between the rows of a sparse table, from sparse products, as a `Geometry`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.geometry.points import Geometry, Points, row_blocks
from raydr.sparse_rows import SparseRows

_ROWS = 32
"""Rows per sparse product, whose result is nearly dense."""
_BLOCK_VALUES = 2**21
"""Values per block of distances: 16 MB for each thread. Their bits depend on no block."""


@dataclass(frozen=True, eq=False)
class SparsePoints:
    r"""Euclidean points of which only nonzero coordinates are stored.

    Squared distances are :math:`|x|^2 + |y|^2 - 2 x \cdot y` in double precision. Only columns without zeros are
    centred before, because that would fill in zeros. So their error is about 1e-16 of the squared norms.

    Parameters
    ----------
    coordinates : SparseRows
        (rows, features).

    Attributes
    ----------
    shift : (features,) float64
        Mean of the rows, for :meth:`centred` alone.
    squared_norms : (rows,) float64
        Squared norms of the rows, with columns without zeros centred.

    Examples
    --------
    >>> SparsePoints(SparseRows.of(np.array([[0.0, 0.0], [3.0, 4.0]]))).squared_distance_block(0, 1)
    array([[ 0., 25.]])
    """

    coordinates: SparseRows
    shift: Float64Array = field(init=False, repr=False)
    squared_norms: Float64Array = field(init=False, repr=False)
    _exact: Any = field(init=False, repr=False)
    _turned: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        exact = self.coordinates.shifted()[0].csr
        object.__setattr__(self, "_exact", exact)
        object.__setattr__(self, "_turned", exact.T.tocsr())
        object.__setattr__(self, "squared_norms", np.asarray(exact.multiply(exact).sum(axis=1)).ravel())
        object.__setattr__(self, "shift", self.coordinates.mean())

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.coordinates)

    def centred(self, rows: slice | Int64Array) -> Float64Array:
        """Return these rows minus the mean, (rows, features), dense."""
        return np.asarray(self.coordinates[rows] - self.shift)

    def blocks(self) -> list[slice]:
        """Return slices of rows with few values each."""
        return self.coordinates.slices

    def squared_distance_rows(self, own: Int64Array) -> Float64Array:
        """Return squared distances (own, rows) of some rows to all rows."""
        squared = np.empty((len(own), self.rows))
        for start, stop in row_blocks(len(own), _ROWS):
            rows = own[start:stop]
            part = (self._exact[rows] @ self._turned).toarray()
            part *= -2.0
            part += self.squared_norms[rows, None]
            part += self.squared_norms
            np.maximum(part, 0.0, out=squared[start:stop])
        return squared

    def squared_distance_block(self, start: int, stop: int) -> FloatArray:
        """Return squared distances (stop - start, rows) of rows ``start:stop`` to all, exactly 0 to themselves."""
        block = self.squared_distance_rows(np.arange(start, stop))
        np.einsum("ii->i", block[:, start:stop])[:] = 0.0
        return block

    def take(self, rows: Int64Array) -> SparsePoints:
        """Return the points of these rows, in this order."""
        return SparsePoints(self.coordinates.taken(rows))


def points_of(rows: Any) -> Points | SparsePoints:
    """Return the Euclidean geometry of a table (rows, features) in its own form."""
    return SparsePoints(rows) if isinstance(rows, SparseRows) else Points(rows)


def block_values(geometry: Geometry, most: int) -> int:
    """Return the number of squared distances to ask of a geometry at a time: ``most``, or fewer of sparse points."""
    return min(_BLOCK_VALUES, most) if isinstance(geometry, SparsePoints) else most
