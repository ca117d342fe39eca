"""A run fails in time if no worker of Ray starts. These tests start no Ray."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray._private import ray_constants, worker
from ray._private.utils import resolve_object_store_memory
from ray.exceptions import GetTimeoutError, RayTaskError, WorkerCrashedError

from raydr import memory
from raydr.actors import ray_health
from raydr.actors.ray_patches import store_within
from raydr.errors import RunError

FATAL = """[2026-11-25 18:18:06,619 C 8119 8119] shared_memory.cc:46: mmap failed
*** StackTrace Information ***
/site-packages/ray/_raylet.so(+0x178014a) [0x7f7d5318014a] ray::operator<<()
ray::IDLE(_start+0x21) [0x558eb9e69081] _start

"""
TRACEBACK = """Traceback (most recent call last):
  File "default_worker.py", line 8, in <module>
    import ray
MemoryError: cannot allocate
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(FATAL, "shared_memory.cc:46: mmap failed", id="Ray's own"),
        pytest.param(TRACEBACK, "MemoryError: cannot allocate", id="Python's"),
    ],
)
def test_the_last_error_of_a_worker_is_found_in_its_log(tmp_path: Path, text: str, words: str) -> None:
    assert ray_health.last_words(tmp_path) is None
    (tmp_path / "raylet.err").write_text("of one without a log\n")
    (tmp_path / "worker-2.err").touch()
    assert ray_health.last_words(tmp_path) == f"of one without a log ({tmp_path / 'raylet.err'})"
    for number, content in enumerate(("of an earlier one", text, "")):
        log = tmp_path / f"worker-{number}.err"
        log.write_text(content)
        os.utime(log, (number, number))
    assert ray_health.last_words(tmp_path) == f"{words} ({tmp_path / 'worker-1.err'})"


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Iterator[Exception | None]], None]:
    """Set Ray's answers to the first task: None is success."""
    (tmp_path / "worker-0.err").write_text(FATAL)
    node = SimpleNamespace(all_processes={"raylet": []}, get_logs_dir_path=lambda: str(tmp_path))
    monkeypatch.setattr(worker, "_global_node", node)
    monkeypatch.setattr(ray_health, "_task", SimpleNamespace(remote=lambda: "sign"))

    def set_answers(given: Iterator[Exception | None]) -> None:
        def get(sign: str, timeout: float) -> None:
            answer = next(given)
            if answer is not None:
                raise answer

        monkeypatch.setattr(ray_health.ray, "get", get)

    return set_answers


Answers = Callable[[Iterator[Exception | None]], None]


def test_a_run_without_a_worker_in_time_fails_with_the_error_of_its_log(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_health, "FIRST_WORKER_S", 0.0)
    answers(iter([GetTimeoutError()]))
    with pytest.raises(RunError) as failed:
        ray_health.require_worker("on this machine", "Type this.")
    assert failed.value.exit_code == 3
    assert str(failed.value).startswith(
        "No Ray worker started on this machine within 0 s. A worker's log says: shared_memory.cc:46: mmap failed ("
    )
    assert str(failed.value).endswith("/worker-0.err). Type this.")


def test_a_run_fails_at_once_if_workers_end_during_their_start(answers: Answers) -> None:
    answers(iter([WorkerCrashedError()]))
    with pytest.raises(
        RunError, match=r"No Ray worker started here \(The worker died .*\)\. A worker's log says"
    ):
        ray_health.require_worker("here", "Type this.")


def test_the_logs_are_named_if_none_has_an_error(answers: Answers, tmp_path: Path) -> None:
    (tmp_path / "worker-0.err").unlink()
    answers(iter([WorkerCrashedError()]))
    with pytest.raises(RunError, match=r"\. None of the logs in /.* says why\. Type this\.$"):
        ray_health.require_worker("here", "Type this.")


def test_a_slow_worker_is_accepted(answers: Answers) -> None:
    given = iter([*[GetTimeoutError()] * 9, None])
    answers(given)
    ray_health.require_worker("here", "Type this.")
    assert not list(given)


def test_a_worker_that_raises_is_alive(answers: Answers) -> None:
    answers(iter([RayTaskError("task", "Traceback", ValueError(), ip="127.0.0.1")]))
    ray_health.require_worker("here", "Type this.")


def test_the_first_task_needs_no_resource() -> None:
    """So a busy cluster does not look like one without workers."""
    assert ray_health._task._default_options == {"num_cpus": 0, "max_retries": 0}


def test_the_object_store_fits_a_limited_address_space() -> None:
    before = ray_constants.DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES
    with store_within(None):
        assert before == ray_constants.DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES
    with store_within(8 * 2**30):
        assert resolve_object_store_memory(2**40) == 2 * 2**30
        assert resolve_object_store_memory(2**30) < 2**30, "never more than Ray would take"
    with store_within(2**20):
        assert resolve_object_store_memory(2**40) == ray_constants.OBJECT_STORE_MINIMUM_MEMORY_BYTES
    assert before == ray_constants.DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES


@pytest.mark.parametrize(("limit", "found"), [(resource.RLIM_INFINITY, None), (2**33, 2**33)])
def test_the_limit_of_the_address_space_is_that_of_this_process(
    monkeypatch: pytest.MonkeyPatch, limit: int, found: int | None
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, resource.RLIM_INFINITY))
    assert memory.address_space_bytes() == found
