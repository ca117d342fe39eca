"""Placing of new rows on the map of a finished run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array, UInt8Array
from raydr.data import Alike, Harmonized, Layout, Table, blocks_alike, load_alike
from raydr.data.files.arrow_files import rows_of_parquet
from raydr.data.loading import ending
from raydr.data.site import files_of
from raydr.data.survey.columns import listing
from raydr.data.survey.site_names import as_named
from raydr.errors import DataError, FeatureError, OutputError, RaydrError, ScenarioError, did_you_mean
from raydr.extras import require_packages
from raydr.files import whole
from raydr.geometry.points import row_blocks
from raydr.journal import Journal, Listener, unheard
from raydr.methods.joining import placed
from raydr.methods.novelty import compared
from raydr.methods.outcome import Placed
from raydr.plain import as_cell
from raydr.privacy.secrets import RootedRun
from raydr.privacy.statement import Statement
from raydr.runfolder.manifest import require_unchanged
from raydr.runfolder.maps import FARTHEST
from raydr.runfolder.model import KEYED, Model, preparation_of, read_model
from raydr.runfolder.reading import parsed, read_run
from raydr.runfolder.records import ARRAYS, CARD, ENCODER, MODEL, PRIVACY, SCENARIO
from raydr.runfolder.writing import axes
from raydr.scenarios.afterwards.unlike import Unlike
from raydr.scenarios.running.identity import origin_of
from raydr.scenarios.schema.reading import read
from raydr.scenarios.schema.scenario import Scenario
from raydr.sparse_rows import SparseRows
from raydr.statistics.keying import keyed_metric, keyed_rows
from raydr.statistics.preparing import Preparation

_NONE = np.zeros(1, np.int64)
_VALUES = 1 << 23
"""Values of a sparse table that are made dense at a time: 64 MB in double precision."""
_LOGGER = logging.getLogger(__name__)


def transform(
    folder: Path, data: str | Path, out: Path, *, site: str | None = None, listener: Listener = unheard
) -> Unlike | None:
    """Place the rows of files on a run's map and write their positions; arguments as for :func:`raydr.transform`.

    Returns a summary of the rows' novelty, or None if the run kept nothing to compare with. If the rows are unlike the
    mapped rows, a warning is logged.

    Raises
    ------
    ScenarioError
        If the run's method places no new rows.
    DataError
        If a file cannot be used, or has other columns.
    OutputError
        If the folder is not a run folder, its model is damaged, or the file cannot be written.
    """
    if out.suffix not in (".csv", ".parquet"):
        raise OutputError(f"The file must end in .csv or .parquet, not {out.suffix!r}: change --out.")
    placing, journal, several = placing_of(folder, str(data)), Journal(listener), files_of(data)
    files = [Path(data).expanduser()] if several is None else several
    total = sum(rows_of_parquet(file) for file in files if _in_blocks(file))
    done, unlike = 0, placing.unlike()
    with (
        journal.stage("places"),
        whole(out, "free the disk, or name another file with --out") as unfinished,
        _Written(unfinished, out.suffix) as written,
    ):
        for file in files:
            first = done
            for table in placing.blocks(file, site=site):
                table = placing.without_ids(table, done - first)
                written.add(table, placing.found(table, unlike), file.stem if several else None)
                done += len(table.rows)
                if total:
                    journal.progress(min(done, total), total)
    if unlike is not None:
        unlike.warn(str(data))
    return unlike


def place(folder: Path, table: Table) -> Placed:
    """Return the positions of a table's rows on a run's map, and their novelty.

    The table has the run's columns in order, and the site of each row if the run harmonized sites. Raises as
    :func:`transform`.
    """
    placing = placing_of(folder, table.name)
    unlike = placing.unlike()
    found = placing.found(placing.without_ids(table), unlike)
    if unlike is not None:
        unlike.warn(table.name)
    return found


def predict(folder: Path, table: Table) -> Int64Array:
    """Return the clusters (rows,) of a table's rows, for methods that make clusters. Raises as :func:`transform`."""
    clusters = placing_of(folder, table.name).found(table).clusters
    if clusters is None:
        raise ScenarioError(f"The method of the run in {folder} makes no clusters, so new rows have none.")
    return clusters


