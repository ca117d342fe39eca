"""Health checks of the parts of Ray that a run needs, which report a failure before Ray gives up.

If no worker can start, Ray waits forever without a message: it starts another whenever one did not register. Without
its control service (the GCS), Ray waits for 60 s and then ends the waiting process, past any handler. A driver whose
raylet was killed learns of it after 15 s, as the death of an actor.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from raydr.actors.ray_private import worker
from raydr.errors import RaydrError, RunError

_NAMES = {"raylet": "node manager (raylet)", "gcs_server": "control service (gcs_server)"}

_GCS_PATIENCE_S = 40.0
"""Seconds that a cluster's control service may be away. One with a store behind it comes back; at 60 s Ray gives up."""
_RAYLET_PATIENCE_S = 2.0
"""Seconds that the raylet may refuse connections: it never comes back."""
LOOK_S = 1.0
"""Seconds between checks. A check takes 2 us for local processes and 40 us for remote ones."""


FIRST_WORKER_S = 180.0
"""Seconds for the first worker. Ray gives each worker 60 to register, so a slow machine has three tries."""
_FATAL = re.compile(r"\[[^]]* C \d+ \d+\] (.*)")
"""Format of a fatal error in Ray's logs."""
_LOG_BYTES = 2**20


@dataclass
class Vitals:
    """Checks Ray's parts from time to time, during one wait."""

    _looked: float = 0.0
    _missing_since: dict[str, float] = field(default_factory=dict)

    def look(self) -> None:
        """Raise RunError if a part of Ray has ended; check only if the last check is old enough.

        Messages between other parts continue for a while without either part, so waiting for silence is not enough.
        """
        if time.monotonic() - self._looked >= LOOK_S:
            self.require()
            self._looked = time.monotonic()

    def require(self) -> None:
        """Raise RunError if a part of Ray has ended."""
        node = worker._global_node
        if node is None:
            return
        for kind in _NAMES:
            for process in node.all_processes.get(kind, ()):
                if process.process.poll() is not None:
                    raise _ended(kind, "on this machine")
        if not node.all_processes:
            self._require_answer("gcs_server", node.gcs_address, _GCS_PATIENCE_S)
            raylet = f"{node.node_ip_address}:{node.node_manager_port}"
            self._require_answer("raylet", raylet, _RAYLET_PATIENCE_S)

    def _require_answer(self, kind: str, address: str, patience_s: float) -> None:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=1.0).close()
            self._missing_since.pop(kind, None)
        except OSError:
            since = self._missing_since.setdefault(kind, time.monotonic())
            if time.monotonic() - since > patience_s:
                raise _ended(kind, f"at {address}") from None


def _alive() -> None:
    """Do nothing, in a worker."""


_task = ray.remote(num_cpus=0, max_retries=0)(_alive)


def require_worker(where: str, remedy: str) -> None:
    """Wait until the first worker has started.

    The task for this requests no resource, so it never waits for resources that others hold.

    Parameters
    ----------
    where : str
        Where workers start: "on this machine".
    remedy : str
        What to do if none starts: a sentence.

    Raises
    ------
    RunError
        If no worker starts, with the error in its log; or if a part of Ray has ended.
    """
    vitals, sign, deadline = Vitals(), _task.remote(), time.monotonic() + FIRST_WORKER_S
    while True:
        try:
            ray.get(sign, timeout=LOOK_S)
            return
        except RayTaskError:  # raised by a living worker
            return
        except GetTimeoutError as error:
            vitals.look()
            if time.monotonic() < deadline:
                continue
            raise _no_worker(where, f"within {FIRST_WORKER_S:.0f} s", remedy) from error
        except RayError as error:
            raise _no_worker(where, f"({' '.join(str(error).split()).rstrip('.')})", remedy) from error


def last_words(logs: Path) -> str | None:
    """Return the error that ended the latest worker with a non-empty log, and the log's name; None without one.

    The error is the line that Ray marks as fatal, before a stack trace. Otherwise it is the last line, where Python's
    traceback ends. A worker without its own log writes to that of the raylet, which starts it.
    """
    workers = sorted(logs.glob("worker-*.err"), key=lambda path: path.stat().st_mtime, reverse=True)
    for log in [*workers, *logs.glob("raylet.err")]:
        with log.open("rb") as file:
            lines = file.read(_LOG_BYTES).decode(errors="replace").splitlines()
        fatal = [found[1] for line in lines if (found := _FATAL.match(line))]
        if messages := [line.strip() for line in fatal[:1] or lines if line.strip()]:
            return f"{messages[-1]} ({log})"
    return None


def _no_worker(where: str, when: str, remedy: str) -> RunError:
    logs = Path(worker._global_node.get_logs_dir_path())
    words = last_words(logs)
    log = f"A worker's log says: {words}." if words else f"None of the logs in {logs} says why."
    return RunError(f"No Ray worker started {where} {when}. {log} {remedy}")


@contextmanager
def dead_parts_named() -> Iterator[None]:
    """Replace an error inside a ``with`` block by RunError if a part of Ray has ended."""
    try:
        yield
    except RaydrError:
        raise
    except Exception:
        Vitals().require()
        raise


def _ended(kind: str, where: str) -> RunError:
    return RunError(
        f"Ray's {_NAMES[kind]} {where} ended during the run. Check whether the machine ran out of memory, or"
        " whether something killed the process."
    )
