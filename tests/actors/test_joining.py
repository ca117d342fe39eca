"""A run joins a cluster of another user; the search path of workers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from processes import TOKEN, processes_of
from tiny import tiny_file

import raydr
from raydr.actors.search_path import LikeTheDriver
from raydr.errors import OutputError

pytestmark = pytest.mark.ray

_CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start every test in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Start a cluster without raydr's settings; yield its address."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    with subprocess.Popen(
        [sys.executable, "-c", _CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment | {TOKEN: "another user's"},
    ) as cluster:
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        try:
            yield cluster.stdout.readline().strip()
        finally:
            cluster.stdin.close()
            cluster.wait(30)
            for straggler in processes_of("another user's"):
                straggler.kill()


def on_ray(folder: Path, **runtime: Any) -> Path:
    return tiny_file(folder, runtime={"federation": "ray", "actors": 2, "checkpoint_every": 0} | runtime)


_SCRIPT = """
import os, sys
import ray
from raydr.actors.cluster import connected
import neighbour

def here():
    import here
    return here.answer()

with connected(sys.argv[1]):
    calls = (lambda: os.environ.get("OMP_WAIT_POLICY")), neighbour.answer, here
    print(*ray.get([ray.remote(call).remote() for call in calls]))
"""


@pytest.mark.slow  # the tests of a joined cluster's settings and of the search path below
def test_workers_of_a_joined_cluster_are_passive_and_find_local_modules(tmp_path: Path, address: str) -> None:
    """Modules in the folder of the script and in the current folder.

    Without the passive policy, GNU OpenMP spins at barriers: an embedding takes 33 s instead of 3.7 on a busy machine.
    """
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "neighbour.py").write_text("def answer():\n    return 'found'\n")
    (scripts / "script.py").write_text(_SCRIPT)
    (tmp_path / "here.py").write_text("def answer():\n    return 'found here'\n")
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    command = [sys.executable, str(scripts / "script.py"), address]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert done.stdout == "PASSIVE found found here\n"


@pytest.mark.slow
def test_a_joined_cluster_is_named_and_stays_running(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run has the address from its environment; the other from its option, next to files that shadow modules."""
    scenario = str(on_ray(tmp_path))
    with monkeypatch.context() as patch:
        patch.setenv("RAY_ADDRESS", address)
        first = Command("run", scenario, "--out", "first")
    bits = [bits_of_joined_run(first, tmp_path / "first", address)]
    write_shadows(tmp_path)
    again = Command("run", scenario, "--out", "second", "--address", address, program=_CONSOLE)
    bits.append(bits_of_joined_run(again, tmp_path / "second", address))
    assert bits[0] == bits[1]


def bits_of_joined_run(command: Command, out: Path, address: str) -> bytes:
    """Wait for a run that joins a cluster and names it; return the bits of its map."""
    with command:
        code, _, err = command.end(timeout_s=90)
    assert code == 0, err
    assert f"joined the Ray cluster at {address}" in err
    return raydr.Result(out).embedding.tobytes()


def test_workers_of_a_joined_cluster_get_the_settings_of_local_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    from raydr.actors import cluster

    started: list[dict[str, Any]] = []
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.setattr(cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(cluster.ray, "init", lambda **options: started.append(options))
    monkeypatch.setattr(cluster.ray, "shutdown", lambda: None)
    monkeypatch.setattr("raydr.actors.authentication._read_again", lambda: None)
    for name in ("require_answer", "require_worker"):
        monkeypatch.setattr(cluster, name, lambda address, *_: address)
    with cluster.connected("there:1"):
        pass
    (options,) = started
    assert options["address"] == "there:1"
    assert options["runtime_env"] == {"env_vars": {"OMP_WAIT_POLICY": "PASSIVE"}}
    assert isinstance(options["job_config"], LikeTheDriver)


def test_a_cluster_with_a_token_refuses_a_run_without_it(cluster: None) -> None:
    """The tests' own cluster has a token, because raydr started it."""
    import ray

    from raydr.actors.address import require_answer

    with pytest.raises(OutputError, match="requires a token") as caught:
        require_answer(ray.get_runtime_context().gcs_address)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


# --- search path -----------------------------------------------------------------------------------

_SHADOWS = ("actors", "scenarios", "tune", "raydr", "numpy", "yaml", "ray", "random")


_CONSOLE = [str(Path(sys.executable).with_name("raydr"))]


def write_shadows(folder: Path) -> None:
    """Write files with the names of modules, as a user may have them."""
    for name in _SHADOWS:
        (folder / f"{name}.py").write_text(
            f"raise RuntimeError('the file {name}.py of a user was imported')\n"
        )


@pytest.mark.parametrize(
    ("program", "federation"),
    [
        pytest.param(_CONSOLE, "ray", id="raydr", marks=pytest.mark.slow),
        pytest.param([sys.executable, "-P", "-m", "raydr"], "inline", id="python -P -m raydr"),
    ],
)
def test_files_next_to_a_scenario_do_not_shadow_modules(
    tmp_path: Path, program: list[str], federation: str
) -> None:
    """For a run that joins a cluster: test_a_joined_cluster_is_named_and_stays_running."""
    write_shadows(tmp_path)
    scenario = str(on_ray(tmp_path, federation=federation))
    with Command("run", scenario, "--out", "out", "--quiet", program=program) as command:
        code, out, err = command.end(timeout_s=90)
    assert (code, out, err) == (0, f"{tmp_path / 'out' / 'report.html'}\n", "")


def test_workers_have_the_search_path_of_the_driver(cluster: None) -> None:
    import ray

    from raydr.actors.search_path import drivers

    theirs = ray.get(ray.remote(lambda: sys.path).remote())
    ours = list(dict.fromkeys(drivers()))
    assert theirs[: len(ours)] == ours
