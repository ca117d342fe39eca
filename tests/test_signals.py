"""Signals are deferred while code cannot be interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from raydr.signals import signals_deferred


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    """Yield a signal with a handler that raises, as in raydr's command."""

    def end(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(request.param, end)
    yield int(request.param)
    signal.signal(request.param, before)


def test_a_signal_is_handled_at_the_end_of_the_block(number: int) -> None:
    reached = []

    def work() -> None:
        with signals_deferred():
            signal.raise_signal(number)
            reached.append("the end of the block")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


def test_the_handler_is_restored_without_a_signal(number: int) -> None:
    before = signal.getsignal(number)
    with signals_deferred():
        pass
    assert signal.getsignal(number) is before
    with pytest.raises(ValueError, match="the block's own"), signals_deferred():
        raise ValueError("the block's own")
    assert signal.getsignal(number) is before


def test_a_handler_may_change_the_handler_of_another_signal() -> None:
    """After the first signal, raydr's command ignores both, so that nothing interrupts the cleanup."""
    numbers = (signal.SIGINT, signal.SIGTERM)

    def end(number: int, frame: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in numbers}
    try:
        for number in numbers:
            for each in numbers:
                signal.signal(each, end)
            with pytest.raises(KeyboardInterrupt), signals_deferred():
                signal.raise_signal(number)
            assert {signal.getsignal(each) for each in numbers} == {signal.SIG_IGN}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_other_threads_do_not_change_the_handlers(number: int) -> None:
    seen = []

    def work() -> None:
        before = signal.getsignal(number)
        with signals_deferred():
            seen.append(signal.getsignal(number) is before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]
