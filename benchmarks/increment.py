"""The round that :mod:`benchmarks.rounds` measures: every client returns x + 1.

A module of its own, because Ray's workers and Flower's have to import what they unpickle.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array
from raydr.federation import Client, Granularity, Range, Reply, Request, answers


@dataclass(frozen=True)
class Incremented(Reply, granularity=Granularity.AGGREGATE, what="the server's numbers, each plus one"):
    """A client's x + 1."""

    values: Float64Array

    @staticmethod
    def ranges(request: Increment, rows: int) -> dict[str, Range]:
        """As many numbers as were sent, and no more than a million rounds."""
        return {"values": Range(request.values.shape, 1e6)}


@dataclass(frozen=True)
class Increment(Request[Incremented], what="the numbers after so many rounds"):
    """Ask every client for ``values`` + 1, after ``work_s`` seconds of work."""

    values: Float64Array
    work_s: float


@answers(Increment)
def increment(client: Client, request: Increment) -> Incremented:
    """Client part: the whole of a client's work in a round."""
    return Incremented(incremented(request.values, request.work_s))


def incremented(values: Float64Array, work_s: float) -> Float64Array:
    """Keep a processor busy for ``work_s`` seconds, then return ``values`` + 1."""
    began = time.perf_counter()
    while time.perf_counter() - began < work_s:
        pass
    return np.asarray(values + 1.0)
