"""Running of one trial on its node, and delivery of its run folder."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from raydr.errors import RaydrError
from raydr.journal import Event, RoundEnded
from raydr.memory import forget_peak_memory
from raydr.scenarios import runner
from raydr.scenarios.running.evaluation import load_libraries
from raydr.scenarios.schema.reading import read
from raydr.tune.folder import Packed, packed

TrialReport = dict[str, float | int | str | None]
"""Report of a trial, by round and at its end."""


def run_trial(
    scenario: str,
    *,
    data_dir: Path | None,
    report: bool,
    by_round: Callable[[TrialReport], None] | None,
    deliver: Callable[[Packed], None],
    within: Path | None = None,
) -> TrialReport:
    """Run a scenario, deliver its run folder, and return how it ended.

    Parameters
    ----------
    scenario : str
        The scenario as JSON.
    data_dir : Path, optional
        Folder of built-in data sets.
    report : bool
        Whether the folder gets a page and a picture.
    by_round : callable, optional
        Called after each round with an objective; an exception from it ends the trial.
    deliver : callable
        Receives the run folder as :func:`raydr.tune.folder.packed` returns it.
    within : Path, optional
        The sweep's temporary folder, which also removes what a killed trial leaves. On machines that do not have it,
        a trial runs in the temporary folder there.

    Returns
    -------
    result : dict
        ``{"ended": "done"}``, or ``{"ended": "failed", "error": ...}``: a failed trial is a result.
    """

    def hear(event: Event) -> None:
        if by_round is not None and isinstance(event, RoundEnded) and event.objective is not None:
            by_round({"round": event.round, "objective": event.objective})

    forget_peak_memory()
    place = Path(tempfile.mkdtemp(prefix="raydr-trial-", dir=within if within and within.is_dir() else None))
    try:
        content = read(json.loads(scenario))
        if content.compare or content.metrics:
            load_libraries()  # not in the first trial's seconds, which are an objective
        run = runner.run(content, out=place / "run", data_dir=data_dir, listener=hear, report=report)
        deliver(packed(run))
    except RaydrError as error:
        return {"ended": "failed", "error": str(error)}
    except Exception as error:  # a bug in raydr: its row records it, and other trials continue
        reason = " ".join(str(error).split())
        return {"ended": "failed", "error": f"an internal error of raydr: {type(error).__name__}: {reason}"}
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return {"ended": "done"}
