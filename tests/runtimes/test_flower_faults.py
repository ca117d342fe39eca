"""Faults of a deployed run over Flower's processes: the same map or a refusal, each within a stated time.

With ``RAYDR_FAULT_TIMES=FILE.json`` the measured times are added to this file.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from flower_network import Network, network
from flower_sites import Losing
from interruption import interrupted_by_sigterm
from test_flower_loopback import described, hospitals_of_heart_disease, places_of

from raydr.deployment.messages import StartRequest
from raydr.deployment.own_data import OwnData
from raydr.deployment.site_host import SiteHost
from raydr.deployment.site_settings import read_site
from raydr.federation.codec import decode
from raydr.privacy.secrets import Secret
from raydr.runtimes.flower.site_record import site_record
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read

pytestmark = [pytest.mark.slow, pytest.mark.data, pytest.mark.timeout(3600)]

BOUNDS = {"bounds": [0, 700]}
UMAP = {"method": {"kind": "fed-umap", "rounds": 2, "landmarks": 8, "epochs": 5, **BOUNDS}}
FEDNE = {"method": {"kind": "fedne", "rounds": 1, "hidden": [8], "local_steps": 2, **BOUNDS}}
SERVER = """
from pathlib import Path

from raydr.front import flower_app
from raydr.runtimes.flower import grid

honest_run, honest_exchange = flower_app._run, grid.GridCourier.exchange


def run(connection, config):
    try:
        honest_run(connection, config)
    except BaseException as error:
        Path(config["out"] + ".error").write_text(f"{type(error).__name__}: {error}")
        raise


def flipped(messages):
    return {
        site: content[:-40] + bytes([content[-40] ^ 1]) + content[-39:] for site, content in messages.items()
    }


def to_site(self, messages, timeout_s):
    return honest_exchange(self, flipped(messages), timeout_s)


def to_server(self, messages, timeout_s):
    return flipped(honest_exchange(self, messages, timeout_s))


flower_app._run, grid.GridCourier.exchange = run, EXCHANGE
app = flower_app.app_of_server()
"""
"""The server of the app, which also writes its error next to its run folder."""


def measured(fault: str, **seconds: float) -> None:
    """Keep measured times, if a file for them is named."""
    name = os.environ.get("RAYDR_FAULT_TIMES")
    if name is None:
        return
    path = Path(name)
    kept = json.loads(path.read_text()) if path.exists() else {"figures": {}, "ratios": {}}
    kept["figures"] |= {f"{fault}: {what}": round(value) for what, value in seconds.items()}
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


def server_of(exchange: str = "honest_exchange") -> dict[str, str]:
    """The file of the app's server, which carries messages with this function of it."""
    return {"raydr_app/server.py": SERVER.replace("EXCHANGE", exchange)}


@dataclass
class Begun:
    """A run that was started, and what Flower's log says from then on."""

    name: str
    scenario: Path
    out: Path
    log: Path
    at: int
    when: float = field(default_factory=time.monotonic)

    @property
    def said(self) -> str:
        """Flower's log since the start."""
        return self.log.read_bytes()[self.at :].decode()

    @property
    def error_file(self) -> Path:
        """The file of the error with which the server ends."""
        return self.out.with_name(f"{self.out.name}.error")

    @property
    def error(self) -> str:
        """The error with which the server ended; empty before it did."""
        return self.error_file.read_text() if self.error_file.exists() else ""

    @property
    def rounds(self) -> int:
        """Number of rounds that have ended."""
        files = self.out.parent.glob(f"{self.out.name}.incomplete-*/checkpoints/rounds.jsonl")
        return sum(len(file.read_text().splitlines()) for file in files)

    def until(self, reached: Callable[[], Any], within_s: float, what: str) -> float:
        """Wait until something is reached; return the seconds that it took."""
        begun = time.monotonic()
        while not reached():
            assert time.monotonic() - begun < within_s, (
                f"{what}: not within {within_s} s\n{self.said[-6000:]}"
            )
            time.sleep(0.1)
        return time.monotonic() - begun

    def until_complete(self, within_s: float = 900.0) -> None:
        self.until(lambda: self.out.exists() or self.error, within_s, "the run ends")
        assert self.out.exists(), self.error

    def until_refused(self, within_s: float, *reasons: str) -> float:
        """Wait until the run ends with an error that has these reasons; return the seconds since it was started."""
        self.until(lambda: self.error, within_s, "the run is refused")
        seconds = time.monotonic() - self.when
        assert self.error.startswith("RunError: "), self.error
        for reason in reasons:
            assert reason in self.error
        assert not self.out.exists()
        return seconds


