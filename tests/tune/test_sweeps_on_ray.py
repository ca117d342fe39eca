"""Sweeps on Ray Tune: killed, stopped or interrupted trials do not change the table."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import ray
import yaml
from places import SUPPORT
from processes import (
    CLUSTER_TOKEN,
    TOKEN,
    all_gone,
    as_from_a_terminal,
    becomes_true,
    processes_of,
    simulation_processes,
)
from sweeps import SPACE, files_of, inline, left_behind, table, tiny_sweep
from tiny import tiny

from raydr import journal
from raydr.errors import ScenarioError
from raydr.runfolder import records
from raydr.tune.sweeping import OutOfTimeError, resume, sweep


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the tiny sweep, run inline."""
    with pytest.MonkeyPatch.context() as patch:
        inline(patch)
        return sweep(tiny_sweep(), out=tmp_path_factory.mktemp("whole") / "swept")


def trial_processes() -> list[psutil.Process]:
    """Return the processes of trials on the tests' own cluster."""
    found = []
    for process in processes_of(CLUSTER_TOKEN):
        with suppress(psutil.NoSuchProcess):  # ended meanwhile
            if "ImplicitFunc" in " ".join(process.cmdline()):
                found.append(process)
    return found


def test_simultaneous_trials_match_inline_trials_after_a_kill(cluster: None, tmp_path: Path) -> None:
    """Four trials, two of which fail."""
    asked = tiny_sweep(repeats=1)
    with pytest.MonkeyPatch.context() as patch:
        inline(patch)
        alone = sweep(asked, out=tmp_path / "alone")
    events: list[journal.Event] = []
    killed = []

    def kill_once(event: journal.Event) -> None:
        events.append(event)
        if isinstance(event, journal.TrialEnded) and not killed:
            for process in trial_processes():
                process.kill()
                killed.append(process.pid)

    folder = sweep(asked, out=tmp_path / "swept", listener=kill_once)
    assert killed
    assert table(folder) == table(alone)
    assert table(folder, records.POINTS) == table(alone, records.POINTS)
    for row in table(alone):
        if row["folder"]:
            assert files_of(folder / row["folder"], "embedding.parquet", "metrics.json") == files_of(
                alone / row["folder"], "embedding.parquet", "metrics.json"
            )
    began = next(event for event in events if isinstance(event, journal.SweepBegan))
    assert (began.trials, began.done) == (4, 0)
    assert sum(isinstance(event, journal.TrialEnded) for event in events) == 4


@pytest.mark.slow
def test_a_trial_on_ray_matches_an_inline_trial(cluster: None, tmp_path: Path) -> None:
    """The second trial is served by the processes of the first, and they end with the sweep."""
    served: list[set[int]] = []

    def hear(event: journal.Event) -> None:
        if isinstance(event, journal.TrialEnded):
            served.append({process.pid for process in simulation_processes()})

    base = tiny() | {"runtime": {"federation": "ray", "checkpoint_every": 0}}
    size = {"cpus": ray.cluster_resources()["CPU"], "report": False}  # one trial after the other
    asked = tiny_sweep(base=base, space={"clients.count": [2, 3]}, repeats=1, trial=size)
    on_ray = sweep(asked, out=tmp_path / "ray", listener=hear)
    first, second = served
    assert len(first) == 4
    assert second > first
    assert becomes_true(lambda: not simulation_processes(), 60)
    with pytest.MonkeyPatch.context() as patch:
        inline(patch)
        alone = sweep(tiny_sweep(space={"clients.count": [2, 3]}, repeats=1), out=tmp_path / "alone")
    for name in ("0000-0", "0001-0"):
        run = Path(records.TRIAL_FOLDERS) / name
        assert files_of(on_ray / run, "embedding.parquet") == files_of(alone / run, "embedding.parquet")


