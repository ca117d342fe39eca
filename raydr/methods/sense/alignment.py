r"""Alignment of all clients' residuals in one space, by a rotation of each client's own frame.

The distances between a client's rows determine their residuals (what the anchors do not span) up to one
rotation per client. Two things reveal the rotation. First, in real data residuals depend on the coordinates
that the anchors determine, so similar rows of two clients have similar residuals: for client m

.. math:: \min_{Q Q^T = I} \sum_i \| r_i Q - \hat r_i \|^2

with r_i the residuals of its rows and \hat r_i those of rows of other clients with nearly the same
coordinates and length of residual. This is orthogonal Procrustes, solved client after client, and again
against all others. Second, values that recur in a column also recur in the rows that the right Q gives
(:mod:`raydr.methods.sense.recurrence`).

Sites differ, and what holds within one need not hold in another. So each half of the other clients is used by
itself. A client counts as settled only if its rotation is found twice. The rotation from half of its rows and
one half of the others is confirmed by its other rows and the other half.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from raydr.arrays import BoolArray, Float64Array, Int64Array
from raydr.geometry.points import Progress, unheard
from raydr.methods.sense.comparison import Comparison, Residuals, any_rotations
from raydr.methods.sense.frames import Frame
from raydr.methods.sense.recurrence import Recurrence

SWEEPS = 3
"""Passes over all clients; digits with 20 anchors: F-score 0.89, 0.90, 0.90 after 1, 3, 6. The last pass does
not judge again which clients are settled."""
SAMPLED_ROWS = 2_000
"""Rows of a client that determine its rotation, and twice as many of the others; with 300 the F-score is
0.005 lower."""
LEAST_CORRELATION = 0.2
"""Least correlation of held-out residuals with their prediction. Below it a client keeps a random rotation: a
rotation fitted to noise draws dissimilar rows together (COIL-20, correlation 0.1: F-score 0.986 fitted, 0.992
not fitted)."""
FEW = 3
"""Largest number of open dimensions for which recurring values are used: with more there are too many
directions to try."""
LEAST_RANK, SETTLED_RANK = 0.6, 0.9
"""Shares of random rotations that must do worse than a candidate, for few open dimensions.

