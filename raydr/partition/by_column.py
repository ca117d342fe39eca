"""The natural partition: a column names each row's client."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from raydr.data.survey.columns import listing
from raydr.data.table import Table
from raydr.errors import DataError
from raydr.partition.dealing import Dealing, partition
from raydr.partition.ownership import Partition


@partition
class ByColumn(Dealing):
    """One client for each value of a column."""

    needs_count: ClassVar[bool] = False
    natural: ClassVar[bool] = True
    kind: Literal["by-column"] = "by-column"
    column: str = Field(description="the column that names each row's client")
    min_rows: int = Field(1, ge=0, description="smallest number of rows of a client; 0 allows empty clients")

    @property
    def client_column(self) -> str:
        """The column that names each row's client."""
        return self.column

    def deal(self, table: Table, clients: int | None, seed: int) -> Partition:
        """Assign each row to the client that its key names: the natural partition, without random draws."""
        if table.client_keys is None:
            raise DataError(
                f"clients.partition.kind {self.kind!r} assigns rows by a column, but no client column of"
                f" {table.name} was read. Set clients.partition.column."
            )
        names = table.client_names
        if clients is not None and clients != len(names):
            raise DataError(
                f"clients.count is {clients}, but the client column names {len(names)} clients: {listing(names)}. "
                f"Leave clients.count out."
            )
        dealt = Partition(table.client_keys, names)
        short = np.flatnonzero(dealt.sizes < self.min_rows)
        if short.size:
            raise DataError(
                f"{short.size} of {dealt.count} clients have fewer than {self.min_rows} "
                f"row{'' if self.min_rows == 1 else 's'}: {listing([names[client] for client in short])}. "
                f"Raise data.rows, or lower clients.partition.min_rows (0 allows empty clients)."
            )
        return dealt

    def clients_in(self, table: Table, count: int | None) -> int | None:
        """Return the number of names in the column."""
        return count or len(table.client_names)
