"""The interface of partitions, shared helpers, and the registry of all kinds."""

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
"""Every way to partition rows among clients, by its ``clients.partition.kind``."""
partition = PARTITIONS
"""Decorator that registers a :class:`Dealing`."""


class Dealing(Settings, ABC):
    """A way to partition the rows of a table among clients: its settings and its algorithm.

    Attributes
    ----------
    needs_count : bool
        Whether ``clients.count`` must be set. Otherwise the data fix the number of clients, and ``clients.count`` must
        agree if it is set.
    natural : bool
        Whether clients are sites that the data name, without random draws.
    """

    needs_count: ClassVar[bool] = True
    natural: ClassVar[bool] = False
    kind: str

    @abstractmethod
    def deal(self, table: Table, clients: int | None, seed: int) -> Partition:
        """Assign the rows to clients.

        Parameters
        ----------
        table : Table
            Table with the labels or client keys that the kind uses.
        clients : int, optional
            Number of clients; None if the data fix it.
        seed : int
            Seed of the draw; its stream is independent of the sub-sample's.

        Raises
        ------
        ScenarioError
            If the number of clients is missing or settings are out of range.
        DataError
            If the rows, labels or keys of this table do not allow this partition.
        """

    @property
    def client_column(self) -> str | None:
        """Column of the table that names each row's client; None without one."""
        return None

    def clients_in(self, table: Table, count: int | None) -> int | None:
        """Return the number of clients for rows of this table; None if it equals the number of rows."""
        return count

    def counted(self, clients: int | None) -> int:
        """Return the number of clients; raise `ScenarioError` if it is missing."""
        if clients is None:
            raise ScenarioError(
                f"clients.partition.kind {self.kind!r} needs the number of clients: set clients.count."
            )
        return clients

    def labels_of(self, table: Table) -> Int64Array:
        """Return the class of each row, (rows,) int64; raise `DataError` if the table has no labels."""
        if table.labels is None:
            raise DataError(
                f"clients.partition.kind {self.kind!r} assigns rows by class, but {table.name} has no labels. Set"
                " data.label to the label column, or use the kind iid."
            )
        return table.labels


def rows_by_class(labels: Int64Array) -> list[Int64Array]:
    """Return the row numbers of every class that has rows, ascending, in the order of codes."""
    order = np.argsort(labels, kind="stable")
    _, counts = np.unique(labels, return_counts=True)
    return np.split(order, np.cumsum(counts)[:-1])


def numbered(clients: int) -> tuple[str, ...]:
    """Return default names for clients."""
    return tuple(f"client-{client}" for client in range(clients))


def check_count(rows: int, clients: int, min_rows: int = 1) -> None:
    """Raise if there are too few rows to give each client ``min_rows``."""
    if clients < 1:
        raise ScenarioError(f"clients.count is {clients}; expected at least 1.")
    if rows < 1:
        raise DataError("There are no rows to assign to clients.")
    if clients * min_rows > rows:
        raise DataError(
            f"{rows} rows cannot give {clients} clients at least {min_rows} row{'' if min_rows == 1 else 's'} each; "
            f"lower clients.count to at most {rows // min_rows}, or raise data.rows."
        )