The first is in the mean over both halves of the others, to accept it. The second is in each half, to call it
settled. If sites differ much, requiring 0.9 in each half to accept loses more than it saves. For three sources of cells
the F-score is 0.973, and 0.987 with 0.6 in the mean."""
DRAWN = 60
"""Number of random rotations for that."""
OPERATIONS_OF_PAIR, OPERATIONS_OF_COLUMN = 40.0, 6e5
"""Cost of a pair of rows besides the product, and of a column whose recurring values are searched."""
SMALLER_HALF = 3
"""The larger half of the other clients has at most this many times the rows of the smaller half."""


@dataclass(frozen=True)
class Aligned:
    """Residuals in one space.

    Attributes
    ----------
    points : (rows, dimensions) float64
        All rows, client by client.
    turned : (clients,) bool
        Clients whose residuals were rotated to fit those of others; the rest keep a random rotation.
    settled : (clients,) bool
        Those of them that each half of the others, by itself, confirms.
    recurring : int
        Columns whose values recur in the points, which reveals directions in the space of the features themselves.
    """

    points: Float64Array
    turned: BoolArray
    settled: BoolArray
    recurring: int = 0


def aligning_operations(sizes: Sequence[int], anchors: int, features: int) -> float:
    """Return about the operations of :func:`align` for clients of these sizes that see too few anchors to fix all."""
    own, others = np.minimum(sizes, SAMPLED_ROWS), min(sum(sizes), 2 * SAMPLED_ROWS)
    pairs = float(own.sum()) * others
    values = 3 * OPERATIONS_OF_COLUMN * features * len(sizes) if features - anchors < FEW else 0.0
    return SWEEPS * (pairs * (2.0 * features + OPERATIONS_OF_PAIR) + values)


def align(
    frames: Sequence[Frame],
    coordinates: Sequence[Float64Array],
    factors: Sequence[Float64Array],
    rng: np.random.Generator,
    anchors: Float64Array | None = None,
    sweeps: int = SWEEPS,
    progress: Progress = unheard,
) -> Aligned:
    """Rotate the residuals of clients to fit each other.

    Parameters
    ----------
    frames : sequence of Frame
        Frame of each client's anchors.
    coordinates : sequence of (rows, rank) float64
        Coordinates of each client's rows inside its frame.
    factors : sequence of (rows, width) float64
        Their residuals in the client's own directions; width at most the frame's codimension.
    rng : numpy.random.Generator
        Draws initial rotations, and samples of large clients. If all clients' principal directions were
        aligned instead, unrelated residuals would look similar (COIL-20: 0.984).
    anchors : (anchors, features) float64, optional
        All anchors, if points are rows of features; without them recurring values are not used.
    sweeps : int
        Passes over all clients; with 0, all keep a random rotation.
    progress : callable
        Called as ``progress(done, total)``, in rotations of a client.
    """
    sizes = [len(rows) for rows in coordinates]
    owners = np.repeat(np.arange(len(frames)), sizes)
    points = np.concatenate(
        [
            frame.points(inside, factor @ any_rotations(1, factor.shape[1], frame.codimension, rng)[0])
            for frame, inside, factor in zip(frames, coordinates, factors, strict=True)
        ]
    )
    known = anchors if max(frame.codimension for frame in frames) <= FEW else None
    turned, settled = np.zeros(len(frames), dtype=bool), np.zeros(len(frames), dtype=bool)
    order = np.argsort([-size for size in sizes], kind="stable")
    compared = [int(client) for client in order if sizes[client] > 1 and np.any(factors[client])]
    placed = np.zeros(len(frames), dtype=bool)
    for sweep in range(sweeps):
        for turn, client in enumerate(compared):
            progress(sweep * len(compared) + turn, sweeps * len(compared))
            rows = _sample(np.arange(sizes[client]), SAMPLED_ROWS, rng)
            residuals = Residuals(frames[client], coordinates[client][rows], factors[client][rows], known)
            theirs = np.flatnonzero(placed[owners] & (owners != client))
            placed[client] = True
            if theirs.size:
                theirs = _sample(theirs, 2 * SAMPLED_ROWS, rng)
                parts = [np.ones(len(theirs), dtype=bool)]
                if sweep + 1 < sweeps or not settled[client]:
                    half = _half(owners[theirs])
                    parts += [half, ~half]
                together, *halves = residuals.compared_with(points[theirs], parts)
                best = together.best()
                if halves:
                    turned[client], settled[client] = _borne_out(best, together, (halves[0], halves[1]), rng)
                if not turned[client]:
                    continue
            elif known is not None:
                best = residuals.alone()
            else:
                continue
            points[owners == client] = frames[client].points(coordinates[client], factors[client] @ best)
    recurring = (
        0 if known is None or not sweeps else len(Recurrence.of(np.concatenate([known, points])).columns)
    )
    return Aligned(points, turned, settled, recurring)


def _borne_out(
    best: Float64Array, together: Comparison, halves: tuple[Comparison, Comparison], rng: np.random.Generator
) -> tuple[bool, bool]:
    """Return whether to accept a client's best rotation, and whether the halves of the others settle it."""
    if together.recurrence is None:
        whole = _held_out(together, together, Comparison.correlation)
        each = _held_out(*halves, Comparison.correlation)
        return sum(whole) / 2 > LEAST_CORRELATION, min(each) > LEAST_CORRELATION
    drawn = any_rotations(DRAWN, best.shape[0], best.shape[1], rng)
    ranks = [half.rank(best, drawn) for half in halves]
    sure = _held_out(*halves, partial(Comparison.rank, drawn=drawn))
    return sum(ranks) / 2 > LEAST_RANK, min(sure) > SETTLED_RANK


def _held_out(
    first: Comparison, second: Comparison, judged: Callable[[Comparison, Float64Array], float]
) -> tuple[float, float]:
    """Judge rotations from half of the rows and one half of the others by the other rows and the other half."""
    even, odd = first.part(slice(0, None, 2)), second.part(slice(1, None, 2))
    return judged(odd, even.best()), judged(even, odd.best())


def _half(owners: Int64Array) -> BoolArray:
    """Return one of two halves of points with these owners: by owner if both halves are then similar, else by point."""
    _, owner, counts = np.unique(owners, return_inverse=True, return_counts=True)
    first, sizes = np.zeros(len(counts), dtype=bool), [0, 0]
    for which in np.argsort(-counts, kind="stable").tolist():
        first[which] = sizes[0] <= sizes[1]
        sizes[0 if first[which] else 1] += int(counts[which])
    alike = SMALLER_HALF * min(sizes) >= max(sizes)
    return np.asarray(first[owner] if alike else np.arange(len(owners)) % 2 == 0)


def _sample(rows: Int64Array, size: int, rng: np.random.Generator) -> Int64Array:
    return rows if len(rows) <= size else np.sort(rng.choice(rows, size, replace=False))
