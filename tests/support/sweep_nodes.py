"""A sweep over a head and two further raylets on this machine, one of which is killed on the way.

Run by test_sweeps_on_ray.py, with a sweep's file, the folder to write, and after how many trials the node is lost.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

import ray
from ray.cluster_utils import Cluster

from raydr.journal import Event, TrialEnded
from raydr.tune.reading import read_sweep
from raydr.tune.sweeping import sweep


def main(file: str, out: str, after: int) -> None:
    """Sweep, and lose a node."""
    looks = {"health_check_period_ms": 1000, "health_check_failure_threshold": 2}
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": looks}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    further = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False)
    ended = 0

    def hear(event: Event) -> None:
        nonlocal ended
        if isinstance(event, TrialEnded):
            ended += 1
            print(f"{ended}: {event.trial} {event.outcome}", flush=True)
            if ended == after:
                cluster.remove_node(further.pop(), allow_graceful=False)

    try:
        sweep(read_sweep(file), out=Path(out), listener=hear)
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
