"""What Ray does to the process that starts it, kept within bounds."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from raydr.actors.ray_private import ray_constants, raylet, services, utils, worker
from raydr.signals import ENDING


@contextmanager
def well_behaved() -> Iterator[None]:
    """Have Ray neither answer this process's signals, nor print, nor end with what is meant for this process.

    Ray's handler of SIGTERM raises SystemExit wherever it is, and its C++ library prints a stack trace. Its processes
    die of a SIGTERM or SIGHUP to the whole group, as a closed terminal sends it, and their start then waits for them
    for 35 s without hearing anything. What its listener prints of dead parts goes to standard output.
    """
    with (
        patch.object(utils, "set_sigterm_handler", lambda handler: None),
        patch.object(worker, "_worker_logs_enabled", False),
        patch.object(raylet, "CoreWorker", partial(_with_handlers_kept, raylet.CoreWorker)),
        patch.object(services, "ConsolePopen", _in_group_of_its_own(services.ConsolePopen)),
    ):
        yield


@contextmanager
def without_dashboard() -> Iterator[None]:
    """Have Ray start the parts of its dashboard as it does where ``ray[default]`` is not installed.

    Else these, which nobody looks at, load all that it needs: two seconds and 85 MiB more.
    """
    absent = ImportError("raydr's own Ray has no dashboard")
    with patch.object(utils, "get_dashboard_dependency_error", lambda: absent):
        yield


@contextmanager
def store_within(limit: int | None) -> Iterator[None]:
    """Have Ray start an object store of at most a quarter of what a process may map, where that is limited.

    Every process maps the whole store: Ray's own size, 30 % of the memory, leaves workers no room and ends them.
    The rest is for libraries: a worker maps 1.2 GiB besides the store before it loads any.
    """
    most = ray_constants.DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES
    if limit is not None:
        most = min(most, max(limit // 4, ray_constants.OBJECT_STORE_MINIMUM_MEMORY_BYTES))
    with patch.object(ray_constants, "DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES", most):
        yield


def _with_handlers_kept(make: Any, *arguments: Any) -> Any:
    """Make Ray's C++ worker, and install Python's handlers again, over those that it installed.

    For the 0.3 s of it this thread hears no SIGTERM, of which the library would print the stack; other threads may.
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
    # Elsewhere than on Linux, what ends Ray's processes with this one goes by its group.
    return partial(popen, process_group=0) if sys.platform == "linux" else popen
