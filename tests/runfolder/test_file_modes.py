"""File modes follow the umask, except for files that stay with their owner."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tiny import Wards, tiny, tiny_run_with_report

from raydr.files import open_private, write_whole
from raydr.runfolder import records
from raydr.runfolder.records import TrialRow
from raydr.scenarios.runner import run
from raydr.scenarios.schema.reading import read
from raydr.tune.folder import SweepWork
from raydr.tune.ledger import TrialLedger


@contextmanager
def masked(umask: int) -> Iterator[None]:
    before = os.umask(umask)
    try:
        yield
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """Return the modes of all files of a folder by relative path."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in files}


@pytest.mark.parametrize("umask", [0o022, 0o007])
def test_private_files_are_readable_only_by_their_owner(tmp_path: Path, umask: int) -> None:
    content = tiny() | Wards.drawn().written(tmp_path / "wards.csv", harmonize={"kind": "combat"})
    with masked(umask):
        found = modes(run(read(content), out=tmp_path / "out"))
    own = {records.FINGERPRINTS, records.SITES}
    assert own <= set(found)
    assert found == {name: 0o600 if name in own else 0o666 & ~umask for name in found}


def test_encoder_has_the_mode_of_its_run_folder(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with masked(0o027):
        found = modes(tiny_run_with_report(tmp_path / "out", method={"kind": "fedne", "rounds": 1}))
    assert found[records.ENCODER] == found[records.ARRAYS] == 0o640


def test_sweep_files_follow_the_same_modes(tmp_path: Path) -> None:
    files = dict.fromkeys((records.FINGERPRINTS, records.SITES, records.LEDGER), b"content")
    with masked(0o022):
        row = TrialRow(point=0, repeat=0, seed=0, status="done", digest="", values={"a": 1})
        TrialLedger(tmp_path, ["a"]).add(row)
        work = SweepWork(tmp_path)
        work.place.mkdir()
        work.take("0-0", files)
    assert modes(work.run("0-0")) == {
        records.FINGERPRINTS: 0o600,
        records.SITES: 0o600,
        records.LEDGER: 0o644,
    }
    assert modes(tmp_path)[records.TRIALS] == 0o600


def test_readable_file_is_replaced_by_a_private_one(tmp_path: Path) -> None:
    path = write_whole(tmp_path / "file", b"before", "free the place")
    path.chmod(0o666)
    with open_private(path) as file:
        file.write(b"after")
    assert path.read_bytes() == b"after"
    assert modes(tmp_path) == {"file": 0o600}
