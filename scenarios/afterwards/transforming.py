"""Places new rows on the map of a finished run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from raydr.arrays import FloatArray, Int64Array, UInt8Array
from raydr.data import Alike, Harmonized, Layout, Table, blocks_alike, load_alike
from raydr.data.arrow_files import rows_of_parquet
from raydr.data.columns import listing
from raydr.data.loading import ending
from raydr.data.site import files_of
from raydr.errors import DataError, OutputError, RaydrError, ScenarioError, did_you_mean
from raydr.extras import require_packages
from raydr.files import whole
from raydr.journal import Journal, Listener, unheard
from raydr.methods.joining import placed
from raydr.methods.outcome import Placed
from raydr.plain import as_cell
from raydr.privacy.secrets import RootedRun
from raydr.runfolder.manifest import require_unchanged
from raydr.runfolder.model import KEYED, Model, preparation_of, read_model
from raydr.runfolder.reading import read_run
from raydr.runfolder.records import ARRAYS, CARD, ENCODER, MODEL, SCENARIO
from raydr.runfolder.writing import axes
from raydr.scenarios.running.identity import origin_of
from raydr.scenarios.schema.reading import read
from raydr.scenarios.schema.scenario import Scenario
from raydr.statistics.keying import keyed_rows, keyed_scale
from raydr.statistics.preparing import Preparation

_NONE = np.zeros(1, np.int64)
_LOGGER = logging.getLogger(__name__)


def transform(
    folder: Path, data: str | Path, out: Path, *, site: str | None = None, listener: Listener = unheard
) -> Path:
    """Place the rows of files on a run's map, and write where they are; arguments are as for :func:`raydr.transform`.

    Raises
    ------
    ScenarioError
        If the run's method places no new rows.
    DataError
        If a file cannot be used, or has other columns.
    OutputError
        If the folder is no run's, its model is damaged, or the file cannot be written.
    """
    if out.suffix not in (".csv", ".parquet"):
        raise OutputError(
            f"The map of new rows is written as .csv or .parquet, not {out.suffix!r}: name such a file."
        )
    placing, journal, several = placing_of(folder, str(data)), Journal(listener), files_of(data)
    files = [Path(data).expanduser()] if several is None else several
    total = sum(rows_of_parquet(file) for file in files if _in_blocks(file))
    done = 0
    with (
        journal.stage("places"),
        whole(out, "free its place, or name another with --out") as unfinished,
        _Written(unfinished, out.suffix) as written,
    ):
        for file in files:
            for table in placing.blocks(file, site=site):
                written.add(table, placing.found(table), file.stem if several else None)
                done += len(table.rows)
                if total:
                    journal.progress(min(done, total), total)
    return out


def place(folder: Path, table: Table) -> FloatArray:
    """Positions (rows, 2 or 3) on a run's map of the rows of a table that has the run's columns, in their order.

    Of a run that harmonized sites the table says of which site each row is.

    Raises as :func:`transform`.
    """
    return placing_of(folder, table.name).found(table).places


def predict(folder: Path, table: Table) -> Int64Array:
    """Clusters (rows,) of the rows of such a table, by a run whose method makes clusters.

    Raises as :func:`transform`.
    """
    clusters = placing_of(folder, table.name).found(table).clusters
    if clusters is None:
        raise ScenarioError(f"{folder} is a run whose method makes no clusters: new rows have none.")
    return clusters


@dataclass(frozen=True)
class Placing:
    """A run that can place new rows."""

    folder: Path
    scenario: Scenario
    model: Model

    def read(self, data: Path, *, label: str | None = None, site: str | None = None) -> Table:
        """The rows of a file that has the run's columns, by their names; of a ``label`` too, if it has that.

        Of a run that harmonized sites, ``site`` is whose they are, or the column that says so; by default the run's.
        """
        settings = self.scenario.data
        table, others = load_alike(
            data,
            self._alike,
            id_column=settings.id,
            missing=settings.missing,
            matrix=settings.matrix,
            label=label,
            client=self._client_column(site),
        )
        self._say_unknown(data, others)
        return self._of_site(table, data, site)

    def blocks(self, data: Path, *, site: str | None = None) -> Iterator[Table]:
        """The same a part at a time, where the kind of file allows it, so that it need not fit in memory."""
        if not _in_blocks(data):
            yield self.read(data, site=site)
            return
        settings = self.scenario.data
        blocks = blocks_alike(
            data,
            self._alike,
            id_column=settings.id,
            missing=settings.missing,
            client=self._client_column(site),
        )
        for number, (table, others) in enumerate(blocks):
            if not number:
                self._say_unknown(data, others)
            yield self._of_site(table, data, site)

    @property
    def _alike(self) -> Alike:
        """The columns that new rows must have."""
        card = self.model.card
        layout = Layout.of(card.columns, card.words)
        return Alike(f"the data of the run in {self.folder}", layout.columns, card.named, layout)

    def _client_column(self, site: str | None) -> str | None:
        """The column that says of which site a row is, where that matters and ``site`` is not itself one."""
        sites = self.model.card.sites
        if site is not None and not sites:
            raise ScenarioError(
                f"--site {site}: the run in {self.folder} adjusted no site to others (data.harmonize), so it does not"
                " matter of which rows are: leave --site out."
            )
        return None if site in sites or not sites else site or self.scenario.clients.partition.client_column

    def _of_site(self, table: Table, data: Path, site: str | None) -> Table:
        card = self.model.card
        if site is not None and site in card.sites:
            table = replace(table, client_keys=np.zeros(len(table.rows), np.int64), client_names=(site,))
        elif site is not None and table.client_keys is None:
            raise DataError(
                f"--site {site}: that is no site of the run in {self.folder}, which has {listing(card.sites)}, and no"
                f" column of {data}."
            )
        return table

    def _say_unknown(self, data: Path, others: Sequence[str]) -> None:
        unknown = [column for column in others if column not in self.model.card.left_out]
        if unknown:
            _LOGGER.warning(
                "%s: the run had no such columns, which are left aside: %s", data, listing(unknown)
            )

    def prepared(self, table: Table) -> FloatArray:
        """Rows of a table, filled in, harmonized, scaled and keyed as those of the run."""
        if self.sealed is not None:
            run, scale = self.rooted, keyed_scale(self.scenario.data.scale)
            return keyed_rows(table.rows, self.sealed, run.shared, run.name, scale)
        prepared = self.preparation
        return prepared.applied(table.rows, None if prepared.harmonization is None else self._owners(table))

    @property
    def sealed(self) -> UInt8Array | None:
        """What clients scaled by, as they alone can read it; None where there is no isometry key."""
        known = self.model.arrays.get(KEYED)
        return None if known is None else np.asarray(known, np.uint8)

    @property
    def preparation(self) -> Preparation:
        """What clients filled in, harmonized and scaled by."""
        return self._preparation()

    @property
    def common(self) -> Preparation:
        """The same without what each site kept to itself: for one that was not there."""
        return self._preparation(of_sites=False)

    def _preparation(self, of_sites: bool = True) -> Preparation:
        _require_filling(self.folder, self.scenario, self.model)
        data = self.scenario.data
        return preparation_of(self.folder, self.model, data.scale, data.harmonizing, of_sites=of_sites)

    @property
    def keeps_classes(self) -> bool:
        """Whether sites were adjusted to each other with what goes with the label kept."""
        return bool(np.any(self.model.arrays.get("site_classes", _NONE)))

    @property
    def harmonized(self) -> Harmonized | None:
        """How sites were adjusted to each other, for those that were not there."""
        found = read_run(self.folder).data.harmonized
        return None if found is None else replace(found, before={}, after={})

    @property
    def rooted(self) -> RootedRun:
        """The run with its clients' secret, for those who have it."""
        run = read_run(self.folder).environment.run
        return origin_of(self.scenario).named(run)

    def found(self, table: Table) -> Placed:
        """Where the rows of a table lie, once each of them has a place."""
        found = self.found_of(self.prepared(table))
        refuse_nowhere(table, found.places)
        return found

    def found_of(self, rows: FloatArray) -> Placed:
        """The same of rows that are prepared; some may have no place."""
        scenario, model = self.scenario, self.model
        try:
            return placed(scenario.method, model.arrays, rows)
        except RaydrError:
            raise
        # Arrays that lack, or do not fit together; torch's errors are RuntimeErrors.
        except (KeyError, ValueError, IndexError, RuntimeError) as error:
            raise OutputError(
                f"The model in {self.folder / MODEL} is none of method.kind {scenario.method.kind!r}"
                f" ({type(error).__name__}: {error}). Bring back the run folder as the run wrote it, or repeat the run."
            ) from error

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
                f"{table.name} has rows of {listing(strange)}{did_you_mean(strange[0], sites)}. The run adjusted its"
                f" sites to each other (data.harmonize): {listing(sites)}. The adjustment for any other site is"
                " unknown. Leave those rows out, or run again with them."
            )
        return np.array([places.get(name, -1) for name in table.client_names], np.int64)[table.client_keys]