@dataclass(frozen=True)
class Placing:
    """A run that can place new rows."""

    folder: Path
    scenario: Scenario
    model: Model

    def read(self, data: Path, *, label: str | None = None, site: str | None = None) -> Table:
        """Read a file with the run's columns, matched by name, and its ``label`` column if it has one.

        For a run that harmonized sites, ``site`` is the site of the rows or the column that names it. Default: the
        run's column.
        """
        settings = self.scenario.data
        table, others = load_alike(
            data,
            self._alike,
            id_column=settings.id,
            missing=self.scenario.missing_values,
            matrix=settings.matrix,
            label=label,
            client=self._client_column(site),
        )
        self._say_unknown(data, others)
        return self._of_site(table, data, site)

    def blocks(self, data: Path, *, site: str | None = None) -> Iterator[Table]:
        """Read the file in parts if its format allows that, so that it need not fit in memory."""
        if not _in_blocks(data):
            yield from _dense_parts(self.read(data, site=site))
            return
        settings = self.scenario.data
        blocks = blocks_alike(
            data,
            self._alike,
            id_column=settings.id,
            missing=self.scenario.missing_values,
            client=self._client_column(site),
        )
        for number, (table, others) in enumerate(blocks):
            if not number:
                self._say_unknown(data, others)
            yield self._of_site(table, data, site)

    @property
    def _alike(self) -> Alike:
        """Columns that new rows must have."""
        card = self.model.card
        layout = Layout.of(card.columns, card.words, card.units, card.codings)
        what, named = f"the run in {self.folder}", self.least_count < 2
        return Alike(what, layout.columns, card.named, layout, names_words=named)

    def _client_column(self, site: str | None) -> str | None:
        """Return the column that names the site of a row; None if it is not needed or ``site`` names a site."""
        sites = self.model.card.sites
        if site is not None and not sites:
            raise ScenarioError(
                f"--site {site} has no effect: the run in {self.folder} did not adjust sites to each other"
                " (data.harmonize). Leave --site out."
            )
        named = site is not None and self.site_named(site) in sites
        return None if named or not sites else site or self.scenario.clients.partition.client_column

    def site_named(self, name: str) -> str:
        """Return the run's site with this name, in any spelling if the run joins them; otherwise the name."""
        return as_named(name, self.model.card.sites) if self.scenario.clients.join_spellings else name

    def _of_site(self, table: Table, data: Path, site: str | None) -> Table:
        card = self.model.card
        if site is not None and self.site_named(site) in card.sites:
            table = replace(table, client_keys=np.zeros(len(table.rows), np.int64), client_names=(site,))
        elif site is not None and table.client_keys is None:
            raise DataError(
                f"--site {site} is neither a site of the run in {self.folder} ({listing(card.sites)}) nor a column of"
                f" {data}: correct the name."
            )
        return table

    def _say_unknown(self, data: Path, others: Sequence[str]) -> None:
        unknown = [column for column in others if column not in self.model.card.left_out]
        if unknown:
            _LOGGER.warning("%s: columns that the run did not have are ignored: %s", data, listing(unknown))

    def prepared(self, table: Table) -> FloatArray:
        """Return the rows of a table, filled in, harmonized, scaled and keyed like those of the run."""
        try:
            if self.sealed is not None:
                run, metric = self.rooted, keyed_metric(self.scenario.data.metric)
                return keyed_rows(table.rows, self.sealed, run.shared, run.name, metric)
            prepared = self.preparation
            return prepared.applied(
                table.rows, None if prepared.harmonization is None else self._owners(table)
            )
        except FeatureError as error:
            raise error.of(self.model.card.columns) from None

    @property
    def sealed(self) -> UInt8Array | None:
        """Encrypted scaling, which only clients can read; None without an isometry key."""
        known = self.model.arrays.get(KEYED)
        return None if known is None else np.asarray(known, np.uint8)

    @property
    def preparation(self) -> Preparation:
        """The clients' filling, harmonizing and scaling."""
        return self._preparation()

    @property
    def common(self) -> Preparation:
        """:attr:`preparation` without the arrays of single sites, for a site that was not in the run."""
        return self._preparation(of_sites=False)

    def _preparation(self, of_sites: bool = True) -> Preparation:
        _require_filling(self.folder, self.scenario, self.model)
        data = self.scenario.data
        return preparation_of(self.folder, self.model, data.metric, data.harmonizing, of_sites=of_sites)

    @property
    def keeps_classes(self) -> bool:
        """Whether sites were adjusted to each other with the effect of the label kept."""
        return bool(np.any(self.model.arrays.get("site_classes", _NONE)))

    @property
    def harmonized(self) -> Harmonized | None:
        """How sites were adjusted to each other, without the run's measurements."""
        found = read_run(self.folder).data.harmonized
        return None if found is None else replace(found, before={}, after={})

    @property
    def rooted(self) -> RootedRun:
        """The run with the secret of its clients."""
        run = read_run(self.folder).environment.run
        return origin_of(self.scenario).named(run)

    def found(self, table: Table, unlike: Unlike | None = None) -> Placed:
        """Place the rows of a table, and add them to a summary; raise DataError if one has no place."""
        prepared = self.prepared(table)
        found = self.found_of(prepared)
        require_positions(table, found.places)
        if unlike is not None and found.novelty is not None:
            unlike.add(self._undone(prepared, table), found.novelty)
        return found

    def unlike(self) -> Unlike | None:
        """Return an empty summary of the novelty of new rows; None if the run kept nothing to compare with."""
        with self._fitting():
            known = compared(self.model.arrays)
        if known is None:
            return None
        mean, above = (
            np.zeros((2, 0)) if known.moments is None else self._undone(known.moments.cumsum(axis=0))
        )
        return Unlike(
            self.model.card.columns[: len(mean)], known.scored, mean, above - mean, least=self.least_count
        )

    @cached_property
    def least_count(self) -> int:
        """Largest ``least_count`` of the policies of the run's sites."""
        if not (self.folder / PRIVACY).is_file():
            return 1
        require_unchanged(self.folder, PRIVACY)
        applied = parsed(self.folder, PRIVACY, Statement).policies
        return max((policy.least_count for policy in applied), default=1)

    def without_ids(self, table: Table, first: int = 0) -> Table:
        """Return a table with numbers from ``first`` in place of values of ``data.id``, if a policy counts records."""
        if self.scenario.data.id is None or self.least_count < 2:
            return table
        return replace(table, ids=np.arange(first, first + len(table.rows)))

    def in_columns(self, table: Table) -> Float64Array:
        """Return the rows of a table (rows, features), NaN where unknown; (rows, 0) if columns cannot be compared."""
        rows = self.common.applied(table.rows) if self._comparable else np.zeros((len(table.rows), 0))
        return self._undone(rows, table)

    def _undone(self, rows: FloatArray, table: Table | None = None) -> Float64Array:
        """Return prepared rows (rows, features) in the units of their columns; (rows, 0) if they cannot be compared.

        What is missing in the table is NaN.
        """
        if not self._comparable:
            return np.zeros((len(rows), 0))
        undone = self.common.scaling.undone(rows)
        if table is not None and table.gaps:
            undone[np.isnan(np.asarray(table.rows))] = np.nan
        return undone

    @property
    def _comparable(self) -> bool:
        """Whether prepared rows are columns in other units."""
        data = self.scenario.data
        as_columns = data.metric == "euclidean" and data.harmonize is None
        return self.sealed is None and as_columns and not self.scenario.method.surveys_columns

    def found_of(self, rows: FloatArray) -> Placed:
        """Place prepared rows; some may have no place."""
        with self._fitting():
            return placed(self.scenario.method, self.model.arrays, rows)

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        """Raise OutputError if the arrays of the model do not fit the method."""
        try:
            yield
        except RaydrError:
            raise
        # Arrays are missing or do not fit together; torch raises RuntimeError.
        except (KeyError, ValueError, IndexError, RuntimeError) as error:
            raise OutputError(
                f"The model in {self.folder / MODEL} does not fit method.kind {self.scenario.method.kind!r}"
                f" ({type(error).__name__}: {error}): restore the run folder as the run wrote it, or repeat the run."
            ) from error

    def _owners(self, table: Table) -> Int64Array:
        """Return the site of each row of a table, for a run that adjusted each site separately."""
        sites, places = self.model.card.sites, dict(zip(self.model.card.sites, count(), strict=False))
        if table.client_keys is None:
            raise DataError(
                f"{table.name} does not name the site of its rows, but the run adjusted each site separately"
                f" (data.harmonize): name a site or a column with --site. Sites: {listing(sites)}."
            )
        names = [self.site_named(name) for name in table.client_names]
        there = [names[code] for code in np.unique(table.client_keys)]
        strange = [name for name in there if name not in places]
        if strange:
            raise DataError(
                f"{table.name} has rows of {listing(strange)}{did_you_mean(strange[0], sites)}. The run adjusted its"
                f" sites to each other (data.harmonize): {listing(sites)}. The adjustment for any other site is"
                " unknown. Leave those rows out, or run again with them."
            )
        return np.array([places.get(name, -1) for name in names], np.int64)[table.client_keys]


