"""Cost of secure aggregation against plain ring sums of the same vectors, in this process and on one core.

Run ``python -m benchmarks.masking``: a minute. With ``--quick``: 20 clients x 1 MB and 100 x 10 kB, in
seconds.

Every client rounds its vector into the ring, masks it and reveals shares. The server adds the vectors and
removes the masks from the total, which must equal the plain sum bit for bit. One client in twenty drops out
after sharing. Plain and masked sums take turns, three times or more. Figures, in seconds: ``SETTING.plain_s``
is the ring sum. ``.share_s``, ``.mask_s``, ``.reveal_s``, ``.recover_s`` (all clients) and ``.unmask_s``
(server) are the stages of a sum, medians. Clients share for 16 sums at once, and ``.share_s`` is a sixteenth.
``.recover_s`` is needed only because clients are lost. ``.enter_s`` is the key agreement of all clients, once
per run. ``.bytes_per_client`` is what a client sends for a sum in addition to its vector. The ratio is a whole
secure sum over the plain one, within a turn, as a median. Other costs of a federated round, in messages and
processes, are not included.

``secret.CLIENTS.*`` is the clients' cost of one shared secret, once in a run that needs one: ``advertise_s``
and ``open_s`` of all clients, ``hand_out_s`` of the founder, and ``bytes``, all that the server receives and
forwards.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from raydr.arrays import Float64Array, Int64Array, UInt8Array
from raydr.federation.ring import RingSum, fraction_bits
from raydr.privacy.masking import (
    Batch,
    Group,
    Label,
    Member,
    advertise,
    degrees,
    enter,
    hand_out,
    keys_for,
    mask,
    receive,
    recover,
    reveal,
    share,
    shares_for,
    unmask,
)

STAGES = ("share", "mask", "reveal", "recover", "unmask")
SUMS = 16
"""Sums for which clients share at once, as in a long run."""


@dataclass(frozen=True)
class Setting:
    """A number of clients, each with a vector of doubles."""

    name: str
    clients: int
    size: int


SETTINGS = (Setting("100x1MB", 100, 125_000), Setting("1000x10kB", 1000, 1250))
QUICK = (Setting("20x1MB", 20, 125_000), Setting("100x10kB", 100, 1250))


class Clock:
    """Seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the seconds of the block to ``name``."""
        began = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - began


def encoded(vector: Float64Array, clients: int) -> Int64Array:
    """Encode a vector as a summand in the ring."""
    ring = RingSum(vector.shape, fraction_bits(1.0, clients))
    ring.add(vector, 1)
    return ring.total


def plain_sum(vectors: list[Float64Array], clients: int) -> Int64Array:
    """Sum clients like a host does."""
    ring = RingSum(vectors[0].shape, fraction_bits(1.0, clients))
    for vector in vectors:
        ring.add(vector, 1)
    return ring.total


def secure_sum(
    group: Group,
    members: dict[int, Member],
    label: Label,
    vectors: list[Float64Array],
    clock: Clock,
) -> tuple[Int64Array, int]:
    """Return the sum without masks, and the bytes that the first client sent in addition to its vector."""
    survivors = [client for client in group.clients if client % 20 != 19]
    dropped = [client for client in group.clients if client % 20 == 19]
    with clock("share"):
        shared = {client: share(members[client], label.batch) for client in group.clients}
    clock.seconds["share"] /= label.batch.sums
    total = np.zeros(vectors[0].shape, np.int64)
    for client in survivors:
        with clock("mask"):
            total += mask([members[client]], label, shared, encoded(vectors[client], len(group.clients)))
    revealed: dict[int, UInt8Array] = {}
    recovered: dict[int, UInt8Array] = {}
    for client in survivors:
        with clock("reveal"):
            revealed |= reveal({client: members[client].own}, group, label, survivors, dropped)
    for client in survivors:
        with clock("relay"):
            rows = shares_for(group, client, shared, dropped)
        with clock("recover"):
            recovered[client] = recover(members[client], label, rows, survivors, dropped, ())
    with clock("unmask"):
        total = unmask(group, label, shared, survivors, revealed, recovered, total)
    first, sums = shared[0], label.batch.sums
    ahead = (first.shares.nbytes + first.seeds.nbytes + first.checks.nbytes) // sums
    return total, ahead + revealed[0].nbytes + recovered[0].nbytes


def measured(setting: Setting, turns: int) -> tuple[dict[str, float], float]:
    """Measure one setting, and return its figures and its ratio.

    Raises
    ------
    ValueError
        If the secure sum is not equal to the plain one.
    """
    random, clients = np.random.default_rng(0), range(setting.clients)
    group = Group("benchmark", tuple(clients), degrees(setting.clients))
    secrets = [random.bytes(32) for _ in clients]
    vectors = [random.uniform(-1, 1, setting.size) for _ in clients]
    clock = Clock()
    with clock("advertise"):
        public = {client: advertise(secrets[client], group.run, client) for client in clients}
    with clock("enter"):
        members = {
            client: enter(secrets[client], group, client, keys_for(group, client, public))
            for client in clients
        }
    figures = {"enter_s": clock.seconds["enter"]}
    seconds: dict[str, list[float]] = defaultdict(list)
    kept = [vector for client, vector in enumerate(vectors) if client % 20 != 19]
    for turn in range(turns):
        clock = Clock()
        with clock("plain"):
            expected = plain_sum(kept, setting.clients)
        total, sent = secure_sum(
            group, members, Label(Batch("benchmark", turn, SUMS), turn % SUMS), vectors, clock
        )
        if not np.array_equal(total, expected):
            raise ValueError("the secure sum is not equal to the plain one")
        for stage in ("plain", *STAGES):
            seconds[stage].append(clock.seconds[stage])
        seconds["ratio"].append(sum(clock.seconds[stage] for stage in STAGES) / clock.seconds["plain"])
    figures |= {f"{stage}_s": statistics.median(seconds[stage]) for stage in ("plain", *STAGES)}
    figures["bytes_per_client"] = sent
    return figures, statistics.median(seconds["ratio"])


def agreed(clients: int) -> dict[str, float]:
    """Measure a secret that one client hands to all others."""
    random, clock, content = np.random.default_rng(0), Clock(), bytes(range(32))
    secrets = [random.bytes(32) for _ in range(clients)]
    with clock("advertise_s"):
        public = {client: advertise(secrets[client], "benchmark", client) for client in range(clients)}
    others = {client: key for client, key in public.items() if client}
    with clock("hand_out_s"):
        boxes = hand_out(content, secrets[0], "benchmark", 0, others)
    with clock("open_s"):
        for client, box in zip(others, boxes, strict=True):
            if receive(box, secrets[client], "benchmark", client, 0, public[0]) != content:
                raise ValueError("a client opened another secret")
    up = sum(key.nbytes for key in public.values()) + boxes.nbytes
    down = sum(key.nbytes for key in others.values()) + boxes.nbytes + len(others) * (8 + public[0].nbytes)
    return {**clock.seconds, "bytes": up + down}


def main() -> None:
    """Print the figures and write them."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.masking",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="fewer clients, once: within seconds")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    for setting in QUICK if arguments.quick else SETTINGS:
        found, ratio = measured(setting, 1 if arguments.quick else arguments.turns)
        graph = degrees(setting.clients)
        print(
            f"{setting.name}: {graph.masking} streams and {graph.sharing} shares each, {graph.threshold} make a secret;"
            f" {ratio:.1f} x the plain sum",
            flush=True,
        )
        for name, value in found.items():
            print(f"  {name:<20}{value:>12.4g}", flush=True)
        figures |= {f"{setting.name}.{name}": round(value, 5) for name, value in found.items()}
        ratios[setting.name] = round(ratio, 3)
    for clients in (10, 100 if arguments.quick else 1000):
        found = agreed(clients)
        print(f"one secret of {clients:,} clients")
        for name, value in found.items():
            print(f"  {name:<20}{value:>12.4g}", flush=True)
        figures |= {f"secret.{clients}.{name}": round(value, 5) for name, value in found.items()}
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"figures": figures, "ratios": ratios}, indent=2) + "\n")


if __name__ == "__main__":
    main()
