"""Simulated faults: clients that drop out, are slow, crash or send corrupted replies, by a seeded plan.

Faults are drawn from ``(seed, client, round)``, so the same faults occur on every machine. They affect only calls
inside rounds, and only first attempts: a client that is asked again has recovered. Adversaries do not recover
(:mod:`raydr.federation.simulated.lying`).
"""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import Any, Literal

import numpy as np
from pydantic import Field, InstanceOf

from raydr.federation.messages import Reply
from raydr.federation.simulated.lying import Liars
from raydr.federation.streams import client_stream
from raydr.settings import Settings


class CrashMoment(StrEnum):
    """When a process dies, relative to its answer."""

    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


class Corruption(StrEnum):
    """The kind of damage to a corrupted reply."""

    NAN = "nan"
    INFINITE = "infinite"
    SHAPE = "shape"
    DTYPE = "dtype"
    ROUND = "round"


class Crash(Settings):
    """The process of a client dies in a round."""

    client: int = Field(ge=0, description="which client, from 0")
    round: int = Field(ge=1, description="in which round")
    moment: Literal["before", "during", "after"] = Field(
        "during", description="when the process dies, relative to the answer"
    )


class Faults(Settings):
    """Random faults and planned crashes; :class:`Corruption` lists the kinds of corrupted replies."""

    dropout: float = Field(
        0.0, ge=0, lt=1, description="probability that a client does not answer in a round"
    )
    stragglers: float = Field(0.0, ge=0, le=1, description="probability that a client is slow in a round")
    delay_s: float = Field(
        1.0, ge=0, description="mean delay of a slow client in seconds, exponentially distributed"
    )
    corrupt: float = Field(
        0.0, ge=0, lt=1, description="probability that a client's reply is corrupted in a round"
    )
    crashes: tuple[Crash, ...] = Field((), description="client processes that die: client, round, moment")


class FaultPlan(Faults):
    """The faults of a run, including clients that lie in every round and attempt."""

    adversary: InstanceOf[Liars] | None = None

    def drops_out(self, seed: int, client: int, round: int) -> bool:
        """Return whether the client does not answer in this round."""
        return self._strikes(self.dropout, seed, client, round, "dropout")

    def delay(self, seed: int, client: int, round: int) -> float:
        """Return the client's delay in this round, in seconds."""
        if not self._strikes(self.stragglers, seed, client, round, "straggler"):
            return 0.0
        return float(client_stream(seed, client, round, "delay").exponential(self.delay_s))

    def corruption(self, seed: int, client: int, round: int) -> Corruption | None:
        """Return how the client's reply is corrupted in this round."""
        if not self._strikes(self.corrupt, seed, client, round, "corrupt"):
            return None
        kinds = list(Corruption)
        return kinds[int(client_stream(seed, client, round, "corruption").integers(len(kinds)))]

    def crash(self, client: int, round: int) -> CrashMoment | None:
        """Return when the client's process dies in this round."""
        for crash in self.crashes:
            if crash.client == client and crash.round == round:
                return CrashMoment(crash.moment)
        return None

    @property
    def strikes(self) -> bool:
        """Whether the plan contains any fault."""
        return self != FaultPlan()

    @staticmethod
    def _strikes(probability: float, seed: int, client: int, round: int, fault: str) -> bool:
        if probability == 0.0 or round == 0:
            return False
        return bool(client_stream(seed, client, round, fault).random() < probability)


class SimulatedCrashError(BaseException):
    """Ends the process that hosts a client; ``except Exception`` in a client part must not catch it."""


def corrupted(reply: Reply, corruption: Corruption) -> Reply:
    """Return the reply with its first field corrupted; for a wrong round, the reply itself."""
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
