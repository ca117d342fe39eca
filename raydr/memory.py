"""Memory of this process, its limit, and what is free for it."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CGROUP = Path("/sys/fs/cgroup")
"""Where a container finds its own limits (version 2); without any there is no ``memory.max``."""


def available_memory_bytes() -> int:
    """Return the memory that is free for this process: the machine's, or less where a container has a limit."""
    import psutil

    available = int(psutil.virtual_memory().available)
    try:
        limit = int((_CGROUP / "memory.max").read_text())  # "max" without a limit
        used = int((_CGROUP / "memory.current").read_text())
        cached = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):
        return available
    return max(0, min(available, limit - used + int(cached.get("inactive_file", 0))))


def lacking_memory(needed: int) -> str | None:
    """Return how much memory is needed and how much is free, as a clause; None where it suffices.

    >>> lacking_memory(0) is None
    True
    >>> str(lacking_memory(10**18)).partition(", and ")[0]
    '9.095e+05 TiB of memory are needed'
    """
    available = available_memory_bytes()
    if needed <= available:
        return None
    return f"{size(needed)} of memory are needed, and {size(available)} are free here"


def size(count: int) -> str:
    """Write a number of bytes.

    >>> size(1728), size(3 * 2**30)
    ('1728 bytes', '3 GiB')
    """
    if count < 10_000:
        return f"{count} bytes"
    unit = next((each for each in ("KiB", "MiB", "GiB") if count < 1024 * _UNITS[each]), "TiB")
    return f"{count / _UNITS[unit]:.4g} {unit}"


_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def address_space_bytes() -> int | None:
    """Return how much a process may map at most (``ulimit -v``); None where there is no limit."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def peak_memory_bytes() -> int:
    """Largest resident memory of this process so far, pages shared with other processes included."""
    if _STATUS.exists():  # what the kernel tells otherwise may be that of the process which started this one
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # kilobytes on Linux, bytes on macOS
