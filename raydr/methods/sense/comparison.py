"""Evidence of other clients' points for the rotation of one client's residuals.

The residuals of similar rows predict a row's own, and values that recur among the others' points recur in its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

import numpy as np

from raydr.arrays import BoolArray, Float64Array, Int64Array
from raydr.geometry.neighbors import Candidates
from raydr.geometry.points import map_threaded, row_blocks, squared_distances
from raydr.geometry.procrustes import rotation
from raydr.methods.sense.frames import Frame
from raydr.methods.sense.recurrence import Recurrence, showing

NEIGHBORS = 5
"""Rows of other clients that predict a residual; with 3 and 8 the result is within 0.01 on every data set tried."""
_BLOCK_ROWS = 512
"""Rows of a client that are compared with others at a time; threads share blocks."""
_DISTANCES = 2**16
"""Least number of distances for the median distance; if there are more, an evenly spread part of them."""
SEARCHED_ROWS = 500
"""Rows of a client whose values are tried."""
ANGLES = np.linspace(0.0, 2.0 * np.pi, 120, endpoint=False)
"""Angles to try, 3 degrees apart; peaks of recurring values are about 5 degrees wide."""
NEARBY = np.radians(np.linspace(-6.0, 6.0, 25))
"""Angles around the best of these."""


@dataclass(frozen=True)
class Residuals:
    """Residuals of a client: factor (rows, width), coordinates (rows, rank), and anchors if values may recur."""

    frame: Frame
    coordinates: Float64Array
    factor: Float64Array
    anchors: Float64Array | None

    def compared_with(self, others: Float64Array, parts: Sequence[BoolArray]) -> list[Comparison]:
        """Compare them with parts (others,) of the points (others, dimensions) of others, each part by itself."""
        own = np.column_stack([self.coordinates, np.linalg.norm(self.factor, axis=1)])
        outside = self.frame.outside(others)
        known = np.column_stack([self.frame.inside(others), np.linalg.norm(outside, axis=1)])
        members = [np.flatnonzero(part) for part in parts]

        def search(block: tuple[int, int]) -> list[_Nearest]:
            distances = np.asarray(squared_distances(own[slice(*block)], known), dtype=np.float64)
            return [_Nearest.of(distances, which, len(own)) for which in members]

        blocks = row_blocks(len(own), _BLOCK_ROWS)
        found = [_Nearest.all(of_part) for of_part in zip(*map_threaded(search, blocks, None), strict=True)]
        recurrences: Iterable[Recurrence | None] = [None] * len(parts)
        if self.anchors is not None:
            tables = [np.concatenate([self.anchors, others[which]]) for which in members]
            recurrences = map_threaded(Recurrence.of, tables, None)
        return [
            Comparison(self, *nearest.predicting(outside), recurrence)
            for nearest, recurrence in zip(found, recurrences, strict=True)
        ]

    def alone(self) -> Float64Array:
        """Return the rotation (width, codimension) at which their own values recur.

        Wide tables have few columns that a rotation changes visibly, and the others are left out: 400 s became 2 s for
        784 columns and three open dimensions.
        """
        few = self.part(some_of(len(self.factor)))
        inside, axes = few.features()
        moves = np.sqrt((few.factor**2).sum(axis=1).mean()) * np.linalg.norm(axes, axis=0)
        shown = showing(inside, moves)
        inside, axes = inside[:, shown], axes[:, shown]

        def worth(turns: Float64Array) -> Float64Array:
            def of_one(turn: Float64Array) -> float:
                return Recurrence.of(inside + few.factor @ turn @ axes).worth

            return np.array(list(map_threaded(of_one, list(turns), None)))

        return _searched(np.eye(few.factor.shape[1], few.frame.codimension), worth)

    def part(self, rows: slice) -> Residuals:
        """Return some of the rows."""
        return Residuals(self.frame, self.coordinates[rows], self.factor[rows], self.anchors)

    def features(self) -> tuple[Float64Array, Float64Array]:
        """Return the rows without residuals, (rows, features), and the residuals' axes, (codimension, features)."""
        frame, rank, codimension = self.frame, self.frame.rank, self.frame.codimension
        origin = frame.points(np.zeros((1, rank)), np.zeros((1, 0)))
        axes = frame.points(np.zeros((codimension, rank)), np.eye(codimension)) - origin
        return frame.points(self.coordinates, np.zeros((len(self.factor), 0))), axes


