"""Clients that take no part in a run: their rows are dealt and left out, so that all other clients keep theirs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from raydr.arrays import Int64Array
from raydr.data import Table
from raydr.data.loading import refuse_empty
from raydr.data.survey.columns import listing
from raydr.data.survey.site_names import as_named
from raydr.errors import ScenarioError, did_you_mean
from raydr.partition.ownership import Partition
from raydr.sparse_rows import SparseRows


def without(
    table: Table, partition: Partition, names: Sequence[str], *, join_spellings: bool = False
) -> tuple[Table, Partition]:
    """Return the rows of all clients but those with these names, and who holds them.

    Raises
    ------
    ScenarioError
        If a name is unknown, or no client remains.
    DataError
        If all values of a column are those of the clients that are left out.
    """
    left_out = {as_named(name, partition.names) if join_spellings else name for name in names}
    unknown = sorted(left_out - set(partition.names))
    if unknown:
        raise ScenarioError(
            f"clients.without names {unknown[0]!r}, which is no client"
            f"{did_you_mean(unknown[0], partition.names)}. Clients: {listing(partition.names)}."
        )
    stay = np.array([name not in left_out for name in partition.names])
    if not stay.any():
        raise ScenarioError("clients.without names all clients: leave at least one out of it.")
    kept = np.flatnonzero(stay[partition.client_of_row])
    owners = (np.cumsum(stay) - 1).astype(np.int64)[partition.client_of_row[kept]]
    rest = table.take(kept)
    if rest.gaps:
        empty = (
            rest.rows.gaps == len(kept)
            if isinstance(rest.rows, SparseRows)
            else np.isnan(rest.rows).all(axis=0)
        )
        refuse_empty(rest.features, np.asarray(empty), f"{table.name} without {listing(sorted(left_out))}")
    return rest, Partition(owners, tuple(np.array(partition.names)[stay].tolist()))


def of_other_clients(table: Table | None, clients: Collection[str]) -> Table | None:
    """Return the rows of a table that belong to one of these clients; all rows if it does not name their owners."""
    if table is None or table.client_keys is None:
        return table
    staying: Int64Array = np.array([name in clients for name in table.client_names])
    return table.take(np.flatnonzero(staying[table.client_keys]))


def notices_of_public(public: Table | None, names: Collection[str]) -> tuple[str, ...]:
    """Return a notice if rows of the clients with these names are set apart as public rows."""
    if public is None or public.client_keys is None or not names:
        return ()
    of_site = np.array([name in names for name in public.client_names])
    count = int(of_site[public.client_keys].sum())
    if not count:
        return ()
    return (
        f"{count} of the {len(public.rows)} rows set apart as public rows are of clients that take no part"
        " (clients.without). Public rows stay: the server has had them from the start.",
    )
