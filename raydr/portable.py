"""Bit-identical runs on different processors: environment variables that give libraries the same code everywhere.

By default, OpenBLAS, numpy, numba, torch and MKL look at the processor and choose code for it, and each choice rounds
differently. They read these variables once, when they are loaded. So a process must start with them.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path

from raydr.errors import ScenarioError
from raydr.threads import blas_core_types

_CORE_TYPE = "Haswell"

VARIABLES: Mapping[str, str] = {
    "OPENBLAS_CORETYPE": _CORE_TYPE,
    # numpy up to 2.3 names instruction sets, and later versions name levels. Each version ignores the other's names.
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR X86_V4",
    "NUMBA_CPU_NAME": "x86-64-v3",
    "NUMBA_CPU_FEATURES": "",  # those of the name; without this variable, those of the processor
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "COMPATIBLE",  # torch's matrix products; with AVX2, processors of Intel and AMD differ
}
"""Variables of a portable process. They stand for the level x86-64-v3: processors with AVX2 and FMA."""

_FLAGS = frozenset({"avx2", "fma"})


class NotPortableError(ScenarioError):
    """A portable run in a process that was started without :data:`VARIABLES`. The command starts itself again."""


def is_portable() -> bool:
    """Whether this process has all of :data:`VARIABLES`."""
    return all(os.environ.get(name) == value for name, value in VARIABLES.items())


def require_portable() -> None:
    """Check that this process computes with the same code as every other portable process.

    Raises
    ------
    ScenarioError
        If the processor lacks AVX2 or FMA, or numpy's BLAS does not obey the variables.
    NotPortableError
        If variables are missing.
    """
    if not _flags() >= _FLAGS:
        raise ScenarioError(
            "runtime.portable needs Linux on an x86-64 processor with AVX2 and FMA, and this is"
            f" {platform.system()} on {platform.machine()}{' without them' if _flags() else ''}: leave it out."
        )
    if not is_portable():
        missing = " ".join(f"{name}={value!r}" for name, value in VARIABLES.items())
        raise NotPortableError(
            "runtime.portable needs a process that was started with certain environment variables, and this one was"
            f" not. Set them before Python starts: {missing}. The command raydr does so itself."
        )
    found = blas_core_types()
    if set(found) != {_CORE_TYPE}:
        raise ScenarioError(
            f"runtime.portable needs numpy with OpenBLAS and its core type {_CORE_TYPE}, but this process uses"
            f" {', '.join(found) or 'another BLAS'}. Set the variables before Python starts, not inside it. If that"
            " does not help, install numpy with pip."
        )


def _flags() -> set[str]:
    """Return the instruction sets of an x86-64 processor under Linux; none elsewhere."""
    described = Path("/proc/cpuinfo")
    if platform.machine() != "x86_64" or not described.exists():
        return set()
    for line in described.read_text().splitlines():
        if line.startswith("flags"):
            return set(line.partition(":")[2].split())
    return set()
