"""Patches that limit what Ray does to the process that starts it."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from raydr.actors.ray_private import node, ray_constants, raylet, services, state, utils, worker
from raydr.signals import ENDING

_REGISTER_S = 30.0
"""Seconds for the node to register; afterwards Ray itself waits, and reports the failure."""


@contextmanager
def well_behaved() -> Iterator[None]:
    """Keep Ray from handling this process's signals, from printing, and from dying of signals to this process.

    Ray's SIGTERM handler raises SystemExit anywhere, and its C++ library prints a stack trace. Ray's processes die of
    a SIGTERM or SIGHUP to the whole group, such as from a closed terminal. Their start then waits 35 s for them and
    ignores signals. Ray's listener prints messages about dead parts to standard output.
    """
    with (
        patch.object(utils, "set_sigterm_handler", lambda handler: None),
        patch.object(worker, "_worker_logs_enabled", False),
        patch.object(raylet, "CoreWorker", partial(_with_handlers_kept, raylet.CoreWorker)),
        patch.object(services, "ConsolePopen", _in_group_of_its_own(services.ConsolePopen)),
    ):
        yield


@contextmanager
def few_processes() -> Iterator[None]:
    """Let Ray start without processes that raydr does not use, and notice its own node at once.

    They are its dashboard, its autoscaler and its copier of logs. Starting and ending Ray then takes three seconds
    instead of seven on two cores. The node's agent remains, and loads few libraries, as if ``ray[default]`` were not
    installed. Ray itself would look for its node only once in a second.
    """
    absent = ImportError("raydr's own Ray has no dashboard")
    unused = ("start_api_server", "start_monitor", "start_log_monitor")
    with ExitStack() as patches:
        for name in unused:
            patches.enter_context(patch.object(node.Node, name, lambda self, **options: None))
        patches.enter_context(patch.object(utils, "get_dashboard_dependency_error", lambda: absent))
        patches.enter_context(patch.object(services, "get_node", partial(_node_at_once, services.get_node)))
        yield


@contextmanager
def store_within(limit: int | None) -> Iterator[None]:
    """Limit Ray's object store to a quarter of what a process may map, if that is limited.

    Every process maps the whole store. Ray's own size, 30 % of the memory, leaves no address space for workers and
    ends them. The rest is for libraries: a worker maps 1.2 GiB in addition to the store before it loads any.
    """
    most = ray_constants.DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES
    if limit is not None:
        most = min(most, max(limit // 4, ray_constants.OBJECT_STORE_MINIMUM_MEMORY_BYTES))
    with patch.object(ray_constants, "DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES", most):
        yield


def _node_at_once(get_node: Any, gcs_address: str, node_id: str) -> Any:
    """Call ``services.get_node`` when the node has registered; it waits a second for one that has not."""
    known = state.GlobalState()
    known._initialize_global_state(services._get_gcs_client_options(gcs_address))
    end = time.monotonic() + _REGISTER_S
    while time.monotonic() < end and node_id not in {each["NodeID"] for each in known.node_table()}:
        time.sleep(0.02)
    return get_node(gcs_address, node_id)


def _with_handlers_kept(make: Any, *arguments: Any) -> Any:
    """Create Ray's C++ worker, and restore Python's signal handlers, which it replaces.

    For these 0.3 s this thread blocks SIGTERM, for which the library would print a stack trace; other threads may
    receive it.
    """
    if threading.current_thread() is not threading.main_thread():
        return make(*arguments)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        return make(*arguments)
    finally:
        for number in ENDING:
            if (handler := signal.getsignal(number)) is not None:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _in_group_of_its_own(popen: Any) -> Any:
    # On other systems, Ray's processes end with this one only if they stay in its process group.
    return partial(popen, process_group=0) if sys.platform == "linux" else popen
