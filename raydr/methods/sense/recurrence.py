r"""Columns whose values recur, as counts, codes, and yes and no do.

Let p be the density of a column's values, smoothed a little, and q the same smoothed much. Where values recur,
log p / q is large at them and small beside them, and a row that is turned the wrong way falls beside. Where they do
not, it is about 0 everywhere. How many rows have which value differs from site to site and falls out of the quotient;
which values there are does not differ.
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
"""Looked at at a time: their bins, under both smoothings, stay in a core's cache."""
_MARGIN = 2.0
"""Deviations beyond the values that are told apart."""
_OUTSIDE = 0.005
"""Share of values on either side that are not, so that a few far ones do not coarsen the bins."""
_FLOOR = 1e-2
"""Of the largest density, added to both: that nobody is there is no evidence."""
_NOWHERE = 0.1
"""Share of values that recur nowhere, as measurements that went wrong do."""
_ERRORS, _LEAST_WORTH = 3.0, 0.1
"""Standard errors above 0, and nats a row, at which values count as recurring. Noise has as many errors in 1 of 740
columns, and measurements whose density has a peak in all, but less worth."""


@dataclass(frozen=True)
class Recurrence:
    """log p / q of the columns that recur.

    Attributes
    ----------
    columns : (recurring,) int64
        Which these are.
    first, step : (recurring,) float64
        Value of the first bin, and from one bin to the next.
    logs : (recurring, bins) float64
        Of each bin.
    worth : float
        Mean of log p / q over the rows, each left out of p and q in its turn, all columns together; nats a row.
    """

    columns: Int64Array
    first: Float64Array
    step: Float64Array
    logs: Float64Array
    worth: float

    @classmethod
    def of(cls, rows: Float64Array) -> Recurrence:
        """Of rows (rows, features) whose values are known."""
        low, high = np.quantile(rows, [_OUTSIDE, 1.0 - _OUTSIDE], axis=0)
        deviation = np.clip(rows, low, high).std(axis=0)
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
        """Sum of log p / q over the values of rows that are turned one way or another; nats.

        Parameters
        ----------
        inside : (rows, features) float64
            The rows less their residuals.
        factor : (rows, width) float64
            Their residuals in a client's own directions.
        axes : (codimension, features) float64
            The directions that residuals may have.
        turns : (turns, width, codimension) float64
            Which of these the client's own are.

        Returns
        -------
        (turns,) float64
        """
        from raydr.methods.sense.recurrence_kernel import read

        still, steps = (inside[:, self.columns] - self.first) / self.step, axes[:, self.columns] / self.step
        return read(self.logs, *map(np.ascontiguousarray, (still.T, factor.T, steps.T, turns)))


def _recurring(place: Float64Array, widths: Float64Array) -> tuple[BoolArray, Float64Array, Float64Array]:
    """Which columns recur, log p / q of these, and what it is worth to each column, of bins (rows, columns)."""
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
    """Values (rows, columns) in each bin, (columns, bins)."""
    bins = np.rint(place)
    inside = (bins >= 0) & (bins < _BINS)
    rows = [column[told].astype(np.int64) for column, told in zip(bins.T, inside.T, strict=True)]
    counts = [np.bincount(row, minlength=_BINS) for row in rows]
    return np.asarray(counts, dtype=np.float64).reshape(-1, _BINS)


def _smoothed(counts: Float64Array, widths: Float64Array) -> Float64Array:
    """Counts (columns, bins) under Gaussians of so many bins (widths, columns): (widths, columns, bins)."""
    frequency = 2.0 * np.pi * np.fft.rfftfreq(_BINS)
    spectrum = np.fft.rfft(counts, axis=1) * np.exp(-0.5 * (widths[:, :, None] * frequency) ** 2)
    return np.asarray(np.fft.irfft(spectrum, _BINS, axis=2))


def _quotient(fine: Float64Array, coarse: Float64Array, floor: Float64Array) -> Float64Array:
    """The logarithm of p / q, from counts under both."""
    fine, coarse = np.maximum(fine, 0.0), np.maximum(coarse, 0.0)
    return np.asarray(np.log(((1.0 - _NOWHERE) * fine + _NOWHERE * coarse + floor) / (coarse + floor)))
