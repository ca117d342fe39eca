"""A run that is ended before it is whole: at once, without a trace or with a checkpoint to go on from."""

from __future__ import annotations

import random
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import LONG, Command
from processes import wait_until_heeded
from tiny import tiny, tiny_file

import raydr
from raydr.front import process
from raydr.front.cli import status
from raydr.runfolder.making import incomplete
from raydr.scenarios.running.checkpoints import Checkpoints

# As in test_survival: beside busy loops everything takes several times as long.
pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]
SLOW_ENDS = [pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGTERM, signal.SIGHUP)]
INTERRUPTED = "raydr: interrupted; nothing was kept of this run.\n"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test starts in an empty folder."""
    monkeypatch.chdir(tmp_path)


def end(scenario: Path, *, after: str, number: signal.Signals, to_group: bool) -> tuple[int, str, str]:
    """Run a scenario, send a signal once a stage has ended, and wait until everything is gone."""
    with Command("run", str(scenario), "--out", "out") as command:
        command.wait_for(after)
        time.sleep(0.5)
        command.send(number, to_group=to_group)
        return command.end()


def on_ray(folder: Path, **runtime: Any) -> Path:
    """A scenario on Ray that does not end by itself."""
    method = tiny()["method"] | {"rounds": LONG}
    return tiny_file(
        folder, method=method, runtime={"federation": "ray", "actors": 1, "checkpoint_every": 0} | runtime
    )


@pytest.mark.parametrize(
    ("after", "method", "number", "to_group"),
    [
        pytest.param("scaling", {"rounds": LONG}, signal.SIGINT, True, id="Ctrl-C in the rounds"),
        pytest.param("neighbours", {"iterations": LONG}, signal.SIGINT, False, id="SIGINT in the embedding"),
        pytest.param(
            "neighbours", {"iterations": LONG}, signal.SIGTERM, False, id="SIGTERM in the embedding"
        ),
        pytest.param("scaling", {"rounds": LONG}, signal.SIGHUP, True, id="a terminal closed in the rounds"),
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
        pytest.param("scaling", signal.SIGINT, id="Ctrl-C in the rounds"),
        # Moments before the rounds are tried below: at any time of the start, and while data are read.
        pytest.param("starting Ray", signal.SIGINT, id="Ctrl-C before the rounds", marks=pytest.mark.slow),
        pytest.param("scaling", signal.SIGTERM, id="SIGTERM in the rounds", marks=pytest.mark.slow),
    ],
)
def test_a_run_on_ray_ends_when_told_and_leaves_no_process(
    tmp_path: Path, short: Path, after: str, number: signal.Signals
) -> None:
    # As a terminal does it: Ctrl-C reaches Ray's processes too.
    code, out, err = end(on_ray(tmp_path), after=after, number=number, to_group=number == signal.SIGINT)
    assert (code, out) == (128 + number, "")
    assert err.endswith(INTERRUPTED)
    assert "Traceback" not in err
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.yaml"]
    assert not list(short.glob("raydr-*"))


READ_MEANWHILE = """
from raydr.__main__ import main
from raydr.scenarios.running import start
import ray, time
def dealt_out(*arguments, **named):
{reading}
start.dealt_out = dealt_out
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, *SLOW_ENDS])
def test_data_that_are_read_beside_ray_keep_nobody_waiting(tmp_path: Path, number: signal.Signals) -> None:
    program = [sys.executable, "-c", READ_MEANWHILE.format(reading="    time.sleep(600)")]
    with Command("run", str(on_ray(tmp_path)), "--out", "out", program=program) as command:
        command.wait_for("starting Ray")
        command.send(number)
        code, out, err = command.end(timeout_s=60)
    assert (code, out) == (128 + number, "")
    assert err.lstrip("\n") == INTERRUPTED
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.yaml"]


@pytest.mark.parametrize(
    ("until", "starts"), [("ray.is_initialized()", True), ("True", False)], ids=["after", "before"]
)
def test_data_of_no_use_are_said_in_a_line_whether_ray_has_started_or_not(
    tmp_path: Path, until: str, starts: bool
) -> None:
    reading = f"""
    while not {until}:
        time.sleep(0.01)
    from raydr.errors import DataError
    raise DataError("There is no column 'age'.")
"""
    program = [sys.executable, "-c", READ_MEANWHILE.format(reading=reading)]
    with Command("run", str(on_ray(tmp_path)), "--out", "out", program=program) as command:
        code, out, err = command.end()
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == "raydr: There is no column 'age'."
    assert ("starting Ray:" in err) == starts
    assert "Traceback" not in err
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.yaml"]


