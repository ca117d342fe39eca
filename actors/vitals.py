"""Whether the parts of Ray that a run cannot do without are alive, said before Ray's own library gives up.

Without its control service (the GCS) Ray waits for 60 s and then ends the process that waits, past any handler. A
driver whose raylet was killed hears of it after 15 s, as the death of an actor.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ray._private import worker

from raydr.errors import RaydrError, RunError

_NAMES = {"raylet": "node manager (raylet)", "gcs_server": "control service (gcs_server)"}

_GCS_PATIENCE_S = 40.0
"""How long a cluster's control service may be away: one with a store behind it comes back, and at 60 s Ray gives up."""
_RAYLET_PATIENCE_S = 2.0
"""How long the raylet may refuse: it never comes back."""
LOOK_S = 1.0
"""How often the parts are looked at, which takes 2 us for one's own and 40 us for others'."""


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
