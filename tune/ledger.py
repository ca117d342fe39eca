"""Ledger of a sweep's ended trials: ``trials.parquet``, rewritten after each trial and read on resume."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raydr.documents import MEGABYTE, require_limited
from raydr.errors import DataError, OutputError
from raydr.files import whole
from raydr.parquet_files import read_parquet
from raydr.runfolder import records
from raydr.runfolder.records import TRIAL_IDENTITY, TrialRow
from raydr.tune.trials import folder_of, measures_in

LARGEST = 1024 * MEGABYTE
TEXT = b"raydr_json"
"""Key of the schema metadata that lists swept columns with JSON values."""


@dataclass
class TrialLedger:
    """Rows of trials by (point, repeat), stored in a file.

    Attributes
    ----------
    folder : Path
        The sweep folder.
    keys : sequence of str
        Swept keys, in the order of the space.
    """

    folder: Path
    keys: Sequence[str]
    rows: dict[tuple[int, int], TrialRow] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, keys: Sequence[str]) -> TrialLedger:
        """Read the ledger of a folder, empty if there is no file.

        Raises
        ------
        OutputError
            If the file is damaged, or belongs to another sweep.
        """
        ledger = cls(folder, keys)
        if (folder / records.TRIALS).exists():
            ledger.rows = {(row.point, row.repeat): row for row in _read(folder / records.TRIALS, keys)}
        return ledger

    @property
    def ordered(self) -> list[TrialRow]:
        """Rows by point and repeat."""
        return [self.rows[key] for key in sorted(self.rows)]

    def require_same_data(self, row: TrialRow) -> None:
        """Raise if a row has other data than an earlier row with the same source.

        Raises
        ------
        DataError
            If the data changed; the message names the two trials.
        """
        if row.data is None:
            return
        source = _source(row)
        for other in self.rows.values():
            if other.data is not None and _source(other) == source and other.data != row.data:
                raise DataError(
                    f"The data changed during the sweep: trial {other.name} was made from other content than"
                    f" {row.name}. Restore the data and resume, or start a new sweep."
                )

    def add(self, row: TrialRow) -> None:
        """Add a row and write the file."""
        self.rows[row.point, row.repeat] = row
        self.write()

    def write(self) -> None:
        """Write all rows atomically."""
        write_table(self.folder / records.TRIALS, table_of(self.ordered, self.keys))


def table_of(rows: Sequence[TrialRow], keys: Sequence[str]) -> Any:
    """Return rows as an Arrow table: identity, swept keys, measures."""
    import pyarrow as pa

    columns: dict[str, Any] = {
        "point": pa.array([row.point for row in rows], pa.int64()),
        "repeat": pa.array([row.repeat for row in rows], pa.int64()),
        "seed": pa.array([row.seed for row in rows], pa.int64()),
    }
    for name in TRIAL_IDENTITY[3:]:
        columns[name] = pa.array([getattr(row, name) for row in rows], pa.string())
    columns, text = swept_columns(columns, [row.values for row in rows], keys)
    for name in measures_in(rows):
        columns[name] = pa.array([row.measures.get(name) for row in rows], pa.float64())
    return pa.table(columns).replace_schema_metadata({TEXT: json.dumps(text)})


def swept_columns(
    columns: dict[str, Any], values: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Add a column for each swept key, null if the key does not apply; also return the keys that are stored as JSON."""
    text = []
    for key in keys:
        column, is_text = _column([each.get(key) for each in values], [key in each for each in values])
        columns[records.SETTING + key] = column
        if is_text:
            text.append(key)
    return columns, text


def write_table(path: Path, table: Any) -> None:
    """Write a table atomically."""
    import pyarrow.parquet as pq

    remedy = "free disk space there, or move the folder, and resume the sweep"
    with whole(path, remedy, is_private=path.name in records.PRIVATE) as unfinished:
        pq.write_table(table, unfinished)


def _column(values: Sequence[Any], applies: Sequence[bool]) -> tuple[Any, bool]:
    """Return a column of one plain type, or else of JSON, and whether it is JSON."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if any(given and value is None for given, value in zip(applies, values, strict=True)):
        kinds.add(type(None))  # a null value differs from a missing one
    match kinds:
        case s if not s or s == {str}:
            return pa.array(values, pa.string()), False
        case s if s == {bool}:
            return pa.array(values, pa.bool_()), False
        case s if s == {int} and all(value is None or abs(value) < 2**63 for value in values):
            return pa.array(values, pa.int64()), False
        case s if s in ({float}, {int, float}):
            return pa.array(values, pa.float64()), False
    texts = [json.dumps(value) if given else None for value, given in zip(values, applies, strict=True)]
    return pa.array(texts, pa.string()), True


def _read(path: Path, keys: Sequence[str]) -> Iterable[TrialRow]:
    import pyarrow as pa

    try:
        table = read_parquet(require_limited(path, LARGEST))
        text = set(json.loads((table.schema.metadata or {})[TEXT]))
        found = table.to_pylist()
        swept = [records.SETTING + key for key in keys]
        absent = [name for name in (*TRIAL_IDENTITY, *swept) if name not in table.column_names]
        if absent:
            raise ValueError(f"it lacks the column {absent[0]!r}")
        measures = [name for name in table.column_names if name not in (*TRIAL_IDENTITY, *swept)]
        return [
            TrialRow(
                **{name: row[name] for name in TRIAL_IDENTITY if name != "folder"},
                folder=folder_of(row["point"], row["repeat"], row["status"]),
                values={
                    key: json.loads(row[records.SETTING + key]) if key in text else row[records.SETTING + key]
                    for key in keys
                    if row[records.SETTING + key] is not None
                },
                measures={name: row[name] for name in measures if row[name] is not None},
            )
            for row in found
        ]
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise OutputError(
            f"{path} cannot be read ({' '.join(str(error).split())}). Restore the file as the sweep wrote it, or delete"
            " it: `--resume` then uses the trials' own folders."
        ) from error


def _source(row: TrialRow) -> str:
    """Return the swept values that select the data, as JSON; rows with the same ones must read the same content."""
    return json.dumps(
        {
            key: value
            for key, value in row.values.items()
            if key == "clients" or key.startswith(("data", "clients.partition", "clients.sites"))
        },
        sort_keys=True,
    )
