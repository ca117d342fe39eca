"""Reader for a file with the same columns as another. Columns are matched by name, in any order."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import Int64Array
from raydr.data.files.arrow_files import read_parquet_blocks
from raydr.data.loading import (
    FILLINGS,
    Missing,
    complete_rows,
    read_file,
    source_of,
    table_of,
)
from raydr.data.survey.columns import Alike, Choice, Columns, IdColumn, listing
from raydr.data.table import Table
from raydr.errors import DataError

_LOGGER = logging.getLogger(__name__)


def load_alike(
    path: Path,
    alike: Alike,
    *,
    id_column: str | None,
    missing: Missing,
    matrix: str | None = None,
    label: str | None = None,
    client: str | None = None,
    time: str | None = None,
) -> tuple[Table, tuple[str, ...]]:
    """Read a file that has the columns of another file.

    Parameters
    ----------
    path : Path
        A file that :func:`raydr.data.load` can read. One row is enough.
    alike : Alike
        The required columns.
    id_column : str or None
        The column of row identities, if the file has it. Otherwise rows are numbered from 0.
    missing : {"error", "drop", "mean", "median"}
        What to do with rows that have an empty cell among the features or identities: as in
        :func:`raydr.data.load`. With mean and median, some columns can be absent (with a warning), but not
        all.
    matrix : str or None
        The matrix to read from an .h5ad file.
    label : str or None
        The column of classes, if they are wanted and the file has it. If some rows have no class, no classes
        are returned.
    client : str or None
        The column that names the owner of each row, if the file has it.
    time : str or None
        The column that says when a row was taken, if it is wanted and the file has it. If some rows have no time,
        no times are returned.

    Returns
    -------
    table : Table
        The features in the order of the other file, the identities, the classes, the times, and the owners of the
        rows.
    others : tuple of str
        The other columns.

    Raises
    ------
    DataError
        If a column is missing, if the columns have no names but the other file's have, and for any error of a
        table.
    """
    choice = _choice(alike, missing, matrix)
    columns = read_file(path, choice)
    there = _named(columns, id_column, label, client, time)
    if there:
        columns = read_file(path, replace(choice, **there))
    if columns.label is not None and (columns.label.codes < 0).any():
        columns = replace(columns, label=None)
    if columns.time is not None and (columns.time.codes < 0).any():
        columns = replace(columns, time=None)
    _warn_of_absent(path, alike, columns)
    for sentence in (*columns.doubts, *strange_words(columns, alike.names_words)):
        _LOGGER.warning(sentence)
    kept = complete_rows(columns, missing, remedy=_REMEDY)
    table = table_of(columns, kept, source_of(columns, kept, path), gaps=missing in FILLINGS)
    return table, tuple(columns.unread)


def blocks_alike(
    path: Path, alike: Alike, *, id_column: str | None, missing: Missing, client: str | None = None
) -> Iterator[tuple[Table, tuple[str, ...]]]:
    """Read the same table in blocks of rows, from a .parquet file that does not need to fit in memory.

    Arguments and errors are those of :func:`load_alike`. Identities that repeat in another block are refused
    after the last block. The tables have no ``source``.
    """
    choice = _choice(alike, missing, None)
    first = next(read_parquet_blocks(path, choice))
    _warn_of_absent(path, alike, first)
    warned: set[str] = set()
    seen = _Seen()
    for columns in read_parquet_blocks(path, replace(choice, **_named(first, id_column, None, client))):
        for sentence in strange_words(columns, alike.names_words):
            if sentence not in warned:
                _LOGGER.warning(sentence)
                warned.add(sentence)
        kept = complete_rows(columns, missing, remedy=_REMEDY)
        if columns.identity is not None:
            seen.add(columns, columns.identity, kept)
        yield table_of(columns, kept, gaps=missing in FILLINGS), tuple(columns.unread)
    seen.refuse_repeated(path.name, id_column)


_REMEDY = "Fill them in, or drop those rows."


def _choice(alike: Alike, missing: Missing, matrix: str | None) -> Choice:
    return Choice(alike=replace(alike, filled=missing in FILLINGS), layout=alike.layout, matrix=matrix)


def _named(
    columns: Columns, id_column: str | None, label: str | None, client: str | None, time: str | None = None
) -> dict[str, Any]:
    """Return the columns that are not features and that the file has."""
    named = {"id": id_column, "label": label, "client": client, "time": time}
    return {key: column for key, column in named.items() if column is not None and column in columns.unread}


def _warn_of_absent(path: Path, alike: Alike, columns: Columns) -> None:
    if columns.absent:
        _LOGGER.warning(
            "%s does not have all columns of %s. The absent columns are filled in like missing values: %s",
            path,
            alike.what,
            listing(columns.absent),
        )


def strange_words(columns: Columns, names_words: bool) -> list[str]:
    """Return a sentence for each column with words that the map does not have, for the owner of the new rows."""
    return [
        f"{columns.name}: the column {column!r} holds"
        f" {f'{listing(others, 5)}, which' if names_words else 'words that'} the map does not have. Such a"
        f" {_without(columns, column)}"
        for column, others in columns.strange.items()
    ]


def _without(columns: Columns, column: str) -> str:
    """Return what becomes of a cell with an unknown word."""
    if column in columns.words:
        return f"row counts as none of {listing(columns.words[column], 5)}"
    if columns.codings[column].kind == "list":
        return f"word is ignored. Known words: {listing(columns.codings[column].words, 5)}"
    return f"cell counts as missing. Known words: {listing(columns.codings[column].words, 5)}"


@dataclass
class _Seen:
    """Identities of a file's blocks so far: 8 bytes for a number, 16 for a text, and 8 for the row number."""

    known: list[Int64Array] = field(default_factory=list)
    rows: list[Int64Array] = field(default_factory=list)

    def add(self, columns: Columns, identity: IdColumn, kept: Int64Array) -> None:
        """Add the rows ``kept`` of a block.

        Raises DataError if it holds texts after numbers: they cannot be compared.
        """
        found = _digests(identity.values[kept])
        if self.known and found.shape[1] != self.known[0].shape[1]:
            raise DataError(
                f"{columns.name}: the ids in column {identity.column!r} are whole numbers in earlier rows but not from"
                f" {columns.locate(0)} on. Store that column as text."
            )
        self.known.append(found)
        self.rows.append(columns.first + kept)

    def refuse_repeated(self, name: str, column: str | None) -> None:
        """Raise DataError if an identity is on two rows."""
        if not self.known:
            return
        known, rows = np.concatenate(self.known), np.concatenate(self.rows)
        order = np.lexsort(known.T)
        known = known[order]
        repeats = np.flatnonzero((known[1:] == known[:-1]).all(axis=1))
        if repeats.size:
            raise DataError(
                f"{name}: an id in column {column!r} is on row {rows[order[repeats[0]]]} and again on row"
                f" {rows[order[repeats[0] + 1]]} (the first is row 0; repeated ids in all: {repeats.size}). Each row"
                " needs its own id: make them distinct."
            )


def _digests(ids: NDArray[Any]) -> Int64Array:
    """Return numbers as (rows, 1), or hashes of texts as (rows, 2), which are distinct for all practical purposes."""
    if ids.dtype.kind != "U":
        return np.asarray(ids, np.int64)[:, None]
    joined = b"".join(blake2b(text.encode(), digest_size=16).digest() for text in ids.tolist())
    return np.frombuffer(joined, np.int64).reshape(-1, 2)
