"""Memory of this process, and its limit."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


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
