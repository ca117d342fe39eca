"""A run resumes only as it began."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from resumed import ROUNDS, content, edit, interrupted, refusal, table

import raydr
from raydr.errors import DataError, OutputError, RunError, ScenarioError
from raydr.federation.checkpoint import Checkpoint, DamagedCheckpointError
from raydr.journal import CheckpointTaken, Event, IncidentEvent, Journal, RoundEnded
from raydr.scenarios.runner import run
from raydr.scenarios.running.checkpoints import Checkpoints
from raydr.scenarios.schema.reading import read

pytestmark = pytest.mark.usefixtures("no_report")


def whole(folder: Path) -> bytes:
    return run(read(content(table(folder))), out=folder / "whole").joinpath("embedding.parquet").read_bytes()


@pytest.mark.parametrize(
    ("section", "changes", "named"),
    [
        ("method", {"landmarks": 13}, "method.landmarks was 12 and is 13"),
        ("method", {"rounds": 5}, "method.rounds was 6 and is 5"),
        ("method", {"rounds": 8}, "method.rounds was 6 and is 8"),
        ("method", {"early_iterations": 6}, "method.early_iterations was 5 and is 6"),
        ("data", {"rows": 50}, "data.rows"),
        ("data", {"scale": "none"}, 'data.scale was "standard" and is "none"'),
        ("clients", {"participation": 0.7}, "clients.participation was 1.0 and is 0.7"),
        ("runtime", {"batch_clients": True}, "runtime.batch_clients was false and is true"),
    ],
)
def test_changed_scenario_is_refused(
    tmp_path: Path, section: str, changes: dict[str, Any], named: str
) -> None:
    kept = interrupted(tmp_path)
    edit(kept, section, **changes)
    assert named in refusal(kept, ScenarioError)


def test_changed_clients_are_refused(tmp_path: Path) -> None:
    kept = interrupted(tmp_path)
    edit(kept, "data", features=["a", "b", "c"])
    edit(kept, "clients", count=3, partition={"kind": "iid"})
    assert 'clients.partition.kind was "by-column" and is "iid"' in refusal(kept, ScenarioError)


def test_changed_seed_is_refused(tmp_path: Path) -> None:
    kept = interrupted(tmp_path)
    path = kept / "scenario.yaml"
    path.write_text(path.read_text().replace("seed: 0", "seed: 1"))
    assert "seed was 0 and is 1" in refusal(kept, ScenarioError)


def test_runtime_settings_may_change(tmp_path: Path) -> None:
    expected = whole(tmp_path)
    kept = interrupted(tmp_path)
    edit(kept, "runtime", checkpoint_every=1, actors=2, timeout_s=60.0)
    assert (raydr.resume(kept).folder / "embedding.parquet").read_bytes() == expected


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("0.", "1.", "the rows of client"),
        ("north,no", "north,yes", "the labels"),
        ("a,b,c", "a,b,d", "the features' names"),
    ],
)
def test_changed_data_are_refused(tmp_path: Path, old: str, new: str, named: str) -> None:
    kept = interrupted(tmp_path)
    path = tmp_path / "patients.csv"
    path.write_text(path.read_text().replace(old, new, 1))
    assert named in refusal(kept, DataError)


def test_changed_row_order_is_refused_by_the_client(tmp_path: Path) -> None:
    kept = interrupted(tmp_path)
    path = tmp_path / "patients.csv"
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([header, *reversed(lines)]) + "\n")
    assert "the rows of client east, the rows of client north" in refusal(kept, DataError)


def test_run_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = interrupted(tmp_path)
    monkeypatch.setattr("raydr.scenarios.running.identity.version", lambda _: "9.9")
    assert re.search(r"used raydr \S+, and this is raydr 9\.9", refusal(kept, OutputError))


def test_changed_extension_packages_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = interrupted(tmp_path)
    monkeypatch.setattr("raydr.scenarios.running.identity.extensions", lambda: {"mine": "2.0"})
    assert re.search(r"used raydr \S+, and this is raydr \S+ with mine 2\.0", refusal(kept, OutputError))


def test_run_cannot_be_resumed_twice(tmp_path: Path) -> None:
    kept = interrupted(tmp_path)
    with Checkpoints(kept).locked():
        assert "Another process is working on the run" in refusal(kept, OutputError)
    raydr.resume(kept)


def test_running_run_cannot_be_resumed(tmp_path: Path) -> None:
    message: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, CheckpointTaken):
            (kept,) = tmp_path.glob("out.incomplete-*")
            message.append(refusal(kept, OutputError))

    folder = run(read(content(table(tmp_path))), out=tmp_path / "out", listener=listen)
    assert len(message) == 3
    assert folder.is_dir()
    assert not (folder / "checkpoints").exists()


# --- damage ---------------------------------------------------------------------------------------------------------


def test_flipped_bits_and_truncations_are_detected(tmp_path: Path) -> None:
    content = (interrupted(tmp_path) / "checkpoints" / "00000004.npz").read_bytes()
    Checkpoint.from_bytes(content)
    rng = np.random.default_rng(0)
    for place in [*range(120), *rng.integers(120, len(content), 1400)]:
        flipped = bytearray(content)
        flipped[place] ^= 1 << int(rng.integers(8))
        with pytest.raises(RunError):
            Checkpoint.from_bytes(bytes(flipped))
    for size in [*range(60), *rng.integers(60, len(content), 60)]:
        with pytest.raises(DamagedCheckpointError):
            Checkpoint.from_bytes(content[:size])


def test_checkpoint_of_another_format_is_refused() -> None:
    with pytest.raises(RunError, match=r"has version 7, but this raydr reads version \d"):
        Checkpoint.from_bytes(b"raydr checkpoint 7\n" + bytes(100))


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("damaged", ["the last checkpoint", "the last checkpoint, cut", "a round"])
def test_damaged_checkpoint_falls_back_to_the_older_one(tmp_path: Path, damaged: str) -> None:
    expected, kept = whole(tmp_path), interrupted(tmp_path)
    last, rounds = kept / "checkpoints" / "00000004.npz", kept / "checkpoints" / "rounds.jsonl"
    match damaged:
        case "the last checkpoint":
            damage(last)
        case "the last checkpoint, cut":
            last.write_bytes(last.read_bytes()[:1000])
        case _:
            lines = rounds.read_text().splitlines()
            rounds.write_text(
                "\n".join([*lines[:2], lines[2].replace('"asked": 3', '"asked": 2'), *lines[3:]])
            )
    received: list[Event] = []
    folder = raydr.resume(kept, listener=received.append).folder
    message = [event.text for event in received if isinstance(event, IncidentEvent)]
    assert re.search(r"checkpoint 00000004\.npz: .*damaged.*; using the previous checkpoint", message[0])
    assert message[1] == "resuming after round 2"
    assert (folder / "embedding.parquet").read_bytes() == expected
    for file in ("ledger.json", "metrics.json"):
        assert (folder / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    rows = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == list(range(1, ROUNDS + 1))


def test_resume_fails_without_a_valid_checkpoint(tmp_path: Path) -> None:
    kept = interrupted(tmp_path)
    for path in (kept / "checkpoints").glob("*.npz"):
        damage(path)
    message = refusal(kept, RunError)
    assert "No checkpoint in" in message
    assert "Start a new run with" in message


def test_unreadable_identity_is_checked_by_its_digest(tmp_path: Path) -> None:
    expected, kept = whole(tmp_path), interrupted(tmp_path)
    (kept / "checkpoints" / "identity.json").write_text("{")
    edit(kept, "method", landmarks=13)
    assert "started with other settings or rows" in refusal(kept, RunError)
    edit(kept, "method", landmarks=12)
    assert (raydr.resume(kept).folder / "embedding.parquet").read_bytes() == expected


# --- what a checkpoint costs ----------------------------------------------------------------------------------------


def test_checkpoint_size_is_constant_over_rounds(tmp_path: Path) -> None:
    sizes: dict[int, int] = {}

    def listen(event: Event) -> None:
        if isinstance(event, CheckpointTaken):
            sizes[event.round] = len(event.content)

    scenario = content(table(tmp_path))
    scenario["method"]["rounds"] = 200
    scenario["runtime"]["checkpoint_every"] = 50
    run(read(scenario), out=tmp_path / "out", listener=listen)
    assert sizes[200] < sizes[50] + 100, "numbers with more digits"


def test_journal_time_is_linear_in_rounds() -> None:
    """A repeated round replaces its record, a new one is appended, and no other record is read."""

    class Watched(list[RoundEnded]):
        looked_at = 0

        def __getitem__(self, index: Any) -> Any:
            Watched.looked_at += 1
            return super().__getitem__(index)

        def __iter__(self) -> Any:
            raise AssertionError("every round is looked at for each")

    journal = Journal(rounds=Watched())
    for number in [*range(1, 501), *range(400, 601)]:
        journal.tell(
            RoundEnded(
                round=number,
                objective=None,
                seconds=0.1,
                bytes_up=1,
                bytes_down=1,
                asked=1,
                answered=1,
                failed=0,
            )
        )
    assert len(journal.rounds) == 600
    assert Watched.looked_at <= 2 * 701


def test_unwritable_folder_is_one_paragraph(tmp_path: Path) -> None:
    kept = interrupted(tmp_path)
    (kept / "checkpoints" / "lock").unlink(missing_ok=True)
    (kept / "checkpoints" / "lock").mkdir()  # a folder in place of the file cannot be written by any user
    with pytest.raises(OutputError, match="cannot be written"):
        raydr.resume(kept)
