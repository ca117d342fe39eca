"""Other x86-64 processors, emulated on this one: libraries choose their code as they do there, at full speed.

``processor.c`` answers the instruction CPUID for an older processor, by which libraries recognise it. The kernel must
let CPUID fault: Linux on Intel since 2012, on AMD since Zen 4, and most virtual machines (``cpuid_fault`` in
``/proc/cpuinfo``). The C library is loaded first and still sees the real processor.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("processor.c")
PROCESSORS = ("haswell", "zen", "skylakex")
"""Intel of 2013, AMD of 2019, and Intel of 2017 with AVX-512."""


def why_not() -> str | None:
    """Return why this machine cannot emulate others, or None."""
    described = Path("/proc/cpuinfo")
    flags = described.read_text().split() if described.exists() else []
    for flag in ("cpuid_fault", "avx512vl"):
        if flag not in flags:
            return f"/proc/cpuinfo has no {flag}"
    return None if shutil.which("cc") else "there is no C compiler (cc)"


def emulating(processor: str, folder: Path) -> dict[str, str]:
    """Return the environment variables of a process on a processor; compile the library in the folder if needed.

    Raises
    ------
    RuntimeError
        If this machine cannot emulate processors.
    """
    reason = why_not()
    if reason is not None:
        raise RuntimeError(f"Cannot emulate other processors: {reason}.")
    library = folder / "processor.so"
    if not library.exists():
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "RAYDR_PROCESSOR": processor}
