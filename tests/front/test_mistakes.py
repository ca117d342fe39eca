"""Mistakes of new users: each error is one paragraph that says what is wrong, where, and what to do."""

from __future__ import annotations

import gzip
import io
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import yaml
from tiny import tiny_file, tiny_run

import raydr
from raydr.errors import DataError, FeatureError
from raydr.front.cli import app, status
from raydr.front.commands.lists import CATALOGUES

RAYDR = [sys.executable, "-m", "raydr"]
ROWS = "".join(
    f"{'ns'[i % 2]},{i * i % 17},{i % 5 + i / 10:.1f},{i * 7 % 11},{'ab'[i % 3 > 0]}\n" for i in range(40)
)
TABLE = "site,x,y,z,label\n" + ROWS
SCENARIO = {
    "name": "mine",
    "data": {"path": "data.csv", "label": "label"},
    "clients": {"partition": {"kind": "by-column", "column": "site"}},
    "method": {"kind": "fed-tsne", "landmarks": 4, "rounds": 1, "early_iterations": 2, "iterations": 2},
    "runtime": {"federation": "inline"},
    "metrics": ["npa_10"],
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test starts in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def paragraph(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one paragraph on standard error; standard output is empty."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("raydr: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


def npz(header: str, body: bytes) -> bytes:
    """Return an .npz archive of one array X with this header."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("X.npy", npy(header, body))
    return archive.getvalue()


def npy(header: str, body: bytes) -> bytes:
    """Return an .npy file with this header."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header.encode() + b"\n" + body


def written(content: str | bytes, name: str = "data.csv", **scenario: object) -> Path:
    """Write a data file and the scenario ``mine.yaml`` that maps it."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    sections = SCENARIO | {"data": {"path": name, "label": "label"}} | scenario
    Path("mine.yaml").write_text(yaml.safe_dump(sections))
    return Path("mine.yaml")


# --- data ----------------------------------------------------------------------------------------------------------

UNUSABLE: dict[str, tuple[str, str | bytes, str]] = {
    "empty": ("data.csv", "", "data.csv is empty. It needs column names and at least two rows"),
    "header only": ("data.csv", "site,x,y,label\n", "at least 2"),
    "one row": ("data.csv", "site,x,y,label\nn,1,2,a\n", "has 1 usable row of 1; a map needs at least 2"),
    "a ragged row": ("data.csv", TABLE + "n,1,2\n", "line 42 has 3 cells but the header has 5"),
    "no header": (
        "data.csv",
        "1.5,2,3,4,5\n2,3,4,5,6\n3,3,4,5,6\n",
        "has no header: its first line holds '1.5', '2'",
    ),
    "random bytes": ("data.csv", random.Random(0).randbytes(5000), "is not text ("),
    "a picture": (
        "data.csv",
        b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(999),
        "is not text: it starts like a picture",
    ),
    "a spreadsheet by its name": ("data.xlsx", b"PK\x03\x04", "Save the sheet as CSV."),
    "a spreadsheet by another": (
        "data.csv",
        b"PK\x03\x04" + random.Random(2).randbytes(999),
        "it starts like a spreadsheet or a ZIP archive",
    ),
    "packed badly": ("data.csv.gz", gzip.compress(TABLE.encode())[:-30], "cannot be unpacked by gzip"),
    "packed and damaged": (
        "data.csv.gz",
        gzip.compress(TABLE.encode())[:60] + bytes(99) + gzip.compress(TABLE.encode())[159:],
        "cannot be unpacked by gzip",
    ),
    "packed not at all": ("data.csv.gz", TABLE, "cannot be unpacked by gzip"),
    "no Parquet": ("data.parquet", TABLE, "cannot be read as a Parquet file"),
    "no archive": (
        "data.npz",
        TABLE,
        "cannot be read as a .npz file: it is not one. Save it with numpy.save",
    ),
    "no HDF5": ("data.h5ad", TABLE, "cannot be read as an .h5ad file"),
    "an archive with too large a header": (
        "data.npz",
        npz("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 4), }", bytes(320)),
        "the header of 'X' gives the shape (1000000000000, 4) of float64, which takes 29.1 TiB, but the file holds 320",
    ),
    "an archive with an invalid header": (
        "data.npz",
        npz("{'descr': ((((((", bytes(320)),
        "the header of 'X' cannot be read",
    ),
}


@pytest.mark.parametrize("case", UNUSABLE)
@pytest.mark.parametrize("command", ["run", "check", "map", "plan"])
def test_unreadable_data_are_refused(command: str, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, content, message = UNUSABLE[case]
    scenario = written(content, name)
    assert status([command, name if command in ("check", "map") else str(scenario)]) == 2
    assert message in paragraph(capsys)
    assert sorted(os.listdir()) == sorted([name, "mine.yaml"]), "nothing is left behind"


USABLE: dict[str, tuple[str, str | bytes]] = {
    "tabs": ("data.tsv", TABLE.replace(",", "\t")),
    "gzip": ("data.csv.gz", gzip.compress(TABLE.encode())),
    "tabs in gzip": ("data.tsv.gz", gzip.compress(TABLE.replace(",", "\t").encode())),
    "semicolons, decimal commas, Latin-1": (
        "data.csv",
        TABLE.replace(",", ";").replace(".", ",").replace("n;", "Zürich;").encode("latin-1"),
    ),
    "a byte order mark": ("data.csv", TABLE.encode("utf-8-sig")),
    "UTF-16": ("data.csv", TABLE.encode("utf-16")),
    "Windows' line ends": ("data.csv", TABLE.replace("\n", "\r\n")),
    "spaces and letters in its path": ("my dir/größe 1.csv", TABLE),
    "two columns of a name": ("data.csv", TABLE.replace("y,z", "y,y")),
    "names like keys": ("data.csv", TABLE.replace("x,y,z", "method,data,clients")),
    "names like formulas": ("data.csv", TABLE.replace("x,y,z", "$x_$,\\alpha,größe")),
    "a constant column": (
        "data.csv",
        "".join(f"{line},3\n" for line in TABLE.splitlines()).replace("label,3", "label,w"),
    ),
    "one site": ("data.csv", TABLE.replace("s,", "n,").replace("clasn,", "")),
    "a site with one row": ("data.csv", TABLE.replace("\ns,", "\nn,", 19)),
    "one class": ("data.csv", TABLE.replace(",a\n", ",b\n")),
}


@pytest.mark.parametrize("case", USABLE)
def test_common_table_formats_can_be_mapped(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, content = USABLE[case]
    assert status(["run", str(written(content, name)), "--out", "run", "-q"]) == 0, capsys.readouterr().err
    assert len(raydr.load("run").to_frame("pyarrow") if hasattr(raydr, "load") else ROWS.splitlines()) == 40
    assert capsys.readouterr().out == f"{Path('run').absolute() / 'report.html'}\n"


def test_column_without_values_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    empty = "".join(f"{line},\n" for line in TABLE.splitlines()).replace("label,", "label,w", 1)
    assert status(["run", str(written(empty))]) == 2
    assert "has 40 missing values in the column 'w'" in paragraph(capsys)
    assert status(["run", str(written(empty)), "--set", "data.missing=mean"]) == 2
    assert "'w'" in paragraph(capsys)


def test_text_feature_error_names_the_keys_for_text_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scenario = written(TABLE, data={"path": "data.csv"}, clients={"count": 2})
    assert status(["run", str(scenario)]) == 2
    error = paragraph(capsys)
    assert "the feature column 'site' is not numeric" in error
    for key in ("clients.partition.column", "data.label", "data.id", "data.exclude", "data.categories"):
        assert key in error
    assert status(["run", str(scenario), "--set", "clients.partition={kind: by-column, column: sit}"]) == 2
    assert "has no column 'sit', which clients.partition.column names (did you mean site?)" in paragraph(
        capsys
    )


# --- columns by name ------------------------------------------------------------------------------------------------


def test_federation_errors_name_the_column(capsys: pytest.CaptureFixture[str]) -> None:
    huge = TABLE.replace(",0,", ",1e200,")
    for scale, message in (("standard", "The column 'x' has values of about 2**"), ("none", "2**")):
        assert status(["run", str(written(huge)), "--set", f"data.scale={scale}"]) in (0, 2)
        shown = "".join(capsys.readouterr())
        assert "counted from 0" not in shown
        if scale == "standard":
            assert message in shown


def test_feature_error_survives_pickling_and_names_the_column() -> None:
    import pickle

    error = pickle.loads(pickle.dumps(FeatureError("{feature} is odd: leave {feature} out.", 2)))
    assert isinstance(error, DataError)
    assert str(error).startswith("Feature number 2 (the first is 0) is odd")
    assert str(error.of(["a", "b", "{c}"])) == "The column '{c}' is odd: leave the column '{c}' out."


def test_errors_under_an_isometry_key_name_no_column(capsys: pytest.CaptureFixture[str]) -> None:
    huge = written(TABLE.replace(",0,", ",1e200,"))
    assert status(["run", str(huge), "--set", "privacy.isometry_key=true", "--set", "data.scale=none"]) != 0
    assert "The column 'x'" not in capsys.readouterr().err


# --- documents -----------------------------------------------------------------------------------------------------

DOCUMENTS: dict[str, tuple[str, list[str], str]] = {
    "data that are not there": (
        "",
        ["check", "sites", "--label", "kind"],
        "sites does not exist: expected a file, a folder or",
    ),
    "a file that is not there": ("", ["run", "mien.yaml"], "There is no file 'mien.yaml' in "),
    "a misspelt file name": ("name: x", ["run", "mien.yaml"], "(did you mean mine.yaml?)"),
    "in a folder that is not there": ("", ["run", "a/b.yaml"], "There is no folder "),
    "a folder": ("", ["run", "."], "is not the folder of a run"),
    "nothing in it": ("", ["run", "mine.yaml"], "contains nothing, not a scenario"),
    "a word": ("hello", ["run", "mine.yaml"], "contains a single value, not a scenario"),
    "no YAML": ("data: {source: iris\n", ["run", "mine.yaml"], "is not valid YAML: "),
    "keys with typos": (
        "dta: {source: iris}\nclients: {cout: 3}\nmethod: {kind: fed-tnse}",
        ["run", "mine.yaml"],
        "clients.cout is not a key (did you mean count?)",
    ),
    "a method with a typo": (
        "data: {source: iris}\nclients: {count: 3}\nmethod: {kind: fed-tnse}",
        ["run", "mine.yaml"],
        "(did you mean fed-tsne?)",
    ),
    "a data set with a typo": (
        "name: x\ndata: {source: irsi}\nclients: {count: 3}\nmethod: {kind: fed-tsne}",
        ["run", "mine.yaml"],
        "There is no built-in data set 'irsi' (did you mean iris?)",
    ),
    "a metric with a typo": (
        "",
        ["run", "digits-sense", "--set", "metrics=[npa10]"],
        "did you mean npa_10?",
    ),
    "a scenario with a typo": ("", ["run", "digits-fed-tsn"], "(did you mean digits-fed-tsne?)"),
    "a sweep with a typo": ("", ["sweep", "digits-fronteer"], "(did you mean digits-frontier?)"),
    "a table with a typo": ("", ["reproduce", "p1-tabel-1"], "(did you mean p1-table-1?)"),
    "a command with a typo": ("", ["rnu"], "No such command 'rnu'. Did you mean 'run'? See `raydr --help`."),
    "an option with a typo": (
        "",
        ["run", "x", "--quite"],
        "No such option '--quite'. Did you mean ",
    ),
    "a catalogue with a typo": (
        "",
        ["list", "metods"],
        "There is no list 'metods' (did you mean methods?)",
    ),
    "an override without a value": (
        "",
        ["run", "digits-sense", "--set", "seed"],
        "does not have the form KEY=VALUE",
    ),
    "nothing to run": ("", ["run"], "Missing argument 'SCENARIO'. See `raydr run --help`."),
    "nothing to list": ("", ["list"], "Missing argument "),
    "data to run": ("", ["run", "data.csv"], "is a table: run `raydr map data.csv` to map it"),
    "a scenario to map": (
        "data: {source: iris}\nmethod: {kind: sense}",
        ["map", "mine.yaml"],
        "is a scenario: run `raydr run mine.yaml`.",
    ),
    "a sweep to run": (
        "",
        ["run", "digits-four-axes"],
        "is a sweep: run `raydr sweep digits-four-axes`.",
    ),
    "a table to run": (
        "",
        ["run", "p1-table-1"],
        "is a paper's table: run `raydr reproduce p1-table-1`.",
    ),
    "a scenario to sweep": (
        "",
        ["sweep", "digits-sense"],
        "is a scenario: run `raydr run digits-sense`.",
    ),
    "no run to resume": ("", ["run", "mine.yaml", "--resume"], "is not an interrupted run"),
    "no run to compare": ("", ["compare", "nowhere"], "nowhere is not a folder. Pass the run folder"),
}


@pytest.mark.parametrize("case", DOCUMENTS)
def test_unknown_names_and_bad_documents_are_refused(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, arguments, message = DOCUMENTS[case]
    Path("mine.yaml").write_text(content)
    Path("data.csv").write_text(TABLE)
    if case == "a file that is not there":
        Path("mine.yaml").unlink()
    assert status(arguments) == 2
    assert message in paragraph(capsys)
    assert set(os.listdir()) <= {"mine.yaml", "data.csv"}


def test_folder_of_an_interrupted_run_suggests_resume(
    capsys: pytest.CaptureFixture[str],
) -> None:
    half = Path("my run.incomplete-abc123")
    half.mkdir()
    shutil.copy(written(TABLE), half / "scenario.yaml")
    assert status(["run", str(half)]) == 2
    assert f"to resume it, run `raydr run '{half}' --resume`." in paragraph(capsys)


# --- places --------------------------------------------------------------------------------------------------------


def test_unusable_output_folders_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = str(tiny_file(tmp_path))
    Path("file").write_text("mine")
    Path("full").mkdir()
    Path("full/mine").write_text("mine")
    for out, message in {
        "file": "file is a file, but a run writes a folder",
        "full": "exists and is not empty, and raydr overwrites nothing",
        "file/run": "Cannot create the output folder",
        "/proc/run": "Cannot create the output folder",
    }.items():
        assert status(["run", scenario, "--out", out]) == 2
        assert message in paragraph(capsys)
    assert Path("file").read_text() == Path("full/mine").read_text() == "mine"
    assert sorted(os.listdir()) == ["file", "full", "tiny.yaml"]


def test_output_files_need_a_matching_suffix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(TABLE)
    run = str(tiny_run(tmp_path / "run"))
    for arguments, message in {
        ("init", "data.csv"): "does not end in .yaml",
        ("compare", run): "does not end in .html",
        ("transform", run, "data.csv"): "must end in .csv or .parquet, not '.pdf'",
    }.items():
        assert status([*arguments, "--out", "c.pdf"]) == 2
        assert message in paragraph(capsys)
        assert not Path("c.pdf").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Path:
    """Mount a file system of 1 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_full_disk_keeps_existing_files(
    small_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (small_disk / "mine").write_bytes(bytes(900_000))
    assert status(["run", str(tiny_file(tmp_path)), "--out", str(small_disk / "run"), "-q"]) in (2, 3)
    assert "No space left on device" in paragraph(capsys)
    assert (small_disk / "mine").read_bytes() == bytes(900_000)
    whole = small_disk / "run"
    assert not whole.exists() or (whole / "metrics.json").is_file(), (
        "the folder is complete or named incomplete"
    )


# --- streams and signals --------------------------------------------------------------------------------------------


PRINTING = {
    "list": "list metrics",
    "help": "--help",
    "version": "--version",
    "help of a command": "run --help",
    "check": "check data.csv",
    "compare": "compare run",
    "plan": "plan tiny.yaml",
    "init": "init data.csv --out new.yaml",
}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", PRINTING)
def test_full_stdout_and_closed_pipe_print_no_traceback(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``test_cli.py`` has both in a process."""
    written(TABLE)
    tiny_file(tmp_path)
    if command == "compare":
        tiny_run(tmp_path / "run")
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert status(PRINTING[command].split()) == 3
    assert "Cannot write to standard output (No space left on device" in paragraph(capsys)
    Path("new.yaml").unlink(missing_ok=True)
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", pipe)
        assert status(PRINTING[command].split()) == 128 + signal.SIGPIPE
    assert capsys.readouterr().err == ""


def test_raydr_without_arguments_lists_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert status([]) == 2
    shown = "".join(capsys.readouterr())
    assert all(f"  {name} " in shown for name in app.commands)
    assert status(["list", "papers"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(CATALOGUES["papers"]())


@pytest.mark.parametrize(
    "delay_ms",
    [60, 200, *(pytest.param(delay, marks=pytest.mark.slow) for delay in (90, 120, 160, 260, 350))],
)
def test_ctrl_c_during_startup_prints_no_traceback(tmp_path: Path, delay_ms: int) -> None:
    scenario = tiny_file(tmp_path)
    process = subprocess.Popen(
        [*RAYDR, "run", str(scenario), "--out", "run"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    ready = _has_handler(process.pid)
    time.sleep(delay_ms / 1000)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert ready, "the command set no signal handler"
    assert process.returncode == 130
    assert "Traceback" not in err
    assert out == ""
    assert not Path("run").exists()


def _has_handler(pid: int) -> bool:
    """Wait until a process has its own signal handlers; before that, Python is still starting."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt"))
        commands = Path(f"/proc/{pid}/cmdline").read_bytes()
        if caught >> (signal.SIGTERM - 1) & 1 and b"raydr" in commands:  # Python itself handles SIGINT alone
            return True
        time.sleep(0.002)
    return False


@pytest.mark.parametrize("command", sorted(app.commands))
def test_deleted_current_folder_is_one_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    arguments = {
        "list": ["scenarios"],
        "jobs": ["--address", "http://127.0.0.1:1"],
        "join": ["run", "data.csv"],
    }
    assert status([command, *arguments.get(command, ["data.csv"])]) == 2
    assert "the current folder no longer exists" in paragraph(capsys)
    monkeypatch.chdir(tmp_path)
