"""Runs as jobs of a cluster: packages, logs, results and errors."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import pty
import re
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from places import DOCS, SUPPORT
from processes import TOKEN, all_gone, as_from_a_terminal, processes_of
from ray.util import get_node_ip_address
from sweeps import inline
from sweeps import table as swept
from tiny import tiny, tiny_file, tiny_scenario

from raydr.actors import job_artifacts, jobs, node_check, shipping
from raydr.actors.authentication import environment_of_ray, forget
from raydr.actors.job_log import Failed, Kept, line_of, message_in
from raydr.errors import DataError, OutputError, RunError, ScenarioError
from raydr.front import submission
from raydr.front.cli import status
from raydr.journal import CheckpointTaken, IncidentEvent, Progress, RoundEnded, StageEnded, StageStarted
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read
from raydr.tune.reading import read_sweep
from raydr.tune.sweeping import sweep

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]
RAYDR = [sys.executable, "-m", "raydr"]
PAGE = DOCS / "cluster.md"
LONG = 10**7
PATIENCE_S = 300.0
ISOLATED = ["unshare", "--mount", "--propagation", "private"]
"""A separate view of the file systems; only root can have one."""


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start every test in an empty folder."""
    monkeypatch.chdir(tmp_path)


# --- a head ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A cluster that a test started."""

    url: str
    session: Path
    token: str
    tmp: Path
    """The jobs' folder for temporary files, seen from here; a separate file system if ``tiny``."""
    tiny: bool

    @property
    def environment(self) -> dict[str, str]:
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}

    def raydr(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command that has the token."""
        return subprocess.run(
            [*RAYDR, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **self.environment},
            timeout=PATIENCE_S,
        )

    @contextmanager
    def dashboard(self, url: str | None = None) -> Iterator[jobs.Head]:
        """Connect to its dashboard from this process."""
        with environment_of_ray(self.environment):
            yield jobs.Head(url or self.url)
        forget()


@pytest.fixture(scope="module")
def head() -> Iterator[Place]:
    """Start a head with a dashboard and a token; its jobs' temporary files are on a disk of 64 MB if possible."""
    folder = Path(tempfile.mkdtemp(prefix="rj", dir="/tmp"))  # short: Ray's sockets have long names
    (folder / "tmp").mkdir()
    token, mark = secrets.token_hex(32), uuid.uuid4().hex
    command = [
        sys.executable,
        "-P",
        str(SUPPORT / "head.py"),
        str(folder / "r"),
        str(free_port()),
    ]
    isolated = subprocess.run([*ISOLATED, "true"], capture_output=True, check=False).returncode == 0
    if isolated:
        mount = f"mount -t tmpfs -o size=64m tmpfs {folder}/tmp"
        command = [*ISOLATED, "sh", "-c", f'{mount} && exec "$@"', "head", *command]
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token, TOKEN: mark}
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**environment, "TMPDIR": str(folder / "tmp")},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        place = json.loads(process.stdout.readline())
        tmp = Path(f"/proc/{process.pid}/root{folder}/tmp")
        yield Place(place["url"], Path(place["session"]), token, tmp, isolated)
        process.communicate(timeout=PATIENCE_S)
        assert all_gone(mark), processes_of(mark)
    finally:
        for straggler in processes_of(mark):
            straggler.kill()
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def table(folder: Path) -> Path:
    """Write a small table as CSV."""
    rng = np.random.default_rng(5)
    rows = np.column_stack([rng.normal(size=(60, 4)), rng.integers(0, 2, 60)])
    np.savetxt(folder / "north.csv", rows, delimiter=",", header="a,b,c,d,kind", comments="", fmt="%.6f")
    return folder / "north.csv"


def endless(folder: Path) -> str:
    """Write a scenario that does not end by itself and needs no actors."""
    return str(tiny_file(folder, method=tiny()["method"] | {"rounds": LONG}))


def line_of_stderr(process: subprocess.Popen[str], pattern: str) -> str:
    """Wait for a line on a command's standard error, and return its first group."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError("".join(lines))


def driver_of(job: str) -> psutil.Process:
    """Return the process of a job's entry point."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if "start.py" in words and job in words:
                return process
        time.sleep(0.2)
    raise TimeoutError


