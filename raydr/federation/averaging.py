"""The average of what clients send, by whichever aggregation a scenario chooses."""

from __future__ import annotations

from typing import Literal, TypeVar

from raydr.federation.federation import Federation
from raydr.federation.messages import Reply, Request
from raydr.robust import Aggregation, RobustRule

R = TypeVar("R", bound=Reply)


def average(
    federation: Federation,
    request: Request[R],
    aggregation: Aggregation,
    *,
    weights: Literal["clients", "rows"],
) -> R:
    """Average of clients' replies: the mean, of which the server sees the sum alone, or a robust rule's.

    Parameters
    ----------
    federation : Federation
        Whose clients are asked: those that :meth:`Federation.mean` asks.
    request : Request
        What to ask.
    aggregation : Mean or RobustRule
        How to combine the replies.
    weights : {"clients", "rows"}
        Of the mean. Under a robust rule clients weigh the same.
    """
    if isinstance(aggregation, RobustRule):
        return federation.robust_mean(request, aggregation)
    return federation.mean(request, weights=weights)
