"""One class for every client."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from raydr.data.sampling import stream
from raydr.data.table import Table
from raydr.errors import DataError
from raydr.partition.dealing import Dealing, check_count, partition, rows_by_class
from raydr.partition.ownership import Partition


@partition
class OneClass(Dealing):
    """Each client holds rows of one class."""

    needs_count: ClassVar[bool] = False
    kind: Literal["one-class"] = "one-class"

    def deal(self, table: Table, clients: int | None, seed: int) -> Partition:
        """Give every client one class, or an equal part of one if several clients share a class.

        Clients are named after their class, or "CLASS/0", "CLASS/1" ... if they share it. Classes without rows get no
        client.
        """
        labels = self.labels_of(table)
        members = rows_by_class(labels)
        count = len(members) if clients is None else clients
        check_count(len(labels), count)
        parts, excess = divmod(count, len(members))
        if excess:
            below = f"{parts * len(members)} or " if parts else ""
            raise DataError(
                f"The kind one-class needs {len(members)} clients (one for each class) or a multiple of that;"
                f" clients.count is {count}. Set it to {below}{(parts + 1) * len(members)}, or leave it out."
            )
        rng = stream(seed, "partition")
        owners = np.empty(len(labels), dtype=np.int64)
        names: list[str] = []
        for position, rows in enumerate(members):
            name = table.label_names[labels[rows[0]]]
            if len(rows) < parts:
                raise DataError(
                    f"The class {name!r} has {len(rows)} row(s), too few for the {parts} clients that "
                    f"clients.count {count} gives it; lower clients.count or raise data.rows."
                )
            owners[rng.permutation(rows)] = position * parts + np.arange(len(rows)) % parts
            names += [name] if parts == 1 else [f"{name}/{part}" for part in range(parts)]
        return Partition(owners, tuple(names))

    def clients_in(self, table: Table, count: int | None) -> int | None:
        """Return the number of classes, or ``count``, which is a multiple of it."""
        return count or len(table.label_names)
