"""The distances that a server observes (P3, Table 6), and the checks on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from raydr.errors import ScenarioError

Regime: TypeAlias = Literal["multisite", "pointwise"]
Visibility: TypeAlias = Literal["full", "partial"]


@dataclass(frozen=True)
class Observations:
    """The observed index set Omega of P3 (4).

    Parameters
    ----------
    regime : {"multisite", "pointwise"}
        Whether a client sends the distances between its own records; pointwise clients hold one record each.
    visibility : {"full", "partial"}
        Whether all clients see the same anchors, or each also sees some that no other client sees.
    global_anchors : int
        Anchors that every client sees.
    local_anchors : int
        Further anchors of each client; 0 if visibility is full.
    sizes : tuple of int
        Records of each client.

    Raises
    ------
    ScenarioError
        If a pointwise client does not hold exactly one record, if there are local anchors with full
        visibility, or if a client sees fewer than 2 anchors.

    Examples
    --------
    >>> seen = Observations("multisite", "partial", global_anchors=2, local_anchors=1, sizes=(2, 1))
    >>> seen.seen_by_each, seen.count
    (3, 10)
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
                f"method.regime is pointwise, which needs one record per client, but client {odd} holds"
                f" {self.sizes[odd]}. Set clients.partition.kind: pointwise, or method.regime:"
                " multisite."
            )
        if self.visibility == "full" and self.local_anchors:
            raise ScenarioError(
                f"There are {self.local_anchors} local anchors per client, but with method.visibility:"
                " full all clients see all anchors. Set method.visibility: partial, or leave"
                " method.local_anchors out."
            )
        if self.seen_by_each < 2:
            raise ScenarioError(
                f"Each client sees {self.seen_by_each} anchors, but at least 2 are needed to place"
                " rows. Raise method.anchors."
            )

    @property
    def seen_by_each(self) -> int:
        """Anchors that a client sees, r of P3, Theorem 3.2."""
        return self.global_anchors + self.local_anchors

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
