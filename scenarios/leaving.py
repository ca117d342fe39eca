"""A site that leaves a finished run: the run repeated without it, and what remains of it."""

from __future__ import annotations

import re
from itertools import chain, count
from pathlib import Path, PurePath
from typing import Any

from raydr.data import IN_MEMORY
from raydr.data.survey.columns import listing
from raydr.data.survey.site_names import as_named
from raydr.errors import DataError, ScenarioError, did_you_mean
from raydr.journal import Listener, unheard
from raydr.runfolder import RunFolder, is_sweep, read_run
from raydr.runfolder.joined import read_joined
from raydr.runfolder.making import require_free
from raydr.runfolder.records import SCENARIO
from raydr.scenarios.afterwards.earlier_run import Pending
from raydr.scenarios.afterwards.repetition import require_same_files
from raydr.scenarios.runner import run as run_scenario
from raydr.scenarios.schema.reading import read
from raydr.scenarios.schema.scenario import Scenario


def leave(
    folder: Path,
    site: str,
    *,
    out: Path | None = None,
    address: str | None = None,
    data_dir: Path | None = None,
    listener: Listener = unheard,
) -> Path:
    """Repeat a run without a site, in a new run folder; arguments as for :func:`raydr.leave`.

    Raises
    ------
    ScenarioError
        If the site is unknown or the only one, or the run cannot be repeated without it.
    DataError
        If the data have changed.
    OutputError
        If the folder is not a complete run folder, or the new one cannot be written.
    RunError
        As :func:`raydr.scenarios.runner.run`.
    """
    folder = folder.expanduser().absolute()
    run, scenario = repeatable(folder)
    names = list(dict.fromkeys(run.clients))
    name = as_named(site, names) if scenario.clients.join_spellings else site
    _require_leaving(run, name, names)
    shorter = without(scenario, name)
    require_same_files(run, shorter)
    return run_scenario(
        shorter,
        out=out or new_folder(folder, f"without-{name}"),
        address=address,
        data_dir=data_dir,
        listener=listener,
        earlier=Pending(folder, name, "left"),
    )


def repeatable(folder: Path) -> tuple[RunFolder, Scenario]:
    """Return a run that can be repeated with other sites, and its scenario."""
    if is_sweep(folder):
        raise ScenarioError(
            f"{folder} is a sweep folder: give the run folder of one trial, in its folder trials."
        )
    run = read_run(folder)
    scenario = read(folder / SCENARIO)
    if scenario.data.source == IN_MEMORY:
        raise ScenarioError(
            f"The run in {folder} mapped rows in memory, which are not stored: fit the estimator again with the rows of"
            " the other sites."
        )
    if scenario.faults.crashes:
        raise ScenarioError(
            f"The run in {folder} has faults.crashes, which names clients by number, and with other sites the numbers"
            " change: repeat it from a scenario without faults.crashes."
        )
    return run, scenario


def without(scenario: Scenario, name: str) -> Scenario:
    """Return the scenario without a site."""
    content: dict[str, Any] = scenario.resolved().model_dump(mode="json")
    clients = content["clients"]
    for key in ("sites", "joined"):
        others = [site for site in clients[key] if name != (site["name"] or PurePath(site["path"]).stem)]
        if len(others) < len(clients[key]):
            clients[key] = others
            break
    else:
        clients["without"] = [*clients["without"], name]
    return read(content | {"prior": None})  # an earlier map has rows of the site


def new_folder(folder: Path, suffix: str) -> Path:
    """Return a free path next to a run folder, with a suffix in its name, and a number from 2 on if it is taken."""
    stem = f"{folder.name}-{re.sub(r'[^A-Za-z0-9._-]+', '-', suffix).strip('-')}"
    candidates = chain([stem], (f"{stem}-{number}" for number in count(2)))
    target = next(folder.with_name(name) for name in candidates if not folder.with_name(name).exists())
    return require_free(target)


def _require_leaving(run: RunFolder, name: str, names: list[str]) -> None:
    """Raise an error unless a site with this name has mapped rows, and others have too."""
    for joined in read_joined(run.path):
        if joined.site == name:
            raise DataError(
                f"{name!r} joined {run.path} later: the map and the model of the run do not depend on its rows, and all"
                f" files about it are in {joined.path}. Delete that folder and run `raydr report {run.path}`."
            )
    if name not in names:
        raise DataError(
            f"{run.path} has no site {name!r}{did_you_mean(name, names)}. Sites: {listing(sorted(names))}."
        )
    if len(names) == 1:
        raise DataError(
            f"{name!r} is the only site of {run.path}: without it there is no map. Delete the run folder instead."
        )
