"""Novelty for methods whose server knows moments of the rows and no distances: by principal axes and counts.

A row x has two distances from the mean m of the mapped rows: along orthonormal axes A, in units of the deviations d,
and away from them, in units of the root mean square l of what the axes leave out. With q axes of n features, its score
s has

    s^2 = |(A^T (x - m)) / d|^2 + sqrt(q (n - q)) |(I - A A^T) (x - m)|^2 / l^2.

Without axes, s = |x - m| / l. The weight lies between q, with which both distances count alike, and n - q, with which
every direction does. *Measured* with two axes of MNIST: with q, only 0.005 of rows with permuted columns are novel.
With n - q, 0.083 of rows moved by 8 deviations along the first axis are. With the weight above, 0.81 and 0.94.

Clients count their rows by score, and the server receives the sum of the counts. The model keeps every fifth score, as
in :mod:`raydr.methods.novelty`, each as the upper edge of its bin: this makes rows look less novel, never more. Mapped
rows are not left out here. Mean and few axes follow from all of them, so that new rows score hardly higher.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.federation import Cells, Client, Federation, Granularity, Range, Reply, Request, answers
from raydr.geometry.blocks import in_blocks
from raydr.geometry.points import value_blocks
from raydr.methods.novelty import AXES, EACH, LEAST_ROWS, MOST_SCORED, SCORED, SCORES, UNITS, compared, ranked
from raydr.privacy.microdata import merged_counts
from raydr.sparse_rows import SparseRows
from raydr.statistics.principal_axes import PrincipalAxes

_PER_OCTAVE, _LOWEST, _HIGHEST = 64, -1, 4
"""Bins of scores: in each octave, and the first and last octave, in root mean squares. At most one row in 256 has a
score above the last."""
_EDGES = np.exp2(np.arange(_LOWEST * _PER_OCTAVE, _HIGHEST * _PER_OCTAVE + 1) / _PER_OCTAVE)
_ROUNDING = 1e-6
"""Deviation, in units of all rows' spread, below which rows do not vary."""


@dataclass(frozen=True)
class ScoreCounts(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="how many of a client's records are how far from the mean, along the principal axes and away from them",
):
    """``counts`` (bins,) int64 of one client's rows."""

    counts: Int64Array

    @staticmethod
    def ranges(request: ScoreCountsRequest, rows: int) -> dict[str, Range]:
        """Bound each count by the rows of the largest client."""
        return {"counts": Range((len(_EDGES) + 1,), float(request.most_rows), "int64")}

    def cells(self, request: ScoreCountsRequest, client: Client) -> tuple[Cells, ...]:
        """Return the number of records in each bin."""
        return (Cells(self.counts),)

    def merged(self, request: ScoreCountsRequest, least: int) -> ScoreCounts:
        """Return the counts with neighbouring bins merged."""
        return ScoreCounts(merged_counts(self.counts, least))


@dataclass(frozen=True)
class ScoreCountsRequest(
    Request[ScoreCounts], what="the mean, the first principal axes of all rows and the deviations along them"
):
    """Request for counts of rows by score.

    Attributes
    ----------
    mean : (features,) float64
        Mean of all rows.
    axes : (features, axes) float64
        Orthonormal axes.
    units : (axes + 1,) float64
        Deviations along the axes, and root mean square length of what they leave out; 0 if they leave nothing out.
    most_rows : int
        Rows of the largest client.
    """

    mean: Float64Array
    axes: Float64Array
    units: Float64Array
    most_rows: int


@answers(ScoreCountsRequest)
def count_scores(client: Client, request: ScoreCountsRequest) -> ScoreCounts:
    """Client part, in float64."""
    edges = _width(request.axes, request.units) * _EDGES
    counts = np.zeros(len(_EDGES) + 1, np.int64)
    rows = client.rows
    for block in rows.blocks() if isinstance(rows, SparseRows) else [rows]:
        for start, stop in value_blocks(*block.shape):
            found = _scores(block[start:stop] - request.mean, request.axes, request.units)
            counts += np.bincount(np.searchsorted(edges, found), minlength=len(counts))
    return ScoreCounts(counts)


