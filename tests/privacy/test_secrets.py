"""What clients know and the server does not: where it comes from, what follows from it, and who never has it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inline_federations import KNOWN
from processes import simulation_processes
from tiny import tiny, tiny_run

from raydr.errors import DataError, OutputError, RaydrError, RunError
from raydr.federation import ClientHost, Crash, FailurePolicy, HostedClient, fingerprint
from raydr.federation.client import HostSecrets
from raydr.federation.simulated.faults import FaultPlan
from raydr.journal import CheckpointTaken, Event, RoundEnded
from raydr.methods.landmarks.maps import FedTSNE
from raydr.methods.serving import Plan
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.mechanism import Coverage
from raydr.privacy.secrets import FOUNDER, SIZE, Origin, Secret, client_secret, group_secret
from raydr.scenarios.runner import resume, run
from raydr.scenarios.schema.reading import read
from raydr.scenarios.schema.scenario import Scenario

NOISY: dict[str, Any] = {"privacy__noise": {"on": "gradient", "multiplier": 1.0}}


def secret_file(folder: Path, content: bytes = b"a secret of a test, 32 bytes or more") -> str:
    path = folder / "secret.key"
    path.write_bytes(content)
    path.chmod(0o600)
    return str(path)


def map_of(folder: Path) -> bytes:
    return (folder / "embedding.parquet").read_bytes()


def test_a_stream_is_the_cipher_itself() -> None:
    """The numbers are the key stream of ChaCha20 as another library has it."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    key = KNOWN.key("stream", "noise", 3)
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor().update(bytes(4096))
    drawn = KNOWN.stream("noise", 3).bit_generator.random_raw(512)
    assert drawn.astype("<u8").tobytes() == stream


def test_names_part_secrets() -> None:
    names = [
        ("client", 1),
        ("client", 2),
        ("client", 12),
        ("client", "1"),
        ("client",),
        ("all clients",),
        ("client", 1, 2),
    ]
    assert len({KNOWN.key(*name) for name in names}) == len(names)
    assert KNOWN.derived("client", 1).key("sealing") != KNOWN.derived("client", 2).key("sealing")
    assert KNOWN.derived("client", 1) == KNOWN.derived("client", 1) != Secret.drawn()


def test_a_secret_is_not_shown() -> None:
    assert "bytes" not in repr(KNOWN)
    assert str(bytes(range(32))) not in repr([KNOWN])
    assert KNOWN.commitment not in KNOWN.key("sealing").hex()


def test_the_users_secret_is_drawn_once_and_is_the_users_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    runs = [Origin().begin("study") for _ in range(3)]
    kept = tmp_path / "raydr" / "secret"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert len(kept.read_bytes()) == SIZE
    assert os.listdir(kept.parent) == ["secret"], "nothing else is left there"
    assert len({found.root.key("x") for found in runs}) == 3, "runs of one study have secrets of their own"
    again = Origin().again("study", runs[1].name)
    assert again == runs[1]
    for other in ("another study", runs[0].name.split("-")[0]):
        assert Origin().begin(other).root != runs[0].root


def test_the_users_secret_lies_in_a_folder_of_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "raydr").mkdir()
    assert Origin().begin("study").root, "where the folder is there and the secret is not"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "not" / "there"))
    name = Origin().begin("study").name
    assert stat.S_IMODE((tmp_path / "not" / "there" / "raydr").stat().st_mode) == 0o700
    assert re.fullmatch("[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{16}", name)
    for other in ("a run", name.rpartition("-")[0], f"{name}-more"):
        with pytest.raises(RunError, match="is not available"):
            Origin().named(other)
    assert Origin().named(name).name == name
    assert re.fullmatch("[0-9a-f]{32}", Origin().fingerprint("rows"))
    assert Origin().fingerprint("rows") == Origin().fingerprint("rows") != Origin().fingerprint("other rows")


@pytest.mark.parametrize("size", [32, 2**20])
def test_runs_of_a_file_repeat_unless_they_may_lose_clients(tmp_path: Path, size: int) -> None:
    origin = Origin(secret_file(tmp_path, bytes(size)))
    assert origin.begin("study") == origin.begin("study")
    assert origin.begin("study").name.split("-")[1] == "file"
    lossy = [origin.begin("study", repeatable=False) for _ in range(2)]
    assert lossy[0].root != lossy[1].root


