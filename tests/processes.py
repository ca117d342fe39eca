"""Processes of a simulation, looked up in Ray's own table: their titles and parents are not the same everywhere."""

from __future__ import annotations

import psutil


def simulation_processes(kind: str | None = None) -> list[psutil.Process]:
    """Processes of coordinators and clients on this machine that run still, whoever started them on the cluster.

    Parameters
    ----------
    kind : {"CoordinatorProcess", "ClientProcess"}, optional
        Both without it.
    """
    from ray._private.state import actors  # the public list of actors asks a dashboard, and tests have none

    kinds = {kind} if kind else {"CoordinatorProcess", "ClientProcess"}
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
