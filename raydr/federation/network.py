"""The time that a run's messages take on the sites' lines: an account, not a delay.

Every call is one round trip. The server sends to all clients at once and goes on when the slowest has answered:

    seconds of a call = max over its clients of  latency + 8 down / (10^6 down_mbit_s) + 8 up / (10^6 up_mbit_s)

``down`` and ``up`` are the client's bytes in this call. The time of a run is the sum over its calls, repeated ones
included. The server's own line is no limit, nothing else uses the lines, and connections are open.

>>> network = Network((Line(latency_ms=50), Line(up_mbit_s=1, latency_ms=0)))
>>> network.seconds({0: 0, 1: 0}, {0: 10**6, 1: 10**6})
8.0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field

from raydr.privacy.ledger import Entry
from raydr.settings import Settings

_BITS, _MEGA, _MILLI = 8, 1e6, 1e-3


class Line(Settings):
    """The line between a site and the server."""

    up_mbit_s: float = Field(10.0, gt=0, description="bandwidth from the site to the server, in Mbit/s")
    down_mbit_s: float = Field(10.0, gt=0, description="bandwidth from the server to the site, in Mbit/s")
    latency_ms: float = Field(50.0, ge=0, description="time of a round trip, as ping shows it, in ms")

    def seconds(self, down: float, up: float) -> float:
        """Return the seconds of a round trip with this many bytes to the site and from it."""
        down_s = _BITS * down / (_MEGA * self.down_mbit_s)
        up_s = _BITS * up / (_MEGA * self.up_mbit_s)
        return _MILLI * self.latency_ms + down_s + up_s


@dataclass(frozen=True)
class Network:
    """The lines of all clients, in client order."""

    lines: tuple[Line, ...]

    def seconds(self, down: Mapping[int, float], up: Mapping[int, float]) -> float:
        """Return the seconds of a call, given the bytes to each client that is asked and from it."""
        return max(
            (self.lines[client].seconds(size, up.get(client, 0)) for client, size in down.items()),
            default=0.0,
        )

    def seconds_of(self, entry: Entry) -> float:
        """Return the seconds of messages from all clients, all equally long, of which the ledger has only the sum."""
        clients = len(self.lines)
        calls = entry.count // clients
        if not calls:
            return 0.0
        each = entry.bytes / entry.count
        return calls * self.seconds(dict.fromkeys(range(clients), 0.0), dict.fromkeys(range(clients), each))


@dataclass
class Clock:
    """The seconds of a run on a network so far.

    Attributes
    ----------
    network : Network
        The lines.
    seconds : float
        Seconds of all calls so far.
    """

    network: Network
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._down: dict[int, float] = {}
        self._up: dict[int, float] = {}

    def sent(self, client: int, size: float) -> None:
        """Add bytes that go to a client with the current call."""
        self._down[client] = self._down.get(client, 0.0) + size

    def received(self, client: int, size: float) -> None:
        """Add bytes that a client sends in the current call."""
        self._up[client] = self._up.get(client, 0.0) + size

    def end_call(self) -> None:
        """Add the seconds of the current call, and begin the next."""
        self.seconds += self.network.seconds(self._down, self._up)
        self._down.clear()
        self._up.clear()