@contextmanager
def following(head: Place, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command that follows a job; kill it at the end."""
    process = subprocess.Popen(
        as_from_a_terminal([*RAYDR, *arguments, "--address", head.url]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **head.environment},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


# --- on a head ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_job_matches_the_local_run_and_names_local_files(head: Place, tmp_path: Path) -> None:
    path = table(tmp_path)
    data = {"path": "north.csv", "label": "kind", "scale": "standard"}
    file = tiny_file(tmp_path, data=data, runtime={"federation": "ray", "checkpoint_every": 0})
    done = head.raydr("submit", str(file), "--address", head.url, "--out", "fetched", "--set", "seed=3")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path}/fetched/report.html\n"
    assert re.search(r"^starting Ray: \d", done.stderr, re.MULTILINE), (
        "the cluster was joined, and its stages are printed"
    )
    assert '{"raydr"' not in done.stderr
    local = run(read(file, {"seed": 3, "runtime.federation": "inline"}), out=tmp_path / "local")
    fetched = tmp_path / "fetched"
    assert (fetched / "embedding.parquet").read_bytes() == (local / "embedding.parquet").read_bytes()
    assert (fetched / "data.json").read_bytes() == (local / "data.json").read_bytes()
    assert {entry.name for entry in fetched.iterdir()} == {entry.name for entry in local.iterdir()}
    assert yaml.safe_load((fetched / "scenario.yaml").read_text())["data"]["path"] == str(path.resolve())
    assert {entry.name for entry in tmp_path.iterdir()} == {"north.csv", "tiny.yaml", "fetched", "local"}

    job = re.search(r"^job (\S+):", done.stderr, re.MULTILINE)
    assert job is not None
    listed = head.raydr("jobs", "--address", head.url)
    assert re.search(rf"^{job[1]} +run +tiny +succeeded", listed.stdout, re.MULTILINE), listed
    again = head.raydr("jobs", "fetch", job[1], "--address", head.url, "--out", "again", "-q")
    assert again.stdout == f"{tmp_path}/again/report.html\n", again.stderr
    assert (tmp_path / "again/report.html").read_bytes() == (fetched / "report.html").read_bytes()
    # Several parts, of which one does not arrive as it left.
    large = tmp_path / "large"
    large.mkdir()
    (large / "noise").write_bytes(np.random.default_rng(0).bytes(2 * job_artifacts.PART + 5))
    kept = head.session / "logs" / job_artifacts.place_of(job[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(next(head.session.glob("runtime_resources/working_dir_files/_ray_pkg_*/raydr")))
        shutil.rmtree(kept)
        assert job_artifacts.keep(large, job[1]).parts == 3
    with head.dashboard() as dashboard:
        arrived = tmp_path / "arrived"
        arrived.mkdir()
        dashboard.fetch(dashboard.job(job[1]), arrived)
        assert (arrived / "noise").read_bytes() == (large / "noise").read_bytes()
        (kept / "1").write_bytes(b"something else")
        with pytest.raises(RunError, match="SHA-256"):
            dashboard.fetch(dashboard.job(job[1]), arrived)
        (kept / job_artifacts.MANIFEST).unlink()
        with pytest.raises(RunError, match="does not have the folder"):
            dashboard.fetch(dashboard.job(job[1]), arrived)


@pytest.mark.slow
def test_a_submitted_sweep_matches_a_local_sweep(head: Place, tmp_path: Path) -> None:
    table(tmp_path)
    tiny_file(tmp_path, data={"path": "north.csv", "label": "kind"})
    file = tmp_path / "sweep.yaml"
    axes = {"clients.count": [2, 3, 100], "method.landmarks": [10]}
    content = {"name": "swept", "base": "tiny.yaml", "space": axes, "repeats": 2, "trial": {"report": False}}
    file.write_text(yaml.safe_dump(content))
    done = head.raydr("submit", str(file), "--address", head.url, "--out", "fetched", "--set", "seed=3")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path}/fetched/sweep.html\n"
    with pytest.MonkeyPatch.context() as patch:
        inline(patch)
        local = sweep(read_sweep(file, {"seed": 3}), out=tmp_path / "local")
    fetched = tmp_path / "fetched"
    # A trial's digest is of its scenario as it ran, with the path that its table had there.
    one, other = ([row | {"digest": None} for row in swept(place)] for place in (fetched, local))
    assert one == other
    assert [row["status"] for row in swept(local)] == ["done"] * 4 + ["failed"] * 2
    for run_ in (local / "trials").iterdir():
        bits = (run_ / "embedding.parquet").read_bytes()
        assert (fetched / "trials" / run_.name / "embedding.parquet").read_bytes() == bits
    assert {entry.name for entry in fetched.iterdir()} == {entry.name for entry in local.iterdir()}
    # What came back can be run and resumed from here: paths lead to the files of the client.
    base = yaml.safe_load((fetched / "sweep.yaml").read_text())["base"]
    assert base["data"]["path"] == str((tmp_path / "north.csv").resolve())
    assert status(["run", str(fetched / "best.yaml"), "--out", str(tmp_path / "again"), "-q"]) == 0


@pytest.mark.slow
def test_a_job_refused_on_the_head_has_the_exit_status_of_the_run(head: Place, tmp_path: Path) -> None:
    file = tiny_file(tmp_path, data={"path": "/nowhere/at all.csv"})
    done = head.raydr("submit", str(file), "--address", head.url)
    assert (done.returncode, done.stdout) == (2, "")
    assert "data.path was not sent, because /nowhere/at all.csv does not exist here" in done.stderr
    assert re.search(r"^raydr: On the cluster: .*/nowhere/at all\.csv", done.stderr, re.MULTILINE)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.slow
def test_a_killed_job_is_reported_as_killed(head: Place, tmp_path: Path) -> None:
    with following(head, "submit", endless(tmp_path)) as process:
        job = line_of_stderr(process, r"^job (\S+):")
        line_of_stderr(process, "^(scaling)")
        driver_of(job).kill()
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (3, "")
    assert f"raydr: The job {job} was killed on the cluster (signal 9)" in err
    fetched = head.raydr("jobs", "fetch", job, "--address", head.url)
    assert fetched.returncode == 2
    assert "has no folder to fetch" in fetched.stderr


@pytest.mark.slow
def test_a_full_disk_at_the_head_is_reported(head: Place, tmp_path: Path) -> None:
    if not head.tiny:
        pytest.skip("no file system of one's own can be mounted here")
    filling = head.tmp / "filling"
    with suppress(OSError), filling.open("wb", buffering=0) as file:
        while file.write(bytes(2**20)) == 2**20:
            pass
    # On a disk without a byte Python itself would look for another.
    os.truncate(filling, filling.stat().st_size - 50_000)
    try:
        done = head.raydr("submit", str(tiny_file(tmp_path)), "--address", head.url)
    finally:
        filling.unlink()
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert re.search(r"^raydr: On the cluster: .*No space left on device", done.stderr, re.MULTILINE), (
        done.stderr
    )
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.yaml"]


@pytest.mark.slow
def test_ctrl_c_without_a_terminal_keeps_the_job_and_names_the_next_command(
    head: Place, tmp_path: Path
) -> None:
    with following(head, "submit", endless(tmp_path)) as process:
        job = line_of_stderr(process, r"^job (\S+):")
        line_of_stderr(process, "^(scaling)")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (130, "")
    assert err.endswith(
        "raydr: interrupted. The job continues: to follow and fetch it, run"
        f" `raydr jobs follow {job} --address {head.url}`.\n"
    )
    driver = driver_of(job)
    early = head.raydr("jobs", "fetch", job, "--address", head.url)
    assert early.returncode == 2
    assert "has not ended (running)" in early.stderr
    stopped = head.raydr("jobs", "stop", job, "--address", head.url)
    assert (stopped.returncode, stopped.stdout) == (0, f"{job}\n"), stopped.stderr
    assert not driver.is_running()
    late = head.raydr("jobs", "follow", job, "--address", head.url)
    assert late.returncode == 3
    assert f"The job {job} was stopped" in late.stderr
    assert "scaling: " in late.stderr, "who follows later hears it from its beginning"


@pytest.mark.slow
def test_ctrl_c_on_a_terminal_asks_and_stops_the_job(head: Place, tmp_path: Path) -> None:
    command = [*RAYDR, "submit", endless(tmp_path), "--address", head.url]
    child, terminal = pty.fork()
    if child == 0:
        os.environ |= head.environment
        os.execv(sys.executable, as_from_a_terminal(command))
    seen = read_until(terminal, b"scaling")
    job = re.search(rb"job (raydr-tiny-\w+)", seen)
    assert job is not None
    os.write(terminal, b"\x03")
    read_until(terminal, b"[y/N]")
    os.write(terminal, b"y\n")
    rest = read_until(terminal, None)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
    assert b"is stopped" in rest
    with head.dashboard() as dashboard:
        assert dashboard.job(job[1].decode()).state == "STOPPED"


def read_until(terminal: int, words: bytes | None) -> bytes:
    seen = b""
    while words is None or words not in seen:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            piece = b""
        if not piece:
            assert words is None, seen
            return seen
        seen += piece
    return seen


@pytest.mark.slow
def test_a_lost_head_is_reported_and_followed_again_after_its_return(
    head: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "SILENCE_S", 3.0)
    sent = head.raydr("submit", endless(tmp_path), "--address", head.url, "--detach", "-q")
    job = sent.stdout.strip()
    way = Way(head.url)
    lines: list[str] = []

    def hear(line: str) -> None:
        lines.append(line)
        match message_in(line):
            case StageEnded("data"):
                way.interrupt()
            case StageEnded("scaling"):
                way.close()

    try:
        with head.dashboard(way.url) as dashboard, pytest.raises(RunError, match="has not answered for"):
            dashboard.follow(job, hear)
        events = [message_in(line) for line in lines]
        assert [event.stage for event in events if isinstance(event, StageStarted)][:2] == ["data", "clients"]
        assert len([line for line in lines if "Running entrypoint" in line]) == 1, "nothing is printed twice"
    finally:
        way.close()
        head.raydr("jobs", "stop", job, "--address", head.url)


class Way:
    """A way to a dashboard that can be interrupted."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def interrupt(self) -> None:
        """Cut every connection."""
        for end in self._open:
            cut(end)
        self._open.clear()

    def close(self) -> None:
        """Close all connections and accept no more."""
        cut(self._listener)
        self._listener.close()
        self.interrupt()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._target)
            self._open += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    @staticmethod
    def _pass_on(one: socket.socket, other: socket.socket) -> None:
        try:
            while piece := one.recv(65536):
                other.sendall(piece)
        except OSError:
            pass
        cut(other)


