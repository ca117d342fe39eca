"""Cost of secure aggregation in a federated round: the same rounds on Ray, plain and secure, in turns.

Run ``python -m benchmarks.secure_rounds``: some minutes. With ``--quick``: 20 clients, one turn.

In ``bare`` rounds, each client returns a megabyte (or 10 kB) without work: the server's numbers, each plus
one. ``gradient`` rounds are Fed-tSNE's: each client has 600 rows of 784 features and computes the gradient of
160 landmarks, a megabyte. Clients share one actor per core. Both forms must give the same bits.

Clients share the secrets of their masks for a batch of rounds at once, so rounds differ. Figures:
``SETTING.plain_s`` and ``.secure_s`` are seconds of a round, the mean over one whole batch, the last that the
run begins: 16 rounds, or 4 with gradients. They are medians over turns. ``.first_s`` is the first round, in
which clients agree on keys. The ratio is secure over plain, within a turn, as a median.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.increment_messages import Increment
from raydr.actors.cluster import connected
from raydr.actors.placement import place
from raydr.actors.resources import Room
from raydr.actors.transport import RayTransport
from raydr.arrays import Float64Array
from raydr.federation import Context, FaultPlan, Federation
from raydr.federation.messages import Request
from raydr.federation.secure import SecureSums
from raydr.methods.landmarks.learning import StepRequest
from raydr.threads import cores

ROWS, FEATURES, LANDMARKS = 600, 784, 160


@dataclass(frozen=True)
class Setting:
    """A number of clients, each of which sends this many doubles, with the work of a gradient or none."""

    name: str
    clients: int
    size: int
    gradient: bool = False

    @property
    def batch(self) -> int:
        """Rounds of the last batch; batches of 1, 2, 4, ... rounds come before it."""
        return 4 if self.gradient else 16


SETTINGS = (
    Setting("bare 100x1MB", 100, 125_000),
    Setting("bare 1000x10kB", 1000, 1250),
    Setting("gradient 100x1MB", 100, LANDMARKS * FEATURES, gradient=True),
)
QUICK = (
    Setting("bare 20x1MB", 20, 125_000),
    Setting("gradient 20x1MB", 20, LANDMARKS * FEATURES, gradient=True),
)


def request_of(setting: Setting, values: Float64Array) -> Request[Any]:
    """Return the request of a round."""
    if not setting.gradient:
        return Increment(values, 0.0)
    return StepRequest(
        landmarks=values.reshape(LANDMARKS, FEATURES),
        gamma=1.0 / FEATURES,
        step=0.1,
        local_steps=1,
        share="gradient",
        objective=False,
    )


def seconds_of_rounds(setting: Setting, secure: bool, rounds: int) -> tuple[list[float], bytes]:
    """Return the seconds of each round, and the bits of the last sum."""
    rng = np.random.default_rng(0)
    shape = (ROWS, FEATURES) if setting.gradient else (1, 1)
    rows = [rng.normal(size=shape) for _ in range(setting.clients)]
    placements = place(rows, min(setting.clients, cores()), Room.here())
    transport = RayTransport(
        placements=placements, seed=0, faults=FaultPlan(), timeout_s=600.0, run="benchmark"
    )
    try:
        context = Context(seed=0, run="benchmark", secure=SecureSums() if secure else None)
        federation, values = Federation(transport, setting.clients, context), rng.normal(size=setting.size)
        seconds, reply = [], None
        for _ in federation.rounds(rounds):
            began = time.perf_counter()
            reply = federation.mean(request_of(setting, values))
            seconds.append(time.perf_counter() - began)
    finally:
        transport.close()
    return seconds, b"".join(np.asarray(value).tobytes() for value in vars(reply).values())


def measured(setting: Setting, turns: int) -> tuple[dict[str, float], float]:
    """Measure one setting, and return its figures and its ratio.

    Raises
    ------
    ValueError
        If the secure rounds give other bits.
    """
    plain, hidden, first, ratios = [], [], [], []
    for turn in range(turns):
        ways = {}
        for secure in (False, True) if turn % 2 == 0 else (True, False):
            ways[secure] = seconds_of_rounds(setting, secure, 2 * setting.batch - 1)
        if ways[False][1] != ways[True][1]:
            raise ValueError("the secure sum is not equal to the plain one")
        plain.append(statistics.mean(ways[False][0][-setting.batch :]))
        hidden.append(statistics.mean(ways[True][0][-setting.batch :]))
        first.append(ways[True][0][0])
        ratios.append(hidden[-1] / plain[-1])
    figures = {
        "plain_s": statistics.median(plain),
        "secure_s": statistics.median(hidden),
        "first_s": statistics.median(first),
    }
    return figures, statistics.median(ratios)


def main() -> None:
    """Print the figures and write them."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.secure_rounds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="20 clients, one turn")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    turns = 1 if arguments.quick else 3
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    print(f"{'':<20}{'plain':>10}{'secure':>10}{'first':>10}{'ratio':>8}")
    with connected():
        for setting in QUICK if arguments.quick else SETTINGS:
            found, ratio = measured(setting, turns)
            row = "".join(f"{value:>10.3f}" for value in found.values())
            print(f"{setting.name:<20}{row}{ratio:>8.2f}", flush=True)
            figures |= {f"{setting.name}.{name}": round(value, 5) for name, value in found.items()}
            ratios[setting.name] = round(ratio, 3)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"figures": figures, "ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
