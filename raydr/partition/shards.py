"""Shards of so many classes for every client."""

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
    """Each client holds rows of so many classes."""

    kind: Literal["shards"] = "shards"
    classes: int = Field(2, ge=1, description="classes of each client")

    def deal(self, table: Table, clients: int | None, seed: int) -> Partition:
        """Give every client shards of exactly so many classes (after McMahan et al. 2017).

        Every class is cut into shards, clients * classes in all, as nearly of one size as class sizes permit; no
        client gets two shards of a class. McMahan's cut across class borders, so there a client may see fewer or
        more classes.
        """
        count, labels = self.counted(clients), self.labels_of(table)
        check_count(len(labels), count)
        members = rows_by_class(labels)
        sizes = np.array([len(rows) for rows in members])
        if self.classes > len(members):
            raise DataError(
                f"clients.partition.classes asks for {self.classes} classes at every client, but the rows have only "
                f"{len(members)}."
            )
        wanted = count * self.classes
        if wanted < len(members):
            raise DataError(
                f"{count} clients of {self.classes} classes hold at most {wanted} classes, but the rows have "
                f"{len(members)}, and every row needs a client. Set clients.count to at least "
                f"{-(-len(members) // self.classes)}, or clients.partition.classes to {-(-len(members) // count)}."
            )
        most = np.minimum(count, sizes)
        if most.sum() < wanted:
            raise DataError(
                f"{count} clients of {self.classes} classes need {wanted} shards, but the {len(members)} classes "
                f"can be cut into only {most.sum()}: at most one per row and one per client, and the smallest class "
                f"has {sizes.min()} row(s). Lower clients.count or clients.partition.classes, or raise data.rows."
            )
        rng = stream(seed, "partition")
        owners = np.empty(len(labels), dtype=np.int64)
        open_places = np.full(count, self.classes)
        for rows, pieces in zip(members, _shards_per_class(sizes, most, wanted), strict=True):
            # Always to the clients with the most places left, ties drawn: places then never differ by more than
            # one, so every class to come finds as many clients with a place as it has shards.
            chosen = np.lexsort((rng.random(count), -open_places))[:pieces]
            open_places[chosen] -= 1
            owners[rng.permutation(rows)] = chosen[np.arange(len(rows)) % pieces]
        return Partition(owners, numbered(count))


def _shards_per_class(sizes: Int64Array, most: Int64Array, total: int) -> Int64Array:
    """Return how many shards to cut each class into: ``total`` in all, from 1 to ``most`` each.

    One at a time to the class whose shards are largest, which evens out the sizes of shards.
    """
    pieces = np.ones_like(sizes)
    for _ in range(total - len(sizes)):
        pieces[np.argmax(np.where(pieces < most, sizes / pieces, -1.0))] += 1
    return pieces
