"""Compiled inner loops of searches for neighbours. They import numba, so import this module where it is used."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from raydr.arrays import Float32Array, Float64Array, FloatArray, Int64Array
from raydr.compiled import compiled

BOX_ROWS = 256
"""Rows per box of nearby rows. Mostly all or none of them are nearer than a threshold."""


def _keep_nearest(
    tile: FloatArray,
    own: Int64Array,
    first_column: int,
    heaps: Int64Array,
    squared: FloatArray,
    indices: Int64Array,
) -> None:
    """Offer each value of a tile to its row's heap of the smallest (value, index) pairs, the largest on top.

    The branch is nearly always "too far", so a pass costs about as much as one numpy comparison. argpartition over
    whole rows costs as much as half the matrix product.
    """
    size = squared.shape[1]
    for place in range(tile.shape[0]):
        row = heaps[place]
        for column in range(tile.shape[1]):
            value = tile[place, column]
            if not value <= squared[row, 0]:
                continue
            index = first_column + column
            if index == own[place] or (value == squared[row, 0] and index > indices[row, 0]):
                continue
            at = 0
            while True:
                child = 2 * at + 1
                if child >= size:
                    break
                right = child + 1
                if right < size and (
                    squared[row, right] > squared[row, child]
                    or (
                        squared[row, right] == squared[row, child]
                        and indices[row, right] > indices[row, child]
                    )
                ):
                    child = right
                if squared[row, child] < value or (
                    squared[row, child] == value and indices[row, child] < index
                ):
                    break
                squared[row, at] = squared[row, child]
                indices[row, at] = indices[row, child]
                at = child
            squared[row, at] = value
            indices[row, at] = index


def _measure_pairs(
    coordinates: FloatArray, own: Int64Array, indices: Int64Array, squared: Float64Array
) -> None:
    """Fill ``squared`` with the squared distances of the rows ``own`` to the rows ``indices``, by differences."""
    for row in range(indices.shape[0]):
        for column in range(indices.shape[1]):
            total = 0.0
            for feature in range(coordinates.shape[1]):
                here = np.float64(coordinates[own[row], feature])
                difference = here - np.float64(coordinates[indices[row, column], feature])
                total += difference * difference
            squared[row, column] = total


def _measure_all(coordinates: FloatArray, own: Int64Array, squared: Float64Array) -> None:
    """Fill ``squared`` (own, rows) with the squared distances of the rows ``own`` to all rows, by differences."""
    for row in range(own.size):
        for other in range(coordinates.shape[0]):
            total = 0.0
            for feature in range(coordinates.shape[1]):
                difference = np.float64(coordinates[own[row], feature]) - np.float64(
                    coordinates[other, feature]
                )
                total += difference * difference
            squared[row, other] = total


def _keep_smallest(
    products: FloatArray,
    norms: FloatArray,
    own: Int64Array,
    first: int,
    kept: FloatArray,
    indices: Int64Array,
) -> None:
    """Keep the smallest ``norms - 2 products`` of each row, ascending: squared distances minus the row's own norm."""
    size = kept.shape[1]
    columns = products.shape[1]
    values = np.empty(columns, products.dtype)
    for row in range(products.shape[0]):
        for column in range(columns):
            values[column] = norms[column] - 2 * products[row, column]
        for start in range(0, columns, 64):
            stop = min(start + 64, columns)
            farthest = kept[row, size - 1]
            near = 0
            for column in range(start, stop):
                near += values[column] < farthest
            if near == 0:  # the usual case
                continue
            for column in range(start, stop):
                value = values[column]
                if value >= kept[row, size - 1] or first + column == own[row]:
                    continue
                at = size - 1
                while at > 0 and kept[row, at - 1] > value:
                    kept[row, at] = kept[row, at - 1]
                    indices[row, at] = indices[row, at - 1]
                    at -= 1
                kept[row, at] = value
                indices[row, at] = first + column


