"""Averages of clients' replies, by the aggregation that a scenario chooses."""

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
    """Return the average of clients' replies: the exact mean, or the result of a robust rule.

    Parameters
    ----------
    federation : Federation
        Asks the same clients as :meth:`Federation.mean`.
    request : Request
        Request to send.
    aggregation : Mean or RobustRule
        How to combine the replies.
    weights : {"clients", "rows"}
        Weights of the mean. Under a robust rule, all clients have the same weight.
    """
    if isinstance(aggregation, RobustRule):
        return federation.robust_mean(request, aggregation)
    return federation.mean(request, weights=weights)
