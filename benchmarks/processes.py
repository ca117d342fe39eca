"""A measurement in a separate process: its output, and the memory of all its child processes."""

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
    """Return a process and all its living descendants."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [process, *process.children(recursive=True)]
    return []


def memory_mb(processes: Sequence[psutil.Process]) -> float:
    """Return the resident megabytes of processes together. A shared page counts once in all (Linux's PSS)."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            full = process.memory_full_info()
            total += getattr(full, "pss", full.rss)
    return total / 1e6


@dataclass
class PeakMemory:
    """Peak memory of a process tree, sampled four times a second by default.

    A sample of a gigabyte takes about ten milliseconds of a core.
    """

    process: psutil.Process
    interval_s: float = _INTERVAL_S
    _peak_mb: float = 0.0
    _ended: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Sample until stopped."""
        while not self._ended.wait(self.interval_s):
            self._peak_mb = max(self._peak_mb, memory_mb(tree(self.process)))

    def taken(self) -> float:
        """Return the peak since the last call, in megabytes, and start again."""
        peak, self._peak_mb = self._peak_mb, 0.0
        return max(peak, memory_mb(tree(self.process)))

    def end(self) -> None:
        """Stop sampling."""
        self._ended.set()


def printed_lines(
    module: str, *arguments: str, timeout_s: float, interval_s: float = _INTERVAL_S
) -> Iterator[tuple[str, float]]:
    """Run ``python -m module``, and yield each line of JSON that it prints, with the peak memory before it.

    Raises
    ------
    RuntimeError
        If it fails or takes longer than ``timeout_s``, with the end of its standard error.
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
    """End a process that this one started, and all its child processes."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in reversed(tree(psutil.Process(pid))):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
