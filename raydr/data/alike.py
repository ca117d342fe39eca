"""Files like another: their columns are found by name, whatever their order, or refused."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from raydr.data.columns import Alike, Choice, listing
from raydr.data.loading import FILLINGS, Missing, complete_rows, read_file, source_of, table_of
from raydr.data.table import Table

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
    alike = replace(alike, filled=missing in FILLINGS)
    choice = Choice(alike=alike, layout=alike.layout, matrix=matrix)
    columns = read_file(path, choice)
    if columns.absent:
        _LOGGER.warning(
            "%s lacks columns of %s, which are filled in as missing values are: %s",
            path,
            alike.what,
            listing(columns.absent),
        )
    named = {"id": id_column, "label": label, "client": client}
    there: dict[str, Any] = {
        key: column for key, column in named.items() if column is not None and column in columns.unread
    }
    if there:
        columns = read_file(path, replace(choice, **there))
    if columns.label is not None and (columns.label.codes < 0).any():
        columns = replace(columns, label=None)
    kept = complete_rows(columns, missing, remedy="Fill them in, or leave those rows out.")
    table = table_of(columns, kept, source_of(columns, kept, path), gaps=missing in FILLINGS)
    return table, tuple(columns.unread)
