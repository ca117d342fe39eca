"""Rows of all clients in one place, which only a simulation has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import FloatArray, Int64Array
from raydr.sparse_rows import SparseRows, rows_taken


@dataclass(frozen=True)
class PooledRows:
    """Pooled rows that the driver already has."""

    rows: FloatArray

    def __call__(self) -> FloatArray:
        """Return the rows."""
        return self.rows


_AT_ONCE = 16
"""Columns that are sorted at a time: a few cache lines of each row, without a second copy of the table."""


class Dealt:
    """Rows of a table dealt to clients: one read-only copy in memory.

    Rows are ordered by client, and parts are views, until they are pooled; by then clients are done. Later parts are
    copies.

    Parameters
    ----------
    table : (rows, features) array
        The rows.
    client_of_row : (rows,) int64
        Client of each row.
    clients : int
        Number of clients.
    taken : bool
        Whether the table may be sorted in place, because no other code reads it.
    """

    def __init__(
        self, table: FloatArray, client_of_row: Int64Array, clients: int, *, taken: bool = False
    ) -> None:
        self._by_client = by_client(client_of_row)
        self._ends = np.cumsum(np.bincount(client_of_row, minlength=clients))[:-1]
        self._sparse = isinstance(table, SparseRows)
        if taken and not self._sparse:
            for column in range(0, table.shape[1], _AT_ONCE):
                part = slice(column, column + _AT_ONCE)
                table[:, part] = table[self._by_client, part]
            self._rows = _read_only(table)
        else:
            self._rows = _read_only(rows_taken(table, self._by_client))
        self._pooled = False

    @property
    def parts(self) -> tuple[FloatArray, ...]:
        """Rows of each client."""
        rows = _read_only(rows_taken(self._rows, self._by_client)) if self._pooled else self._rows
        return tuple(rows.split(self._ends) if isinstance(rows, SparseRows) else np.split(rows, self._ends))

    def __call__(self) -> FloatArray:
        """Return all rows in the table's order."""
        if not self._pooled:
            self._rows, self._pooled = _read_only(rows_taken(self._rows, np.argsort(self._by_client))), True
        return self._rows


def _read_only(rows: FloatArray) -> FloatArray:
    (rows.data if isinstance(rows, SparseRows) else rows).flags.writeable = False
    return rows


def by_client(client_of_row: Int64Array) -> Int64Array:
    """Return the row numbers of a table ordered by client, then by row."""
    return np.argsort(client_of_row, kind="stable")
