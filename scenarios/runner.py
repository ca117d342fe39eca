"""Runs a scenario from its first word to its page: simulate, audit, show."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from raydr.data import Table
from raydr.errors import ScenarioError
from raydr.extras import require_packages
from raydr.journal import Listener, unheard
from raydr.runfolder import records
from raydr.runfolder.making import default_folder, incomplete, taken_up, target_of, unwritable
from raydr.scenarios.afterwards.auditing import audit
from raydr.scenarios.afterwards.showing import shown
from raydr.scenarios.running.checkpoints import Checkpoints
from raydr.scenarios.running.simulation import simulate
from raydr.scenarios.schema.reading import dump, read
from raydr.scenarios.schema.scenario import Scenario


def run(
    scenario: Scenario,
    *,
    out: Path | None = None,
    address: str | None = None,
    data_dir: Path | None = None,
    listener: Listener = unheard,
    report: bool = True,
    table: Table | None = None,
) -> Path:
    """Run a scenario and write its run folder, whole; arguments are as for :func:`raydr.run`.

    Without ``report`` it has neither page nor picture, which ``raydr report`` makes from the rest. A ``table`` is what
    a scenario maps whose ``data.source`` is :data:`raydr.data.IN_MEMORY`: all of it, and nobody can read it again.

    Raises
    ------
    ScenarioError, DataError, OutputError
        If the scenario, its data or its place cannot be used.
    RunError
        If the run started and could not be finished. A folder is left only where it holds a checkpoint or a charged
        release, and then its name says incomplete; or where all is there but the picture or the page, and then it
        does not.
    """
    if table is not None and scenario.audit is not None:
        raise ScenarioError(
            "audit repeats a run from its data, and rows in memory are written down nowhere: leave audit out, or save"
            " the rows to a file and name that in data.path."
        )
    require_packages(scenario)
    target = out or default_folder(scenario.name, datetime.now())
    with incomplete(target, Checkpoints) as folder:
        with unwritable(target):
            (folder / records.SCENARIO).write_text(dump(scenario), encoding="utf-8")
        simulate(folder, scenario, address=address, data_dir=data_dir, listener=listener, table=table)
    whole = target.expanduser().absolute()
    if scenario.audit is not None:
        _audited(whole, data_dir, listener)
    return shown(whole, listener) if report else whole


def resume(
    folder: Path,
    *,
    address: str | None = None,
    data_dir: Path | None = None,
    listener: Listener = unheard,
) -> Path:
    """Go on with an interrupted run from its last checkpoint; the bits are those of a run never interrupted.

    Noisy sums that may lose clients are drawn again, and charged again.

    Arguments are as for :func:`raydr.resume`; what comes back is the run folder, whole.

    Raises
    ------
    OutputError
        If it is not an incomplete run folder.
    RunError
        If its checkpoint cannot be used, or the run fails again.
    """
    folder = folder.expanduser().absolute()
    target = target_of(folder, Checkpoints)
    scenario = read(folder / records.SCENARIO)
    require_packages(scenario)
    with taken_up(folder, Checkpoints):
        simulate(folder, scenario, address=address, data_dir=data_dir, listener=listener)
    if scenario.audit is not None:
        _audited(target, data_dir, listener)
    return shown(target, listener)


def _audited(folder: Path, data_dir: Path | None, listener: Listener) -> None:
    """Attack a run that is whole: what fails here costs no result."""
    try:
        audit(folder, data_dir=data_dir, listener=listener, report=False)
    except BaseException as error:
        error.add_note(f"The run in {folder} is whole: `raydr audit {folder}` attacks it.")
        raise
