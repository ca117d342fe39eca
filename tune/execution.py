"""Execution of trials with Ray Tune: each in a placement group, as many at once as fit.

This is the only module that imports Tune. Tune decides where and when a trial runs and which ones end early. Its stored
state is discarded in favour of the sweep's own ledger: Tune does not restore searchers faithfully, nor paths after a
folder has moved.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import ray
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler, MedianStoppingRule, TrialScheduler
from ray.tune.search import Searcher
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raydr.actors.idle import keep
from raydr.actors.ray_health import LOOK_S, Vitals, dead_parts_named
from raydr.actors.resources import within_room
from raydr.errors import RunError, ScenarioError
from raydr.scenarios.schema.reading import dump_json
from raydr.threads import in_one_thread
from raydr.tune.folder import Packed, SweepWork
from raydr.tune.running import run_trial
from raydr.tune.schema import ASHA, MedianStopping, TrialSettings
from raydr.tune.trials import Trial

_SETTINGS = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # the command handles Ctrl-C
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",  # the last report of a trial has no metric, but how it ended
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
}
_ENDING_S = "30"
"""Seconds for a stopped trial to end its processes before its own process is killed."""
_INTERRUPTION_S = 5.0
"""Seconds that Tune has to end after an interruption. It waits for events for 0.1 s at a time."""


class Trials(Protocol):
    """Source of trials, which is notified of their progress."""

    def next(self) -> Trial | None:
        """Return the next trial to run, or None if there is none now."""

    @property
    def exhausted(self) -> bool:
        """Whether there will be no further trials."""

    def require_time(self) -> None:
        """Raise if all running trials have to end now."""

    def again(self, trial: Trial) -> None:
        """Handle the restart of a trial whose process or node was lost, before it starts."""

    def started(self, trial: Trial) -> None:
        """Handle the start of a trial."""

    def ended(self, trial: Trial, report: Mapping[str, Any], seconds: float) -> None:
        """Handle the end of a trial.

        ``report`` is its last report (see :func:`raydr.tune.running.run_trial`), empty if it was stopped before any.
        """


def trials_at_once(size: TrialSettings) -> int:
    """Return the number of trials of a size that fit the cluster.

    Raises
    ------
    ScenarioError
        If not even one fits. The message has the most that a node offers.
    """
    bundle = {name: amount for part in _bundles(size) for name, amount in part.items()}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = sum(
        min(int(node.get(name, 0.0) / amount + 1e-9) for name, amount in bundle.items()) for node in nodes
    )
    if not room:
        most = {name: max(node.get(name, 0.0) for node in nodes) for name in bundle}
        has = ", ".join(_amount(name, amount) for name, amount in most.items())
        amounts = ", ".join(_amount(name, amount) for name, amount in bundle.items())
        raise ScenarioError(
            f"No node has room for one trial: `trial` asks for {amounts}, but a node has at most {has}. Ask for less in"
            " `trial`, or add a larger node."
        )
    return room


def execute(
    trials: Trials,
    work: SweepWork,
    size: TrialSettings,
    stopping: ASHA | MedianStopping | None,
    *,
    retries: int,
    data_dir: Path | None,
) -> None:
    """Run all trials.

    Parameters
    ----------
    trials : Trials
        Source of the trials.
    work : SweepWork
        The sweep folder on this machine, which receives run folders.
    size : TrialSettings
        Size of each trial's placement group.
    stopping : ASHA or MedianStopping, optional
        Rule by which trials end early.
    retries : int
        Number of restarts of a trial whose process or node is lost.
    data_dir : Path, optional
        Folder of built-in data sets, with the same path on every node.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    desk = _Desk.options(scheduling_strategy=here, max_restarts=-1, max_task_retries=-1).remote(work)
    runs = _Runs(trials, retries)
    cache, before = Path(tempfile.mkdtemp(prefix="raydr-tune-")), set(_groups())
    try:
        with _environment(trials_at_once(size)), dead_parts_named():
            tuner = tune.Tuner(
                tune.with_resources(
                    _trainable(desk, data_dir, size.report, stopping is not None, cache),
                    tune.PlacementGroupFactory(_bundles(size)),
                ),
                tune_config=tune.TuneConfig(
                    search_alg=_SweepSearcher(runs),
                    scheduler=_scheduler(stopping),
                    num_samples=-1,  # no limit: the searcher ends it, and lost trials start again
                    metric="objective" if stopping is not None else None,
                    mode="min" if stopping is not None else None,
                    # In Ray 2.55, a reused process does not report rounds after its first trial was stopped.
                    reuse_actors=stopping is None,
                ),
                run_config=tune.RunConfig(
                    name="sweep",
                    storage_path=str(cache),
                    verbose=0,
                    callbacks=[_Progress(runs)],
                ),
            )
            _watched(tuner.fit, trials.require_time)
    except RunError:  # Ray itself is gone and would not answer
        raise
    except BaseException:
        _end(desk, before)
        raise
    else:
        _end(desk, before)
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def _end(desk: Any, groups_before: set[str]) -> None:
    """Kill the desk actor and remove placement groups that were made since, with everything in them.

    Tune removes its groups itself, unless it was interrupted.
    """
    ray.kill(desk)
    for name, described in _groups().items():
        if name not in groups_before and described["state"] != "REMOVED":
            remove_placement_group(PlacementGroup(ray.PlacementGroupID.from_hex(name)))


