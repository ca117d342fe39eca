"""Secrets of clients: their origin, the keys derived from them, and where they must not be."""

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


def test_stream_is_the_chacha20_key_stream() -> None:
    """The numbers equal the ChaCha20 key stream of another library."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    key = KNOWN.key("stream", "noise", 3)
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor().update(bytes(4096))
    drawn = KNOWN.stream("noise", 3).bit_generator.random_raw(512)
    assert drawn.astype("<u8").tobytes() == stream


def test_names_give_different_keys() -> None:
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


def test_secret_is_not_in_repr() -> None:
    assert "bytes" not in repr(KNOWN)
    assert str(bytes(range(32))) not in repr([KNOWN])
    assert KNOWN.commitment not in KNOWN.key("sealing").hex()


def test_user_secret_is_drawn_once_and_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_user_secret_is_in_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_runs_with_a_secret_file_repeat_unless_clients_may_be_lost(tmp_path: Path, size: int) -> None:
    origin = Origin(secret_file(tmp_path, bytes(size)))
    assert origin.begin("study") == origin.begin("study")
    assert origin.begin("study").name.split("-")[1] == "file"
    lossy = [origin.begin("study", repeatable=False) for _ in range(2)]
    assert lossy[0].root != lossy[1].root


def test_changed_secret_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_changed_settings_are_not_reported_as_a_changed_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    begun = Origin().begin("study")
    with pytest.raises(RunError, match="started with other settings or rows"):
        Origin().again("other", begun.name)


def test_run_name_reveals_nothing_about_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name does not confirm a guess of one unknown row."""

    def name(state: str, study: str, nonce: str = "file") -> str:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / state))
        return Origin()._rooted(study, nonce).name

    reported, guessed = name("owner", "the rows").split("-"), name("curious", "the rows").split("-")
    assert reported == name("owner", "the rows").split("-"), "the same secret and rows, the same name"
    assert (reported[0] != guessed[0], reported[2] != guessed[2]) == (True, True)
    assert b"the rows".hex() not in "".join(reported)
    assert name("owner", "the rows", "another").split("-")[0] != reported[0], (
        "runs of equal rows are not known as such"
    )


def test_digests_of_a_run_do_not_confirm_a_guessed_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adversary knows 59 rows, runs raydr on guesses of the last one, and compares digests."""

    def digests(user: str, last: str) -> dict[str, set[str]]:
        """Return the digests in all files and checkpoints of a user's run, by file.

        Digests of files in the folder are excluded: they reveal no more than the files.
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

    reported, right, wrong = (
        digests("owner", "3.0,4.0"),
        digests("curious", "3.0,4.0"),
        digests("curious", "3.0,5.0"),
    )
    shared = {name for name in reported if (reported[name] & right[name]) - wrong[name]}
    assert shared == {"fingerprints.json"}, "the file stays with the owner of the data"


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot read"), (bytes(31), "has 31 bytes"), (bytes(2**20 + 1), "has 1,048,577 bytes")],
)
def test_invalid_secret_files_are_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = str(tmp_path / "none") if content is None else secret_file(tmp_path, content)
    with pytest.raises(DataError, match=f"privacy.secret: .*{message}"):
        Origin(path).begin("study")


@pytest.mark.parametrize("mode", [0o666, 0o644, 0o640, 0o620, 0o602])
def test_secret_file_with_open_permissions_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "of mine"
    folder.mkdir()
    path = secret_file(folder)
    os.chmod(path, mode)
    with pytest.raises(DataError) as refused:
        Origin(path).begin("study")
    reported = re.search(r"\(mode (\d+)\)\. Run `(.*)`", str(refused.value))
    assert reported is not None
    assert int(reported[1], 8) == mode
    subprocess.run(reported[2], shell=True, check=True)
    assert Origin(path).begin("study").root, "once the command was typed that the refusal names"


def test_suggested_command_creates_a_valid_secret(tmp_path: Path) -> None:
    path = tmp_path / "a secret"
    with pytest.raises(DataError) as refused:
        Origin(str(path)).begin("study")
    reported = re.search(r"to create one, run `(.*)`", str(refused.value))
    assert reported is not None
    subprocess.run(reported[1], shell=True, check=True)
    assert Origin(str(path)).begin("study").root


def test_run_without_secrets_needs_no_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    first, second = (tiny_run(tmp_path / name) for name in ("first", "second"))
    assert map_of(first) == map_of(second)
    names = {json.loads((folder / "environment.json").read_text())["run"] for folder in (first, second)}
    assert len(names) == 2
    for hidden in (NOISY, {"privacy__isometry_key": True}, {"privacy__secure_aggregation": True}):
        with pytest.raises(OutputError, match="Set XDG_STATE_HOME"):
            tiny_run(tmp_path / "hidden", **hidden)


