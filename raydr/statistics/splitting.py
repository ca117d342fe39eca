"""Cells of rows that the server does not see: light cells are replaced by halves of heavy ones."""

from __future__ import annotations

import numpy as np

from raydr.arrays import Float64Array

_LIGHT = 0.2
"""Fraction of the mean count up to which a cell is light."""


def split(
    centres: Float64Array,
    counts: Float64Array,
    wanted: int,
    apart: Float64Array,
    least: float,
    stream: np.random.Generator,
) -> Float64Array:
    """Return centres (wanted, axes): light cells are dropped, and the heaviest split until there are enough.

    Parameters
    ----------
    centres : (cells, axes)
        Centres of the cells.
    counts : (cells,)
        Rows of each cell.
    wanted : int
        Number of cells to return.
    apart : (axes,)
        Standard deviation of the offset of both halves of a cell, along each axis.
    least : float
        Count up to which a cell is light, whatever the other counts are.
    stream : numpy.random.Generator
        Draws the offsets of the halves.
    """
    light = max(least, _LIGHT * float(counts.sum()) / len(counts))
    kept = counts > light
    if not kept.any():
        kept = counts >= counts.max()
    centres, weights = centres[kept], counts[kept]
    while len(centres) < wanted:
        count = min(wanted - len(centres), len(centres))
        heavy = np.argsort(-weights, kind="stable")[:count]
        step = apart * stream.standard_normal((count, centres.shape[1]))
        halves = centres[heavy] + step
        centres = centres.copy()
        centres[heavy] -= step
        centres, weights = np.concatenate([centres, halves]), np.concatenate([weights, weights[heavy]])
    return centres[np.argsort(-weights, kind="stable")[:wanted]] if len(centres) > wanted else centres
