"""Where a run took place: versions, processor, memory."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from raydr.registry import extensions
from raydr.threads import cores

_PACKAGES = ("numpy", "scipy", "scikit-learn", "openTSNE", "umap-learn", "numba", "ray", "pyarrow", "bokeh")


def environment() -> dict[str, Any]:
    """Versions and hardware, as ``environment.json`` holds them."""
    import psutil

    return {
        "raydr": version("raydr"),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "cpu": _processor(),
        "cores": cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "packages": {name: version(name) for name in _PACKAGES} | extensions(),
    }


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    if described.exists():
        for line in described.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
