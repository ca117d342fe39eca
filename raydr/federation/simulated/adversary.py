"""Simulated adversaries: clients that lie in every round, as cleverly as the boundary lets them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from raydr.arrays import Float64Array
from raydr.federation.client import Client
from raydr.federation.messages import Range, Reply, Request
from raydr.federation.streams import client_stream, server_stream


@dataclass(frozen=True)
class Adversary:
    """Some clients, and what they send instead of the truth.

    What they send is as declared: finite, of the right shape, and within the range, to whose ends it is clipped. An
    attacker that is asked again lies again.

    Attributes
    ----------
    clients : tuple of int
        The attackers.
    kind : {"sign-flip", "scaling", "collusion"}
        Send the truth times ``-strength``; the truth times ``strength``; or, all attackers alike and in every round,
        one direction, random but for the seed, whose entries reach ``strength`` times the declared range (times 1
        where the range is infinite). What is sealed for themselves stays as it is.
    strength : float
        Above 0.
    """

    clients: tuple[int, ...]
    kind: Literal["sign-flip", "scaling", "collusion"]
    strength: float = 1.0

    def forged(self, reply: Reply, request: Request[Any], client: Client) -> Reply:
        """Return what a client sends: the reply itself unless the client is an attacker."""
        if client.index not in self.clients:
            return reply
        ranges = type(reply).ranges(request, client.rows.shape[0])
        return type(reply)(
            **{
                name: value if ranges[name].sealed else self._forged(name, value, ranges[name], client.seed)
                for name, value in vars(reply).items()
            }
        )

    def _forged(self, name: str, value: Any, declared: Range, seed: int) -> Any:
        largest = np.asarray(declared.largest, np.float64)
        match self.kind:
            case "sign-flip":
                lie = -self.strength * np.asarray(value, np.float64)
            case "scaling":
                lie = self.strength * np.asarray(value, np.float64)
            case "collusion":
                reach = np.where(np.isfinite(largest), largest, 1.0)
                lie = self.strength * reach * self._direction(name, declared.shape, seed)
        clipped = np.clip(lie, -largest, largest)
        return clipped.astype(declared.dtype) if isinstance(value, np.ndarray) else float(clipped)

    def _direction(self, name: str, shape: tuple[int, ...], seed: int) -> Float64Array:
        """What the attackers agreed on: their ringleader's stream, which each can open, whatever process it is in."""
        return client_stream(seed, min(self.clients), 0, f"collusion on {name}").uniform(-1.0, 1.0, shape)


def attackers(seed: int, clients: int, fraction: float) -> tuple[int, ...]:
    """Draw ``fraction`` of the clients, rounded to a number, by the seed, ascending.

    >>> attackers(0, 10, 0.2)
    (1, 6)
    """
    drawn = server_stream(seed, 0, "attackers").choice(clients, round(fraction * clients), replace=False)
    return tuple(int(client) for client in np.sort(drawn))