def cut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@pytest.mark.slow
def test_a_wrong_and_a_missing_token_are_refused(head: Place, tmp_path: Path) -> None:
    file = str(tiny_file(tmp_path))
    other = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    for environment, words in ((other, "refused the token"), ({}, "requires a token")):
        done = subprocess.run(
            [*RAYDR, "submit", file, "--address", head.url],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **environment},
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("raydr: The cluster at ")
        assert words in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_an_unknown_job_is_refused(head: Place) -> None:
    with head.dashboard() as dashboard, pytest.raises(OutputError, match="has no raydr job 'unknown'"):
        dashboard.job("unknown")


# --- no head --------------------------------------------------------------------------------------------------------


def paragraph(capsys: pytest.CaptureFixture[str]) -> str:
    """The one paragraph on standard error, with nothing on standard output."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("raydr: ")
    assert err.count("\n") == 1
    return err


class StandIn(http.server.BaseHTTPRequestHandler):
    """Give every request the same answer, in place of a dashboard."""

    answer: bytes
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def stand_in() -> Iterator[Callable[[bytes], tuple[str, list[str]]]]:
    """Start a server that answers so; its address, and what it was asked."""
    servers: list[http.server.HTTPServer] = []

    def start(answer: bytes) -> tuple[str, list[str]]:
        asked: list[str] = []
        handler = type("Answering", (StandIn,), {"answer": answer, "asked": asked})
        servers.append(http.server.HTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}", asked

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_an_address_without_a_service_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert status(["submit", str(tiny_file(tmp_path)), "--address", url]) == 2
    assert f"No Ray dashboard answers at {url} (connection refused)" in paragraph(capsys)
    assert status(["jobs", "--address", "10.0.0.1:6379"]) == 2
    assert "is not the address of a Ray dashboard" in paragraph(capsys)


def test_an_address_of_another_service_is_refused(stand_in: Any, capsys: pytest.CaptureFixture[str]) -> None:
    url, _ = stand_in(b"<html>welcome</html>")
    assert status(["jobs", "--address", url]) == 2
    assert "is not a Ray dashboard" in paragraph(capsys)


def test_another_release_of_ray_is_refused_with_both_versions(
    tmp_path: Path, stand_in: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    import ray

    url, asked = stand_in(json.dumps({"version": "4", "ray_version": "2.31.0", "ray_commit": "x"}).encode())
    assert status(["submit", str(tiny_file(tmp_path)), "--address", url]) == 2
    err = paragraph(capsys)
    assert "runs Ray 2.31.0" in err
    assert ray.__version__ in err
    assert asked == ["/api/version"], "nothing was sent"


def test_an_invalid_scenario_is_refused_before_any_request(
    tmp_path: Path, stand_in: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    url, asked = stand_in(b"{}")
    assert status(["submit", str(tiny_file(tmp_path, clients={"count": 0})), "--address", url]) == 2
    assert "clients.count is 0" in paragraph(capsys)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/file").touch()
    assert status(["submit", str(tiny_file(tmp_path)), "--address", url, "--out", "taken"]) == 2
    assert "is not empty" in paragraph(capsys)
    (tmp_path / "sweep.yaml").write_text(
        yaml.safe_dump({"base": tiny() | {"seed": -1}, "space": {"seed": [1, 2]}})
    )
    assert status(["submit", "sweep.yaml", "--address", url]) == 2
    capsys.readouterr()
    assert asked == []


def test_jobs_need_an_address(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    assert status(["jobs"]) == 2
    assert "--address" in paragraph(capsys)
    url = f"http://127.0.0.1:{free_port()}"
    for arguments in (["jobs", "--address", url, "follow", "x"], ["jobs", "follow", "x", "--address", url]):
        assert status(arguments) == 2
        assert url in paragraph(capsys)


@pytest.mark.parametrize(
    "event",
    [
        StageStarted("data"),
        StageEnded("data", 0.25),
        Progress("rounds", 3, 50),
        IncidentEvent('client 3 is late: "{\n'),
        Failed("no", 2),
        Kept(10**9),
    ],
)
def test_an_event_survives_the_log(event: Any) -> None:
    line = line_of(event)
    assert line is not None
    assert "\n" not in line
    assert message_in(line) == event


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[1]",
        "{}",
        '{"raydr": 3}',
        '{"raydr": ["Progress"]}',
        '{"raydr": "Progress", "stage": "rounds", "done": "many", "total": 50}',
        '{"raydr": "Failed", "text": "no"}',
        '{"raydr": "CheckpointTaken", "round": 1, "content": ""}',
        "{" * 100_000,
    ],
)
def test_other_lines_of_a_log_are_not_events(line: str) -> None:
    assert message_in(line) is None


def test_rounds_and_checkpoints_are_not_logged() -> None:
    assert (
        line_of(
            RoundEnded(
                round=1, objective=None, seconds=0.1, bytes_up=1, bytes_down=1, asked=1, answered=1, failed=0
            )
        )
        is None
    )
    assert line_of(CheckpointTaken(1, b"state")) is None


def test_a_package_has_all_of_raydr_and_is_reproducible(tmp_path: Path) -> None:
    package = shipping.packed({"scenario.yaml": b"name: x"})
    assert package.name == shipping.packed({"scenario.yaml": b"name: x"}).name
    assert package.name != shipping.packed({"scenario.yaml": b"name: y"}).name
    with zipfile.ZipFile(BytesIO(package.content)) as archive:
        archive.extractall(tmp_path)
    # No other raydr is to be found: neither installed, nor by a hook.
    look = (
        "import sys; sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f)]\n"
        "import raydr.front.remote, raydr.actors.jobs, raydr.report, importlib.metadata as m\n"
        "from raydr.scenarios.schema.reading import shipped\n"
        "print(raydr.__file__, m.version('raydr'), len(shipped()))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", look],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd="/",
    )
    from raydr.scenarios.schema.reading import shipped

    assert done.stdout.split()[0] == f"{tmp_path}/raydr/__init__.py", done.stderr
    assert int(done.stdout.split()[2]) == len(shipped())


def test_a_package_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "LARGEST", 10**6)
    noise = np.random.default_rng(0).bytes(2 * 10**6)
    with pytest.raises(DataError, match=r"larger than 1 MB.*files/0/noise"):
        shipping.packed({"files/0/noise": noise})


def test_a_table_that_does_not_fit_is_not_sent_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tiny_file(tmp_path, data={"path": "north.csv"}))
    path = table(tmp_path)
    fits = submission.submission(file, {}, None)
    assert fits.remarks == ()
    assert fits.work["files/0/north.csv"] == path.resolve()
    assert yaml.safe_load(bytes(fits.work["scenario.yaml"]))["data"]["path"] == "files/0/north.csv"  # type: ignore[arg-type]
    monkeypatch.setattr(submission, "LARGEST", submission._OWN + 100)
    stays = submission.submission(file, {}, None)
    assert re.match(r"data\.path was not sent, because .*north\.csv exceeds", stays.remarks[0])
    assert "files/0/north.csv" not in stays.work
    assert yaml.safe_load(bytes(stays.work["scenario.yaml"]))["data"]["path"] == str(path.resolve())  # type: ignore[arg-type]


def test_the_data_set_and_anchors_of_a_folder_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAYDR_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "seeds.npz", X=rng.normal(size=(210, 7)), y=rng.integers(0, 3, 210))
    file = str(tiny_file(tmp_path, data={"source": "seeds"}))
    sent = submission.submission(file, {}, tmp_path)
    assert sent.work["data/seeds.npz"] == tmp_path / "seeds.npz"
    assert json.loads(bytes(sent.work["submission.json"]))["data"]  # type: ignore[arg-type]
    absent = submission.submission(file, {}, None)
    assert absent.remarks == ("seeds is not on this machine: the cluster must have it or download it",)
    table(tmp_path)
    method = {"kind": "sense", "anchor_source": "file", "anchor_path": "north.csv"}
    sense = submission.submission(
        str(tiny_file(tmp_path, data={"path": "north.csv"}, method=method)), {}, None
    )
    assert "files/0/north.csv" in sense.work  # once, though two keys name it


def test_a_returned_folder_names_the_local_files(tmp_path: Path) -> None:
    scenario = tiny_scenario(data={"path": "/there/files/0/north.csv"})
    from raydr.scenarios.schema.reading import dump

    (tmp_path / "trial").mkdir()
    (tmp_path / "trial/scenario.yaml").write_text(dump(scenario))
    submission.localised(tmp_path, {"/there/files/0/north.csv": "/here/north.csv"})
    assert read(tmp_path / "trial/scenario.yaml").data.path == "/here/north.csv"


def in_a_session(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to where a job works, in a folder like that of Ray's session; the folder of its logs."""
    logs = folder / "session_x" / "logs"
    work = folder / "session_x" / "runtime_resources" / "working_dir_files" / "pkg"
    logs.mkdir(parents=True)
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    return logs


