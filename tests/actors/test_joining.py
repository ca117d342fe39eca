"""A run on a cluster that somebody else started, and what workers find wherever they run."""

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
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test starts in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster of somebody who knows nothing of raydr's wishes."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    with subprocess.Popen(
        [sys.executable, "-c", _CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment | {TOKEN: "somebody else's"},
    ) as cluster:
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        try:
            yield cluster.stdout.readline().strip()
        finally:
            cluster.stdin.close()
            cluster.wait(30)
            for straggler in processes_of("somebody else's"):
                straggler.kill()


def on_ray(folder: Path, **runtime: Any) -> Path:
    return tiny_file(folder, runtime={"federation": "ray", "actors": 2, "checkpoint_every": 0} | runtime)


_ASKING = """
import os, sys
import ray
from raydr.actors.cluster import connected
with connected(sys.argv[1]):
    print(ray.get(ray.remote(lambda: os.environ.get("OMP_WAIT_POLICY")).remote()))
"""


def test_workers_of_a_cluster_joined_sleep_at_barriers_too(address: str) -> None:
    """GNU OpenMP spins there otherwise: 33 s instead of 3.7 for an embedding with other work on the cores."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    command = [sys.executable, "-c", _ASKING, address]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert done.stdout == "PASSIVE\n"


@pytest.mark.slow
def test_the_cluster_joined_is_named_and_left_running(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a run that has the address from its environment; and by one that is given it, beside files that shadow."""
    scenario = str(on_ray(tmp_path))
    with monkeypatch.context() as patch:
        patch.setenv("RAY_ADDRESS", address)
        first = Command("run", scenario, "--out", "first")
    bits = [bits_of_whole(first, tmp_path / "first", address)]
    write_shadows(tmp_path)
    again = Command("run", scenario, "--out", "second", "--address", address, program=_CONSOLE)
    bits.append(bits_of_whole(again, tmp_path / "second", address))
    assert bits[0] == bits[1]


def bits_of_whole(command: Command, out: Path, address: str) -> bytes:
    """Bits of the map of a run that joins a cluster, once it has ended well and said where it was."""
    with command:
        code, _, err = command.end(timeout_s=90)
    assert code == 0, err
    assert f"joined the Ray cluster at {address}" in err
    return raydr.Result(out).embedding.tobytes()


def test_a_token_of_anothers_cluster_is_asked_for(cluster: None, tmp_path: Path) -> None:
    """The tests' own cluster is one that raydr started, and so closed to others."""
    import ray

    closed = ray.get_runtime_context().gcs_address
    with Command("run", str(on_ray(tmp_path)), "--address", closed, "--quiet") as command:
        code, _, err = command.end()
    assert code == 2
    assert "requires a token" in err
    assert len(err.splitlines()) == 1, err


# --- where modules are looked for -----------------------------------------------------------------------------------

_SHADOWS = ("actors", "scenarios", "tune", "raydr", "numpy", "yaml", "ray", "random")


_CONSOLE = [str(Path(sys.executable).with_name("raydr"))]


def write_shadows(folder: Path) -> None:
    """Files of a user that go by the names of modules."""
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
def test_files_beside_a_scenario_stand_in_nobodys_way(
    tmp_path: Path, program: list[str], federation: str
) -> None:
    """Nor of a run that joins a cluster: above."""
    write_shadows(tmp_path)
    scenario = str(on_ray(tmp_path, federation=federation))
    with Command("run", scenario, "--out", "out", "--quiet", program=program) as command:
        code, out, err = command.end(timeout_s=90)
    assert (code, out, err) == (0, f"{tmp_path / 'out' / 'report.html'}\n", "")


def test_modules_beside_a_script_are_found_by_workers(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "beside.py").write_text("def answer():\n    return 'found'\n")
    (tmp_path / "here.py").write_text("def answer():\n    return 'found here'\n")
    script = tmp_path / "scripts" / "script.py"
    script.write_text(
        """
import ray
from raydr.actors.cluster import connected
import beside

def here():
    import here
    return here.answer()

with connected():
    print(ray.get(ray.remote(beside.answer).remote()), ray.get(ray.remote(here).remote()))
"""
    )
    done = subprocess.run([sys.executable, str(script)], check=True, capture_output=True, text=True)
    assert done.stdout == "found found here\n"


def test_workers_look_where_the_driver_looks_in_its_order(cluster: None) -> None:
    import ray

    from raydr.actors.search_path import drivers

    theirs = ray.get(ray.remote(lambda: sys.path).remote())
    ours = list(dict.fromkeys(drivers()))
    assert theirs[: len(ours)] == ours
