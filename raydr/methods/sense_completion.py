"""What the server of SENSE makes of the clients' distances: points, one block of clients at a time.

Each block is work of its own (:meth:`raydr.federation.Federation.compute`): no step needs all pairs of records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from raydr.arrays import Float64Array
from raydr.completion.alignment import LEAST_CORRELATION, align
from raydr.completion.frames import Frame
from raydr.completion.lorentz_descent import random_start as random_points
from raydr.completion.lorentz_descent import refine
from raydr.completion.smacof import random_start, smacof
from raydr.completion.spaces import HyperbolicSpace, Space
from raydr.federation import Federation
from raydr.methods.anchors import Anchors
from raydr.methods.outcome import Note
from raydr.methods.sense_settings import SENSE

_TOLD = 1e-3
"""Share of a record's distance from the anchors' mean up to which it counts as known: a thousandth."""
_ROWS_OF_A_TASK = 256
"""Pointwise records that one task places: less would be all overhead."""


@dataclass(frozen=True)
class Known:
    """How far the anchors alone determine each record.

    Attributes
    ----------
    rank, codimension : int
        Dimensions that the anchors of the first client span, and dimensions beside those.
    open_share : (records,) float64
        Distance of each record from the anchors' span over its distance from their mean: 0 where the server knows
        the record feature by feature.
    aligned : (clients,) float64
        Correlation of each client's residuals with those of others; empty where there are none.
    """

    rank: int
    codimension: int
    open_share: Float64Array
    aligned: Float64Array


Task: TypeAlias = tuple[Space, Float64Array, Float64Array]
"""What the server knows of a client, or of pointwise clients that see the same anchors: the space, the anchors as rows
of features (anchors, features), and squared distances (rows, anchors)."""


@dataclass(frozen=True)
class Located:
    """Rows of one client in the frame of its anchors."""

    frame: Frame
    coordinates: Float64Array
    heights: Float64Array

    @property
    def open_share(self) -> Float64Array:
        """See :class:`Known`."""
        lengths = np.sqrt((self.coordinates**2).sum(axis=1) + self.heights**2)
        return np.asarray(self.heights / np.where(lengths > 0, lengths, 1.0))


def located(task: Task) -> Located:
    """The server's work on one block."""
    space, anchors, squared = task
    frame = space.frame(space.points(anchors))
    return Located(frame, *frame.located(squared))


def multisite_points(
    federation: Federation,
    settings: SENSE,
    anchors: Anchors,
    squared: Sequence[Float64Array],
    factors: Sequence[Float64Array],
) -> tuple[Float64Array, Known]:
    """Points (rows, dimensions) of all records, client by client, from blocks F and G.

    Of each client there are squared distances (rows, anchors) to the anchors that it sees, and the residual factor
    (rows, width) of :func:`raydr.completion.frames.residual_factor`.
    """
    space = settings.space
    tasks = [(space, anchors.seen_by(client), block) for client, block in enumerate(squared)]
    places = list(federation.compute(located, tasks))
    aligned = align(
        [place.frame for place in places],
        [place.coordinates for place in places],
        factors,
        federation.stream("alignment"),
    )
    points = aligned.points
    if settings.solver == "smacof":
        placed = np.split(points, np.cumsum(federation.sizes)[:-1])
        points = np.concatenate(refined(federation, settings, tasks, placed, placed))
    first = places[0].frame
    share = np.concatenate([place.open_share for place in places])
    return points, Known(first.rank, first.codimension, share, aligned.correlations)


def pointwise_points(
    federation: Federation, settings: SENSE, anchors: Anchors, squared: Sequence[Float64Array]
) -> tuple[Float64Array, Known]:
    """Points (rows, dimensions) of all records from block F alone.

    Where all records see the same anchors, what their distances leave over is laid along one common direction: the
    least that records can differ in it. Measured, F-score of German credit with d - 1 anchors: 0.994, without it 0.932.
    Where each sees anchors of its own, no direction is common, and it is left out.
    """
    space = settings.space
    if anchors.local.size:
        tasks = [(space, anchors.seen_by(client), block) for client, block in enumerate(squared)]
    else:
        stacked = np.concatenate(squared)
        tasks = [
            (space, anchors.common, stacked[start : start + _ROWS_OF_A_TASK])
            for start in range(0, len(stacked), _ROWS_OF_A_TASK)
        ]
    places = list(federation.compute(located, tasks))
    common = not anchors.local.size and places[0].frame.codimension > 0
    points = [
        place.frame.points(
            place.coordinates, place.heights[:, None] if common else place.heights[:, None][:, :0]
        )
        for place in places
    ]
    if settings.solver == "smacof":
        points = refined(federation, settings, tasks, points, [None] * len(tasks))
    first = places[0].frame
    share = np.concatenate([place.open_share for place in places])
    return np.concatenate(points), Known(first.rank, first.codimension, share, np.zeros(0))


