"""Rows assigned at random."""

from __future__ import annotations

from typing import Literal

import numpy as np

from raydr.data.sampling import stream
from raydr.data.table import Table
from raydr.partition.dealing import Dealing, check_count, numbered, partition
from raydr.partition.ownership import Partition


@partition
class IID(Dealing):
    """Rows assigned at random, in nearly equal numbers."""

    kind: Literal["iid"] = "iid"

    def deal(self, table: Table, clients: int | None, seed: int) -> Partition:
        """Shuffle the rows and assign them in turn: the sizes of clients differ by at most one row."""
        rows, count = len(table.rows), self.counted(clients)
        check_count(rows, count)
        owners = np.empty(rows, dtype=np.int64)
        owners[stream(seed, "partition").permutation(rows)] = np.arange(rows) % count
        return Partition(owners, numbered(count))
