"""Ray's own processes and folder: closed to other users, named in an error, removed at the end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from commands import LONG, RAYDR, Command
from processes import processes_of
from tiny import tiny, tiny_file

from raydr.errors import OutputError, RunError
from raydr.front.cli import status

pytestmark = pytest.mark.ray


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test starts in an empty folder."""
    monkeypatch.chdir(tmp_path)


def on_ray(folder: Path, **sections: Any) -> Path:
    runtime = {"federation": "ray", "actors": 1, "checkpoint_every": 1}
    return tiny_file(folder, **({"runtime": runtime} | sections))


# --- access ----------------------------------------------------------------------------------------------------

_RUN_A_TASK = """
import logging, sys
import ray
ray.init(address=sys.argv[1], logging_level=logging.ERROR, log_to_driver=False)

@ray.remote
def task():
    return "ran"

print(ray.get(task.remote()))
"""


def foreign_driver(address: str, **token: str) -> subprocess.Popen[str]:
    """Start another process that tries to run a task; Ray gives up after 2 attempts instead of 20."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    return subprocess.Popen(
        [sys.executable, "-c", _RUN_A_TASK, address],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**environment, "RAY_NUM_REDIS_GET_RETRIES": "2", **token},
    )


def test_only_a_process_with_the_token_can_join_the_ray_of_a_run(cluster: None) -> None:
    import ray

    address = ray.get_runtime_context().gcs_address
    tokens: list[dict[str, str]] = [
        {},
        {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64},
        {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _variable_of_a_worker("RAY_AUTH_TOKEN")},
    ]
    drivers = [foreign_driver(address, **token) for token in tokens]
    outputs = [driver.communicate(timeout=90)[0] for driver in drivers]
    assert [driver.returncode for driver in drivers] == [1, 1, 0]
    assert outputs == ["", "", "ran\n"]


def test_a_ray_is_closed_and_has_few_processes(cluster: None) -> None:
    import ray
    from ray._raylet import get_authentication_mode

    assert get_authentication_mode() == 1, "a token"
    assert not [name for name in os.environ if name.startswith("RAY_AUTH")]
    assert set(ray._private.worker._global_node.all_processes) <= {"gcs_server", "raylet", "reaper"}
    assert len(_variable_of_a_worker("RAY_AUTH_TOKEN")) == 64


def test_the_settings_of_a_ray_leave_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from raydr.actors import authentication

    read: list[str | None] = []
    monkeypatch.setattr(authentication, "_read_again", lambda: read.append(os.environ.get("RAY_AUTH_TOKEN")))
    monkeypatch.setenv("RAY_AUTH_TOKEN", "the user's")
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    environment = dict(os.environ)
    one, other = authentication.closed_to_others(), authentication.closed_to_others()
    assert one["RAY_AUTH_TOKEN"] != other["RAY_AUTH_TOKEN"]
    with authentication.environment_of_ray(one):
        assert os.environ["RAY_AUTH_MODE"] == "token"
    assert dict(os.environ) == environment
    authentication.forget()
    assert read == [one["RAY_AUTH_TOKEN"], "the user's"]


@pytest.mark.slow
def test_a_session_starts_one_ray_for_all_its_runs(tmp_path: Path) -> None:
    script = f"""
import numpy as np
import ray
import raydr
from raydr.actors import cluster

started, init = [], cluster._init
cluster._init = lambda *arguments, **options: (started.append(1), init(*arguments, **options))
rows = np.random.default_rng(0).normal(size=(40, 3))
with raydr.session():
    for seed in (0, 1):
        raydr.FedPCA(metrics=(), federation="ray", out={str(tmp_path)!r} + f"/{{seed}}").fit(rows)
        assert ray.is_initialized()
assert started == [1] and not ray.is_initialized()
"""
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.slow
@pytest.mark.parametrize("used", [False, True])
def test_each_ray_has_a_new_token_and_few_processes_and_restores_the_environment(
    cluster: None, used: bool
) -> None:
    """Also if Ray was imported, or even ``used``, before. A Ray of the user has no token before and after."""
    own_ray = 'ray.init(address="local", num_cpus=1, include_dashboard=False, logging_level="ERROR"); ray.shutdown()'
    script = f"""
