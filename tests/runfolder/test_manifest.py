"""A folder with one changed bit in any file is refused, unless an option allows edits."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from sweep_folders import Tried, write_sweep
from tiny import tiny_run_with_report

import raydr
from raydr.data import load
from raydr.errors import OutputError
from raydr.front.cli import status
from raydr.front.result import SweepResult
from raydr.report import write_report
from raydr.runfolder import read_audit, read_run, read_sweep
from raydr.runfolder.manifest import NOT_LISTED, edits_accepted, require_unchanged, seal
from raydr.runfolder.records import EMBEDDING, MANIFEST
from raydr.tune.trials import digest_of_run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an audited run with an encoder and the pooled-data map."""
    method = {"kind": "fedne", "rounds": 1, "hidden": [4], "local_steps": 1, "surrogate": "none"}
    return tiny_run_with_report(
        tmp_path_factory.mktemp("runs") / "whole",
        method=method,
        compare=["central"],
        audit={"attacks": ["learnt-inversion"]},
        data__rows=60,
    )


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    """Return a copy to change."""
    return Path(shutil.copytree(whole, tmp_path / "run"))


def flip(file: Path, bit: int) -> None:
    """Flip one bit of a file."""
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def three_rows(folder: Path) -> Path:
    """Write three rows with the columns of the run."""
    file = folder / "rows.npz"
    np.savez(file, X=np.ones((3, 4)), feature_names=np.array(load(source="iris").features))
    return file


def files_of(folder: Path) -> list[str]:
    """Return the files that the manifest must list."""
    names = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    return sorted(names - NOT_LISTED)


def test_manifest_lists_every_file(run: Path) -> None:
    assert sorted(json.loads((run / MANIFEST).read_text())["files"]) == files_of(run)
    assert {"embedding.parquet", "audit.json", "model/encoder.safetensors"} <= set(files_of(run))
    assert require_unchanged(run) == ()


def test_flipped_bit_in_any_file_is_refused(run: Path) -> None:
    draw = random.Random(0)
    for name in files_of(run):
        size = 8 * (run / name).stat().st_size
        for bit in {0, size - 1, *(draw.randrange(size) for _ in range(10))}:
            flip(run / name, bit)
            with pytest.raises(OutputError, match=f"{name} was changed after it was written"):
                read_run(run)
            flip(run / name, bit)
    read_run(run)


@pytest.mark.parametrize("name", ["central.parquet", "metrics.json", "model/encoder.safetensors", MANIFEST])
def test_missing_file_is_refused(run: Path, name: str) -> None:
    (run / name).unlink()
    with pytest.raises(OutputError, match=f"{name} is missing.*--edited"):
        read_run(run)


def test_owner_may_delete_hashes_and_audits(run: Path) -> None:
    for name in ("fingerprints.json", "audit.json"):
        (run / name).unlink()
    assert read_run(run).audit is None


def test_added_file_is_refused(run: Path) -> None:
    shutil.copy(run / "embedding.parquet", run / "held_out.parquet")
    with pytest.raises(OutputError, match=r"held_out\.parquet is not listed in manifest\.json"):
        read_run(run)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"files": []}',
        '{"files": {"a": 1}}',
        '{"files": {"a": {"bytes": 1}}}',
        '{"files": {"../a": {"bytes": 1, "sha256": ""}}}',
        '{"files": {"/a": {"bytes": 1, "sha256": ""}}}',
        "[" * 100_000,
    ],
)
def test_invalid_manifest_is_refused(run: Path, content: str) -> None:
    (run / MANIFEST).write_text(content)
    with pytest.raises(OutputError, match=r"manifest\.json (is damaged|names files elsewhere)"):
        read_run(run)


