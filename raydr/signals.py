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

    Python handles signals in the main thread alone, so in any other thread there is nothing to do. Where one of the
    handlers is not Python's to replace, signals do not wait.
    """
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.getsignal(number) for number in numbers}
    if threading.current_thread() is not threading.main_thread() or None in handlers.values():
        yield
        return
    came: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        came.append(number)

    for number in numbers:
        signal.signal(number, remember)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
