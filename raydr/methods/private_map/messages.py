"""Messages of a private map: three kinds of noisy sums, and positions that stay at the clients.

Neighbouring data sets differ in one record, which adds nothing to the sums or is another record; the numbers
of rows per client are public. Every sum declares how far one record can move it, and the mechanism that
covers it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.federation import Cells, Client, Granularity, Range, Reply, Request, answers
from raydr.fixed_point import EXACT_BITS, GridMatrix, grid_bits, on_grid, shortened
from raydr.geometry.points import row_blocks
from raydr.methods.private_map.placing import Landmarks, OwnRows, own_rows, place
from raydr.methods.private_map.settings import (
    CELL_SENSITIVITY,
    COUNT_WEIGHT,
    FIRST_SENSITIVITY,
    SCATTER_SENSITIVITY,
)
from raydr.privacy import Mechanism, Quantity
from raydr.sparse_rows import AnyRows
from raydr.wire_types import travels

_BLOCK_ROWS = 2048
_BLOCK_VALUES = 2**21
_REACH = 2.0**10
"""Clip norm of wide rows before their features are summed, in units of the clip."""


def blocks_of(rows: AnyRows) -> Iterator[FloatArray]:
    """Yield dense blocks of rows. Sums of rows are exact, so results depend on no block."""
    step = max(1, min(_BLOCK_ROWS, _BLOCK_VALUES // rows.shape[1]))
    return (rows[start:stop] for start, stop in row_blocks(len(rows), step))


@travels
@dataclass(frozen=True)
class View:
    """How clients see rows: relative to a centre, wide ones through random-sign sums of features, clipped.

    Attributes
    ----------
    centre : float
        Subtracted from each feature.
    clip : float
        Clip norm of the rows seen this way, for all uses.
    bucket : (features,) int64 or None
        Sum that each feature goes to; None if there are few enough features to use directly.
    sign : (features,) float64 or None
        Sign of each feature in its sum.
    sums : int
        Number of sums.
    """

    centre: float
    clip: float
    bucket: Int64Array | None
    sign: Float64Array | None
    sums: int

    def of(self, rows: FloatArray) -> Float64Array:
        """Return rows (rows, features) as seen, (rows, sums) float64, with the same expected products.

        The result for a row depends on it alone: sums of features are of integers below 2^53.
        """
        seen = rows.astype(np.float64) - self.centre
        if self.bucket is not None and self.sign is not None:
            order = np.argsort(self.bucket, kind="stable")
            filled, starts = np.unique(self.bucket[order], return_index=True)
            sums = np.zeros((len(seen), self.sums))
            grid = 2.0 ** (EXACT_BITS - 2 - seen.shape[1].bit_length() // 2)
            steps = np.rint(grid * shortened(seen, _REACH * self.clip))
            steps = np.add.reduceat((steps * self.sign)[:, order], starts, axis=1)
            sums[:, filled] = _REACH * self.clip / grid * steps
            seen = sums
        return self.clip * shortened(seen, self.clip)


@travels
@dataclass(frozen=True)
class Frame:
    """Axes from the moments: ``axes`` (sums, axes) float64, orthonormal, relative to ``mean`` (sums,) float64."""

    view: View
    mean: Float64Array
    axes: Float64Array

    def coordinates(self, rows: FloatArray) -> Float64Array:
        """Return rows (rows, features) along the axes, (rows, axes); each result depends on its row alone."""
        axes = GridMatrix.of(self.axes)
        found = [axes.product(self.view.of(block) - self.mean) for block in blocks_of(rows)]
        return np.concatenate(found) if found else np.zeros((0, self.axes.shape[1]))


@dataclass(frozen=True)
class FirstMoments(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the sum of a client's records, and the sum of their squared lengths",
    covers=("packed",),
):
    """``packed`` (sums + 1,) float64: sum of records in units of the clip, then of their squared lengths."""

    packed: Float64Array

    @staticmethod
    def ranges(request: FirstMomentsRequest, rows: int) -> dict[str, Range]:
        """Return the range: one client may hold all rows."""
        return {"packed": Range((request.view.sums + 1,), request.rows * (1.0 + 1e-9))}

    def quantities(self, on: str, request: object) -> dict[str, Quantity]:
        """Return the whole reply as one quantity."""
        return {"packed": Quantity(self.packed)}


@dataclass(frozen=True)
class FirstMomentsRequest(
    Request[FirstMoments], what="the centre from which records are measured, and their clip norm"
):
    """Request for sums of records as seen; ``rows`` counts the rows of all clients."""

    view: View
    rows: int
    mechanism: Mechanism | None = None

    def sensitivity(self, rows: int) -> float:
        """Return the sensitivity of the sum, without a mean's factor 1 / rows."""
        return FIRST_SENSITIVITY["zero-out"]

    def replace_sensitivity(self, rows: int) -> float:
        """Return the sensitivity under replacement."""
        return FIRST_SENSITIVITY["replace-one"]