@dataclass
class Deployment:
    """Nodes of hospitals on this machine."""

    flower: Network
    settings: dict[str, Path]
    keys: dict[str, str] = field(default_factory=dict)

    def start_nodes(self, sites: Sequence[str]) -> None:
        self.keys |= {site: self.flower.register(site) for site in sites}
        for site in sites:
            self.flower.start_node(site, self.settings[site])

    def begin(
        self,
        name: str,
        keys: Mapping[str, Any],
        sites: Sequence[str],
        runtime: Mapping[str, Any],
        exchange: str = "honest_exchange",
    ) -> Begun:
        """Start a run."""
        content = described(name, {"deployed": list(sites)}, dict(keys))
        content["runtime"] |= {"checkpoint_every": 1, **runtime}
        folder = self.flower.folder.parent
        scenario, nodes = folder / f"{name}.yaml", folder / f"{name}-nodes.yaml"
        scenario.write_text(yaml.safe_dump(content))
        nodes.write_text(yaml.safe_dump({site: self.keys[site] for site in sites}))
        log = self.flower.folder / "superlink.log"
        begun = Begun(name, scenario, folder / name, log, log.stat().st_size)
        self.flower.begin({"scenario": scenario, "nodes": nodes, "out": begun.out}, server_of(exchange))
        return replace(begun, when=time.monotonic())

    def resume(self, begun: Begun) -> None:
        """Start the run again from its last checkpoint."""
        nodes = begun.scenario.with_name(f"{begun.name}-nodes.yaml")
        config = {"scenario": begun.scenario, "nodes": nodes, "out": begun.out}
        self.flower.begin(config, server_of(), resume=True)

    def server(self) -> psutil.Process:
        """The process of the run's server."""
        (found,) = [
            child
            for child in self.flower.tree("superlink")
            if any("flwr-serverapp" in word for word in child.cmdline())
        ]
        return found

    def has_answered(self, site: str, begun: Begun, request: str) -> bool:
        """Whether the site has received a request of this type in the run, by its own record."""
        with site_record(self.settings[site].parent / "raydr-site", begun.name) as record:
            return record.notes is not None and request in decode(record.notes)["ledger"]["entries"]

    def answers(self, site: str, since: float) -> bool:
        """Whether a process of the site that has begun since then answers a message."""
        for process in self.flower.tree(site):
            with suppress(psutil.NoSuchProcess):
                if process.create_time() > since and any(
                    "flwr-clientapp" in word for word in process.cmdline()
                ):
                    return True
        return False

    def restart(self, site: str, begun: Begun) -> float:
        """Start a killed node until the SuperLink lets it in, as a service manager does; return the seconds."""
        log = self.flower.folder / f"{site}.log"
        at = log.stat().st_size
        since = time.monotonic()
        while "SuperNode ID" not in log.read_bytes()[at:].decode():
            assert time.monotonic() - since < 180.0, log.read_text()[-4000:]
            process = self.flower.processes.get(site)
            if process is None or process.poll() is not None:
                self.flower.start_node(site, self.settings[site])
            time.sleep(0.5)
        return time.monotonic() - since

    def undisturbed(self, begun: Begun, lost: Mapping[int, set[int]] | None = None) -> bytes:
        """Places of the same run in one process, with the sites' own secrets; ``lost`` names clients by round."""
        scenario = read(begun.scenario)
        hosts = []
        for index, name in enumerate(scenario.clients.deployed):
            site = read_site(self.settings[name])
            with site_record(Path(site.folder), begun.name) as record:
                (start,) = (decode(call) for call in record.calls(around=True))
            secret = OwnData(site).secret(start.request)
            hosts.append(SiteHost(site=site, index=index))
            hosts[-1].own = KnownSecret(site, drawn=secret)
        out = begun.out.with_name(f"{begun.name}-undisturbed")
        return places_of(run(scenario, out=out, report=False, port=Losing(hosts, lost=lost or {})))


