r"""One space for all clients' residuals: which way each client's own frame is turned against the others'.

The distances between a client's rows tell their residuals (what the anchors do not span) up to a rotation of that
client's own. Two things give the rotation away. Where residuals depend on the coordinates that the anchors do tell, and
in real data they do, similar rows of two clients have similar residuals: for client m

.. math:: \min_{Q Q^T = I} \sum_i \| r_i Q - \hat r_i \|^2

with r_i the residuals of its rows and \hat r_i those of rows of other clients with nearly the same coordinates and
length of residual. That is orthogonal Procrustes, solved client after client, and again against all others. And where a
column's values recur, they recur in the rows that Q leads to (:mod:`raydr.methods.sense.recurrence`).

Sites differ, and what holds within one of them need not hold in another. So a client's rotation counts only if it is
found twice: from half of its rows and half of the other clients, and from the other halves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise

import numpy as np

from raydr.arrays import BoolArray, Float64Array, Int64Array
from raydr.geometry.points import squared_distances
from raydr.geometry.procrustes import rotation
from raydr.methods.sense.frames import Frame
from raydr.methods.sense.recurrence import Recurrence

SWEEPS = 3
"""Times that each client is turned; digits with 20 anchors: F-score 0.89, 0.90, 0.90 after 1, 3, 6."""
NEIGHBORS = 5
"""Rows of other clients that predict a residual; 3 and 8 are within 0.01 of it on every data set tried."""
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
SEARCHED_ROWS = 500
"""Rows of a client whose values are tried; of 120 angles, 3 degrees apart, and of 25 about the best of them."""
ANGLES = np.linspace(0.0, 2.0 * np.pi, 120, endpoint=False)
NEARBY = np.radians(np.linspace(-6.0, 6.0, 25))
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


def align(
    frames: Sequence[Frame],
    coordinates: Sequence[Float64Array],
    factors: Sequence[Float64Array],
    rng: np.random.Generator,
    anchors: Float64Array | None = None,
    sweeps: int = SWEEPS,
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
    """
    ends = np.cumsum([0, *(len(rows) for rows in coordinates)])
    spans = [np.arange(start, stop) for start, stop in pairwise(ends)]
    points = np.concatenate(
        [
            frame.points(inside, factor @ _any_rotation(factor.shape[1], frame.codimension, rng))
            for frame, inside, factor in zip(frames, coordinates, factors, strict=True)
        ]
    )
    known = anchors if max(frame.codimension for frame in frames) <= FEW else None
    turned, settled = np.zeros(len(frames), dtype=bool), np.zeros(len(frames), dtype=bool)
    order = np.argsort([-len(span) for span in spans], kind="stable")
    compared = [int(client) for client in order if np.any(factors[client])]
    placed: list[int] = []
    for sweep in range(sweeps):
        if sweep > 1 and settled[compared].all():
            break
        for client in compared:
            others = [other for other in (compared if sweep else placed) if other != client]
            if sweep == 0:
                placed.append(client)
            rows = _sample(np.arange(len(spans[client])), SAMPLED_ROWS, rng)
            residuals = _Residuals(frames[client], coordinates[client][rows], factors[client][rows], known)
            if others:
                size = 2 * SAMPLED_ROWS
                theirs = _sample(np.concatenate([spans[other] for other in others]), size, rng)
                sites = [points[theirs[np.isin(theirs, spans[other])]] for other in others]
                found = residuals.onto(sites, rng)
                turned[client], settled[client] = found.turned, found.settled
            elif known is not None:
                found = residuals.alone()
            else:
                continue
            if found.turned:
                points[spans[client]] = frames[client].points(
                    coordinates[client], factors[client] @ found.rotation
                )
    recurring = (
        0 if known is None or not sweeps else len(Recurrence.of(np.concatenate([known, points])).columns)
    )
    return Aligned(points, turned, settled, recurring)


@dataclass(frozen=True)
class _Found:
    """A rotation (width, codimension), whether to turn by it, and whether that is sure."""

    rotation: Float64Array
    turned: bool
    settled: bool


