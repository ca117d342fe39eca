"""Sections ``runtime`` and ``faults`` of a scenario: where it runs, and simulated faults."""

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
    """How the simulation runs. The result is the same bit for bit unless clients are lost."""

    federation: Literal["ray", "inline"] = Field("ray", description="Ray actors, or one process without Ray")
    actors: Literal["auto", "per-client"] | Annotated[int, Field(ge=1)] = Field(
        "auto",
        description="number of client actors. per-client: one for each client. auto: one for each client up to 16 on a"
        " core, if they and their rows need at most a quarter of the memory; otherwise, and with batch_clients, one for"
        " each core",
    )
    batch_clients: bool = Field(
        False,
        description="train the clients of one actor together if the method can. Results differ within rounding",
    )
    device: Device = Field(
        "cpu",
        description="device for large matrix products of clients, server and evaluation: cuda is a GPU, of which Ray"
        " gives each process a part; auto uses a GPU if there is one. Results differ from cpu within rounding",
    )
    portable: bool = Field(
        False,
        description="the same result bit for bit on every x86-64 processor with AVX2 and FMA, under Linux and with the"
        " same versions. The command starts itself again with environment variables for this",
    )
    timeout_s: float = Field(600.0, gt=0, description="time limit of the clients for one call, in seconds")
    retries: int = Field(2, ge=0, description="how often raydr restarts a dead or late process for one call")
    quorum: float = Field(
        1.0, gt=0, le=1, description="fraction of a round's clients that must answer; 1: all"
    )
    checkpoint_every: int = Field(10, ge=0, description="rounds between checkpoints; 0: none")


class FaultSettings(Faults):
    """Simulated faults and attackers, drawn with the seed."""

    adversary: AnyAdversary | None = Field(None, description="clients that send false messages")
