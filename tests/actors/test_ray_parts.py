"""Ray's own parts: closed to others while they live, named when they die, and gone at the end."""

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
from typing import Any

import psutil
import pytest
from commands import LONG, RAYDR, Command
from places import SUPPORT
from processes import processes_of
from tiny import tiny, tiny_file

from raydr.errors import OutputError

pytestmark = pytest.mark.ray


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test starts in an empty folder."""
    monkeypatch.chdir(tmp_path)


def on_ray(folder: Path, **sections: Any) -> Path:
    runtime = {"federation": "ray", "actors": 1, "checkpoint_every": 1}
    return tiny_file(folder, **({"runtime": runtime} | sections))


# --- who gets in ----------------------------------------------------------------------------------------------------

_BREAKING_IN = """
import logging, sys
import ray
ray.init(address=sys.argv[1], logging_level=logging.ERROR, log_to_driver=False)

@ray.remote
def task():
    return "ran"

print(ray.get(task.remote()))
"""


def broken_in(address: str, **token: str) -> subprocess.Popen[str]:
    """Another process that tries to run a task; Ray gives it up after 20 attempts, a second each, unless told so."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    return subprocess.Popen(
        [sys.executable, "-c", _BREAKING_IN, address],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**environment, "RAY_NUM_REDIS_GET_RETRIES": "2", **token},
    )


def test_no_other_process_gets_into_a_ray_that_raydr_started(cluster: None) -> None:
    import ray

    address = ray.get_runtime_context().gcs_address
    others = [
        broken_in(address),
        broken_in(address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64),
    ]
    for other in others:
        out, _ = other.communicate(timeout=90)
        assert (other.returncode, out) == (1, "")
    secret = _in_a_worker("RAY_AUTH_TOKEN")
    with_the_token = broken_in(address, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secret)
    assert with_the_token.communicate(timeout=90)[0] == "ran\n", (
        "those who were refused were refused for the token"
    )


def test_the_token_is_new_each_time_and_the_environment_is_left_as_it_was(cluster: None) -> None:
    """Also where Ray was imported, and even used, before; and a Ray of one's own is afterwards as it was before."""
    script = f"""
import os, sys
import ray
sys.path.insert(0, {str(SUPPORT)!r})
from ray._raylet import get_authentication_mode
from raydr.actors.cluster import connected

options = dict(address="local", num_cpus=1, include_dashboard=False, logging_level="ERROR")
ray.init(**options)
ray.shutdown()
environment = dict(os.environ)
with connected():
    assert get_authentication_mode() == 1, "a token"
    assert not [name for name in os.environ if name.startswith("RAY_AUTH")]
    print(ray.get(ray.remote(lambda: os.environ["RAY_AUTH_TOKEN"]).remote()))
environment["OMP_WAIT_POLICY"] = "PASSIVE"
assert dict(os.environ) == environment
assert get_authentication_mode() == 0, "none"
ray.init(**options)
assert get_authentication_mode() == 0, "none"
ray.shutdown()
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    tokens = {done.stdout.strip(), _in_a_worker("RAY_AUTH_TOKEN")}
    assert [len(token) for token in tokens] == [64, 64], "another than that of the tests' own cluster"


def test_whoever_decides_on_authentication_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    from raydr.actors.authentication import closed_to_others

    ours = closed_to_others()
    assert ours["RAY_AUTH_MODE"] == "token"
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert closed_to_others() == {}


# --- which cluster --------------------------------------------------------------------------------------------------


@contextmanager
def listening(answer: bytes | None, called: threading.Event | None = None) -> Iterator[str]:
    """A port where something else answers, or nothing does though it listens; ``called`` is set once it is called."""
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
GRPC_OF_ANOTHER_KIND = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("address", "answer", "said"),
    [
        pytest.param(None, None, "connection refused", id="nobody"),
        pytest.param("", HTTP, "is not a Ray cluster", id="a web server"),
        pytest.param("", None, "no answer", id="a silent listener"),
        pytest.param(
            "", GRPC_OF_ANOTHER_KIND, "no cluster identified itself", id="another speaker of HTTP/2"
        ),
        pytest.param("ray://127.0.0.1:10001", HTTP, "a Ray Client address", id="Ray's client"),
        pytest.param("nonsense", HTTP, "is not the address", id="no address"),
    ],
)
def test_an_address_where_no_cluster_answers_is_refused_within_10_seconds(
    address: str | None, answer: bytes | None, said: str
) -> None:
    from raydr.actors.address import require_answer

    with listening(answer) as there:
        begun = time.monotonic()
        with pytest.raises(OutputError) as caught:
            require_answer(closed_port() if address is None else address or there)
        assert time.monotonic() - begun < 10
    assert caught.value.exit_code == 2
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ctrl_c_is_heard_while_an_address_is_tried(tmp_path: Path) -> None:
    called = threading.Event()
    with (
        listening(None, called) as there,
        Command("run", str(on_ray(tmp_path)), "--address", there) as command,
    ):
        assert called.wait(60)
        time.sleep(0.5)
        begun = time.monotonic()
        command.send(signal.SIGINT)
        assert command.end()[0] == 130
        assert time.monotonic() - begun < 2


def test_the_environments_ray_address_is_asked_too_and_refused_in_one_paragraph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    with Command(
        "run", str(on_ray(tmp_path)), "--quiet"
    ) as command:  # this process may be in a cluster already
        code, out, err = command.end()
    assert (code, out) == (2, "")
    assert "connection refused" in err
    assert "RAY_ADDRESS" in err
    assert len(err.splitlines()) == 1, err


# --- what dies ------------------------------------------------------------------------------------------------------


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
    """All processes of a group; Ray's agents can be told by nothing else once they have changed their title."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (OSError, psutil.Error):
            continue
    return found


