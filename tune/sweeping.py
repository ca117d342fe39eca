"""Running and resuming of sweeps, from the first trial to the page."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from raydr.errors import OutputError, RaydrError, ScenarioError
from raydr.journal import IncidentEvent, Journal, Listener, SweepBegan, TrialEnded, TrialStarted, unheard
from raydr.plain import short
from raydr.portable import require_portable
from raydr.runfolder import records
from raydr.runfolder.making import default_folder, incomplete, taken_up, target_of, unwritable
from raydr.runfolder.records import TrialRow
from raydr.signals import signals_deferred
from raydr.tune.composition import SweepBudget
from raydr.tune.folder import SweepWork, TableWork
from raydr.tune.ledger import TrialLedger
from raydr.tune.reading import read_stored, stored
from raydr.tune.results import results_of, write_results
from raydr.tune.schema import Sweep
from raydr.tune.search import Search, require_packages_of, search_of
from raydr.tune.tables import TableSearch
from raydr.tune.tabulating import require_cells, write_paper_table
from raydr.tune.trackers import Tracker
from raydr.tune.trials import Trial, digest_of_run, row_of, row_of_run


class OutOfTimeError(RaydrError):
    """The time for a sweep was used up. Its folder keeps all ended trials, under an incomplete name."""


def sweep(
    sweep: Sweep,
    *,
    out: Path | None = None,
    address: str | None = None,
    data_dir: Path | None = None,
    listener: Listener = unheard,
    trackers: Sequence[Tracker] = (),
    deadline: float | None = None,
) -> Path:
    """Run a sweep and write its folder.

    Parameters
    ----------
    sweep, out, address, data_dir, listener, trackers
        As for :func:`raydr.sweep`.
    deadline : float, optional
        Time in seconds, by ``time.monotonic()``, at which the sweep is interrupted. It can be resumed.

    Raises
    ------
    OutOfTimeError
        If the deadline came first.
    ScenarioError, OutputError
        If the sweep, a point that is known beforehand, or the output folder cannot be used.
    RunError, DataError
        If the sweep could not be finished. Its folder keeps all ended trials, under an incomplete name.
    """
    require_cells(sweep)
    search = search_of(sweep)  # checks points before a folder is made
    require_packages_of(search)
    _require_portable(sweep)
    target = out or default_folder(sweep.name, datetime.now())
    with incomplete(target, _work_of(sweep)) as folder:
        with unwritable(target):
            (folder / records.SWEEP).write_text(stored(sweep), encoding="utf-8")
        _RunningSweep(
            sweep=sweep,
            search=search,
            work=SweepWork(folder),
            listener=listener,
            trackers=trackers,
            deadline=deadline,
        ).on(address, data_dir)
    return _shown(target.expanduser().absolute(), listener)


def resume(
    folder: Path,
    *,
    address: str | None = None,
    data_dir: Path | None = None,
    listener: Listener = unheard,
    retry_failed: bool = False,
    trackers: Sequence[Tracker] = (),
    deadline: float | None = None,
) -> Path:
    """Resume an interrupted sweep: trials that ended are kept, the others run.

    Raises
    ------
    OutOfTimeError
        If the deadline came first.
    OutputError
        If the folder is not an incomplete sweep folder, or its trials do not match its ``sweep.yaml``.
    """
    folder = folder.expanduser().absolute()
    target = target_of(folder, SweepWork)
    sweep = read_stored(folder / records.SWEEP)
    _require_portable(sweep)
    with taken_up(folder, _work_of(sweep)):
        running = _RunningSweep(
            sweep=sweep,
            search=search_of(sweep),
            work=SweepWork(folder),
            listener=listener,
            trackers=trackers,
            deadline=deadline,
        )
        running.take_up(retry_failed=retry_failed)
        running.on(address, data_dir)
    return _shown(target, listener)


def _require_portable(sweep: Sweep) -> None:
    """Check this process, from which Ray's workers inherit, if the base of the sweep is portable."""
    if (sweep.scenario.get("runtime") or {}).get("portable"):
        require_portable()


def _work_of(sweep: Sweep) -> type[SweepWork]:
    return TableWork if isinstance(sweep.search, TableSearch) else SweepWork


def _shown(folder: Path, listener: Listener) -> Path:
    """Write the page of a complete sweep folder; a failure here loses no result."""
    try:
        with Journal(listener).stage("page"):
            from raydr.report import write_paper_report, write_sweep_report

            write_sweep_report(folder)
            if (folder / records.TABLE).exists():
                write_paper_report(folder)
    except BaseException as error:
        error.add_note(f"The sweep in {folder} is complete. Run `raydr report {folder}` to write its page.")
        raise
    return folder


