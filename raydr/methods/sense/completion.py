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
from raydr.geometry.points import Progress
from raydr.geometry.trilateration import EXACT_SHARE
from raydr.methods.outcome import Note
from raydr.methods.sense.algorithm_2 import VisibleAnchors, algorithm_2
from raydr.methods.sense.alignment import SWEEPS, Aligned, align
from raydr.methods.sense.anchors import Anchors, AnchorSource
from raydr.methods.sense.frames import Frame
from raydr.methods.sense.lorentz_descent import random_start as random_points
from raydr.methods.sense.lorentz_descent import refine
from raydr.methods.sense.observations import Observations
from raydr.methods.sense.prior import Prior
from raydr.methods.sense.reduced_basis import Narrow
from raydr.methods.sense.settings import SenseSettings
from raydr.methods.sense.smacof import random_start, smacof
from raydr.methods.sense.spaces import EuclideanSpace, HyperbolicSpace, Space
from raydr.privacy.mechanism import Coverage

_ROWS_OF_A_TASK = 256
"""Pointwise records per task: with fewer, overhead dominates."""


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
    heights : (records,) float64 or None
        Lengths of residuals that have a common direction only because their own is unknown.
    stress : (iterations + 1,) float64 or None
        Stress at the start and after each iteration, if the solver iterates.
    """

    rank: int
    codimension: int
    open_share: Float64Array
    aligned: Aligned | None
    narrow: Narrow
    heights: Float64Array | None = None
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

    If all records see the same anchors, residuals are laid along one common direction: the smallest possible
    difference between records. If each sees its own anchors, there is no common direction; all anchors
    together then give the most likely residuals.
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
    seen = AnchorPoints.of(space, anchors, 1)
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
    common = not anchors.local.size and first.codimension > 0 and settings.solver == "closed-form"
    heights = np.concatenate([place.residual_lengths for place in places])
    return np.concatenate(points)[back], Known(
        rank=first.rank,
        codimension=federation.features - first.rank,
        open_share=share,
        aligned=None,
        narrow=seen.narrow,
        heights=heights[back] if common else None,
        stress=stress,
    )


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


_SOURCES: dict[AnchorSource, str] = {
    "sample": "rows of the data that were set apart",
    "random": "drawn at random, as wide as the data",
    "learnt": "learnt from all clients' rows",
    "file": "from a file",
}


def notes(
    settings: SenseSettings,
    observations: Observations,
    known: Known,
    source: AnchorSource,
    coverage: Coverage | None = None,
) -> tuple[Note, ...]:
    """Return notes on what the anchors protect and what they reveal, from what the server received in this run."""
    seen, open_ones = observations.seen_by_each, known.codimension
    paragraphs = [
        f"Each client sent the server the distance of every record to {seen} anchors, {_SOURCES[source]}, in a space"
        f" of {known.rank + open_ones} dimensions. The anchors span {known.rank} of them. Within the span, the server"
        " can compute each record's coordinates by solving linear equations."
        + (
            f" Outside it, {open_ones} dimension{'s' if open_ones > 1 else ''} stay{'s' if open_ones == 1 else ''}"
            " open (P3, theorems 3.1 and 3.2): another record that differs there could have the same distances. This"
            " does not mean that a record is hidden."
            if open_ones
            else f" They leave no dimension open{', so distances hide nothing' if coverage is None else ''}."
        )
    ]
    share = known.open_share[~np.isnan(known.open_share)]
    within = int((share < EXACT_SHARE).sum())
    if coverage is not None:
        paragraphs.append(
            f"{coverage.mechanism.words} was added by {coverage.count(len(observations.sizes))} of"
            f" {len(observations.sizes)} clients. It blurs what the server can learn about their records, but raydr"
            " does not bound by how much: no differential privacy is claimed."
        )
    if len(share):
        spoilt = len(known.open_share) - len(share)
        paragraphs.append(
            f"Here {within:,} of {len(share):,} records ({within / len(share):.0%})"
            + (" of clients without noise" if spoilt else "")
            + f" lie within {EXACT_SHARE:.1%} of the span. The server knows which, and can reconstruct them, feature by"
            + " feature"
            + (", including their noise" if coverage is not None and coverage.mechanism.on == "data" else "")
            + f". For the median record, {np.median(share):.2%} of its distance from the anchors' mean is left open."
        )
    if known.aligned is not None and open_ones:
        between = observations.count - seen * observations.records
        aligned = known.aligned
        turned, settled = int(aligned.turned.sum()), int(aligned.settled.sum())
        clients = len(aligned.turned)
        paragraphs.append(
            f"The {between:,} distances between records of the same client add the shape of the open part, up to a"
            f" rotation. From the similarity of records, the server rotated the open parts of {turned} of {clients}"
            f" clients to fit the others'"
            + (
                f": {settled} of them with confidence, because each half of the other clients confirms the rotation"
                + (f", and {turned - settled} by the likeliest rotation" if settled < turned else "")
                if turned
                else ""
            )
            + "."
            + (
                " If a client's open part is rotated wrongly, the distances between its records and those of other"
                " clients are wrong too."
                if settled < clients - 1
                else ""
            )
            + f" With {known.rank + open_ones + 1} anchors that span all dimensions, nothing would stay open: the"
            " geometry would be exact, and the server could reconstruct every record."
        )
        if aligned.recurring:
            paragraphs[-1] += (
                f" Values recur in {aligned.recurring} columns, as counts and codes do, and only if the open part is"
                " rotated as in the data. So assume that the server knows the open part, feature by feature."
            )
        if turned > 1 and settings.visibility == "partial":
            paragraphs[-1] += (
                " The clients see different anchors, so the anchors of one client cover what those of another leave"
                " open. Rotated parts point as they do in the data, and the server's points are closer to the records"
                " than the open part suggests."
            )
        elif turned > 1:
            paragraphs[-1] += " One rotation stays unknown for these clients together, not one for each."
    if settings.regime == "pointwise" and open_ones:
        paragraphs.append(_directions(open_ones, len(share) - within, len(share), known.rank + open_ones + 1))
    if settings.regime == "pointwise" and open_ones and settings.visibility == "full":
        paragraphs[-1] += (
            " From these messages alone, no method can find the open part of the distance between two records, so it"
            " is guessed. More anchors make the map more faithful."
        )
    if settings.regime == "pointwise" and open_ones and settings.visibility == "partial":
        paragraphs.append(
            "The distances of other records do not determine the open part of a record. The server fills it in with"
            + (
                " a Gaussian, because all records together reveal how the features are correlated."
                if settings.geometry == "euclidean"
                else " zero."
            )
            + " No message shows how far this is from the true record. More anchors make the map more faithful."
        )
    return (Note("What the anchors reveal, and what they leave open", "\n\n".join(paragraphs)),)


def _directions(open_ones: int, off: int, compared: int, enough: int) -> str:
    """Explain why the open part of pointwise records has no direction.

    ``off`` of the ``compared`` records reach into it.
    """
    text = "A record's distances determine the length of its open part, but "
    if open_ones == 1:
        text += "not on which side of the span it lies: its mirror image has the same distances."
    else:
        text += "not its direction: all directions fit the distances exactly."
    if compared:
        text += f" Of {compared:,} records, this leaves {off:,} open, those off the span" + (
            ", with two images each." if open_ones == 1 else "."
        )
    return f"{text} {enough} anchors in general position leave nothing open and hide nothing."