@pytest.mark.slow
def test_a_trial_that_is_killed_repeatedly_is_a_failed_row_and_leaves_no_file(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left: set[Path] = set()

    def kill() -> None:
        becomes_true(lambda: set(tmp_path.glob("raydr-tune-*/raydr-trial-*")) > left, 20)
        left.update(tmp_path.glob("raydr-tune-*/raydr-trial-*"))
        for process in trial_processes():
            process.kill()

    def hear(event: journal.Event) -> None:
        if isinstance(event, journal.TrialStarted):
            threading.Thread(target=kill).start()  # the trial begins after this event

    asked = tiny_sweep(
        space={"clients.count": [3], "method.rounds": [100_000]},
        repeats=1,
        trial={"retries": 1, "report": False},
    )
    (row,) = table(sweep(asked, out=tmp_path / "swept", listener=hear))
    assert len(left) == 2
    assert row["status"] == "failed"
    assert "its process or node was lost" in row["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["swept"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["asha", "median"])
def test_trials_stop_early_by_their_objective(cluster: None, tmp_path: Path, kind: str) -> None:
    # Tiny steps learn nothing: their objective stays the worst.
    space = {"method.step": [1.0, 1.0e-6, 1.0e-7, 1.0e-8], "method.rounds": [30]}
    rule = {"kind": kind, "grace": 2} | ({"least": 1} if kind == "median" else {"reduction": 2})
    rows = table(sweep(tiny_sweep(space=space, repeats=1, stopping=rule), out=tmp_path / "swept"))
    good, *bad = rows
    assert (good["status"], good["rounds"]) == ("done", 30)
    stopped = [row for row in bad if row["status"] == "stopped"]
    assert stopped
    for row in stopped:
        assert row["folder"] is None
        assert 2 <= row["rounds"] < 30
        assert row["objective"] > good["objective"]


def test_a_trial_larger_than_any_node_is_refused(cluster: None, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"No node has room for one trial: `trial` asks for 999 cores"):
        sweep(tiny_sweep(trial={"cpus": 999}), out=tmp_path / "swept")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_an_interrupted_sweep_keeps_ended_trials_and_no_process(
    cluster: None, whole: Path, tmp_path: Path
) -> None:
    def interrupt(event: journal.Event) -> None:
        if isinstance(event, journal.TrialEnded):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        sweep(tiny_sweep(), out=tmp_path / "swept", listener=interrupt)
    folder = left_behind(tmp_path / "swept")
    assert caught.value.__notes__ == [
        f"Continue after the trials that ended with `raydr sweep {folder} --resume`."
    ]
    deadline = time.monotonic() + 30
    while trial_processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not trial_processes()
    assert table(resume(folder)) == table(whole)


@pytest.mark.slow
def test_a_sweep_ends_at_its_deadline_and_keeps_ended_trials_and_no_process(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline comes when the first trial ends; the second would take hours."""
    ended: list[str] = []

    def hear(event: journal.Event) -> None:
        if isinstance(event, journal.TrialEnded):
            ended.append(event.trial)

    clock = SimpleNamespace(monotonic=lambda: float(len(ended)))
    monkeypatch.setattr("raydr.tune.sweeping.time", clock)
    asked = tiny_sweep(space={"method.iterations": [5, 10**9]}, repeats=1)
    with pytest.raises(OutOfTimeError, match="The time for swept is used up: 1 of 2 trials ended"):
        sweep(asked, out=tmp_path / "swept", listener=hear, deadline=0.5)
    assert [row["status"] for row in table(left_behind(tmp_path / "swept"))] == ["done"]
    assert becomes_true(lambda: not trial_processes(), 60)


def command(*arguments: Any, **environment: str) -> subprocess.Popen[str]:
    """Start the command as from a terminal."""
    return subprocess.Popen(
        as_from_a_terminal([sys.executable, "-m", "raydr", *map(str, arguments)]),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def sweep_file(folder: Path, **more: Any) -> Path:
    content = {"name": "swept", "base": tiny(), "space": SPACE, "repeats": 2, "trial": {"report": False}}
    file = folder / "swept.yaml"
    file.write_text(yaml.safe_dump(content | more, sort_keys=False))
    return file


def wait_for_trials(out: Path, count: int) -> Path:
    """Wait until this many trials ended; return the folder."""
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        for folder in out.parent.glob(f"{out.name}.incomplete-*"):
            if (folder / records.TRIALS).exists() and len(table(folder)) >= count:
                return folder
        time.sleep(0.05)
    raise AssertionError("no trial ended in time")


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_ended_command_resumes_to_the_same_table(whole: Path, tmp_path: Path, number: int) -> None:
    token = secrets.token_hex(8)
    out = tmp_path / "cut"
    running = command("sweep", sweep_file(tmp_path), "--out", out, **{TOKEN: token})
    folder = wait_for_trials(out, 2)
    running.send_signal(number)
    _, err = running.communicate(timeout=120)
    assert all_gone(token)
    if number == signal.SIGINT:
        assert running.returncode == 128 + number
        assert (
            f"interrupted. Continue after the trials that ended with `raydr sweep {folder} --resume`." in err
        )
    again = command("sweep", folder, "--resume", "--quiet", **{TOKEN: token})
    page, err = again.communicate(timeout=250)
    assert again.returncode == 0, err
    assert Path(page.strip()) == out / records.SWEEP_REPORT
    assert table(out) == table(whole)
    assert all_gone(token)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("part", ["raylet", "gcs_server"])
def test_a_sweep_resumes_after_a_part_of_ray_is_killed(whole: Path, tmp_path: Path, part: str) -> None:
    token = secrets.token_hex(8)
    out = tmp_path / "cut"
    # Trials run for seconds after the kill: workers notice the death of their raylet late.
    running = command("sweep", sweep_file(tmp_path, repeats=40), "--out", out, **{TOKEN: token})
    folder = wait_for_trials(out, 2)
    for process in psutil.Process(running.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if process.name() == part:
                process.kill()
    _, err = running.communicate(timeout=200)
    assert running.returncode == 3, err
    assert f"raydr sweep {folder} --resume" in err
    assert all_gone(token)
    resumed = table(resume(folder))
    assert len(resumed) == 160
    assert [row for row in resumed if row["repeat"] < 2] == table(whole)


def sweep_over_nodes(file: Path, out: Path, after: int, timeout_s: float, **environment: str) -> None:
    script = SUPPORT / "sweep_nodes.py"
    ran = subprocess.run(
        [sys.executable, str(script), str(file), str(out), str(after)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, **environment},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.ray
def test_a_lost_node_loses_no_trial(whole: Path, tmp_path: Path) -> None:
    token = secrets.token_hex(8)
    sweep_over_nodes(sweep_file(tmp_path), tmp_path / "nodes", 3, 280, **{TOKEN: token})
    assert table(tmp_path / "nodes") == table(whole)
    assert all_gone(token)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_mnist_over_three_nodes_matches_one_machine_after_a_loss(data_dir: Path, tmp_path: Path) -> None:
    """Noise x landmarks x clients, twelve trials, up to 100 clients; one node is lost."""
    secret = tmp_path / "secret"  # the same noise in both sweeps
    secret.write_bytes(b"a secret of a test, 32 bytes or more")
    secret.chmod(0o600)
    content = {
        "name": "mnist-100",
        "base": {
            "data": {"source": "mnist", "rows": 10_000},
            "clients": {"partition": {"kind": "iid"}},
            "method": {"kind": "fed-tsne", "rounds": 10},
            "privacy": {"noise": {"on": "gradient"}, "secret": str(secret)},
            "runtime": {"actors": 2},
            "metrics": ["npa_10", "ca_10"],
        },
        "space": {
            "clients.count": [50, 100],
            "method.landmarks": [50, 100, 200],
            "privacy.noise.level": [0, 0.2],
        },
        "trial": {"report": False},
    }
    file = tmp_path / "mnist.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    sweep_over_nodes(file, tmp_path / "nodes", 4, 1500, RAYDR_DATA=str(data_dir))
    base = content["base"] | {"runtime": {"federation": "inline", "checkpoint_every": 0}}
    file.write_text(yaml.safe_dump(content | {"base": base}, sort_keys=False))
    alone = command("sweep", file, "--out", tmp_path / "alone", "--quiet", RAYDR_DATA=str(data_dir))
    _, err = alone.communicate(timeout=1400)
    assert alone.returncode == 0, err
    one, other = (
        [{key: value for key, value in row.items() if key != "digest"} for row in table(tmp_path / name)]
        for name in ("nodes", "alone")
    )
    assert len(one) == 12
    assert one == other


def test_wrong_options_of_the_sweep_command_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from raydr.front.cli import status

    file = sweep_file(tmp_path)
    assert status(["sweep", "digits-for-axes"]) == 2
    assert "did you mean digits-four-axes?" in capsys.readouterr().err
    assert status(["sweep", str(file), "--retry-failed"]) == 2
    assert status(["sweep", str(file), "--resume"]) == 2
    assert "is not an interrupted sweep" in capsys.readouterr().err
    assert status(["run", str(file)]) == 2
    assert "is a sweep: run `raydr sweep" in capsys.readouterr().err
    assert status(["sweep", str(file), "--quick"]) == 2
    assert "does not say what --quick changes" in capsys.readouterr().err
