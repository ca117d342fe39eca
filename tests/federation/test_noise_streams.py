"""Two releases share noise only if they are bit-identical, and each distinct release is charged."""

from __future__ import annotations

import json
import math
import shutil
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np
import pytest
import yaml
from inline_federations import KNOWN
from pydantic import BaseModel
from releases_seen import Seen, cancelled, pairs, seen_by_servers

from raydr.errors import DataError, OutputError, RaydrError, RunError, ScenarioError
from raydr.federation.failures import Failure, Kind, QuorumError
from raydr.federation.host import ClientHost
from raydr.federation.noise_streams import noise_name
from raydr.journal import Event, RoundEnded
from raydr.privacy.accounting import BudgetError
from raydr.privacy.gaussian import GaussianNoise
from raydr.privacy.mechanism import Quantity
from raydr.scenarios import runner
from raydr.scenarios.runner import resume, run
from raydr.scenarios.schema.reading import read

CLIENTS, ROUNDS, FEATURES = 5, 4, 10
STEPS: dict[str, Any] = {
    "kind": "fed-tsne",
    "landmarks": 40,
    "rounds": ROUNDS,
    "perplexity": 5,
    "early_iterations": 2,
    "iterations": 2,
}
NETWORK: dict[str, Any] = {"rounds": ROUNDS, "hidden": [16], "neighbors": 5, "bounds": [-20.0, 20.0]}
UPDATE: dict[str, Any] = {"on": "update", "epsilon": 4.0, "clip": 1.0, "per": "sum"}
RELEASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "gradient": ("Step", STEPS, {"on": "gradient", "epsilon": 1.0, "per": "sum"}),
    "landmarks": ("Step", STEPS | {"share": "landmarks"}, {"on": "variable", "epsilon": 1.0, "per": "sum"}),
    "pairs": ("PairGradient", NETWORK | {"kind": "fedne"}, UPDATE | {"unit": "record"}),
    "changes": ("Change", NETWORK | {"kind": "fedavg-ne"}, UPDATE | {"unit": "client"}),
}
"""Kind of reply in rounds, method and noise."""
CASES = [
    pytest.param(release, secure, marks=() if fast else pytest.mark.slow)
    for release, secure, fast in (
        ("gradient", True, True),
        ("gradient", False, False),
        ("landmarks", True, False),
        ("landmarks", False, False),
        ("pairs", True, False),
        ("pairs", False, False),
        ("changes", True, True),
        ("changes", False, False),
    )
]
SOME = ["gradient", pytest.param("pairs", marks=pytest.mark.slow)]


def table(folder: Path, name: str = "rows", shift: float = 0.0) -> Path:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(60, FEATURES)) + np.arange(60)[:, None] % 2 + shift
    lines = [",".join([*(f"f{column}" for column in range(FEATURES)), "kind", "site", "number"])]
    for row, values in enumerate(rows):
        lines.append(
            ",".join([*(f"{value:.6f}" for value in values), "ab"[row % 2], f"s{row % CLIENTS}", str(row)])
        )
    path = folder / f"{name}.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def content(folder: Path, release: str = "gradient", **sections: Any) -> dict[str, Any]:
    """Return a scenario whose secret is in a file."""
    path, secret = folder / "rows.csv", folder / "secret"
    if not path.exists():
        table(folder)
        secret.write_bytes(bytes(range(64)))
        secret.chmod(0o600)
    _, method, noise = RELEASES[release]
    whole: dict[str, Any] = {
        "name": "noisy",
        "data": {"path": str(path), "label": "kind", "features": [f"f{each}" for each in range(FEATURES)]},
        "clients": {"count": CLIENTS},
        "method": method,
        "privacy": {"noise": noise, "secret": str(secret), "secure_aggregation": True},
        "runtime": {"federation": "inline", "checkpoint_every": 2},
        "metrics": [],
    }
    for section, changes in sections.items():
        whole[section] = whole.get(section, {}) | changes if isinstance(changes, dict) else changes
    return whole


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    monkeypatch.setattr(runner, "shown", lambda folder, listener: folder)
    with seen_by_servers(monkeypatch) as found:
        yield found


class StopError(Exception):
    pass


