"""The interface that carries a federation's calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from raydr.federation.wire import Answer, Call, PartialSum, SumCall
from raydr.threads import one_blas_thread

Task = TypeVar("Task")
Result = TypeVar("Result")
Value = TypeVar("Value")


class Transport(Protocol):
    """Carries calls to the hosts of clients; it knows nothing about methods, ledgers or rounds."""

    def reset(self) -> None:
        """Restore every client's partition as it was read."""

    def ask(self, call: Call) -> list[Answer]:
        """Return one answer for each client asked; an unreachable client is a failure."""

    def sum(self, call: SumCall) -> Iterable[PartialSum]:
        """Return partial sums, as they arrive, with every client asked once, as summand or failure."""

    def compute(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterable[Result]:
        """Return the results of the server's own work on each task, in order, with one BLAS thread each."""

    def share(self, values: Iterable[Value]) -> Sequence[Value]:
        """Store large values for tasks, and return references that fetch a value when they are indexed."""

    def machines(self) -> int:
        """Return the number of machines that compute the server's own work."""


class WorkHere:
    """The server's own work in this process, for transports without processes for it."""

    def compute(self, work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[Result]:
        """Yield the results of the server's own work, one task after the other."""
        for task in tasks:
            with one_blas_thread():
                result = work(task)
            yield result

    def share(self, values: Iterable[Value]) -> list[Value]:
        """Return the values, which are in this process."""
        return list(values)

    def machines(self) -> int:
        """Return 1."""
        return 1
