"""Signals that wait while code runs which cannot bear that a handler raises."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Have SIGINT and SIGTERM wait inside a ``with`` block, and be handled as ever at its end.

    Python handles signals in the main thread alone, so in any other thread there is nothing to do. A signal whose
    handler is not Python's to replace does not wait.
    """
    with _deferred(signal.SIGINT), _deferred(signal.SIGTERM):
        yield


@contextmanager
def _deferred(number: signal.Signals) -> Iterator[None]:
    handler = signal.getsignal(number)
    if threading.current_thread() is not threading.main_thread() or handler is None:
        yield
        return
    came = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True

    try:
        signal.signal(number, remember)
        yield
    finally:
        # Unless the other signal's handler, run since, has put its own there.
        if signal.getsignal(number) is remember:
            signal.signal(number, handler)
        if came:
            signal.raise_signal(number)
