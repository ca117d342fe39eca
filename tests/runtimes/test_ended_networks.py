"""A test over Flower's network that is ended leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

SUPPORT = Path(__file__).parents[1] / "support"
CHILD = """
import subprocess, sys, time
own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(own.pid, flush=True)
time.sleep(600)
"""
PROGRAM = f"""
import sys, time
from pathlib import Path
from flower_network import Network
from interruption import interrupted_by_sigterm

found = Network(Path(sys.argv[1]))
with interrupted_by_sigterm():
    try:
        found.start("node", sys.executable, "-c", {CHILD!r})
        print(found.processes["node"].pid, flush=True)
        time.sleep(600)
    finally:
        for name in list(found.processes):
            found.end(name)
"""


def test_processes_of_a_network_end_with_a_test_that_is_terminated(tmp_path: Path) -> None:
    """The child of the node has a session of its own, as Flower's apps have."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(SUPPORT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert parent.stdout is not None
        node, log = psutil.Process(int(parent.stdout.readline())), tmp_path / "node.log"
        while not log.read_text():
            time.sleep(0.05)
        processes = [node, psutil.Process(int(log.read_text()))]
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(60)
        assert psutil.wait_procs(processes, 10)[1] == []
    finally:
        parent.kill()
        parent.wait()
