"""Rows dealt out at random."""

from __future__ import annotations

from typing import Literal

import numpy as np

from raydr.data.sampling import stream
from raydr.data.table import Table
from raydr.partition.dealing import Dealing, check_count, numbered, partition
from raydr.partition.ownership import Partition


@partition
class IID(Dealing):
    """Rows dealt at random, as evenly as can be."""

    kind: Literal["iid"] = "iid"

    def deal(self, table: Table, clients: int | None, seed: int) -> Partition:
        """In turn, once shuffled: the sizes of clients differ by at most one row."""
        rows, count = len(table.rows), self.counted(clients)
        check_count(rows, count)
        owners = np.empty(rows, dtype=np.int64)
        owners[stream(seed, "partition").permutation(rows)] = np.arange(rows) % count
        return Partition(owners, numbered(count))