def placing_of(folder: Path, data: str) -> Placing:
    """A run that can place the rows of ``data``; raises as :func:`transform`."""
    if not (folder / SCENARIO).is_file():
        raise OutputError(
            f"{folder} is not a run folder: it has no scenario.yaml. Give the folder that a run wrote."
        )
    require_unchanged(folder, SCENARIO, CARD, ARRAYS, ENCODER)
    scenario = read(folder / SCENARIO)
    reason = scenario.method.unplaceable()
    wanted, placing = scenario.data.harmonize, Placing(folder, scenario, read_model(folder))
    if wanted is not None and wanted.kind != "center" and placing.keeps_classes:
        reason = (
            "sites were adjusted with what goes with the label kept (data.harmonize.keep), and rows to come have no"
            " label yet"
        )
    if reason is not None:
        raise ScenarioError(f"{folder} cannot place the rows of {data}: {reason}.")
    require_packages(scenario)
    return placing


def _require_filling(folder: Path, scenario: Scenario, model: Model) -> None:
    if scenario.data.filling is not None and "fill" not in model.arrays:
        raise OutputError(
            f"The model in {folder / MODEL} lacks what fills missing values in, and data.missing is"
            f" {scenario.data.filling}. Bring back the run folder as the run wrote it, or repeat the run."
        )


