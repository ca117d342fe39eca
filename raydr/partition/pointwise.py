"""Every row a client of its own."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from raydr.data.table import Table
from raydr.errors import DataError
from raydr.partition.dealing import Dealing, partition
from raydr.partition.ownership import Partition


@partition
class Pointwise(Dealing):
    """Each row is a client."""

    needs_count: ClassVar[bool] = False
    kind: Literal["pointwise"] = "pointwise"

    def deal(self, table: Table, clients: int | None, seed: int) -> Partition:
        """See :func:`pointwise`; nothing is drawn."""
        return pointwise(len(table.rows), clients=clients, ids=table.ids)

    def clients_in(self, table: Table, count: int | None) -> int | None:
        """One for each row."""
        return None


def pointwise(rows: int, *, clients: int | None = None, ids: NDArray[Any] | None = None) -> Partition:
    """Give every row a client of its own, named by its id (its number when ``ids`` is None)."""
    if clients is not None and clients != rows:
        raise DataError(
            f"The kind pointwise has one client per row, {rows} here; clients.count is {clients}. Leave it out, or "
            f"choose the number of rows with data.rows."
        )
    names = range(rows) if ids is None else ids
    return Partition(np.arange(rows, dtype=np.int64), tuple(str(name) for name in names))