@dataclass(frozen=True)
class Iteration:
    """One client's problem for an iterative solver.

    Attributes
    ----------
    anchors, squared
        Points that the client sees, and squared distances (rows, anchors) to them.
    own : (rows, dimensions) float64 or None
        Points at the observed distances from each other, wherever they may lie; None for pointwise records.
    start : (rows, dimensions) float64
        First points.
    """

    space: Space
    anchors: Float64Array
    squared: Float64Array
    own: Float64Array | None
    start: Float64Array
    tolerance: float
    iterations: int


def iterated(block: Iteration) -> Float64Array:
    """Points (rows, dimensions) of one block, by the solver of its space."""
    if isinstance(block.space, HyperbolicSpace):
        within = None
        if block.own is not None:
            within = np.sqrt(block.space.squared_distances(block.own, block.own))
        return refine(
            block.start,
            block.anchors,
            block.squared,
            within=within,
            curvature=block.space.curvature,
            steps=block.iterations,
            tolerance=block.tolerance,
        ).points
    return smacof(
        block.anchors,
        block.squared,
        block.start,
        inside=block.own,
        tolerance=block.tolerance,
        max_iterations=block.iterations,
    ).coordinates


def refined(
    federation: Federation,
    settings: SENSE,
    tasks: Sequence[Task],
    placed: Sequence[Float64Array],
    own: Sequence[Float64Array | None],
) -> list[Float64Array]:
    """Points of each block by iteration, from random points, as published, or from where the closed form put them."""
    blocks = []
    for number, ((space, anchors, squared), points, within) in enumerate(
        zip(tasks, placed, own, strict=True)
    ):
        seen = space.points(anchors)
        rng = federation.stream(f"start of block {number}")
        if settings.start == "closed-form":
            start = points
        elif isinstance(space, HyperbolicSpace):
            start = random_points(len(squared), seen, rng)
        else:
            start = random_start(seen, squared, rng)
        blocks.append(Iteration(space, seen, squared, within, start, settings.tolerance, settings.iterations))
    return list(federation.compute(iterated, blocks))


def notes(settings: SENSE, anchors: Anchors, known: Known) -> tuple[Note, ...]:
    """What the anchors protect and what they do not, from what the server saw in this run."""
    share = known.open_share
    told = int((share < _TOLD).sum())
    paragraphs = [
        f"Each client showed the server the distance of every record to {anchors.seen_by_each} anchors in a space of"
        f" {known.rank + known.codimension} dimensions. The anchors span {known.rank} of them, and in those the server"
        " can tell each record's coordinates by solving linear equations. Fewer anchors than dimensions (P3, theorems"
        " 3.1 and 3.2) mean that another record could have the same distances: one that differs in the"
        f" {known.codimension} dimensions beside the span. They do not mean that a record is hidden.",
        f"Here {told:,} of {len(share):,} records ({told / len(share):.0%}) lie within {_TOLD:.1%} of the span, and the"
        " server knows that they do: it can write them down, feature by feature. For the median record,"
        f" {np.median(share):.2%} of its distance from the anchors' mean is left open.",
    ]
    if settings.regime == "multisite" and known.codimension:
        turned = int((known.aligned > LEAST_CORRELATION).sum())
        paragraphs.append(
            "The distances between a client's own records add the shape of that open part, up to a rotation. By the"
            f" likeness of records, the server turned {turned} of {len(known.aligned)} clients' open parts to fit the"
            " others'."
        )
    return (Note("What the anchors tell, and what they leave open", "\n\n".join(paragraphs)),)