@dataclass
class KnownSecret(OwnData):
    """A site's own data, with the secret that it has drawn for another run."""

    drawn: Secret = field(kw_only=True)

    def secret(self, start: StartRequest) -> Secret:
        return self.drawn


@pytest.fixture(scope="module")
def deployment(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Three hospitals, whose nodes are started once, and a fourth without a node."""
    pytest.importorskip("flwr", reason="runs over Flower need the extra flower")
    folder = tmp_path_factory.mktemp("faults")
    settings = hospitals_of_heart_disease(data_dir, folder / "sites")
    with interrupted_by_sigterm(), network(folder / "network") as flower:
        found = Deployment(flower, settings)
        found.start_nodes(list(settings)[:3])
        yield found


@pytest.fixture
def lasting(data_dir: Path, tmp_path: Path) -> Iterator[Deployment]:
    """Two hospitals, and a SuperLink that keeps its state in a file."""
    pytest.importorskip("flwr", reason="runs over Flower need the extra flower")
    settings = hospitals_of_heart_disease(data_dir, tmp_path / "sites")
    database = str(tmp_path / "superlink.db")
    with interrupted_by_sigterm(), network(tmp_path / "network", "--database", database) as flower:
        found = Deployment(flower, settings)
        found.start_nodes(list(settings)[:2])
        yield found


@pytest.mark.parametrize("direction", ["to_site", "to_server"])
def test_message_with_one_changed_bit_is_refused(deployment: Deployment, direction: str) -> None:
    sites = list(deployment.settings)[:2]
    begun = deployment.begin(f"flipped-{direction}", UMAP, sites, {"timeout_s": 240}, direction)
    seconds = begun.until_refused(300, "the message changed on its way")
    (number,) = re.findall(r"Created run (\d+)", begun.said)
    begun.until(lambda: "Finished task" in begun.said, 60, "Flower ends the run")
    assert "the message changed on its way" in deployment.flower.flwr("log", number, "here", "--show")
    measured(f"one changed bit, {direction}", limit=300, refused=seconds)


def test_node_with_an_unknown_key_is_not_asked_and_named(deployment: Deployment) -> None:
    """Its key is registered at the SuperLink, but the run binds the site to another key."""
    flower, (*known, last) = deployment.flower, deployment.settings
    deployment.keys[last] = flower.register("absent")
    flower.register("stranger")
    flower.start_node("stranger", deployment.settings[last])
    try:
        begun = deployment.begin("stranger", UMAP, [known[0], last], {"timeout_s": 90, "retries": 0})
        seconds = begun.until_refused(
            150,
            "was not connected in 90 s (connected with a key that is no site's, and not asked: SHA256:",
            last,
        )
    finally:
        flower.end("stranger")
    assert not (deployment.settings[last].parent / "raydr-site").exists()
    measured("key that is no site's", limit=240, refused=seconds)


def test_node_with_an_unregistered_key_is_turned_away(deployment: Deployment) -> None:
    flower = deployment.flower
    flower.write_key("unregistered")
    begun = time.monotonic()
    flower.start_node("unregistered", deployment.settings[list(deployment.settings)[-1]])
    process = flower.processes["unregistered"]
    try:
        assert process.wait(120) != 0
    finally:
        flower.end("unregistered")
    said = (flower.folder / "unregistered.log").read_text()
    assert "Failed to initialize the connection to the SuperLink" in said
    measured("unregistered key", limit=120, refused=time.monotonic() - begun)


def test_node_that_never_answers_ends_the_run_in_time(deployment: Deployment) -> None:
    sites = list(deployment.settings)[:2]
    deployment.flower.send(sites[1], signal.SIGSTOP)
    try:
        begun = deployment.begin("silent", UMAP, sites, {"timeout_s": 60, "retries": 0})
        seconds = begun.until_refused(180, "Client 1 did not answer", f"site {sites[1]!r}")
    finally:
        deployment.flower.send(sites[1], signal.SIGCONT)
    measured("silent node, no quorum", limit=180, refused=seconds)


def test_rounds_go_on_without_a_silent_node_and_the_map_is_that_of_these_rounds(
    deployment: Deployment,
) -> None:
    sites = list(deployment.settings)[:3]
    method = {"method": UMAP["method"] | {"rounds": 3}}
    begun = deployment.begin("quorum", method, sites, {"timeout_s": 600, "retries": 0, "quorum": 0.6})
    begun.until(lambda: begun.rounds >= 1, 600, "the first round ends")
    deployment.flower.send(sites[1], signal.SIGSTOP)
    try:
        seconds = begun.until(lambda: begun.rounds >= 2, 150, "the second round ends without the node")
    finally:
        deployment.flower.send(sites[1], signal.SIGCONT)
    begun.until_complete()
    lines = [json.loads(line) for line in (begun.out / "rounds.jsonl").read_text().splitlines()]
    lost = {line["round"]: {each["client"] for each in line["incidents"]} for line in lines}
    assert 1 in lost[2]
    assert places_of(begun.out) == deployment.undisturbed(begun, lost)
    measured("silent node, quorum 0.6", limit=150, round=seconds)


def test_killed_node_goes_on_from_its_record_with_the_same_map(deployment: Deployment) -> None:
    sites = list(deployment.settings)[:2]
    begun = deployment.begin("killed", FEDNE, sites, {"timeout_s": 300})
    begun.until(lambda: deployment.has_answered(sites[1], begun, "DensityRequest"), 900, "the round begins")
    since = time.time()
    begun.until(lambda: deployment.answers(sites[1], since), 300, "the node answers in the round")
    deployment.flower.end(sites[1], signal.SIGKILL)
    killed = time.monotonic()
    with site_record(deployment.settings[sites[1]].parent / "raydr-site", begun.name) as record:
        assert record.followed, "the site's state is in its record alone"
    connected = deployment.restart(sites[1], begun)
    begun.until_complete(840)
    complete = time.monotonic() - killed
    lines = [json.loads(line) for line in (begun.out / "rounds.jsonl").read_text().splitlines()]
    assert any(each["client"] == 1 for each in lines[0]["incidents"]), "the node was killed before its answer"
    assert places_of(begun.out) == deployment.undisturbed(begun)
    measured("killed node", limit=1020, connected=connected, complete=complete)


def test_run_goes_on_after_a_killed_link_is_started_again(lasting: Deployment) -> None:
    sites = list(lasting.settings)[:2]
    begun = lasting.begin("link", UMAP, sites, {"timeout_s": 240})
    begun.until(lambda: begun.rounds >= 1, 600, "the first round ends")
    lasting.flower.children += lasting.flower.tree("superlink")[1:]
    lasting.flower.processes.pop("superlink").kill()
    killed = time.monotonic()
    assert not begun.out.exists()
    lasting.flower.start_link("--database", str(lasting.flower.folder.parent / "superlink.db"))
    begun.until_complete(300)
    assert places_of(begun.out) == lasting.undisturbed(begun)
    measured("SuperLink killed and started again", limit=300, complete=time.monotonic() - killed)


def test_killed_link_ends_the_run_which_is_resumed_with_the_same_map(lasting: Deployment) -> None:
    sites = list(lasting.settings)[:2]
    begun = lasting.begin("lost-link", UMAP, sites, {"timeout_s": 60})
    begun.until(lambda: begun.rounds >= 1, 600, "the first round ends")
    lasting.flower.children += lasting.flower.tree("superlink")[1:]
    lasting.flower.processes.pop("superlink").kill()
    killed = time.monotonic()
    begun.until(lambda: begun.error, 180, "the run ends")
    ended = time.monotonic() - killed
    assert begun.error.startswith("RunError: Flower's SuperLink has")
    assert not begun.out.exists()
    lasting.flower.start_link("--database", str(lasting.flower.folder.parent / "superlink.db"))
    begun.error_file.unlink()
    lasting.resume(begun)
    begun.until_complete()
    assert places_of(begun.out) == lasting.undisturbed(begun)
    measured("killed SuperLink", limit=180, ended=ended, complete=time.monotonic() - killed)


def test_killed_server_is_resumed_with_the_same_map(deployment: Deployment) -> None:
    sites = list(deployment.settings)[:2]
    begun = deployment.begin("server", UMAP, sites, {"timeout_s": 240})
    begun.until(lambda: begun.rounds >= 1, 600, "the first round ends")
    deployment.server().kill()
    killed = time.monotonic()
    assert not begun.out.exists()
    deployment.resume(begun)
    begun.until_complete()
    assert places_of(begun.out) == deployment.undisturbed(begun)
    measured("killed server", limit=900, complete=time.monotonic() - killed)


def test_silent_link_ends_the_run_in_time(lasting: Deployment) -> None:
    sites = list(lasting.settings)[:2]
    begun = lasting.begin("silent-link", UMAP, sites, {"timeout_s": 60})
    begun.until(lambda: lasting.has_answered(sites[0], begun, "ReadRequest"), 600, "the run begins")
    link, server = psutil.Process(lasting.flower.processes["superlink"].pid), lasting.server()
    link.suspend()
    stopped = time.monotonic()
    try:
        begun.until(lambda: begun.error, 200, "the run ends")
        seconds = time.monotonic() - stopped
        server.wait(60)
    finally:
        link.resume()
    assert begun.error.startswith("RunError: Flower's SuperLink has")
    assert not begun.out.exists()
    measured("silent SuperLink", limit=200, refused=seconds)


def test_restarted_link_without_a_database_turns_its_nodes_away(data_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="runs over Flower need the extra flower")
    settings = hospitals_of_heart_disease(data_dir, tmp_path / "sites")
    site = next(iter(settings))
    with interrupted_by_sigterm(), network(tmp_path / "network") as flower:
        Deployment(flower, settings).start_nodes([site])
        log = flower.folder / f"{site}.log"
        deadline = time.monotonic() + 120
        while "SuperNode ID" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.2)
        flower.end("superlink", signal.SIGKILL)
        flower.start_link()
        begun = time.monotonic()
        flower.processes[site].wait(120)
        measured("restarted SuperLink without a database", limit=120, refused=time.monotonic() - begun)


def test_expired_certificate_is_refused(data_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="runs over Flower need the extra flower")
    settings = hospitals_of_heart_disease(data_dir, tmp_path / "sites")
    site = next(iter(settings))
    flower = Network(tmp_path / "network")
    with interrupted_by_sigterm(), ExitStack() as ended:
        ended.callback(flower.end_all)
        flower.write_certificates(days=-1)
        flower.start_link()
        with pytest.raises(AssertionError, match="Connection to the SuperLink is unavailable"):
            flower.register(site)
        begun = time.monotonic()
        flower.start_node(site, settings[site])
        assert flower.processes[site].wait(120) != 0
        measured("expired certificate", limit=120, refused=time.monotonic() - begun)
        assert "certificate has expired" in (flower.folder / f"{site}.log").read_text()
