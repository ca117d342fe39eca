"""Start Ray on this machine or join a cluster, without noise, and leave it as it was found."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from raydr.errors import OutputError
from raydr.threads import share_cores

NAMESPACE = "raydr"


@contextmanager
def connected(address: str | None = None) -> Iterator[None]:
    """Ray, for the length of a ``with`` block.

    Parameters
    ----------
    address : str, optional
        A running cluster (``auto``, ``host:port``, ``ray://host:port``). Without one, a Ray that this process has
        already joined is used and left running; otherwise one is started here and stopped at the end.

    Raises
    ------
    OutputError
        If there is no cluster at ``address``.
    """
    if ray.is_initialized():
        yield
        return
    # Read once, when Ray starts: no usage report, no warning about accelerators of actors that ask for none.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    share_cores()
    on_sigterm = signal.getsignal(signal.SIGTERM)
    try:
        _init(address)
        if threading.current_thread() is threading.main_thread():
            # Ray has put its own handlers there, one of which prints a stack trace; the caller's decides.
            signal.signal(signal.SIGTERM, on_sigterm)
        yield
    finally:
        ray.shutdown()  # also after an interruption half-way through the start


def _init(address: str | None) -> None:
    try:
        ray.init(
            address=address or "local",
            namespace=NAMESPACE,
            include_dashboard=None if address else False,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    except (ConnectionError, ValueError) as error:
        raise OutputError(
            f"There is no Ray cluster at {address!r} ({error}): start one with `ray start --head`, correct"
            " --address, or leave it out to run on this machine."
        ) from error