def _groups() -> dict[str, Any]:
    return dict(placement_group_table())


class _DeskProcess:
    """Actor on the driver's node that receives run folders from all nodes."""

    def __init__(self, work: SweepWork) -> None:
        self._work = work

    def take(self, name: str, content: Packed) -> None:
        self._work.take(name, content)


_Desk = ray.remote(num_cpus=0)(_DeskProcess)


def _trainable(
    desk: Any, data_dir: Path | None, report: bool, by_round: bool, within: Path
) -> Callable[[dict[str, Any]], None]:
    def trainable(config: dict[str, Any]) -> None:
        os.environ["TUNE_FUNCTION_THREAD_TIMEOUT_S"] = _ENDING_S
        keep()
        with within_room():
            result = in_one_thread(  # Tune calls each trial in a new thread
                lambda: run_trial(
                    config["scenario"],
                    data_dir=data_dir,
                    report=report,
                    by_round=tune.report if by_round else None,
                    deliver=lambda content: ray.get(desk.take.remote(config["trial"], content)),
                    within=within,
                )
            )
        tune.report(result)

    return trainable


@dataclass
class _Runs:
    """Running trials by Tune's names. Tune pickles all that it is given, so this pickles as an empty object.

    Attributes
    ----------
    trials : Trials
        Source of the trials.
    retries : int
        Number of restarts of a trial whose process or node was lost. Tune's own retries lose trials whose reserved
        process is already dead.
    under_way : dict
        Trials with their start time, None before the start.
    again : list of Trial
        Trials to start again.
    lost : dict of trial name to int
        How often each trial was lost.
    """

    trials: Trials
    retries: int
    under_way: dict[str, tuple[Trial, float | None]] = field(default_factory=dict)
    again: list[Trial] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Runs, (None, 0)


class _SweepSearcher(Searcher):  # type: ignore[misc]
    """Searcher that gives Tune the sweep's next trials."""

    def __init__(self, runs: _Runs) -> None:
        super().__init__()
        self._runs = runs

    def suggest(self, trial_id: str) -> Any:
        runs = self._runs
        if runs.again:
            runs.trials.again(runs.again[-1])
        trial = runs.again.pop() if runs.again else runs.trials.next()
        if trial is None:
            return Searcher.FINISHED if runs.trials.exhausted and not runs.under_way else None
        runs.under_way[trial_id] = trial, None
        return {"trial": trial.name, "scenario": dump_json(trial.scenario)}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """Do nothing: see :class:`_Progress`."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the sweep's ledger is the only state."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing."""


