"""Landmarks that are means of groups of everybody's rows: Lloyd's k-means (1982) by sums.

1. All begin at the mean of all rows: no row is drawn, since P1 lets no client show one.
2. In each round clients add up, by landmark, the rows that are nearest to it; each landmark goes to their mean. In the
   first half of the rounds the heavy ones are split in two until there are as many as are wanted (Linde, Buzo & Gray
   1980); in all of them those that have lost their rows give way to halves of others.
3. In the end those of fewer than ``LEAST_GROUP`` rows are dropped: what is kept of a run holds no row.

Sums do not hide what is alone: where a round leaves a landmark one row, the server learns that row, whosever it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, Int64Array, shaped
from raydr.errors import ScenarioError
from raydr.federation import Client, Federation, Granularity, Range, Rehearsal, Reply, Request, answers
from raydr.geometry.points import row_blocks
from raydr.methods.landmarks.descent import State
from raydr.methods.landmarks.settings import LEAST_GROUP, LandmarkSettings
from raydr.methods.snapshots import keep, kept
from raydr.statistics.moments import Spread
from raydr.statistics.splitting import split

_APART = 0.1
"""How far halves of a landmark go, in deviations of the features."""
_BLOCK_ROWS = 2048


@dataclass(frozen=True)
class GroupSums(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="for each landmark, the number of a client's records nearest to it and their sum, which for"
    " one record is the record itself",
):
    """What a client adds to the groups.

    Attributes
    ----------
    sums : (landmarks, features) float64
        Of its rows that are nearest to a landmark, seen from the centre.
    counts : (landmarks,) int64
        How many these are.
    beside : float
        Sum of their squared distances to it.
    """

    sums: Float64Array
    counts: Int64Array
    beside: float

    @staticmethod
    def ranges(request: GroupRequest, rows: int) -> dict[str, Range]:
        """All rows of the largest client might be in one group."""
        shape, most = request.landmarks.shape, float(request.most_rows)
        largest = np.broadcast_to(most * request.reach * (1.0 + 1e-9), shape)
        farthest = most * 4.0 * float(request.reach @ request.reach) * (1.0 + 1e-9)
        return {
            "sums": Range(shape, largest),
            "counts": Range(shape[:1], most, "int64"),
            "beside": Range((), farthest),
        }


@dataclass(frozen=True)
class GroupRequest(Request[GroupSums], what="the current landmarks, and the range of each feature"):
    """One round; ``landmarks`` (landmarks, features) and rows are seen from ``centre``, no farther than ``reach``."""

    landmarks: Float64Array
    centre: Float64Array
    reach: Float64Array
    most_rows: int


@answers(GroupRequest)
def group_sums(client: Client, request: GroupRequest) -> GroupSums:
    """Client part of a round; of landmarks that are as near, the first."""
    from scipy.sparse import csr_array

    landmarks = request.landmarks
    sums, counts, beside = np.zeros(landmarks.shape), np.zeros(len(landmarks), np.int64), 0.0
    halves = np.einsum("ij,ij->i", landmarks, landmarks) / 2.0
    for start, stop in row_blocks(len(client.rows), _BLOCK_ROWS):
        seen = client.rows[start:stop].astype(np.float64) - request.centre
        likeness = seen @ landmarks.T - halves
        nearest = likeness.argmax(axis=1)
        belongs = csr_array(
            (np.ones(len(seen)), nearest, np.arange(len(seen) + 1)), shape=(len(seen), len(landmarks))
        )
        sums += belongs.T @ seen
        counts += np.bincount(nearest, minlength=len(landmarks))
        beside += float(np.einsum("ij,ij->", seen, seen) - 2.0 * likeness.max(axis=1).sum())
    return GroupSums(sums, counts, max(beside, 0.0))


@dataclass(frozen=True)
class Groups:
    """Landmarks (landmarks, features) float64, each the mean of several rows, and those along the way by round."""

    points: Float64Array
    snapshots: dict[int, Float64Array]


def k_means(federation: Federation, settings: LandmarkSettings, moments: Spread) -> Groups:
    """Landmarks by k-means of all rows.

    Raises
    ------
    ScenarioError
        If fewer than two groups have enough rows.
    """
    wanted = settings.landmark_count(federation.rows, federation.features)
    state: State = {"landmarks": moments.mean[None], "counts": np.array([federation.rows], np.int64)}
    keep(federation, state, "landmarks")
    for number in federation.rounds(settings.steps, state):
        landmarks = split(
            state["landmarks"] - moments.mean,
            state["counts"].astype(np.float64),
            _planned(wanted, settings.steps, number),
            _APART * moments.deviation,
            0.0,
            federation.stream("splits"),
        )
        found = federation.sum(_request(federation, landmarks, moments))
        there = found.counts > 0
        moved = landmarks.copy()
        moved[there] = found.sums[there] / found.counts[there, None]
        state["landmarks"], state["counts"] = moments.mean + moved, found.counts
        keep(federation, state, "landmarks")
        federation.report(
            objective=found.beside / federation.rows, moved=float(((moved - landmarks) ** 2).sum())
        )
    enough = state["counts"] >= LEAST_GROUP
    if enough.sum() < 2:
        raise ScenarioError(
            f"Only {int(enough.sum())} of {len(enough)} k-means groups have {LEAST_GROUP} rows or more,"
            " and at least two are needed. Change method.rounds or method.landmarks, or set"
            " method.landmarks_from: principal."
        )
    return Groups(state["landmarks"][enough], kept(state))


def rehearse_k_means(federation: Rehearsal, settings: LandmarkSettings, moments: Spread) -> Float64Array:
    """Ask what :func:`k_means` asks; what comes back has as many landmarks as there are at most."""
    wanted = settings.landmark_count(federation.rows, federation.features)
    for number in federation.rounds(settings.steps, {}):
        landmarks = shaped((_planned(wanted, settings.steps, number), federation.features))
        federation.sum(_request(federation, landmarks, moments))
        federation.reckon(at_clients=2.0 * federation.rows * landmarks.size)
    return shaped((wanted, federation.features))


def _request(federation: Federation, landmarks: Float64Array, moments: Spread) -> GroupRequest:
    return GroupRequest(landmarks, moments.mean, moments.reach, max(federation.sizes))


def _planned(wanted: int, rounds: int, number: int) -> int:
    """Landmarks in a round, from 1 on: twice as many in each, from two on, all in the second half at the latest.

    >>> [_planned(50, 12, number) for number in range(1, 13)]
    [2, 4, 7, 13, 25, 50, 50, 50, 50, 50, 50, 50]
    """
    doublings = min(math.ceil(math.log2(wanted)) - 1, rounds // 2)
    return -(-wanted >> max(0, doublings - number + 1))
