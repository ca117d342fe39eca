"""What carries a federation's calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from raydr.federation.wire import Answer, Call, PartialSum, SumCall

Task = TypeVar("Task")
Result = TypeVar("Result")


class Transport(Protocol):
    """Carries calls to the hosts of clients; knows nothing of methods, ledgers or rounds."""

    def reset(self) -> None:
        """Return every client to its partition as it was read."""

    def ask(self, call: Call) -> list[Answer]:
        """One answer for each client asked; a client that could not be reached is a failure."""

    def sum(self, call: SumCall) -> Iterable[PartialSum]:
        """Partial sums, as they come, that together hold every client asked once, as summand or as failure."""

    def compute(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterable[Result]:
        """Results of the server's own work on each task, in order, each computed with one BLAS thread."""
