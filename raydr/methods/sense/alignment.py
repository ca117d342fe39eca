r"""One space for all clients' residuals: which way each client's own frame is turned against the others'.

The distances between a client's rows tell their residuals (what the anchors do not span) up to a rotation of that
client's own. Two things give the rotation away. Where residuals depend on the coordinates that the anchors do tell, and
in real data they do, similar rows of two clients have similar residuals: for client m

.. math:: \min_{Q Q^T = I} \sum_i \| r_i Q - \hat r_i \|^2

with r_i the residuals of its rows and \hat r_i those of rows of other clients with nearly the same coordinates and
length of residual. That is orthogonal Procrustes, solved client after client, and again against all others. And where a
column's values recur, they recur in the rows that Q leads to (:mod:`raydr.methods.sense.recurrence`).

Sites differ, and what holds within one of them need not hold in another. So it is judged beside either half of the
other clients, and a client is called settled only if its rotation is found twice: what half of its rows makes of the
one half of the others is borne out by its other rows and the other half.
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
"""Times that each client is turned; digits with 20 anchors: F-score 0.89, 0.90, 0.90 after 1, 3, 6. The last time
who is settled is not judged again."""
SAMPLED_ROWS = 2_000
"""Rows of a client that decide on its rotation, and twice as many of the others; 300 cost 0.005 of the F-score."""
LEAST_CORRELATION = 0.2
"""Correlation of held-out residuals with their prediction below which a client stays turned any way: a rotation that
is fitted to noise draws unlike rows together (COIL-20, correlation 0.1: F-score 0.986 fitted, 0.992 left)."""
FEW = 3
"""Open dimensions up to which recurring values are looked for: with more there are too many directions to try."""
LEAST_RANK, SETTLED_RANK = 0.6, 0.9
"""Share of drawn rotations that must do worse than one with few open dimensions, in the mean over both halves of the
others for it to be taken, and in each for it to be sure. 0.9 in each for it to be taken loses more than it saves where
sites differ much (three sources of cells: F-score 0.973; 0.987 with 0.6 in the mean)."""
DRAWN = 60
"""Rotations that are drawn for that."""
OPERATIONS_OF_PAIR, OPERATIONS_OF_COLUMN = 40.0, 6e5
"""That a pair of rows takes beside the product, and a column whose recurring values are looked for."""
SMALLER_HALF = 3
"""The larger half of the other clients has at most so many times the rows of the smaller one."""


@dataclass(frozen=True)
class Aligned:
    """Residuals in one space.

    Attributes
    ----------
    points : (rows, dimensions) float64
        All rows, client by client.
    turned : (clients,) bool
        Whose residuals were turned to fit those of others; the rest stay turned any way.
    settled : (clients,) bool
        Of those, for whom both halves of the others, each by itself, bear it out.
    recurring : int
        Columns whose values recur in the points, which tells directions in the space of the features themselves.
    """

    points: Float64Array
    turned: BoolArray
    settled: BoolArray
    recurring: int = 0


def aligning_operations(sizes: Sequence[int], anchors: int, features: int) -> float:
    """What :func:`align` takes, roughly, of clients of these sizes that see fewer anchors than would fix all."""
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
    """Turn the residuals of clients against each other.

    Parameters
    ----------
    frames : sequence of Frame
        Of each client's anchors.
    coordinates : sequence of (rows, rank) float64
        Of each client's rows inside its frame.
    factors : sequence of (rows, width) float64
        Their residuals in the client's own directions; width at most the frame's codimension.
    rng : numpy.random.Generator
        Draws rotations to begin with, and samples of large clients. Were all clients' principal directions laid on
        each other instead, residuals that have nothing in common would look alike (COIL-20: 0.984).
    anchors : (anchors, features) float64, optional
        All anchors, where points are rows of features; without them no recurring values are looked for.
    sweeps : int
        Times that each client is turned; with 0, all stay turned any way.
    progress : callable
        Called as ``progress(done, total)``, in turns of a client.
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
                together, *halves = residuals.beside(points[theirs], parts)
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
    """Whether to turn a client by what was found beside all others together, and whether their halves make it sure."""
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
    """How every other row, beside the one half of the others, judges what the rest makes of the other half."""
    even, odd = first.part(slice(0, None, 2)), second.part(slice(1, None, 2))
    return judged(odd, even.best()), judged(even, odd.best())


def _half(owners: Int64Array) -> BoolArray:
    """One of two halves of points with these owners: owner by owner where both come out alike, else point by point."""
    _, owner, counts = np.unique(owners, return_inverse=True, return_counts=True)
    first, sizes = np.zeros(len(counts), dtype=bool), [0, 0]
    for which in np.argsort(-counts, kind="stable").tolist():
        first[which] = sizes[0] <= sizes[1]
        sizes[0 if first[which] else 1] += int(counts[which])
    alike = SMALLER_HALF * min(sizes) >= max(sizes)
    return np.asarray(first[owner] if alike else np.arange(len(owners)) % 2 == 0)


def _sample(rows: Int64Array, size: int, rng: np.random.Generator) -> Int64Array:
    return rows if len(rows) <= size else np.sort(rng.choice(rows, size, replace=False))