def _scores(rows: FloatArray, axes: Float64Array, units: Float64Array) -> Float64Array:
    """Return the score (rows,) of rows (rows, features) relative to the mean."""
    along = rows @ axes  # in double precision, as the axes are
    squared = ((along / units[:-1]) ** 2).sum(axis=1)
    if units[-1]:
        # Rounding is far below the unit, which is at least a millionth of the rows' spread.
        away = np.einsum("ij,ij->i", rows, rows, dtype=np.float64) - (along**2).sum(axis=1)
        squared += _weight(axes) / units[-1] ** 2 * np.maximum(away, 0.0)
    return np.asarray(np.sqrt(squared))


def _weight(axes: Float64Array) -> float:
    """Return the weight of the squared distance away from the axes (features, axes)."""
    features, count = axes.shape
    return math.sqrt(count * (features - count)) if count else 1.0


def _width(axes: Float64Array, units: Float64Array) -> float:
    """Return the root mean square of the mapped rows' scores."""
    return math.sqrt(axes.shape[1] + (_weight(axes) if units[-1] else 0.0))


def novelty_model(
    federation: Federation, mean: Float64Array, axes: PrincipalAxes, variance: float
) -> dict[str, FloatArray]:
    """Return what new rows are compared with, as arrays of a model; empty under noise, or for few rows.

    Parameters
    ----------
    federation : Federation
        Clients, each of which counts its rows once.
    mean : (features,) float64
        Mean of all rows.
    axes : PrincipalAxes
        Of all rows; there may be none. Axes along which the rows do not vary are left out.
    variance : float
        Sum of the variances of all features.
    """
    if not _asked(federation):
        return {}
    count = int((axes.deviations > _ROUNDING * math.sqrt(variance)).sum())
    chosen, deviations = axes.directions[:, :count], axes.deviations[:count]
    away = math.sqrt(max(variance - float((deviations**2).sum()), _ROUNDING**2 * variance))
    units = np.append(deviations, away if count < len(mean) else 0.0)
    counts = federation.sum(ScoreCountsRequest(mean, chosen, units, max(federation.sizes))).counts
    return {AXES: chosen, UNITS: units} | _kept(counts, _width(chosen, units))


def rehearse_counts(federation: Federation, mean: Float64Array, axes: Float64Array) -> None:
    """Ask what :func:`novelty_model` asks, for at most these axes (features, axes)."""
    if _asked(federation):
        units = np.ones(axes.shape[1] + 1)
        federation.sum(ScoreCountsRequest(mean, axes, units, max(federation.sizes)))


def _asked(federation: Federation) -> bool:
    """Return whether clients count their rows: no mechanism covers the counts, and few rows are not compared."""
    return federation.context.coverage is None and federation.rows >= LEAST_ROWS


def _kept(counts: Int64Array, width: float) -> dict[str, FloatArray]:
    """Return every fifth score, falling, each as its bin's upper edge; of many rows, as if they were fewer."""
    falling = counts[::-1].cumsum()
    rows = int(falling[-1])
    scored = min(rows, MOST_SCORED)
    ranks = np.arange(EACH, scored + 1, EACH) * rows // scored
    edges = np.append(width * _EDGES, np.inf)[::-1]
    return {SCORES: edges[np.searchsorted(falling, ranks)], SCORED: np.array([scored], np.int64)}


def novelty_by_axes(model: Mapping[str, FloatArray], rows: FloatArray) -> Float64Array | None:
    """Return the p-values (rows,) of new rows (rows, features), relative to the mean; None without counts.

    Raises
    ------
    KeyError, ValueError
        If the arrays of the model do not fit together.
    """
    known = compared(model)
    if known is None:
        return None
    axes, units = (np.asarray(model[name], np.float64) for name in (AXES, UNITS))
    if axes.ndim != 2 or axes.shape[0] != rows.shape[1] or units.shape != (axes.shape[1] + 1,):
        raise ValueError(f"{AXES} and {UNITS} must fit rows of {rows.shape[1]} features")
    return ranked(known, in_blocks(lambda block: _scores(block, axes, units), rows))