def test_a_folder_is_kept_in_parts_and_reassembled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_artifacts, "PART", 1000)
    logs = in_a_session(tmp_path, monkeypatch)
    kept = tmp_path / "run"
    (kept / "model").mkdir(parents=True)
    (kept / "model" / "noise").write_bytes(np.random.default_rng(0).bytes(5000))
    (kept / "empty").touch()
    manifest = job_artifacts.keep(kept, "job-1")
    place = logs / "raydr" / "job-1"
    assert manifest == job_artifacts.Manifest.from_json((place / "manifest.json").read_bytes())
    assert manifest.parts >= 5
    parts = [(place / str(number)).read_bytes() for number in range(manifest.parts)]
    back = tmp_path / "back"
    back.mkdir()
    job_artifacts.unpacked(iter(parts), manifest, back)
    assert (back / "model" / "noise").read_bytes() == (kept / "model" / "noise").read_bytes()
    assert sorted(path.name for path in back.iterdir()) == ["empty", "model"]
    for wrong in (parts[:-1], [*parts[1:], parts[0]], [*parts, b"\0"]):
        with pytest.raises(ValueError, match="SHA-256"):
            job_artifacts.unpacked(iter(wrong), manifest, back)


def archive_of(write: Callable[[tarfile.TarFile], None]) -> bytes:
    """Write a job's archive as another program may have written it."""
    content = BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        write(archive)
    return content.getvalue()