def test_another_secret_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    begun = Origin().begin("study")
    (tmp_path / "raydr" / "secret").write_bytes(bytes(32))
    with pytest.raises(RunError, match="is not the one in"):
        Origin().again("study", begun.name)
    (tmp_path / "raydr" / "secret").write_bytes(bytes(31))
    with pytest.raises(OutputError, match="damaged: it has 31 bytes"):
        Origin().begin("study")
    (tmp_path / "raydr" / "secret").write_bytes(bytes(32))
    of_file = Origin(secret_file(tmp_path)).begin("study")
    assert Origin(secret_file(tmp_path)).begin("study") == of_file
    with pytest.raises(RunError, match=r"\(privacy\.secret\) has changed"):
        Origin(secret_file(tmp_path, bytes(40))).again("study", of_file.name)
    with pytest.raises(RunError, match="not the one"):
        Origin().again("study", of_file.name)


def test_other_settings_or_rows_are_not_taken_for_another_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    begun = Origin().begin("study")
    with pytest.raises(RunError, match="started with other settings or rows"):
        Origin().again("other", begun.name)


def test_a_name_tells_nothing_of_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever knows all rows but one and guesses the last sees no more than whoever guesses wrong."""

    def name(state: str, study: str, nonce: str = "file") -> str:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / state))
        return Origin()._rooted(study, nonce).name

    told, guessed = name("owner", "the rows").split("-"), name("curious", "the rows").split("-")
    assert told == name("owner", "the rows").split("-"), "the same secret and rows, the same name"
    assert (told[0] != guessed[0], told[2] != guessed[2]) == (True, True)
    assert b"the rows".hex() not in "".join(told)
    assert name("owner", "the rows", "another").split("-")[0] != told[0], (
        "runs of equal rows are not known as such"
    )


def test_no_digest_that_a_run_writes_tells_the_last_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who knows the other 59 rows runs raydr on each guess of the last, and looks for a digest that is the run's."""

    def digests(user: str, last: str) -> dict[str, set[str]]:
        """Digests in what a user's run on a table writes, checkpoints and what they are of included, by file.

        The manifest's digest of a file that lies beside it tells what the file tells, and no more.
        """
        folder, written = tmp_path / user, dict[str, bytes]()
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        folder.mkdir(exist_ok=True)
        rows = [f"{row % 7}.5,{(row * row) % 11}.125" for row in range(59)]
        (folder / "table.csv").write_text("\n".join(["a,b", *rows, last]) + "\n")
        content = tiny() | {"data": {"path": str(folder / "table.csv")}, "clients": {"count": 2}}
        content["method"] = {"kind": "private-map", "epsilon": 1.0, "bounds": [0, 11], "rounds": 2}
        content["runtime"] = {"federation": "inline", "checkpoint_every": 1}

        def hear(event: Event) -> None:
            if isinstance(event, CheckpointTaken):
                written["checkpoint"] = event.content
                for path in folder.rglob("checkpoints/*.json*"):
                    written[path.name] = path.read_bytes()

        run_folder = run(read(content), out=folder / f"run-{len(list(folder.iterdir()))}", listener=hear)
        written |= {path.name: path.read_bytes() for path in run_folder.rglob("*") if path.is_file()}
        lying_beside = {
            hashlib.sha256(content).hexdigest()
            for name, content in written.items()
            if name not in {"fingerprints.json", "sites.npz"}
        }
        found = {
            name: set(re.findall(r"(?=[0-9]*[a-f])[0-9a-f]{16,}", content.decode("latin-1"))) - lying_beside
            for name, content in written.items()
        }
        assert {"checkpoint", "identity.json", "environment.json", "report.html", "data.json"} <= set(found)
        return found

    told, right, wrong = (
        digests("owner", "3.0,4.0"),
        digests("curious", "3.0,4.0"),
        digests("curious", "3.0,5.0"),
    )
    telling = {name for name in told if (told[name] & right[name]) - wrong[name]}
    assert telling == {"fingerprints.json"}, "which stays with the owner of the data"


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot read"), (bytes(31), "has 31 bytes"), (bytes(2**20 + 1), "has 1,048,577 bytes")],
)
def test_a_file_that_holds_no_secret_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = str(tmp_path / "none") if content is None else secret_file(tmp_path, content)
    with pytest.raises(DataError, match=f"privacy.secret: .*{message}"):
        Origin(path).begin("study")


@pytest.mark.parametrize("mode", [0o666, 0o644, 0o640, 0o620, 0o602])
def test_a_secret_file_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "of mine"
    folder.mkdir()
    path = secret_file(folder)
    os.chmod(path, mode)
    with pytest.raises(DataError) as refused:
        Origin(path).begin("study")
    told = re.search(r"\(mode (\d+)\)\. Run `(.*)`", str(refused.value))
    assert told is not None
    assert int(told[1], 8) == mode
    subprocess.run(told[2], shell=True, check=True)
    assert Origin(path).begin("study").root, "once the command was typed that the refusal names"


