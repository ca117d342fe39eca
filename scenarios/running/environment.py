"""Environment of a run: versions, processor, memory."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from raydr.extras import EXTRAS
from raydr.registry import extensions
from raydr.runfolder.records import Environment
from raydr.threads import blas_core_types, cores

_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "ray", "pyarrow")


_DISTRIBUTIONS = {"mlflow": "mlflow-skinny"}
"""Distribution names of packages that differ from the package's name."""


def environment(
    *,
    run: str,
    started: datetime,
    federation: str,
    actors: int,
    device: str,
    peak_memory_bytes: Mapping[str, int],
    network_seconds: float | None = None,
) -> Environment:
    """Return versions and hardware of this machine, and the facts about a run except its seconds."""
    import psutil

    return Environment(
        run=run,
        raydr=version("raydr"),
        python=sys.version.split()[0],
        platform=platform.platform(),
        cpu=_processor(),
        core_types=blas_core_types(),
        cores=cores(),
        memory_bytes=psutil.virtual_memory().total,
        packages=versions(),
        started=started.isoformat(timespec="seconds"),
        federation=federation,
        actors=actors,
        device=device,
        peak_memory_bytes=peak_memory_bytes,
        seconds={},
        network_seconds=network_seconds,
    )


def versions() -> dict[str, str]:
    """Return the installed versions of packages that a run's result depends on."""
    return {name: version(name) for name in _PACKAGES} | extensions()


def described() -> str:
    """Return the environment for error reports, one line each: raydr, Python, packages."""
    lines = [
        f"raydr {version('raydr')}",
        f"Python {sys.version.split()[0]} on {platform.platform()}, {cores()} cores",
        *(f"{name} {found}" for name, found in versions().items()),
    ]
    for module, extra in EXTRAS.items():
        package = _DISTRIBUTIONS.get(module, module)
        try:
            lines.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            lines.append(f"{package}: not installed (pip install 'raydr[{extra}]')")
    return "\n".join(lines)


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    if described.exists():
        for line in described.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
