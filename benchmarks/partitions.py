"""Partitions of rows in papers, by the names that benchmarks accept."""

from __future__ import annotations

from raydr.partition import IID, Balanced, Dealing, Dirichlet, OneClass, Shards

DEALINGS: dict[str, Dealing] = {
    "iid": IID(),
    "dirichlet-0.1": Dirichlet(alpha=0.1),
    "dirichlet-0.5": Dirichlet(alpha=0.5),
    "balanced-0.5": Balanced(alpha=0.5),
    "shards-2": Shards(classes=2),
    "shards-3": Shards(classes=3),
    "one-class": OneClass(),
}
"""P1: IID and one class each.

P2: Dirichlet 0.1 and 0.5, shards 2 and 3. P3: IID, and non-IID with alpha 0.5, unbalanced
(Dirichlet) and balanced."""
