"""Processes and folder of a Ray that raydr starts, and their removal."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

import psutil

from raydr.actors.ray_private import worker
from raydr.errors import OutputError

MARK = "RAYDR_STARTED"
"""Environment variable of every process of such a Ray, with a value unique to that Ray."""

_PATIENCE_S = 5.0
"""Seconds in which killed processes must be gone."""

_PREFIX = "raydr-"
INSIDE = "r"
"""Subfolder for Ray. Ray opens its folder to everyone (mode 0777), so it lies inside a private one."""
_LONGEST_SOCKET = 103 if sys.platform == "darwin" else 107
"""Longest path of a socket in bytes, without the final zero."""
_LONGEST_PLACE = _LONGEST_SOCKET - len(
    f"/{_PREFIX}12345678/{INSIDE}/session_2026-01-31_12-00-00_123456_4194304/sockets/plasma_store"
)
"""Longest path for the parent of Ray's folder, with 8 random letters and the largest process number."""


def groups_of_ray(mark: str) -> set[int]:
    """Return the process groups of the Ray with this mark: each part leads one, and workers follow theirs."""
    node = worker._global_node
    parts = {part.process.pid for parts in node.all_processes.values() for part in parts} if node else set()
    return (parts | set(_running(mark, ()).values())) - {os.getpgrp()}


def end_processes(mark: str, groups: Collection[int]) -> None:
    """Kill processes that still run with this mark or in these groups.

    Normally Ray ends its own processes. After an interrupted start it has forgotten them. Its agents lose the mark
    when they change their title, and search for a killed raylet for a minute.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while (left := _running(mark, groups)) and time.monotonic() < deadline:
        for process in left:
            try:
                process.kill()
            except psutil.Error:
                continue
        psutil.wait_procs(left, timeout=1.0)


def new_folder() -> Path:
    """Create the folder of a Ray, private (mode 0700) and with a path short enough for sockets.

    It lies in the first usable of ``RAY_TMPDIR``, ``TMPDIR``, ``/tmp`` and ``XDG_RUNTIME_DIR``. The last is usually in
    memory, and is removed when the user logs out.

    Raises
    ------
    OutputError
        If none of them is usable.
    """
    named = [
        os.environ.get("RAY_TMPDIR"),
        os.environ.get("TMPDIR"),
        "/tmp",
        os.environ.get("XDG_RUNTIME_DIR"),
    ]
    places = list(dict.fromkeys(os.path.abspath(place) for place in named if place))
    for place in places:
        if len(os.fsencode(place)) <= _LONGEST_PLACE:
            try:
                return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
            except OSError:  # missing, not writable, or full
                continue
    raise OutputError(
        f"Ray needs a writable folder for its sockets with a path of at most {_LONGEST_PLACE} bytes, and none of"
        f" {', '.join(places)} is one. Set TMPDIR to such a folder, or run without Ray: --set"
        " runtime.federation=inline."
    )


def logs_in(folder: Path) -> Path:
    """Return the log folder of the Ray in this folder; the folder itself if there are no logs yet."""
    return next(folder.glob(f"{INSIDE}/session_*_*/logs"), folder)


def _running(mark: str, groups: Collection[int]) -> dict[psutil.Process, int]:
    """Return the running processes with this mark or in these groups, each with its group."""
    found = {}
    for process in psutil.process_iter():
        try:
            group = os.getpgid(process.pid)
            ours = group in groups or process.environ().get(MARK) == mark
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found[process] = group
        except (psutil.Error, OSError):  # another user's process, or ended
            continue
    return found
