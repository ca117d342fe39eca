"""Limits on threads: one BLAS thread everywhere, with parallelism above it.

BLAS libraries split sums by their number of threads, so their results depend on it. raydr uses one BLAS
thread and splits work into fixed blocks. Their results do not depend on how many run at once.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from functools import cache, partial
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class SharedLimit:
    """A limit of the whole process. It stays until the last thread or block that uses it ends.

    Parameters
    ----------
    limit : callable
        Sets the limit, and returns what ``lift`` needs.
    lift : callable
        Restores the previous state.

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
    """Run work in a thread during a ``with`` block. The block gets its result from the future.

    If the block fails, it first waits for the work. If the work fails too, the error of the work is raised,
    because it would come first in sequence. After an interruption the block does not wait, and the work
    continues until it is done or the process ends.
    """
    future: Future[T] = Future()
    threading.Thread(target=_settle, args=(future, work), name="ahead", daemon=True).start()
    try:
        yield future
    except Exception:
        future.result()
        raise


def in_one_thread(work: Callable[[], T]) -> T:
    """Run work in the one thread of this process for it, with the caller's context variables.

    The C library gives each thread its own memory and keeps there what is freed. A process whose work comes in new
    threads would therefore grow with their number. In one thread the work uses the same memory again.

    Returns what the work returns, and raises what it raises. The work itself must not call this.

    Examples
    --------
    >>> thread = in_one_thread(threading.get_ident)
    >>> in_one_thread(threading.get_ident) == thread != threading.get_ident()
    True
    """
    future: Future[T] = Future()
    _one_thread().put((future, partial(copy_context().run, work)))
    return future.result()


@cache
def _one_thread() -> SimpleQueue[tuple[Future[Any], Callable[[], Any]]]:
    queue: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()

    def serve() -> None:
        while True:
            _settle(*queue.get())

    # A daemon, so that the end of the process does not wait for the work.
    threading.Thread(target=serve, name="one", daemon=True).start()
    return queue


def _settle(future: Future[T], work: Callable[[], T]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)


_VARIABLE = "OPENBLAS_NUM_THREADS"
"""Environment variable that OpenBLAS reads when it is loaded."""


@cache
def _blas(with_scipy: bool) -> tuple[Any, ...]:
    # The search for loaded libraries takes milliseconds, so it runs once for numpy's BLAS, and once for scipy's too.
    import numpy as np  # noqa: F401

    if with_scipy:
        import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return tuple(ThreadpoolController().select(user_api="blas").lib_controllers)


def blas_core_types() -> list[str]:
    """Return for which type of processor each loaded BLAS computes, as ``Haswell``, or its name if it does not say."""
    return [getattr(library, "architecture", None) or library.internal_api for library in _blas(False)]


def _limit_blas() -> tuple[dict[str, int], str | None]:
    """Limit the loaded libraries, and let scipy's start with one thread if it is loaded in the block.

    Importing scipy only to limit it would take 0.4 s in each client process.
    """
    libraries, variable = _blas("scipy" in sys.modules), os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    before = {library.filepath: library.num_threads for library in libraries}
    _take_control()
    for library in libraries:
        library.set_num_threads(1)
    return before, variable


def _lift_blas(limited: tuple[dict[str, int], str | None]) -> None:
    before, variable = limited
    if variable is None:
        os.environ.pop(_VARIABLE, None)
    else:
        os.environ[_VARIABLE] = variable
    _take_control()
    for library in _blas("scipy.linalg" in sys.modules):
        library.set_num_threads(before.get(library.filepath, max(before.values(), default=1)))
    _take_control()  # and release it for the next thread


def _take_control() -> None:
    """Make threadpoolctl accept this thread. If another thread set a limit before, it ignores this one silently."""
    from threadpoolctl import OpenBLASController

    OpenBLASController.clear_controlling_thread(force=True)


_ONE_BLAS_THREAD = SharedLimit(_limit_blas, _lift_blas)


def one_blas_thread() -> AbstractContextManager[None]:
    """Limit BLAS to one thread inside a ``with`` block, whatever other threads of this process do."""
    return _ONE_BLAS_THREAD


def share_cores() -> None:
    """Make OpenMP threads sleep at barriers, in new processes, and here if OpenMP is not loaded yet.

    By default, GNU OpenMP spins there and takes the cores from other processes: on busy cores, openTSNE took 26 s
    instead of 4 s. Sleeping changes no bit. scikit-learn and torch have such threads.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


_shares: list[int] = []
"""The limits of the open ``with`` blocks of this process."""


@contextmanager
def at_most(limit: int) -> Iterator[None]:
    """Limit :func:`cores` to ``limit`` inside a ``with`` block, in all threads of this process.

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
    """Return the number of processors that this process can use, at least 1."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([there, *_shares]))