@pytest.mark.parametrize(
    "moment", [pytest.param(moment, marks=[pytest.mark.slow] if moment >= 4 else []) for moment in range(30)]
)
def test_any_moment_of_the_start_will_do(tmp_path: Path, short: Path, moment: int) -> None:
    """From the command's first line until rounds are under way, 4 s later here; any signal, to it or to all."""
    draw = random.Random(moment)
    seconds, number, to_group = (
        draw.uniform(0, 5),
        draw.choice((signal.SIGINT, signal.SIGTERM)),
        draw.random() < 0.5,
    )
    with Command("run", str(on_ray(tmp_path)), "--out", "out", "--quiet") as command:
        wait_until_heeded(command.process.pid)
        time.sleep(seconds)
        command.send(number, to_group=to_group)
        code, out, err = command.end()
    assert (code, out) == (128 + number, ""), (seconds, err)
    # Ray's C++ library prints a stack of its own for a SIGTERM in the 0.3 s in which it makes its worker.
    assert err.endswith(INTERRUPTED) or not err
    assert "Traceback" not in err
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.yaml"]
    assert not list(short.glob("raydr-*"))


def test_an_interruption_that_python_makes_another_error_of_is_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As Python 3.11 does where it comes while a class is told its attributes' names."""

    def making_a_class() -> None:
        try:
            raise KeyboardInterrupt(signal.SIGINT)
        except KeyboardInterrupt as interruption:
            raise RuntimeError("Error calling __set_name__") from interruption

    assert process.status(making_a_class) == 130
    assert capsys.readouterr().err == INTERRUPTED


def test_a_folder_that_was_only_just_made_is_removed_as_well(tmp_path: Path) -> None:
    """Where a signal comes between its making and whoever would remove it."""

    class Interrupted(Checkpoints):
        @contextmanager
        def locked(self) -> Iterator[None]:
            signal.raise_signal(signal.SIGINT)
            with super().locked():
                yield

    with pytest.raises(KeyboardInterrupt), incomplete(tmp_path / "above" / "out", Interrupted):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, *SLOW_ENDS])
def test_a_signal_whose_exception_python_drops_is_not_lost(tmp_path: Path, number: signal.Signals) -> None:
    """What a handler raises in a finaliser or in a weak reference's callback, as imports have them, is dropped."""
    dropping = f"""
from raydr.__main__ import main
from raydr.scenarios.running import start
import signal
class Late:
    def __del__(self):
        signal.raise_signal({number:d})
deal = start.dealt_out
def dealt_out(*arguments, **named):
    Late()
    return deal(*arguments, **named)
start.dealt_out = dealt_out
main()
"""
    method = tiny()["method"] | {"rounds": LONG}
    scenario = tiny_file(tmp_path, method=method, runtime={"federation": "inline", "checkpoint_every": 0})
    program = [sys.executable, "-c", dropping]
    with Command("run", str(scenario), "--out", "out", "--quiet", program=program) as command:
        assert command.end(timeout_s=30) == (128 + number, "", INTERRUPTED)


@pytest.mark.parametrize("number", [signal.SIGINT, *SLOW_ENDS])
def test_a_signal_while_ray_forks_is_not_lost(tmp_path: Path, number: signal.Signals) -> None:
    """What a handler raises in a hook of a fork is dropped, and Ray forks with hooks, six times for a start."""
    forking = f"""
import os, signal
os.register_at_fork(after_in_parent=lambda: signal.raise_signal({number:d}))
from raydr.__main__ import main
main()
"""
    program = [sys.executable, "-c", forking]
    with Command("run", str(on_ray(tmp_path)), "--out", "out", "--quiet", program=program) as command:
        assert command.end() == (128 + number, "", INTERRUPTED)
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.yaml"]


