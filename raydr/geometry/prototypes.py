"""Prototypes: means of groups of a client's rows, each with a minimum number of rows (micro-aggregation).

A few thousand of them show the server the shape of all clients' data, which is enough to start an encoder
well. No prototype is a record.
"""

from __future__ import annotations

import numpy as np

from raydr.arrays import Float32Array, FloatArray, Int64Array


def prototype_count(rows: int, least: int) -> int:
    """Return the number of prototypes of ``rows`` rows, if groups are halved while each half has ``least`` rows."""
    if rows < 2 * least:
        return int(rows >= least)
    return prototype_count(rows // 2, least) + prototype_count(rows - rows // 2, least)


def groups(rows: FloatArray, least: int, *, most: bool = False) -> list[Int64Array]:
    """Return disjoint groups of ``least`` to ``2 * least - 1`` rows of (rows, features), by number.

    No group has fewer.

    Groups are halved at the median along the line between two far rows: the one farthest from the group's
    mean, and the one farthest from that. With ``most``, they are cut to get the maximum number of groups,
    ``len(rows) // least``.
    """
    whole = []
    pending = [np.arange(len(rows))] if len(rows) >= least else []
    while pending:
        group = pending.pop()
        if len(group) < 2 * least:
            whole.append(group)
            continue
        members = rows[group].astype(np.float64)
        far = members[((members - members.mean(axis=0)) ** 2).sum(axis=1).argmax()]
        farther = members[((members - far) ** 2).sum(axis=1).argmax()]
        order = np.argsort(members @ (farther - far), kind="stable")
        parts = len(group) // least if most else 2
        half = len(group) * (parts // 2) // parts
        pending += [group[order[half:]], group[order[:half]]]
    return whole


def prototypes(rows: FloatArray, least: int) -> Float32Array:
    """Return the means of :func:`groups`, (prototypes, features) float32."""
    means = [rows[group].mean(axis=0, dtype=np.float64) for group in groups(rows, least)]
    return np.array(means, np.float32).reshape(len(means), rows.shape[1])
