"""From a table and a scenario's `clients` section to a `Partition`."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from raydr.arrays import Int64Array
from raydr.data.columns import nearest
from raydr.data.table import Table
from raydr.errors import DataError, ScenarioError
from raydr.partition.kinds import by_column, dirichlet, iid, one_class, pointwise, shards
from raydr.partition.ownership import Partition

Kind: TypeAlias = Literal["iid", "dirichlet", "shards", "one-class", "by-column", "pointwise"]

_OPTIONS = {"alpha": ("dirichlet",), "classes": ("shards",), "min_rows": ("dirichlet", "by-column")}
"""The kinds that each option belongs to."""


def assign(
    table: Table,
    kind: Kind,
    *,
    clients: int | None = None,
    seed: int = 0,
    alpha: float | None = None,
    classes: int | None = None,
    min_rows: int | None = None,
) -> Partition:
    """Deal the rows of a table to clients.

    Parameters
    ----------
    table : Table
        Labels are needed by ``dirichlet``, ``shards`` and ``one-class``; client keys by ``by-column``.
    kind : {"iid", "dirichlet", "shards", "one-class", "by-column", "pointwise"}
        See the function of that name.
    clients : int, optional
        Number of clients. Where the data fix it (``one-class``, ``by-column``, ``pointwise``) it may be left
        out, and must agree when it is given.
    seed : int
        Seed of the draw; the stream is independent of the sub-sample's.
    alpha : float, optional
        Concentration, for ``dirichlet`` (default 0.5).
    classes : int, optional
        Classes per client, for ``shards`` (default 2).
    min_rows : int, optional
        Fewest rows of a client, for ``dirichlet`` and ``by-column`` (default 1; 0 allows empty clients).

    Raises
    ------
    ScenarioError
        For an unknown kind, a missing number of clients, and options that are out of range or another kind's.
    DataError
        When the rows, labels or keys of this table cannot be dealt so.

    Examples
    --------
    >>> from raydr.data import load
    >>> assign(load(source="iris"), "one-class").names
    ('setosa', 'versicolor', 'virginica')
    """
    _refuse_foreign_options(kind, {"alpha": alpha, "classes": classes, "min_rows": min_rows})
    rows = len(table.rows)
    least = 1 if min_rows is None else min_rows
    if kind == "by-column":
        return by_column(*_client_keys(table), clients=clients, min_rows=least)
    if kind == "pointwise":
        return pointwise(rows, clients=clients, ids=table.ids)
    if kind == "one-class":
        return one_class(_labels(table, kind), table.label_names, clients=clients, seed=seed)
    if clients is None:
        raise ScenarioError(
            f"clients.partition.kind {kind!r} needs the number of clients: set clients.count."
        )
    if kind == "iid":
        return iid(rows, clients, seed=seed)
    if kind == "dirichlet":
        return dirichlet(
            _labels(table, kind), clients, 0.5 if alpha is None else alpha, min_rows=least, seed=seed
        )
    return shards(_labels(table, kind), clients, 2 if classes is None else classes, seed=seed)


def _labels(table: Table, kind: Kind) -> Int64Array:
    if table.labels is None:
        raise DataError(
            f"clients.partition.kind {kind!r} deals rows by their class, and {table.name} has no labels: name "
            f"their column in data.label, or use the kind iid."
        )
    return table.labels


def _client_keys(table: Table) -> tuple[Int64Array, tuple[str, ...]]:
    if table.client_keys is None:
        raise DataError(
            f"clients.partition.kind 'by-column' deals rows by a column, and no client column of {table.name} was "
            f"read: name it in clients.partition.column."
        )
    return table.client_keys, table.client_names


def _refuse_foreign_options(kind: str, options: dict[str, float | None]) -> None:
    kinds = get_args(Kind)
    if kind not in kinds:
        raise ScenarioError(
            f"clients.partition.kind {kind!r} does not exist{nearest(kind, kinds)}. It must be one of "
            f"{', '.join(kinds)}."
        )
    for option, value in options.items():
        if value is not None and kind not in _OPTIONS[option]:
            raise ScenarioError(
                f"clients.partition.{option} is no option of the kind {kind!r}; it belongs to "
                f"{' and '.join(_OPTIONS[option])}. Leave it out."
            )