READERS: dict[str, tuple[str, Callable[[Path, Path], object]]] = {
    "load": ("metrics.json", lambda run, _: raydr.load(run)),
    "report": ("ledger.json", lambda run, _: write_report(run)),
    "read_audit": ("audit.json", lambda run, _: read_audit(run)),
    "transform": (
        "model/arrays.npz",
        lambda run, rows: raydr.transform(run, rows, out=rows.with_name("placed.csv")),
    ),
    "join": ("embedding.parquet", raydr.join),
    "audit": ("environment.json", lambda run, _: raydr.audit(run)),
    "released": ("privacy.json", lambda run, _: raydr.Result(run).released()),
    "a trial of a sweep that goes on": ("scenario.yaml", lambda run, _: digest_of_run(run)),
    "Result.embedding": ("embedding.parquet", lambda run, _: raydr.Result(run).embedding),
    "Result.pooled": ("central.parquet", lambda run, _: raydr.Result(run).pooled),
    "Result.scenario": ("scenario.yaml", lambda run, _: raydr.Result(run).scenario),
    "Result.metrics": ("metrics.json", lambda run, _: raydr.Result(run).metrics),
    "Result.privacy": ("privacy.json", lambda run, _: raydr.Result(run).privacy),
    "Result.audit": ("audit.json", lambda run, _: raydr.Result(run).audit),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_checks_what_it_reads(run: Path, tmp_path: Path, reader: str) -> None:
    rows = three_rows(tmp_path)
    name, read = READERS[reader]
    with (run / name).open("ab") as file:
        file.write(b"\n")
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    with pytest.raises(OutputError, match=f"{name} was changed after it was written"):
        read(run, rows)
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


def test_joined_site_is_checked(run: Path, tmp_path: Path) -> None:
    rows = three_rows(tmp_path)
    joined = raydr.join(run, rows)
    assert len(joined.joined) == 1
    flip(run / "joined" / "1" / "embedding.parquet", 1000)
    with pytest.raises(
        OutputError, match=r"joined/1 is not a complete run folder: embedding\.parquet was changed"
    ):
        joined.joined  # noqa: B018 - reads the folder


def test_sweep_is_checked(tmp_path: Path) -> None:
    trials = [Tried(point, 0, {"clients.count": 2 + point}, {"seconds": 1.0}) for point in range(2)]
    folder = write_sweep(tmp_path / "sweep", trials)
    read_sweep(folder)
    flip(folder / "trials.parquet", 900)
    for read in (read_sweep, lambda folder: SweepResult(folder).trials):
        with pytest.raises(OutputError, match=r"not a complete sweep folder: trials\.parquet was changed"):
            read(folder)
    assert SweepResult(folder, edited=True).edited


def test_edited_folders_are_read_on_request_with_a_notice(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = json.loads((run / "metrics.json").read_text())
    metrics["federated"]["npa_10"] = 0.123
    (run / "metrics.json").write_text(json.dumps(metrics))
    message = "metrics.json was changed after it was written"
    assert status(["report", str(run)]) == 2
    assert status(["compare", str(run)]) == 2
    capsys.readouterr()
    assert status(["report", str(run), "--edited"]) == 0
    assert message in (run / "report.html").read_text()
    assert capsys.readouterr().err == f"raydr: {run / message}; read it because of --edited\n"
    assert status(["report", str(run), "--edited", "--released"]) == 2
    assert "was edited" in capsys.readouterr().err
    assert not run.with_name("run-released").exists()
    assert status(["compare", str(run), "--edited", "--out", str(tmp_path / "both.html")]) == 0
    assert message in " ".join(capsys.readouterr().out.split())
    assert message in (tmp_path / "both.html").read_text()
    result = raydr.load(run, edited=True)
    assert result.metrics["federated"]["npa_10"] == 0.123
    with pytest.raises(OutputError):
        raydr.load(run)


def test_folder_without_a_manifest_is_read_on_request(run: Path) -> None:
    (run / MANIFEST).unlink()
    with edits_accepted():
        seal(run, "audit.json")  # like after an audit
        assert read_run(run).edited == ("manifest.json is missing",)
    seal(run)
    assert read_run(run).edited == ()


def test_unreadable_table_is_one_sentence(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = raydr.load(run, edited=True)
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 3000, pa.int32()), pa.array(["x" * 10**6]))
    table = pa.table({"x": np.zeros(3000), "y": np.zeros(3000), "label": words})
    parquet.write_table(table, run / EMBEDDING, store_schema=False)
    monkeypatch.setattr("raydr.memory.available_memory_bytes", lambda: 2**28)
    with pytest.raises(
        OutputError, match=r"Cannot read .*embedding.parquet as Parquet \(the text of the column"
    ):
        _ = result.embedding
    (run / EMBEDDING).write_bytes(b"PAR1")
    with pytest.raises(OutputError, match=r"Cannot read .*embedding.parquet as Parquet"):
        _ = result.embedding