def placing_of(folder: Path, data: str) -> Placing:
    """Return a run that can place the rows of ``data``; raises as :func:`transform`."""
    if not (folder / SCENARIO).is_file():
        raise OutputError(f"{folder} is not a run folder: it has no scenario.yaml. Give the folder of a run.")
    require_unchanged(folder, SCENARIO, CARD, ARRAYS, ENCODER)
    scenario = read(folder / SCENARIO)
    reason = scenario.method.why_no_new_rows()
    wanted, placing = scenario.data.harmonize, Placing(folder, scenario, read_model(folder))
    if wanted is not None and wanted.kind != "center" and placing.keeps_classes:
        reason = "it adjusted sites and kept the effect of the label (data.harmonize.keep), but new rows have no label"
    if reason is not None:
        raise ScenarioError(f"{folder} cannot place the rows of {data}: {reason}.")
    require_packages(scenario)
    return placing


def _require_filling(folder: Path, scenario: Scenario, model: Model) -> None:
    if scenario.data.filling is not None and "fill" not in model.arrays:
        raise OutputError(
            f"The model in {folder / MODEL} lacks the values that fill gaps, but data.missing is"
            f" {scenario.data.filling}: restore the run folder as the run wrote it, or repeat the run."
        )


def require_positions(table: Table, places: FloatArray) -> None:
    """Raise DataError if a row of a table has no place."""
    nowhere = np.flatnonzero(~(np.abs(places) <= FARTHEST).all(axis=1))  # so written, NaN is no place either
    if nowhere.size:
        raise DataError(
            f"{table.name}: {nowhere.size} rows have no place on the map, first row {table.ids[nowhere[0]]!s}. Their"
            " values are too large to compute with: correct them, or leave the rows out."
        )