def refuse_nowhere(table: Table, places: FloatArray) -> None:
    """Raise DataError where a row of a table has no place."""
    nowhere = np.flatnonzero(~np.isfinite(places).all(axis=1))
    if nowhere.size:
        raise DataError(
            f"{table.name}: {nowhere.size} rows have no place on the map, the first of them {table.ids[nowhere[0]]!s}:"
            " their values are too large to compute with. Correct them, or leave those rows out."
        )


def _in_blocks(file: Path) -> bool:
    """Whether a file can be read a part at a time: one whose columns say what they hold before they are read."""
    return ending(file) == ".parquet"


class _Written:
    """The file of places, written a part at a time."""

    def __init__(self, path: Path, suffix: str) -> None:
        self._path, self._suffix = path, suffix
        self._writer: Any = None
        self._schema: Any = None

    def __enter__(self) -> _Written:
        return self

    def add(self, table: Table, found: Placed, client: str | None) -> None:
        """Write where the rows of a table are, and of which of several files they are."""
        import pyarrow as pa

        whose = {} if client is None else {"client": self._named([client]) * len(table.rows)}
        clusters = {} if found.clusters is None else {"cluster": found.clusters}
        columns = pa.table({"row": self._named(table.ids), **whose, **axes(found.places), **clusters})
        if self._writer is None:
            self._writer, self._schema = self._opened(columns.schema), columns.schema
        if columns.schema != self._schema:
            raise DataError(
                f"{table.name} tells rows apart by {_ids(columns.schema)}, and rows before it are told apart by"
                f" {_ids(self._schema)}, so they cannot stand in one file: give each its own, or ids in all of them."
            )
        self._writer.write_table(columns)

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def _named(self, names: Any) -> Any:
        """Return names of rows or clients as the file holds them."""
        if self._suffix == ".csv" and len(names) and isinstance(names[0], str):
            return [as_cell(name) for name in names]
        return names

    def _opened(self, schema: Any) -> Any:
        if self._suffix == ".csv":
            from pyarrow import csv

            return csv.CSVWriter(self._path, schema)
        from pyarrow import parquet

        return parquet.ParquetWriter(self._path, schema)


def _ids(schema: Any) -> str:
    return "numbers" if str(schema.field("row").type) == "int64" else "text"
