"""The number of pairs in Table 6 of P3, against its set notation written out pair by pair."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from raydr.errors import ScenarioError
from raydr.methods.sense.observations import Observations

CASES = [
    Observations("pointwise", "full", 3, 0, (1, 1, 1, 1)),
    Observations("pointwise", "partial", 2, 2, (1, 1, 1)),
    Observations("multisite", "full", 4, 0, (3, 1, 0, 2)),
    Observations("multisite", "partial", 2, 3, (2, 4, 0, 1)),
]


def table_6(seen: Observations) -> set[tuple[int, int]]:
    """Return the observed pairs (low, high) as the four rows of the table define them."""
    globals_ = range(seen.global_anchors)
    first = seen.global_anchors + seen.local_anchors * len(seen.sizes)
    pairs: set[tuple[int, int]] = set()
    for client, size in enumerate(seen.sizes):
        local = range(
            seen.global_anchors + client * seen.local_anchors,
            seen.global_anchors + (client + 1) * seen.local_anchors,
        )
        records = range(first, first + size)
        first += size
        pairs |= set(product([*globals_, *local], records))
        if seen.regime == "multisite":
            pairs |= set(combinations(records, 2))
    return pairs


@pytest.mark.parametrize("seen", CASES, ids=lambda seen: f"{seen.regime}-{seen.visibility}")
def test_observed_pairs_equal_table_6(seen: Observations) -> None:
    assert seen.count == len(table_6(seen))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pointwise", "full", 3, 0, (1, 2)), "client 1 holds 2. Set clients.partition.kind: pointwise"),
        (("multisite", "full", 3, 1, (2, 2)), "method.visibility: full"),
        (("multisite", "full", 1, 0, (2, 2)), "at least 2 are needed to place rows"),
    ],
)
def test_invalid_counts_are_refused(arguments: tuple, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        Observations(*arguments)
