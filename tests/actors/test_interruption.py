"""A signal ends a run at once; it leaves nothing, or a checkpoint to resume from."""

from __future__ import annotations

import random
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import LONG, Command
from processes import wait_until_heeded
from pydantic_core import SchemaError
from tiny import tiny, tiny_file

import raydr
from raydr.errors import DataError
from raydr.front import process
from raydr.front.cli import status
from raydr.runfolder.making import incomplete
from raydr.scenarios.running import start
from raydr.scenarios.running.checkpoints import Checkpoints

# On a busy machine everything takes several times as long.
pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SLOW_ENDS = [pytest.param(number, marks=pytest.mark.slow) for number in (signal.SIGTERM, signal.SIGHUP)]
INTERRUPTED = "raydr: interrupted; nothing was kept of this run.\n"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start every test in an empty folder."""
    monkeypatch.chdir(tmp_path)


def end(scenario: Path, *, after: str, number: signal.Signals, to_group: bool) -> tuple[int, str, str]:
    """Run a scenario, send a signal after a stage, and wait until all its processes are gone."""
    with Command("run", str(scenario), "--out", "out") as command:
        command.wait_for(after)
        time.sleep(0.5)
        command.send(number, to_group=to_group)
        return command.end()


def on_ray(folder: Path, **runtime: Any) -> Path:
    """Write a scenario on Ray that does not end by itself."""
    method = tiny()["method"] | {"rounds": LONG}
    return tiny_file(
        folder, method=method, runtime={"federation": "ray", "actors": 1, "checkpoint_every": 0} | runtime
    )


@pytest.mark.parametrize(
    ("after", "method", "number", "to_group"),
    [
        pytest.param("neighbours", {"iterations": LONG}, signal.SIGINT, False, id="SIGINT in the embedding"),
        # SIGTERM in the rounds: test_ignored_signals_stay_ignored.
        pytest.param(
            "neighbours",
            {"iterations": LONG},
            signal.SIGTERM,
            False,
            id="SIGTERM in the embedding",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "scaling",
            {"rounds": LONG},
            signal.SIGINT,
            True,
            id="Ctrl-C in the rounds",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "scaling",
            {"rounds": LONG},
            signal.SIGHUP,
            True,
            id="a terminal closed in the rounds",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_signal_ends_an_inline_run(
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
        # Tests below interrupt the start and the wait for data.
        pytest.param("starting Ray", signal.SIGINT, id="Ctrl-C before the rounds", marks=pytest.mark.slow),
        pytest.param("scaling", signal.SIGTERM, id="SIGTERM in the rounds", marks=pytest.mark.slow),
    ],
)
def test_a_signal_ends_a_run_on_ray_and_its_processes(
    tmp_path: Path, short: Path, after: str, number: signal.Signals
) -> None:
    # In a terminal, Ctrl-C reaches Ray's processes too.
    code, out, err = end(on_ray(tmp_path), after=after, number=number, to_group=number == signal.SIGINT)
    assert (code, out) == (128 + number, "")
    assert err.endswith(INTERRUPTED)
    assert "Traceback" not in err
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.yaml"]
    assert not list(short.glob("raydr-*"))


READ_FOREVER = """
from raydr.__main__ import main
from raydr.scenarios.running import start
import time
start.dealt_out = lambda *arguments, **named: time.sleep(600)
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", ENDS)
def test_a_signal_ends_a_run_on_ray_that_waits_for_its_data(tmp_path: Path, number: signal.Signals) -> None:
    program = [sys.executable, "-c", READ_FOREVER]
    with Command("run", str(on_ray(tmp_path)), "--out", "out", program=program) as command:
        command.wait_for("starting Ray")
        command.send(number)
        code, out, err = command.end()
    assert (code, out) == (128 + number, "")
    assert err.lstrip("\n") == INTERRUPTED
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.yaml"]


def test_a_signal_ends_the_wait_for_data_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The data never come, and the start only sets an event."""
    started, over, main = threading.Event(), threading.Event(), threading.main_thread().ident
    assert main is not None

    @contextmanager
    def ray_backend(*arguments: Any, **options: Any) -> Iterator[None]:
        started.set()
        yield

    def dealt_out(*arguments: Any, **named: Any) -> None:
        assert started.wait(60)
        time.sleep(0.2)
        signal.pthread_kill(main, signal.SIGINT)
        over.wait(60)

    monkeypatch.setattr("raydr.actors.backend.ray_backend", ray_backend)
    monkeypatch.setattr(start, "dealt_out", dealt_out)
    begun = time.monotonic()
    try:
        assert status(["run", str(on_ray(tmp_path)), "--out", "out"]) == 130
    finally:
        over.set()
    assert time.monotonic() - begun < 30
    assert capsys.readouterr().err.endswith(INTERRUPTED)
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.yaml"]


@contextmanager
def read_first(work: Callable[[], Any]) -> Iterator[Future[Any]]:
    """Yield the outcome of work that ends before anything else is done."""
    outcome: Future[Any] = Future()
    try:
        outcome.set_result(work())
    except DataError as error:
        outcome.set_exception(error)
    yield outcome


@pytest.mark.parametrize("starts", [True, False], ids=["after", "before"])
def test_unusable_data_are_reported_after_or_before_ray_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], starts: bool
) -> None:
    """A table is read while Ray starts. Here the start only sets an event."""
    started = threading.Event()

    @contextmanager
    def ray_backend(*arguments: Any, **options: Any) -> Iterator[None]:
        started.set()
        yield

    def dealt_out(*arguments: Any, **named: Any) -> None:
        if starts:
            assert started.wait(60)
        raise DataError("There is no column 'age'.")

    monkeypatch.setattr("raydr.actors.backend.ray_backend", ray_backend)
    monkeypatch.setattr(start, "dealt_out", dealt_out)
    if not starts:
        monkeypatch.setattr(start, "done_ahead", read_first)
    assert status(["run", str(on_ray(tmp_path)), "--out", "out"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == "raydr: There is no column 'age'."
    assert started.is_set() == ("starting Ray:" in err) == starts
    assert "Traceback" not in err
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.yaml"]


EARLY = (1, 3)
"""Moments before Ray starts: the quick ones."""


@pytest.mark.parametrize(
    "moment",
    [pytest.param(moment, marks=[] if moment in EARLY else pytest.mark.slow) for moment in range(30)],
)
def test_a_signal_at_any_moment_of_the_start_ends_the_run(tmp_path: Path, short: Path, moment: int) -> None:
    """From the command's first line until the rounds, 4 s later; SIGINT or SIGTERM, to the command or its group."""
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
    assert err.endswith(INTERRUPTED) or not err
    assert "Traceback" not in err
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.yaml"]
    assert not list(short.glob("raydr-*"))