@answers(FirstMomentsRequest)
def first_moments(client: Client, request: FirstMomentsRequest) -> FirstMoments:
    """Run the client part, with exact sums."""
    view, bits = request.view, grid_bits(request.rows, degree=2)
    total = np.zeros(view.sums + 1)
    for block in blocks_of(client.rows):
        rows = on_grid(view.of(block), view.clip, bits)
        total[:-1] += rows.sum(axis=0)
        total[-1] += float(np.einsum("ij,ij->", rows, rows))
    return FirstMoments(total)


@dataclass(frozen=True)
class Scatter(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the second moments of each pair of features in a client's records",
    covers=("triangle",),
):
    """``triangle`` (sums (sums + 1) / 2,) float64: upper triangle of the sum of x x^T, x in units of the clip."""

    triangle: Float64Array

    @staticmethod
    def ranges(request: ScatterRequest, rows: int) -> dict[str, Range]:
        """Return the range: one client may hold all rows."""
        size = request.mean.size
        return {"triangle": Range((size * (size + 1) // 2,), request.rows * (1.0 + 1e-9))}

    def quantities(self, on: str, request: object) -> dict[str, Quantity]:
        """Return the whole reply; the triangle is sent once, so its noise is symmetric (Dwork et al. 2014)."""
        return {"triangle": Quantity(self.triangle)}


@dataclass(frozen=True)
class ScatterRequest(Request[Scatter], what="the noisy mean, and the clip norm of records measured from it"):
    """Request for second moments around ``mean``."""

    view: View
    mean: Float64Array
    clip: float
    rows: int
    mechanism: Mechanism | None = None

    def sensitivity(self, rows: int) -> float:
        """Return the sensitivity of the sum."""
        return SCATTER_SENSITIVITY["zero-out"]

    def replace_sensitivity(self, rows: int) -> float:
        """Return the sensitivity under replacement."""
        return SCATTER_SENSITIVITY["replace-one"]


@answers(ScatterRequest)
def scatter(client: Client, request: ScatterRequest) -> Scatter:
    """Run the client part, with exact sums."""
    size, bits = request.mean.size, grid_bits(request.rows, degree=2)
    square = np.zeros((size, size))
    for block in blocks_of(client.rows):
        seen = request.view.of(block) - request.mean
        rows = on_grid(seen, request.clip, bits)
        square += rows.T @ rows
    return Scatter(square[np.triu_indices(size)])


@dataclass(frozen=True)
class CellSums(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="for each cell of the frame, the number of a client's records in it and the sum of their"
    " offsets from its centre",
    covers=("residuals", "counts"),
):
    """Sums by cell.

    Attributes
    ----------
    residuals : (cells, axes) float64
        Sums of records relative to the cell's centre, in units of the clip.
    counts : (cells,) float64
        Numbers of records, times ``COUNT_WEIGHT``.
    """

    residuals: Float64Array
    counts: Float64Array

    @staticmethod
    def ranges(request: CellSumsRequest, rows: int) -> dict[str, Range]:
        """Return the range: one client may hold all rows, and all in one cell."""
        largest = request.rows * (1.0 + 1e-9)
        shape = request.centres.shape
        return {"residuals": Range(shape, largest), "counts": Range(shape[:1], largest)}

    def cells(self, request: CellSumsRequest, client: Client) -> tuple[Cells, ...]:
        """Return the number of records in each cell."""
        return (Cells(self.counts / COUNT_WEIGHT),)

    def quantities(self, on: str, request: object) -> dict[str, Quantity]:
        """Return the whole reply as two quantities."""
        return {"residuals": Quantity(self.residuals), "counts": Quantity(self.counts)}


@dataclass(frozen=True)
class CellSumsRequest(Request[CellSums], what="the frame, and the centres of its cells"):
    """Request of one round on cells: each record counts in the cell with the nearest of ``centres`` (cells, axes)."""

    frame: Frame
    centres: Float64Array
    clip: float
    rows: int
    mechanism: Mechanism | None = None

    def sensitivity(self, rows: int) -> float:
        """Return the sensitivity of residuals and counts together."""
        return CELL_SENSITIVITY["zero-out"]

    def replace_sensitivity(self, rows: int) -> float:
        """Return the sensitivity under replacement."""
        return CELL_SENSITIVITY["replace-one"]


@answers(CellSumsRequest)
def cell_sums(client: Client, request: CellSumsRequest) -> CellSums:
    """Run the client part: the cell of a row depends on the row alone, and sums are exact."""
    centres, points = request.centres, coordinates(client, request.frame)
    residuals, counts = np.zeros(centres.shape), np.zeros(len(centres))
    directions, bits = GridMatrix.of(centres.T), grid_bits(request.rows)
    halves = np.einsum("ij,ij->i", centres, centres) / 2.0
    for start in range(0, len(points), _BLOCK_ROWS):
        block = points[start : start + _BLOCK_ROWS]
        nearest = np.argmax(directions.product(block) - halves, axis=1)
        np.add.at(residuals, nearest, on_grid(block - centres[nearest], request.clip, bits))
        counts += np.bincount(nearest, minlength=len(centres))
    return CellSums(residuals, COUNT_WEIGHT * counts)


@dataclass(frozen=True)
class Places(
    Reply,
    granularity=Granularity.PER_RECORD,
    what="the position of each record on the map, which its client keeps",
    stays=True,
):
    """``places`` (rows, 2) float64: for the client itself, and in a simulation for the evaluation."""

    places: Float64Array

    @staticmethod
    def ranges(request: PlaceRequest, rows: int) -> dict[str, Range]:
        """Return the range: a position for each row."""
        return {"places": Range((rows, 2))}


@dataclass(frozen=True)
class PlaceRequest(Request[Places], what="the frame, the landmarks, and the map of the landmarks"):
    """Request to place a client's rows; ``own`` and ``iterations`` as in the settings; whether landmarks are drawn."""

    frame: Frame
    landmarks: Landmarks
    own: float
    iterations: int
    drawn: bool = False


@answers(PlaceRequest)
def places(client: Client, request: PlaceRequest) -> Places:
    """Run the client part."""
    return Places(placed_rows(client.rows, coordinates(client, request.frame), request))


def placed_rows(rows: FloatArray, points: Float64Array, request: PlaceRequest) -> Float64Array:
    """Return positions (rows, 2) of a client's rows (rows, features); ``points`` (rows, axes) are their coordinates."""
    own: OwnRows | None = None
    if request.own and len(rows):
        seen = np.concatenate([request.frame.view.of(block) for block in blocks_of(rows)])
        own = own_rows(seen, request.own, drawn=request.drawn)
    return place(points, request.landmarks, own, iterations=request.iterations)


def coordinates(client: Client, frame: Frame) -> Float64Array:
    """Return rows along the axes, computed once for all rounds."""
    made_of = blake2b(frame.mean.tobytes() + frame.axes.tobytes()).digest()
    kept = client.memory.get("private map")
    if kept is None or kept[0] != made_of or kept[1] is not client.rows:
        kept = client.memory["private map"] = made_of, client.rows, frame.coordinates(client.rows)
    return np.asarray(kept[2])