def test_a_sigterm_while_ray_makes_its_worker_prints_no_stack(tmp_path: Path) -> None:
    making = f"""
import ray, signal, threading
make = ray._raylet.CoreWorker
def interrupted(*arguments):
    main = threading.main_thread().ident
    threading.Timer(0.05, signal.pthread_kill, [main, {signal.SIGTERM:d}]).start()
    made = make(*arguments)
    signal.pthread_kill(main, {signal.SIGTERM:d})
    return made
ray._raylet.CoreWorker = interrupted
from raydr.__main__ import main
main()
"""
    program = [sys.executable, "-c", making]
    with Command("run", str(on_ray(tmp_path)), "--out", "out", "--quiet", program=program) as command:
        assert command.end() == (128 + signal.SIGTERM, "", INTERRUPTED)


@pytest.mark.parametrize("number", [signal.SIGINT, SLOW_ENDS[0]])
def test_a_start_that_hangs_is_not_waited_for(tmp_path: Path, number: signal.Signals) -> None:
    hanging = f"""
import os, signal, threading, time
import ray
def hang(**options):
    threading.Timer(0.2, os.kill, [os.getpid(), {number:d}]).start()
    time.sleep(600)
ray.init = hang
from raydr.__main__ import main
main()
"""
    program = [sys.executable, "-c", hanging]
    with Command("run", str(on_ray(tmp_path)), "--out", "out", "--quiet", program=program) as command:
        assert command.end(timeout_s=20) == (128 + number, "", INTERRUPTED)


IMPORTED = ("raydr.front.cli", "click", "raydr.scenarios")
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize(
    ("imported", "number"),
    [
        # Each module once and each signal once; the other pairs in ``make slow``.
        pytest.param(name, number, marks=[] if ENDS.index(number) == at else pytest.mark.slow)
        for at, name in enumerate(IMPORTED)
        for number in ENDS
    ],
)
def test_nothing_is_printed_while_the_command_is_imported(
    tmp_path: Path, imported: str, number: signal.Signals
) -> None:
    importing = f"""
import signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {imported!r}:
            signal.raise_signal({number:d})
sys.meta_path.insert(0, Interrupting())
from raydr.__main__ import main
main()
"""
    with Command("run", "digits-fed-tsne", program=[sys.executable, "-c", importing]) as command:
        code, out, err = command.end()
    assert (code, out) == (128 + number, "")
    assert err == (INTERRUPTED if imported == "raydr.scenarios" else "")


def test_what_was_ignored_stays_ignored(tmp_path: Path) -> None:
    """``nohup raydr run ... &`` outlives its terminal."""
    ignoring = """
import signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGINT, signal.SIG_IGN)
from raydr.__main__ import main
main()
"""
    runtime = {"federation": "inline", "checkpoint_every": 0}
    scenario = tiny_file(tmp_path, method=tiny()["method"] | {"rounds": LONG}, runtime=runtime)
    program = [sys.executable, "-c", ignoring]
    with Command("run", str(scenario), "--out", "out", program=program) as command:
        command.wait_for("scaling")
        command.send(signal.SIGHUP)
        command.send(signal.SIGINT)
        time.sleep(0.5)
        assert command.process.poll() is None
        command.send(signal.SIGTERM)
        code, _, err = command.end()
    assert code == 128 + signal.SIGTERM
    assert err.endswith(INTERRUPTED)


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
        patch.setattr("raydr.methods.landmarks.maps.recovered", interrupt)
        assert status(["run", str(scenario), "--out", "out", "-q"]) == 130
    (kept,) = tmp_path.glob("out*")
    assert kept.name.startswith("out.incomplete-")
    err = capsys.readouterr().err
    told = re.search(
        r"raydr: interrupted\. Continue from the last checkpoint with `raydr (run \S+ --resume)`\.\n", err
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
        (["digits-fed-tsne", "--out", "out"], "leave out --set, --inline and --out"),
        (["digits-fed-tsne", "--set", "seed=1"], "leave out --set, --inline and --out"),
        (["digits-fed-tsne", "--inline"], "leave out --set, --inline and --out"),
    ],
)
def test_only_an_interrupted_run_as_it_was_can_be_resumed(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["run", "--resume", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_python_is_left_with_its_own_signal_handlers(tmp_path: Path) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    raydr.run(tiny(), out=tmp_path / "out")
    assert {number: signal.getsignal(number) for number in before} == before
