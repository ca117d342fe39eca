"""Distances between all rows, one block at a time: the contract for neighbours and metrics.

No caller may hold a (rows, rows) array. A `Geometry` returns the squared distances of a few rows to all rows. It has
coordinates (`Points`), or is a factored estimate whose values need not be a metric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.device import ArrayDevice, workplace
from raydr.errors import DataError
from raydr.sparse_rows import AnyRows, SparseRows
from raydr.threads import cores, one_blas_thread

Result = TypeVar("Result")
Task = TypeVar("Task")
Progress: TypeAlias = Callable[[float, int], None]
"""Called as ``progress(done, total)`` from the calling thread, in units that the caller's docstring names."""

_BLOCK = 1 << 22
_VALUES = 1 << 20
"""Values per block of a table that is processed in parts."""
_CPU = ArrayDevice()


def unheard(done: float, total: int) -> None:
    """Ignore progress."""


class Geometry(Protocol):
    """Distances between all rows, one block at a time.

    The values need not be a metric: they can break the triangle inequality, and the distance of a row to
    itself can differ from zero. They must be finite, and must not depend on the choice of blocks by more than
    rounding. Several threads request blocks at once.
    """

    @property
    def rows(self) -> int:
        """Number of rows."""

    def squared_distance_block(self, start: int, stop: int) -> FloatArray:
        """Return squared distances (stop - start, rows) of rows ``start:stop`` to all rows, including themselves."""

    def take(self, rows: Int64Array) -> Geometry:
        """Return the geometry of these rows, in this order."""