def interrupted(scenario: dict[str, Any], out: Path, after: int) -> Path:
    """Return the folder of a run that stops after this many rounds, or when client code raises."""

    def stop(event: Event) -> None:
        if isinstance(event, RoundEnded) and event.round == after:
            raise StopError

    with pytest.raises((StopError, RunError)):
        run(read(scenario), out=out, listener=stop, report=False)
    (kept,) = out.parent.glob(f"{out.name}.incomplete-*")
    return kept


def edit(kept: Path, section: str, **changes: Any) -> None:
    path = kept / "scenario.yaml"
    scenario = yaml.safe_load(path.read_text())
    scenario[section] |= changes
    path.write_text(yaml.safe_dump(scenario))


def charged(folder: Path, kind: str) -> int:
    """Return the number of releases of a kind in privacy.json."""
    releases = json.loads((folder / "privacy.json").read_text())["releases"]
    return sum(release["releases"] for release in releases if release["kind"] == kind)


def epsilon(folder: Path) -> float:
    return float(json.loads((folder / "privacy.json").read_text())["epsilon_accounted"])


def losing(patch: pytest.MonkeyPatch, seen: Seen, lost: Mapping[tuple[str, int], set[int]]) -> None:
    """Make clients fail calls with noise, by start and round."""
    reply = ClientHost._reply

    def answered(self: ClientHost, client: Any, boundary: Any) -> Any:
        call = boundary.call
        gone = call.request.mechanism is not None and client.index in lost.get((seen.where, call.round), ())
        return Failure(client.index, Kind.DROPPED_OUT, "lost") if gone else reply(self, client, boundary)

    patch.setattr(ClientHost, "_reply", answered)


# --- attacks that once worked -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("release", "secure"), CASES)
def test_runs_with_one_secret_and_different_quorums_share_no_noise(
    release: str, secure: bool, tmp_path: Path, seen: Seen
) -> None:
    """With shared noise in shares of 5 and 3 clients, two sums gave the clean value to 7e-13."""
    for quorum in (1.0, 0.6):
        seen.where = str(quorum)
        sections: dict[str, Any] = {"runtime": {"quorum": quorum}, "privacy": {"secure_aggregation": secure}}
        run(read(content(tmp_path, release, **sections)), out=tmp_path / seen.where, report=False)
    kind = RELEASES[release][0]
    one, other = seen.of("1.0", kind)[0], seen.of("0.6", kind)[0]
    noise = sum(
        answer.weight * answer.noise
        for answer in seen.answers
        if answer.where == "1.0" and answer.kind == kind and answer.call == first_call(seen, "1.0", kind)
    )
    value = np.frombuffer(one.bits)[: noise.size] - noise
    left = cancelled(one, other, math.sqrt(5 / 3))[: noise.size] - value
    assert rms(left) > rms(noise)
    assert seen.require_equal() == 0


def first_call(seen: Seen, where: str, kind: str) -> int:
    return min(answer.call for answer in seen.answers if (answer.where, answer.kind) == (where, kind))


def rms(values: Any) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


@pytest.mark.parametrize("release", SOME)
def test_round_repeated_with_a_lower_quorum_is_charged_again(
    release: str, tmp_path: Path, seen: Seen
) -> None:
    kind = RELEASES[release][0]
    seen.where = "first"
    kept = interrupted(content(tmp_path, release), tmp_path / "out", after=3)
    edit(kept, "runtime", quorum=0.8)
    seen.where = "second"
    folder = resume(kept)
    assert seen.of("first", kind)[-1] != seen.of("second", kind)[0]
    for one, other in pairs(seen.of("first", kind) + seen.of("second", kind)):
        assert one != other
    seen.require_equal()
    assert charged(folder, kind) == ROUNDS + 1
    plain = run(read(content(tmp_path, release)), out=tmp_path / "plain", report=False)
    assert charged(plain, kind) == ROUNDS
    assert epsilon(folder) > epsilon(plain)


