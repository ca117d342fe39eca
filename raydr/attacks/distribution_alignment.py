"""Distribution alignment: rows of similar data undo a secret frame, without any known record.

The server has the records up to an isometry (:mod:`raydr.attacks.point_cloud`), and rows of similar data.
Both clouds have the same principal axes up to their signs. Third moments give the signs, and then rotations
bring each record near to a public row (nearest-neighbour Procrustes).

Measured on 40,000 rows of MNIST under a secret rotation, with 10,000 other rows and 100 axes: the median
error is 0.25 of a record's length. Guessing has 0.78, and the best 100 axes 0.22.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.attacks.contract import Estimate, Piece, Reconstruction, Side, View, attack
from raydr.attacks.point_cloud import Cloud, cloud
from raydr.attacks.principal import Axes, principal_axes

MOST_AXES = 100
CURVE = (30, 100, 300, 1_000, 3_000)
"""Numbers of public rows to try, next to all public rows."""
LEAST_PUBLIC = 20
_FITTED_ROWS = 5_000
"""Records used to find the rotation. With 10,000, the error falls by 0.003 (MNIST) in three times the time."""
_STAGES = ((20, 4), (50, 4), (MOST_AXES, 8))
"""Axes used to find neighbours, and steps with each number of axes. The first axes are the easiest to identify."""
_TRIED = 6  # axes for which every choice of signs is tried
_TRIAL_ROWS = 500
_BLOCK = 2048


@attack(
    "distribution-alignment", "records whose frame is secret, from rows of similar data and no known record"
)
def distribution_alignment(view: View, side: Side) -> Iterator[Reconstruction]:
    """Make one attempt for each number of public rows."""
    found = cloud(view)
    side.require_public(LEAST_PUBLIC)
    yield from attempts(
        found, side, [*(count for count in CURVE if count < len(side.public)), len(side.public)]
    )


def attempts(found: Cloud, side: Side, counts: list[int]) -> Iterator[Reconstruction]:
    """Place a cloud by public rows, once for each number of rows."""
    hidden = principal_axes(found.points, MOST_AXES, side.seed)
    coordinates = hidden.coordinates(found.points)
    for count in counts:
        piece = aligned(found.rows, coordinates, side.public[:count], side.seed)
        yield Reconstruction(
            uses=(found.kind,),
            knows=f"the distances between records that follow from the messages, and {count:,} rows of similar data,"
            " but no record and not the frame",
            variant=f"{count:,} public rows",
            numbers={"public_rows": count, "axes": piece.coordinates.shape[1]},
            estimate=Estimate((piece,)),
            guess=np.asarray(side.public[:count].mean(axis=0, dtype=np.float64)),
        )


@dataclass(frozen=True)
class _Clouds:
    """Coordinates of records (rows, axes) and of public rows (public rows, axes), each along its own axes."""

    hidden: Float64Array
    public: Float64Array


def aligned(rows: Int64Array, coordinates: Float64Array, public: FloatArray, seed: int) -> Piece:
    """Estimate records from their coordinates along their principal axes, by rows of similar data."""
    most = min(coordinates.shape[1], MOST_AXES, len(public) // 4)
    axes: Axes = principal_axes(public, most, seed)
    count = len(axes.basis)
    clouds = _Clouds(coordinates[:, :count], axes.coordinates(public))
    turned = clouds.hidden @ _rotation(clouds, seed)
    return Piece(rows, axes.mean, turned, axes.basis)


def _rotation(clouds: _Clouds, seed: int) -> Float64Array:
    """Return the orthogonal matrix (axes, axes) that turns the hidden cloud onto the public one."""
    count = clouds.public.shape[1]
    random = np.random.default_rng((seed, 2))
    some = clouds.hidden[random.permutation(len(clouds.hidden))[:_FITTED_ROWS]]
    turn = np.diag(_signs(some, clouds.public))
    for axes, steps in _STAGES:
        for _ in range(steps):
            moved = some @ turn
            near = _nearest(moved[:, :axes], clouds.public[:, :axes])
            left, _, right = np.linalg.svd(some.T @ clouds.public[near])
            turn = left @ right
        if axes >= count:
            break
    return turn


def _signs(hidden: Float64Array, public: Float64Array) -> Float64Array:
    """Return the sign of each axis (axes,), by third moments.

    For the first axes, use the signs with the nearest clouds.
    """
    signs = np.where(_skewness(hidden) * _skewness(public) < 0.0, -1.0, 1.0)
    tried = min(_TRIED, len(signs))
    some, there = hidden[:_TRIAL_ROWS, :tried], public[:, :tried]
    best, least = signs[:tried], np.inf
    for choice in range(2**tried):
        flips = np.where((choice >> np.arange(tried)) & 1, -1.0, 1.0) * signs[:tried]
        moved = some * flips
        apart = float(np.sqrt(((moved - there[_nearest(moved, there)]) ** 2).sum(axis=1)).mean())
        if apart < least * (1.0 - 1e-6):
            best, least = flips, apart
    return np.concatenate([best, signs[tried:]])


def _skewness(coordinates: Float64Array) -> Float64Array:
    centred = coordinates - coordinates.mean(axis=0)
    deviation = np.sqrt((centred**2).mean(axis=0))
    return np.asarray(
        (centred**3).mean(axis=0) / np.maximum(deviation, np.finfo(np.float64).tiny ** 0.25) ** 3
    )


def _nearest(moved: Float64Array, fixed: Float64Array) -> Int64Array:
    """Return the fixed point nearest to each moved one, in single precision, because near ties do not matter."""
    scale = np.float32(1.0 / max(float(np.abs(fixed).max()), 1e-30))
    there = fixed.astype(np.float32) * scale
    lengths = (there**2).sum(axis=1)
    found = np.empty(len(moved), np.int64)
    for start in range(0, len(moved), _BLOCK):
        block = moved[start : start + _BLOCK].astype(np.float32) * scale
        found[start : start + _BLOCK] = (lengths - 2.0 * block @ there.T).argmin(axis=1)
    return found
