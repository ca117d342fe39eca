"""What a Ray that raydr starts would leave behind: its processes and its folder."""

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
"""In the environment of every process of such a Ray, with a value of its own."""

_PATIENCE_S = 5.0
"""Seconds in which what was killed must be gone."""

_PREFIX = "raydr-"
INSIDE = "r"
"""What Ray is given of its folder: it opens to everybody what it is given (mode 0777), so that lies inside."""
_LONGEST_SOCKET = 103 if sys.platform == "darwin" else 107
"""Bytes that the system has for the path of a socket, without the zero at its end."""
_LONGEST_PLACE = _LONGEST_SOCKET - len(
    f"/{_PREFIX}12345678/{INSIDE}/session_2026-01-31_12-00-00_123456_4194304/sockets/plasma_store"
)
"""Bytes that are left for where Ray's folder lies: 8 letters are drawn, and no process has a larger number."""


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


def new_folder() -> Path:
    """Make the folder of a Ray: only this user can enter it (mode 0700), and its path is short enough for sockets.

    It lies in the first of ``RAY_TMPDIR``, ``TMPDIR``, ``/tmp`` and ``XDG_RUNTIME_DIR`` that will do. The last is in
    memory as a rule, and goes when the user logs out.

    Raises
    ------
    OutputError
        If it can lie in none of them.
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
            except OSError:  # not there, not writable, or full
                continue
    raise OutputError(
        f"Ray needs a folder for its sockets, and none of {', '.join(places)} can be written and has a path of at most"
        f" {_LONGEST_PLACE} bytes: set TMPDIR to a folder that does, or run without Ray: --set"
        " runtime.federation=inline."
    )


def logs_in(folder: Path) -> Path:
    """Return where the logs of the Ray are whose folder this is; the folder itself if it has not come so far."""
    return next(folder.glob(f"{INSIDE}/session_*_*/logs"), folder)


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
