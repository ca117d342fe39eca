"""Memory of this process."""

from __future__ import annotations

import resource
import sys


def peak_memory_bytes() -> int:
    """Largest resident memory of this process so far, pages shared with other processes included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # kilobytes on Linux, bytes on macOS
