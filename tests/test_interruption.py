"""A run that is ended before it is whole: at once, without a trace or with a checkpoint to go on from."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest
from tiny import tiny, tiny_file

import raydr
from raydr.cli import status

RAYDR = [sys.executable, "-c", "from raydr.cli import main; main()"]
TOKEN = "RAYDR_TEST_TOKEN"
LONG = 10**7
"""Rounds or iterations that no test waits for."""
INTERRUPTED = "raydr: interrupted; nothing of this run is kept.\n"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test starts in an empty folder."""
    monkeypatch.chdir(tmp_path)


def processes_of(token: str) -> list[psutil.Process]:
    """All that a command started, and itself: they inherit its environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(TOKEN) == token and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:  # not ours, or gone by now
            continue
    return found


def end(scenario: Path, *, after: str, number: signal.Signals, to_group: bool) -> tuple[int, str, str]:
    """Run a scenario, send a signal once a stage has ended, and wait until everything is gone."""
    token = uuid.uuid4().hex
    process = subprocess.Popen(
        [*RAYDR, "run", str(scenario), "--out", "out"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, TOKEN: token},
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if line.startswith(f"{after}:"):
                break
        time.sleep(0.5)
        (os.killpg if to_group else os.kill)(process.pid, number)
        out, err = process.communicate(timeout=30)
        patience = time.monotonic() + 30
        while (left := processes_of(token)) and time.monotonic() < patience:
            time.sleep(0.2)
        assert not left
        return process.returncode, out, err
    finally:
        for straggler in processes_of(token):
            straggler.kill()


@pytest.mark.parametrize(
    ("after", "method", "number", "to_group"),
    [
        pytest.param("scaling", {"rounds": LONG}, signal.SIGINT, True, id="Ctrl-C in the rounds"),
        pytest.param("neighbours", {"iterations": LONG}, signal.SIGINT, False, id="SIGINT in the embedding"),
        pytest.param(
            "neighbours", {"iterations": LONG}, signal.SIGTERM, False, id="SIGTERM in the embedding"
        ),
    ],
)
def test_a_run_in_this_process_ends_when_told(
    tmp_path: Path, after: str, method: dict[str, Any], number: signal.Signals, to_group: bool
) -> None:
    runtime = {"federation": "inline", "checkpoint_every": 0}
    scenario = tiny_file(tmp_path, method=tiny()["method"] | method, runtime=runtime)
    code, out, err = end(scenario, after=after, number=number, to_group=to_group)
    assert (code, out) == (128 + number, "")
    assert err.endswith(INTERRUPTED)
    assert "Traceback" not in err
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.yaml"]


@pytest.mark.parametrize(
    ("after", "number"),
    [
        pytest.param("data", signal.SIGINT, id="Ctrl-C while Ray starts"),
        pytest.param("scaling", signal.SIGINT, id="Ctrl-C in the rounds"),
        pytest.param("scaling", signal.SIGTERM, id="SIGTERM in the rounds", marks=pytest.mark.slow),
    ],
)
def test_a_run_on_ray_ends_when_told_and_leaves_no_process(
    tmp_path: Path, after: str, number: signal.Signals
) -> None:
    runtime = {"federation": "ray", "actors": 2, "checkpoint_every": 0}
    scenario = tiny_file(tmp_path, method=tiny()["method"] | {"rounds": LONG}, runtime=runtime)
    # As a terminal does it: Ctrl-C reaches Ray's processes too.
    code, out, err = end(scenario, after=after, number=number, to_group=number == signal.SIGINT)
    assert (code, out) == (128 + number, "")
    assert err.lstrip("\n") == INTERRUPTED
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.yaml"]


def test_an_interrupted_run_with_a_checkpoint_says_how_to_go_on_and_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tiny_file(
        tmp_path,
        method=tiny()["method"] | {"rounds": 6},
        runtime={"federation": "inline", "checkpoint_every": 2},
    )
    assert status(["run", str(scenario), "--out", "whole", "-q"]) == 0

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("raydr.methods.fed_tsne_umap.recovered_geometry", interrupt)
        assert status(["run", str(scenario), "--out", "out", "-q"]) == 130
    (kept,) = tmp_path.glob("out*")
    assert kept.name.startswith("out.incomplete-")
    err = capsys.readouterr().err
    told = re.search(
        r"raydr: interrupted\. Go on from the last checkpoint with `raydr (run \S+ --resume)`\.\n", err
    )
    assert told is not None
    assert status([*told[1].split(), "-q"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out' / 'report.html'}\n"
    assert not kept.exists()
    maps = [raydr.Result(tmp_path / name).embedding.tobytes() for name in ("out", "whole")]
    assert maps[0] == maps[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["digits-fed-tsne"], "is not an interrupted run"),
        (["digits-fed-tsne", "--out", "out"], "leave out --set and --out"),
        (["digits-fed-tsne", "--set", "seed=1"], "leave out --set and --out"),
    ],
)
def test_only_an_interrupted_run_as_it_was_can_be_resumed(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["run", "--resume", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_python_is_left_with_its_own_signal_handlers(tmp_path: Path) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    raydr.run(tiny(), out=tmp_path / "out")
    assert {number: signal.getsignal(number) for number in before} == before