def _count_filtered(
    products: Float32Array,
    own_norms: Float64Array,
    other_norms: Float64Array,
    doubt: float,
    coordinates: FloatArray,
    own: Int64Array,
    first: int,
    starts: Int64Array,
    scaled: Float64Array,
    thresholds: Float64Array,
    counts: Int64Array,
) -> None:
    """Add the rows ``first...`` that are nearer to ``counts``. Doubtful ones are measured."""
    columns = products.shape[1]
    surely = np.empty(columns, np.float32)
    perhaps = np.empty(columns, np.float32)
    more = np.empty(columns, np.float32)
    less = np.empty(columns, np.float32)
    for column in range(columns):
        more[column] = other_norms[column] * (1.0 + doubt)
        less[column] = other_norms[column] * (1.0 - doubt)
    one, none, two = np.float32(1.0), np.float32(0.0), np.float32(2.0)
    for row in range(products.shape[0]):
        itself = own[row] - first
        if 0 <= itself < columns:
            products[row, itself] = -np.inf
        for column in range(columns):
            product = two * products[row, column]
            surely[column] = more[column] - product
            perhaps[column] = less[column] - product
        for at in range(starts[row], starts[row + 1]):
            low = np.float32(scaled[at] - own_norms[row] * (1.0 + doubt))
            high = np.float32(scaled[at] - own_norms[row] * (1.0 - doubt))
            sure, maybe = none, none
            for column in range(columns):
                sure += one if surely[column] < low else none
                maybe += one if perhaps[column] <= high else none
            counts[at] += np.int64(sure)
            if maybe == sure:
                continue
            for column in range(columns):
                if perhaps[column] <= high and not surely[column] < low:
                    total = 0.0
                    for feature in range(coordinates.shape[1]):
                        difference = np.float64(coordinates[own[row], feature]) - np.float64(
                            coordinates[first + column, feature]
                        )
                        total += difference * difference
                    if total < thresholds[at]:
                        counts[at] += 1


def _count_boxed(
    columns: Float64Array,
    places: Int64Array,
    lowest: Float64Array,
    highest: Float64Array,
    own: Int64Array,
    starts: Int64Array,
    thresholds: Float64Array,
    counts: Int64Array,
) -> None:
    """Do the same for few features, by differences. Boxes that are nearer or farther as a whole are skipped."""
    features, rows = columns.shape
    boxes, size = lowest.shape[0], BOX_ROWS
    squared = np.empty(size, np.float64)
    for row in range(own.size):
        place = places[own[row]]
        for box in range(boxes):
            first = box * size
            last = min(first + size, rows)
            least, most = 0.0, 0.0
            for feature in range(features):
                here = columns[feature, place]
                below, above = lowest[box, feature] - here, here - highest[box, feature]
                outside = max(below, above, 0.0)
                inside = max(-below, -above)
                least += outside * outside
                most += inside * inside
            least, most = least * (1.0 - 1e-12), most * (1.0 + 1e-12)
            inside_box = first <= place < last
            computed = False
            for at in range(starts[row], starts[row + 1]):
                threshold = thresholds[at]
                if least >= threshold:
                    continue
                if most < threshold:
                    counts[at] += last - first - inside_box
                    continue
                if not computed:
                    computed = True
                    for column in range(first, last):
                        difference = columns[0, column] - columns[0, place]
                        squared[column - first] = difference * difference
                    for feature in range(1, features):
                        for column in range(first, last):
                            difference = columns[feature, column] - columns[feature, place]
                            squared[column - first] += difference * difference
                    if inside_box:
                        squared[place - first] = np.inf
                nearer = 0
                for column in range(last - first):
                    nearer += squared[column] < threshold
                counts[at] += nearer


# Only sums may be reordered, so that they are vectorised. Comparisons with infinity must stay as written.
_compiled = compiled(fastmath={"reassoc", "contract", "nsz"})
keep_nearest: Callable[..., None] = _compiled(_keep_nearest)
keep_smallest: Callable[..., None] = _compiled(_keep_smallest)
measure_pairs: Callable[..., None] = _compiled(_measure_pairs)
measure_all: Callable[..., None] = _compiled(_measure_all)
count_filtered: Callable[..., None] = _compiled(_count_filtered)
count_boxed: Callable[..., None] = _compiled(_count_boxed)
