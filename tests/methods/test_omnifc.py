"""OmniFC's costs: the counts of its construction, which recovers the distances."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.omnifc import ELEMENT, cost

PRIME = 2**31 - 1


def lagrange(known: list[int], at: int) -> list[int]:
    """Return the weights of values at known points in the value at another point, in the field."""
    weights = []
    for one in known:
        weight = 1
        for other in known:
            if other != one:
                weight = weight * (at - other) * pow(one - other, -1, PRIME) % PRIME
        weights.append(weight)
    return weights


@pytest.mark.parametrize(("clients", "colluding"), [(5, 1), (7, 2), (10, 1), (10, 4)])
def test_counted_replies_are_necessary_and_sufficient(clients: int, colluding: int) -> None:
    rows, found = np.random.default_rng(0).integers(-50, 50, size=(6, 12)), cost(6, 12, clients, colluding)
    width = 12 // found.segments
    noise = np.random.default_rng(1).integers(PRIME, size=(6, colluding, width))
    whole = np.concatenate(
        [rows[:, : found.segments * width].reshape(6, found.segments, width), noise], axis=1
    )
    segments = [[[int(value) % PRIME for value in segment] for segment in row] for row in whole]
    at = list(range(1, found.segments + colluding + 1))
    points = list(range(100, 100 + clients))
    coded = []  # by client, then by row: the received values
    for point in points:
        weights = lagrange(at, point)
        coded.append(
            [
                [
                    sum(weights[part] * row[part][place] for part in range(len(at))) % PRIME
                    for place in range(width)
                ]
                for row in segments
            ]
        )
    assert found.shared == (clients - 1) * sum(map(len, coded[0])) * ELEMENT

    def uploaded(client: int, one: int, other: int) -> int:
        pairs = zip(coded[client][one], coded[client][other], strict=True)
        return sum((a - b) ** 2 for a, b in pairs) % PRIME

    def distance(replies: int, one: int, other: int) -> int:
        chosen, total = points[:replies], 0
        for segment in range(found.segments):
            weights = lagrange(chosen, at[segment])
            total += sum(weight * uploaded(client, one, other) for client, weight in enumerate(weights))
        return total % PRIME

    true = ((rows[0, : found.segments * width] - rows[1, : found.segments * width]) ** 2).sum()
    assert found.replies <= clients
    assert distance(found.replies, 0, 1) == true
    assert distance(found.replies - 1, 0, 1) != true


def test_colluding_clients_reduce_the_segments() -> None:
    assert [cost(100, 60, 10, colluding).segments for colluding in (1, 2, 3, 4)] == [4, 3, 2, 1]
    with pytest.raises(ValueError, match="10 clients cannot tolerate 5 colluding ones: use at least 11"):
        cost(100, 60, 10, 5)


def test_uploads_grow_quadratically_and_shares_linearly() -> None:
    few, many = cost(1000, 50, 10), cost(2000, 50, 10)
    assert many.uploaded / few.uploaded == pytest.approx(4.0, rel=1e-2)
    assert many.shared == 2 * few.shared
