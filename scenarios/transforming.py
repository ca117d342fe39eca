"""Places new rows on the map of a finished run."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from raydr.arrays import FloatArray, Int64Array
from raydr.data import Alike, Layout, Table, load_alike
from raydr.data.columns import listing, nearest
from raydr.errors import DataError, OutputError, RaydrError, ScenarioError
from raydr.files import whole
from raydr.methods import METHODS, unplaceable
from raydr.privacy.secrets import Origin
from raydr.records import MODEL, SCENARIO
from raydr.report.runfolder import read_run
from raydr.scenarios.folder import axes
from raydr.scenarios.model import KEYED, Model, preparation_of, read_model
from raydr.scenarios.reading import read
from raydr.scenarios.schema import Scenario
from raydr.statistics.keying import keyed_rows, keyed_scale

_NONE = np.zeros(1, np.int64)
_LOGGER = logging.getLogger(__name__)


def transform(folder: Path, data: Path, out: Path, *, site: str | None = None) -> Path:
    """Place the rows of a file on a run's map, and write where they are; arguments are as for :func:`raydr.transform`.

    Raises
    ------
    ScenarioError
        If the run's method places no new rows.
    DataError
        If the file cannot be used, or has other columns.
    OutputError
        If the folder is no run's, its model is damaged, or the file cannot be written.
    """
    if out.suffix not in (".csv", ".parquet"):
        raise OutputError(
            f"The map of new rows is written as .csv or .parquet, not {out.suffix!r}: name such a file."
        )
    placing = _placing(folder, str(data))
    scenario, model = placing.scenario, placing.model
    layout = Layout.of(model.card.columns, model.card.words)
    alike = Alike(f"the data of the run in {folder}", layout.columns, model.card.named, layout)
    if site is not None and not model.card.sites:
        raise ScenarioError(
            f"--site {site}: the run in {folder} adjusted no site to others (data.harmonize), so it does not matter of"
            " which rows are: leave --site out."
        )
    named = site in model.card.sites
    table, others = load_alike(
        data,
        alike,
        id_column=scenario.data.id,
        missing=scenario.data.missing,
        matrix=scenario.data.matrix,
        client=None if named or not model.card.sites else site or scenario.clients.partition.client_column,
    )
    if site is not None and named:
        table = replace(table, client_keys=np.zeros(len(table.rows), np.int64), client_names=(site,))
    elif site is not None and table.client_keys is None:
        raise DataError(
            f"--site {site}: that is no site of the run in {folder}, which has {listing(model.card.sites)}, and no"
            f" column of {data}."
        )
    unknown = [column for column in others if column not in model.card.left_out]
    if unknown:
        _LOGGER.warning("%s: the run had no such columns, which are left aside: %s", data, listing(unknown))
    places = placing.places(table)
    with whole(out, "free its place, or name another with --out") as unfinished:
        _write(unfinished, out.suffix, table, places)
    return out


def place(folder: Path, table: Table) -> FloatArray:
    """Positions (rows, 2 or 3) on a run's map of the rows of a table that has the run's columns, in their order.

    Of a run that harmonized sites the table says of which site each row is.

    Raises as :func:`transform`.
    """
    return _placing(folder, table.name).places(table)


@dataclass(frozen=True)
class _Placing:
    """A run that can place new rows."""

    folder: Path
    scenario: Scenario
    model: Model
    method: Callable[[Any, Mapping[str, FloatArray], FloatArray], FloatArray]

    def places(self, table: Table) -> FloatArray:
        """Where the rows of a table lie, once each of them has a place."""
        scenario, model, rows = self.scenario, self.model, table.rows
        if KEYED in model.arrays:
            rows = _keyed(self.folder, scenario, model, rows)
        else:
            _require_filling(self.folder, scenario, model)
            prepared = preparation_of(self.folder, model, scenario)
            rows = prepared.applied(rows, None if prepared.harmonization is None else self._owners(table))
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                places = self.method(scenario.method, model.arrays, rows)
        except RaydrError:
            raise
        # Arrays that lack, or do not fit together; torch's errors are RuntimeErrors.
        except (KeyError, ValueError, IndexError, RuntimeError) as error:
            raise OutputError(
                f"The model in {self.folder / MODEL} is none of method.kind {scenario.method.kind!r}"
                f" ({type(error).__name__}: {error}). Bring back the run folder as the run wrote it, or repeat the run."
            ) from error
        _refuse_nowhere(table, places)
        return places

    def _owners(self, table: Table) -> Int64Array:
        """Whose the rows of a table are, of a run that adjusted each site's by what is the site's own."""
        sites, places = self.model.card.sites, dict(zip(self.model.card.sites, count(), strict=False))
        if table.client_keys is None:
            raise DataError(
                f"{table.name} does not say of which site its rows are, and the run adjusted sites to each other"
                " (data.harmonize), each by what is its own: name the column, or the site, with --site. Sites are"
                f" {listing(sites)}."
            )
        there = [table.client_names[code] for code in np.unique(table.client_keys)]
        strange = [name for name in there if name not in places]
        if strange:
            raise DataError(
                f"{table.name} has rows of {listing(strange)}{nearest(strange[0], sites)}, and the run adjusted sites"
                f" to each other (data.harmonize), which were {listing(sites)}: how a site is off that was not there,"
                " nobody has measured. Leave those rows out, or run with them."
            )
        return np.array([places.get(name, -1) for name in table.client_names], np.int64)[table.client_keys]


def _placing(folder: Path, data: str) -> _Placing:
    if not (folder / SCENARIO).is_file():
        raise OutputError(
            f"{folder} is not a run folder: it has no scenario.yaml. Give the folder that a run wrote."
        )
    scenario = read(folder / SCENARIO)
    method, reason = METHODS[scenario.method.kind].transform, unplaceable(scenario.method)
    wanted = scenario.data.harmonize
    model = read_model(folder)
    if wanted is not None and wanted.kind != "center" and (model.arrays.get("site_classes", _NONE) > 0).any():
        reason = (
            "sites were adjusted with what goes with the label kept (data.harmonize.keep), and rows to come have no"
            " label yet"
        )
    if method is None or reason is not None:
        raise ScenarioError(f"{folder} cannot place the rows of {data}: {reason}.")
    return _Placing(folder, scenario, model, method)


def _require_filling(folder: Path, scenario: Scenario, model: Model) -> None:
    if scenario.data.filling is not None and "fill" not in model.arrays:
        raise OutputError(
            f"The model in {folder / MODEL} lacks what fills missing values in, and data.missing is"
            f" {scenario.data.filling}. Bring back the run folder as the run wrote it, or repeat the run."
        )


def _keyed(folder: Path, scenario: Scenario, model: Model, rows: FloatArray) -> FloatArray:
    """Rows under the isometry key of a run: for its clients, who have the secret."""
    run = read_run(folder).environment.run
    root = Origin(scenario.resolved().privacy.secret).again(run.partition("-")[0], run).root
    sealed = np.asarray(model.arrays[KEYED], np.uint8)
    return keyed_rows(rows, sealed, root, run, keyed_scale(scenario.data.scale))


def _refuse_nowhere(table: Table, places: FloatArray) -> None:
    nowhere = np.flatnonzero(~np.isfinite(places).all(axis=1))
    if nowhere.size:
        raise DataError(
            f"{table.name}: {nowhere.size} rows have no place on the map, the first of them {table.ids[nowhere[0]]!s}:"
            " their values are too large to compute with. Correct them, or leave those rows out."
        )


def _write(path: Path, suffix: str, table: Table, places: FloatArray) -> None:
    import pyarrow as pa

    columns = pa.table({"row": table.ids, **axes(places)})
    if suffix == ".csv":
        from pyarrow import csv

        csv.write_csv(columns, path)
    else:
        from pyarrow import parquet

        parquet.write_table(columns, path)
