"""Tables that store only their nonzero numbers (CSR), and hand out dense rows a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from raydr.arrays import Float64Array, FloatArray, Int64Array

_VALUES = 1 << 20
"""Values per dense block: 8 MB in float64."""


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of which only nonzero numbers are stored, in compressed sparse row form.

    An index gives **dense** rows, so code that takes a table block by block works on both forms, with identical
    results bit for bit. ``numpy.asarray`` makes the whole table dense.

    Parameters
    ----------
    data : (stored,) float or int
        The stored numbers, row by row.
    indices : (stored,) int
        Their columns, ascending within a row.
    starts : (rows + 1,) int
        Place of each row's first number, and the end.
    columns : int
        Number of columns.

    Examples
    --------
    >>> rows = SparseRows(np.array([2.0, 3.0]), np.array([1, 0]), np.array([0, 1, 2]), 2)
    >>> rows[:1], rows.shape
    (array([[0., 2.]]), (2, 2))
    """

    data: NDArray[Any]
    indices: NDArray[np.integer[Any]]
    starts: NDArray[np.integer[Any]]
    columns: int

    @classmethod
    def of(cls, matrix: Any) -> SparseRows:
        """Return a SciPy sparse matrix or array of any format, without stored zeros."""
        from scipy.sparse import csr_array

        table = csr_array(matrix)
        if not table.has_canonical_format:
            table = table.copy()
            table.sum_duplicates()
        if table.nnz and not table.data.all():
            table = table.copy()
            table.eliminate_zeros()
        return cls(table.data, table.indices, table.indptr, int(table.shape[1]))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.starts) - 1, self.columns

    @property
    def ndim(self) -> int:
        """Number of dimensions, 2."""
        return 2

    @property
    def size(self) -> int:
        """Number of values, zeros included."""
        return len(self) * self.columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        return self.data.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of what is stored."""
        return self.data.nbytes + self.indices.nbytes + self.starts.nbytes

    @property
    def dense_bytes(self) -> int:
        """Bytes of the dense table."""
        return self.size * self.dtype.itemsize

    @property
    def gaps(self) -> Int64Array:
        """Number of missing values (NaN) of each column."""
        missing = self.indices[np.isnan(self.data)]
        return np.bincount(missing, minlength=self.columns).astype(np.int64)

    @cached_property
    def csr(self) -> Any:
        """The same as a SciPy array that shares memory."""
        from scipy.sparse import csr_array

        found = csr_array((self.data, self.indices, self.starts), shape=self.shape)
        found.has_canonical_format = True
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return SparseRows, (self.data, self.indices, self.starts, self.columns)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, key: Any) -> NDArray[Any]:
        """Return dense rows; of a pair, dense rows of some columns."""
        if isinstance(key, tuple):
            rows, columns = key
            if isinstance(rows, int | np.integer):
                return np.asarray(self[rows][columns])
            if isinstance(columns, int | np.integer):
                return np.asarray(self.taken(rows).of_columns([int(columns)])[:][:, 0])
            return self.taken(rows).of_columns(columns)[:]
        if isinstance(key, int | np.integer):
            return np.asarray(self.taken(np.array([key]))[:][0])
        if not isinstance(key, slice):
            return self.taken(key)[:]
        first, last, step = key.indices(len(self))
        if step != 1:
            return self.taken(np.arange(first, last, step))[:]
        last = max(first, last)
        dense = np.zeros((last - first, self.columns), self.dtype)
        stored = slice(int(self.starts[first]), int(self.starts[last]))
        rows = np.repeat(np.arange(last - first), np.diff(self.starts[first : last + 1]))
        dense[rows, self.indices[stored]] = self.data[stored]
        return dense

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:] if dtype is None else self[:].astype(dtype, copy=False)

    def taken(self, rows: slice | NDArray[Any]) -> SparseRows:
        """Return the table of these rows, given by a slice, by numbers or by flags."""
        if isinstance(rows, slice) and rows == slice(None):
            return self
        return SparseRows.of(self.csr[rows])

    def of_columns(self, columns: slice | Sequence[int] | NDArray[Any]) -> SparseRows:
        """Return the table of these columns."""
        return SparseRows.of(self.csr[:, columns])

    def astype(self, dtype: DTypeLike, *, copy: bool = True) -> SparseRows:
        """Return the table with numbers of this type."""
        if not copy and self.dtype == dtype:
            return self
        return SparseRows(self.data.astype(dtype), self.indices, self.starts, self.columns)

    def split(self, ends: NDArray[np.integer[Any]]) -> list[SparseRows]:
        """Return the parts between row numbers ``ends``, which share memory, as ``numpy.split``."""
        bounds = [0, *map(int, ends), len(self)]
        return [self._part(first, last) for first, last in pairwise(bounds)]

    def _part(self, first: int, last: int) -> SparseRows:
        start, stop = int(self.starts[first]), int(self.starts[last])
        starts = self.starts[first : last + 1] - self.starts[first]
        return SparseRows(self.data[start:stop], self.indices[start:stop], starts, self.columns)

    def shifted(self) -> tuple[SparseRows, Float64Array]:
        """Return the table less the means of its columns without zeros, in float64, and the shift (columns,).

        The shift is 0 in columns with zeros, which stay sparse. A sum of products then does not lose the digits of a
        column that lies far from 0.

        >>> table, shift = SparseRows.of(np.array([[0.0, 1e8], [3.0, 1e8 + 2.0]])).shifted()
        >>> table[:], shift
        (array([[ 0., -1.],
               [ 3.,  1.]]), array([0.00000000e+00, 1.00000001e+08]))
        """
        data = self.data.astype(np.float64)
        stored = np.bincount(self.indices, minlength=self.columns)
        sums = np.bincount(self.indices, weights=data, minlength=self.columns)
        shift = np.where(stored == len(self), sums / max(1, len(self)), 0.0)
        return SparseRows(data - shift[self.indices], self.indices, self.starts, self.columns), shift

    @classmethod
    def concatenated(cls, parts: Sequence[SparseRows]) -> SparseRows:
        """Return the rows of all parts, one below the other."""
        from scipy.sparse import vstack

        return cls.of(vstack([part.csr for part in parts], format="csr"))

    @property
    def slices(self) -> list[slice]:
        """Slices of rows that cover the table, with a million values each."""
        step = max(1, _VALUES // max(1, self.columns))
        return [slice(start, min(start + step, len(self))) for start in range(0, len(self), step)]

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield dense blocks of rows, in order."""
        return (self[block] for block in self.slices)

    def changed(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> SparseRows:
        """Return the table with ``change`` applied to dense blocks of rows. It must keep zeros and columns."""
        if not len(self):
            return self
        return SparseRows.concatenated([SparseRows.of(change(block)) for block in self.blocks()])

    def min(self, axis: int = 0) -> NDArray[Any]:
        """Return the least value of each column."""
        return np.asarray(self.csr.min(axis=axis).toarray()).ravel()

    def max(self, axis: int = 0) -> NDArray[Any]:
        """Return the largest value of each column."""
        return np.asarray(self.csr.max(axis=axis).toarray()).ravel()

    def mean(self, axis: int = 0, dtype: DTypeLike = np.float64) -> Float64Array:
        """Return the mean of each column in float64, summed in the order of the rows."""
        return self.column_sums(lambda block: block.astype(np.float64)) / len(self)

    def column_sums(self, change: Callable[[NDArray[Any]], Float64Array]) -> Float64Array:
        """Return the sums of the columns of ``change`` of the rows, added row by row as in a dense table."""
        total = np.zeros((0, self.columns))
        for block in self.blocks():
            total = np.concatenate([total, change(block)]).sum(axis=0, keepdims=True)
        return np.asarray(total.sum(axis=0))


AnyRows: TypeAlias = FloatArray | SparseRows
"""A table of rows, dense or sparse."""


def is_sparse(table: Any) -> bool:
    """Return whether a table is a SciPy sparse matrix or array."""
    return type(table).__module__.partition(".")[0] == "scipy" and hasattr(table, "tocsr")


def stacked(parts: Sequence[Any]) -> Any:
    """Return the rows of tables of one form, one below the other."""
    if parts and all(isinstance(part, SparseRows) for part in parts):
        return SparseRows.concatenated(parts)
    return np.concatenate([np.asarray(part) for part in parts])


def rows_taken(table: Any, rows: Int64Array) -> Any:
    """Return these rows of a table, in its own form."""
    return table.taken(rows) if isinstance(table, SparseRows) else table[rows]
