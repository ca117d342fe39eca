"""Adding a site to a finished run: place its rows and extend the run folder. Mapped rows do not move.

The result is in a numbered folder under ``joined/``, complete or absent. The other files of the run do not change,
except for the report, which also shows the site.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

from raydr.arrays import FloatArray
from raydr.data import Layout, Provenance, Table
from raydr.data.provenance import sha256_of_file
from raydr.data.site import gaps_of
from raydr.data.survey.site_names import as_named
from raydr.errors import DataError, OutputError, RaydrError, ScenarioError
from raydr.federation import ClientHost, FaultPlan, HostedClient, InlineTransport, fingerprint
from raydr.federation.client import HostSecrets
from raydr.journal import Journal, Listener, unheard
from raydr.methods.joining import MEMBER, ScaledBy, admit, require_admissible
from raydr.methods.outcome import Placed
from raydr.methods.requests import site_policy
from raydr.methods.serving import Plan
from raydr.privacy.ledger import Ledger
from raydr.privacy.microdata import FEW, merged_labels
from raydr.privacy.policy import SitePolicy
from raydr.privacy.secrets import FOUNDER, client_secret
from raydr.privacy.statement import statement
from raydr.runfolder import records
from raydr.runfolder.joined import MARK, read_joined
from raydr.runfolder.manifest import seal
from raydr.runfolder.model import KEYED
from raydr.runfolder.reading import RunFolder, read_run
from raydr.runfolder.records import Joining
from raydr.runfolder.writing import write_data, write_json, write_placed
from raydr.scenarios.afterwards.showing import shown
from raydr.scenarios.afterwards.transforming import Placing, placing_of, require_positions
from raydr.scenarios.running.federation_plan import plan_of
from raydr.scenarios.running.general_policies import general_policies
from raydr.scenarios.running.withheld import filled_of_many
from raydr.statistics.dissimilarity import CELLS, EUCLIDEAN
from raydr.statistics.preparing import COMMON
from raydr.statistics.steering import STEERING

_PREPARATION = ("shift", "factor", "fill", *COMMON, CELLS, STEERING, KEYED)
"""Arrays of a model that belong to data preparation, not to the method."""


def join(folder: Path, data: Path, *, site: str | None = None, listener: Listener = unheard) -> Path:
    """Add a site to a run and extend its folder; arguments as for :func:`raydr.join`.

    Raises
    ------
    ScenarioError
        If the run's maps take no new rows, or its noise has a unit that the run did not keep.
    DataError
        If the file cannot be used, has other columns, or the site's name is taken.
    OutputError
        If the folder is incomplete or damaged, or cannot be written.
    RunError
        If the site could not answer. The folder is then unchanged.
    """
    began, clock = datetime.now().astimezone(), time.perf_counter()
    folder, journal = folder.expanduser().absolute(), Journal(listener)
    run, joined = read_run(folder), read_joined(folder)
    placing = placing_of(folder, str(data))
    name = (site if site is not None else data.name.partition(".")[0]).strip()
    alike = placing.scenario.clients.join_spellings
    require_free_name(name, run, [other.site for other in joined], alike=alike)
    if placing.keeps_classes:
        raise ScenarioError(
            f"The run in {folder} adjusted sites to each other and kept the effect of the label (data.harmonize.keep)."
            f" New rows may have no label, so the adjustment for the site of {data} is unknown: run again with this"
            " site."
        )
    plan = plan_of(placing.scenario, run.client_count)
    require_admissible(plan)
    with journal.stage("data"):
        table = placing.read(data, label=placing.scenario.data.label)
        table = table.made_dense("a site that joins is placed dense")
    policy = site_policy(general_policies(placing.scenario), name)
    table = _shown(table, placing, policy)
    sealed = placing.sealed
    rooted = None if sealed is None else placing.rooted
    plan = replace(plan, run=run.environment.run if rooted is None else rooted.name)
    hosts = [_host(0, table.rows, plan, policy=policy)]
    if rooted is not None:
        # One of the run's clients gives the shared secret to the site; its rows are not requested.
        hosts.append(
            _host(MEMBER, table.rows[:0], plan, HostSecrets({MEMBER: client_secret(rooted.root, FOUNDER)}))
        )
    model = {key: values for key, values in placing.model.arrays.items() if key not in _PREPARATION}
    prepared = None if sealed is not None else placing.common
    harmonization = None if prepared is None else prepared.harmonization
    scaled_by = ScaledBy(
        None if prepared is None else prepared.scaling,
        sealed,
        None if harmonization is None else harmonization.common,
        EUCLIDEAN if prepared is None else prepared.transformation,
        None if prepared is None else prepared.steering,
        None if prepared is None else prepared.cells,
    )
    try:
        placed, ledger = admit(
            InlineTransport(hosts), plan, model, scaled_by, run.dimensions, journal=journal
        )
    except (KeyError, ValueError, IndexError) as error:
        if isinstance(error, RaydrError):
            raise
        raise OutputError(
            f"The model in {folder / records.MODEL} does not fit method.kind {plan.method!r} ({error!r}): restore the"
            " run folder as the run wrote it, or repeat the run."
        ) from error
    require_positions(table, placed.places)
    unlike = placing.unlike()
    if unlike is not None and placed.novelty is not None:
        unlike.add(placing.in_columns(table), placed.novelty)
        unlike.warn(name)
    joining = Joining(
        site=name,
        map=sha256_of_file(folder / records.EMBEDDING),
        rows=len(table.rows),
        raydr=version("raydr"),
        started=began.isoformat(timespec="seconds"),
        seconds=round(time.perf_counter() - clock, 4),
    )
    with journal.stage("run folder"), _extended(folder) as place:
        _write(place, placing, table, placed, ledger, joining, policy)
    return shown(folder, listener)


def _host(
    client: int,
    rows: FloatArray,
    plan: Plan,
    host_secrets: HostSecrets | None = None,
    policy: SitePolicy | None = None,
) -> ClientHost:
    """Return the host of one client; its secret is drawn unless ``host_secrets`` has one."""
    return ClientHost(
        hosted=[HostedClient(client, rows, fingerprint(rows), policy or SitePolicy())],
        seed=plan.seed,
        faults=FaultPlan(),
        run=plan.run,
        host_secrets=host_secrets,
    )


def _shown(table: Table, placing: Placing, policy: SitePolicy) -> Table:
    """Return a table with the labels and names of rows that the run folder may show by a site's policy."""
    if policy.least_count < 2:
        return table
    if placing.scenario.data.id is not None:
        table = replace(table, ids=np.arange(len(table.rows)))
    if table.labels is None:
        return table
    labels = merged_labels(table.labels, policy.least_count, len(table.label_names))
    return replace(table, labels=labels, label_names=(*table.label_names, FEW))


