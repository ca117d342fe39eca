"""Sections ``runtime`` and ``faults`` of a scenario: where it runs, and what goes wrong on purpose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field

from raydr.device import Device
from raydr.federation.simulated import ADVERSARIES, Adversary
from raydr.federation.simulated.faults import Faults
from raydr.settings import Settings

if TYPE_CHECKING:
    AnyAdversary: TypeAlias = Adversary
else:
    AnyAdversary = ADVERSARIES.choice


class RuntimeSettings(Settings):
    """How the simulation runs. Unless clients are lost, it changes no bit of the outcome."""

    federation: Literal["ray", "inline"] = Field("ray", description="Ray's actors, or this process alone")
    actors: Literal["auto", "per-client"] | Annotated[int, Field(ge=1)] = Field(
        "auto",
        description="client actors: per-client is one for each client, or give a number; auto is one for each client up"
        " to 16 on a core, if they and their rows need at most a quarter of the memory, beyond that one for each core,"
        " and with batch_clients one for each core",
    )
    batch_clients: bool = Field(
        False,
        description="train clients of one actor as one where the method can: other bits, within rounding",
    )
    device: Device = Field(
        "cpu",
        description="what computes large products, at clients, server and evaluation: cuda is a GPU, of which Ray gives"
        " each process a part; auto is one where there is one. Other bits than the cpu's, within rounding",
    )
    timeout_s: float = Field(600.0, gt=0, description="seconds that clients have for one call")
    retries: int = Field(
        2, ge=0, description="how often a dead or late process is started again for one call"
    )
    quorum: float = Field(1.0, gt=0, le=1, description="part of a round's clients that must answer; 1: all")
    checkpoint_every: int = Field(10, ge=0, description="rounds between checkpoints; 0: none")


class FaultSettings(Faults):
    """Simulated reality: what goes wrong on purpose, by the seed."""

    adversary: AnyAdversary | None = Field(None, description="clients that lie")