@dataclass(frozen=True)
class _Nearest:
    """Nearest others of some rows, (rows, neighbours), their squared distances, and a sample of all distances."""

    indices: Int64Array
    squared: Float64Array
    some: Float64Array

    @classmethod
    def of(cls, distances: Float64Array, which: Int64Array, rows: int) -> _Nearest:
        """Find the nearest among ``which``.

        ``distances`` (some rows, others) are squared, and ``rows`` counts all rows.
        """
        if len(which) < distances.shape[1]:
            distances = np.take(distances, which, axis=1)
        heaps = Candidates.empty(len(distances), min(NEIGHBORS, len(which)), np.float64)
        no_row = np.full(len(distances), -1)  # no row is its own neighbour here
        heaps.offer(distances, no_row, 0, np.arange(len(distances)))
        some = distances[:, :: max(1, rows * len(which) // _DISTANCES)].ravel()
        return cls(which[heaps.indices], np.asarray(heaps.squared, np.float64), some)

    @classmethod
    def all(cls, blocks: Sequence[_Nearest]) -> _Nearest:
        """Merge blocks of rows."""
        fields = zip(*((block.indices, block.squared, block.some) for block in blocks), strict=True)
        return cls(*map(np.concatenate, fields))

    def predicting(self, residuals: Float64Array) -> tuple[Float64Array, Float64Array]:
        """Return the prediction of ``residuals`` (others, codimension) for the rows, and its weight."""
        floor = 1e-3 * float(np.median(self.some)) + np.finfo(np.float64).tiny
        weights = 1.0 / (self.squared + floor)
        predicted = np.einsum("ik,ikc->ic", weights, residuals[self.indices])
        return predicted / weights.sum(axis=1, keepdims=True), 1.0 / np.sqrt(
            self.squared.mean(axis=1) + floor
        )


@dataclass(frozen=True)
class Comparison:
    """A client's rows compared with points of others.

    Attributes
    ----------
    own : Residuals
        Residuals of the rows.
    predicted : (rows, codimension) float64
        Residuals of the most similar rows of others, averaged.
    weights : (rows,) float64
        Larger for more similar rows.
    recurrence : Recurrence or None
        Recurrence of the others' values; None if not used.
    """

    own: Residuals
    predicted: Float64Array
    weights: Float64Array
    recurrence: Recurrence | None

    def part(self, rows: slice) -> Comparison:
        """Return the comparison for some of the rows."""
        return replace(
            self, own=self.own.part(rows), predicted=self.predicted[rows], weights=self.weights[rows]
        )

    def best(self) -> Float64Array:
        """Return the rotation (width, codimension) with the most evidence."""
        best = self._procrustes(self.weights)
        if self.recurrence is None or not self.recurrence.columns.size:
            return best
        return _searched(best, self.part(some_of(len(self.weights)))._worth)

    def correlation(self, turn: Float64Array) -> float:
        """Return the correlation of the rotated residuals with their prediction."""
        turned = self.own.factor @ turn
        norm = float(np.sqrt((turned**2).sum() * (self.predicted**2).sum()))
        return float((turned * self.predicted).sum()) / norm if norm else 0.0

    def rank(self, turn: Float64Array, drawn: Float64Array) -> float:
        """Return the share of random rotations, other than this one, with less evidence; ties count half."""
        few = self.part(some_of(len(self.weights)))
        (worth,), rest = few._worth(turn[None]), drawn[~np.isclose(drawn, turn).all(axis=(1, 2))]
        if not len(rest):
            return 0.5
        others = few._worth(rest)
        return float(np.mean((others < worth) + 0.5 * (others == worth)))

    def _procrustes(self, weights: Float64Array) -> Float64Array:
        return rotation((self.own.factor * weights[:, None]).T @ self.predicted)

    def _worth(self, turns: Float64Array) -> Float64Array:
        """Return the evidence for each rotation (turns, width, codimension), in nats.

        The log likelihood of a rotation, given the residuals of similar rows, is linear in it.
        """
        assert self.recurrence is not None
        factor, shares = self.own.factor, self.weights / self.weights.mean()
        missed = (factor @ self._procrustes(shares) - self.predicted) ** 2
        variance = max(float(shares @ missed.mean(axis=1)) / len(shares), np.finfo(np.float64).tiny)
        likeness = factor.T @ (shares[:, None] * self.predicted) / variance
        inside, axes = self.own.features()
        recurring = self.recurrence.evidence(inside, factor, axes, turns)
        return np.asarray(recurring + (turns * likeness).sum(axis=(1, 2)))


def any_rotations(count: int, width: int, codimension: int, rng: np.random.Generator) -> Float64Array:
    """Draw uniform matrices (count, width, codimension) of orthonormal rows."""
    orthonormal, triangle = np.linalg.qr(rng.standard_normal((count, codimension, width)))
    signs = np.sign(np.diagonal(triangle, axis1=1, axis2=2))
    return np.asarray((orthonormal * signs[:, None]).swapaxes(1, 2))


def some_of(rows: int) -> slice:
    """Return an evenly spaced slice with few enough rows to search."""
    return slice(None, None, -(-rows // SEARCHED_ROWS) or 1)


def _searched(start: Float64Array, worth: Callable[[Float64Array], Float64Array]) -> Float64Array:
    """Improve the rotation (width, codimension) ``start`` by greedy choices."""
    best = start
    for turns in _turns(start.shape[1]):
        tried = best @ turns
        best = tried[worth(tried).argmax()]
    return best


@cache
def _turns(dimensions: int) -> tuple[Float64Array, ...]:
    """Return orthogonal matrices (turns, dimensions, dimensions) to try, one set of choices after another.

    Plane by plane, all around, with and without a flipped direction, and then near the best.
    """
    if dimensions == 1:
        return (np.array([[[1.0]], [[-1.0]]]),)
    planes = list(combinations(range(dimensions), 2))
    return tuple(
        np.concatenate([_rotations(dimensions, plane, angles, flip) for flip in flips])
        for angles, flips in ((ANGLES, (1.0, -1.0)), (NEARBY, (1.0,)))
        for plane in planes * (2 if len(planes) > 1 else 1)
    )


def _rotations(dimensions: int, plane: tuple[int, int], angles: Float64Array, flip: float) -> Float64Array:
    """Return rotations by angles in a plane; if flip is -1, its second direction is flipped first."""
    first, second = plane
    turns = np.tile(np.eye(dimensions), (len(angles), 1, 1))
    turns[:, first, first] = np.cos(angles)
    turns[:, first, second] = np.sin(angles)
    turns[:, second, first] = -flip * np.sin(angles)
    turns[:, second, second] = flip * np.cos(angles)
    return turns
