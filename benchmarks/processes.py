"""A measurement in a process of its own: what it says, and the memory of all that it starts."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import psutil

_INTERVAL_S = 0.25


def tree(process: psutil.Process) -> list[psutil.Process]:
    """Return a process and all its descendants that live."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [process, *process.children(recursive=True)]
    return []


def memory_mb(processes: Sequence[psutil.Process]) -> float:
    """Resident megabytes of processes together; a page that several share counts once in all (Linux's PSS)."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            full = process.memory_full_info()
            total += getattr(full, "pss", full.rss)
    return total / 1e6


@dataclass
class PeakMemory:
    """Largest memory of a process tree, looked at four times a second while it runs, or as often as is said.

    A look at a gigabyte takes some ten milliseconds of a core.
    """

    process: psutil.Process
    interval_s: float = _INTERVAL_S
    _peak_mb: float = 0.0
    _ended: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Look until told to stop."""
        while not self._ended.wait(self.interval_s):
            self._peak_mb = max(self._peak_mb, memory_mb(tree(self.process)))

    def taken(self) -> float:
        """Return the peak since the last time that it was taken, in megabytes, and begin anew."""
        peak, self._peak_mb = self._peak_mb, 0.0
        return max(peak, memory_mb(tree(self.process)))

    def end(self) -> None:
        """Stop looking."""
        self._ended.set()


def said(
    module: str, *arguments: str, timeout_s: float, interval_s: float = _INTERVAL_S
) -> Iterator[tuple[str, float]]:
    """Run ``python -m module`` and bring each line of JSON that it prints, with the peak memory before it.

    Raises
    ------
    RuntimeError
        If it fails, or takes longer than ``timeout_s``; with the end of what it wrote to its standard error.
    """
    environment = {**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    with tempfile.TemporaryDirectory() as scratch, open(f"{scratch}/errors", "w+") as errors:
        environment.setdefault("FLWR_HOME", scratch)
        command = [sys.executable, "-m", module, *arguments]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        memory = PeakMemory(psutil.Process(child.pid), interval_s)
        watcher = threading.Thread(target=memory.watch, daemon=True)
        alarm = threading.Timer(timeout_s, _end, [child.pid])
        watcher.start()
        alarm.start()
        try:
            for line in child.stdout or ():
                if line.startswith("{"):
                    yield line, memory.taken()
            status = child.wait()
        finally:
            alarm.cancel()
            memory.end()
            _end(child.pid)
            child.wait()
        if status:
            errors.seek(0)
            raise RuntimeError(f"{' '.join(command[2:])} ended with status {status}: {errors.read()[-800:]}")


def _end(pid: int) -> None:
    """End a process that this one started, and all that it started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in reversed(tree(psutil.Process(pid))):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
