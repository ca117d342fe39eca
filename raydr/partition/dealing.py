"""What every way to deal rows to clients offers, what several of them need, and the registry of all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from raydr.arrays import Int64Array
from raydr.data.table import Table
from raydr.errors import DataError, ScenarioError
from raydr.partition.ownership import Partition
from raydr.registry import Kinds
from raydr.settings import Settings

PARTITIONS = Kinds("partitions", "raydr.partition")
"""Every way to deal rows to clients by its ``clients.partition.kind``."""
partition = PARTITIONS
"""Register a :class:`Dealing`: the decorator of its class."""


class Dealing(Settings, ABC):
    """A way to deal the rows of a table to clients: what a scenario says of it, and how it is done.

    Attributes
    ----------
    needs_count : bool
        Whether ``clients.count`` must be given; else the data fix the number of clients, and it must agree where it
        is given.
    natural : bool
        Whether clients are sites that the data name, and not drawn.
    """

    needs_count: ClassVar[bool] = True
    natural: ClassVar[bool] = False
    kind: str

    @abstractmethod
    def deal(self, table: Table, clients: int | None, seed: int) -> Partition:
        """Deal the rows out.

        Parameters
        ----------
        table : Table
            With the labels or client keys that the kind deals by.
        clients : int, optional
            Number of clients; None where the data fix it.
        seed : int
            Of the draw; the stream is independent of the sub-sample's.

        Raises
        ------
        ScenarioError
            If the number of clients is missing or settings are out of range.
        DataError
            If the rows, labels or keys of this table cannot be dealt so.
        """

    @property
    def client_column(self) -> str | None:
        """The column of the table that names each row's client, None where no column does."""
        return None

    def clients_in(self, table: Table, count: int | None) -> int | None:
        """Number of clients that rows of this table will have; None where it is the number of rows that are dealt."""
        return count

    def counted(self, clients: int | None) -> int:
        """The number of clients; `ScenarioError` where it is missing."""
        if clients is None:
            raise ScenarioError(
                f"clients.partition.kind {self.kind!r} needs the number of clients: set clients.count."
            )
        return clients

    def labels_of(self, table: Table) -> Int64Array:
        """Class of each row, (rows,) int64; `DataError` where the table has none."""
        if table.labels is None:
            raise DataError(
                f"clients.partition.kind {self.kind!r} deals rows by their class, and {table.name} has no labels: name "
                f"their column in data.label, or use the kind iid."
            )
        return table.labels


def rows_by_class(labels: Int64Array) -> list[Int64Array]:
    """Return the row numbers of every class that has rows, ascending, in the order of codes."""
    order = np.argsort(labels, kind="stable")
    _, counts = np.unique(labels, return_counts=True)
    return np.split(order, np.cumsum(counts)[:-1])


def numbered(clients: int) -> tuple[str, ...]:
    """Names of clients that have none of their own."""
    return tuple(f"client-{client}" for client in range(clients))


def check_count(rows: int, clients: int, min_rows: int = 1) -> None:
    """Refuse more clients than so many rows can give ``min_rows`` each."""
    if clients < 1:
        raise ScenarioError(f"clients.count is {clients}; there must be at least 1 client.")
    if rows < 1:
        raise DataError("There are no rows to deal to clients.")
    if clients * min_rows > rows:
        raise DataError(
            f"{rows} rows cannot give {clients} clients at least {min_rows} row{'' if min_rows == 1 else 's'} each; "
            f"lower clients.count to at most {rows // min_rows}, or raise data.rows."
        )
