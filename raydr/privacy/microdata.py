"""Values of single records for display, so that each is shared by several records of its site.

Columns are grouped together as in Mondrian (LeFevre et al. 2006): records are halved at the median of the widest column
while both halves are large enough. Each group then shows its means, as in microaggregation. So the shown values of all
columns together are k-anonymous, with k the least size of a group. Labels with too few records are merged, and so are
neighbouring bins of a histogram.
"""

from __future__ import annotations

import numpy as np

from raydr.arrays import BoolArray, Float64Array, FloatArray, Int64Array

FEW = "few records"
"""Name of the class of merged labels."""


def shared_values(values: FloatArray, least: int) -> Float64Array:
    """Return values (rows, columns) in which each row equals at least ``least - 1`` others.

    A column of at most two values keeps them: a group shows the more frequent one. With fewer than ``least`` rows, all
    values are missing.

    Examples
    --------
    >>> shared_values(np.array([[1.0], [2.0], [9.0], [11.0]]), 2).ravel().tolist()
    [1.5, 1.5, 10.0, 10.0]
    """
    values = np.array(values, np.float64)
    shown: Float64Array = np.full(values.shape, np.nan)
    if len(values) < least:
        return shown
    two = [len(np.unique(column[~np.isnan(column)])) <= 2 for column in values.T]
    missing = np.isnan(values)
    spread = np.ptp(np.where(missing, _means(values, missing), values), axis=0)
    scaled = np.where(missing, -1e9, values / np.where(spread > 0, spread, 1.0))
    for group in _groups(scaled, least):
        there = ~np.isnan(values[group])
        for place, few in enumerate(two):
            found = values[group, place][there[:, place]]
            if found.size:
                shown[group, place] = _majority(found) if few else found.mean()
    return shown


def _means(values: FloatArray, missing: BoolArray) -> Float64Array:
    """Return the mean of each column's values, 0 without any."""
    sums = np.where(missing, 0.0, values).sum(axis=0)
    return np.asarray(sums / np.maximum(1, (~missing).sum(axis=0)))


def _majority(values: Float64Array) -> float:
    """Return the most frequent value, the least of several."""
    found, counts = np.unique(values, return_counts=True)
    return float(found[counts.argmax()])


def _groups(values: Float64Array, least: int) -> list[Int64Array]:
    """Return groups of at least ``least`` rows, which are alike in values (rows, columns) in units of their range."""
    done: list[Int64Array] = []
    pending = [np.arange(len(values))]
    while pending:
        rows = pending.pop()
        for column in np.argsort(-np.ptp(values[rows], axis=0), kind="stable"):
            ordered = np.sort(values[rows, column])
            middle = ordered[(len(rows) - 1) // 2]
            halves = (values[rows, column] <= middle, values[rows, column] < middle)  # if many are equal
            low = next((half for half in halves if least <= half.sum() <= len(rows) - least), None)
            if low is not None:
                pending += [rows[low], rows[~low]]
                break
        else:
            done.append(rows)
    return done


def merged_counts(counts: Int64Array, least: int) -> Int64Array:
    """Return counts of neighbouring bins (bins,), with bins merged until each that is not empty has ``least``.

    A merged count is in the highest of its bins; what is left after the last is added to the one before. Fewer than
    ``least`` in all stay fewer.

    Examples
    --------
    >>> merged_counts(np.array([0, 2, 1, 0, 5, 1]), 3).tolist()
    [0, 0, 3, 0, 6, 0]
    """
    merged = np.zeros_like(counts)
    waiting, last = 0, None
    for place in np.flatnonzero(counts).tolist():
        waiting += int(counts[place])
        if waiting >= least:
            merged[place], waiting, last = waiting, 0, place
    if waiting:
        merged[np.flatnonzero(counts)[-1] if last is None else last] += waiting
    return merged


def merged_labels(labels: Int64Array, least: int, merged: int) -> Int64Array:
    """Return labels (rows,) of one site with the class ``merged`` in place of classes with fewer than ``least`` rows.

    If these classes have fewer rows together, the next smallest classes are merged too, so that the merged class has
    enough rows.

    Examples
    --------
    >>> merged_labels(np.array([0, 0, 0, 0, 1, 1, 1, 2]), 3, 9).tolist()
    [0, 0, 0, 0, 9, 9, 9, 9]
    """
    classes, counts = np.unique(labels, return_counts=True)
    order = np.argsort(counts, kind="stable")
    few = int((counts < least).sum())
    while few and few < len(classes) and counts[order[:few]].sum() < least:
        few += 1
    return np.where(np.isin(labels, classes[order[:few]]), merged, labels)
