"""Run or resume a scenario: simulate, audit, write the report."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from raydr.data import Table
from raydr.deployment.sites import Port
from raydr.errors import ScenarioError
from raydr.extras import require_packages
from raydr.journal import Listener, unheard
from raydr.portable import require_portable
from raydr.runfolder import records
from raydr.runfolder.making import default_folder, incomplete, taken_up, target_of, unwritable
from raydr.scenarios.afterwards.auditing import audit
from raydr.scenarios.afterwards.earlier_run import Pending, compare_with_earlier
from raydr.scenarios.afterwards.showing import load_drawing, shown
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
    earlier: Pending | None = None,
    port: Port | None = None,
) -> Path:
    """Run a scenario and write its complete run folder; arguments as for :func:`raydr.run`.

    Without ``report``, the folder has no report and no picture; ``raydr report`` writes them later. ``table`` has the
    rows of a scenario whose ``data.source`` is :data:`raydr.data.IN_MEMORY`. They are not stored.
    ``port`` reaches the sites of a deployed run. ``earlier`` is the run that this one repeats with one site more or
    less; the folder then has a comparison with it.

    Raises
    ------
    ScenarioError, DataError, OutputError
        If the scenario, its data or its folder cannot be used.
    RunError
        If the run started and failed. A folder remains in two cases. If it has a checkpoint or a charged release, its
        name says incomplete. If only the picture or the report is missing, it has its final name.
    """
    if table is not None and scenario.audit is not None:
        raise ScenarioError(
            "audit repeats a run from its data, but rows in memory are not stored: leave audit out, or save the rows to"
            " a file and name it in data.path."
        )
    require_packages(scenario)
    if scenario.runtime.portable:
        require_portable()
    target = out or default_folder(scenario.name, datetime.now())
    with incomplete(target, Checkpoints) as folder:
        with unwritable(target):
            (folder / records.SCENARIO).write_text(dump(scenario), encoding="utf-8")
            if earlier is not None:
                earlier.keep(folder)
        simulate(
            folder,
            scenario,
            address=address,
            data_dir=data_dir,
            listener=listener,
            table=table,
            ahead=load_drawing if report else None,
            port=port,
        )
        compare_with_earlier(folder)
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
    port: Port | None = None,
) -> Path:
    """Resume an interrupted run from its last checkpoint; the result is that of an uninterrupted run, bit for bit.

    Noisy sums that may lose clients are drawn again, and charged again. Arguments as for :func:`raydr.resume`.

    Returns
    -------
    folder : Path
        The complete run folder.

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
    if scenario.runtime.portable:
        require_portable()
    with taken_up(folder, Checkpoints):
        simulate(
            folder,
            scenario,
            address=address,
            data_dir=data_dir,
            listener=listener,
            ahead=load_drawing,
            port=port,
        )
        compare_with_earlier(folder)
    if scenario.audit is not None:
        _audited(target, data_dir, listener)
    return shown(target, listener)


def _audited(folder: Path, data_dir: Path | None, listener: Listener) -> None:
    """Audit a complete run; a failure here loses no result."""
    try:
        audit(folder, data_dir=data_dir, listener=listener, report=False)
    except BaseException as error:
        error.add_note(f"The run in {folder} is complete: to audit it, run `raydr audit {folder}`.")
        raise
