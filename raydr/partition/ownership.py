"""The owner of every row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from raydr.arrays import Int64Array
from raydr.errors import DataError


@dataclass(frozen=True, eq=False)
class Partition:
    """The owner of every row.

    Attributes
    ----------
    client_of_row : (rows,) int64 array
        Client of each row, from 0 to ``count - 1``: one value per row, so no row is lost or held twice.
    names : tuple of str
        One distinct name for each client, in client order.

    Raises
    ------
    DataError
        If a row's client does not exist, or names are not distinct.

    Examples
    --------
    >>> import numpy as np
    >>> partition = Partition(np.array([1, 0, 1]), ("north", "south"))
    >>> partition.rows_of(1), partition.sizes
    (array([0, 2]), array([1, 2]))
    """

    client_of_row: Int64Array
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        owners = self.client_of_row
        if owners.ndim != 1 or owners.dtype != np.int64:
            raise DataError(
                f"A partition needs one int64 client per row; got shape {owners.shape}, {owners.dtype}."
            )
        if not self.names or len(set(self.names)) != len(self.names):
            raise DataError("A partition needs at least one client, and a distinct name for each client.")
        if owners.size and not 0 <= owners.min() <= owners.max() < self.count:
            raise DataError(
                f"A partition of {self.count} clients numbers them from 0 to {self.count - 1}; "
                f"rows are given to clients {owners.min()} to {owners.max()}."
            )

    @property
    def count(self) -> int:
        """Number of clients, including empty ones."""
        return len(self.names)

    @cached_property
    def sizes(self) -> Int64Array:
        """Rows of each client, (clients,) int64; they sum to the rows of the table."""
        return np.bincount(self.client_of_row, minlength=self.count).astype(np.int64)

    def rows_of(self, client: int) -> Int64Array:
        """Return the row numbers that ``client`` holds, ascending."""
        if not 0 <= client < self.count:
            raise IndexError(f"Client {client} does not exist; clients are numbered 0 to {self.count - 1}.")
        end = int(self._ends[client])
        return self._by_client[end - int(self.sizes[client]) : end]

    @cached_property
    def _by_client(self) -> Int64Array:
        return np.argsort(self.client_of_row, kind="stable")

    @cached_property
    def _ends(self) -> Int64Array:
        return np.cumsum(self.sizes)
