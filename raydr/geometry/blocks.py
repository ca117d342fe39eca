"""Rows computed a few at a time, so that what is computed of one has the same bits whatever rows come with it.

A matrix product rounds a row's sums in an order that depends on how many rows there are. Blocks of one size leave it no
choice: the last one is filled up with its last row.
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
"""Rows of a block: with 1,000 columns 1 MB, so that all passes over it stay in a core's cache."""


def filled_up(rows: NDArray[Number]) -> NDArray[Number]:
    """At most :data:`ROWS` rows, at least one, followed by the last of them until they are so many."""
    return np.concatenate([rows, np.repeat(rows[-1:], ROWS - len(rows), axis=0)])


def in_blocks(compute: Callable[[NDArray[Number]], NDArray[Found]], rows: NDArray[Number]) -> NDArray[Found]:
    """What ``compute`` makes of rows (rows, columns), one row of each, block by block.

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