def test_unwritable_state_folder_error_suggests_a_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(OutputError, match="Set XDG_STATE_HOME"):
        Origin().begin("study")


def test_noise_is_new_in_each_run_unless_a_secret_file_is_set(tmp_path: Path) -> None:
    maps = [map_of(tiny_run(tmp_path / f"drawn-{turn}", **NOISY)) for turn in range(2)]
    assert maps[0] != maps[1]
    kept: dict[str, Any] = {**NOISY, "privacy__secret": secret_file(tmp_path)}
    one = tiny_run(tmp_path / "one", **kept)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = tiny_run(
        tmp_path / "other",
        **kept
        | {
            "name": "another-name",
            "metrics": ["npa_10", "npa_1"],
            "privacy__secret": secret_file(elsewhere),
        },
    )
    assert map_of(one) == map_of(other), "name, metrics and place of the secret do not change the release"
    again = run(read(one / "scenario.yaml"), out=tmp_path / "again", report=False)
    assert map_of(one) == map_of(again)


def test_secret_does_not_change_a_map_without_noise(tmp_path: Path) -> None:
    assert map_of(tiny_run(tmp_path / "one")) == map_of(tiny_run(tmp_path / "other"))


def test_different_runs_share_no_noise(tmp_path: Path) -> None:
    """With equal noise, the difference of two releases would reveal the data."""
    file = secret_file(tmp_path)
    noise = [
        Origin(file).begin(study).root.derived("client", 0).stream("noise").random(4) for study in ("a", "b")
    ]
    assert not np.intersect1d(*noise).size


def test_seed_alone_determines_no_key() -> None:
    """Two hosts with one seed and different secrets have different keys and noise."""
    rows = np.zeros((2, 2))
    each = HostedClient(0, rows, fingerprint(rows))
    hosts = [ClientHost(hosted=[each], seed=7), ClientHost(hosted=[each], seed=7)]
    clients = [host._clients[0] for host in hosts]
    assert clients[0].stream("batches").random() == clients[1].stream("batches").random()
    assert clients[0].secret.key("sealing") != clients[1].secret.key("sealing")


class LeftError(Exception):
    pass


def begun_and_left(scenario: Scenario, out: Path, after: int = 2) -> Path:
    """Return an incomplete run folder with a checkpoint after this many rounds."""

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


@pytest.mark.usefixtures("no_report")
def test_resumed_run_continues_its_own_noise(tmp_path: Path) -> None:
    file = secret_file(tmp_path)
    scenario = resumable(privacy__secret=file)
    whole = run(scenario, out=tmp_path / "whole")
    resumed = resume(begun_and_left(scenario, tmp_path / "left"))
    assert map_of(whole) == map_of(resumed)
    assert (whole / "ledger.json").read_bytes() == (resumed / "ledger.json").read_bytes()
    drawn = begun_and_left(resumable(), tmp_path / "drawn")
    assert resume(drawn).exists()


@pytest.mark.usefixtures("no_report")
def test_run_with_a_lost_secret_cannot_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds after the checkpoint were already sent; another secret would send them with other noise."""
    left = begun_and_left(resumable(), tmp_path / "drawn")
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
        with pytest.raises(RaydrError, match="is kept for each user on each machine"):
            resume(left)
    assert resume(left).exists(), "with its secret, the run still resumes"
    other = begun_and_left(resumable(privacy__secret=secret_file(tmp_path)), tmp_path / "kept")
    secret_file(tmp_path, bytes(64))
    with pytest.raises(RaydrError, match=r"\(privacy\.secret\) has changed"):
        resume(other)


def derived_from(root: Secret, clients: int) -> list[bytes]:
    """Return the root secret and the keys derived from it."""
    own = [client_secret(root, index) for index in range(clients)]
    owners = [root, group_secret(own[FOUNDER]), *own]
    return [owner._bytes for owner in owners] + [owner.key("sealing") for owner in owners]


def found_in(content: bytes, secrets: list[bytes]) -> list[int]:
    """Return the indices of the secrets found, raw or in hexadecimal."""
    return [index for index, each in enumerate(secrets) if each in content or each.hex().encode() in content]


def test_checkpoint_and_run_folder_do_not_contain_the_secret(
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
@pytest.mark.parametrize("crashes", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="memory of processes cannot be read here")
def test_processes_hold_only_secrets_of_their_clients(cluster: None, crashes: int) -> None:
    """A host has its clients' secrets and the shared one; the coordinator has no secret and no row hash."""
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
            delay_s=2.0,  # clients still run in round 3 while their memory is searched
            crashes=(Crash(client=1, round=1, moment="during"),) * crashes,
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
    """Return the private writable memory of a process, without the shared object store."""
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