def test_the_command_that_makes_a_secret_makes_one_that_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "a secret"
    with pytest.raises(DataError) as refused:
        Origin(str(path)).begin("study")
    told = re.search(r"to create one, run `(.*)`", str(refused.value))
    assert told is not None
    subprocess.run(told[1], shell=True, check=True)
    assert Origin(str(path)).begin("study").root


def test_a_run_that_hides_nothing_needs_no_place_for_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    first, second = (tiny_run(tmp_path / name) for name in ("first", "second"))
    assert map_of(first) == map_of(second)
    names = {json.loads((folder / "environment.json").read_text())["run"] for folder in (first, second)}
    assert len(names) == 2
    for hidden in (NOISY, {"privacy__isometry_key": True}, {"privacy__secure_aggregation": True}):
        with pytest.raises(OutputError, match="Set XDG_STATE_HOME"):
            tiny_run(tmp_path / "hidden", **hidden)


def test_a_place_that_cannot_be_written_is_an_error_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(OutputError, match="Set XDG_STATE_HOME"):
        Origin().begin("study")


def test_noise_is_new_in_each_run_unless_a_file_says_otherwise(tmp_path: Path) -> None:
    maps = [map_of(tiny_run(tmp_path / f"drawn-{turn}", **NOISY)) for turn in range(2)]
    assert maps[0] != maps[1]
    kept: dict[str, Any] = {**NOISY, "privacy__secret": secret_file(tmp_path)}
    one = tiny_run(tmp_path / "one", **kept)
    other = tiny_run(
        tmp_path / "other", **kept | {"name": "called-otherwise", "metrics": ["npa_10", "npa_1"]}
    )
    assert map_of(one) == map_of(other), "the same release, however it is called and judged"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = tiny_run(tmp_path / "moved", **kept | {"privacy__secret": secret_file(elsewhere)})
    assert map_of(one) == map_of(moved), "wherever the file lies"
    again = run(read(one / "scenario.yaml"), out=tmp_path / "again")
    assert map_of(one) == map_of(again)


def test_without_noise_no_secret_moves_the_map(tmp_path: Path) -> None:
    assert map_of(tiny_run(tmp_path / "one")) == map_of(tiny_run(tmp_path / "other"))


def test_runs_that_differ_share_no_noise(tmp_path: Path) -> None:
    """Else the difference of two releases would be that of what they hide: here one release is another, scaled."""
    file = secret_file(tmp_path)
    noise = [
        Origin(file).begin(study).root.derived("client", 0).stream("noise").random(4) for study in ("a", "b")
    ]
    assert not np.intersect1d(*noise).size


def test_what_follows_from_the_seed_alone_seals_and_hides_nothing() -> None:
    """Of two hosts with one seed and secrets of their own, no client has a key or noise of the other's."""
    rows = np.zeros((2, 2))
    each = HostedClient(0, rows, fingerprint(rows))
    hosts = [ClientHost(hosted=[each], seed=7), ClientHost(hosted=[each], seed=7)]
    clients = [host._clients[0] for host in hosts]
    assert clients[0].stream("batches").random() == clients[1].stream("batches").random()
    assert clients[0].secret.key("sealing") != clients[1].secret.key("sealing")


class LeftError(Exception):
    pass


def begun_and_left(scenario: Scenario, out: Path, after: int = 2) -> Path:
    """An incomplete run folder with a checkpoint after so many rounds."""

    def stop(event: Event) -> None:
        if isinstance(event, CheckpointTaken) and event.round == after:
            raise LeftError

    with pytest.raises(LeftError):
        run(scenario, out=out, listener=stop)
    (left,) = out.parent.glob(f"{out.name}*incomplete*")
    return left


def resumable(**overrides: Any) -> Scenario:
    content = tiny() | {"runtime": {"federation": "inline", "checkpoint_every": 1}}
    content["method"] |= {"rounds": 4}
    return read(content, {key.replace("__", "."): value for key, value in (NOISY | overrides).items()})


def test_a_run_goes_on_with_its_own_noise(tmp_path: Path) -> None:
    file = secret_file(tmp_path)
    scenario = resumable(privacy__secret=file)
    whole = run(scenario, out=tmp_path / "whole")
    resumed = resume(begun_and_left(scenario, tmp_path / "left"))
    assert map_of(whole) == map_of(resumed)
    assert (whole / "ledger.json").read_bytes() == (resumed / "ledger.json").read_bytes()
    drawn = begun_and_left(resumable(), tmp_path / "drawn")
    assert resume(drawn).exists()


