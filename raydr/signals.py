"""Signals that end a run, and how they wait while code runs which cannot bear that a handler raises."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a request to end, and a terminal that was closed."""


@contextmanager
def signals_deferred(patience_s: float | None = None) -> Iterator[None]:
    """Have the signals that end a run wait inside a ``with`` block, and be handled as ever at its end.

    Python handles signals in the main thread alone, so in any other thread there is nothing to do. A signal whose
    handler is not Python's to replace does not wait, nor does one that is ignored have to.

    Parameters
    ----------
    patience_s : float, optional
        How long after its first signal a block that does not come to its end is interrupted all the same.
    """
    with ExitStack() as waiting:
        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                waiting.enter_context(_deferred(number, patience_s))
        yield


@contextmanager
def _deferred(number: signal.Signals, patience_s: float | None) -> Iterator[None]:
    handler = signal.getsignal(number)
    if handler is None or handler is signal.SIG_IGN:
        yield
        return
    came = overdue = ended = False
    alarm: threading.Timer | None = None

    def ring() -> None:
        nonlocal overdue
        overdue = True
        # To this very thread, so that it wakes where it sleeps.
        signal.pthread_kill(threading.main_thread().ident or 0, number)

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal came, alarm
        if overdue:
            signal.signal(number, handler)
            signal.raise_signal(number)
        elif not came and patience_s is not None:
            alarm = threading.Timer(patience_s, ring)
            alarm.daemon = True
            alarm.start()
        came = True

    try:
        signal.signal(number, remember)
        yield
        ended = True
    finally:
        if alarm is not None:
            alarm.cancel()
        if (
            signal.getsignal(number) is remember
        ):  # else another signal's handler, run since, has put its own there
            signal.signal(number, handler)
        if came and not overdue:
            signal.raise_signal(number)
        elif overdue and ended and callable(handler):  # what it raised was dropped, as hooks of a fork do
            handler(number, None)
