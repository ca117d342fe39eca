"""Six ways to deal rows to clients, from shuffled to one class or one row each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raydr.arrays import Int64Array
from raydr.data.columns import listing
from raydr.data.sampling import apportion, stream
from raydr.errors import DataError, ScenarioError
from raydr.partition.ownership import Partition

MAX_DRAWS = 1000
"""How often `dirichlet` draws anew before it gives up on giving every client its ``min_rows``."""


def iid(rows: int, clients: int, *, seed: int) -> Partition:
    """Deal shuffled rows out in turn: the sizes of ``clients`` differ by at most one row."""
    _check_count(rows, clients)
    owners = np.empty(rows, dtype=np.int64)
    owners[stream(seed, "partition").permutation(rows)] = np.arange(rows) % clients
    return Partition(owners, _numbered(clients))


def dirichlet(labels: Int64Array, clients: int, alpha: float, *, min_rows: int = 1, seed: int) -> Partition:
    """Split every class by proportions from Dirichlet(alpha): skewed labels and sizes (Hsu et al. 2019).

    Each class's rows, shuffled, are split by one draw over the clients, rounded so that all are dealt. A draw
    that leaves a client under ``min_rows`` is discarded whole, and drawn anew up to `MAX_DRAWS` times.

    Parameters
    ----------
    labels : (rows,) int64 array
        Class of each row.
    clients : int
        Number of clients.
    alpha : float
        From 1e-3, nearly every class whole with one client, to 1e6, every client with the same mixture.
    min_rows : int
        Fewest rows of a client; with 0 clients may be empty.
    seed : int
        Seed of the draw.
    """
    if not 1e-3 <= alpha <= 1e6:
        raise ScenarioError(f"clients.partition.alpha is {alpha}; it must lie between 0.001 and 1e6.")
    _check_min_rows(min_rows)
    _check_count(len(labels), clients, min_rows)
    rng = stream(seed, "partition")
    members = _rows_by_class(labels)
    for _ in range(MAX_DRAWS):
        shares = rng.dirichlet(np.full(clients, alpha), size=len(members))
        counts = np.stack(
            [
                apportion(share * len(rows), len(rows), rng)
                for share, rows in zip(shares, members, strict=True)
            ]
        )
        if counts.sum(axis=0).min() >= min_rows:
            break
    else:
        raise DataError(
            f"In {MAX_DRAWS} draws of Dirichlet({alpha:g}) over {len(labels)} rows of {len(members)} classes, some "
            f"of the {clients} clients always had fewer than {min_rows} row{'' if min_rows == 1 else 's'}. Raise "
            f"clients.partition.alpha or data.rows, lower clients.count, or allow empty clients with "
            f"clients.partition.min_rows: 0."
        )
    owners = np.empty(len(labels), dtype=np.int64)
    for rows, dealt in zip(members, counts, strict=True):
        owners[rng.permutation(rows)] = np.repeat(np.arange(clients), dealt)
    return Partition(owners, _numbered(clients))


def shards(labels: Int64Array, clients: int, classes: int, *, seed: int) -> Partition:
    """Give every client shards of exactly ``classes`` classes (after McMahan et al. 2017).

    Every class is cut into shards, ``clients * classes`` in all, as nearly of one size as class sizes permit;
    no client gets two shards of a class. McMahan's cut across class borders, so there a client may see
    fewer or more classes.

    Parameters
    ----------
    labels : (rows,) int64 array
        Class of each row.
    clients : int
        Number of clients.
    classes : int
        From 1 to the number of classes.
    seed : int
        Seed of the draw.
    """
    if classes < 1:
        raise ScenarioError(f"clients.partition.classes is {classes}; every client needs at least 1 class.")
    _check_count(len(labels), clients)
    members = _rows_by_class(labels)
    sizes = np.array([len(rows) for rows in members])
    if classes > len(members):
        raise DataError(
            f"clients.partition.classes asks for {classes} classes at every client, but the rows have only "
            f"{len(members)}."
        )
    if clients * classes < len(members):
        raise DataError(
            f"{clients} clients of {classes} classes hold at most {clients * classes} classes, but the rows have "
            f"{len(members)}, and every row needs a client. Set clients.count to at least "
            f"{-(-len(members) // classes)}, or clients.partition.classes to {-(-len(members) // clients)}."
        )
    most = np.minimum(clients, sizes)
    if most.sum() < clients * classes:
        raise DataError(
            f"{clients} clients of {classes} classes need {clients * classes} shards, but the {len(members)} classes "
            f"can be cut into only {most.sum()}: at most one per row and one per client, and the smallest class has "
            f"{sizes.min()} row(s). Lower clients.count or clients.partition.classes, or raise data.rows."
        )
    rng = stream(seed, "partition")
    owners = np.empty(len(labels), dtype=np.int64)
    open_places = np.full(clients, classes)
    for rows, pieces in zip(members, _shards_per_class(sizes, most, clients * classes), strict=True):
        # Always to the clients with the most places left, ties drawn: places then never differ by more than
        # one, so every class to come finds as many clients with a place as it has shards.
        chosen = np.lexsort((rng.random(clients), -open_places))[:pieces]
        open_places[chosen] -= 1
        owners[rng.permutation(rows)] = chosen[np.arange(len(rows)) % pieces]
    return Partition(owners, _numbered(clients))


def one_class(
    labels: Int64Array, label_names: Sequence[str], *, clients: int | None = None, seed: int
) -> Partition:
    """Give every client one class, or an even part of one when there are a multiple as many clients.

    Parameters
    ----------
    labels : (rows,) int64 array
        Codes into ``label_names``; classes without rows get no client.
    label_names : sequence of str
        Clients are named after their class, "CLASS/0", "CLASS/1" ... when they share it.
    clients : int, optional
        A multiple of the number of classes, by default that number.
    seed : int
        Seed of the draw.
    """
    members = _rows_by_class(labels)
    count = len(members) if clients is None else clients
    _check_count(len(labels), count)
    parts, excess = divmod(count, len(members))
    if excess:
        below = f"{parts * len(members)} or " if parts else ""
        raise DataError(
            f"The kind one-class needs as many clients as there are classes, {len(members)}, or a multiple of it; "
            f"clients.count is {count}. Set it to {below}{(parts + 1) * len(members)}, or leave it out."
        )
    rng = stream(seed, "partition")
    owners = np.empty(len(labels), dtype=np.int64)
    names: list[str] = []
    for position, rows in enumerate(members):
        name = label_names[labels[rows[0]]]
        if len(rows) < parts:
            raise DataError(
                f"The class {name!r} has {len(rows)} row(s), too few for the {parts} clients that "
                f"clients.count {count} gives it; lower clients.count or raise data.rows."
            )
        owners[rng.permutation(rows)] = position * parts + np.arange(len(rows)) % parts
        names += [name] if parts == 1 else [f"{name}/{part}" for part in range(parts)]
    return Partition(owners, tuple(names))


def by_column(
    client_keys: Int64Array, client_names: Sequence[str], *, clients: int | None = None, min_rows: int = 1
) -> Partition:
    """Give every row to the client that its key names: the natural partition; nothing is drawn.

    Parameters
    ----------
    client_keys : (rows,) int64 array
        Codes into ``client_names``.
    client_names : sequence of str
        One per client.
    clients : int, optional
        Checked against the number of names when given.
    min_rows : int
        Fewest rows of a client; with 0 a client that a sub-sample left without rows is kept, empty.
    """
    _check_min_rows(min_rows)
    if clients is not None and clients != len(client_names):
        raise DataError(
            f"clients.count is {clients}, but the client column names {len(client_names)} clients: "
            f"{listing(client_names)}. Leave clients.count out."
        )
    partition = Partition(client_keys, tuple(client_names))
    short = np.flatnonzero(partition.sizes < min_rows)
    if short.size:
        raise DataError(
            f"{short.size} of {partition.count} clients have fewer than {min_rows} "
            f"row{'' if min_rows == 1 else 's'}: {listing([partition.names[client] for client in short])}. "
            f"Raise data.rows, or lower clients.partition.min_rows (0 allows empty clients)."
        )
    return partition


def pointwise(rows: int, *, clients: int | None = None, ids: NDArray[Any] | None = None) -> Partition:
    """Give every row a client of its own, named by its id (its number when ``ids`` is None)."""
    if clients is not None and clients != rows:
        raise DataError(
            f"The kind pointwise has one client per row, {rows} here; clients.count is {clients}. Leave it out, or "
            f"choose the number of rows with data.rows."
        )
    names = range(rows) if ids is None else ids
    return Partition(np.arange(rows, dtype=np.int64), tuple(str(name) for name in names))


def _shards_per_class(sizes: Int64Array, most: Int64Array, total: int) -> Int64Array:
    """Return how many shards to cut each class into: ``total`` in all, from 1 to ``most`` each.

    One at a time to the class whose shards are largest, which evens out the sizes of shards.
    """
    pieces = np.ones_like(sizes)
    for _ in range(total - len(sizes)):
        pieces[np.argmax(np.where(pieces < most, sizes / pieces, -1.0))] += 1
    return pieces


def _rows_by_class(labels: Int64Array) -> list[Int64Array]:
    """Return the row numbers of every class that has rows, ascending, in the order of codes."""
    order = np.argsort(labels, kind="stable")
    _, counts = np.unique(labels, return_counts=True)
    return np.split(order, np.cumsum(counts)[:-1])


def _numbered(clients: int) -> tuple[str, ...]:
    return tuple(f"client-{client}" for client in range(clients))


def _check_count(rows: int, clients: int, min_rows: int = 1) -> None:
    if clients < 1:
        raise ScenarioError(f"clients.count is {clients}; there must be at least 1 client.")
    if rows < 1:
        raise DataError("There are no rows to deal to clients.")
    if clients * min_rows > rows:
        raise DataError(
            f"{rows} rows cannot give {clients} clients at least {min_rows} row{'' if min_rows == 1 else 's'} each; "
            f"lower clients.count to at most {rows // min_rows}, or raise data.rows."
        )


def _check_min_rows(min_rows: int) -> None:
    if min_rows < 0:
        raise ScenarioError(f"clients.partition.min_rows is {min_rows}; it must be 0 or more.")
