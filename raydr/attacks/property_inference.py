"""Property inference: the share of a client's records that belongs to a group, from the posts about them.

This does not need correct estimates of single records, because their errors average out over a client. The
server knows some records and their groups, learns what a post says about the group, and takes the mean over
each client.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from raydr.arrays import Float64Array
from raydr.attacks.contract import GroupShares, NotApplicableError, Side, View, attack
from raydr.attacks.per_record import Posts, per_record
from raydr.attacks.regression import LEAST_ROWS, fitted, predicted

MOST_COLUMNS = 12
"""Maximum number of columns that define groups if records have no class: those with the largest variance."""


@attack("property-inference", "what share of each client's records belongs to a class or lies above the mean")
def property_inference(view: View, side: Side) -> Iterator[GroupShares]:
    """Make one attempt with the most known records: by classes if there are any, otherwise by columns."""
    count = max(side.counts, default=0)
    if count < LEAST_ROWS:
        raise NotApplicableError(f"it needs {LEAST_ROWS} known records.")
    groups = per_record(view)
    values = np.asarray(side.values[:count], np.float64)
    if len(side.classes):
        columns, thresholds, what = None, None, "their classes"
        belongs = side.classes[:count, None] == np.arange(int(side.classes.max()) + 1)
    else:
        columns = np.sort(np.argsort(-values.std(axis=0), kind="stable")[:MOST_COLUMNS])
        thresholds, what = values.mean(axis=0)[columns], "what was posted about them"
        belongs = values[:, columns] > thresholds
    labels = belongs.astype(np.float64)
    shares = np.tile(labels.mean(axis=0), (len(view.sizes), 1))
    read = [posts for posts in groups if _read(view, side, posts, labels, shares)]
    if not read:
        raise NotApplicableError("no clients with the same requests have enough known records.")
    yield GroupShares(
        uses=tuple(dict.fromkeys(kind for posts in read for kind in posts.kinds)),
        knows=f"{count:,} of the records, and {what}",
        variant="classes" if columns is None else "columns above their mean",
        numbers={"known_records": count},
        shares=shares,
        guess=labels.mean(axis=0),
        columns=columns,
        thresholds=thresholds,
    )


def _read(view: View, side: Side, posts: Posts, labels: Float64Array, shares: Float64Array) -> bool:
    """Fill in the shares of the clients of some posts. Return whether enough of their records are known."""
    place = np.full(view.rows, -1)
    place[side.known[: len(labels)]] = np.arange(len(labels))
    known = np.flatnonzero(place[posts.rows] >= 0)
    if len(known) < LEAST_ROWS:
        return False
    posted = posts.values
    found = predicted(fitted(posted[known], labels[place[posts.rows[known]]], side.seed), posted)
    found[known] = labels[place[posts.rows[known]]]
    client = np.searchsorted(view.firsts, posts.rows, side="right") - 1
    for one in np.unique(client):
        shares[one] = np.clip(found[client == one].mean(axis=0), 0.0, 1.0)
    return True
