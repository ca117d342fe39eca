"""One client for each row."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

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
        """Make one client for each row, named by the row's id, without random draws."""
        rows = len(table.rows)
        if clients is not None and clients != rows:
            raise DataError(
                f"The kind pointwise has one client per row, {rows} here; clients.count is {clients}. Leave it out, or "
                f"choose the number of rows with data.rows."
            )
        return Partition(np.arange(rows, dtype=np.int64), tuple(str(name) for name in table.ids))

    def clients_in(self, table: Table, count: int | None) -> int | None:
        """Return None: the number of clients is the number of rows."""
        return None
