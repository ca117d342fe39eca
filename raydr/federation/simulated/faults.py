"""Simulated reality: clients that drop out, dawdle, crash or send nonsense, by a seeded plan.

What goes wrong is drawn from ``(seed, client, round)``, so the same faults strike whatever the machine does. Only
calls inside rounds are struck, and only first attempts: a client that is asked again has recovered. Adversaries do not
recover (:mod:`raydr.federation.simulated.adversary`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import numpy as np

from raydr.federation.messages import Reply
from raydr.federation.simulated.adversary import Adversary
from raydr.federation.streams import client_stream


class Moment(StrEnum):
    """When a process dies, relative to its answer."""

    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


class Corruption(StrEnum):
    """What is wrong with a corrupted reply."""

    NAN = "nan"
    INFINITE = "infinite"
    SHAPE = "shape"
    DTYPE = "dtype"
    ROUND = "round"


@dataclass(frozen=True)
class Crash:
    """The process of a client dies in a round: before its answer, while it computes, or once it has answered."""

    client: int
    round: int
    moment: Literal["before", "during", "after"] = "during"


@dataclass(frozen=True)
class FaultPlan:
    """What goes wrong.

    Attributes
    ----------
    dropout : float
        Probability that a client does not answer in a round.
    delay_s : float
        Mean of the seconds that a straggler takes longer, exponentially distributed.
    stragglers : float
        Probability that a client is a straggler in a round.
    corrupt : float
        Probability that a client's reply is corrupted in a round, in a way drawn from :class:`Corruption`.
    crashes : tuple of Crash
        Processes that die.
    adversary : Adversary, optional
        Clients that lie, in every round and attempt.
    """

    dropout: float = 0.0
    stragglers: float = 0.0
    delay_s: float = 0.0
    corrupt: float = 0.0
    crashes: tuple[Crash, ...] = ()
    adversary: Adversary | None = None

    def drops_out(self, seed: int, client: int, round: int) -> bool:
        """Whether the client does not answer in this round."""
        return self._strikes(self.dropout, seed, client, round, "dropout")

    def delay(self, seed: int, client: int, round: int) -> float:
        """Seconds that the client dawdles in this round."""
        if not self._strikes(self.stragglers, seed, client, round, "straggler"):
            return 0.0
        return float(client_stream(seed, client, round, "delay").exponential(self.delay_s))

    def corruption(self, seed: int, client: int, round: int) -> Corruption | None:
        """How the client's reply is corrupted in this round."""
        if not self._strikes(self.corrupt, seed, client, round, "corrupt"):
            return None
        kinds = list(Corruption)
        return kinds[int(client_stream(seed, client, round, "corruption").integers(len(kinds)))]

    def crash(self, client: int, round: int) -> Moment | None:
        """When the client's process dies in this round."""
        for crash in self.crashes:
            if crash.client == client and crash.round == round:
                return Moment(crash.moment)
        return None

    @property
    def strikes(self) -> bool:
        """Whether anything ever goes wrong."""
        return self != FaultPlan()

    @staticmethod
    def _strikes(probability: float, seed: int, client: int, round: int, fault: str) -> bool:
        if probability == 0.0 or round == 0:
            return False
        return bool(client_stream(seed, client, round, fault).random() < probability)


class SimulatedCrashError(BaseException):
    """Ends the process that hosts a client; no ``except Exception`` of a client part may swallow it."""


def corrupted(reply: Reply, corruption: Corruption) -> Reply:
    """Return the reply with its first field spoilt as ``corruption`` says (a wrong round is the envelope's)."""
    if corruption is Corruption.ROUND:
        return reply
    name = dataclasses.fields(reply)[0].name  # type: ignore[arg-type]
    value: Any = getattr(reply, name)
    spoilt: Any = np.array(value, np.float64)
    match corruption:
        case Corruption.NAN:
            spoilt.flat[0] = np.nan
        case Corruption.INFINITE:
            spoilt.flat[0] = np.inf
        case Corruption.SHAPE:
            spoilt = np.append(spoilt.ravel(), 0.0)
        case Corruption.DTYPE:
            spoilt = spoilt.astype(np.complex128)
    if not isinstance(value, np.ndarray) and spoilt.ndim == 0 and corruption is not Corruption.DTYPE:
        spoilt = float(spoilt)
    return dataclasses.replace(reply, **{name: spoilt})  # type: ignore[type-var]
