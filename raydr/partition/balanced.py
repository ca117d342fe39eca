"""Clients of one size, whose mixtures of classes differ."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from raydr.arrays import Float64Array, Int64Array
from raydr.data.sampling import apportion, stream
from raydr.data.table import Table
from raydr.partition.dealing import Dealing, check_count, numbered, partition, rows_by_class
from raydr.partition.dirichlet import proportions
from raydr.partition.ownership import Partition


@partition
class Balanced(Dealing):
    """Clients of one size, which classes come to in Dirichlet(alpha) proportions."""

    kind: Literal["balanced"] = "balanced"
    alpha: float = Field(0.5, gt=0, description="concentration: the smaller, the fewer classes a client has")

    def deal(self, table: Table, clients: int | None, seed: int) -> Partition:
        """Give every client as many rows, in a mixture of classes of its own: P3's non-IID balanced (tables 8 and 12).

        Each class's proportions over the clients are drawn as `Dirichlet` draws them. A client's mixture is what it
        would have of each class by these; of that it takes its share of the rows. Where clients ask for more of a
        class than there is, lots are drawn among the rows asked for, and whoever goes short asks again, of the classes
        that are left. Sizes differ by at most one row.
        """
        count, labels = self.counted(clients), self.labels_of(table)
        check_count(len(labels), count)
        rng = stream(seed, "partition")
        members = rows_by_class(labels)
        sizes = np.array([len(rows) for rows in members])
        mixtures = (proportions(self.alpha, len(members), count, rng) * sizes[:, None]).T
        taken = _taken(mixtures, sizes, np.bincount(np.arange(len(labels)) % count), rng)
        owners = np.empty(len(labels), dtype=np.int64)
        for rows, dealt in zip(members, taken.T, strict=True):
            owners[rng.permutation(rows)] = np.repeat(np.arange(count), dealt)
        return Partition(owners, numbered(count))


def _taken(
    mixtures: Float64Array, rows: Int64Array, places: Int64Array, rng: np.random.Generator
) -> Int64Array:
    """Rows of each class that each client takes, (clients, classes).

    By ``mixtures`` (clients, classes), in any unit; ``rows`` (classes,) and ``places`` (clients,) have one sum, and are
    all taken: each turn of asking fills all places or uses a class up.
    """
    taken = np.zeros(mixtures.shape, dtype=np.int64)
    left, places = rows.copy(), places.copy()
    while places.any():
        wanted = mixtures * (left > 0)
        # Who would have had nothing of what is left takes of it as it comes.
        wanted = np.where(wanted.sum(axis=1, keepdims=True) > 0.0, wanted, left)
        wanted /= wanted.max(axis=1, keepdims=True)  # a small alpha draws parts of 1e-300
        shares = wanted * (places / wanted.sum(axis=1))[:, None]
        asked = np.stack([apportion(share, int(own), rng) for share, own in zip(shares, places, strict=True)])
        for index in np.flatnonzero(asked.sum(axis=0) > left):
            asked[:, index] = rng.multivariate_hypergeometric(asked[:, index], left[index])
        taken += asked
        left -= asked.sum(axis=0)
        places -= asked.sum(axis=1)
    return taken