def _dense_parts(table: Table) -> Iterator[Table]:
    """Yield dense tables of some rows each; a dense table as it is."""
    if not isinstance(table.rows, SparseRows):
        yield table
        return
    for start, stop in row_blocks(len(table.rows), max(1, _VALUES // table.rows.columns)):
        yield table.take(np.arange(start, stop)).made_dense("new rows are placed dense")


def _in_blocks(file: Path) -> bool:
    """Return whether a file can be read in parts: its format declares the types of columns."""
    return ending(file) == ".parquet"


class _Written:
    """Writer of the file of positions, in parts."""

    def __init__(self, path: Path, suffix: str) -> None:
        self._path, self._suffix = path, suffix
        self._writer: Any = None
        self._schema: Any = None

    def __enter__(self) -> _Written:
        return self

    def add(self, table: Table, found: Placed, client: str | None) -> None:
        """Write the positions of a table's rows, with the name of their file if there are several."""
        import pyarrow as pa

        clients = {} if client is None else {"client": self._named([client]) * len(table.rows)}
        clusters = {} if found.clusters is None else {"cluster": found.clusters}
        novelty = {} if found.novelty is None else {"novelty": found.novelty}
        columns = pa.table(
            {"row": self._named(table.ids), **clients, **axes(found.places), **clusters, **novelty}
        )
        if self._writer is None:
            self._writer, self._schema = self._opened(columns.schema), columns.schema
        if columns.schema != self._schema:
            raise DataError(
                f"{table.name} identifies rows by {_ids(columns.schema)}, but earlier files by {_ids(self._schema)}:"
                " place each file separately, or add ids to all of them."
            )
        self._writer.write_table(columns)

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def _named(self, names: Any) -> Any:
        """Return names of rows or clients in the form of the file."""
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
