"""The messages of :mod:`benchmarks.increment` in raydr, in a separate module that Ray's workers can import."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.increment import incremented
from raydr.arrays import Float64Array
from raydr.federation import Client, Granularity, Range, Reply, Request, answers


@dataclass(frozen=True)
class Incremented(Reply, granularity=Granularity.AGGREGATE, what="the server's numbers, each plus one"):
    """A client's x + 1."""

    values: Float64Array

    @staticmethod
    def ranges(request: Increment, rows: int) -> dict[str, Range]:
        """Return the ranges: as many numbers as were sent, for up to a million rounds."""
        return {"values": Range(request.values.shape, 1e6)}


@dataclass(frozen=True)
class Increment(Request[Incremented], what="the numbers of the server"):
    """Ask every client for ``values`` + 1, after ``work_s`` seconds of work."""

    values: Float64Array
    work_s: float


@answers(Increment)
def increment(client: Client, request: Increment) -> Incremented:
    """Do a client's whole work in a round."""
    return Incremented(incremented(request.values, request.work_s))
