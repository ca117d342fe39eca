"""SIGTERM as an interruption, so that blocks end what they started."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import psutil


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Raise KeyboardInterrupt at SIGTERM, which otherwise ends Python without a ``finally``.

    After the block, kill what is left of the processes that this one and its children had started: some have a session
    of their own, such as Flower's ``flwr-serverapp``.
    """
    started: list[psutil.Process] = []

    def interrupt(*_: object) -> NoReturn:
        started.extend(psutil.Process().children(recursive=True))
        raise KeyboardInterrupt("SIGTERM")

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        for process in started:
            with suppress(psutil.NoSuchProcess):
                process.kill()
