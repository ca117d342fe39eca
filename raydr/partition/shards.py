"""Shards of a fixed number of classes for every client."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from raydr.arrays import Int64Array
from raydr.data.sampling import stream
from raydr.data.table import Table
from raydr.errors import DataError
from raydr.partition.dealing import Dealing, check_count, numbered, partition, rows_by_class
from raydr.partition.ownership import Partition


@partition
class Shards(Dealing):
    """Each client holds rows of a fixed number of classes."""

    kind: Literal["shards"] = "shards"
    classes: int = Field(2, ge=1, description="number of classes for each client")

    def deal(self, table: Table, clients: int | None, seed: int) -> Partition:
        """Give every client shards of exactly ``classes`` classes (after McMahan et al. 2017).

        Classes are cut into clients * classes shards in total, as equal in size as the classes allow. No client gets
        two shards of one class. McMahan's shards cross class borders, so a client there may see fewer or more classes.
        """
        count, labels = self.counted(clients), self.labels_of(table)
        check_count(len(labels), count)
        members = rows_by_class(labels)
        sizes = np.array([len(rows) for rows in members])
        if self.classes > len(members):
            raise DataError(
                f"clients.partition.classes is {self.classes}, but the rows have only {len(members)} classes."
            )
        wanted = count * self.classes
        if wanted < len(members):
            raise DataError(
                f"{count} clients with {self.classes} classes each hold at most {wanted} classes, but the rows have"
                f" {len(members)}, and every row needs a client. Set clients.count to at least"
                f" {-(-len(members) // self.classes)}, or clients.partition.classes to {-(-len(members) // count)}."
            )
        most = np.minimum(count, sizes)
        if most.sum() < wanted:
            raise DataError(
                f"{count} clients with {self.classes} classes each need {wanted} shards, but the {len(members)}"
                f" classes can be cut into only {most.sum()}: at most one per row and one per client, and the"
                f" smallest class has {sizes.min()} row(s). Lower clients.count or clients.partition.classes, or"
                " raise data.rows."
            )
        rng = stream(seed, "partition")
        owners = np.empty(len(labels), dtype=np.int64)
        open_places = np.full(count, self.classes)
        for rows, pieces in zip(members, _shards_per_class(sizes, most, wanted), strict=True):
            # Choose the clients with the most open places, with random ties. Open places then differ by at most one,
            # so every later class finds as many clients with a place as it has shards.
            chosen = np.lexsort((rng.random(count), -open_places))[:pieces]
            open_places[chosen] -= 1
            owners[rng.permutation(rows)] = chosen[np.arange(len(rows)) % pieces]
        return Partition(owners, numbered(count))


def _shards_per_class(sizes: Int64Array, most: Int64Array, total: int) -> Int64Array:
    """Return how many shards to cut each class into: ``total`` in all, from 1 to ``most`` each.

    Each further shard goes to the class with the largest shards, which makes shard sizes more equal.
    """
    pieces = np.ones_like(sizes)
    for _ in range(total - len(sizes)):
        pieces[np.argmax(np.where(pieces < most, sizes / pieces, -1.0))] += 1
    return pieces
