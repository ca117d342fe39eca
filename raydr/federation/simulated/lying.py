"""Simulated adversaries: clients that lie in every round, within the limits of the boundary.

To add an adversary, write a file with settings and a lie, registered by :func:`adversary`. Attacks on privacy, which
read what honest clients send, are in :mod:`raydr.attacks`.
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
    fraction: float = Field(gt=0, lt=1, description="fraction of the clients that lie, drawn from the seed")
    strength: float = Field(
        1.0, gt=0, description="strength of the lie; values outside the declared range are clipped to it"
    )

    @abstractmethod
    def lie(self, truth: Float64Array, declared: Range, agreed: np.random.Generator) -> Float64Array:
        """Return what a liar sends instead of one field of a reply, before it is clipped to the range.

        Parameters
        ----------
        truth : float64, of the declared shape
            Value that an honest client would send.
        declared : Range
            Declaration of the field.
        agreed : Generator
            Random numbers that are the same for all liars and rounds: their common plan.
        """


ADVERSARIES = Kinds("adversaries", "raydr.federation.simulated")
"""Every adversary, by its ``faults.adversary.kind``."""

adversary = ADVERSARIES
"""Decorator that registers an adversary."""


@dataclass(frozen=True)
class Liars:
    """Some clients, and what they send instead of the truth.

    Lies match the declaration: finite, of the right shape, and clipped to the range. A liar that is asked again lies
    again. Fields sealed for the liar itself are not changed.

    Attributes
    ----------
    clients : tuple of int
        The liars.
    adversary : Adversary
        Their lie. Its ``fraction`` has been used already.
    """

    clients: tuple[int, ...]
    adversary: Adversary

    @classmethod
    def drawn(cls, adversary: Adversary, seed: int, clients: int) -> Self:
        """Draw which of ``clients`` clients lie."""
        return cls(attackers(seed, clients, adversary.fraction), adversary)

    def forged(self, reply: Reply, request: Request[Any], client: Client) -> Reply:
        """Return what a client sends: the reply itself unless the client lies."""
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
        # The stream of the first liar, which every liar can open in its own process.
        agreed = client_stream(seed, min(self.clients), 0, f"{self.adversary.kind} on {name}")
        lie = self.adversary.lie(np.asarray(value, np.float64), declared, agreed)
        clipped = np.clip(lie, -largest, largest)
        return clipped.astype(declared.dtype) if isinstance(value, np.ndarray) else float(clipped)


def attackers(seed: int, clients: int, fraction: float) -> tuple[int, ...]:
    """Draw ``fraction`` of the clients, rounded, from the seed; ascending.

    >>> attackers(0, 10, 0.2)
    (1, 6)
    """
    drawn = server_stream(seed, 0, "attackers").choice(clients, round(fraction * clients), replace=False)
    return tuple(int(client) for client in np.sort(drawn))
