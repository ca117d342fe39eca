"""Runs one trial where it was placed, and hands its run folder over."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from raydr.errors import RaydrError
from raydr.journal import Event, RoundEnded
from raydr.scenarios import runner
from raydr.scenarios.schema.reading import read
from raydr.tune.folder import Packed, packed

Told = dict[str, float | int | str | None]
"""What a trial tells while it runs and at its end."""


def run_trial(
    scenario: str,
    *,
    data_dir: Path | None,
    report: bool,
    by_round: Callable[[Told], None] | None,
    deliver: Callable[[Packed], None],
) -> Told:
    """Run a scenario, deliver its run folder, and say how it ended.

    Parameters
    ----------
    scenario : str
        As JSON.
    data_dir : Path, optional
        Folder of built-in data sets.
    report : bool
        Whether the folder has a page and a picture.
    by_round : callable, optional
        Told of each round that has an objective; what it raises ends the trial.
    deliver : callable
        Takes the run folder as :func:`raydr.tune.folder.packed`.

    Returns
    -------
    told : dict
        ``{"ended": "done"}``, or ``{"ended": "failed", "error": ...}``: a trial that fails is a result.
    """

    def hear(event: Event) -> None:
        if by_round is not None and isinstance(event, RoundEnded) and event.objective is not None:
            by_round({"round": event.round, "objective": event.objective})

    place = Path(tempfile.mkdtemp(prefix="raydr-trial-"))
    try:
        run = runner.run(
            read(json.loads(scenario)), out=place / "run", data_dir=data_dir, listener=hear, report=report
        )
        deliver(packed(run))
    except RaydrError as error:
        return {"ended": "failed", "error": str(error)}
    except Exception as error:  # of raydr's own: its row says so, and other trials go on
        said = " ".join(str(error).split())
        return {"ended": "failed", "error": f"an error of raydr's own: {type(error).__name__}: {said}"}
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return {"ended": "done"}