def wait_for_checkpoint(folder: Path) -> None:
    deadline = time.monotonic() + 60
    while not any(folder.glob("out.incomplete-*/checkpoints/*.npz")):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("name", [pytest.param("raylet", marks=pytest.mark.slow), "gcs_server"])
def test_a_dead_part_of_ray_is_named_with_the_way_to_go_on(tmp_path: Path, name: str) -> None:
    scenario = on_ray(tmp_path, method=tiny()["method"] | {"rounds": LONG})
    with Command("run", str(scenario), "--out", "out", "--quiet") as command:
        wait_for_checkpoint(tmp_path)
        raylet = part_that_runs(command, "raylet").pid
        assert len(group(raylet)) > 3, "the raylet, its two agents and workers"
        part_that_runs(command, name).kill()
        begun = time.monotonic()
        code, out, err = command.end()
        assert time.monotonic() - begun < 10
        assert not group(raylet)
    assert (code, out) == (3, "")
    assert re.fullmatch(
        rf"raydr: Ray's [\w ]+ \({name}\) on this machine ended .*\. Continue from the last checkpoint with"
        r" `raydr run \S+/out\.incomplete-\w+ --resume`\.\n",
        err,
    ), err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["raylet", "gcs_server"])
def test_a_ray_that_does_not_come_up_is_one_paragraph(tmp_path: Path, name: str) -> None:
    """Ray waits for 30 s."""
    with Command("run", str(on_ray(tmp_path)), "--out", "out", "--quiet") as command:
        while (found := part_of_ray(command, name)) is None:
            assert command.process.poll() is None
        found.suspend()
        code, out, err = command.end(timeout_s=200)
    assert (code, out) == (3, "")
    assert re.fullmatch(r"raydr: Ray did not start on this machine \(.*\)\. Look .*\n", err), err
    logs = re.search(r"into (\S+/session_\S+)/logs", err)
    assert logs is not None
    assert (Path(logs[1]) / "logs").is_dir()
    shutil.rmtree(Path(logs[1]).parents[1])
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.yaml"]


