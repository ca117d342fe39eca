"""Fixtures that several tests share."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from browsers import CHROMIUM, FLAGS
from long_tests import listed
from places import SUPPORT
from processes import CLUSTER_TOKEN, TOKEN, simulation_processes

# Tests import benchmarks, also if pytest is not started by `python -m pytest`. An installed raydr goes first.
sys.path.append(str(Path(__file__).parent.parent))

# The same examples in every run, however long one takes.
hypothesis.settings.register_profile("raydr", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("raydr")

# No cluster of whoever runs the tests is joined, nor spoken to by their token.
for _name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
    os.environ.pop(_name, None)

# Workers of Ray have niceness 15 by default, and would wait for the tests of the other process.
os.environ.update(RAY_worker_niceness="0")

# What raydr keeps for its user it keeps elsewhere for tests.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="raydr-state-")


def _remove_state(place: str, maker: int) -> None:
    if os.getpid() == maker:  # and not a process that was forked from it
        shutil.rmtree(place, ignore_errors=True)


atexit.register(_remove_state, os.environ["XDG_STATE_HOME"], os.getpid())

# A shell has what it starts in the background ignore Ctrl-C, and tests of it would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Three processes for all tests, which often wait; for files that are named none, since more begin later."""
    return 3 if config.args_source is pytest.Config.ArgsSource.TESTPATHS else 0


# Collecting makes a million objects that all stay: to search them for circles takes a quarter of its time.
gc.disable()


def pytest_collection_finish() -> None:
    """Search for circles among later objects only."""
    gc.freeze()
    gc.enable()


MARKERS = {"cluster": "ray", "chromium": "browser", "data_dir": "data", "site": "long"}
"""What a fixture makes of a test that uses it."""
REAL_DATA = os.environ.get("RAYDR_DATA")
"""Folder of real data sets, which only tests with `data_dir` see."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by their fixtures and the list of long ones; put files with tests on Ray first: they take longest."""
    long = listed()
    for item in items:
        if item.nodeid.partition("[")[0] in long:
            item.add_marker("long")
        for fixture in MARKERS.keys() & getattr(item, "fixturenames", ()):
            item.add_marker(MARKERS[fixture])
    on_ray = {item.path for item in items if item.get_closest_marker("ray")}
    items.sort(key=lambda item: item.path not in on_ray)


@pytest.fixture
def edits_accepted() -> Iterator[None]:
    """Folders are read although the test changed their files."""
    from raydr.runfolder import manifest

    with manifest.edits_accepted():
        yield


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """One Ray on this machine for all tests of a process that need one."""
    from raydr.actors.cluster import connected

    # Workers must find the messages that tests define.
    paths = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.setenv(TOKEN, CLUSTER_TOKEN)
        with connected():
            yield


@pytest.fixture(scope="module")
def client_processes(cluster: None) -> Iterator[Any]:
    """Client processes that all federations of a file share, one after the other."""
    from client_processes import ClientProcesses

    processes = ClientProcesses()
    yield processes
    processes.close()


@pytest.fixture(autouse=True)
def _no_process_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test on the shared cluster, no process of a simulation is left on it."""
    yield
    if "cluster" not in request.fixturenames:
        return
    deadline = time.monotonic() + 60
    while left := simulation_processes():
        assert time.monotonic() < deadline, f"still running: {left}"
        time.sleep(0.1)


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run, resume and join write no picture and no report, which take longer than a small run."""
    for module in ("runner", "afterwards.joining"):
        monkeypatch.setattr(f"raydr.scenarios.{module}.shown", lambda folder, listener: folder)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder whose path leaves room for sockets, for all that a test starts."""
    with tempfile.TemporaryDirectory(prefix="rp", dir="/tmp") as name:
        monkeypatch.setenv("TMPDIR", name)
        yield Path(name)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of real data sets; tests that need it are skipped without it."""
    if not REAL_DATA or not Path(REAL_DATA).is_dir():
        pytest.skip("RAYDR_DATA names no folder of real data sets")
    return Path(REAL_DATA)


@pytest.fixture(autouse=True)
def _real_data_if_asked_for(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide real data from tests without `data_dir`: these must pass on a machine that has none."""
    if "data_dir" not in request.fixturenames:
        monkeypatch.delenv("RAYDR_DATA", raising=False)


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a browser; tests that need it are skipped without it."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    return CHROMIUM


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Any]:
    """A browser that tests drive, where there is a driver."""
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with driver.sync_playwright() as started:
        driven = started.chromium.launch(executable_path=chromium, args=FLAGS)
        yield driven
        driven.close()