import os
import ray
from ray._raylet import get_authentication_mode
from raydr.actors.cluster import connected

{own_ray if used else ""}
assert get_authentication_mode() == 0, "none"
environment = dict(os.environ)
with connected():
    assert get_authentication_mode() == 1, "a token"
    assert not [name for name in os.environ if name.startswith("RAY_AUTH")]
    started = set(ray._private.worker._global_node.all_processes)
    assert started <= {{"gcs_server", "raylet", "reaper"}}, "no dashboard, no autoscaler, no copier of logs"
    print(ray.get(ray.remote(lambda: os.environ["RAY_AUTH_TOKEN"]).remote()))
environment["OMP_WAIT_POLICY"] = "PASSIVE"
assert dict(os.environ) == environment
assert get_authentication_mode() == 0, "none"
{own_ray if used else ""}
assert get_authentication_mode() == 0, "none"
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    tokens = {done.stdout.strip(), _variable_of_a_worker("RAY_AUTH_TOKEN")}
    assert [len(token) for token in tokens] == [64, 64], "the tests' own cluster has another token"


def test_the_users_ray_auth_mode_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from raydr.actors.authentication import closed_to_others

    ours = closed_to_others()
    assert ours["RAY_AUTH_MODE"] == "token"
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert closed_to_others() == {}


# --- address --------------------------------------------------------------------------------------------------


@contextmanager
def listening(answer: bytes | None, called: threading.Event | None = None) -> Iterator[str]:
    """Yield the address of a port that answers this, or nothing; ``called`` is set at the first connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                    if called is not None:
                        called.set()
                    if answer is not None:
                        with connection:
                            connection.recv(1024)
                            connection.sendall(answer)
                    else:
                        kept.append(connection)
                except OSError:
                    return

        kept: list[socket.socket] = []
        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        for connection in kept:
            connection.close()


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


HTTP = b"HTTP/1.1 400 Bad Request\r\n\r\n"
EMPTY_HTTP2_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("address", "answer", "message"),
    [
        pytest.param(None, None, "connection refused", id="closed port"),
        pytest.param("", HTTP, "is not a Ray cluster", id="a web server"),
        pytest.param("", None, "no answer", id="a silent listener"),
        pytest.param("", EMPTY_HTTP2_SETTINGS, "no cluster identified itself", id="another HTTP/2 service"),
        pytest.param("ray://127.0.0.1:10001", HTTP, "a Ray Client address", id="Ray Client"),
        pytest.param("nonsense", HTTP, "is not the address", id="no address"),
    ],
)
def test_an_address_without_a_cluster_is_refused(
    address: str | None, answer: bytes | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from raydr.actors import address as addresses

    monkeypatch.setattr(addresses, "_SILENCE_S", 0.2)
    monkeypatch.setattr(addresses, "_PATIENCE_S", 0.5)
    with listening(answer) as there, pytest.raises(OutputError) as caught:
        addresses.require_answer(closed_port() if address is None else address or there)
    assert caught.value.exit_code == 2
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ctrl_c_ends_the_check_of_an_address() -> None:
    from raydr.actors.address import require_answer

    called, main_thread = threading.Event(), threading.main_thread().ident
    assert main_thread is not None

    def interrupt() -> None:
        if called.wait(60):
            signal.pthread_kill(main_thread, signal.SIGINT)

    with listening(None, called) as there:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            require_answer(there)


def test_the_ray_address_of_the_environment_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from raydr.actors.address import chosen_cluster

    assert chosen_cluster(None) is None
    monkeypatch.setenv("RAY_ADDRESS", "here:1")
    assert [chosen_cluster(address) for address in (None, "auto", "there:2")] == [
        "here:1",
        "here:1",
        "there:2",
    ]
    assert chosen_cluster("local") is None
    monkeypatch.setenv("RAY_ADDRESS", closed_port())
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # this process may be in the tests' cluster
    assert status(["run", str(on_ray(tmp_path)), "--quiet"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "connection refused" in err
    assert "RAY_ADDRESS" in err
    assert len(err.splitlines()) == 1, err


# --- killed parts ----------------------------------------------------------------------------------------------------


def part_of_ray(command: Command, name: str) -> psutil.Process | None:
    for process in processes_of(command.token):
        with suppress(psutil.Error):  # gone by now
            if process.name() == name:
                return process
    return None


def part_that_runs(command: Command, name: str) -> psutil.Process:
    found = part_of_ray(command, name)
    assert found is not None
    return found


def group(leader: int) -> list[psutil.Process]:
    """Return the processes of a group: Ray's agents change their title, and then only their group is known."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (OSError, psutil.Error):
            continue
    return found


