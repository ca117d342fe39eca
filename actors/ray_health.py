"""Whether the parts of Ray that a run cannot do without are alive, said before Ray's own library gives up.

Where no worker can start, Ray waits without end and says nothing: it starts another whenever one did not register.
Without its control service (the GCS) Ray waits for 60 s and then ends the process that waits, past any handler. A
driver whose raylet was killed hears of it after 15 s, as the death of an actor.
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
"""How long a cluster's control service may be away: one with a store behind it comes back, and at 60 s Ray gives up."""
_RAYLET_PATIENCE_S = 2.0
"""How long the raylet may refuse: it never comes back."""
LOOK_S = 1.0
"""How often the parts are looked at, which takes 2 us for one's own and 40 us for others'."""


FIRST_WORKER_S = 180.0
"""Seconds for the first worker: Ray gives each 60 to register, so three may try on a machine that is slow but alive."""
_FATAL = re.compile(r"\[[^]]* C \d+ \d+\] (.*)")
"""How Ray writes in its log what ends a process."""
_LOG_BYTES = 2**20


@dataclass
class Vitals:
    """Looks at Ray's parts from time to time, for the length of one wait."""

    _looked: float = 0.0
    _missing_since: dict[str, float] = field(default_factory=dict)

    def look(self) -> None:
        """Raise RunError if a part of Ray has ended, by a look that is taken when the last one is some time ago.

        Others' messages go on for a while without either part, so that waiting for silence would not do.
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
    """Wait for a sign of the first worker.

    The task that gives it asks for no resource, so it never waits for those that others hold.

    Parameters
    ----------
    where : str
        Where workers are to start: "on this machine".
    remedy : str
        What to do where none does: a sentence.

    Raises
    ------
    RunError
        If no worker starts, with what the log of one says; or if a part of Ray has ended.
    """
    vitals, sign, deadline = Vitals(), _task.remote(), time.monotonic() + FIRST_WORKER_S
    while True:
        try:
            ray.get(sign, timeout=LOOK_S)
            return
        except RayTaskError:  # by a worker that is alive
            return
        except GetTimeoutError as error:
            vitals.look()
            if time.monotonic() < deadline:
                continue
            raise _no_worker(where, f"within {FIRST_WORKER_S:.0f} s", remedy) from error
        except RayError as error:
            raise _no_worker(where, f"({' '.join(str(error).split()).rstrip('.')})", remedy) from error


def last_words(logs: Path) -> str | None:
    """Return what ended the latest worker whose log says anything, and the log's name; None where none does.

    That is the line that Ray calls fatal, before a stack trace; else the last line, where Python's traceback ends.
    A worker that has no log yet writes to that of the raylet, which starts it.
    """
    workers = sorted(logs.glob("worker-*.err"), key=lambda path: path.stat().st_mtime, reverse=True)
    for log in [*workers, *logs.glob("raylet.err")]:
        with log.open("rb") as file:
            lines = file.read(_LOG_BYTES).decode(errors="replace").splitlines()
        fatal = [found[1] for line in lines if (found := _FATAL.match(line))]
        if said := [line.strip() for line in fatal[:1] or lines if line.strip()]:
            return f"{said[-1]} ({log})"
    return None


def _no_worker(where: str, when: str, remedy: str) -> RunError:
    logs = Path(worker._global_node.get_logs_dir_path())
    words = last_words(logs)
    log = f"The log of one says: {words}." if words else f"None of the logs in {logs} says why."
    return RunError(f"No worker of Ray's started {where} {when}. {log} {remedy}")


@contextmanager
def dead_parts_named() -> Iterator[None]:
    """Say of an error inside a ``with`` block that a part of Ray has ended, if that is why."""
    try:
        yield
    except RaydrError:
        raise
    except Exception:
        Vitals().require()
        raise


def _ended(kind: str, where: str) -> RunError:
    return RunError(
        f"Ray's {_NAMES[kind]} {where} ended in the middle of the run: look for lack of memory there, or for who"
        " killed it."
    )
