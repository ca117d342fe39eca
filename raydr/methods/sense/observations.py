"""Which distances a server observes (P3, Table 6), and through which client: never as a table of pairs.

Points are numbered as in P3 (8): anchors first, the global ones and then the local ones of client 0, of client 1, and
so on; after them the records, client by client.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from raydr.arrays import BoolArray, Int64Array
from raydr.errors import ScenarioError

Regime: TypeAlias = Literal["multisite", "pointwise"]
Visibility: TypeAlias = Literal["full", "partial"]


@dataclass(frozen=True)
class Observations:
    """The observed index set Omega of P3 (4).

    Parameters
    ----------
    regime : {"multisite", "pointwise"}
        Whether a client tells the distances between its own records; pointwise clients hold one record each.
    visibility : {"full", "partial"}
        Whether all clients see the same anchors, or each also sees some that no other client does.
    global_anchors : int
        Anchors that every client sees.
    local_anchors : int
        Further anchors of each client; 0 where visibility is full.
    sizes : tuple of int
        Records of each client.

    Raises
    ------
    ScenarioError
        If a pointwise client holds another number of records than one, if local anchors and full visibility meet, or
        if a client sees fewer than 2 anchors.

    Examples
    --------
    >>> seen = Observations("multisite", "partial", global_anchors=2, local_anchors=1, sizes=(2, 1))
    >>> seen.anchors_of(1)
    array([0, 1, 3])
    >>> seen.observed(np.array([4, 4, 4]), np.array([2, 3, 5]))
    array([ True, False,  True])
    >>> seen.count
    10
    """

    regime: Regime
    visibility: Visibility
    global_anchors: int
    local_anchors: int
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.regime == "pointwise" and set(self.sizes) != {1}:
            odd = next(client for client, size in enumerate(self.sizes) if size != 1)
            raise ScenarioError(
                f"method.regime is pointwise, where every client holds one record, but client {odd} holds"
                f" {self.sizes[odd]}: set clients.partition.kind: pointwise, or method.regime: multisite."
            )
        if self.visibility == "full" and self.local_anchors:
            raise ScenarioError(
                f"There are {self.local_anchors} local anchors for each client, but method.visibility is full, where"
                " all clients see all anchors: set method.visibility: partial, or leave the local ones out."
            )
        if self.seen_by_each < 2:
            raise ScenarioError(
                f"Each client sees {self.seen_by_each} anchors; distances to fewer than 2 place nothing: raise"
                " method.anchors."
            )

    @property
    def seen_by_each(self) -> int:
        """Anchors that a client sees, r of P3, Theorem 3.2."""
        return self.global_anchors + self.local_anchors

    @property
    def anchors(self) -> int:
        """Anchors of all clients together, K of P3 (8)."""
        return self.global_anchors + self.local_anchors * len(self.sizes)

    @property
    def records(self) -> int:
        """Records of all clients together, N of P3."""
        return sum(self.sizes)

    @property
    def count(self) -> int:
        """Number of observed pairs, each counted once."""
        between_records = (
            sum(size * (size - 1) // 2 for size in self.sizes) if self.regime == "multisite" else 0
        )
        return self.seen_by_each * self.records + between_records

    @cached_property
    def _owners(self) -> Int64Array:
        """Client of each point; -1 for a global anchor."""
        clients = np.arange(len(self.sizes))
        return np.concatenate(
            [
                np.full(self.global_anchors, -1),
                np.repeat(clients, self.local_anchors),
                np.repeat(clients, self.sizes),
            ]
        ).astype(np.int64)

    def anchors_of(self, client: int) -> Int64Array:
        """Numbers of the anchors that a client sees, global ones first."""
        own = self.global_anchors + client * self.local_anchors + np.arange(self.local_anchors)
        return np.concatenate([np.arange(self.global_anchors), own]).astype(np.int64)

    def records_of(self, client: int) -> Int64Array:
        """Numbers of a client's records."""
        start = self.anchors + sum(self.sizes[:client])
        return np.arange(start, start + self.sizes[client], dtype=np.int64)

    def observer(self, first: Int64Array, second: Int64Array) -> Int64Array:
        """Client that tells the distance of each pair, or -1 where nobody does.

        Parameters
        ----------
        first, second : (pairs,) int64
            Numbers of points. The distance of a point to itself is nobody's to tell.
        """
        low, high = np.minimum(first, second), np.maximum(first, second)
        owner = self._owners
        record, reaches_record = low >= self.anchors, high >= self.anchors
        anchor_seen = ~record & reaches_record & ((owner[low] == -1) | (owner[low] == owner[high]))
        together = record & (low != high) & (owner[low] == owner[high]) & (self.regime == "multisite")
        return np.where(anchor_seen | together, owner[high], -1)

    def observed(self, first: Int64Array, second: Int64Array) -> BoolArray:
        """Whether each pair is in Omega."""
        return np.asarray(self.observer(first, second) >= 0)
