"""The density of all records on the map, by one noisy sum: counts in the squares of a grid.

Each client places its records by the landmarks alone, so that a record decides only its own place: with the help of its
neighbours, it would also move theirs. Counts up to twice their noise become 0, which is post-processing.

The number of squares follows from rows and noise. *Measured*, the total variation distance to the density of all
places, smoothed over 1/64 of the width (0.1 of the budget, means of three seeds), by the rows that a square has on
average, in deviations of the noise:

    data, epsilon       0.5      1      2      4
    heart disease, 1  0.614  0.630  0.666  0.719
    heart disease, 4  0.587  0.456  0.438  0.443
    German credit, 4  0.611  0.427  0.376  0.403
    digits, 1         0.605  0.519  0.488  0.551
    digits, 4         0.488  0.358  0.327  0.393
    MNIST, 1          0.636  0.395  0.262  0.242
    MNIST, 4          0.501  0.420  0.287  0.218
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array
from raydr.federation import Client, Federation, Granularity, Range, Reply, Request, answers
from raydr.methods.private_map.messages import Frame, coordinates
from raydr.methods.private_map.placing import Landmarks, place
from raydr.methods.private_map.settings import COUNT_SENSITIVITY
from raydr.privacy import Mechanism, Quantity
from raydr.wire_types import travels

_ROWS_OF_A_SQUARE = 2.0
"""Rows that a square has on average, in deviations of the noise on a count."""
_LEAST = 2.0
"""Least count that is kept, in deviations: of 100 empty squares, 2 are kept."""
_FEWEST, _MOST = 3, 64
"""Squares along a side."""
_MARGIN = 0.1
"""Width of the map beyond its outermost landmarks, as a part of their extent. Records further out count at the edge."""


@travels
@dataclass(frozen=True)
class Grid:
    """Squares that cover the map.

    Attributes
    ----------
    low, high : (2,) float64
        Corners of the map.
    side : int
        Squares along each axis.
    """

    low: Float64Array
    high: Float64Array
    side: int

    @classmethod
    def over(cls, places: Float64Array, rows: int, deviation: float) -> Grid:
        """Return the grid over landmarks' ``places`` (cells, 2), for this many rows and this noise on a count."""
        margin = _MARGIN * np.ptp(places, axis=0) + 1e-9
        side = round(math.sqrt(rows / (_ROWS_OF_A_SQUARE * deviation)))
        return cls(places.min(axis=0) - margin, places.max(axis=0) + margin, min(_MOST, max(_FEWEST, side)))

    def counts(self, places: Float64Array) -> Float64Array:
        """Return the number of places (rows, 2) in each square, (side, side), by first and second coordinate."""
        along = np.floor(self.side * (places - self.low) / (self.high - self.low))
        square = np.clip(along, 0, self.side - 1).astype(np.int64) @ np.array([self.side, 1])
        return np.bincount(square, minlength=self.side**2).astype(np.float64).reshape(self.side, self.side)


@dataclass(frozen=True)
class PlaceCounts(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the number of a client's records in each square of the map",
    covers=("counts",),
):
    """``counts`` (side, side) float64."""

    counts: Float64Array

    @staticmethod
    def ranges(request: PlaceCountsRequest, rows: int) -> dict[str, Range]:
        """Return the range: one client may hold all rows, and all in one square."""
        return {"counts": Range((request.grid.side, request.grid.side), request.rows * (1.0 + 1e-9))}

    def quantities(self, on: str, request: object) -> dict[str, Quantity]:
        """Return the whole reply as one quantity."""
        return {"counts": Quantity(self.counts)}


@dataclass(frozen=True)
class PlaceCountsRequest(Request[PlaceCounts], what="the frame, the landmarks, their map, and squares on it"):
    """Request for the number of records in each square; ``rows`` counts the rows of all clients."""

    frame: Frame
    landmarks: Landmarks
    grid: Grid
    iterations: int
    rows: int
    mechanism: Mechanism | None = None

    def sensitivity(self, rows: int) -> float:
        """Return the sensitivity of the sum: a record counts in one square."""
        return COUNT_SENSITIVITY["zero-out"]

    def replace_sensitivity(self, rows: int) -> float:
        """Return the sensitivity under replacement: a record leaves one square and enters another."""
        return COUNT_SENSITIVITY["replace-one"]


@answers(PlaceCountsRequest)
def place_counts(client: Client, request: PlaceCountsRequest) -> PlaceCounts:
    """Run the client part."""
    points = coordinates(client, request.frame)
    return PlaceCounts(request.grid.counts(place(points, request.landmarks, iterations=request.iterations)))


def density_of(
    federation: Federation,
    frame: Frame,
    landmarks: Landmarks,
    iterations: int,
    noise: Mechanism,
    deviation: float,
) -> dict[str, Float64Array]:
    """Ask for the density and return it as arrays of the model.

    ``noise`` has standard deviation ``deviation`` on a count of the sum. ``density`` (side, side) is the number of rows
    in each square, 0 where it does not exceed twice that deviation. ``density_corners`` (2, 2) are the low and the high
    corner.
    """
    grid = Grid.over(landmarks.places, federation.rows, deviation)
    found = federation.sum(
        PlaceCountsRequest(frame, landmarks, grid, iterations, federation.rows, noise)
    ).counts
    kept = np.where(found > _LEAST * deviation, found, 0.0)
    return {"density": kept, "density_corners": np.stack([grid.low, grid.high])}
