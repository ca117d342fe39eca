"""Row-wise computation in fixed blocks, so that a row's result is identical bit for bit whatever rows come with it.

A matrix product rounds a row's sums in an order that depends on the number of rows. Blocks of a fixed size
avoid this. The last block is padded with its last row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from raydr.geometry.points import row_blocks
from raydr.threads import one_blas_thread

Number = TypeVar("Number", bound=np.generic)
Found = TypeVar("Found", bound=np.generic)

ROWS = 128
"""Rows per block: 1 MB for 1,000 columns, so that all passes stay in a core's cache."""


def filled_up(rows: NDArray[Number]) -> NDArray[Number]:
    """Pad 1 to :data:`ROWS` rows to :data:`ROWS` with copies of the last one."""
    return np.concatenate([rows, np.repeat(rows[-1:], ROWS - len(rows), axis=0)])


def in_blocks(compute: Callable[[NDArray[Number]], NDArray[Found]], rows: NDArray[Number]) -> NDArray[Found]:
    """Apply ``compute``, which maps each row to a row, to rows (rows, columns) block by block.

    Examples
    --------
    >>> in_blocks(lambda block: block @ np.ones((2, 1)), np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[3.],
           [7.]])
    """
    if not len(rows):
        return compute(rows)
    with one_blas_thread():
        parts = [
            compute(filled_up(rows[start:stop]))[: stop - start]
            for start, stop in row_blocks(len(rows), ROWS)
        ]
    return np.concatenate(parts)
