"""Signals that end a run, and how to defer them while code cannot be interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a request to end, and a closed terminal."""


@contextmanager
def signals_deferred(patience_s: float | None = None) -> Iterator[None]:
    """Defer the signals that end a run inside a ``with`` block, and handle them at its end.

    Python handles signals only in the main thread, so this does nothing in other threads. A signal is not
    deferred if it is ignored or if its handler is not a Python handler.

    Parameters
    ----------
    patience_s : float, optional
        Seconds after the first signal until the block is interrupted even if it has not ended.
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
        # Sent to the main thread itself, so that it wakes up if it sleeps.
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
        if signal.getsignal(number) is remember:  # otherwise the handler of another signal has replaced it
            signal.signal(number, handler)
        if came and not overdue:
            signal.raise_signal(number)
        elif overdue and ended and callable(handler):  # its exception was dropped, as hooks of a fork do
            handler(number, None)
