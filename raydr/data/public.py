"""Public rows, set apart before the other rows are dealt to clients."""

from __future__ import annotations

import numpy as np

from raydr.data.sampling import sample_rows, stream
from raydr.data.table import Table
from raydr.errors import DataError


def set_apart(table: Table, mapped: int | None, public: int, seed: int) -> tuple[Table, Table]:
    """Split a table into the clients' rows and public rows that the server has from the start.

    Parameters
    ----------
    table : Table
        All rows.
    mapped : int, optional
        Number of rows of the first part, the same sub-sample that :func:`raydr.data.load` draws. Default: all
        that are left.
    public : int
        Number of rows of the second part, drawn uniformly from the others.
    seed : int
        Seed of both draws.

    Returns
    -------
    table : Table
        The clients' rows, in the table's order.
    public : Table
        The public rows, in random order.

    Raises
    ------
    DataError
        If there are not enough rows.

    Examples
    --------
    >>> from raydr.data import load
    >>> private, public = set_apart(load(source="iris"), 100, 3, seed=0)
    >>> private.rows.shape, public.rows.shape
    ((100, 4), (3, 4))
    """
    count = len(table.rows)
    if mapped is not None and (mapped < 2 or mapped + public > count):
        raise DataError(
            f"data.rows is {mapped} and {public} public rows are set apart, but {table.name} has {count} rows. Set"
            f" data.rows to 2 to {count - public}."
        )
    rng = stream(seed, "public rows")
    if mapped is None:
        drawn = rng.choice(count, size=public, replace=False)
        kept = np.setdiff1d(np.arange(count), drawn)
    else:
        kept = sample_rows(count, mapped, table.labels, seed)
        drawn = rng.choice(np.setdiff1d(np.arange(count), kept), size=public, replace=False)
    return table.take(kept), table.take(drawn)
