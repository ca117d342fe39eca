"""Held-out rows, to be placed on the map after it is drawn."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np

from raydr.arrays import Int64Array
from raydr.data.sampling import sample_rows
from raydr.data.survey.columns import listing
from raydr.data.table import Table
from raydr.errors import DataError, did_you_mean
from raydr.settings import share_of


def hold_out(
    table: Table, wanted: int | float | str, rows: int | None = None, *, seed: int
) -> tuple[Table, Table]:
    """Split a table into rows to map and held-out rows.

    Parameters
    ----------
    table : Table
        All rows.
    wanted : int, float or str
        The number of rows, their share (rounded up), or the mark of the rows to hold out. Draws are
        stratified by class if there are labels, as in :func:`raydr.data.sampling.sample_rows`.
    rows : int, optional
        Total number of mapped and held-out rows. Default: all. Of marked rows, the same share is held out.
    seed : int
        Seed of the draw.

    Returns
    -------
    others : Table
        Rows to map: all that are neither held out nor marked, or fewer if ``rows`` limits them. A client
        whose rows are all marked is not a client of this table.
    held_out : Table
        The held-out rows. Both tables keep the order of the input.

    Raises
    ------
    DataError
        If no row has the mark, there are not enough rows, or fewer than 2 are left to map.

    Examples
    --------
    >>> from raydr.data import load
    >>> others, held_out = hold_out(load(source="iris"), 0.2, seed=0)
    >>> len(others.rows), np.bincount(held_out.labels).tolist()
    (120, [10, 10, 10])
    """
    count = len(table.rows)
    total = count if rows is None else rows
    if not 2 <= total <= count:
        raise DataError(
            f"data.rows is {total}, but {table.name} has {count} rows. Use 3 to {count}, including the held-out"
            " rows."
        )
    candidates = np.arange(count) if not isinstance(wanted, str) else _marked(table, wanted)
    if isinstance(wanted, str):
        # There are no more rows to map than rows without the mark.
        size = max(round(total * len(candidates) / count), total - (count - len(candidates)), 1)
    else:
        size = wanted if isinstance(wanted, int) else ceil(share_of(wanted, total))
    if total - size < 2:
        raise DataError(
            f"data.holdout takes {size} of the {total} rows of {table.name}, but a map needs at least 2. Hold out"
            " fewer rows."
        )
    labels = None if table.labels is None else table.labels[candidates]
    held_out = candidates[sample_rows(len(candidates), size, labels, seed, "holdout")]
    others = np.setdiff1d(np.arange(count), candidates if isinstance(wanted, str) else held_out)
    left = table.take(others)
    return _without_clients_gone(left, table) if isinstance(wanted, str) else left, table.take(held_out)


def _marked(table: Table, mark: str) -> Int64Array:
    """Return the rows with that mark."""
    if table.marks is None:
        raise DataError(
            f"{table.name} was read without a column that marks rows. Name it in data.holdout.column."
        )
    present = [name for code, name in enumerate(table.mark_names) if (table.marks == code).any()]
    if mark not in present:
        raise DataError(
            f"No row of {table.name} has {mark!r} in the column data.holdout.column"
            f"{did_you_mean(mark, present)}. Its values are {listing(present)}."
        )
    return np.flatnonzero(table.marks == table.mark_names.index(mark))


def _without_clients_gone(table: Table, whole: Table) -> Table:
    """Return the table without the clients that have rows in the whole but none here."""
    if table.client_keys is None or whole.client_keys is None:
        return table
    gone = np.setdiff1d(whole.client_keys, table.client_keys)
    stay = np.setdiff1d(np.arange(len(table.client_names)), gone)
    codes = np.searchsorted(stay, table.client_keys).astype(np.int64)
    return replace(table, client_keys=codes, client_names=tuple(table.client_names[code] for code in stay))