def with_noise(archive: tarfile.TarFile) -> None:
    member = tarfile.TarInfo("noise")
    member.size = 50_000
    archive.addfile(member, BytesIO(np.random.default_rng(0).bytes(member.size)))


def with_long_attributes(archive: tarfile.TarFile) -> None:
    member = tarfile.TarInfo("a")
    member.pax_headers = {"comment": "0" * 2**21}
    archive.addfile(member)


ARCHIVES: dict[str, tuple[bytes, str]] = {
    "cut": (archive_of(with_noise)[:-1000], "its archive is truncated or damaged: .*end-of-stream"),
    "cut at its beginning": (archive_of(with_noise)[:5], "its archive is truncated or damaged"),
    "without content": (b"", "its archive is truncated or damaged"),
    "damaged": (
        archive_of(with_noise)[:60] + bytes(500) + archive_of(with_noise)[560:],
        "truncated or damaged",
    ),
    "no gzip": (b"a" * 5000, "its archive is truncated or damaged: Not a gzip"),
    "of long attributes": (archive_of(with_long_attributes), "a member's attributes take 2097"),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_an_unusable_archive_is_refused_in_one_paragraph(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, said = ARCHIVES[case]
    there = fetched(content, monkeypatch)
    with pytest.raises(RunError, match=said) as caught:
        there(tmp_path)
    assert "Fetch it again with `raydr jobs fetch job-1 --address http://head:8265`" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / ".packed").exists()


def test_an_archive_larger_than_the_disk_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = fetched(archive_of(with_noise), monkeypatch)
    free = shutil.disk_usage(tmp_path)._replace(free=49_999)
    monkeypatch.setattr("raydr.actors.job_artifacts.shutil.disk_usage", lambda place: free)
    with pytest.raises(
        RunError, match=r"needs more space than is free in .*: noise of 48.83 KiB does not fit"
    ):
        there(tmp_path)
    assert list(tmp_path.iterdir()) == []


def fetched(content: bytes, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Bring a job's folder back from a head that kept this archive."""
    digest = hashlib.sha256(content).hexdigest()
    manifest = job_artifacts.Manifest(len(content), -(-len(content) // job_artifacts.PART), digest)
    head = object.__new__(jobs.Head)
    head.url = "http://head:8265"
    monkeypatch.setattr(
        head,
        "_kept",
        lambda job, name: iter([manifest.to_json() if name == job_artifacts.MANIFEST else content]),
    )
    job = jobs.Job(
        id="job-1",
        name="mine",
        kind="run",
        version="0",
        state="SUCCEEDED",
        started=None,
        ended=None,
        node=None,
        message="",
        exit_code=0,
    )
    return lambda folder: head.fetch(job, folder)


def test_a_folder_that_cannot_be_kept_leaves_no_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = in_a_session(tmp_path, monkeypatch)
    (tmp_path / "noise").write_bytes(np.random.default_rng(0).bytes(10**6))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The kernel's limit on files replaces a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, before[1]))
    try:
        with pytest.raises(OutputError, match="Cannot pack"):
            job_artifacts.keep(tmp_path / "noise", "job-1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list((logs / "raydr" / "job-1").iterdir()) == []
    monkeypatch.setattr(job_artifacts, "LARGEST", 500_000)
    with pytest.raises(OutputError, match="larger than"):
        job_artifacts.keep(tmp_path / "noise", "job-2")


def test_a_missing_package_of_the_environment_is_named() -> None:
    import ray

    assert node_check.wrong(shipping.requirements(), ray.__version__) is None
    assert node_check.lacking(["numpy>=1", "no-such-thing>=2", "click>=99", "absent; extra == 'dev'"]) == [
        "no-such-thing is not installed",
        f"click is {__import__('importlib.metadata').metadata.version('click')}, not >=99",
    ]
    assert "not the head's 1.0" in str(node_check.wrong([], "1.0"))


def test_a_python_that_is_too_old_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_check, "OLDEST", (4, 0))
    assert "raydr needs 4.0 or newer" in str(node_check.wrong([], ""))


def test_an_invalid_sweep_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep.yaml"
    tiny_file(tmp_path)
    sweep.write_text(yaml.safe_dump({"name": "s", "base": "tiny.yaml", "space": {"clients.count": [0]}}))
    with pytest.raises(ScenarioError, match=r"clients\.count is 0"):
        submission.submission(str(sweep), {}, None)


@pytest.mark.parametrize("form", ["file", "inner"])
def test_a_sweep_is_sent_with_its_base_and_files(tmp_path: Path, form: str) -> None:
    table(tmp_path)
    base = tiny() | {"data": {"path": str(tmp_path / "north.csv")}}
    tiny_file(tmp_path, data=base["data"])
    given = base if form == "inner" else "tiny.yaml"
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump({"name": "swept", "base": given, "space": {"clients.count": [2, 3]}}))
    sent = submission.submission(str(file), {"seed": 7}, None)
    content = yaml.safe_load(bytes(sent.work["sweep.yaml"]))  # type: ignore[arg-type]
    assert (sent.kind, sent.name) == ("sweep", "swept")
    assert content["base"]["data"] == {"path": "files/0/north.csv"}
    assert content["base"]["seed"] == 7
    assert sent.work["files/0/north.csv"] == tmp_path / "north.csv"
    assert content["space"]["clients.count"][0]["grid"] == [2, 3]


# --- the page -------------------------------------------------------------------------------------------------------


def test_the_manifests_match_their_schemas() -> None:
    import jsonschema
    import ray.autoscaler

    published = yaml.safe_load((SUPPORT / "schemas" / "rayjob.yaml").read_text())
    job = yaml.safe_load((PAGE.parent / "cluster" / "rayjob.yaml").read_text())
    jsonschema.validate(job, published)
    assert job["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token"}
    job["spec"]["rayClusterSpec"]["authOptions"]["mode"] = "tokens"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(job, published)
    own = json.loads((Path(ray.autoscaler.__file__).parent / "ray-schema.json").read_text())
    jsonschema.validate(yaml.safe_load((PAGE.parent / "cluster" / "autoscaling.yaml").read_text()), own)


def test_the_page_has_the_current_limits() -> None:
    text = PAGE.read_text()
    assert f"at most {shipping.LARGEST / 1e6:.0f} MB" in text
    assert f"at most {job_artifacts.LARGEST / 1e9:.0f} GB" in text
    assert f"parts of {job_artifacts.PART / 2**20:.0f} MB" in text
    assert jobs.SILENCE_S == 60.0, "which is `a minute` there"


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    """A head and two nodes on loopback, closed by a token, and a job of two sites; on ports that are free here."""
    block = re.search(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert block is not None
    script = block[1].replace("ray stop\n", "")  # which would end every Ray on this machine
    gcs, dashboard = str(free_port()), str(free_port())
    script = script.replace("6379", gcs).replace("8265", dashboard)
    script = script.replace(
        "ray start --head",
        "ray start --head --temp-dir=$SHORT --ray-client-server-port=$CLIENT_PORT"
        " --dashboard-agent-listen-port=$AGENT_PORT",  # as others may have the usual one
    )
    short = tempfile.mkdtemp(prefix="rj", dir="/tmp")
    script = script.replace("/tmp/north", f"{short}/n").replace("/tmp/east", f"{short}/e")
    rng = np.random.default_rng(5)
    for name in ("north", "east"):
        rows = np.column_stack([rng.normal(size=(30, 4)), rng.integers(0, 2, 30)])
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header="a,b,c,d,kind", comments="")
    sites = [{"path": str(tmp_path / f"{name}.csv"), "node": name} for name in ("north", "east")]
    content = tiny() | {
        "data": {"label": "kind"},
        "clients": {"sites": sites},
        "runtime": {"federation": "ray"},
    }
    (tmp_path / "sites.yaml").write_text(yaml.safe_dump(content))
    mark = uuid.uuid4().hex
    environment = {
        **os.environ,
        TOKEN: mark,
        "SHORT": f"{short}/h",
        "CLIENT_PORT": str(free_port()),
        "AGENT_PORT": str(free_port()),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": "240",
        "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "240",
        "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": "240",
    }
    try:
        done = subprocess.run(
            ["bash", "-euc", script],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=800,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{tmp_path}/two-hospitals/report.html" in done.stdout
        assert re.search(r"raydr-tiny-\w+ +run +tiny +succeeded", done.stdout)
    finally:
        for straggler in processes_of(mark):
            straggler.kill()
        all_gone(mark)
        shutil.rmtree(short, ignore_errors=True)


# --- on the wire ----------------------------------------------------------------------------------------------------


def certificates(folder: Path) -> dict[str, str]:
    """An authority and a certificate of this machine's, as the variables that name them to Ray."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    issuer, subject = (
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("ca", "node")
    )
    now = datetime.now(UTC)
    # Ray takes the machine's own address for the loopback's.
    names = [x509.IPAddress(ip_address(address)) for address in ("127.0.0.1", get_node_ip_address())]
    paths = {}
    for name, key, holder, more in (
        ("CA", keys[0], issuer, x509.BasicConstraints(ca=True, path_length=None)),
        ("SERVER", keys[1], subject, x509.SubjectAlternativeName(names)),
    ):
        made = (
            x509.CertificateBuilder()
            .issuer_name(issuer)
            .subject_name(holder)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(now + timedelta(days=1))
            .add_extension(more, critical=name == "CA")
        )
        paths[f"RAY_TLS_{name}_CERT"] = folder / f"{name}.crt"
        signed = made.sign(keys[0], hashes.SHA256())
        paths[f"RAY_TLS_{name}_CERT"].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    paths["RAY_TLS_SERVER_KEY"] = folder / "node.key"
    paths["RAY_TLS_SERVER_KEY"].write_bytes(
        keys[1].private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return {"RAY_USE_TLS": "1", **{name: str(path) for name, path in paths.items()}}


@pytest.mark.slow
def test_a_run_on_a_cluster_with_tls_matches_a_local_run(tmp_path: Path) -> None:
    short = tempfile.mkdtemp(prefix="rj", dir="/tmp")
    mark, port = uuid.uuid4().hex, free_port()
    environment = {
        **os.environ,
        **certificates(tmp_path),
        TOKEN: mark,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": "240",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    file = tiny_file(tmp_path, runtime={"federation": "ray", "actors": 2, "checkpoint_every": 0})

    def ended(*command: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment | more, timeout=120
        )

    try:
        place = "--node-ip-address=127.0.0.1"
        head = ["--head", place, f"--port={port}", "--include-dashboard=false", f"--temp-dir={short}/h"]
        for options in (head, [f"--address=127.0.0.1:{port}", place, f"--temp-dir={short}/n"]):
            began = ended("ray", "start", *options, "--num-cpus=1")
            assert began.returncode == 0, began.stdout + began.stderr
        done = ended(*RAYDR, "run", str(file), "--address", f"127.0.0.1:{port}", "--out", "secret", "-q")
        assert done.returncode == 0, done.stderr
        here = run(read(file, {"runtime.federation": "inline"}), out=tmp_path / "here")
        assert (tmp_path / "secret/embedding.parquet").read_bytes() == (
            here / "embedding.parquet"
        ).read_bytes()
        plain = ended(*RAYDR, "run", str(file), "--address", f"127.0.0.1:{port}", "-q", RAY_USE_TLS="0")
        assert plain.returncode == 2, plain.stderr
        assert "its RAY_USE_TLS differs from the setting here" in " ".join(plain.stderr.split())
        lost = ended(
            *RAYDR, "run", str(file), "--address", f"127.0.0.1:{port}", "-q", RAY_TLS_SERVER_KEY="no"
        )
        assert lost.returncode == 2, lost.stderr
        assert "RAY_USE_TLS is set, but RAY_TLS_SERVER_KEY do not name" in " ".join(lost.stderr.split())
    finally:
        for straggler in processes_of(mark):
            straggler.kill()
        all_gone(mark)
        shutil.rmtree(short, ignore_errors=True)
