"""Novelty of new rows on a private map: a noisy histogram of how far the mapped rows lie from the landmarks.

The score of a row is its distance to the nearest landmark, with what the frame leaves out and what clipping takes away.
Each mapped row counts once, in the bin of its own score, so one record changes one count by 1. Noise in the landmarks
hides each row, so mapped rows need not be left out, as they are for other methods (:mod:`raydr.methods.novelty`).

The number of rows with a score of at least e is not known exactly. The model takes the noisy number plus
``_CAUTION`` standard deviations, so noise makes p-values larger. If no row could then have a p-value of ``NOVEL``, as
with few rows or a small epsilon, the model keeps nothing, and the novelty of new rows is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, FloatArray
from raydr.federation import Client, Federation, Granularity, Range, Reply, Request, answers
from raydr.fixed_point import GridMatrix
from raydr.methods.novelty import EACH, NOVEL, SCORED, SCORES, Compared, ranked
from raydr.methods.private_map.messages import Frame, blocks_of
from raydr.methods.private_map.settings import COUNT_SENSITIVITY
from raydr.privacy import Mechanism, Quantity

_EDGES = 32
_NEAREST, _FARTHEST = 0.125, 16.0
"""Number of edges of bins, and the first and the last of them, in spreads of the frame."""
_BEYOND = float(np.finfo(np.float64).max)
"""Score that no row has."""
_CAUTION = 2.0
"""Deviations of the noise by which the number of farther rows is taken to be larger: too small once in 44 times."""


def scores_of(rows: FloatArray, frame: Frame, centres: Float64Array) -> Float64Array:
    """Return the distance (rows,) of each row to the nearest of ``centres`` (cells, axes); each depends on its row."""
    axes, directions = GridMatrix.of(frame.axes), GridMatrix.of(centres.T)
    halves = np.einsum("ij,ij->i", centres, centres) / 2.0
    found = []
    for block in blocks_of(rows):
        seen = frame.view.of(block) - frame.mean
        points = axes.product(seen)
        lengths = np.einsum("ij,ij->i", seen, seen)
        nearest = np.max(directions.product(points) - halves, axis=1)
        beyond = np.sqrt(np.einsum("ij,ij->i", *2 * (block.astype(np.float64) - frame.view.centre,)))
        clipped = np.maximum(beyond - frame.view.clip, 0.0)
        found.append(np.sqrt(np.maximum(lengths - 2.0 * nearest, 0.0) + clipped**2))
    return np.concatenate(found) if found else np.zeros(0)


@dataclass(frozen=True)
class ScoreCounts(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the number of a client's records by their distance to the nearest landmark",
    covers=("counts",),
):
    """``counts`` (edges + 1,) float64: below the first edge, between each two, and from the last one on."""

    counts: Float64Array

    @staticmethod
    def ranges(request: ScoreCountsRequest, rows: int) -> dict[str, Range]:
        """Return the range: one client may hold all rows, and all in one bin."""
        return {"counts": Range((len(request.edges) + 1,), request.rows * (1.0 + 1e-9))}

    def quantities(self, on: str, request: object) -> dict[str, Quantity]:
        """Return the whole reply as one quantity."""
        return {"counts": Quantity(self.counts)}


@dataclass(frozen=True)
class ScoreCountsRequest(Request[ScoreCounts], what="the frame, the landmarks, and bins of distances"):
    """Request for the number of records in each bin; ``rows`` counts the rows of all clients."""

    frame: Frame
    centres: Float64Array
    edges: Float64Array
    rows: int
    mechanism: Mechanism | None = None

    def sensitivity(self, rows: int) -> float:
        """Return the sensitivity of the sum: a record counts in one bin."""
        return COUNT_SENSITIVITY["zero-out"]

    def replace_sensitivity(self, rows: int) -> float:
        """Return the sensitivity under replacement: a record leaves one bin and enters another."""
        return COUNT_SENSITIVITY["replace-one"]


@answers(ScoreCountsRequest)
def score_counts(client: Client, request: ScoreCountsRequest) -> ScoreCounts:
    """Run the client part."""
    scores = scores_of(client.rows, request.frame, request.centres)
    bins = np.searchsorted(request.edges, scores, side="right")
    return ScoreCounts(np.bincount(bins, minlength=len(request.edges) + 1).astype(np.float64))


def edges_of(spread: float) -> Float64Array:
    """Return the edges of bins (edges,) for a frame in which rows lie ``spread`` from their mean."""
    return np.geomspace(_NEAREST * spread, _FARTHEST * spread, _EDGES)


def calibration_of(
    federation: Federation,
    frame: Frame,
    centres: Float64Array,
    spread: float,
    noise: Mechanism,
    deviation: float,
) -> dict[str, FloatArray]:
    """Ask for the histogram, and return scores of mapped rows as arrays of the model.

    ``noise`` has standard deviation ``deviation`` on a count of the sum. The arrays are those of
    :func:`raydr.methods.novelty.calibration`: every fifth score, falling, each at least as large as the true one unless
    noise exceeds ``_CAUTION`` deviations.
    """
    edges = edges_of(spread)
    request = ScoreCountsRequest(frame, centres, edges, federation.rows, noise)
    return kept_scores_of(federation.sum(request).counts, edges, federation.rows, deviation)


def kept_scores_of(
    counts: Float64Array, edges: Float64Array, rows: int, deviation: float
) -> dict[str, FloatArray]:
    """Return the arrays of the model for noisy ``counts`` (edges + 1,) of ``rows`` rows by bin.

    There are none if noise hides all distances. ``deviation`` is the standard deviation of the noise on a count.
    """
    bins = np.arange(len(edges), 0, -1)  # from each edge on
    farther = np.cumsum(counts[:0:-1])[::-1] + _CAUTION * deviation * np.sqrt(bins)
    # Fewer rows lie farther out, and no more than there are.
    farther = np.clip(np.maximum.accumulate(farther[::-1])[::-1], 0.0, rows)
    kept = rows // EACH
    wanted = EACH * np.arange(1, kept + 1) - 1.0
    # The first edge from which on fewer rows than wanted remain.
    place = len(edges) - np.searchsorted(farther[::-1], wanted, side="right")
    scores = np.append(edges, _BEYOND)[np.minimum(place, len(edges))]
    found = Compared(scores, rows, None)
    # The smallest p-value that any row can have.
    if ranked(found, np.array([_BEYOND])).item() > NOVEL:
        return {}
    return {SCORES: scores, SCORED: np.array([rows], np.int64)}
