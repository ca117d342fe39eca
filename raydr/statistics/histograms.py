"""Histograms of columns: noisy counts of a client's records by bin, for all columns in one release.

A record is in one bin of each column: missing, numbers between edges, or the code of a word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.data.survey.raw_cells import CODES, RawColumn
from raydr.federation import Client, Granularity, Range, Reply, Request, answers
from raydr.privacy import Mechanism, Quantity

_ROUNDING = 1.0 + 1e-9


def sensitivity(columns: int, relation: str) -> float:
    """Return how far one record moves the histogram of this many columns: one bin of each column, or two.

    >>> round(sensitivity(9, "zero-out"), 6), round(sensitivity(8, "replace-one"), 6)
    (3.0, 4.0)
    """
    return math.sqrt(columns if relation == "zero-out" else 2 * columns) * _ROUNDING


def bins(rows: FloatArray, column: RawColumn, edges: Float64Array) -> Int64Array:
    """Return the bin (rows,) of each row in a column, by the row alone: missing, numbers between edges, words.

    >>> bins(np.array([[np.nan], [-5.0], [0.5], [2.0]]), RawColumn("age", 0), np.array([0.0, 1.0])).tolist()
    [0, 1, 2, 3]
    """
    numbers = np.asarray(rows[:, column.number], np.float64)
    missing = np.isnan(numbers)
    found = np.where(missing, 0, 1 + np.searchsorted(edges, numbers, side="right"))
    if column.word is not None:
        codes = np.asarray(rows[:, column.word], np.float64)
        word = missing & (codes >= 0) & (codes < CODES)
        found = np.where(word, len(edges) + 2 + np.nan_to_num(codes).astype(np.int64), found)
    return np.asarray(found, np.int64)


def bins_of(column: RawColumn, edges: Float64Array) -> int:
    """Return the number of bins of a column."""
    return len(edges) + 2 + (0 if column.word is None else CODES)


@dataclass(frozen=True)
class Histograms(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="for each column and each bin of a fixed grid, the number of a client's records: missing, zero, numbers by"
    " size, words by hash code",
    covers=("counts",),
):
    """``counts`` (bins of all columns,) float64."""

    counts: Float64Array

    @staticmethod
    def ranges(request: HistogramsRequest | RangeHistogramsRequest, rows: int) -> dict[str, Range]:
        """Return the range: one client may hold all rows."""
        width = sum(map(bins_of, request.columns, request.edges))
        return {"counts": Range((width,), request.rows * (1.0 + 1e-9))}

    def quantities(self, on: str, request: object) -> dict[str, Quantity]:
        """Return the whole reply as one quantity."""
        return {"counts": Quantity(self.counts)}


@dataclass(frozen=True)
class HistogramsRequest(Request[Histograms], what="columns, and the edges of the bins of each"):
    """Request for the histograms of columns by the edges of their bins; ``rows`` counts the rows of all clients."""

    columns: tuple[RawColumn, ...]
    edges: tuple[Float64Array, ...]
    rows: int
    mechanism: Mechanism | None = None

    def sensitivity(self, rows: int) -> float:
        """Return the sensitivity of all histograms together."""
        return sensitivity(len(self.columns), "zero-out")

    def replace_sensitivity(self, rows: int) -> float:
        """Return the sensitivity under replacement."""
        return sensitivity(len(self.columns), "replace-one")


@answers(HistogramsRequest)
def histograms(client: Client, request: HistogramsRequest) -> Histograms:
    """Run the client part of the first release."""
    return Histograms(_counted(client.rows, request.columns, request.edges))


@dataclass(frozen=True)
class RangeHistograms(
    Histograms,
    granularity=Granularity.AGGREGATE,
    what="for each column of numbers and each of 16 to 128 equal bins of its range, the number of a client's records",
    covers=("counts",),
):
    """Counts of the second release."""


@dataclass(frozen=True)
class RangeHistogramsRequest(
    Request[RangeHistograms], what="columns of numbers, and the edges of the bins of each"
):
    """Request of the second release, as :class:`HistogramsRequest`."""

    columns: tuple[RawColumn, ...]
    edges: tuple[Float64Array, ...]
    rows: int
    mechanism: Mechanism | None = None

    def sensitivity(self, rows: int) -> float:
        """Return the sensitivity of all histograms together."""
        return sensitivity(len(self.columns), "zero-out")

    def replace_sensitivity(self, rows: int) -> float:
        """Return the sensitivity under replacement."""
        return sensitivity(len(self.columns), "replace-one")


@answers(RangeHistogramsRequest)
def range_histograms(client: Client, request: RangeHistogramsRequest) -> RangeHistograms:
    """Run the client part of the second release."""
    return RangeHistograms(_counted(client.rows, request.columns, request.edges))


def _counted(rows: FloatArray, columns: Sequence[RawColumn], edges: Sequence[Float64Array]) -> Float64Array:
    """Return the exact counts by bin, one column after the other."""
    counts = [
        np.bincount(bins(rows, column, inner), minlength=bins_of(column, inner))
        for column, inner in zip(columns, edges, strict=True)
    ]
    return np.concatenate(counts).astype(np.float64)


def by_column(
    counts: Float64Array, columns: Sequence[RawColumn], edges: Sequence[Float64Array]
) -> list[Float64Array]:
    """Return the counts of each column."""
    return np.split(counts, np.cumsum(list(map(bins_of, columns, edges)))[:-1])
