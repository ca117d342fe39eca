"""Table 6 of P3 as an object, against its set notation written out pair by pair."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from raydr.errors import ScenarioError
from raydr.methods.sense.observations import Observations

CASES = [
    Observations("pointwise", "full", 3, 0, (1, 1, 1, 1)),
    Observations("pointwise", "partial", 2, 2, (1, 1, 1)),
    Observations("multisite", "full", 4, 0, (3, 1, 0, 2)),
    Observations("multisite", "partial", 2, 3, (2, 4, 0, 1)),
]


def table_6(seen: Observations) -> dict[tuple[int, int], int]:
    """Observed pairs (low, high), with the client that tells each, as the four rows of the table spell them."""
    globals_ = range(seen.global_anchors)
    first = seen.global_anchors + seen.local_anchors * len(seen.sizes)
    pairs: dict[tuple[int, int], int] = {}
    for client, size in enumerate(seen.sizes):
        local = range(
            seen.global_anchors + client * seen.local_anchors,
            seen.global_anchors + (client + 1) * seen.local_anchors,
        )
        records = range(first, first + size)
        first += size
        for anchor, record in product([*globals_, *local], records):
            pairs[anchor, record] = client
        if seen.regime == "multisite":
            for low, high in combinations(records, 2):
                pairs[low, high] = client
    return pairs


@pytest.mark.parametrize("seen", CASES, ids=lambda seen: f"{seen.regime}-{seen.visibility}")
def test_observed_pairs_are_those_of_table_6_in_both_orders(seen: Observations) -> None:
    points = seen.anchors + seen.records
    first, second = (axis.ravel() for axis in np.meshgrid(np.arange(points), np.arange(points)))
    expected = table_6(seen)
    observer = seen.observer(first, second)
    for i, j, client in zip(first.tolist(), second.tolist(), observer.tolist(), strict=True):
        assert client == expected.get((min(i, j), max(i, j)), -1), (i, j)
    np.testing.assert_array_equal(seen.observed(first, second), observer >= 0)
    assert seen.count == len(expected)


@pytest.mark.parametrize("seen", CASES, ids=lambda seen: f"{seen.regime}-{seen.visibility}")
def test_each_client_sees_so_many_anchors_and_its_own_records(seen: Observations) -> None:
    for client, size in enumerate(seen.sizes):
        anchors, records = seen.anchors_of(client), seen.records_of(client)
        assert len(anchors) == seen.seen_by_each
        assert len(records) == size
        pairs = np.array(list(product(anchors.tolist(), records.tolist())), np.int64).reshape(-1, 2)
        assert (seen.observer(pairs[:, 0], pairs[:, 1]) == client).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pointwise", "full", 3, 0, (1, 2)), "client 1 holds 2: set clients.partition.kind: pointwise"),
        (("multisite", "full", 3, 1, (2, 2)), "method.visibility is full"),
        (("multisite", "full", 1, 0, (2, 2)), "fewer than 2 place nothing"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        Observations(*arguments)