def test_an_interruption_behind_another_error_is_an_interruption(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Python 3.11 raises another error if a signal interrupts ``__set_name__``."""

    def making_a_class() -> None:
        try:
            raise KeyboardInterrupt(signal.SIGINT)
        except KeyboardInterrupt as interruption:
            raise RuntimeError("Error calling __set_name__") from interruption

    assert process.status(making_a_class) == 130
    assert capsys.readouterr().err == INTERRUPTED


def test_an_interruption_while_a_schema_is_built_is_an_interruption(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only the text of pydantic's error has the interruption, which it meets while it runs Python's handlers."""

    def building_a_model() -> None:
        raise SchemaError('Error building "literal" validator:\n  KeyboardInterrupt: 15')

    assert process.status(building_a_model) == 130
    assert capsys.readouterr().err == INTERRUPTED


def test_a_run_folder_is_removed_if_its_creation_is_interrupted(tmp_path: Path) -> None:
    """The signal comes after the folder is made and before the block that removes it."""

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
def test_a_signal_ends_the_run_if_python_drops_its_exception(tmp_path: Path, number: signal.Signals) -> None:
    """Python drops what a handler raises in a finaliser or in a weak reference's callback; imports have both."""
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
        assert command.end() == (128 + number, "", INTERRUPTED)


@pytest.mark.slow  # the tests before and after this one interrupt a dropped exception and a start of Ray
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_ray_forks_ends_the_run(tmp_path: Path, number: signal.Signals) -> None:
    """Python drops what a handler raises in a hook of a fork; Ray forks with hooks, six times for a start."""
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


def test_a_signal_waits_for_the_start_of_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted C++ library of Ray prints a stack."""
    from raydr.actors import cluster

    started = []

    def init(**options: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        started.append(options)

    monkeypatch.setattr(cluster.ray, "init", init)
    with pytest.raises(KeyboardInterrupt):
        cluster._init("local")
    assert started


@pytest.mark.slow
def test_a_sigterm_while_ray_makes_its_worker_prints_no_stack(tmp_path: Path) -> None:
    """Without raydr, Ray's C++ library prints a stack."""
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
def test_a_signal_ends_a_start_of_ray_that_hangs(tmp_path: Path, number: signal.Signals) -> None:
    """A start may take some seconds after a signal; here half a second."""
    hanging = f"""
import os, signal, threading, time
import ray
import raydr.actors.cluster
raydr.actors.cluster._PATIENCE_S = 0.5
def hang(**options):
    threading.Timer(0.2, os.kill, [os.getpid(), {number:d}]).start()
    time.sleep(600)
ray.init = hang
from raydr.__main__ import main
main()
"""
    program = [sys.executable, "-c", hanging]
    with Command("run", str(on_ray(tmp_path)), "--out", "out", "--quiet", program=program) as command:
        assert command.end() == (128 + number, "", INTERRUPTED)


IMPORTED = ("raydr.front.cli", "click", "raydr.scenarios")


@pytest.mark.parametrize(
    ("imported", "number"),
    [
        # Each module once and each signal once; `make slow` runs the other pairs.
        pytest.param(name, number, marks=[] if ENDS.index(number) == at else pytest.mark.slow)
        for at, name in enumerate(IMPORTED)
        for number in ENDS
    ],
)
def test_a_signal_during_imports_prints_no_traceback(
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


def test_ignored_signals_stay_ignored(tmp_path: Path) -> None:
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


def test_an_interrupted_run_resumes_to_the_same_map(
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
    resume = re.search(
        r"raydr: interrupted\. Continue from the last checkpoint with `raydr (run \S+ --resume)`\.\n", err
    )
    assert resume is not None
    assert status([*resume[1].split(), "-q"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out' / 'report.html'}\n"
    assert not kept.exists()
    maps = [raydr.Result(tmp_path / name).embedding.tobytes() for name in ("out", "whole")]
    assert maps[0] == maps[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits-fed-tsne"], "is not an interrupted run"),
        (["digits-fed-tsne", "--out", "out"], "leave out --set, --policy, --inline and --out"),
        (["digits-fed-tsne", "--set", "seed=1"], "leave out --set, --policy, --inline and --out"),
        (["digits-fed-tsne", "--inline"], "leave out --set, --policy, --inline and --out"),
    ],
)
def test_only_an_unchanged_interrupted_run_can_be_resumed(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(["run", "--resume", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_run_in_python_restores_the_signal_handlers(tmp_path: Path) -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    raydr.run(tiny(), out=tmp_path / "out")
    assert {number: signal.getsignal(number) for number in before} == before
