"""A site that joins a finished run by running it again: the map starts from the earlier one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raydr.errors import ScenarioError
from raydr.journal import Listener, unheard
from raydr.runfolder.joined import read_joined
from raydr.scenarios.afterwards.earlier_run import Pending
from raydr.scenarios.afterwards.joining import require_free_name
from raydr.scenarios.afterwards.repetition import require_same_files
from raydr.scenarios.leaving import new_folder, repeatable
from raydr.scenarios.runner import run as run_scenario
from raydr.scenarios.schema.reading import read
from raydr.scenarios.schema.scenario import Scenario


def redraw(
    folder: Path,
    data: Path,
    *,
    site: str | None = None,
    out: Path | None = None,
    address: str | None = None,
    data_dir: Path | None = None,
    listener: Listener = unheard,
) -> Path:
    """Run a scenario again with one more site, in a new run folder; arguments as for :func:`raydr.redraw`.

    Raises
    ------
    ScenarioError
        If the run cannot be repeated, or its method cannot start from an earlier map.
    DataError
        If the file cannot be used, the site's name is taken, or the run's data have changed.
    OutputError
        If the folder is not a complete run folder, or the new one cannot be written.
    RunError
        As :func:`raydr.scenarios.runner.run`.
    """
    folder = folder.expanduser().absolute()
    run, scenario = repeatable(folder)
    reason = scenario.method.why_no_prior()
    if reason is not None:
        raise ScenarioError(
            f"{folder} cannot be redrawn with {data}: {reason}. To place the rows on the map as it is, leave --redraw"
            " out."
        )
    data = data.expanduser().absolute()
    name = (site if site is not None else data.name.partition(".")[0]).strip()
    joined = [other.site for other in read_joined(folder)]
    require_free_name(
        name, run, [other for other in joined if other != name], alike=scenario.clients.join_spellings
    )
    require_same_files(run, scenario)
    return run_scenario(
        with_site(scenario, folder, data, name),
        out=out or new_folder(folder, f"with-{name}"),
        address=address,
        data_dir=data_dir,
        listener=listener,
        earlier=Pending(folder, name, "joined", prior=True),
    )


def with_site(scenario: Scenario, folder: Path, data: Path, name: str) -> Scenario:
    """Return the scenario with one more site and the run folder as the prior."""
    content: dict[str, Any] = scenario.resolved().model_dump(mode="json")
    clients = content["clients"]
    key = "sites" if clients["sites"] else "joined"
    clients[key] = [*clients[key], {"path": str(data), "name": name}]
    return read(content | {"prior": str(folder), "evaluate_every": 0})
