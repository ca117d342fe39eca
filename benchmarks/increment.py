"""The round of :mod:`benchmarks.rounds`, for any system: every client returns x + 1, and the server averages.

Ray's and Flower's workers import this module, so it is light.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from raydr.arrays import Float64Array

_UNITS = {"KB": 1_000, "MB": 1_000_000}


@dataclass(frozen=True)
class Setting:
    """One cell of the protocol.

    Attributes
    ----------
    clients : int
        Number of clients. All of them take part in every round.
    size : int
        Bytes of x, float64, sent to every client and back.
    work_s : float
        Seconds of work on a processor per client and round.
    """

    clients: int
    size: int
    work_s: float = 0.0

    @classmethod
    def named(cls, name: str) -> Setting:
        """Read a name such as ``20x1KB`` or ``20x1KB+50ms``.

        Raises
        ------
        ValueError
            If the name is not a setting.
        """
        parts = re.fullmatch(r"(\d+)x(\d+)(KB|MB)(?:\+(\d+)ms)?", name)
        if parts is None:
            raise ValueError(
                f"{name!r} is not a setting. Write CLIENTSxBYTES, for example 20x1KB, 1000x1MB or 20x1KB+50ms"
            )
        clients, count, unit, work = parts.groups()
        return cls(int(clients), int(count) * _UNITS[unit], int(work or 0) / 1000)

    @property
    def name(self) -> str:
        """The name, as read by :meth:`named`."""
        unit = "MB" if self.size >= _UNITS["MB"] else "KB"
        work = f"+{self.work_s * 1000:.0f}ms" if self.work_s else ""
        return f"{self.clients}x{self.size // _UNITS[unit]}{unit}{work}"

    def start(self) -> Float64Array:
        """Return x before the first round."""
        return np.zeros(self.size // 8)


@dataclass(frozen=True)
class Timing:
    """Duration of one run of a setting.

    Attributes
    ----------
    setting : str
        Name of the setting.
    startup_s : float
        Seconds from the start of the simulation to the start of the first round. Imports are not included.
    rounds_s : list of float
        Seconds of each round, including the first.
    """

    setting: str
    startup_s: float
    rounds_s: list[float]

    def tell(self) -> None:
        """Print the timing as one line, for :mod:`benchmarks.rounds`."""
        print(json.dumps(asdict(self)), flush=True)


def incremented(values: Float64Array, work_s: float) -> Float64Array:
    """Do the client's part: keep a processor busy for ``work_s`` seconds, then return ``values`` + 1."""
    # Processor time. With wall clock time, processes that share a processor would work at the same time.
    began = time.thread_time()
    while time.thread_time() - began < work_s:
        pass
    return np.asarray(values + 1.0)


def timed_rounds(setting: Setting, rounds: int, step: Callable[[Float64Array], Float64Array]) -> list[float]:
    """Return the seconds of each round. ``step`` runs one round, and checking the result is not timed."""
    values, seconds = setting.start(), []
    for number in range(1, rounds + 1):
        began = time.perf_counter()
        values = step(values)
        seconds.append(time.perf_counter() - began)
        require(values, number)
    return seconds


def require(values: Float64Array, number: int, tolerance: float = 0.0) -> None:
    """Raise ValueError unless every element equals the number of the round."""
    if not np.all(np.abs(values - number) <= tolerance):
        raise ValueError(f"after round {number} the server holds {np.unique(values)[:5].tolist()}")