@dataclass(frozen=True)
class _Evidence:
    """What speaks for a direction of a client's residuals.

    Attributes
    ----------
    likeness : (rows, codimension) float64
        A residual's product with it is the log likelihood of its direction, by the residuals of similar rows.
    inside : (rows, features) float64
        The rows without their residuals.
    axes : (codimension, features) float64
        Orthonormal, of the residuals.
    recurrence : Recurrence or None
        Of the values to look for; None for the rows' own.
    """

    likeness: Float64Array
    inside: Float64Array
    axes: Float64Array
    recurrence: Recurrence | None

    @property
    def recurs(self) -> bool:
        """Whether any values do."""
        return self.recurrence is not None and self.recurrence.columns.size > 0

    def worth(self, residuals: Float64Array) -> float:
        """Nats that speak for residuals (rows, codimension)."""
        if self.recurrence is None:
            return Recurrence.of(self.inside + residuals @ self.axes).worth
        columns = self.recurrence.columns
        values = self.inside[:, columns] + residuals @ self.axes[:, columns]
        return self.recurrence.evidence(values) + float((residuals * self.likeness).sum())

    def best(self, residuals: Float64Array) -> Float64Array:
        """The orthogonal matrix to turn residuals (rows, codimension) by, plane by plane, all around and then near."""
        turn = np.eye(residuals.shape[1])
        planes = list(combinations(range(len(turn)), 2)) or [(0, 0)]
        for angles, flips in ((ANGLES, (1.0, -1.0)), (NEARBY, (1.0,))):
            for _ in range(2 if len(planes) > 1 else 1):
                for plane in planes:
                    tried = [
                        turn @ _turn(len(turn), plane, angle, flip) for flip in flips for angle in angles
                    ]
                    turn = max(tried, key=lambda by: self.worth(residuals @ by))
        return turn


def _turn(dimensions: int, plane: tuple[int, int], angle: float, flip: float) -> Float64Array:
    """By an angle in a plane, whose second direction is flipped before; a line has no angle."""
    first, second = plane
    turn = np.eye(dimensions)
    if first != second:
        turn[first, first] = turn[second, second] = np.cos(angle)
        turn[first, second] = np.sin(angle)
        turn[second, first] = -np.sin(angle)
    turn[second] *= flip
    return turn


@dataclass(frozen=True)
class _Residuals:
    """Of a client: its factor (rows, width), coordinates (rows, rank), and anchors if values may recur."""

    frame: Frame
    coordinates: Float64Array
    factor: Float64Array
    anchors: Float64Array | None

    def part(self, rows: slice) -> _Residuals:
        """Some of the rows."""
        return _Residuals(self.frame, self.coordinates[rows], self.factor[rows], self.anchors)

    def onto(self, sites: Sequence[Float64Array], rng: np.random.Generator) -> _Found:
        """Turned to fit points of other clients."""
        best = self._best(np.concatenate(sites))
        if len(self.factor) < 2:
            return _Found(best, turned=False, settled=False)
        halves, all_of_them = _halves(sites), (np.concatenate(sites),) * 2
        if self.anchors is None:
            return _Found(
                best,
                turned=float(np.mean(self._held_out(all_of_them, _Residuals._correlation)))
                > LEAST_CORRELATION,
                settled=min(self._held_out(halves, _Residuals._correlation)) > LEAST_CORRELATION,
            )
        drawn = [_any_rotation(best.shape[0], best.shape[1], rng) for _ in range(DRAWN)]
        return _Found(
            best,
            turned=float(np.mean([self._rank(half, best, drawn) for half in halves])) > LEAST_RANK,
            settled=min(self._held_out(halves, partial(_Residuals._rank, drawn=drawn))) > SETTLED_RANK,
        )

    def _held_out(
        self,
        halves: tuple[Float64Array, Float64Array],
        judged: Callable[[_Residuals, Float64Array, Float64Array], float],
    ) -> list[float]:
        """How rows and others that were left out judge what every other row makes of one half of the others."""
        folds = list(zip((self.part(slice(0, None, 2)), self.part(slice(1, None, 2))), halves, strict=True))
        return [
            judged(rows, rest, fitted._best(half)) for (fitted, half), (rows, rest) in (folds, folds[::-1])
        ]

    def alone(self) -> _Found:
        """Turned so that values recur."""
        few = self.part(slice(SEARCHED_ROWS))
        start = np.eye(self.factor.shape[1], self.frame.codimension)
        return _Found(start @ few._evidence(None).best(few.factor @ start), turned=True, settled=False)

    def _prediction(self, others: Float64Array) -> tuple[Float64Array, Float64Array]:
        return _prediction(self.frame, self.coordinates, self.factor, others)

    def _best(self, others: Float64Array) -> Float64Array:
        """The rotation (width, codimension) for which others' points speak most."""
        predicted, weights = self._prediction(others)
        found = rotation((self.factor * weights[:, None]).T @ predicted)
        if self.anchors is None:
            return found
        few = self.part(slice(SEARCHED_ROWS))
        evidence = few._evidence(others)
        return found @ evidence.best(few.factor @ found) if evidence.recurs else found

    def _correlation(self, others: Float64Array, turn: Float64Array) -> float:
        """Of the turned residuals with what others' points predict."""
        turned, predicted = self.factor @ turn, self._prediction(others)[0]
        norm = float(np.sqrt((turned**2).sum() * (predicted**2).sum()))
        return float((turned * predicted).sum()) / norm if norm else 0.0

    def _rank(self, others: Float64Array, turn: Float64Array, drawn: Sequence[Float64Array]) -> float:
        """Share of drawn turns, but for the same, for which others' points speak less; for the same, half of it."""
        few = self.part(slice(SEARCHED_ROWS))
        evidence = few._evidence(others)
        worth = evidence.worth(few.factor @ turn)
        rest = np.array([evidence.worth(few.factor @ by) for by in drawn if not np.allclose(by, turn)])
        return float(np.mean((rest < worth) + 0.5 * (rest == worth))) if len(rest) else 0.5

    def _evidence(self, others: Float64Array | None) -> _Evidence:
        """What other rows say; None for what the client's own values do."""
        assert self.anchors is not None
        frame, none = self.frame, np.zeros((len(self.factor), 0))
        inside = frame.points(self.coordinates, none)
        origin = frame.points(np.zeros((1, frame.rank)), none[:1])
        axes = frame.points(np.zeros((frame.codimension, frame.rank)), np.eye(frame.codimension)) - origin
        if others is None:
            return _Evidence(np.zeros((len(inside), len(axes))), inside, axes, None)
        predicted, weights = self._prediction(others)
        shares = weights / weights.mean()
        fitted = self.factor @ rotation((self.factor * shares[:, None]).T @ predicted)
        missed = float(shares @ ((fitted - predicted) ** 2).mean(axis=1)) / len(shares)
        likeness = shares[:, None] * predicted / max(missed, np.finfo(np.float64).tiny)
        recurrence = Recurrence.of(np.concatenate([self.anchors, others]))
        return _Evidence(likeness, inside, axes, recurrence)