class _Progress(tune.Callback):  # type: ignore[misc]
    """Callback that reports each trial to the sweep."""

    def __init__(self, runs: _Runs) -> None:
        self._runs = runs

    def on_trial_start(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        ours, _ = self._runs.under_way[trial.trial_id]
        self._runs.under_way[trial.trial_id] = ours, time.perf_counter()
        self._runs.trials.started(ours)

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self._end(trial, trial.last_result or {})

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        runs = self._runs
        ours, began = runs.under_way[trial.trial_id]
        runs.lost[ours.name] += began is not None  # else its reserved process was already dead
        if runs.lost[ours.name] <= runs.retries:
            del runs.under_way[trial.trial_id]
            runs.again.append(ours)
        else:
            times = f"{runs.lost[ours.name]} time{'s' * (runs.lost[ours.name] > 1)}"
            reason = f"its process or node was lost {times}, usually for lack of memory"
            self._end(
                trial,
                {"ended": "failed", "error": f"{reason}: raise trial.cpus or trial.memory_gib"},
            )

    def _end(self, trial: Any, report: Mapping[str, Any]) -> None:
        ours, began = self._runs.under_way.pop(trial.trial_id)
        self._runs.trials.ended(ours, report, time.perf_counter() - (began or time.perf_counter()))


def _bundles(size: TrialSettings) -> list[dict[str, float]]:
    """Return the bundles of a placement group: one for the trial's process, and one for its actors' GPUs."""
    amounts = {"CPU": float(size.cpus), "memory": (size.memory_gib or 0.0) * 2**30}
    own = {name: amount for name, amount in amounts.items() if amount}
    return [own, {"GPU": size.gpus}] if size.gpus else [own]


def _amount(name: str, amount: float) -> str:
    match name:
        case "CPU":
            return f"{amount:g} cores"
        case "GPU":
            return f"{amount:g} GPUs"
        case _:
            return f"{amount / 2**30:.1f} GiB"


def _scheduler(stopping: ASHA | MedianStopping | None) -> TrialScheduler | None:
    match stopping:
        case ASHA(grace=grace, reduction=reduction):
            return AsyncHyperBandScheduler(
                time_attr="round", grace_period=grace, reduction_factor=reduction, max_t=10**9
            )
        case MedianStopping(grace=grace, least=least):
            return MedianStoppingRule(time_attr="round", grace_period=grace, min_samples_required=least)
        case _:
            return None


def _watched(work: Callable[[], object], require_time: Callable[[], None]) -> None:
    """Call ``work`` in a thread, and raise RunError if a part of Ray ends meanwhile, or what ``require_time`` raises.

    Many requests to Ray's control service never return if it is gone. The thread that waits for one cannot be
    interrupted, and Ray ends this process after 60 s. So this thread only watches.
    """
    errors: list[BaseException] = []
    context = copy_context()

    def body() -> None:
        try:
            context.run(work)
        except BaseException as error:
            errors.append(error)

    thread, vitals = threading.Thread(target=body, name="raydr-tune", daemon=True), Vitals()
    try:
        thread.start()
        while thread.is_alive():
            vitals.look()
            require_time()
            thread.join(LOOK_S)
    except BaseException:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt)
        )
        thread.join(_INTERRUPTION_S)
        raise
    if errors:
        raise errors[0]


@contextmanager
def _environment(at_once: int) -> Iterator[None]:
    """Set Tune's environment variables within a ``with`` block.

    As many trials may be pending as fit. With Tune's default of one, a second process never runs: the first takes the
    pending trial before the process that starts for it is ready.
    """
    settings = {**_SETTINGS, "TUNE_MAX_PENDING_TRIALS_PG": str(at_once)}
    before = {name: os.environ.get(name) for name in settings}
    os.environ |= settings
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