@pytest.mark.parametrize("secure", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_round_repeated_without_other_clients_shares_no_noise(
    secure: bool, tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same summands in both sums, their difference is one client's value with its share of the noise."""
    scenario = content(
        tmp_path, privacy={"secure_aggregation": secure, "colluding": 0.0}, runtime={"quorum": 0.6}
    )
    losing(monkeypatch, seen, {("first", 3): {1}, ("second", 3): {2}})
    seen.where = "first"
    kept = interrupted(scenario, tmp_path / "out", after=3)
    seen.where = "second"
    folder = resume(kept)
    assert seen.of("first", "Step")[-1].clients == (0, 2, 3, 4)
    assert seen.of("second", "Step")[0].clients == (0, 1, 3, 4)
    assert seen.require_equal() == 0
    assert charged(folder, "Step") == ROUNDS + 1
    again = run(read(scenario), out=tmp_path / "again", report=False)
    assert (again / "environment.json").exists(), "a run that can lose clients"
    assert seen.require_equal() == 0, "two runs with one secret share no noise either"


@pytest.mark.parametrize(("release", "secure"), CASES)
def test_unchanged_repeated_round_is_the_same_release_and_is_free(
    release: str, secure: bool, tmp_path: Path, seen: Seen
) -> None:
    kind, privacy = RELEASES[release][0], {"secure_aggregation": secure}
    seen.where = "whole"
    whole = run(read(content(tmp_path, release, privacy=privacy)), out=tmp_path / "whole", report=False)
    seen.where = "first"
    kept = interrupted(content(tmp_path, release, privacy=privacy), tmp_path / "out", after=3)
    seen.where = "second"
    folder = resume(kept)
    assert seen.of("first", kind)[-1] == seen.of("second", kind)[0]
    assert seen.require_equal() >= CLIENTS
    assert (folder / "embedding.parquet").read_bytes() == (whole / "embedding.parquet").read_bytes()
    assert cost_without_shares(folder) == cost_without_shares(whole)
    again, once = (messages_of(where) for where in (folder, whole))
    shared = {kind for kind in once if "Share" in kind}
    assert len(shared) == (2 if secure else 0)
    assert all(again[kind]["count"] >= once[kind]["count"] for kind in shared), (
        "the second start shares again"
    )
    assert [again[kind] for kind in once if kind not in shared] == [
        once[kind] for kind in once if kind not in shared
    ]


def cost_without_shares(folder: Path) -> Any:
    """Return the privacy cost of a run, without the number of shares: a resumed run shares again."""

    def without(part: Any) -> Any:
        if isinstance(part, dict):
            shares = part.get("kind") == "Shares"
            return {key: without(value) for key, value in part.items() if not (shares and key == "messages")}
        return [without(each) for each in part] if isinstance(part, list) else part

    return without(json.loads((folder / "privacy.json").read_text()))


def messages_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of a run's ledger, by kind."""
    return {entry["kind"]: entry for entry in json.loads((folder / "ledger.json").read_text())}


@pytest.mark.parametrize("release", SOME)
def test_reply_that_differs_in_the_last_digit_is_another_release(
    release: str, tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another processor can change the last digits: new noise is drawn and charged."""
    seen.where = "first"
    kept = interrupted(content(tmp_path, release), tmp_path / "out", after=3)
    compute = ClientHost._compute

    def differently(self: ClientHost, client: Any, call: Any, request: Any) -> Any:
        if request.mechanism is not None and client.index == 0:
            client.rows = client.rows * (1.0 + 1e-12)
        return compute(self, client, call, request)

    monkeypatch.setattr(ClientHost, "_compute", differently)
    seen.where = "second"
    folder = resume(kept)
    kind = RELEASES[release][0]
    assert seen.of("first", kind)[-1] != seen.of("second", kind)[0]
    assert charged(folder, kind) == ROUNDS + 1


# --- the journal of releases ------------------------------------------------------------------------------------------


def test_release_is_written_to_disk_before_the_call(
    tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that is interrupted is charged, and only once."""
    compute = ClientHost._compute

    def dying(self: ClientHost, client: Any, call: Any, request: Any) -> Any:
        if request.mechanism is not None and call.round == 3:
            raise StopError
        return compute(self, client, call, request)

    monkeypatch.setattr(ClientHost, "_compute", dying)
    kept = interrupted(content(tmp_path), tmp_path / "out", after=9)
    lines = (kept / "checkpoints" / "releases.jsonl").read_text().splitlines()
    assert len(lines) == 2 + 2 + 1
    monkeypatch.setattr(ClientHost, "_compute", compute)
    edit(kept, "runtime", quorum=0.6)
    assert charged(resume(kept), "Step") == ROUNDS + 1


def test_budget_includes_releases_of_repeated_rounds(tmp_path: Path, seen: Seen) -> None:
    privacy = {"strict": "sums", "epsilon_max": 1.0}
    bounded = {"gamma": 0.1, "bounds": [-20.0, 20.0]}
    scenario = content(tmp_path, privacy=privacy, runtime={"quorum": 0.6}, method=bounded)
    kept = interrupted(scenario, tmp_path / "out", after=3)
    # All five clients answer, so a round costs half of the planned epsilon: three more rounds fit, a fourth does not.
    interrupt_again(kept)
    interrupt_again(kept)
    whole = shutil.copytree(kept, tmp_path / "again.incomplete-1")
    assert epsilon(resume(whole)) <= 1.0
    interrupt_again(kept)
    with pytest.raises(BudgetError, match=r"raise privacy\.epsilon_max"):
        resume(kept)
    edit(kept, "privacy", epsilon_max=3.0)
    assert epsilon(resume(kept)) > 1.0


def interrupt_again(kept: Path) -> None:
    """Resume a run for one round and interrupt it."""

    def stop(event: Event) -> None:
        if isinstance(event, RoundEnded):
            raise StopError

    with pytest.raises(StopError):
        resume(kept, listener=stop)


@pytest.mark.parametrize(
    "damaged",
    [
        "gone",
        pytest.param("cut", marks=pytest.mark.slow),
        "cut after an older checkpoint",
        "changed",
        "last line cut",
    ],
)
def test_run_with_an_unreadable_release_journal_cannot_resume(
    damaged: str, tmp_path: Path, seen: Seen
) -> None:
    kept = interrupted(content(tmp_path, runtime={"checkpoint_every": 1}), tmp_path / "out", after=3)
    path = kept / "checkpoints" / "releases.jsonl"
    text = path.read_text()
    assert len(list((kept / "checkpoints").glob("*.npz"))) == 2
    match damaged:
        case "gone":
            path.unlink()
        case "cut":
            path.write_text("".join(text.splitlines(keepends=True)[:1]))
        case "cut after an older checkpoint":
            path.write_text("".join(text.splitlines(keepends=True)[:2]))
        case "changed":
            path.write_text(text.replace('"sensitivity": ', '"sensitivity": 1', 1))
        case _:  # an interrupted write leaves this: the call was not made yet
            path.write_text(text + '{"name": "ab')
            assert charged(resume(kept), "Step") == ROUNDS
            return
    with pytest.raises(OutputError, match=r"releases.*Start a new run with `raydr run"):
        resume(kept)


# --- before the first checkpoint --------------------------------------------------------------------------------------


def test_run_without_a_checkpoint_resumes_only_unchanged(tmp_path: Path, seen: Seen) -> None:
    whole = run(read(content(tmp_path)), out=tmp_path / "whole", report=False)
    kept = interrupted(content(tmp_path), tmp_path / "out", after=1)
    assert not list((kept / "checkpoints").glob("*.npz"))
    before = (kept / "scenario.yaml").read_text()
    edit(kept, "method", landmarks=41)
    with pytest.raises(ScenarioError, match=r"method\.landmarks was 40 and is 41"):
        resume(kept)
    (kept / "scenario.yaml").write_text(before)
    rows = tmp_path / "rows.csv"
    original = rows.read_text()
    rows.write_text(original.replace("a,s0,", "b,s0,", 1))
    with pytest.raises(DataError, match="the labels"):
        resume(kept)
    rows.write_text(original)
    folder = resume(kept)
    for name in ("embedding.parquet", "privacy.json", "ledger.json"):
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    seen.require_equal()


@pytest.mark.parametrize("left", ["", "{", "[]", '{"raydr": "1"}'])
def test_run_with_an_unreadable_identity_cannot_resume(left: str, tmp_path: Path, seen: Seen) -> None:
    kept = interrupted(content(tmp_path), tmp_path / "out", after=1)
    (kept / "checkpoints" / "identity.json").write_text(left)
    with pytest.raises(RunError, match=r"identity\.json cannot be read.*Start a new run"):
        resume(kept)


def test_run_without_noise_or_checkpoint_resumes_only_unchanged(tmp_path: Path, seen: Seen) -> None:
    """A process that is killed before the first checkpoint leaves its folder."""
    scenario = content(tmp_path)
    del scenario["privacy"]["noise"]
    kept = tmp_path / "out.incomplete-1"

    def copy(event: Event) -> None:
        if isinstance(event, RoundEnded) and event.round == 1:
            (there,) = tmp_path.glob("out.incomplete-*")
            shutil.copytree(there, tmp_path / "left.incomplete-1")

    run(read(scenario), out=tmp_path / "out", listener=copy, report=False)
    kept = tmp_path / "left.incomplete-1"
    (kept / "checkpoints" / "lock").unlink(missing_ok=True)
    edit(kept, "method", rounds=5)
    with pytest.raises(ScenarioError, match=r"method\.rounds was 4 and is 5"):
        resume(kept)
    edit(kept, "method", rounds=4)
    assert resume(kept).exists()


def test_missed_quorum_can_be_lowered_as_the_error_suggests(
    tmp_path: Path, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    losing(monkeypatch, seen, {("first", 3): {1, 2}, ("second", 3): {1, 2}})
    scenario = content(tmp_path, runtime={"quorum": 0.8}, privacy={"colluding": 0.0})
    seen.where = "first"
    with pytest.raises(QuorumError, match=r"lower runtime\.quorum"):
        run(read(scenario), out=tmp_path / "out", report=False)
    (kept,) = tmp_path.glob("out.incomplete-*")
    edit(kept, "runtime", quorum=0.6)
    seen.where = "second"
    assert charged(resume(kept), "Step") == ROUNDS + 1, "the failed round is charged"
    seen.require_equal()


# --- names of streams -------------------------------------------------------------------------------------------------


def named(**changes: Any) -> np.random.Generator:
    quantity = Quantity(np.arange(4.0), sensitivity=1.0, share=0.5, resolution=0.0)
    given: dict[str, Any] = {
        "mechanism": GaussianNoise(on="gradient", multiplier=1.0),
        "quantities": {"direction": quantity},
        "kind": "Step",
        "round": 3,
        "among": "five",
    }
    given |= {key: value for key, value in changes.items() if key in given}
    of_quantity = {key: value for key, value in changes.items() if key not in given}
    if of_quantity:
        given["quantities"] = {"direction": Quantity(**vars(quantity) | of_quantity)}
    return KNOWN.stream(*noise_name(given.pop("mechanism"), given.pop("quantities"), **given))


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "Other"},
        {"round": 4},
        {"among": "four"},
        {"mechanism": GaussianNoise(on="gradient", multiplier=2.0)},
        {"mechanism": GaussianNoise(on="gradient", multiplier=1.0, per="sum")},
        {"values": np.array([0.0, 1.0, 2.0, np.nextafter(3.0, 4.0)])},
        {"values": np.arange(4.0).reshape(2, 2)},
        {"values": np.arange(4.0, dtype=np.float32)},
        {"unit": 2.0},
        {"sensitivity": 2.0},
        {"share": 0.25},
        {"resolution": 1e-9},
        {"quantities": {"other": Quantity(np.arange(4.0), sensitivity=1.0, share=0.5)}},
    ],
    ids=str,
)
def test_every_change_of_a_release_changes_the_stream_name(changes: dict[str, Any]) -> None:
    assert named().random() == named().random()
    assert named(**changes).random() != named().random()


def test_every_field_of_a_quantity_is_in_the_cases_above() -> None:
    """A new field must be added to the cases."""
    assert set(vars(Quantity(np.zeros(1)))) == {"values", "unit", "sensitivity", "share", "resolution"}


# --- every key of a scenario ------------------------------------------------------------------------------------------


SORTS: list[dict[str, Any]] = [
    {"noise": {"on": "gradient", "epsilon": 1.0, "per": "sum"}},
    {
        "noise": {"on": "gradient", "epsilon": 1.0, "per": "sum"},
        "method": {"gamma": 0.1, "bounds": [-20.0, 20.0]},
        "privacy": {"strict": "sums", "epsilon_max": 2.0, "secure_aggregation": True, "colluding": 0.0},
        "runtime": {"quorum": 0.6},
    },
    {
        "noise": {"on": "embedding", "multiplier": 2.0, "per": "sum", "clip": 20.0},
        "method": {"share": "embedding", "random_features": 400, "bounds": [-20.0, 20.0]},
    },
    {"noise": {"on": "gradient", "sigma": 0.5}, "method": {"estimator": "nystrom"}},
    {
        "noise": {"on": "gradient", "level": 0.5},
        "data": {"features": ["f0", "f1", "site"], "categories": "one-hot"},
    },
    {"noise": {"on": "data", "level": 0.5}},
    {"noise": {"on": "data", "epsilon": 5.0, "clip": 5.0}},
    {"noise": UPDATE | {"unit": "client"}, "method": NETWORK | {"kind": "fedavg-ne"}},
]
"""Runs with one secret and different noise."""
UNREACHED = {
    "method.preset": "goes without method.bounds, which noise on updates needs",
    "method.standardise": "goes without method.bounds, which noise on updates needs",
    "audit": "repeats the run: tests of its own",
    "clients.join_spellings": "is of a column of sites, which these tables lack",
    "clients.deployed": "are sites with files of their own",
    "clients.joined": "are clients of other files",
    "clients.sites": "are another source of data",
    "data.dimensions": "of a graph",
    "data.exclude": "goes without data.features, which chooses columns as well",
    "data.graph": "is another source of data",
    "data.harmonize": "is of sites, and settled before any noise",
    "data.matrix": "of an .h5ad file",
    "data.source": "the table is a file",
    "fidelity_rows": "shows rows without noise, so no noisy run has it",
    "faults.adversary": "forges what a client sends after its noise was added",
    "method": "other methods have tests of their own above",
    "network": "is an account, and changes no stream",
    "method.aggregation": "robust rules look at each upload, and noise of a sum is for no upload",
    "method.weight_decay": "goes without noise per record, which FedNE has here",
    "method.share": "goes with privacy.noise.on, which is another sort of run here",
    "prior": "is another run",
    "privacy.noise": "other sorts of noise are other runs here",
    "privacy.noise.clients": "of methods that let some clients add noise and others none",
    "privacy.noise.on": "is another sort of run here",
    "runtime.device": "no GPU here",
    "runtime.portable": "needs a process with other environment variables, and changes no stream",
    "runtime.federation": "Ray's bits are those of this process: tests of their own",
}
"""Keys that this test does not change, and why. It changes all other keys, including new ones."""


def leaves(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield dotted key, annotation and value of every setting, and of each section with several kinds."""
    for name, field in type(section).model_fields.items():
        key, value = f"{prefix}{name}", getattr(section, name)
        if isinstance(value, BaseModel):
            if get_origin(field.annotation) is not None:
                yield key, field.annotation, value
            yield from leaves(value, f"{key}.")
        elif name != "kind":
            yield key, field.annotation, value


def alternatives(annotation: Any, value: Any, folder: Path) -> Iterator[Any]:
    """Yield values of a type that differ from this one."""
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        for each in get_args(annotation):
            if not isinstance(value, BaseModel) or each is not type(value):
                yield from alternatives(each, value, folder)
    elif origin is Literal:
        yield from (each for each in get_args(annotation) if each != value)
    elif annotation is bool:
        yield not value
    elif annotation is int:
        numbers = ((value or 0) + 1, (value or 0) - 1, (value or 0) + 2, 3, 20, 40)
        yield from (each for each in numbers if each != value)
    elif annotation is float:
        parts = ((value or 1.0) * 0.6, (value or 1.0) * 1.5, 0.05, 0.2, 0.5, 2.0, 30.0)
        yield from (each for each in parts if each != value)
    elif annotation is str:
        yield from (
            "number",
            "site",
            "f1",
            str(folder / "other.csv"),
            str(folder / "other"),
            "client-0",
            "open",
        )
    elif origin is tuple:
        yield [f"f{column}" for column in range(FEATURES - 1)]
        yield [-30.0, 30.0]
        for each in alternatives(get_args(annotation)[0], None, folder):
            yield [each]
    elif origin is Annotated:
        yield from alternatives(get_args(annotation)[0], value, folder)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from minimal(annotation, folder)


def minimal(section: type[BaseModel], folder: Path) -> Iterator[dict[str, Any]]:
    """Yield sections with all required keys, or with one key each if none is required."""
    fields = section.model_fields
    kind = {"kind": fields["kind"].default} if "kind" in fields else {}
    needed = [name for name, field in fields.items() if field.is_required()]
    values = {
        name: list(alternatives(field.annotation, None, folder))
        for name, field in fields.items()
        if name != "kind"
    }
    for names in [needed] if needed else [[name] for name in values]:
        yield from (
            kind | dict(zip(names, each, strict=True))
            for each in zip(*(values[name] for name in names), strict=False)
        )


def changed(base: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    *sections, name = key.split(".")
    found = json.loads(json.dumps(base))
    inner = found
    for section in sections:
        inner[section] = inner.get(section) or {}
        inner = inner[section]
    inner[name] = value
    return found  # type: ignore[no-any-return]


def sorts(folder: Path) -> list[dict[str, Any]]:
    found = []
    for sort in SORTS:
        method = sort.get("method", {})
        scenario = content(folder, runtime=sort.get("runtime", {}), data=sort.get("data", {}))
        scenario["method"] = (method if "kind" in method else STEPS | {"landmarks": 30} | method) | {
            "rounds": 2
        }
        scenario["privacy"] = {"noise": sort["noise"], "secret": str(folder / "secret")}
        scenario["privacy"] |= sort.get("privacy", {})
        found.append(scenario)
    (folder / "other").write_bytes(bytes(range(1, 65)))
    (folder / "other").chmod(0o600)
    table(folder, "other", shift=0.5)
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_changing_any_key_changes_the_noise_under_one_secret(tmp_path: Path, seen: Seen) -> None:
    """Each key is changed alone, in every kind of run that has it, and all releases are compared."""
    keys: dict[str, bool] = {}
    for index, base in enumerate(sorts(tmp_path)):
        seen.where = f"{index}"
        run(read(base), out=tmp_path / seen.where, report=False)
        for key, annotation, value in leaves(read(base)):
            if key in UNREACHED or (keys.setdefault(key, False) and not key.startswith("privacy")):
                continue
            for other in alternatives(annotation, value, tmp_path):
                seen.where = f"{index} {key}={other}"
                out = tmp_path / f"{index}-{key}"
                try:
                    run(read(changed(base, key, other)), out=out, report=False)
                except (RaydrError, ValueError):
                    continue
                keys[key] = True
                break
    missed = {key for key, reached in keys.items() if not reached}
    assert not missed, "add a value for them to `alternatives`, or a reason to UNREACHED"
    assert seen.require_equal() > 0, "runs that differ only in keys like name and show are the same release"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("after", [1, 3])
def test_keys_changed_before_resume_share_no_noise(after: int, tmp_path: Path, seen: Seen) -> None:
    """Resume refuses most changed keys; releases under the other keys are charged."""
    sorts(tmp_path)
    scenario = content(tmp_path)
    seen.where = "first"
    kept = interrupted(scenario, tmp_path / "out", after)
    resumed: dict[str, Path] = {}
    for key, annotation, value in leaves(read(kept / "scenario.yaml")):
        if key in UNREACHED:
            continue
        for number, other in enumerate(alternatives(annotation, value, tmp_path)):
            copy = shutil.copytree(kept, tmp_path / f"{key}-{number}.incomplete-1")
            path = copy / "scenario.yaml"
            path.write_text(yaml.safe_dump(changed(yaml.safe_load(path.read_text()), key, other)))
            seen.where = f"{key}={other}"
            try:
                resumed[key] = resume(copy)
            except (RaydrError, ValueError):
                continue
            break
    assert {"runtime.quorum", "runtime.checkpoint_every", "runtime.retries"} <= set(resumed)
    only_end_a_run = ("privacy.epsilon_max", "clients.policy")
    assert not [key for key in resumed if not key.startswith("runtime.") and key not in only_end_a_run]
    seen.require_equal()
    for key, folder in resumed.items():
        (where,) = {answer.where for answer in seen.answers if answer.where.startswith(f"{key}=")}
        releases = [*seen.of("first", "Step"), *seen.of(where, "Step")]
        assert charged(folder, "Step") == len(set(releases)), key
