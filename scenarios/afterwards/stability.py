"""Comparison of a run's map with maps with other seeds, and without each site, for which the run is repeated."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.data.provenance import sha256_of_file
from raydr.errors import OutputError, ScenarioError
from raydr.extras import require_packages
from raydr.journal import IncidentEvent, Journal, Listener, unheard
from raydr.metrics import islands
from raydr.metrics import stability as places
from raydr.metrics.stability import LEAST_ROWS, MapStability, OtherMap
from raydr.portable import require_portable
from raydr.report import write_report
from raydr.runfolder import RunFolder, is_sweep, read_run, records
from raydr.runfolder.stability import (
    Comparison,
    Stability,
    StabilityRecord,
    require_writable,
    write_stability,
)
from raydr.scenarios.afterwards.other_maps import geometry_of, other_maps
from raydr.scenarios.afterwards.repetition import data_of_run, require_repeatable
from raydr.scenarios.schema.reading import read
from raydr.scenarios.schema.scenario import Scenario
from raydr.threads import blas_core_types, cores

SEEDS = 4
"""Other seeds by default."""


def stability(
    folder: Path,
    *,
    seeds: int = SEEDS,
    without_sites: bool | None = None,
    data_dir: Path | None = None,
    listener: Listener = unheard,
    report: bool = True,
) -> Path:
    """Repeat the run of a folder, compare the maps, write both files and the report again, and return the folder.

    Parameters
    ----------
    folder : Path
        A complete run folder.
    seeds : int
        Number of other seeds, 0 or more: those that follow the run's seed.
    without_sites : bool or None
        Whether to leave out each site once. Default: if the run has at least 3 sites, and epsilon allows it.
    data_dir : Path, optional
        Folder of built-in data sets.
    listener : callable
        Receives :mod:`raydr.journal` events.
    report : bool
        Whether to write the report again.

    Raises
    ------
    OutputError
        If the folder is not a complete run folder, is from another version, or cannot be written.
    ScenarioError
        If such a run cannot be repeated, there is nothing to compare, or the repetitions would exceed
        ``privacy.epsilon_max``.
    DataError
        If the data have changed.
    RunError
        If a repetition failed. The folder is then unchanged.
    """
    began, clock = datetime.now().astimezone(), time.perf_counter()
    folder, journal = folder.expanduser().absolute(), Journal(listener)
    run = _comparable(folder)
    scenario = read(folder / records.SCENARIO)
    require_repeatable(run, scenario, "compare its maps")
    require_packages(scenario)
    if scenario.runtime.portable:
        require_portable()
    elif lacking := set(blas_core_types()) - set(run.environment.core_types):
        journal.tell(
            IncidentEvent(
                f"this processor ({', '.join(sorted(lacking))}) is of another type than that of the run"
                f" ({', '.join(run.environment.core_types) or 'unknown'}), so places can also change by rounding"
            )
        )
    require_writable(folder)
    client_data = data_of_run(run, scenario, data_dir, journal)
    maps = other_maps(run, scenario, client_data, journal)
    sites, kept = maps.sites(without_sites)
    if not seeds and not sites:
        raise ScenarioError(" ".join(["There is no map to compare with: give --seeds 1 or more.", *kept]))
    maps.require_budget(seeds + len(sites))
    with_seeds = [maps.with_seed(scenario.seed + 1 + number) for number in range(seeds)]
    without = [maps.without(site) for site in sites]
    with journal.stage("comparing maps"):
        found = places.stability(
            geometry_of(scenario.method, run.federated),
            with_seeds,
            without,
            seed=scenario.seed,
            threads=cores(),
        )
        dissolved, sizes = _islands(run, scenario, [*with_seeds, *without])
    verdicts = found.verdicts
    record = StabilityRecord(
        map=sha256_of_file(folder / records.EMBEDDING),
        raydr=version("raydr"),
        started=began.isoformat(timespec="seconds"),
        seconds=round(time.perf_counter() - clock, 4),
        neighbors=places.neighbors_of(len(run.clients)),
        rows=found.rows.size,
        with_seed=int((verdicts == places.WITH_SEED).sum()),
        without_site=int((verdicts == places.WITHOUT_SITE).sum()),
        islands=sizes,
        comparisons=_comparisons(
            found, dissolved, scenario.seed, [client_data.names[site] for site in sites]
        ),
        kept=kept,
        cost=maps.cost(),
    )
    by_row = (
        _of_all(len(run.clients), found.rows, values, other)
        for values, other in ((found.over_seeds, np.nan), (found.over_sites, np.nan), (verdicts, -1))
    )
    over_seeds, over_sites, judged = by_row
    write_stability(folder, Stability(record, over_seeds, over_sites, judged.astype(np.int64)))
    if report:
        write_report(folder)
    return folder


def _comparable(folder: Path) -> RunFolder:
    """Read a run folder with enough rows."""
    if is_sweep(folder):
        raise OutputError(
            f"{folder} is a sweep folder, which has many runs: give the run folder of one trial, in"
            f" {folder / records.TRIAL_FOLDERS}."
        )
    run = read_run(folder)
    if len(run.clients) < LEAST_ROWS:
        raise ScenarioError(
            f"The map in {folder} has {len(run.clients)} rows, and comparing neighbours needs at least {LEAST_ROWS}."
        )
    return run


def _of_all(rows: int, some: Int64Array, values: Float64Array | Int64Array, other: float) -> Float64Array:
    """Return values of ``some`` rows as an array over all rows, with ``other`` for the rest."""
    found = np.full(rows, other, np.float64)
    found[some] = values
    return found


def _islands(
    run: RunFolder, scenario: Scenario, others: Sequence[OtherMap]
) -> tuple[list[tuple[int, ...]], list[int]]:
    """Return the islands of the run's map that dissolve on each other map, and the sizes of all its islands.

    The islands are those of ``metrics.json``, on the same rows. There are no sizes if the map has no islands.
    """
    rows = len(run.clients)
    if rows < islands.LEAST_ROWS or scenario.method.mapped(run.federated) is not None:
        return [()] * len(others), []
    examined = islands.examined_rows(rows, np.random.default_rng((scenario.seed, islands.MOST_ROWS)))
    island = islands.islands_of_map(run.federated[examined])
    sizes: list[int] = np.bincount(island).tolist()
    if len(sizes) < 2:
        return [()] * len(others), []

    def dissolved(other: OtherMap) -> tuple[int, ...]:
        there = np.isin(examined, other.rows)
        return places.dissolved(island, there, other.places[np.searchsorted(other.rows, examined[there])])

    return [dissolved(other) for other in others], sizes


def _comparisons(
    found: MapStability, dissolved: Sequence[tuple[int, ...]], seed: int, sites: Sequence[str]
) -> list[Comparison]:
    """Return the counts for each other map: with other seeds, and then without these sites."""
    seeds = len(found.seeds)
    others: list[tuple[int, str | None]] = [(seed + 1 + number, None) for number in range(seeds)]
    others += [(seed, site) for site in sites]
    comparisons = []
    for (its_seed, site), shares, lost in zip(others, [*found.seeds, *found.sites], dissolved, strict=True):
        changed = shares < places.HALF
        comparisons.append(
            Comparison(
                seed=its_seed,
                without=site,
                rows=int((~np.isnan(shares)).sum()),
                changed=int(changed.sum()),
                stable=int((changed & ~found.changes_with_seed).sum()),
                dissolved=lost,
            )
        )
    return comparisons
