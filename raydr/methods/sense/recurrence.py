r"""Columns with recurring values, such as counts, codes and booleans.

Let p be the density of a column's values, smoothed a little, and q the same smoothed strongly. If values
recur, log p / q is large at them and small between them, and a wrongly rotated row falls between them. If
they do not recur, it is about 0 everywhere. The frequency of a value differs between sites, but cancels in
the quotient; the set of values does not differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import BoolArray, Float64Array, Int64Array
from raydr.geometry.points import row_blocks

_FINE, _COARSE = 0.02, 0.1
"""Smoothing of p and q, in units of a column's deviation."""
_BINS = 2048
_COLUMNS = 16
"""Columns processed at a time: their bins, under both smoothings, stay in a core's cache."""
_MARGIN = 2.0
"""Margin beyond the resolved values, in deviations."""
_OUTSIDE = 0.005
"""Share of values on either side that are not resolved, so that a few distant values do not coarsen the bins."""
_FLOOR = 1e-2
"""Part of the largest density, added to both: an empty bin is no evidence."""
_NOWHERE = 0.1
"""Share of values that do not recur, such as wrong measurements."""
_ERRORS, _LEAST_WORTH = 3.0, 0.1
"""Least number of standard errors above 0, and least nats per row, for values to count as recurring. Noise
reaches the first in 1 of 740 columns, and measurements whose density has a peak in all, but with fewer nats.
"""
_VISIBLE = 0.01
"""Least move of values that a density shows, in units of the fine smoothing."""


@dataclass(frozen=True)
class Recurrence:
    """log p / q of the recurring columns.

    Attributes
    ----------
    columns : (recurring,) int64
        Indices of the columns.
    first, step : (recurring,) float64
        Value of the first bin, and width of the bins.
    logs : (recurring, bins) float64
        log p / q of each bin.
    worth : float
        Mean of log p / q over the rows, each left out of p and q in turn, all columns together; nats per row.
    """

    columns: Int64Array
    first: Float64Array
    step: Float64Array
    logs: Float64Array
    worth: float

    @classmethod
    def of(cls, rows: Float64Array) -> Recurrence:
        """Return the recurrence of rows (rows, features) with known values."""
        low, high, deviation = _resolved(rows)
        varied = np.flatnonzero(deviation > 1e-9 * np.abs(rows).max(axis=0))
        deviation = deviation[varied]
        first = low[varied] - _MARGIN * deviation
        step = (high[varied] + _MARGIN * deviation - first) / (_BINS - 1)
        widths = np.maximum(np.stack([_FINE * deviation, _COARSE * deviation]) / step, 0.5)
        found = [
            _recurring(
                (rows[:, varied[start:stop]] - first[start:stop]) / step[start:stop], widths[:, start:stop]
            )
            for start, stop in row_blocks(len(varied), _COLUMNS)
        ] or [(np.zeros(0, bool), np.zeros((0, _BINS)), np.zeros(0))]
        recur, logs, worth = map(np.concatenate, zip(*found, strict=True))
        return cls(varied[recur], first[recur], step[recur], logs, float(worth.sum()))

    def evidence(
        self, inside: Float64Array, factor: Float64Array, axes: Float64Array, turns: Float64Array
    ) -> Float64Array:
        """Return the sum of log p / q over the values of rows under each rotation; nats.

        Parameters
        ----------
        inside : (rows, features) float64
            The rows without their residuals.
        factor : (rows, width) float64
            Their residuals in a client's own directions.
        axes : (codimension, features) float64
            Possible directions of residuals.
        turns : (turns, width, codimension) float64
            Rotations from the client's own directions to these.

        Returns
        -------
        (turns,) float64
        """
        from raydr.methods.sense.kernels import read

        still, steps = (inside[:, self.columns] - self.first) / self.step, axes[:, self.columns] / self.step
        return read(self.logs, *map(np.ascontiguousarray, (still.T, factor.T, steps.T, turns)))


def showing(rows: Float64Array, moves: Float64Array) -> Int64Array:
    """Return the columns of rows (rows, features) whose densities show moves (features,) of the values."""
    _, _, deviation = _resolved(rows)
    return np.flatnonzero(moves > _VISIBLE * _FINE * deviation)


def _resolved(rows: Float64Array) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Return the least and largest resolved values of the columns, and the deviations within; each (features,)."""
    low, high = np.quantile(rows, [_OUTSIDE, 1.0 - _OUTSIDE], axis=0)
    return low, high, np.clip(rows, low, high).std(axis=0)


def _recurring(place: Float64Array, widths: Float64Array) -> tuple[BoolArray, Float64Array, Float64Array]:
    """Return which columns recur, their log p / q, and the evidence of each column, from bins (rows, columns)."""
    counts, rows = _counts(place), len(place)
    fine, coarse = _smoothed(counts, widths)
    own_fine, own_coarse = 1.0 / (np.sqrt(2.0 * np.pi) * widths[:, :, None])
    floor = _FLOOR * coarse.max(axis=1, keepdims=True)
    left_out = _quotient(fine - own_fine, coarse - own_coarse, floor)
    worth, square = (counts * left_out).sum(axis=1) / rows, (counts * left_out**2).sum(axis=1) / rows
    error = np.sqrt(np.maximum(square - worth**2, 0.0) / rows)
    recur = worth > np.maximum(_LEAST_WORTH, _ERRORS * error)
    return recur, _quotient(fine[recur], coarse[recur], floor[recur]), worth


def _counts(place: Float64Array) -> Float64Array:
    """Count values (rows, columns) in each bin, (columns, bins)."""
    bins = np.rint(place)
    inside = (bins >= 0) & (bins < _BINS)
    rows = [column[resolved].astype(np.int64) for column, resolved in zip(bins.T, inside.T, strict=True)]
    counts = [np.bincount(row, minlength=_BINS) for row in rows]
    return np.asarray(counts, dtype=np.float64).reshape(-1, _BINS)


def _smoothed(counts: Float64Array, widths: Float64Array) -> Float64Array:
    """Smooth counts (columns, bins) by Gaussians of widths (widths, columns) in bins: (widths, columns, bins)."""
    frequency = 2.0 * np.pi * np.fft.rfftfreq(_BINS)
    spectrum = np.fft.rfft(counts, axis=1) * np.exp(-0.5 * (widths[:, :, None] * frequency) ** 2)
    return np.asarray(np.fft.irfft(spectrum, _BINS, axis=2))


def _quotient(fine: Float64Array, coarse: Float64Array, floor: Float64Array) -> Float64Array:
    """Return the logarithm of p / q, from counts under both smoothings."""
    fine, coarse = np.maximum(fine, 0.0), np.maximum(coarse, 0.0)
    return np.asarray(np.log(((1.0 - _NOWHERE) * fine + _NOWHERE * coarse + floor) / (coarse + floor)))