@dataclass(frozen=True, eq=False)
class Points:
    """Euclidean points as a `Geometry`.

    Parameters
    ----------
    coordinates
        (rows, features). float32 stays float32, and every other type of number becomes float64.

    Attributes
    ----------
    shift
        (features,), subtracted before distances are computed. Distances do not change, but the norms shrink,
        and the rounding error of a squared distance is proportional to them. It is the mean rounded to a
        power of two near the spread (see `common_shift`), so integer data stay integers and keep exact ties.
    squared_norms
        (rows,), squared norms of the rows minus the shift.

    Raises
    ------
    DataError
        If the coordinates are not a table of at least one row and one column, or are not finite.

    Examples
    --------
    >>> Points(np.array([[0.0, 0.0], [3.0, 4.0]])).squared_distance_block(0, 1)
    array([[ 0., 25.]])
    """

    coordinates: FloatArray
    shift: FloatArray = field(init=False, repr=False)
    squared_norms: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        coordinates = float_table(self.coordinates, "the coordinates")
        object.__setattr__(self, "coordinates", coordinates)
        object.__setattr__(self, "shift", common_shift(coordinates).astype(coordinates.dtype))
        norms = [np.einsum("ij,ij->i", rows, rows) for rows in map(self.centred, self.blocks())]
        object.__setattr__(self, "squared_norms", np.concatenate(norms))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.coordinates.shape[0])

    def centred(self, rows: slice | Int64Array) -> FloatArray:
        """Return these rows minus the shift, (rows, features). A slice of all rows of a large table makes a copy."""
        chosen = self.coordinates[rows]
        return chosen - self.shift if self.shift.any() else chosen

    def blocks(self) -> list[slice]:
        """Return slices of rows with few values each, to use :meth:`centred` without a copy of all rows."""
        rows, features = self.coordinates.shape
        return [slice(*block) for block in row_blocks(rows, max(1, _BLOCK // features))]

    def squared_distance_block(self, start: int, stop: int) -> FloatArray:
        """Return squared distances (stop - start, rows) of rows ``start:stop`` to all, exactly 0 to themselves."""
        every = self.centred(slice(None))
        norms = self.squared_norms
        block: FloatArray = distances_of_centred(every[start:stop], norms[start:stop], every, norms, _CPU)
        np.einsum("ii->i", block[:, start:stop])[:] = 0.0
        return block

    def take(self, rows: Int64Array) -> Points:
        """Return the points of these rows, in this order."""
        return Points(self.coordinates[rows])

    def squared_distance_tile(self, own: slice | Int64Array, others: slice) -> FloatArray:
        """Return squared distances (own, others) between two sets of rows, only nearly 0 from a row to itself."""
        norms = self.squared_norms
        tile: FloatArray = distances_of_centred(
            self.centred(own), norms[own], self.centred(others), norms[others], _CPU
        )
        return tile


def squared_distances(a: AnyRows, b: FloatArray) -> FloatArray:
    r"""Return squared Euclidean distances between the rows of two tables, by one matrix product.

    They are ``|x|^2 + |y|^2 - 2 x.y``, clipped at 0. The rounding error is about the unit roundoff (6e-8 in
    float32, 1e-16 in float64) times the squared norms, not times the distance. So both tables are first moved
    by one common shift near the mean of ``b``. If distances are far smaller than the spread of the data, pass
    float64.

    Parameters
    ----------
    a, b
        (rows_a, features) and (rows_b, features). ``a`` can be a `SparseRows`, which is taken by blocks of rows.

    Returns
    -------
    FloatArray
        (rows_a, rows_b), float64 if either table is float64, otherwise float32.

    Raises
    ------
    DataError
        If a table is not 2-D and finite, or the tables have different numbers of features.

    Examples
    --------
    >>> squared_distances(np.array([[1e6, 0.0]]), np.array([[1e6, 2.0], [1e6 + 1.0, 0.0]]))
    array([[4., 1.]])
    """
    if isinstance(a, SparseRows):
        return np.concatenate([squared_distances(block, b) for block in a.blocks()])
    a, b = float_table(a, "the first table"), float_table(b, "the second table")
    if a.shape[1] != b.shape[1]:
        raise DataError(
            f"Distances need rows with the same features, but the first table has {a.shape[1]} and the second "
            f"{b.shape[1]}. Give both tables the same columns."
        )
    dtype = np.result_type(a, b)
    shift = common_shift(b).astype(dtype)
    here = workplace()
    a = here.put(a - shift)
    norms = _squared_norms(a, here)
    found = np.empty((len(a), len(b)), dtype)
    for start, stop in row_blocks(len(b), max(1, _BLOCK // b.shape[1])):
        block = here.put(b[start:stop] - shift)
        found[:, start:stop] = here.fetch(
            distances_of_centred(a, norms, block, _squared_norms(block, here), here)
        )
    return found


def common_shift(coordinates: FloatArray) -> Float64Array:
    """Return the mean of the rows (features,), rounded to a multiple of a power of two not above the RMS spread.

    Rounding costs at most a quarter of the mean squared norm. In return, subtracting the shift is exact for
    data on a grid (counts, pixels), so tied distances stay tied.
    """
    mean: Float64Array = coordinates.mean(axis=0, dtype=np.float64)
    spread = float(np.sqrt(np.mean(variances(coordinates))))
    if spread == 0.0:
        return mean
    grid = 2.0 ** np.floor(np.log2(spread))
    return np.asarray(np.round(mean / grid) * grid, dtype=np.float64)


def variances(table: FloatArray) -> Float64Array:
    """Return the variance of each column in float64, a few columns at a time, so that a large table is not copied."""
    blocks = row_blocks(table.shape[1], max(1, _BLOCK // len(table)))
    return np.concatenate([table[:, start:stop].var(axis=0, dtype=np.float64) for start, stop in blocks])


def distances_of_centred(
    a: Any, squared_norms_a: Any, b: Any, squared_norms_b: Any, here: ArrayDevice
) -> Any:
    """Return squared distances (rows of a, rows of b) of centred rows, all of them at ``here``."""
    tile = a @ b.T
    tile *= -2.0
    tile += squared_norms_a[:, None]
    tile += squared_norms_b
    return here.floored(tile)


def _squared_norms(rows: Any, here: ArrayDevice) -> Any:
    return here.functions.einsum("ij,ij->i", rows, rows)


def float_table(values: FloatArray, name: str, need: str = "Distances need") -> FloatArray:
    """Return values as a contiguous (rows, columns) table.

    Raise `DataError` if it is not 2-D, is empty or is not finite.
    """
    table: FloatArray = np.ascontiguousarray(values)
    if table.dtype not in (np.float32, np.float64):
        table = table.astype(np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise DataError(
            f"{need} a table of rows by columns, but {name} has shape {table.shape}. Give a 2-D array with at least one"
            " row and one column."
        )
    check_finite(table, name, need)
    return table


def check_finite(table: FloatArray, name: str, need: str) -> None:
    """Raise `DataError` if a value is not finite, as in "NEED finite numbers, but row 0, column 0 of NAME is nan"."""
    if not np.isfinite(table).all():
        row, column = np.argwhere(~np.isfinite(table))[0]
        raise DataError(
            f"{need} finite numbers, but row {row}, column {column} of {name} is {table[row, column]}. Remove or fill"
            " such values first."
        )


def row_blocks(rows: int, block_rows: int) -> list[tuple[int, int]]:
    """Cut ``rows`` into (start, stop) blocks of ``block_rows``. The last one can be shorter.

    >>> row_blocks(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(start, min(start + block_rows, rows)) for start in range(0, rows, block_rows)]


def value_blocks(rows: int, columns: int) -> list[tuple[int, int]]:
    """Cut ``rows`` into (start, stop) blocks of a million values, 8 MB in float64, with at least one row each.

    >>> value_blocks(5, 500_000)
    [(0, 2), (2, 4), (4, 5)]
    """
    return row_blocks(rows, max(1, _VALUES // columns))


def map_threaded(
    function: Callable[[Task], Result],
    tasks: list[Task],
    threads: int | None,
    progress: Progress = unheard,
) -> Iterator[Result]:
    """Yield results of ``function`` in task order, from ``threads`` threads (None: all cores) and one BLAS thread.

    The tasks must not depend on ``threads``. Then the results do not depend on it either, bit for bit.
    Stopping early (an error, Ctrl-C) drops the tasks that have not started. ``progress`` is in tasks.
    """
    for done, result in enumerate(_results(function, tasks, threads), 1):
        progress(done, len(tasks))
        yield result


def _results(function: Callable[[Task], Result], tasks: list[Task], threads: int | None) -> Iterator[Result]:
    workers = max(1, min(threads or cores(), len(tasks)))
    if workers == 1:  # no new thread, because it takes longer to start than a client of ten rows computes
        with one_blas_thread():
            yield from map(function, tasks)
        return
    executor = ThreadPoolExecutor(workers, thread_name_prefix="raydr-block")
    with one_blas_thread():
        try:
            yield from executor.map(function, tasks)
        finally:
            executor.shutdown(wait=True, cancel_futures=True)


def run_threaded(
    function: Callable[[Task], None], tasks: list[Task], threads: int | None, progress: Progress = unheard
) -> None:
    """Call ``function`` with each task as in `map_threaded`."""
    for _ in map_threaded(function, tasks, threads, progress):
        pass
