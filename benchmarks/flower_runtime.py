"""The exchanges of :mod:`benchmarks.runtimes` over Flower's simulation engine.

Run ``python -m benchmarks.flower_runtime flower NODES``; needs ``pip install 'flwr[simulation]'``. It prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # read when flwr is imported

from flwr.app import Context
from flwr.serverapp import Grid
from flwr.simulation import run_simulation

from benchmarks.runtime_systems import LoneHost, host_of, measured
from raydr.runtimes.flower.client_app import client_app
from raydr.runtimes.flower.errands import Failed
from raydr.runtimes.flower.grid import GridCourier
from raydr.runtimes.flower.server_app import server_app
from raydr.runtimes.flower.site_node import SiteNode
from raydr.runtimes.flower.transport import FlowerTransport
from raydr.threads import cores


@dataclass(frozen=True)
class SimulatedCourier(GridCourier):
    """Carries messages to the engine's nodes, which have no keys, and counts the bytes."""

    sites: Sequence[str] = ()
    sent: list[int] = field(default_factory=list)

    def _present(self) -> dict[str, int]:
        nodes = sorted(self.grid.get_node_ids())  # fewer while the engine starts
        return dict(zip(self.sites, nodes, strict=True)) if len(nodes) == len(self.sites) else {}

    def exchange(self, messages: Mapping[str, bytes], timeout_s: float) -> dict[str, bytes | Failed]:
        """Return each site's answer."""
        answers = super().exchange(messages, timeout_s)
        self.sent.extend(map(len, messages.values()))
        self.sent.extend(len(answer) for answer in answers.values() if isinstance(answer, bytes))
        return answers


def node_of(folder: Path, context: Context) -> SiteNode:
    """Return the node of a site. The server decides which site a node of the engine is, by its first message."""
    own = folder / str(context.node_id)
    return SiteNode(own, lambda client: LoneHost(host_of(client)))


def main() -> None:
    """Run the engine, which runs only once per process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flower_runtime", description=__doc__)
    parser.add_argument("system", choices=["flower"])
    parser.add_argument("nodes", type=int)
    nodes = parser.parse_args().nodes
    sites, found = [f"site{node:03d}" for node in range(nodes)], {}

    def work(grid: Grid, config: Mapping[str, Any]) -> None:
        courier = SimulatedCourier(grid, {}, poll_s=0.005, sites=sites)
        found.update(measured(FlowerTransport(courier=courier, sites=sites, run="runtimes"), nodes))
        found["kB_sent"] = sum(courier.sent) / 1e3 / nodes / found["exchanges"]

    with tempfile.TemporaryDirectory() as folder:
        run_simulation(
            server_app(work),
            client_app(partial(node_of, Path(folder))),
            num_supernodes=nodes,
            backend_config={
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                # Its own Ray. Without an address, it would join a running one.
                "init_args": {"num_cpus": cores(), "address": "local"},
            },
        )
    if not found:
        raise RuntimeError("Flower's engine ended without a result")
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
