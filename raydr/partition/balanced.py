"""Clients of equal size whose class mixtures differ."""

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
    """Clients of equal size with class mixtures from Dirichlet(alpha)."""

    kind: Literal["balanced"] = "balanced"
    alpha: float = Field(
        0.5, gt=0, description="concentration: a smaller value gives each client fewer classes"
    )

    def deal(self, table: Table, clients: int | None, seed: int) -> Partition:
        """Give every client the same number of rows, in its own class mixture: P3's non-IID balanced (tables 8 and 12).

        The proportions of each class over the clients are drawn as in `Dirichlet`. A client's mixture is the number of
        rows of each class that these proportions give it. It takes its share of the rows by this mixture. If clients
        request more rows of a class than there are, the rows are drawn by lot among the requests. Clients with too few
        rows request again, from the remaining classes. Sizes differ by at most one row.
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
    """Return the number of rows of each class that each client takes, (clients, classes).

    ``mixtures`` (clients, classes) are in any unit. ``rows`` (classes,) and ``places`` (clients,) have the same sum,
    and all are taken: each pass fills all places or uses up a class.
    """
    taken = np.zeros(mixtures.shape, dtype=np.int64)
    left, places = rows.copy(), places.copy()
    while places.any():
        wanted = mixtures * (left > 0)
        # A client whose mixture has none of the remaining classes takes them in proportion to what is left.
        wanted = np.where(wanted.sum(axis=1, keepdims=True) > 0.0, wanted, left)
        wanted /= wanted.max(axis=1, keepdims=True)  # a small alpha gives proportions of 1e-300
        shares = wanted * (places / wanted.sum(axis=1))[:, None]
        asked = np.stack([apportion(share, int(own), rng) for share, own in zip(shares, places, strict=True)])
        for index in np.flatnonzero(asked.sum(axis=0) > left):
            asked[:, index] = rng.multivariate_hypergeometric(asked[:, index], left[index])
        taken += asked
        left -= asked.sum(axis=0)
        places -= asked.sum(axis=1)
    return taken