@pytest.mark.parametrize("interrupted", [False, True], ids=["failed", "interrupted"])
def test_a_start_that_comes_to_nothing_leaves_no_process(interrupted: bool, short: Path) -> None:
    """By then Ray runs, but its library has forgotten what it started; and the calling program may go on for long."""
    script = f"""
import os, sys, time
import psutil
from ray._private import services
from raydr.actors.cluster import connected
from raydr.errors import RunError

parts = {{}}

def agents():
    try:
        names = [process.name() for process in psutil.Process(parts["raylet"]).children()]
    except psutil.NoSuchProcess:
        return []
    return [name for name in names if name.startswith("ray::") and name.endswith("Agent")]

def fail(*arguments):
    deadline = time.monotonic() + 60  # a raylet that loses an agent ends, and none comes any more
    while time.monotonic() < deadline and ("raylet" not in parts or len(agents()) < 2):
        # with titles of their own, and no mark any more
        time.sleep(0.01)
        parts.update({{process.name(): process.pid for process in psutil.Process().children()}})
    raise {"KeyboardInterrupt" if interrupted else "Exception('no node came up.')"}

services.get_node = fail
try:
    with connected():
        sys.exit("connected")
except (RunError, KeyboardInterrupt) as error:
    print(error)
left = os.listdir({str(short)!r})
running = [process for process in psutil.process_iter() if process.status() != psutil.STATUS_ZOMBIE]
print(len(left), [process.name() for process in running if os.getpgid(process.pid) in parts.values()])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=200
    )
    said, left = done.stdout.splitlines()
    assert left == ("0 []" if interrupted else "1 []"), "logs of a start that failed are kept"
    assert said.startswith("" if interrupted else "Ray did not start on this machine (no node came up).")


def die_once(marker: str, *, listener: Any) -> str:
    """Work whose process is killed, unless it was before."""
    if Path(marker).exists():
        return "done"
    Path(marker).touch()
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def die(*, listener: Any) -> None:
    """Work whose process is killed whenever it is tried."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_evaluation_that_is_killed_is_retried(cluster: None, tmp_path: Path) -> None:
    from raydr.actors.backend import RayBackend
    from raydr.journal import Event, IncidentEvent

    heard: list[Event] = []
    assert RayBackend().evaluate(die_once, str(tmp_path / "died"), listener=heard.append) == "done"
    assert [type(event) for event in heard] == [IncidentEvent]


def test_an_evaluation_that_is_killed_twice_does_not_cost_the_map(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server part runs once, and the run can be gone on with."""
    from raydr.errors import RunError
    from raydr.journal import Event, IncidentEvent, StageEnded
    from raydr.scenarios import runner
    from raydr.scenarios.running import simulation
    from raydr.scenarios.schema.reading import read

    heard: list[Event] = []
    monkeypatch.setattr(simulation, "examine", lambda question, *, listener: die(listener=listener))
    with pytest.raises(RunError, match="ended twice, after the federated map was computed") as failed:
        runner.run(read(on_ray(tmp_path)), out=tmp_path / "out", listener=heard.append)
    stages = [event.stage for event in heard if isinstance(event, StageEnded)]
    assert stages.count("landmarks") == stages.count("embedding") == 1
    assert sum(isinstance(event, IncidentEvent) for event in heard) == 1, "it is retried once"
    assert any("--resume" in note for note in failed.value.__notes__)


# --- what is left ---------------------------------------------------------------------------------------------------


LIMITED = ["/bin/sh", "-c", 'ulimit -v 8000000 && exec "$@"', "limited", *RAYDR]


def test_a_rays_folder_is_this_users_alone_and_goes_with_its_run(tmp_path: Path, short: Path) -> None:
    """On Linux also where address spaces are limited.

    Ray's own size of the object store would leave its workers no room there, and they would end before they began.
    """
    program = LIMITED if sys.platform == "linux" else RAYDR
    with Command("run", str(on_ray(tmp_path)), "--out", "out", program=program) as command:
        command.wait_for("starting Ray")
        (folder,) = short.glob("raydr-*")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert list(folder.glob(f"r/session_*_{command.process.pid}/sockets/raylet")), (
            "there and nowhere else"
        )
        code, _, err = command.end(timeout_s=240)
        assert code == 0, err
        assert not list(short.glob("raydr-*"))


@pytest.mark.slow  # any moment of the start, and one in the rounds, are tried by tests/test_interruption.py
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_rays_folder_goes_too(tmp_path: Path, short: Path, number: signal.Signals) -> None:
    scenario = on_ray(tmp_path, method=tiny()["method"] | {"rounds": LONG})
    with Command("run", str(scenario), "--out", "out") as command:
        while not list(short.glob("raydr-*/r/session_*/logs")):
            time.sleep(0.01)
        time.sleep(1)
        command.send(number, to_group=True)
        assert command.end()[0] == 128 + number
        assert not list(short.glob("raydr-*"))


def _in_a_worker(name: str) -> str:
    import ray

    value: str = ray.get(ray.remote(lambda: os.environ[name]).remote())
    return value
