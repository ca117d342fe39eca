"""Limits of a process hold until the last thread that needs them is done."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
from contextvars import ContextVar

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from raydr.threads import SharedLimit, in_one_thread, one_blas_thread


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


RETAINED = """
import sys
import threading
from pathlib import Path

import numpy as np

from raydr.threads import in_one_thread

MIB = 2**20
WAYS = {"one": in_one_thread, "new": lambda work: work()}


def own_mib():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("RssAnon:"))


def work():
    for _ in range(3):
        np.ones(20 * MIB // 8)


def call(done):
    WAYS[sys.argv[1]](work)
    done.set()
    last.wait()  # a thread that has ended leaves its memory to the next one


WAYS[sys.argv[1]](work)
before, last = own_mib(), threading.Event()
for _ in range(8):
    done = threading.Event()
    threading.Thread(target=call, args=(done,), daemon=True).start()
    done.wait()
print(own_mib() - before)
last.set()
"""


def retained_mib(way: str) -> int:
    """Return by how much a process has grown after work in eight threads that freed everything."""
    ended = subprocess.run(
        [sys.executable, "-c", RETAINED, way], capture_output=True, text=True, check=True, timeout=60
    )
    return int(ended.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep other memory")
def test_work_in_one_thread_uses_the_same_memory_again() -> None:
    assert retained_mib("new") > 100
    assert retained_mib("one") < 40


def test_work_in_one_thread_has_the_callers_context_and_its_errors_are_raised() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="of the thread")
    variable.set("of the caller")
    assert in_one_thread(variable.get) == "of the caller"

    def stop() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        in_one_thread(stop)
    assert in_one_thread(lambda: 6 * 7) == 42, "it continues after an error"