def test_a_run_whose_secret_is_gone_is_not_resumed_with_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rounds after the checkpoint were sent once, and would be sent again under other noise."""
    left = begun_and_left(resumable(), tmp_path / "drawn")
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
        with pytest.raises(RaydrError, match="is kept for each user on each machine"):
            resume(left)
    assert resume(left).exists(), "nothing is lost: with its secret it goes on"
    other = begun_and_left(resumable(privacy__secret=secret_file(tmp_path)), tmp_path / "kept")
    secret_file(tmp_path, bytes(64))
    with pytest.raises(RaydrError, match=r"\(privacy\.secret\) has changed"):
        resume(other)


def derived_from(root: Secret, clients: int) -> list[bytes]:
    """The root, and keys from which all that is secret follows."""
    own = [client_secret(root, index) for index in range(clients)]
    owners = [root, group_secret(own[FOUNDER]), *own]
    return [owner._bytes for owner in owners] + [owner.key("sealing") for owner in owners]


def found_in(content: bytes, secrets: list[bytes]) -> list[int]:
    """Which secrets are there, as they are or in hexadecimal."""
    return [index for index, each in enumerate(secrets) if each in content or each.hex().encode() in content]


def test_no_checkpoint_and_no_run_folder_holds_the_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    checkpoints: list[bytes] = []
    whole = run(
        resumable(),
        out=tmp_path / "whole",
        listener=lambda event: (
            checkpoints.append(event.content) if isinstance(event, CheckpointTaken) else None
        ),
    )
    name = json.loads((whole / "environment.json").read_text())["run"]
    root = Origin().named(name).root
    secrets = [*derived_from(root, 3), (tmp_path / "state" / "raydr" / "secret").read_bytes()]
    written = b"".join(path.read_bytes() for path in sorted(whole.rglob("*")) if path.is_file())
    assert checkpoints
    assert name.encode() in checkpoints[-1]
    assert not found_in(written + b"".join(checkpoints), secrets)
    assert found_in(written + secrets[0], secrets) == [0], "a search that finds what is there"


@pytest.mark.ray
@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="memory of processes cannot be read here")
def test_each_process_holds_the_secrets_of_its_own_clients_alone(cluster: None) -> None:
    """A host has its client's and what all share; the coordinator none, and no hash of rows; none has the root."""
    from raydr.actors.backend import RayBackend

    root = Secret.drawn()
    settings = FedTSNE(landmarks=5, rounds=3, early_iterations=5, iterations=5)
    coverage = Coverage(GaussianNoise(on="gradient", multiplier=1.0))
    plan = Plan(
        method="fed-tsne",
        settings=settings,
        scale="standard",
        seed=0,
        coverage=coverage,
        checkpoint_every=1,
        run="a run",
        isometry_key=True,
        policy=FailurePolicy(retries=1),
        faults=FaultPlan(
            stragglers=1.0,
            delay_s=2.0,  # so that clients are there while they are searched
            crashes=(Crash(client=1, round=1, moment="during"),),
        ),
    )
    secrets = derived_from(root, 2)[:4]
    found: dict[str, list[list[int]]] = {"CoordinatorProcess": [], "ClientProcess": []}
    hashes: dict[str, list[int]] = {name: [] for name in found}
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(20, 3)) for _ in range(2)]

    def search(event: Event) -> None:
        if isinstance(event, RoundEnded) and event.round == 2:
            for name, each in found.items():
                memory = [own_memory(process.pid) for process in simulation_processes(name)]
                each += [found_in(content, secrets) for content in memory]
                hashes[name] += [
                    sum(fingerprint(part).encode() in content for part in parts) for content in memory
                ]

    RayBackend(packing=2).serve(
        parts,
        plan,
        listener=search,
        host_secrets=HostSecrets.derived(root, range(2)),
    )
    group, one, other = 1, 2, 3
    assert hashes == {"CoordinatorProcess": [0], "ClientProcess": [1, 1]}
    assert found["CoordinatorProcess"] == [[]]
    assert sorted(found["ClientProcess"]) == [[group, one], [group, other]]


def own_memory(pid: int) -> bytes:
    """Writable memory of a process that is its own: the object store, which all map, belongs to the node."""
    content = bytearray()
    with open(f"/proc/{pid}/mem", "rb", 0) as memory, open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            place, modes = line.split()[:2]
            start, end = (int(part, 16) for part in place.split("-"))
            if modes != "rw-p" or end - start > 2**28:
                continue
            try:
                memory.seek(start)
                content += memory.read(end - start)
            except (OSError, ValueError):
                continue
    return bytes(content)
