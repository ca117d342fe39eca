"""Simulated adversaries: clients that lie in every round, as cleverly as the boundary lets them.

An adversary is added by one file: settings with a lie, registered by :func:`adversary`. Attacks on privacy, which read
what honest clients send, are another matter (:mod:`raydr.attacks`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from pydantic import Field

from raydr.arrays import Float64Array
from raydr.federation.client import Client
from raydr.federation.messages import Range, Reply, Request, declared_ranges
from raydr.federation.streams import client_stream, server_stream
from raydr.registry import Kinds
from raydr.settings import Settings


class Adversary(Settings, ABC):
    """How many clients lie, and what they send instead of the truth."""

    kind: str
    fraction: float = Field(gt=0, lt=1, description="part of the clients that lie, drawn by the seed")
    strength: float = Field(
        1.0, gt=0, description="how strongly; what leaves the declared range is clipped to it"
    )

    @abstractmethod
    def lie(self, truth: Float64Array, declared: Range, agreed: np.random.Generator) -> Float64Array:
        """Return what a liar sends instead of one field of a reply, before it is clipped to the range.

        Parameters
        ----------
        truth : float64, of the declared shape
            What an honest client would send.
        declared : Range
            What the field must be.
        agreed : Generator
            The same numbers for all liars, in every round: what they agreed on beforehand.
        """


ADVERSARIES = Kinds("adversaries", "raydr.federation.simulated")
"""Every adversary by its ``faults.adversary.kind``."""

adversary = ADVERSARIES
"""Decorator that registers an adversary."""


@dataclass(frozen=True)
class Liars:
    """Some clients, and what they send instead of the truth.

    What they send is as declared: finite, of the right shape, and within the range, to whose ends it is clipped. A liar
    that is asked again lies again. What is sealed for themselves stays as it is.

    Attributes
    ----------
    clients : tuple of int
        The liars.
    adversary : Adversary
        Their lie; how many there are is decided.
    """

    clients: tuple[int, ...]
    adversary: Adversary

    @classmethod
    def drawn(cls, adversary: Adversary, seed: int, clients: int) -> Self:
        """Return those who lie in an adversary's way among so many clients."""
        return cls(attackers(seed, clients, adversary.fraction), adversary)

    def forged(self, reply: Reply, request: Request[Any], client: Client) -> Reply:
        """Return what a client sends: the reply itself unless the client is a liar."""
        if client.index not in self.clients:
            return reply
        ranges = declared_ranges(type(reply), request, client.rows.shape[0])
        return type(reply)(
            **{
                name: value if ranges[name].sealed else self._forged(name, value, ranges[name], client.seed)
                for name, value in vars(reply).items()
            }
        )

    def _forged(self, name: str, value: Any, declared: Range, seed: int) -> Any:
        largest = np.asarray(declared.largest, np.float64)
        # The ringleader's stream, which each liar can open, whatever process it is in.
        agreed = client_stream(seed, min(self.clients), 0, f"{self.adversary.kind} on {name}")
        lie = self.adversary.lie(np.asarray(value, np.float64), declared, agreed)
        clipped = np.clip(lie, -largest, largest)
        return clipped.astype(declared.dtype) if isinstance(value, np.ndarray) else float(clipped)


def attackers(seed: int, clients: int, fraction: float) -> tuple[int, ...]:
    """Draw ``fraction`` of the clients, rounded to a number, by the seed, ascending.

    >>> attackers(0, 10, 0.2)
    (1, 6)
    """
    drawn = server_stream(seed, 0, "attackers").choice(clients, round(fraction * clients), replace=False)
    return tuple(int(client) for client in np.sort(drawn))
