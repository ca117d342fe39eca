"""Completion of SENSE: from the clients' distances to points at the server, one block of clients at a time.

Each block is a separate task (:meth:`raydr.federation.Federation.compute`): no step needs all pairs of
records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from raydr.arrays import Float64Array, Int64Array
from raydr.federation import Federation
from raydr.geometry.expected_points import ExpectedPoints
from raydr.geometry.points import Geometry, Points, Progress
from raydr.methods.sense.algorithm_2 import VisibleAnchors, algorithm_2
from raydr.methods.sense.alignment import SWEEPS, Aligned, align
from raydr.methods.sense.anchors import Anchors
from raydr.methods.sense.frames import AffineFrame, Frame
from raydr.methods.sense.lorentz_descent import random_start as random_points
from raydr.methods.sense.lorentz_descent import refine
from raydr.methods.sense.lorentz_geometry import ExpectedHyperboloid
from raydr.methods.sense.prior import Prior
from raydr.methods.sense.reduced_basis import Narrow
from raydr.methods.sense.residual_cosines import fitted_curve
from raydr.methods.sense.settings import SenseSettings
from raydr.methods.sense.smacof import random_start, smacof
from raydr.methods.sense.spaces import EuclideanSpace, HyperbolicSpace, Space

_ROWS_OF_A_TASK = 256
"""Pointwise records per task: with fewer, overhead dominates."""
LEAST_SCALE = {"sample": 0.1, "random": 0.3}
"""Least scale of :func:`fitted_curve`. Rows are farther from random anchors than from each other, so pairs with
these show less of how the cosine falls for near rows. With 0.1 for both, the F-score of 50 random anchors falls from
0.59 to 0.45 on MNIST; with 0.3 for both, that of 20 sampled ones from 0.71 to 0.67 on breast MNIST."""

LEAST_OPEN = 3
"""Fewest open dimensions for expected distances. With d - 1 anchors, which leave two, the common direction has a
higher F-score (German credit 0.971 and 0.953, heart disease 0.813 and 0.806) at a distance error up to 1.6 times as
large, which is below that of the iteration in each case."""


@dataclass(kw_only=True, frozen=True)
class Known:
    """How far the anchors alone determine each record.

    Attributes
    ----------
    rank, codimension : int
        Dimensions that the anchors of the first client span, and the remaining dimensions.
    open_share : (records,) float64
        Distance of each record from the anchors' span over its distance from their mean: 0 if the server
        knows the record feature by feature. NaN if noise on its distances makes the two incomparable.
    aligned : Aligned or None
        Which clients' residuals were rotated to fit those of others; None without residuals.
    narrow : Narrow
        Coordinate system of the points.
    geometry : Geometry or None
        Expected distances, if residuals have a common direction only because their own is unknown.
    stress : (iterations + 1,) float64 or None
        Stress at the start and after each iteration, if the solver iterates.
    """

    rank: int
    codimension: int
    open_share: Float64Array
    aligned: Aligned | None
    narrow: Narrow
    geometry: Geometry | None = None
    stress: Float64Array | None = None


@dataclass(frozen=True)
class SeenAnchors:
    """Observations of a client, or of pointwise clients that see the same anchors.

    Attributes
    ----------
    space : Space
        Space of the records.
    anchors : (anchors, dimensions) float64
        The visible anchors, as points.
    squared : (rows, anchors) float64
        Squared distances to them.
    noise : float
        Deviation of the noise in their distances, in units of a record's mean distance; 0 for none.
    frame : Frame or None
        Frame of the anchors, if all blocks see the same ones without noise.
    """

    space: Space
    anchors: Float64Array
    squared: Float64Array
    noise: float
    frame: Frame | None = None


@dataclass(frozen=True)
class Located:
    """Rows of a block in the frame of its anchors: coordinates inside, and distance from it.

    Attributes
    ----------
    frame : Frame
        Frame of the anchors.
    coordinates : (rows, rank) float64
        Coordinates inside the frame.
    heights : (rows,) float64
        Lengths of the parts outside.
    noisy : bool
        Whether noise was added to the distances, so that the heights are meaningless.
    """

    frame: Frame
    coordinates: Float64Array
    heights: Float64Array
    noisy: bool

    @property
    def residual_lengths(self) -> Float64Array:
        """Lengths of residuals (rows,), if known."""
        return np.zeros_like(self.heights) if self.noisy else self.heights

    @property
    def open_share(self) -> Float64Array:
        """See :class:`Known`."""
        if self.noisy:
            return np.full_like(self.heights, np.nan)
        lengths = np.sqrt((self.coordinates**2).sum(axis=1) + self.heights**2)
        return np.asarray(self.heights / np.where(lengths > 0, lengths, 1.0))


def located(block: SeenAnchors) -> Located:
    """Locate the rows of one block, a task of the server."""
    noise = block.noise * float(np.sqrt(block.squared).mean()) if block.noise else 0.0
    frame = block.frame or block.space.frame(block.anchors, noise)
    return Located(frame, *frame.located(block.squared), noisy=block.noise > 0)


def multisite_points(
    federation: Federation,
    settings: SenseSettings,
    space: Space,
    anchors: Anchors,
    squared: Sequence[Float64Array],
    factors: Sequence[Float64Array],
    levels: Sequence[float],
) -> tuple[Float64Array, Known]:
    """Return points (rows, dimensions) of all records, client by client, from blocks F and G.

    Each client has squared distances (rows, anchors) to the anchors that it sees, the residual factor (rows,
    width) of :func:`raydr.methods.sense.frames.residual_factor`, and the level of its noise.
    """
    seen = AnchorPoints.of(space, anchors, sum(factor.shape[1] for factor in factors))
    blocks = [
        seen.block(client, block, level)
        for client, (block, level) in enumerate(zip(squared, levels, strict=True))
    ]
    places = list(federation.compute(located, blocks))
    aligned = align(
        [place.frame for place in places],
        [place.coordinates for place in places],
        factors,
        federation.stream("alignment"),
        anchors=seen.columns,
        sweeps=SWEEPS if settings.alignment == "likeness" else 0,
        progress=federation.journal.progress,
    )
    points, stress = aligned.points, None
    if settings.solver != "closed-form":
        placed = np.split(points, np.cumsum(federation.sizes)[:-1])
        moved, stress = refined(federation, settings, seen, blocks, placed, placed)
        points = np.concatenate(moved)
    share = np.concatenate([place.open_share for place in places])
    rank = places[0].frame.rank
    return points, Known(
        rank=rank,
        codimension=federation.features - rank,
        open_share=share,
        aligned=aligned,
        narrow=seen.narrow,
        stress=stress,
    )


def pointwise_points(
    federation: Federation,
    settings: SenseSettings,
    space: Space,
    anchors: Anchors,
    squared: Sequence[Float64Array],
    levels: Sequence[float],
) -> tuple[Float64Array, Known]:
    """Return points (rows, dimensions) of all records from block F alone.

    If all records see the same anchors, residuals are laid along one common direction, the smallest possible
    difference between records, and distances are those expected (:func:`_expected`). If each sees its own
    anchors, there is no common direction; all anchors together then give the most likely residuals.
    """
    if anchors.local.size:
        members = [np.array([client]) for client in range(federation.clients)]
    else:
        alike = [np.flatnonzero(np.equal(levels, level)) for level in sorted(set(levels))]
        members = [
            group[start : start + _ROWS_OF_A_TASK]
            for group in alike
            for start in range(0, len(group), _ROWS_OF_A_TASK)
        ]
    # A random start has residuals in all open directions, so the iteration needs all of them.
    seen = AnchorPoints.of(space, anchors, 1 if settings.solver == "closed-form" else federation.features)
    blocks = [
        seen.block(int(group[0]), np.concatenate([squared[client] for client in group]), levels[group[0]])
        for group in members
    ]
    places = list(federation.compute(located, blocks))
    if not anchors.local.size:
        points = [
            place.frame.points(
                place.coordinates, place.residual_lengths[:, None][:, : place.frame.codimension]
            )
            for place in places
        ]
    elif isinstance(space, EuclideanSpace):
        alone = [place for place in places if len(place.coordinates) == 1]
        rows = len(seen.all) if settings.source(federation.public) == "sample" else None
        prior = Prior.of(seen.all).fitted(
            [place.frame for place in alone], [place.coordinates[0] for place in alone], rows
        )
        points = [
            prior.expected(place.frame, place.coordinates, None if place.noisy else place.heights)
            for place in places
        ]
    else:
        points = [
            place.frame.points(place.coordinates, np.zeros((len(place.coordinates), 0))) for place in places
        ]
    stress = None
    if settings.solver != "closed-form":
        points, stress = refined(federation, settings, seen, blocks, points, [None] * len(blocks))
    back = np.argsort(np.concatenate(members), kind="stable")
    share = np.concatenate([place.open_share for place in places])[back]
    first = places[0].frame
    placed, geometry = np.concatenate(points)[back], None
    if not anchors.local.size and first.codimension > 0 and settings.solver == "closed-form":
        coordinates = np.concatenate([place.coordinates for place in places])[back]
        heights = np.concatenate([place.residual_lengths for place in places])[back]
        least_scale = LEAST_SCALE.get(settings.source(federation.public), LEAST_SCALE["sample"])
        if isinstance(space, HyperbolicSpace) or federation.features - first.rank >= LEAST_OPEN:
            geometry = _expected(seen, placed, coordinates, heights, least_scale)
    return placed, Known(
        rank=first.rank,
        codimension=federation.features - first.rank,
        open_share=share,
        aligned=None,
        narrow=seen.narrow,
        geometry=geometry,
        stress=stress,
    )


def _expected(
    seen: AnchorPoints,
    points: Float64Array,
    coordinates: Float64Array,
    heights: Float64Array,
    least_scale: float,
) -> Geometry:
    """Return expected distances between pointwise records that see the same anchors.

    ``points`` (records, dimensions) have all residuals in one direction, ``coordinates`` (records, rank) are those
    in the anchors' hull, and ``heights`` (records,) the lengths of the residuals, 0 if noise hides them.
    """
    if isinstance(seen.space, HyperbolicSpace):
        return ExpectedHyperboloid(points, heights, seen.space.curvature)
    placed = Points(points.astype(np.float32))
    frame = seen.frame
    if not isinstance(frame, AffineFrame) or not heights.any():
        return placed
    curve = fitted_curve(frame.solver, seen.common, coordinates, heights, least_scale)
    return ExpectedPoints(placed, heights, curve)


@dataclass(frozen=True)
class AnchorPoints:
    """Anchors as points at the server.

    Attributes
    ----------
    space : Space
        Space of the records.
    narrow : Narrow
        Coordinate system of the points.
    common, local : float64
        As in :class:`Anchors`, as points.
    frame : Frame or None
        Frame of the common ones, if there are no others.
    """

    space: Space
    narrow: Narrow
    common: Float64Array
    local: Float64Array
    frame: Frame | None

    @classmethod
    def of(cls, space: Space, anchors: Anchors, room: int) -> AnchorPoints:
        """Return the anchors as points, with ``room`` further directions."""
        points = space.points(anchors.all)
        narrow = space.narrow(points, room)
        points = space.narrowed(points, narrow)
        common, local = points[: len(anchors.common)], points[len(anchors.common) :]
        local = local.reshape(*anchors.local.shape[:2], points.shape[1])
        return cls(space, narrow, common, local, None if local.size else space.frame(common))

    @property
    def all(self) -> Float64Array:
        """All anchors, (anchors, dimensions)."""
        return np.concatenate([self.common, self.local.reshape(-1, self.common.shape[1])])

    @property
    def columns(self) -> Float64Array | None:
        """All anchors, if their coordinates are the columns of the data."""
        plain = isinstance(self.space, EuclideanSpace) and self.narrow.basis is None
        return self.all if plain else None

    def visible(self, client: int) -> Int64Array:
        """Return the indices in :attr:`all` of the anchors that a client sees."""
        first, own = len(self.common), self.local.shape[1]
        return np.concatenate([np.arange(first), first + client * own + np.arange(own)])

    def block(self, client: int, squared: Float64Array, noise: float) -> SeenAnchors:
        """Return the observations of a client, or of several that see the same anchors."""
        points = np.concatenate([self.common, self.local[client]]) if self.local.size else self.common
        return SeenAnchors(self.space, points, squared, noise, None if noise else self.frame)


@dataclass(kw_only=True, frozen=True)
class Iteration:
    """One client's problem for an iterative solver.

    Attributes
    ----------
    anchors, squared
        Points that the client sees, and squared distances (rows, anchors) to them.
    own : (rows, dimensions) float64 or None
        Points at the observed distances from each other, in any position; None for pointwise records.
    start : (rows, dimensions) float64
        Initial points.
    """

    space: Space
    anchors: Float64Array
    squared: Float64Array
    own: Float64Array | None
    start: Float64Array
    tolerance: float
    iterations: int


def iterated(block: Iteration) -> tuple[Float64Array, Float64Array]:
    """Return points (rows, dimensions) of one block, by the solver of its space, and the stress of each iteration."""
    if not len(block.start):  # a client without rows
        return block.start, np.zeros(1)
    if isinstance(block.space, HyperbolicSpace):
        within = None
        if block.own is not None:
            within = block.space.squared_distances(block.own, block.own)
        descent = refine(
            block.start,
            block.anchors,
            block.squared,
            within=within,
            curvature=block.space.curvature,
            steps=block.iterations,
            tolerance=block.tolerance,
        )
        return descent.points, descent.history
    placed = smacof(
        block.anchors,
        block.squared,
        block.start,
        inside=block.own,
        tolerance=block.tolerance,
        max_iterations=block.iterations,
    )
    return placed.coordinates, placed.stress


class Iterated(NamedTuple):
    """Points (rows, dimensions) of each block, and their total stress at the start and after each iteration."""

    points: list[Float64Array]
    stress: Float64Array


def together(
    blocks: Sequence[Iteration], visible: Sequence[Int64Array], anchors: Float64Array, progress: Progress
) -> Iterated:
    """Return points of all blocks by algorithm 2 to the letter.

    ``visible`` indexes ``anchors`` (anchors, dimensions).
    """
    first = blocks[0]
    placed = algorithm_2(
        anchors,
        [
            VisibleAnchors(which, block.squared, block.own)
            for which, block in zip(visible, blocks, strict=True)
        ],
        np.concatenate([block.start for block in blocks]),
        tolerance=first.tolerance,
        max_iterations=first.iterations,
        progress=progress,
    )
    ends = np.cumsum([len(block.start) for block in blocks])[:-1]
    return Iterated(np.split(placed.coordinates, ends), placed.stress)


def refined(
    federation: Federation,
    settings: SenseSettings,
    seen: AnchorPoints,
    known: Sequence[SeenAnchors],
    placed: Sequence[Float64Array],
    own: Sequence[Float64Array | None],
) -> Iterated:
    """Return points of each block by iteration, from random points as published, or from the closed form.

    A block that finishes first keeps its stress while the others continue.
    """
    blocks = []
    for number, (block, points, within) in enumerate(zip(known, placed, own, strict=True)):
        space, squared, anchors = block.space, block.squared, block.anchors
        rng = federation.stream(f"start of block {number}")
        if settings.start == "closed-form":
            start = points
        elif isinstance(space, HyperbolicSpace):
            start = random_points(len(squared), anchors, rng)
        else:
            start = random_start(anchors, squared, rng)
        blocks.append(
            Iteration(
                space=space,
                anchors=anchors,
                squared=squared,
                own=within,
                start=start,
                tolerance=settings.tolerance,
                iterations=settings.iterations,
            )
        )
    if settings.solver == "smacof-dense":
        visible = [seen.visible(number) for number in range(len(blocks))]
        return together(blocks, visible, seen.all, federation.journal.progress)
    moved, histories = zip(*federation.compute(iterated, blocks), strict=True)
    longest = max(map(len, histories))
    stress = np.sum([np.pad(each, (0, longest - len(each)), mode="edge") for each in histories], axis=0)
    return Iterated(list(moved), stress)