def require_free_name(name: str, run: RunFolder, joined: list[str], *, alike: bool) -> None:
    """Raise DataError if a site cannot have this name, or, with ``alike``, another spelling of it."""
    if not name:
        raise DataError("The site has no name: give one with --site.")
    name = as_named(name, [*run.clients, *joined]) if alike else name
    if name in run.clients:
        raise DataError(
            f"{run.path} already has a client {name!r} with mapped rows: give the new site another name with --site. To"
            " place more rows of that client, use raydr transform."
        )
    if name in joined:
        raise DataError(
            f"A site {name!r} has already joined {run.path}: give this one another name with --site."
        )


@contextmanager
def _extended(folder: Path) -> Iterator[Path]:
    """Yield a folder to write to, and make it the next joined site; after an error, nothing remains."""
    home = folder / records.JOINED
    unfinished = home / f"{MARK}{secrets.token_hex(4)}"
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        seal(unfinished)
        number = 1 + max((int(entry.name) for entry in home.iterdir() if entry.name.isdecimal()), default=0)
        unfinished.rename(home / str(number))
    except OSError as error:
        if isinstance(error, RaydrError):
            raise
        raise OutputError(
            f"Cannot extend the run folder {folder} ({error.strerror or error}): free space or permissions, or copy the"
            " folder to a place where you can write."
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        with suppress(OSError):
            home.rmdir()  # if it is empty


def _write(
    folder: Path,
    placing: Placing,
    table: Table,
    placed: Placed,
    ledger: Ledger,
    joining: Joining,
    policy: SitePolicy,
) -> None:
    scenario, card = placing.scenario, placing.model.card
    more = {"cluster": placed.clusters, "novelty": placed.novelty}
    more = {column: values for column, values in more.items() if values is not None}
    write_placed(folder / records.EMBEDDING, table, placed.places, {"client": joining.site}, more)
    write_json(folder / records.LEDGER, ledger.as_list())
    write_json(
        folder / records.PRIVACY, asdict(statement(ledger, scenario.privacy.budget, [len(table.rows)]))
    )
    layout = Layout.of(card.columns, card.words, card.units, card.codings)
    filled = layout.by_column(gaps_of(table.rows)) if scenario.data.filling else {}
    data = Provenance(
        columns=card.columns,
        named=card.named,
        scaling=scenario.scaling,
        metric=scenario.data.metric,
        sources=(replace(table.read_from, client=joining.site),),
        mapped=joining.rows,
        filling=scenario.data.filling,
        filled=filled_of_many({joining.site: filled}, [joining.site], [policy]),
        words=dict(card.words),
        units=dict(card.units),
        codings=dict(card.codings),
        harmonized=placing.harmonized,
    )
    write_data(folder, data)
    write_json(folder / records.JOINING, asdict(joining))
