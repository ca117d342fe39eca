"""How many threads compute: one BLAS thread everywhere, parallelism above it.

BLAS libraries split sums by their number of threads, so their bits change with it. raydr computes with one BLAS
thread and splits work into fixed blocks instead, whose results do not depend on how many run at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


class SharedLimit:
    """A limit of the whole process, which stands until the last of the threads and blocks that asked for it is done.

    Parameters
    ----------
    limit : callable
        Sets it, and returns what :attr:`lift` needs.
    lift : callable
        Brings back what was before.

    Examples
    --------
    >>> limit = SharedLimit(lambda: print("limited"), lambda _: print("lifted"))
    >>> with limit, limit:
    ...     pass
    limited
    lifted
    """

    def __init__(self, limit: Callable[[], T], lift: Callable[[T], object]) -> None:
        self._limit, self._lift = limit, lift
        self._lock = threading.Lock()
        self._needed_by = 0
        self._before: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if not self._needed_by:
                self._before = self._limit()
            self._needed_by += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._needed_by -= 1
            if not self._needed_by:
                self._lift(self._before)


@contextmanager
def done_ahead(work: Callable[[], T]) -> Iterator[Future[T]]:
    """Do work in a thread beside a ``with`` block, which asks the future for what it came to.

    Where the block fails, so that nobody asks, its error waits for the work, whose own error comes first: it would
    have come first had one been done after the other. After an interruption nobody waits, and the work goes on until
    it is done or the process ends.
    """
    future: Future[T] = Future()

    def do() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=do, name="ahead", daemon=True).start()
    try:
        yield future
    except Exception:
        future.result()
        raise


@cache
def _controller() -> Any:
    # Looking for the loaded libraries takes milliseconds, so once; numpy's and scipy's must be there by then.
    import numpy as np  # noqa: F401
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _limit_blas() -> Any:
    _take_control()
    return _controller().limit(limits=1, user_api="blas")


def _lift_blas(limiter: Any) -> None:
    _take_control()
    limiter.restore_original_limits()
    _take_control()  # and leave it to whoever comes next


def _take_control() -> None:
    """Have threadpoolctl obey this thread: where another one has set a limit before, it would do nothing, silently."""
    from threadpoolctl import OpenBLASController

    OpenBLASController.clear_controlling_thread(force=True)


_ONE_BLAS_THREAD = SharedLimit(_limit_blas, _lift_blas)


def one_blas_thread() -> AbstractContextManager[None]:
    """Limit BLAS to one thread inside a ``with`` block, whatever other threads of this process do."""
    return _ONE_BLAS_THREAD


def share_cores() -> None:
    """Have OpenMP's threads sleep at barriers, here if it is not loaded yet, and in processes started from now on.

    GNU OpenMP spins there. With other work on the cores that costs t-SNE of 1,797 rows 26 s instead of 4; on an idle
    machine sleeping costs it 0.4 s. No bit changes.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


_shares: list[int] = []
"""What blocks of this process that are under way have limited it to."""


@contextmanager
def at_most(limit: int) -> Iterator[None]:
    """Have :func:`cores` of this process, in all its threads, be at most ``limit`` inside a ``with`` block.

    >>> with at_most(1):
    ...     cores()
    1
    """
    _shares.append(limit)
    try:
        yield
    finally:
        _shares.remove(limit)


def cores() -> int:
    """Processors that this process may use, at least 1."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([there, *_shares]))
