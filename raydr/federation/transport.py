"""What carries a federation's calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from raydr.federation.host import Answer, Call, PartialSum, SumCall


class Transport(Protocol):
    """Carries calls to the hosts of clients; knows nothing of methods, ledgers or rounds."""

    def reset(self) -> None:
        """Return every client to its partition as it was read."""

    def ask(self, call: Call) -> list[Answer]:
        """One answer for each client asked; a client that could not be reached is a failure."""

    def sum(self, call: SumCall) -> Iterable[PartialSum]:
        """Partial sums, as they come, that together hold every client asked once, as summand or as failure."""