def _halves(sites: Sequence[Float64Array]) -> tuple[Float64Array, Float64Array]:
    """Points of other clients in halves, client by client where these come out alike, else row by row."""
    halves: tuple[list[Float64Array], list[Float64Array]] = ([], [])
    sizes = [0, 0]
    for points in sorted(sites, key=len, reverse=True):
        smaller = int(sizes[1] < sizes[0])
        halves[smaller].append(points)
        sizes[smaller] += len(points)
    if SMALLER_HALF * min(sizes) >= max(sizes):
        return np.concatenate(halves[0]), np.concatenate(halves[1])
    together = np.concatenate(sites)
    return (together[::2], together[1::2]) if len(together) > 1 else (together, together)


def _any_rotation(width: int, codimension: int, rng: np.random.Generator) -> Float64Array:
    """Orthonormal rows (width, codimension), uniformly distributed."""
    orthonormal, triangle = np.linalg.qr(rng.standard_normal((codimension, width)))
    return np.asarray((orthonormal * np.sign(np.diag(triangle))).T)


def _sample(rows: Int64Array, size: int, rng: np.random.Generator) -> Int64Array:
    return rows if len(rows) <= size else np.sort(rng.choice(rows, size, replace=False))


def _prediction(
    frame: Frame, coordinates: Float64Array, factor: Float64Array, others: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Residuals (rows, codimension) of the most similar rows of others, averaged, and the weight of each row."""
    own = np.column_stack([coordinates, np.linalg.norm(factor, axis=1)])
    beside = frame.beside(others)
    known = np.column_stack([frame.inside(others), np.linalg.norm(beside, axis=1)])
    distances = np.asarray(squared_distances(own, known), dtype=np.float64)
    k = min(NEIGHBORS, distances.shape[1])
    nearest = np.argpartition(distances, k - 1, axis=1)[:, :k]
    found = np.take_along_axis(distances, nearest, axis=1)
    floor = 1e-3 * float(np.median(distances)) + np.finfo(np.float64).tiny
    weights = 1.0 / (found + floor)
    predicted = np.einsum("ik,ikc->ic", weights, beside[nearest]) / weights.sum(axis=1, keepdims=True)
    return predicted, 1.0 / np.sqrt(found.mean(axis=1) + floor)
