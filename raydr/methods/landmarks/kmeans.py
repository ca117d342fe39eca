"""Landmarks that are means of groups of all clients' rows: Lloyd's k-means (1982) by sums.

1. All landmarks start at the mean of all rows: no row is drawn, because P1 lets no client reveal one.
2. In each round clients sum, for each landmark, the rows nearest to it, and each landmark moves to their
mean. In the first half of the rounds, heavy landmarks are split in two until the requested number is reached
(Linde, Buzo & Gray 1980). In all rounds, landmarks without rows are replaced by halves of others.
3. At the end, landmarks of fewer than ``LEAST_GROUP`` rows are dropped, so that a run keeps no row.

Sums do not hide single rows: if a round leaves a landmark one row, the server learns that row, whichever
client holds it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, Int64Array, shaped
from raydr.errors import ScenarioError
from raydr.federation import (
    Cells,
    Client,
    Federation,
    Granularity,
    Loop,
    Range,
    Rehearsal,
    Reply,
    Request,
    answers,
)
from raydr.geometry.points import row_blocks
from raydr.methods.landmarks.settings import LEAST_GROUP, LandmarkSettings
from raydr.statistics.moments import Spread
from raydr.statistics.splitting import split

_APART = 0.1
"""Distance of the two halves of a landmark from it, in deviations of the features."""
_BLOCK_ROWS = 2048


@dataclass(frozen=True)
class GroupSums(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="for each landmark, the number of a client's records nearest to it and their sum, which for"
    " one record is the record itself",
):
    """One client's contribution to the groups.

    Attributes
    ----------
    sums : (landmarks, features) float64
        Sums of its rows nearest to each landmark, relative to the centre.
    counts : (landmarks,) int64
        Numbers of these rows.
    squared_distances : float
        Sum of their squared distances to the landmark.
    """

    sums: Float64Array
    counts: Int64Array
    squared_distances: float

    @staticmethod
    def ranges(request: GroupRequest, rows: int) -> dict[str, Range]:
        """Return the range: all rows of the largest client may be in one group."""
        shape, most = request.landmarks.shape, float(request.most_rows)
        largest = np.broadcast_to(most * request.reach * (1.0 + 1e-9), shape)
        farthest = most * 4.0 * float(request.reach @ request.reach) * (1.0 + 1e-9)
        return {
            "sums": Range(shape, largest),
            "counts": Range(shape[:1], most, "int64"),
            "squared_distances": Range((), farthest),
        }

    def cells(self, request: GroupRequest, client: Client) -> tuple[Cells, ...]:
        """Return the number of records in each group."""
        return (Cells(self.counts),)


@dataclass(frozen=True)
class GroupRequest(Request[GroupSums], what="the current landmarks, and the range of each feature"):
    """Request of one round.

    ``landmarks`` (landmarks, features) and rows are relative to ``centre``, within ``reach``.
    """

    landmarks: Float64Array
    centre: Float64Array
    reach: Float64Array
    most_rows: int


@answers(GroupRequest)
def group_sums(client: Client, request: GroupRequest) -> GroupSums:
    """Run the client part of a round; of equally near landmarks, the first counts."""
    from scipy.sparse import csr_array

    landmarks = request.landmarks
    sums, counts, squared_distances = np.zeros(landmarks.shape), np.zeros(len(landmarks), np.int64), 0.0
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
        squared_distances += float(np.einsum("ij,ij->", seen, seen) - 2.0 * likeness.max(axis=1).sum())
    return GroupSums(sums, counts, max(squared_distances, 0.0))


@dataclass(frozen=True)
class Groups:
    """Landmarks (landmarks, features) float64, each the mean of several rows, and those of earlier rounds."""

    points: Float64Array
    snapshots: dict[int, Float64Array]


@dataclass(kw_only=True, frozen=True)
class _Means:
    """Landmarks (landmarks, features) float64, and the number (landmarks,) int64 of rows nearest to each."""

    landmarks: Float64Array
    counts: Int64Array


def k_means(federation: Federation, settings: LandmarkSettings, moments: Spread) -> Groups:
    """Return landmarks by k-means of all rows.

    Raises
    ------
    ScenarioError
        If fewer than two groups have enough rows.
    """
    wanted = settings.landmark_count(federation.rows, federation.features)
    loop = Loop(_Means(landmarks=moments.mean[None], counts=np.array([federation.rows], np.int64)))
    federation.keep(loop, loop.state.landmarks)
    for number in federation.rounds(settings.steps, loop):
        landmarks = split(
            loop.state.landmarks - moments.mean,
            loop.state.counts.astype(np.float64),
            _planned(wanted, settings.steps, number),
            _APART * moments.deviation,
            0.0,
            federation.stream("splits"),
        )
        found = federation.sum(_request(federation, landmarks, moments))
        there = found.counts > 0
        moved = landmarks.copy()
        moved[there] = found.sums[there] / found.counts[there, None]
        loop.state = _Means(landmarks=moments.mean + moved, counts=found.counts)
        federation.keep(loop, loop.state.landmarks)
        federation.report(
            objective=found.squared_distances / federation.rows, moved=float(((moved - landmarks) ** 2).sum())
        )
    enough = loop.state.counts >= LEAST_GROUP
    if enough.sum() < 2:
        raise ScenarioError(
            f"Only {int(enough.sum())} of {len(enough)} k-means groups have {LEAST_GROUP} rows or more,"
            " and at least two are needed. Change method.rounds or method.landmarks, or set"
            " method.landmarks_from: principal."
        )
    return Groups(loop.state.landmarks[enough], loop.snapshots)


def rehearse_k_means(federation: Rehearsal, settings: LandmarkSettings, moments: Spread) -> Float64Array:
    """Ask what :func:`k_means` asks; the result has the largest possible number of landmarks."""
    wanted = settings.landmark_count(federation.rows, federation.features)
    for number in federation.rounds(settings.steps):
        landmarks = shaped((_planned(wanted, settings.steps, number), federation.features))
        federation.sum(_request(federation, landmarks, moments))
        federation.add_operations(at_clients=2.0 * federation.rows * landmarks.size)
    return shaped((wanted, federation.features))


def _request(federation: Federation, landmarks: Float64Array, moments: Spread) -> GroupRequest:
    return GroupRequest(landmarks, moments.mean, moments.reach, max(federation.sizes))


def _planned(wanted: int, rounds: int, number: int) -> int:
    """Return the number of landmarks in a round, from 1 on: it doubles from two, up to all by the second half.

    >>> [_planned(50, 12, number) for number in range(1, 13)]
    [2, 4, 7, 13, 25, 50, 50, 50, 50, 50, 50, 50]
    """
    doublings = min(math.ceil(math.log2(wanted)) - 1, rounds // 2)
    return -(-wanted >> max(0, doublings - number + 1))
