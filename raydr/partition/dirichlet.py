"""Classes split among clients by proportions from a Dirichlet distribution."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from raydr.arrays import Float64Array
from raydr.data.sampling import apportion, stream
from raydr.data.table import Table
from raydr.errors import DataError, ScenarioError
from raydr.partition.dealing import Dealing, check_count, numbered, partition, rows_by_class
from raydr.partition.ownership import Partition

MAX_DRAWS = 1000
"""Largest number of draws to find one that gives every client ``min_rows``."""


def proportions(alpha: float, classes: int, clients: int, rng: np.random.Generator) -> Float64Array:
    """Draw each class's proportions over the clients, (classes, clients), from Dirichlet(alpha).

    Raises
    ------
    ScenarioError
        If ``alpha`` is out of range.
    """
    if not 1e-3 <= alpha <= 1e6:
        raise ScenarioError(f"clients.partition.alpha is {alpha}; expected a value between 0.001 and 1e6.")
    return rng.dirichlet(np.full(clients, alpha), size=classes)


@partition
class Dirichlet(Dealing):
    """Each class is split in Dirichlet(alpha) proportions."""

    kind: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(
        0.5, gt=0, description="concentration: a smaller value puts more of a class on one client"
    )
    min_rows: int = Field(1, ge=0, description="smallest number of rows of a client; 0 allows empty clients")

    def deal(self, table: Table, clients: int | None, seed: int) -> Partition:
        """Split every class by proportions from Dirichlet(alpha): skewed labels and sizes (Hsu et al. 2019).

        The shuffled rows of each class are split by one draw over the clients, rounded so that all rows are assigned.
        A draw that leaves a client with fewer than ``min_rows`` rows is discarded as a whole. It is repeated up to
        `MAX_DRAWS` times. With an alpha of 1e-3, nearly every class goes to one client; with 1e6, every client gets
        the same mixture.
        """
        count, labels = self.counted(clients), self.labels_of(table)
        check_count(len(labels), count, self.min_rows)
        rng = stream(seed, "partition")
        members = rows_by_class(labels)
        for _ in range(MAX_DRAWS):
            shares = proportions(self.alpha, len(members), count, rng)
            counts = np.stack(
                [
                    apportion(share * len(rows), len(rows), rng)
                    for share, rows in zip(shares, members, strict=True)
                ]
            )
            if counts.sum(axis=0).min() >= self.min_rows:
                break
        else:
            raise DataError(
                f"In {MAX_DRAWS} draws of Dirichlet({self.alpha:g}) over {len(labels)} rows of {len(members)} classes,"
                f" some of the {count} clients always had fewer than {self.min_rows}"
                f" row{'' if self.min_rows == 1 else 's'}. Raise clients.partition.alpha or data.rows, lower"
                " clients.count, or allow empty clients with clients.partition.min_rows: 0."
            )
        owners = np.empty(len(labels), dtype=np.int64)
        for rows, dealt in zip(members, counts, strict=True):
            owners[rng.permutation(rows)] = np.repeat(np.arange(count), dealt)
        return Partition(owners, numbered(count))
