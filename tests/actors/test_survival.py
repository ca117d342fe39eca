"""Results stay the same when processes, nodes and drivers die."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import yaml
from inline_federations import KNOWN
from places import SUPPORT
from processes import runs, simulation_processes
from requests_for_tests import Gate

import raydr
from raydr.federation import FailurePolicy
from raydr.federation.client import HostSecrets
from raydr.federation.releases import by_name
from raydr.journal import Charged, Event, IncidentEvent, Listener, RoundEnded
from raydr.methods.landmarks.maps import FedTSNE
from raydr.methods.serving import Plan
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.mechanism import Coverage
from raydr.scenarios.running.backend import InlineBackend

# On a busy machine Ray starts six times as slowly.
pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]
ROUNDS = 12


def rows() -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.normal(size=(size, 4)) for size in (20, 30, 25)]


def plan(**options: Any) -> Plan:
    settings = FedTSNE(landmarks=10, rounds=ROUNDS, early_iterations=20, iterations=20)
    return Plan(method="fed-tsne", settings=settings, scale="standard", seed=0, checkpoint_every=3, **options)


def ignore(event: Event) -> None:
    pass


@pytest.mark.parametrize("quorum", [1.0, pytest.param(0.6, marks=pytest.mark.slow)])
def test_a_killed_coordinator_resumes_and_every_release_is_recorded(
    cluster: None, tmp_path: Path, quorum: float
) -> None:
    """With quorum 1 a repeated round is the same release; otherwise it is another one.

    test_noise_streams.py tests the other one inline.
    """
    from raydr.actors.backend import RayBackend

    gate = Gate(round=8, opened_by=str(tmp_path / "open"))
    noise = Coverage(GaussianNoise(on="gradient", multiplier=20.0, per="sum"))
    how: dict[str, Any] = {"coverage": noise, "policy": FailurePolicy(quorum=quorum)}
    host_secrets = HostSecrets.derived(KNOWN, range(len(rows())))
    killed, written, events = list[int](), list[str](), list[Event]()

    def kill_after_round_7(event: Event) -> None:
        events.append(event)
        if isinstance(event, Charged):
            written.append(event.line)
        if isinstance(event, RoundEnded) and event.round == 7 and not killed:
            for process in simulation_processes("CoordinatorProcess"):
                process.kill()
                killed.append(process.pid)
            Path(gate.opened_by).touch()

    served = RayBackend(packing=1).serve(
        rows(), plan(faults=gate, **how), listener=kill_after_round_7, host_secrets=host_secrets
    )
    whole = InlineBackend().serve(rows(), plan(**how), listener=ignore, host_secrets=host_secrets)
    assert killed
    assert any(isinstance(event, IncidentEvent) and "last checkpoint" in event.text for event in events)
    releases = sum(served.ledger.charges.values())
    assert len(by_name(written)) == releases, "each is recorded"
    if quorum == 1:
        assert served.outcome.embedding.tobytes() == whole.outcome.embedding.tobytes()
        assert served.ledger.charges == whole.ledger.charges
        assert served.ledger.as_list() == whole.ledger.as_list()
    else:
        assert ROUNDS < releases <= ROUNDS + 2, "round 7, and 8 if it was under way"


def test_a_run_fails_if_its_coordinator_dies_too_often(cluster: None, tmp_path: Path) -> None:
    from raydr.actors.backend import RayBackend
    from raydr.errors import RunError

    gate = Gate(round=8, opened_by=str(tmp_path / "never"))

    def kill_at_once(event: Event) -> None:
        if isinstance(event, RoundEnded):
            for process in simulation_processes("CoordinatorProcess"):
                process.kill()

    once = plan(policy=FailurePolicy(retries=0), faults=gate)
    with pytest.raises(RunError, match="ended 1 times"):
        RayBackend(packing=1).serve(rows(), once, listener=kill_at_once)


def test_an_evaluation_uses_the_process_that_started_early_and_a_new_one_if_that_has_ended(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from raydr.actors import backend as backends
    from raydr.actors.backend import ray_backend

    monkeypatch.setattr(backends, "evaluates_early", lambda values, memory_bytes: values == 1)
    first, events = tmp_path / "first", []

    def libraries() -> None:
        first.write_text(str(os.getpid()))

    def work(*, listener: Listener) -> int:
        return os.getpid()

    def ended_at_first(*, listener: Listener) -> int:
        if first.read_text() == str(os.getpid()):
            os._exit(1)
        return os.getpid()

    for evaluated, restarts in ((work, 0), (ended_at_first, 1)):
        with ray_backend(None, "auto", 60.0) as backend:
            backend.prepare_evaluation(libraries, values=1)
            process = backend.evaluate(evaluated, listener=events.append)
        assert (str(process) == first.read_text()) == (not restarts)
        assert len(events) == restarts
    with ray_backend(None, "auto", 60.0) as backend:
        backend.prepare_evaluation(libraries, values=2)
        assert backend._early is None
        first.unlink()
        backend.prepare_evaluation(libraries, values=1)
        while not first.exists():
            time.sleep(0.05)
    deadline = time.monotonic() + 60
    while simulation_processes():  # it ends without work, although its backend is still referred to
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert backend.actors == 0


@pytest.mark.slow  # test_sweeps_on_ray.py has simultaneous trials
def test_two_simultaneous_simulations_match_inline_and_leave_no_process(cluster: None) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from raydr.actors.backend import RayBackend

    during: list[psutil.Process] = []

    def simulate(_: int) -> bytes:
        backend = RayBackend(packing=1)
        served = backend.serve(rows(), plan(), listener=lambda _: during.extend(simulation_processes()))
        return served.outcome.embedding.tobytes()

    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(simulate, range(2)))
    assert both == [InlineBackend().serve(rows(), plan(), listener=ignore).outcome.embedding.tobytes()] * 2
    assert len({process.pid for process in during}) == 4, "a coordinator and a client process of each"
    _wait_for(lambda: True if not simulation_processes() else None, timeout_s=120)


def test_a_cluster_that_is_too_small_is_refused_with_its_size(cluster: None) -> None:
    from raydr.actors.placement import require_room
    from raydr.actors.resources import Room
    from raydr.errors import ScenarioError

    with pytest.raises(ScenarioError, match=r"1000000 client actors need about \d+\.\d GiB.*runtime.actors"):
        require_room(rows(), 1_000_000, Room.here())
    require_room(rows(), 2, Room.here())


@pytest.mark.slow
def test_a_run_resumes_to_the_same_map_after_its_driver_is_killed(tmp_path: Path) -> None:
    scenario = {
        "name": "interrupted",
        "data": {"source": "iris", "scale": "standard"},
        "clients": {"count": 3, "partition": {"kind": "iid"}},
        "method": {
            "kind": "fed-tsne", "landmarks": 10, "rounds": 20, "early_iterations": 20, "iterations": 20,
        },
        # Every client is slow, so that the driver can be killed during the rounds.
        "faults": {"stragglers": 1.0, "delay_s": 0.2},
        "runtime": {"actors": 1, "checkpoint_every": 2},
        "metrics": ["npa_10"],
    }  # fmt: skip
    path = tmp_path / "interrupted.yaml"
    path.write_text(yaml.safe_dump(scenario))
    driver = subprocess.Popen(
        [sys.executable, "-m", "raydr", "run", str(path), "--out", str(tmp_path / "run"), "--quiet"],
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        folder = _wait_for(
            lambda: next(iter(tmp_path.glob("run.incomplete-*/checkpoints/*.npz")), None)
        ).parents[1]
        processes = psutil.Process(driver.pid).children(recursive=True)
    finally:
        driver.kill()
        driver.wait()
    assert processes
    # Two agents of Ray notice the end of their raylet after a minute.
    mortal = [process for process in processes if not _is_agent_of_ray(process)]
    assert len(mortal) > 2
    _wait_for(lambda: True if not any(map(runs, mortal)) else None, timeout_s=240)
    assert not (tmp_path / "run").exists()
    subprocess.run([sys.executable, "-m", "raydr", "run", "--resume", str(folder), "--quiet"], check=True)
    whole = {**scenario, "faults": {}, "runtime": {"federation": "inline"}}
    raydr.run(whole, out=tmp_path / "whole")
    for file in ("embedding.parquet", "metrics.json", "ledger.json"):
        assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes(), file
    rounds = [
        line.partition('"seconds"')[0]
        for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    ]
    assert len(rounds) == 20, "each round is there once"


@pytest.fixture(scope="module")
def several_nodes() -> subprocess.CompletedProcess[str]:
    """Run several raylets on this machine, in another process, because a process joins only one cluster."""
    script = SUPPORT / "several_nodes.py"
    return subprocess.run(
        [sys.executable, str(script)], check=False, capture_output=True, text=True, timeout=850
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "trial-of-two-nodes",
        "trial-with-sites",
        "sites",
        "site-lost",
        "neighbours",
        "neighbours-node-lost",
        "node-lost",
    ],
)
def test_a_cluster_of_several_nodes(several_nodes: subprocess.CompletedProcess[str], case: str) -> None:
    assert f"{case}: as expected" in several_nodes.stdout.splitlines(), several_nodes.stderr[-3000:]


def _is_agent_of_ray(process: psutil.Process) -> bool:
    """Whether it is one of the two agents of a raylet, by its script or its later title."""
    try:
        return any(word.endswith(("/agent.py", "/agent/main.py", "Agent")) for word in process.cmdline())
    except psutil.Error:
        return False


def _wait_for(look: Any, timeout_s: float = 300) -> Any:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        found = look()
        if found is not None:
            return found
        time.sleep(0.05)
    raise TimeoutError