def wait_for_checkpoint(folder: Path) -> None:
    deadline = time.monotonic() + 240
    while not any(folder.glob("out.incomplete-*/checkpoints/*.npz")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


LIMITED = ["/bin/sh", "-c", 'ulimit -v 8000000 && exec "$@"', "limited", *RAYDR]


def test_a_wait_for_work_ends_if_a_part_of_ray_is_killed(
    cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part is another process here: the tests share their Ray."""
    from raydr.actors import ray_health
    from raydr.actors.backend import RayBackend

    with subprocess.Popen(["true"]) as part:
        part.wait()
    node = SimpleNamespace(all_processes={"gcs_server": [SimpleNamespace(process=part)]})
    monkeypatch.setattr(ray_health, "worker", SimpleNamespace(_global_node=node))
    with pytest.raises(RunError, match=r"Ray's control service \(gcs_server\) on this machine ended"):
        RayBackend().evaluate(sleep, listener=lambda event: None)


@pytest.mark.slow  # test_ray_folder.py: the folder is private; the test before this one: a killed part is named
@pytest.mark.parametrize("name", ["raylet", "gcs_server"])
def test_rays_folder_is_private_and_a_killed_part_of_ray_is_named(
    tmp_path: Path, short: Path, name: str
) -> None:
    """The message says how to continue, and the folder is removed.

    On Linux the address space is limited: with Ray's default size of the object store, no worker could start.
    """
    scenario = on_ray(tmp_path, method=tiny()["method"] | {"rounds": LONG})
    program = LIMITED if sys.platform == "linux" else RAYDR
    with Command("run", str(scenario), "--out", "out", "--quiet", program=program) as command:
        wait_for_checkpoint(tmp_path)
        (folder,) = short.glob("raydr-*")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert list(folder.glob(f"r/session_*_{command.process.pid}/sockets/raylet"))
        raylet = part_that_runs(command, "raylet").pid
        assert len(group(raylet)) > 3, "the raylet, its two agents and workers"
        part_that_runs(command, name).kill()
        begun = time.monotonic()
        code, out, err = command.end()
        assert time.monotonic() - begun < 10
        assert not group(raylet)
        assert not list(short.glob("raydr-*"))
    assert (code, out) == (3, "")
    assert re.fullmatch(
        rf"raydr: Ray's [\w ]+ \({name}\) on this machine ended .*\. Continue from the last checkpoint with"
        r" `raydr run \S+/out\.incomplete-\w+ --resume`\.\n",
        err,
    ), err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["raylet", "gcs_server"])
def test_a_ray_that_does_not_start_is_one_paragraph(tmp_path: Path, name: str) -> None:
    """Ray waits for 30 s."""
    with Command("run", str(on_ray(tmp_path)), "--out", "out", "--quiet") as command:
        while (found := part_of_ray(command, name)) is None:
            assert command.process.poll() is None
        found.suspend()
        code, out, err = command.end(timeout_s=200)
    assert (code, out) == (3, "")
    assert re.fullmatch(r"raydr: Ray did not start on this machine \(.*\)\. Check free .*\n", err), err
    logs = re.search(r"logs in (\S+/session_\S+)/logs", err)
    assert logs is not None
    assert (Path(logs[1]) / "logs").is_dir()
    shutil.rmtree(Path(logs[1]).parents[1])
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.yaml"]


@pytest.mark.parametrize("interrupted", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_failed_or_interrupted_start_leaves_no_process(short: Path, interrupted: bool) -> None:
    """The calling program may go on for long. Ray runs by then, but its library has forgotten what it started."""
    script = f"""
import os, sys, time
import psutil
from ray._private import services
from raydr.actors.cluster import connected
from raydr.errors import RunError

def names(processes):
    found = {{}}
    for process in processes:
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = process.name(), os.getpgid(process.pid)
        except (psutil.Error, OSError):  # ended meanwhile
            continue
    return found

def children(pid):
    try:
        return psutil.Process(pid).children()
    except psutil.NoSuchProcess:
        return []

def agents(raylet):
    titles = [name for name, _ in names(children(raylet)).values()]
    return [title for title in titles if title.startswith("ray::") and title.endswith("Agent")]

parts = {{}}

def fail(*arguments):
    deadline = time.monotonic() + 60  # a raylet that loses an agent ends, and never has two
    while time.monotonic() < deadline and ("raylet" not in parts or len(agents(parts["raylet"])) < 2):
        # the agents have changed their titles, and so have lost their mark
        time.sleep(0.01)
        parts.update({{name: pid for pid, (name, _) in names(children(os.getpid())).items()}})
    raise {"KeyboardInterrupt()" if interrupted else "Exception('no node came up.')"}

services.get_node = fail
try:
    with connected():
        sys.exit("connected")
except (RunError, KeyboardInterrupt) as raised:
    print(raised)
left = [name for name, group in names(psutil.process_iter()).values() if group in parts.values()]
print(len(os.listdir({str(short)!r})), left)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=200
    )
    message, left = done.stdout.splitlines()
    assert (
        message == ""
        if interrupted
        else message.startswith("Ray did not start on this machine (no node came up).")
    )
    assert left == ("0 []" if interrupted else "1 []"), "the logs of a failed start are kept"


def sleep(*, listener: Any) -> None:
    """Work for a minute."""
    time.sleep(60)


def die_once(marker: str, *, listener: Any) -> str:
    """Kill this process, unless the marker exists."""
    if Path(marker).exists():
        return "done"
    Path(marker).touch()
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def die(*, listener: Any) -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_evaluation_is_retried_after_its_process_is_killed(cluster: None, tmp_path: Path) -> None:
    from raydr.actors.backend import RayBackend
    from raydr.journal import Event, IncidentEvent

    events: list[Event] = []
    assert RayBackend().evaluate(die_once, str(tmp_path / "died"), listener=events.append) == "done"
    assert [type(event) for event in events] == [IncidentEvent]


def test_a_run_can_be_resumed_after_its_evaluation_is_killed_twice(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server part runs once. It runs inline here: only the evaluation is tested."""
    from raydr.actors.backend import RayBackend
    from raydr.journal import Event, IncidentEvent, StageEnded
    from raydr.scenarios import runner
    from raydr.scenarios.running.backend import InlineBackend
    from raydr.scenarios.schema.reading import read

    def evaluate(backend: InlineBackend, *work: Any, listener: Any) -> Any:
        return RayBackend().evaluate(die, listener=listener)

    events: list[Event] = []
    monkeypatch.setattr(InlineBackend, "evaluate", evaluate)
    scenario = tiny_file(tmp_path, runtime={"federation": "inline", "checkpoint_every": 1})
    with pytest.raises(RunError, match="ended twice, after the federated map was computed") as failed:
        runner.run(read(scenario), out=tmp_path / "out", listener=events.append)
    stages = [event.stage for event in events if isinstance(event, StageEnded)]
    assert stages.count("landmarks") == stages.count("embedding") == 1
    assert sum(isinstance(event, IncidentEvent) for event in events) == 1, "it is retried once"
    assert any("--resume" in note for note in failed.value.__notes__)


# --- remains ---------------------------------------------------------------------------------------------------


@pytest.mark.slow  # test_interruption.py interrupts other moments
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_rays_folder_is_removed_after_an_interruption(
    tmp_path: Path, short: Path, number: signal.Signals
) -> None:
    scenario = on_ray(tmp_path, method=tiny()["method"] | {"rounds": LONG})
    with Command("run", str(scenario), "--out", "out") as command:
        while not list(short.glob("raydr-*/r/session_*/logs")):
            time.sleep(0.01)
        time.sleep(1)
        command.send(number, to_group=True)
        assert command.end()[0] == 128 + number
        assert not list(short.glob("raydr-*"))


def _variable_of_a_worker(name: str) -> str:
    import ray

    value: str = ray.get(ray.remote(lambda: os.environ[name]).remote())
    return value
