"""Compiled inner loop of silhouettes. It imports numba, so import this module where it is used."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from raydr.arrays import Float32Array, Float64Array, Int64Array
from raydr.compiled import compiled


def _fill_silhouettes(
    columns: Float32Array, starts: Int64Array, own: Float32Array, group: Int64Array, found: Float64Array
) -> None:
    """Fill ``found`` with the silhouettes of the positions ``own``.

    ``columns`` (dimensions, rows) holds all rows, group by group.
    """
    dimensions = columns.shape[0]
    squared = np.empty(256, np.float32)  # one dimension after the other, so that the loops are vectorised
    for row in range(own.shape[0]):
        inside, beyond = 0.0, np.inf
        for other in range(starts.size - 1):
            first, last = starts[other], starts[other + 1]
            total = 0.0
            for start in range(first, last, 256):
                size = min(256, last - start)
                for column in range(size):
                    difference = columns[0, start + column] - own[row, 0]
                    squared[column] = difference * difference
                for dimension in range(1, dimensions):
                    for column in range(size):
                        difference = columns[dimension, start + column] - own[row, dimension]
                        squared[column] += difference * difference
                part = np.float32(0.0)
                for column in range(size):
                    part += np.sqrt(squared[column])
                total += float(part)
            if other == group[row]:
                inside = total / max(1, last - first - 1)
            else:
                beyond = min(beyond, total / (last - first))
        alone = starts[group[row] + 1] - starts[group[row]] == 1
        largest = max(inside, beyond)
        found[row] = 0.0 if alone or largest == 0.0 else (beyond - inside) / largest


fill_silhouettes: Callable[..., None] = compiled(fastmath={"reassoc", "contract", "nsz"})(_fill_silhouettes)
