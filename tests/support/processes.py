"""Processes of a simulation, looked up in Ray's own table: their titles and parents are not the same everywhere.

And commands, started as from a terminal and followed by a mark in their environment.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

TOKEN = "RAYDR_TEST_TOKEN"
"""In the environment of a command that a test starts, and so of all that the command starts."""

CLUSTER_TOKEN = f"cluster-{os.getpid()}"
"""The mark of the cluster that the tests of this process share, and of all that runs on it."""

_TERMINAL = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def as_from_a_terminal(command: Sequence[str]) -> list[str]:
    """The command, with signals as a terminal leaves them: tests in the background inherit an ignored SIGINT."""
    return [sys.executable, "-c", _TERMINAL, *command]


def processes_of(token: str) -> list[psutil.Process]:
    """All that a command started, and itself: they inherit its environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(TOKEN) == token and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):  # not ours, or gone by now
            continue
    return found


def all_gone(token: str, timeout_s: float = 120) -> bool:
    """Whether nothing is left of a command and of what it started, or will be in time."""
    patience = time.monotonic() + timeout_s
    while (left := processes_of(token)) and time.monotonic() < patience:
        time.sleep(0.1)
    return not left


def becomes_true(look: Callable[[], bool], timeout_s: float = 240) -> bool:
    """Wait until ``look`` returns true; return False after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not look():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def wait_until_heeded(pid: int, number: int = signal.SIGTERM) -> None:
    """Wait until a command has its own answer to a signal, which begins where its first lines are run."""
    status = Path(f"/proc/{pid}/status")
    while status.exists():
        caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt"))
        if int(caught.split()[1], 16) >> (number - 1) & 1:
            return
        time.sleep(0.002)
    if os.path.exists("/proc/self/status"):
        raise AssertionError("the command ended before it could be told to")
    time.sleep(0.3)  # no Linux


def simulation_processes(kind: str | None = None) -> list[psutil.Process]:
    """Processes of simulations on this machine that run still, whoever started them on the cluster.

    Parameters
    ----------
    kind : {"CoordinatorProcess", "ClientProcess", "EvaluationProcess"}, optional
        All without it.
    """
    from ray._private.state import actors  # the public list of actors asks a dashboard, and tests have none

    kinds = {kind} if kind else {"CoordinatorProcess", "ClientProcess", "EvaluationProcess"}
    found = []
    for actor in actors().values():
        if actor["ActorClassName"] not in kinds or not actor["Pid"]:
            continue
        ended = actor["EndTime"] / 1000 or float("inf")
        try:
            process = psutil.Process(actor["Pid"])
            # A process that was started after the actor's end has been given its number.
            if process.create_time() <= ended and runs(process):
                found.append(process)
        except psutil.Error:
            continue
    return found


def runs(process: psutil.Process) -> bool:
    """Whether a process still runs; one that ended and that nobody asked about is a zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
