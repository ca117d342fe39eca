"""What a Ray that raydr started may leave behind: processes and a folder of its session."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection
from pathlib import Path

import psutil
from ray._private import worker

MARK = "RAYDR_STARTED"
"""In the environment of every process of such a Ray, with a value of its own."""

_PATIENCE_S = 5.0
"""Seconds in which what was killed must be gone."""


def groups_of_ray(mark: str) -> set[int]:
    """Process groups of the Ray that was started with this mark: each part leads one, and workers follow theirs."""
    node = worker._global_node
    parts = {part.process.pid for parts in node.all_processes.values() for part in parts} if node else set()
    return (parts | {os.getpgid(process.pid) for process in _running(mark, ())}) - {os.getpgrp()}


def end_processes(mark: str, groups: Collection[int]) -> None:
    """Kill what runs still with this mark, or in these groups.

    Ray ends its own when all goes well. When its start was interrupted it has forgotten what it started. Its agents,
    which have lost the mark with their title, look for a raylet that was killed for a minute.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while (left := _running(mark, groups)) and time.monotonic() < deadline:
        for process in left:
            try:
                process.kill()
            except psutil.Error:
                continue
        psutil.wait_procs(left, timeout=1.0)


def session_folders() -> set[Path]:
    """Folders of sessions that this process has started, by their names."""
    from ray._common.utils import get_default_ray_temp_dir

    return set(Path(get_default_ray_temp_dir()).glob(f"session_*_{os.getpid()}"))


def remove_session(folder: Path) -> None:
    """Remove the folder of a session that is over, and Ray's link to the latest session if it leads there."""
    latest = folder.with_name("session_latest")
    try:
        if latest.readlink().name == folder.name:
            latest.unlink()
    except OSError:  # no link, or somebody else's by now
        pass
    shutil.rmtree(folder, ignore_errors=True)


def _running(mark: str, groups: Collection[int]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            ours = os.getpgid(process.pid) in groups or process.environ().get(MARK) == mark
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):  # somebody else's, or gone by now
            continue
    return found
