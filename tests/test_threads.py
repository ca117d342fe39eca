"""Limits of a process hold until the last thread that needs them is done."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from raydr.threads import SharedLimit, one_blas_thread


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.mark.parametrize("first", [0, 1])
def test_the_limit_holds_until_the_last_thread_leaves(first: int) -> None:
    """Either of two threads may leave first."""
    within, leave = threading.Barrier(3), [threading.Event(), threading.Event()]
    seen: dict[int, set[int]] = {}

    def work(index: int) -> None:
        with one_blas_thread():
            within.wait(10)
            leave[index].wait(10)
            seen[index] = blas_threads()

    with threadpool_limits(2, user_api="blas"):
        threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        within.wait(10)
        for index in (first, 1 - first):
            leave[index].set()
            threads[index].join(10)
        assert seen == {0: {1}, 1: {1}}
        assert blas_threads() == {2}, "the earlier limit is back"


def test_the_limit_holds_in_a_second_thread() -> None:
    """The server part does not run in the first thread of Ray's worker process."""
    seen: list[set[int]] = []

    def work() -> None:
        with one_blas_thread():
            seen.append(blas_threads())
        seen.append(blas_threads())

    with threadpool_limits(2, user_api="blas"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(10)
    assert seen == [{1}, {2}]


def test_the_limit_holds_for_a_library_that_is_loaded_in_the_block() -> None:
    """Scipy has a BLAS of its own, which client processes load only if a method needs it."""
    program = """
import os, sys
from threadpoolctl import threadpool_info
from raydr.threads import one_blas_thread
threads = lambda: {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}
with one_blas_thread():
    assert "scipy" not in sys.modules
    import scipy.linalg
    assert len(threadpool_info()) > 1 and threads() == {1}, threadpool_info()
assert threads() == {2} and os.environ["OPENBLAS_NUM_THREADS"] == "2", threadpool_info()
with one_blas_thread():
    assert threads() == {1}
"""
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr


def test_an_error_lifts_the_limit() -> None:
    calls: list[str] = []
    limit = SharedLimit(lambda: calls.append("on"), lambda _: calls.append("off"))

    def fail() -> None:
        with limit, limit:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert calls == ["on", "off"]
    with limit:
        assert calls == ["on", "off", "on"]


def test_torch_uses_one_thread() -> None:
    import torch

    from raydr.methods.fedne.encoder import one_torch_thread

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with one_torch_thread():
            inside.set()
            leave.wait(10)

    other = threading.Thread(target=work)
    try:
        with one_torch_thread():
            other.start()
            inside.wait(10)
        assert torch.get_num_threads() == 1, "the other needs it still"
    finally:
        leave.set()
        other.join(10)
        torch.set_num_threads(before)
