"""The command line: what goes to which stream, and exit statuses."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny import tiny_file, tiny_run_with_report

from raydr.front.cli import status
from raydr.front.commands.lists import CATALOGUES
from raydr.front.progress_bars import heard_on_terminal
from raydr.front.terminal import print_result
from raydr.journal import CheckpointTaken, IncidentEvent, Progress, StageEnded, StageStarted
from raydr.metrics import METRICS

RAYDR = [sys.executable, "-m", "raydr"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test starts in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the folders of two tiny runs."""
    folder = tmp_path_factory.mktemp("two")
    return tiny_run_with_report(folder / "first"), tiny_run_with_report(
        folder / "second", seed=1, compare=["central"]
    )


EMBEDDED = {"early_iterations": 5, "iterations": 5}


def paragraph(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one paragraph on standard error; standard output is empty."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("raydr: ")
    assert err.endswith(".\n")
    assert err.count("\n") == 1
    return err


# --- a run ----------------------------------------------------------------------------------------------------------


def test_run_prints_only_the_report_path_on_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["run", str(tiny_file(tmp_path)), "--out", "out"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{tmp_path / 'out' / 'report.html'}\n"
    assert Path(out.strip()).is_file()
    stages, summary = err.split("\n\n", 1)
    title, *lines = stages.splitlines()
    assert title == "tiny: Fed-tSNE on iris, seed 0"
    assert all(re.fullmatch(r"[\w ]+: \d+\.\d s", line) for line in lines)
    assert "Neighbour preservation, k = 10" in summary
    assert "What left: records. The server has enough data to reconstruct 150 of 150 records" in " ".join(
        summary.split()
    )


def test_headline_counts_the_landmarks_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = str(tiny_file(tmp_path, method={"kind": "fed-tsne", "landmarks_from": "principal"} | EMBEDDED))
    arguments = ["run", scenario, "--set", "method.landmarks=12", "--out", "out"]
    assert status(arguments) == 0
    assert "Fed-tSNE with 5 landmarks: " in " ".join(capsys.readouterr().err.split())


def test_quiet_and_verbose_exclude_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["run", str(tiny_file(tmp_path)), "--quiet", "--verbose"]) == 2
    assert "--quiet and --verbose exclude each other" in paragraph(capsys)


def test_quiet_run_prints_only_the_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["run", str(tiny_file(tmp_path)), "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(rf"{tmp_path}/runs/tiny-\d{{8}}-\d{{6}}/report\.html\n", out)
    assert err == ""


def test_last_override_of_a_key_wins(tmp_path: Path) -> None:
    scenario = str(tiny_file(tmp_path, metrics=[]))
    overrides = ["--set", "seed=1", "--set", "method.rounds=1", "--set", "seed=2"]
    assert status(["run", scenario, *overrides, "--out", "out", "-q"]) == 0
    text = (tmp_path / "out" / "scenario.yaml").read_text()
    assert "seed: 2\n" in text
    assert "rounds: 1\n" in text


def test_notices_about_data_are_printed_between_stages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "a,b,é\n" + "".join(f"{i * i % 17},{i % 5},1\n" for i in range(40))
    (tmp_path / "rows.csv").write_bytes(text.encode("cp1252"))
    scenario = str(tiny_file(tmp_path, data={"path": "rows.csv"}))
    assert status(["run", scenario, "--out", "out"]) == 0
    err = capsys.readouterr().err
    assert "rows.csv is not UTF-8 text. It is read as cp1252" in err
    assert "'é': one value in all rows" in err
    assert status(["run", scenario, "--out", "again", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_run_without_metrics_succeeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["run", str(tiny_file(tmp_path, metrics=[])), "--out", "out"]) == 0
    assert "no metric of the map was computed" in capsys.readouterr().err


# --- refused: exit status 2 -----------------------------------------------------------------------------------------

CSV = {
    "text": ("a,b,kind\n1,2,x\n3,4,y\n5,6,z\n", {}, "the feature column 'kind' is not numeric"),
    "label": ("a,b\n1,2\n3,4\n5,7\n", {"label": "c"}, "has no column 'c', which data.label names"),
    "near label": ("a,b,colour\n1,2,1\n3,4,2\n5,7,1\n", {"label": "color"}, "(did you mean colour?)"),
    "id": (
        "a,b\n1,2\n1,4\n5,7\n",
        {"id": "a"},
        "the id '1' in column 'a' is on line 2 and again on line 3",
    ),
    "missing": ("a,b\n1,2\n3,\n5,7\n", {}, "has 1 missing value in the column 'b'"),
    "one row": ("a,b\n1,2\n", {}, "has 1 usable row of 1"),
    "empty": ("", {}, "is empty"),
}


@pytest.mark.parametrize("case", CSV)
def test_run_refuses_unusable_data(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, data, message = CSV[case]
    (tmp_path / "rows.csv").write_text(text)
    scenario = tiny_file(tmp_path, data={"path": "rows.csv", **data}, clients={"count": 1})
    assert status(["run", str(scenario)]) == 2
    assert message in paragraph(capsys)
    assert not (tmp_path / "runs").exists()


REFUSED: dict[str, tuple[list[str], str]] = {
    "no such file": (["--set", "data={path: rows.csv}"], "The data file rows.csv cannot be opened"),
    "unknown data set": (
        ["--set", "data.source=irs"],
        "There is no built-in data set 'irs' (did you mean iris?)",
    ),
    "unknown label": (["--set", "data.label=colour"], "'colour', which data.label names"),
    "no data folder": (
        ["--set", "data.source=seeds", "--data-dir", "nowhere"],
        "The data folder nowhere does not",
    ),
    "too many rows": (["--set", "data.rows=151"], "data.rows is 151, but iris has 150 rows"),
    "too many clients": (
        ["--set", "clients.count=151"],
        "150 rows cannot give 151 clients at least 1 row each",
    ),
    "too many landmarks": (
        ["--set", "method.landmarks=151"],
        "method.landmarks is 151, but the clients hold only 150",
    ),
    "too large a perplexity": (
        ["--set", "method.perplexity=60"],
        "The largest perplexity for 150 rows",
    ),
    "misspelt key": (
        ["--set", "method.landmark=5"],
        "method.landmark is not a key (did you mean landmarks?)",
    ),
    "misspelt kind": (["--set", "method.kind=fed-tsn"], "method.kind is 'fed-tsn' (did you mean fed-tsne?)"),
    "wrong type": (["--set", "seed=one"], "seed is 'one': it must be a whole number"),
    "source and path": (["--set", "data.path=rows.csv"], "give exactly one of source"),
    "unknown metric": (["--set", "metrics=[nap_10]"], "There is no metric 'nap_10'"),
    "malformed set": (["--set", "seed"], "--set 'seed' does not have the form KEY=VALUE"),
    "set into a scalar": (["--set", "seed.x=1"], "seed.x cannot be set: seed is"),
    "set is not YAML": (["--set", "seed={"], "--set 'seed={': the value is not YAML"),
    "place taken": (["--out", "."], "exists and is not empty"),
    "place below a file": (["--out", "tiny.yaml/out"], "tiny.yaml/out: Not a directory"),
    "unknown option": (["--outt", "x"], "No such option '--outt'"),
    "option without value": (["--out"], "Option '--out' requires an argument"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_run_refuses_bad_settings(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, message = REFUSED[case]
    assert status(["run", str(tiny_file(tmp_path, seed=0)), "-q", *arguments]) == 2
    assert message in paragraph(capsys)
    assert {entry.name for entry in tmp_path.rglob("*")} <= {"tiny.yaml", "runs"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "digits-fed-tsn"], "There is no scenario 'digits-fed-tsn' (did you mean digits-fed-tsne?)"),
        (["run"], "Missing argument 'SCENARIO'. See `raydr run --help`."),
        (["rum"], "No such command 'rum'"),
        (["list", "methodes"], "There is no list 'methodes' (did you mean methods?)"),
        (["list"], "See `raydr list --help`."),
        (["map", "a.csv", "b.csv"], "argument (b.csv). The shell expands a pattern for several files: put"),
        (["audit", "run", "b"], "Got unexpected extra argument (b). See `raydr audit --help`."),
        (["compare"], "Missing argument"),
        (["compare", "nothing"], "nothing is not a folder"),
        (
            ["compare", "nothing", "--out", "c.pdf"],
            "c.pdf does not end in .html. Pass such a name with --out",
        ),
        (["compare", "nothing", "--out", "page"], "page does not end in .html"),
        (["report", "nothing"], "nothing is not a folder"),
        (["--frobnicate"], "No such option '--frobnicate'. See `raydr --help`."),
    ],
)
def test_bad_command_lines_have_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(arguments) == 2
    assert message in paragraph(capsys)


def test_report_refuses_the_folder_of_an_interrupted_run(
    two_runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    half = two_runs[0].rename(two_runs[0].with_name("first.incomplete-123456"))
    try:
        assert status(["report", str(half)]) == 2
        assert "incomplete" in paragraph(capsys)
    finally:
        half.rename(two_runs[0])


# --- failed: exit status 3 ------------------------------------------------------------------------------------------


def test_failed_run_has_status_3_and_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from raydr.errors import RunError

    def fail(*_: Any, **__: Any) -> None:
        raise RunError("client 3 did not answer: look at why it hangs.")

    monkeypatch.setattr("raydr.scenarios.running.backend.serve", fail)
    assert status(["run", str(tiny_file(tmp_path)), "--quiet"]) == 3
    assert paragraph(capsys) == "raydr: client 3 did not answer: look at why it hangs.\n"
    assert not (tmp_path / "runs").exists()


def test_internal_error_prints_a_traceback_and_has_status_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("raydr.scenarios.running.backend.serve", None)
    assert status(["run", str(tiny_file(tmp_path)), "--quiet"]) == 3
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.endswith("raydr: this is a bug in raydr. Please report it with the lines above.\n")


# --- the other commands ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", CATALOGUES)
def test_list_prints_a_name_and_a_sentence_per_line(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["list", what]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert all(re.fullmatch(r"[a-z0-9_-]+ {2,}\S.*", line) for line in out.splitlines())
    if what == "metrics":
        assert [line.split()[0] for line in out.splitlines()] == list(METRICS)


def test_report_recreates_page_and_picture(
    two_runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = two_runs[0]
    before = {name: (folder / name).read_bytes() for name in ("report.html", "embedding.png")}
    for name in before:
        (folder / name).unlink()
    assert status(["report", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"
    assert (folder / "embedding.png").read_bytes() == before["embedding.png"]
    assert (folder / "report.html").is_file()


def test_compare_has_a_column_for_each_run(
    two_runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["compare", *map(str, two_runs), "--out", "both.html"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in out[:2]] == ["first", "second"]
    assert all("server has" in line for line in out[:2])
    *table, page = out[2:]
    assert table[0].split() == ["first", "second"]
    pooled = next(line for line in table if line.startswith("Neighbour preservation, k = 10, pooled data"))
    assert pooled.split()[-2] == "–"
    assert page == "both.html"
    assert (tmp_path / "both.html").is_file()


def test_compare_prints_brackets_in_names_unchanged(
    two_runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    odd = two_runs[0].rename(two_runs[0].with_name("[bold]run"))
    try:
        assert status(["compare", str(odd)]) == 0
        assert "[bold]run" in capsys.readouterr().out
    finally:
        odd.rename(two_runs[0])


HOSTILE = "\x1b[2J\x1b]0;mine\x07[bold]:skull:\u202e\x9b1m\rgone"
SPELT = r"\x1b[2J\x1b]0;mine\x07[bold]:skull:\u202e\x9b1m gone"


@pytest.mark.usefixtures("edits_accepted")
def test_terminal_commands_in_a_run_folder_are_escaped(
    two_runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "[red]run"
    shutil.copytree(two_runs[0], folder)
    (folder / "metrics.json").write_text(
        json.dumps({"federated": {HOSTILE: 0.5}, "not_computed": {HOSTILE: HOSTILE}})
    )
    assert status(["compare", str(folder)]) == 0
    assert status(["report", str(folder)]) == 0
    print_result(folder)
    (folder / "metrics.json").write_text(json.dumps({"federated": {HOSTILE: HOSTILE}}))
    for command in ("compare", "report"):
        assert status([command, str(folder)]) == 2
    (folder / "scenario.yaml").write_text(yaml.safe_dump({HOSTILE: 1}))
    assert status(["run", str(folder / "scenario.yaml")]) == 2
    shown = "".join(capsys.readouterr())
    commands = {letter for letter in shown if letter < " " or letter in "\x7f\x9b\u202e"}
    assert commands == {"\n"}
    assert SPELT.split(" gone", maxsplit=1)[0] in shown
    assert "[red]run" in shown


def test_run_on_a_run_folder_suggests_the_right_command(
    two_runs: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = tmp_path / "tiny.incomplete-abc123"
    shutil.copytree(two_runs[0], half)
    assert status(["run", str(half)]) == 2
    assert (
        f"{half} is the folder of an interrupted run: to resume it, run `raydr run {half} --resume`."
        in paragraph(capsys)
    )
    assert status(["run", str(two_runs[0])]) == 2
    assert f"to repeat it, run `raydr run {two_runs[0] / 'scenario.yaml'}`." in paragraph(capsys)
    assert status(["run", str(two_runs[0]), "--resume"]) == 2
    assert "is not an interrupted run" in paragraph(capsys)
    assert status(["run", str(tmp_path)]) == 2
    assert "is not the folder of a run: give a YAML file" in paragraph(capsys)


def redirected(arguments: list[str], where: str, **environment: str) -> tuple[int, str]:
    """Run a command with shell redirections ``where``; return its exit status and standard error."""
    finished = subprocess.run(
        ["sh", "-c", f'"$@" {where}', "sh", *RAYDR, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    return finished.returncode, finished.stderr


needs_full_device = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


@needs_full_device
@pytest.mark.parametrize(
    ("arguments", "where", "reason", "unbuffered"),
    [
        (["list", "methods"], "> /dev/full", "No space left on device", ""),
        (["list", "methods"], ">&-", "it is closed", ""),
        (["list", "methods"], "1< /dev/null", "Bad file descriptor", ""),
        (["--version"], "> /dev/full", "No space left on device", "1"),
    ],
)
def test_failed_write_to_stdout_is_one_paragraph(
    arguments: list[str], where: str, reason: str, unbuffered: str
) -> None:
    """``test_mistakes.py`` has the other commands."""
    code, err = redirected(arguments, where, PYTHONUNBUFFERED=unbuffered)
    assert code == 3
    assert err.startswith(f"raydr: Cannot write to standard output ({reason}")
    assert err.count("\n") == 1


@needs_full_device
def test_run_with_a_full_stdout_is_complete_and_names_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert status(["run", str(tiny_file(tmp_path)), "--out", "out", "-q"]) == 3
    assert capsys.readouterr().err.endswith(f" The run is complete in {tmp_path / 'out'}.\n")
    assert (tmp_path / "out" / "report.html").is_file()


def test_interruption_during_imports_prints_the_same_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    expected = status(interrupted), capsys.readouterr()
    monkeypatch.setitem(sys.modules, "raydr.front.console", None)
    assert (status(interrupted), capsys.readouterr()) == expected


@needs_full_device
def test_failed_writes_to_stderr_change_no_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where in ("2> /dev/full", "2>&-"):
        assert redirected(["list", "methodes"], where)[0] == 2
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", full)
        assert status(["run", str(tiny_file(tmp_path)), "--out", "out"]) == 0


def test_help_lists_commands_in_order_of_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(["--help"]) == 0
    commands = re.findall(r"^  (\w+)  ", capsys.readouterr().out.partition("Commands:")[2], re.MULTILINE)
    assert commands == [
        "run",
        "map",
        "check",
        "init",
        "sweep",
        "reproduce",
        "plan",
        "submit",
        "jobs",
        "report",
        "compare",
        "audit",
        "stability",
        "transform",
        "join",
        "leave",
        "bounds",
        "budget",
        "export",
        "site",
        "verify",
        "list",
    ]
    assert status(["--version"]) == 0
    printed = capsys.readouterr().out
    assert re.match(r"raydr \d+\.\d+\.\d+\S*\nPython 3\.\S+ on ", printed)
    assert re.search(r"^ray \d+\.", printed, re.MULTILINE)
    assert re.search(
        r"^torch(?: \d+\.|: not installed \(pip install 'raydr\[torch\]'\))", printed, re.MULTILINE
    )


def test_closed_pipe_prints_no_error() -> None:
    finished = subprocess.run(
        f"{sys.executable} -m raydr list metrics | true",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stderr == ""


# --- terminals ------------------------------------------------------------------------------------------------------


def on_terminal(arguments: list[str]) -> tuple[int, str, str]:
    """Return exit status, standard output, and standard error as sent to a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm-256color"}
    process = subprocess.Popen([*RAYDR, *arguments], stdout=subprocess.PIPE, stderr=theirs, env=environment)
    os.close(theirs)
    sent = b""
    try:
        while chunk := os.read(ours, 4096):
            sent += chunk
    except OSError:  # on Linux, the other end is closed
        pass
    finally:
        os.close(ours)
    out, _ = process.communicate()
    return process.returncode, out.decode(), sent.decode()


def test_terminal_shows_every_stage_without_warnings(tmp_path: Path) -> None:
    scenario = tiny_file(tmp_path, compare=["central"])
    code, out, shown = on_terminal(["run", str(scenario), "--out", "out"])
    assert (code, out) == (0, f"{tmp_path / 'out' / 'report.html'}\n")
    text = re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", shown)
    for stage in ("data", "landmarks", "embedding", "central map", "metrics", "report"):
        assert re.search(rf"✓ {stage} +\d+\.\d s", text)
    assert "Warning" not in text
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h")  # the cursor is visible again


def test_terminal_wraps_errors_between_words() -> None:
    code, _, shown = on_terminal(["run", "digits-fed-tsn"])
    lines = shown.splitlines()
    assert code == 2
    assert len(lines) > 1
    assert all(len(line) <= 100 for line in lines)
    assert "(did you mean digits-fed-tsne?)" in " ".join(line.strip() for line in lines)


def test_long_stages_print_progress_without_bars(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr("raydr.front.progress_bars.time.monotonic", lambda: clock[0])
    with heard_on_terminal() as hear:
        hear(StageStarted("landmarks"))
        for clock[0], done in (1.0, 1), (11.0, 30), (12.0, 31), (30.0, 50):
            hear(Progress("landmarks", done, 50))
        hear(StageEnded("landmarks", 12.34))
        hear(IncidentEvent("client [3] fell silent"))
        hear(CheckpointTaken(31, b""))
    assert (
        capsys.readouterr().err
        == "landmarks: 30/50, about 7\u202fs left\nlandmarks: 12.3 s\nclient [3] fell silent\n"
    )
