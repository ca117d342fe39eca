"""A cluster with a dashboard on this machine, until standard input closes; run by test_jobs.py.

Its first line on standard output says where it is. The environment that it is started with is its own, token included.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # On a busy machine everything takes its time.
    "RAY_raylet_start_wait_time_s": "240",
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "240",
    "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": "240",
    # Jobs run with `python`, whichever comes first.
    "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]),
}


MODULES = "JobHead,NodeHead,StateHead"
"""Of the dashboard's nine, each a process: jobs, the nodes that they need, and files of logs."""


def main(temp_dir: str, port: int) -> None:
    """Start a head, say where, wait, end."""
    from ray._common.utils import get_default_ray_temp_dir
    from ray._private import services
    from ray._private.utils import write_ray_address
    from ray.cluster_utils import Cluster

    start = services.start_ray_process

    def start_some(command: list[str], kind: str, **options: Any) -> Any:
        return start(
            [*command, f"--modules-to-load={MODULES}"] if kind == "dashboard" else command, kind, **options
        )

    services.start_ray_process = start_some

    head = {
        "num_cpus": 2,
        "include_dashboard": True,
        "dashboard_host": "127.0.0.1",
        "dashboard_port": port,
        "temp_dir": temp_dir,
        "object_store_memory": 10**8,
    }
    os.makedirs(get_default_ray_temp_dir(), exist_ok=True)  # where Cluster writes its address, too
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        # As `ray start` does it: a job would look for its cluster among all that run on this machine.
        write_ray_address(cluster.address, temp_dir)
        place = {"url": f"http://{cluster.head_node.webui_url}", "address": cluster.address}
        print(json.dumps(place | {"session": cluster.head_node.get_session_dir_path()}), flush=True)
        sys.stdin.read()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
