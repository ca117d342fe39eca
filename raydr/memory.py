"""Memory of this process: use, limit, and free memory."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CGROUP = Path("/sys/fs/cgroup")
"""Where a container finds its limits (cgroup version 2). Without a limit, ``memory.max`` does not exist."""


def available_memory_bytes() -> int:
    """Return the free memory for this process: the machine's, or less if a container has a limit."""
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
    """Return how much memory is needed and how much is free, as a clause, or None if there is enough.

    >>> lacking_memory(0) is None
    True
    >>> str(lacking_memory(10**18)).partition(", but")[0]
    '9.095e+05 TiB of memory is needed'
    """
    available = available_memory_bytes()
    if needed <= available:
        return None
    return f"{size(needed)} of memory is needed, but only {size(available)} is free here"


def size(count: int) -> str:
    """Return a number of bytes as text with a unit.

    >>> size(1728), size(3 * 2**30)
    ('1728 bytes', '3 GiB')
    """
    if count < 10_000:
        return f"{count} bytes"
    unit = next((each for each in ("KiB", "MiB", "GiB") if count < 1024 * _UNITS[each]), "TiB")
    return f"{count / _UNITS[unit]:.4g} {unit}"


_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def address_space_bytes() -> int | None:
    """Return the maximum address space of a process (``ulimit -v``), or None without a limit."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def forget_peak_memory() -> None:
    """Let :func:`peak_memory_bytes` begin again from the present memory, where the system can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory_bytes() -> int:
    """Return the peak resident memory of this process, since its start or :func:`forget_peak_memory`.

    Shared pages are included.
    """
    if _STATUS.exists():  # getrusage can return the peak of the parent process
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # kilobytes on Linux, bytes on macOS
