"""Files like another: their columns are found by name, whatever their order, or refused."""

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
from raydr.data.arrow_files import read_parquet_blocks
from raydr.data.columns import Alike, Choice, Columns, Identity, listing
from raydr.data.loading import (
    FILLINGS,
    Missing,
    complete_rows,
    read_file,
    source_of,
    table_of,
)
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
) -> tuple[Table, tuple[str, ...]]:
    """Read the rows of a file that has the columns of another.

    Parameters
    ----------
    path : Path
        A file as :func:`raydr.data.load` reads it; one row is enough.
    alike : Alike
        The columns that it must have.
    id_column : str or None
        The column of row identities, if the file has it; row numbers from 0 where it has not.
    missing : {"error", "drop", "mean", "median"}
        What to do about rows with an empty cell among the features or identities: as :func:`raydr.data.load`. With
        mean and median columns may be absent, which is said, but not all.
    matrix : str or None
        Of an .h5ad file which of its matrices.
    label : str or None
        The column of classes, if they are wanted and the file has it; none are told where some rows lack theirs.
    client : str or None
        The column that says whose a row is, if the file has it.

    Returns
    -------
    table : Table
        The features, in the order of the other file, the identities, the classes, and whose rows they are.
    others : tuple of str
        Columns that are neither.

    Raises
    ------
    DataError
        If a column is not there, or has no name and the other's have; and for all that no table can have.
    """
    choice = _choice(alike, missing, matrix)
    columns = read_file(path, choice)
    there = _named(columns, id_column, label, client)
    if there:
        columns = read_file(path, replace(choice, **there))
    if columns.label is not None and (columns.label.codes < 0).any():
        columns = replace(columns, label=None)
    _say(path, alike, columns)
    for said in strange_words(columns):
        _LOGGER.warning(said)
    kept = complete_rows(columns, missing, remedy=_REMEDY)
    table = table_of(columns, kept, source_of(columns, kept, path), gaps=missing in FILLINGS)
    return table, tuple(columns.unread)


def blocks_alike(
    path: Path, alike: Alike, *, id_column: str | None, missing: Missing, client: str | None = None
) -> Iterator[tuple[Table, tuple[str, ...]]]:
    """The same a block of rows at a time, of a .parquet file, which need not fit in memory.

    Arguments and errors are those of :func:`load_alike`. Identities that are repeated in another block are refused
    after the last one. The tables say nothing of what was read (``source``).
    """
    choice = _choice(alike, missing, None)
    first = next(read_parquet_blocks(path, choice))
    _say(path, alike, first)
    told: set[str] = set()
    seen = _Seen()
    for columns in read_parquet_blocks(path, replace(choice, **_named(first, id_column, None, client))):
        for said in strange_words(columns):
            if said not in told:
                _LOGGER.warning(said)
                told.add(said)
        kept = complete_rows(columns, missing, remedy=_REMEDY)
        if columns.identity is not None:
            seen.add(columns, columns.identity, kept)
        yield table_of(columns, kept, gaps=missing in FILLINGS), tuple(columns.unread)
    seen.refuse_repeated(path.name, id_column)


_REMEDY = "Fill them in, or leave those rows out."


def _choice(alike: Alike, missing: Missing, matrix: str | None) -> Choice:
    return Choice(alike=replace(alike, filled=missing in FILLINGS), layout=alike.layout, matrix=matrix)


def _named(columns: Columns, id_column: str | None, label: str | None, client: str | None) -> dict[str, Any]:
    """Of the columns that are no features those that are there."""
    named = {"id": id_column, "label": label, "client": client}
    return {key: column for key, column in named.items() if column is not None and column in columns.unread}


def _say(path: Path, alike: Alike, columns: Columns) -> None:
    if columns.absent:
        _LOGGER.warning(
            "%s lacks columns of %s, which are filled in as missing values are: %s",
            path,
            alike.what,
            listing(columns.absent),
        )


def strange_words(columns: Columns) -> list[str]:
    """Return a sentence for each column with words that the map does not have, for the owner of the new rows."""
    return [
        f"{columns.name}: the column {column!r} holds {listing(others, 5)}, which the map knows nothing of: such a row"
        f" is none of {listing(columns.words[column], 5)}"
        for column, others in columns.strange.items()
    ]


@dataclass
class _Seen:
    """Identities of the blocks of a file so far: 8 bytes of a number, 16 of a text, and 8 of where it stands."""

    known: list[Int64Array] = field(default_factory=list)
    rows: list[Int64Array] = field(default_factory=list)

    def add(self, columns: Columns, identity: Identity, kept: Int64Array) -> None:
        """Note the rows ``kept`` of a block; raises DataError for texts after numbers, which other rows are told by."""
        found = _digests(identity.values[kept])
        if self.known and found.shape[1] != self.known[0].shape[1]:
            raise DataError(
                f"{columns.name}: ids in column {identity.column!r} are whole numbers in some rows and none in others,"
                f" from {columns.locate(0)} on: store that column as text."
            )
        self.known.append(found)
        self.rows.append(columns.first + kept)

    def refuse_repeated(self, name: str, column: str | None) -> None:
        """Raise DataError where an identity stands on two rows."""
        if not self.known:
            return
        known, rows = np.concatenate(self.known), np.concatenate(self.rows)
        order = np.lexsort(known.T)
        known = known[order]
        repeats = np.flatnonzero((known[1:] == known[:-1]).all(axis=1))
        if repeats.size:
            raise DataError(
                f"{name}: an id in column {column!r} stands on row {rows[order[repeats[0]]]} and again on row"
                f" {rows[order[repeats[0] + 1]]}, where the first is row 0 (repeated ids in all: {repeats.size}). Ids"
                " tell rows apart: make them distinct."
            )


def _digests(ids: NDArray[Any]) -> Int64Array:
    """Identities as numbers, (rows, 1), or texts as what is as good as distinct for each, (rows, 2)."""
    if ids.dtype.kind != "U":
        return np.asarray(ids, np.int64)[:, None]
    joined = b"".join(blake2b(text.encode(), digest_size=16).digest() for text in ids.tolist())
    return np.frombuffer(joined, np.int64).reshape(-1, 2)
