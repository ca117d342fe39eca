"""The natural partition: a column names each row's client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from raydr.arrays import Int64Array
from raydr.data.columns import listing
from raydr.data.table import Table
from raydr.errors import DataError
from raydr.partition.dealing import Dealing, partition
from raydr.partition.ownership import Partition


@partition
class ByColumn(Dealing):
    """The values of a column are the clients."""

    needs_count: ClassVar[bool] = False
    kind: Literal["by-column"] = "by-column"
    column: str = Field(description="the column that names each row's client")
    min_rows: int = Field(1, ge=0, description="fewest rows of a client; 0 allows empty clients")

    @property
    def client_column(self) -> str:
        """The column."""
        return self.column

    def deal(self, table: Table, clients: int | None, seed: int) -> Partition:
        """See :func:`by_column`; nothing is drawn."""
        if table.client_keys is None:
            raise DataError(
                f"clients.partition.kind {self.kind!r} deals rows by a column, and no client column of {table.name} "
                f"was read: name it in clients.partition.column."
            )
        return by_column(table.client_keys, table.client_names, clients=clients, min_rows=self.min_rows)

    def clients_in(self, table: Table, count: int | None) -> int | None:
        """As many as names in the column."""
        return count or len(table.client_names)


def by_column(
    client_keys: Int64Array, client_names: Sequence[str], *, clients: int | None = None, min_rows: int
) -> Partition:
    """Give every row to the client that its key names: the natural partition; nothing is drawn.

    Parameters
    ----------
    client_keys : (rows,) int64 array
        Codes into ``client_names``.
    client_names : sequence of str
        One per client.
    clients : int, optional
        Checked against the number of names when given.
    min_rows : int
        Fewest rows of a client; with 0 a client that a sub-sample left without rows is kept, empty.
    """
    if clients is not None and clients != len(client_names):
        raise DataError(
            f"clients.count is {clients}, but the client column names {len(client_names)} clients: "
            f"{listing(client_names)}. Leave clients.count out."
        )
    partition = Partition(client_keys, tuple(client_names))
    short = np.flatnonzero(partition.sizes < min_rows)
    if short.size:
        raise DataError(
            f"{short.size} of {partition.count} clients have fewer than {min_rows} "
            f"row{'' if min_rows == 1 else 's'}: {listing([partition.names[client] for client in short])}. "
            f"Raise data.rows, or lower clients.partition.min_rows (0 allows empty clients)."
        )
    return partition
