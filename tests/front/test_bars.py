"""Progress on a terminal, in a notebook, in a log and in a program; it never changes the run."""

from __future__ import annotations

import gzip
import io
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fast import fast_only
from rich.console import Console
from tiny import tiny_file, tiny_run, tiny_scenario

import raydr
from raydr.data import load
from raydr.data.files import watching
from raydr.embedding import EMBEDDERS
from raydr.errors import DataError
from raydr.front import progress_bars
from raydr.front.progress_bars import Pace, heard_on_terminal, reading_on_terminal
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points
from raydr.journal import Event, IncidentEvent, Journal, Progress, StageEnded, StageStarted, within
from raydr.metrics import Evidence, evaluate
from raydr.scenarios.runner import run
from raydr.scenarios.running import start
from raydr.threads import done_ahead

ROWS = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that sets the clock of the bars."""
    now = [0.0]
    monkeypatch.setattr("raydr.front.progress_bars.time.monotonic", lambda: now[0])

    def at(seconds: float) -> None:
        now[0] = seconds

    return at


# --- how much longer -----------------------------------------------------------------------------------------------


def reported(pace: Pace, clock: Callable[[float], None], *moments: tuple[float, Event]) -> float | None:
    for seconds, event in moments:
        clock(seconds)
        pace.hear(event)
    return pace.left_s("rounds")


def test_remaining_time_assumes_constant_pace(clock: Callable[[float], None]) -> None:
    pace = Pace()
    assert reported(pace, clock, (0.0, StageStarted("rounds"))) is None
    assert reported(pace, clock, (5.0, Progress("rounds", 0, 40))) is None
    assert reported(pace, clock, (15.0, Progress("rounds", 10, 40))) == pytest.approx(30.0)
    assert reported(pace, clock, (25.0, Progress("rounds", 20.0, 40))) == pytest.approx(20.0)
    assert reported(pace, clock, (46.0, Progress("rounds", 40, 40))) == 0.0


def test_restarted_count_has_its_own_pace(clock: Callable[[float], None]) -> None:
    pace = Pace()
    began = (
        (0.0, StageStarted("rounds")),
        (0.0, Progress("rounds", 0, 10)),
        (100.0, Progress("rounds", 10, 10)),
    )
    reported(pace, clock, *began)
    assert reported(pace, clock, (100.0, Progress("rounds", 0, 10))) is None, (
        "of another count nothing is known yet"
    )
    assert reported(pace, clock, (101.0, Progress("rounds", 5, 10))) == pytest.approx(1.0)
    assert reported(pace, clock, (101.0, Progress("rounds", 0, 500))) is None
    assert reported(pace, clock, (103.0, StageStarted("rounds")), (103.0, Progress("rounds", 1, 2))) is None


def test_work_before_the_first_count_is_not_part_of_the_pace(clock: Callable[[float], None]) -> None:
    resumed = (
        (0.0, StageStarted("rounds")),
        (0.0, Progress("rounds", 0, 100)),
        (10.0, Progress("rounds", 10, 100)),
    )
    assert reported(Pace(), clock, *resumed) == pytest.approx(90.0)


@pytest.mark.parametrize("first", [[(0.0, Progress("rounds", 0, 42))], []])
def test_compilation_in_the_first_step_is_not_part_of_the_pace(
    first: list[tuple[float, Event]], clock: Callable[[float], None]
) -> None:
    pace = Pace()
    assert reported(pace, clock, (0.0, StageStarted("rounds")), *first) is None
    assert reported(pace, clock, (18.0, Progress("rounds", 1, 42))) is None
    assert reported(pace, clock, (19.0, Progress("rounds", 2, 42))) == pytest.approx(40.0)
    assert reported(pace, clock, (19.5, Progress("rounds", 2, 42))) == pytest.approx(60.0)
    assert reported(pace, clock, (20.0, Progress("rounds", 3, 42))) == pytest.approx(39.0)


def test_short_stages_print_no_progress(clock: Callable[[float], None]) -> None:
    pace = Pace()
    young = (0.0, StageStarted("rounds")), (0.0, Progress("rounds", 0, 4)), (1.9, Progress("rounds", 2, 4))
    assert reported(pace, clock, *young) is None
    assert pace.time_left("rounds") == ""
    assert reported(pace, clock, (2.1, Progress("rounds", 3, 4))) == pytest.approx(0.2)
    assert pace.time_left("rounds").startswith("about 1")


def test_plain_progress_lines_come_at_most_every_ten_seconds(
    clock: Callable[[float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with heard_on_terminal() as hear:
        hear(StageStarted("rounds"))
        for second in range(35):
            clock(float(second))
            hear(Progress("rounds", second, 50))
    lines = capsys.readouterr().err.splitlines()
    assert [re.sub(r"\s", " ", line) for line in lines] == [
        "rounds: 11/50, about 39.0 s left",
        "rounds: 22/50, about 28.0 s left",
        "rounds: 33/50, about 17.0 s left",
    ]


def test_quiet_prints_nothing(clock: Callable[[float], None], capsys: pytest.CaptureFixture[str]) -> None:
    with heard_on_terminal(quiet=True) as hear:
        hear(StageStarted("rounds"))
        clock(60.0)
        hear(Progress("rounds", 3, 50))
        hear(IncidentEvent("client 3 fell silent"))
        hear(StageEnded("rounds", 60.0))
    assert "".join(capsys.readouterr()) == ""


def test_terminal_shows_bar_count_and_remaining_time(
    clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, highlight=False, color_system=None)
    monkeypatch.setattr(progress_bars, "console_on", lambda _: console)
    with heard_on_terminal() as hear:
        hear(StageStarted("rounds"))
        hear(Progress("rounds", 0, 50))
        clock(10.0)
        hear(Progress("rounds", 20, 50))
    shown = re.sub(r"\s", " ", screen.getvalue())
    assert re.search(r"rounds +\d+\.\d s .*20/50 about 15\.0 s left", shown)


def test_stage_that_counts_twice_keeps_its_bar() -> None:
    drawn = progress_bars.Bars(console=Console(file=io.StringIO()), auto_refresh=False)
    rows = progress_bars._StageBars(drawn)
    rows.hear(StageStarted("central map"))
    (row,) = drawn.tasks
    for done in (3, 5, 2, 2.5):
        rows.hear(Progress("central map", done, 5))
        assert not row.finished
        assert row.fields["count"] == f"{int(done)}/5"
    rows.hear(StageEnded("central map", 1.0))
    assert row.finished


@pytest.mark.parametrize("widgets", [True, False])
def test_notebook_has_bars_if_widgets_are_installed(monkeypatch: pytest.MonkeyPatch, widgets: bool) -> None:
    console = Console(file=io.StringIO(), force_jupyter=True)
    monkeypatch.setattr(
        progress_bars, "find_spec", lambda name: object() if widgets and name == "ipywidgets" else None
    )
    assert progress_bars._draws_bars(console) is widgets
    assert progress_bars._draws_bars(Console(file=io.StringIO(), force_terminal=True))
    assert not progress_bars._draws_bars(Console(file=io.StringIO()))


# --- what is reported ------------------------------------------------------------------------------------------------


SHORT: dict[str, dict[str, int]] = {
    "tsne": {"early_iterations": 100, "iterations": 100},
    "umap": {"epochs": 40},
    "cosne": {"early_iterations": 100, "iterations": 100},
    "cne": {"epochs": 40},
}


@pytest.mark.parametrize("kind", fast_only(lambda kind: kind != "phate", EMBEDDERS))
def test_embedder_progress_does_not_change_the_map(kind: str) -> None:
    if kind == "phate":
        pytest.importorskip("phate")
    embedder = EMBEDDERS[kind](**SHORT.get(kind, {}))
    rows = ROWS / 10 if kind == "cosne" else ROWS
    graph = nearest_neighbors(Points(rows), embedder.neighbors_needed(len(rows)))
    received: list[tuple[float, int]] = []
    unheard = embedder.embed(graph, rows[:, :2], seed=3)
    with_progress = embedder.embed(
        graph, rows[:, :2], seed=3, progress=lambda *reported: received.append(reported)
    )
    np.testing.assert_array_equal(with_progress, unheard)
    assert received == sorted(received)
    assert received[0][0] == 0
    assert received[-1][0] == received[-1][1]
    assert len({total for _, total in received}) == 1
    # PHATE and the spectral map are single calls into a library.
    assert len(received) >= 4 or kind in ("phate", "spectral")


def test_metrics_report_progress_of_the_neighbour_search() -> None:
    received: list[tuple[float, int]] = []
    names = ["npa_10", "trustworthiness"]
    evidence = Evidence(rows=ROWS, embedding=ROWS[:, :2].astype(np.float64))
    scores = evaluate(names, evidence, progress=lambda *reported: received.append(reported))
    assert scores == evaluate(names, evidence)
    assert all(0 < done <= 2 and total == 2 for done, total in received)
    assert [done for done, _ in received if float(done).is_integer()] == [1, 2]
    assert any(done < 1 for done, _ in received), "the searches are within the first metric"


def test_nested_progress_counts_for_the_outer_stage() -> None:
    received: list[Event] = []
    outer = Journal(received.append)
    with outer.stage("central map"):
        inner = within(outer)
        with inner.stage("neighbours"):
            inner.progress(1, 4)
        inner.tell(IncidentEvent("something"))
    ended = received.pop()
    assert isinstance(ended, StageEnded)
    assert received == [
        StageStarted("central map"),
        Progress("central map", 1, 4),
        IncidentEvent("something"),
    ]
    assert list(outer.seconds) == ["central map"]


def _moved(events: list[Event]) -> set[str]:
    return {event.stage for event in events if isinstance(event, Progress) and event.done}


@pytest.mark.parametrize(
    ("method", "stages"),
    [
        (
            {"kind": "fed-umap", "landmarks": 12, "rounds": 3, "epochs": 20},
            {"landmarks", "neighbours", "embedding"},
        ),
        ({"kind": "fedne", "hidden": [8], "local_steps": 2, "rounds": 3}, {"rounds"}),
        (
            {"kind": "sense", "anchors": 3, "embedder": {"kind": "cne", "epochs": 4}},
            {"geometry", "embedding"},
        ),
        (
            {"kind": "sense", "anchors": 3, "solver": "smacof-dense", "iterations": 4},
            {"geometry", "neighbours"},
        ),
    ],
    ids=["fed-umap", "fedne", "sense", "sense-dense"],
)
@pytest.mark.usefixtures("no_report")
def test_long_stages_of_a_run_report_progress(
    tmp_path: Path, method: dict[str, Any], stages: set[str]
) -> None:
    events: list[Event] = []
    run(tiny_scenario(method=method, compare=["central"]), out=tmp_path / "run", listener=events.append)
    assert stages | {"central map", "metrics"} <= _moved(events)


def test_audit_reports_progress_of_the_repeated_run(tmp_path: Path) -> None:
    folder = tiny_run(tmp_path / "run")
    events: list[Event] = []
    raydr.audit(folder, ["trilateration"], listener=events.append)
    assert "audit: the run once more" in _moved(events)


# --- from Python ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_report")
def test_verbose_prints_progress_and_calls_the_listener(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, events = tiny_file(tmp_path), []
    raydr.run(scenario, out=tmp_path / "silent")
    assert "".join(capsys.readouterr()) == ""
    raydr.run(scenario, out=tmp_path / "verbose", verbose=True, listener=events.append)
    out, err = capsys.readouterr()
    assert out == ""
    assert re.findall(r"^(\w+): \d+\.\d s$", err, re.MULTILINE)
    assert any(isinstance(event, Progress) for event in events)
    for name in ("embedding.parquet", "metrics.json", "ledger.json"):
        assert (tmp_path / "verbose" / name).read_bytes() == (tmp_path / "silent" / name).read_bytes()


def test_estimator_prints_only_if_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"landmarks": 4, "rounds": 2, "epochs": 5, "metrics": ["npa_10"]}
    silent = raydr.FedUMAP(**settings).fit(ROWS[:60])
    assert "".join(capsys.readouterr()) == ""
    reported = raydr.FedUMAP(**settings, verbose=True).fit(ROWS[:60])
    assert re.search(r"^landmarks: \d+\.\d s$", capsys.readouterr().err, re.MULTILINE)
    np.testing.assert_array_equal(reported.embedding_, silent.embedding_)


# --- a large file --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_reading_a_large_file_reports_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setattr("raydr.data.files.watching._LOOK_S", 0.0)
    text = "a,b\n" + "".join(f"{i},{i * i % 977}.5\n" for i in range(50_000))
    path = tmp_path / ("rows.csv.gz" if packed else "rows.csv")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    received: list[tuple[float, int]] = []
    threads, told = set(), threading.Event()
    read = watching._Counted.read

    def waiting_read(file: watching._Counted, size: int | None = -1, /) -> bytes:
        """Read in a thread of its own once progress was reported, so that reading cannot end before."""
        if threading.current_thread() is not threading.main_thread():
            assert told.wait(60.0)
        return read(file, size)

    def progress(done: float, total: int) -> None:
        threads.add(threading.current_thread())
        received.append((done, total))
        told.set()

    monkeypatch.setattr(watching._Counted, "read", waiting_read)
    watched = load(path=path, progress=progress)
    plain = load(path=path)
    np.testing.assert_array_equal(watched.rows, plain.rows)
    assert watched.features == plain.features
    assert received
    assert threads == {threading.main_thread()}
    assert received == sorted(received)
    assert all(0 <= done <= total == path.stat().st_size for done, total in received)


def test_unreadable_file_error_is_unchanged_by_progress(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n3\n")
    with pytest.raises(DataError, match="line 3 has 1 cell"):
        load(path=path, progress=lambda done, total: None)


def test_short_reads_report_no_progress(
    clock: Callable[[float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with reading_on_terminal() as progress:
        progress(10**6, 10**8)
    assert "".join(capsys.readouterr()) == ""
    with reading_on_terminal() as progress:
        clock(20.0)
        progress(10**7, 10**8)
        clock(30.0)
    assert capsys.readouterr().err.startswith("reading: 10 %")


def test_read_ahead_reports_progress_while_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start, "_LOOK_S", 0.01)
    received: list[Event] = []
    reached, reported = start._Reached(), threading.Event()

    def hear(event: Event) -> None:
        received.append(event)
        if isinstance(event, Progress):
            reported.set()

    def read() -> Any:
        reached.note(3, 10)
        assert reported.wait(30.0), "no progress was reported"
        return "the table"

    journal = Journal(hear)
    with done_ahead(read) as reading, journal.stage("data"):
        assert reached.awaited(reading, journal) == "the table"
    assert set(received[1:-1]) == {Progress("data", 3, 10)}