@dataclass(kw_only=True)
class _RunningSweep:
    """A running sweep: its next trials, and the results of trials that ended."""

    sweep: Sweep
    search: Search
    work: SweepWork
    listener: Listener
    trackers: Sequence[Tracker] = ()
    deadline: float | None = None
    began: float = field(default_factory=time.monotonic)
    _next: int = 0
    _failure: RaydrError | None = None
    _cut: bool = False

    def __post_init__(self) -> None:
        self.keys = self.sweep.keys
        self.ledger = TrialLedger(self.work.folder, self.keys)

    @property
    def total(self) -> int:
        """Total number of trials."""
        every = self.search.count * self.sweep.repeats
        return min(every, self.sweep.max_trials) if self.sweep.max_trials else every

    def take_up(self, *, retry_failed: bool) -> None:
        """Load trials that ended before: ledger rows, and run folders that arrived after the last write."""
        self.ledger = TrialLedger.read(self.work.folder, self.keys)
        if retry_failed:
            self.ledger.rows = {key: row for key, row in self.ledger.rows.items() if row.status != "failed"}
        self.work.clear()
        # In order, because Optuna's proposals depend on earlier results.
        for index in range(self.total):
            trial = self._trial(index)
            if trial is None:
                break
            if isinstance(trial, TrialRow):
                self.ledger.rows[trial.point, trial.repeat] = trial
                continue
            row = self.ledger.rows.get((trial.point.number, trial.repeat))
            run = self.work.run(trial.name)
            if row is not None and row.digest != trial.digest:
                raise OutputError(
                    f"Trial {row.name} in {self.work.folder} has other settings than sweep.yaml has now. Restore"
                    " sweep.yaml, or start a new sweep."
                )
            if row is None and run.exists():
                if digest_of_run(run) != trial.digest:
                    raise OutputError(
                        f"The run in {run} has other settings than sweep.yaml gives trial {trial.name}. Move the folder"
                        " away to run the trial again, or restore sweep.yaml."
                    )
                row = row_of_run(trial, run)
                self.ledger.rows[row.point, row.repeat] = row
            elif row is not None and row.status == "done" and not run.exists():
                raise OutputError(
                    f"Trial {row.name} of {self.work.folder} is done, but its folder {run} is missing. Restore it, or"
                    f" delete {records.TRIALS} to run trials with missing folders again."
                )
        self.ledger.write()

    def on(self, address: str | None, data_dir: Path | None) -> None:
        """Run the remaining trials and write the results."""
        journal = Journal(self.listener)
        data_dir = data_dir.expanduser().absolute() if data_dir is not None else None
        self.budget = SweepBudget.of(self.sweep, self.work.folder, data_dir)
        if len(self.ledger.rows) < self.total:
            if not self.search.learns:
                self.budget.require(self._left(), self._trial_of)
            self._run(journal, address, data_dir)
        if self._failure is not None:
            raise self._failure
        with unwritable(self.work.folder), journal.stage("results"):
            self.ledger.write()
            total = self.budget.total(self._trial_of)
            write_results(self.work.folder, self.ledger.ordered, self.keys, self.sweep.objectives, total)
            if isinstance(self.sweep.search, TableSearch):
                write_paper_table(self.work.folder, self.sweep, self.ledger.ordered)

    def _run(self, journal: Journal, address: str | None, data_dir: Path | None) -> None:
        with journal.stage("starting Ray"), signals_deferred():
            from raydr.actors.cluster import connected
            from raydr.tune.execution import execute, trials_at_once

            connection = connected(address)
        with connection:
            at_once = trials_at_once(self.sweep.trial)
            self.listener(SweepBegan(self.total, len(self.ledger.rows), at_once))
            execute(
                self,
                self.work,
                self.sweep.trial,
                self.sweep.stopping,
                retries=self.sweep.retries,
                data_dir=data_dir,
            )

    @property
    def exhausted(self) -> bool:
        """Whether no further trial starts: all did, the time budget is used up, or the sweep failed."""
        if self._failure is not None:
            return True
        if 0 < self._next < self.total and self._late and not self._cut:
            self._cut = True
            places = (divmod(at, self.sweep.repeats) for at in range(self._next, self.total))
            left = sum(place not in self.ledger.rows for place in places)
            self.listener(IncidentEvent(f"time_budget_s is used up: {left} trials do not start"))
        return self._next >= self.total or self._cut

    @property
    def _late(self) -> bool:
        budget = self.sweep.time_budget_s
        return budget is not None and time.monotonic() - self.began > budget

    def next(self) -> Trial | None:
        """Return the next trial that has not ended, or None if there is none now."""
        while not self.exhausted:
            trial = self._trial(self._next)
            if trial is None:
                return None
            self._next += 1
            if isinstance(trial, TrialRow):
                if (trial.point, trial.repeat) not in self.ledger.rows and self._keep(trial):
                    self.listener(
                        TrialEnded(
                            trial=trial.name,
                            settings="",
                            status="failed",
                            outcome=short(str(trial.error), 300),
                            value=None,
                            seconds=None,
                        )
                    )
            elif (trial.point.number, trial.repeat) not in self.ledger.rows:
                return trial if self._affords(trial) else None
        return None

    def _affords(self, trial: Trial) -> bool:
        """Return whether a trial may run. Proposed points are checked against the budget here, listed ones before."""
        if self.search.learns:
            try:
                self.budget.require([trial], self._trial_of)
            except ScenarioError as error:
                self._cut = True
                self.listener(IncidentEvent(f"No further trial starts: {error}"))
                return False
        try:
            with unwritable(self.work.folder):
                self.budget.start(trial)
        except RaydrError as error:
            self._failure = self._failure or error
            return False
        return True

    def _trial(self, index: int) -> Trial | TrialRow | None:
        """Return the trial at an index, counted by point and then by repeat.

        Return a failed row if a proposed point cannot be run, and None if the point is not known yet.
        """
        number, repeat = divmod(index, self.sweep.repeats)
        point = self.search.point(number, self._measured() if self.search.learns else {})
        if point is None:
            return None
        try:
            return Trial.of(point, repeat)
        except ScenarioError as error:  # only a proposed point: listed ones were checked before
            seed = point.content.get("seed", 0)
            return TrialRow(
                point=number,
                repeat=repeat,
                seed=seed + repeat,
                status="failed",
                error=str(error),
                digest="",
                values=point.values,
            )

    def _measured(self) -> Mapping[int, Mapping[str, float] | None]:
        """Return the means of points of which every repeat ended."""
        ended: dict[int, int] = {}
        for point, _ in self.ledger.rows:
            ended[point] = ended.get(point, 0) + 1
        means = {result.point: result.means for result in results_of(self.ledger.ordered)}
        return {point: means.get(point) for point, count in ended.items() if count == self.sweep.repeats}

    def _left(self) -> Iterator[Trial]:
        """Yield the trials of listed points that have not ended."""
        for index in range(self.total):
            if divmod(index, self.sweep.repeats) not in self.ledger.rows:
                trial = self._trial(index)
                if isinstance(trial, Trial):
                    yield trial

    def _trial_of(self, name: str) -> Trial:
        """Return the trial of a name in ``starts.txt``."""
        point, repeat = name.split("-")
        trial = self._trial(int(point) * self.sweep.repeats + int(repeat))
        if not isinstance(trial, Trial):
            raise OutputError(
                f"{self.work.folder / records.STARTS} has the trial {name}, but {records.SWEEP} does not. Restore both"
                " files as the sweep wrote them."
            )
        return trial

    def require_time(self) -> None:
        """Raise OutOfTimeError after the deadline."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise OutOfTimeError(
                f"The time for {self.sweep.name} is used up: {len(self.ledger.rows)} of {self.total} trials ended."
            )

    def again(self, trial: Trial) -> None:
        """Record the restart of a trial whose process or node was lost."""
        self.budget.start(trial)

    def started(self, trial: Trial) -> None:
        """Report the start of a trial."""
        self.listener(TrialStarted(trial.name, _settings(trial)))

    def ended(self, trial: Trial, report: Mapping[str, Any], seconds: float) -> None:
        """Record the result of a trial and report it."""
        row = self._row(trial, report)
        if not self._keep(row):
            return
        value = row.measures.get(next(iter(self.sweep.objectives)))
        outcome = row.error or (
            f"{next(iter(self.sweep.objectives))} {value:.4g}" if value is not None else row.status
        )
        self.listener(
            TrialEnded(
                trial=trial.name,
                settings=_settings(trial),
                status=row.status,
                outcome=short(outcome, 300),
                value=value,
                seconds=seconds,
            )
        )
        self._track(row)

    def _track(self, row: TrialRow) -> None:
        """Send a row to the trackers; one that fails is dropped, and the sweep continues."""
        for tracker in list(self.trackers):
            try:
                tracker.track(row, self.work.run(row.name))
            except Exception as error:
                self.trackers = [other for other in self.trackers if other is not tracker]
                reason = short(" ".join(str(error).split()), 300)
                self.listener(
                    IncidentEvent(
                        f"{type(tracker).__name__} failed and is switched off ({reason}); the sweep continues"
                    )
                )

    def _keep(self, row: TrialRow) -> bool:
        """Write a row; if this fails, the sweep ends after its running trials."""
        try:
            self.ledger.require_same_data(row)
            self.ledger.add(row)
        except RaydrError as error:
            self._failure = self._failure or error
            return False
        return True

    def _row(self, trial: Trial, report: Mapping[str, Any]) -> TrialRow:
        match report.get("ended"):
            case "done":
                return row_of_run(trial, self.work.run(trial.name))
            case "failed":
                return row_of(trial, "failed", error=str(report["error"]))
        so_far = {"rounds": report.get("round"), "objective": report.get("objective")}
        return row_of(
            trial,
            "stopped",
            measures={name: float(value) for name, value in so_far.items() if value is not None},
        )


def _settings(trial: Trial) -> str:
    """Write a trial's swept values on one line, with the last parts of their keys."""
    settings = (
        f"{key.rpartition('.')[2]} {value if isinstance(value, str) else json.dumps(value)}"
        for key, value in trial.point.values.items()
    )
    return short(", ".join([*settings, f"repeat {trial.repeat}"]), 200)
