"""Gradients over pairs of records, with few pairs per record, for noise per record.

Nearest neighbours have no such bound. If a record is removed, every record that had it as a neighbour takes
another, and nothing limits their number. A cap on how often a record is taken does not help: a freed place
goes to another record, whose own place is then free.

Here pairs come from a line. Each record has a key, its position on a space-filling curve through some
directions (Skilling 2004), which depends on the record and the directions alone. Records are sorted by key,
and each is paired with the next, so a record is in at most :data:`DEGREE` pairs. If it is removed, these
pairs go and one new pair comes, that of its two neighbours in the line. The directions are rotated in each
round, which changes who is next to whom.

The gradient of a pair is clipped to a norm C; it consists of attraction between both records and repulsion of
the first by the field. One record then moves the sum over pairs by at most (DEGREE + 1) C. Without a field,
the first record of each pair is repelled by one other, drawn by row number: a record can then change two more
pairs.

Per-pair gradients are never stored: their norms follow from the layers' activations and errors (Goodfellow
2015), and one more pass sums them with their factors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from raydr.arrays import Float32Array, Float64Array, FloatArray, Int64Array
from raydr.federation import Client, Granularity, Range, Reply, Request, answers
from raydr.fixed_point import GridMatrix, row_products
from raydr.methods.fedne.layers import GridLayer, activations_of, grid_layers
from raydr.methods.fedne.settings import SOFTENING
from raydr.privacy import Mechanism, Quantity
from raydr.privacy.mechanism import moved_mean

DEGREE = 2
"""Pairs of a record: one with its predecessor in the line and one with its successor."""
_ROUNDING = 1.0 + 1e-9
_TIMES = 2.0**10
"""Parts of a pair's gradient count as its length if they are more than this many times as long."""
_BLOCK_ROWS = 2048
DIRECTIONS = 8
"""Directions of the curve. Share of pairs of one class among 1,000 and 10,000 MNIST rows: 0.51 and 0.60 with 5
principal axes, 0.54 and 0.68 with 8, 0.52 and 0.65 with 12. It is 0.48 with the nearest of 20 random rows, which moves
41 C."""
_DIGITS = 8
_SPAN = 3.0
"""Range of keys along a direction, in extents to each side."""
Member: TypeAlias = "slice | Int64Array"
"""Places in line of one member of each pair."""


@dataclass(frozen=True)
class PairGradient(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the summed gradient of a client's pairs of similar records, for each encoder weight",
    covers=("gradient",),
):
    """``gradient`` (parameters,) float64: sum over pairs, each clipped, over the client's rows."""

    gradient: Float64Array

    @staticmethod
    def ranges(request: PairRequest, rows: int) -> dict[str, Range]:
        """Return the range: each row has one pair, and no pair is longer than the clip."""
        return {"gradient": Range(request.weights.shape, request.clip * _ROUNDING)}

    def quantities(self, on: str, request: object) -> dict[str, Quantity]:
        """Return the whole reply as one quantity."""
        return {"gradient": Quantity(self.gradient)}


@dataclass(kw_only=True, frozen=True)
class PairRequest(
    Request[PairGradient], what="the current encoder, the directions of a curve, and the summed repulsion"
):
    """Request of each round.

    Attributes
    ----------
    weights : (parameters,) float32
        The current encoder.
    hidden : tuple of int
        Its hidden layers.
    directions : (features, directions) float64
        Directions of the curve.
    offsets : (directions,) float64
        Start of the curve along each direction, in units of the rows' extent there.
    extent : float
        Approximate deviation of the rows along the directions.
    negatives : int
        Weight of repulsion relative to attraction.
    field : (nodes, nodes) float32
        Mean repulsion by the rows of all clients from -reach to reach; no nodes without a field.
    reach : float
        Half the width of the field.
    clip : float
        Clip norm of the gradient of each pair.
    softening : float
        As in the settings.
    """

    weights: Float32Array
    hidden: tuple[int, ...]
    directions: Float64Array
    offsets: Float64Array
    extent: float
    negatives: int
    field: Float32Array
    reach: float
    clip: float
    softening: float = SOFTENING
    mechanism: Mechanism | None = None
    deviation: float = math.nan

    def sensitivity(self, rows: int) -> float:
        """Bound the sensitivity of the mean over ``rows`` rows, with rounding in both of two neighbouring data sets."""
        moved = pairs_moved(bool(self.field.size)) * _ROUNDING + 2.0 * _rounding(rows)
        return moved_mean(self.mechanism, moved * self.clip, rows)


def pairs_moved(field: bool) -> int:
    """Return by how many clipped gradients removing a record changes the sum, counted by their norms.

    Its own pairs go and one comes instead. Without a field, its row number was also drawn for the repulsion
    of one other pair. Without the record, that pair changes and may point the other way.
    """
    return DEGREE + 1 + (0 if field else 2)


@answers(PairRequest)
def pair_gradient(client: Client, request: PairRequest) -> PairGradient:
    """Run the client part of a round with noise per record."""
    from raydr.methods.fedne.encoder import one_torch_thread

    rows = client.rows
    repelled = None
    if not request.field.size:
        repelled = client.stream("repelled").permutation(len(rows))
    with one_torch_thread():
        total = summed_gradient(rows, request, repelled)
    return PairGradient(total / max(1, len(rows)))


def summed_gradient(
    rows: FloatArray, request: PairRequest, repelled: Int64Array | None = None
) -> Float64Array:
    """Return the sum of the clipped gradients of all pairs, downhill, (parameters,) float64.

    Parameters
    ----------
    rows : (rows, features)
        Rows of one client.
    request : PairRequest
        The request to the client.
    repelled : (rows,) int64, optional
        Number of the row that repels each row; itself or -1 for none. None: the field repels.
    """
    from raydr.methods.fedne.encoder import Architecture

    architecture = Architecture(rows.shape[1], request.hidden)
    if len(rows) < 2:
        return np.zeros(architecture.parameters)
    line = in_line(rows, request.directions, request.offsets, request.extent)
    members: list[Member] = [slice(0, -1), slice(1, None)]
    if repelled is not None:
        numbers, place = repelled[line[:-1]], np.argsort(line)
        members.append(np.where(numbers >= 0, place[numbers], np.arange(len(numbers))))
    layers = grid_layers(architecture, request.weights)
    activations = activations_of(rows[line], layers)
    errors = _position_errors(activations[-1], members, request)
    return _summed(activations[:-1], layers, members, errors, request.clip)


def in_line(rows: FloatArray, directions: Float64Array, offsets: Float64Array, extent: float) -> Int64Array:
    """Sort rows along a Hilbert curve through the directions; equal rows by their numbers.

    Rows beyond the cube that the curve fills count as on its boundary.
    """
    cells = 1 << _DIGITS
    # Other rows must not change even the last digit of a key.
    along = GridMatrix.of(directions).product(rows) / (extent or 1.0) + offsets
    places = np.clip((along + _SPAN) / (2.0 * _SPAN) * cells, 0, cells - 1).astype(np.int64)
    return np.lexsort(hilbert_digits(places)[::-1])


def hilbert_digits(places: Int64Array) -> Int64Array:
    """Return the binary digits (digits, rows) of each place (rows, directions) along a Hilbert curve, highest first.

    By Skilling's algorithm ("Programming the Hilbert curve", AIP Conference Proceedings 707, 2004).

    >>> corners = np.array([[0, 0], [0, 1], [1, 1], [1, 0]]) * (1 << 7)
    >>> digits = hilbert_digits(corners)
    >>> [int("".join(map(str, column[:2])), 2) for column in digits.T]
    [0, 1, 2, 3]
    """
    axes = places.T.copy()
    count, highest = len(axes), 1 << (_DIGITS - 1)
    digit = highest
    while digit > 1:
        below = digit - 1
        for axis in range(count):
            inverted = (axes[axis] & digit) != 0
            swapped = np.where(inverted, 0, (axes[0] ^ axes[axis]) & below)
            axes[0] ^= np.where(inverted, below, swapped)
            axes[axis] ^= swapped
        digit >>= 1
    for axis in range(1, count):
        axes[axis] ^= axes[axis - 1]
    flipped = np.zeros_like(axes[0])
    digit = highest
    while digit > 1:
        flipped ^= np.where((axes[-1] & digit) != 0, digit - 1, 0)
        digit >>= 1
    axes ^= flipped
    shifts = np.arange(_DIGITS - 1, -1, -1)
    return np.asarray((axes[None] >> shifts[:, None, None]) & 1).reshape(_DIGITS * count, -1)


def _position_errors(
    positions: Float64Array, members: list[Member], request: PairRequest
) -> list[Float64Array]:
    """Return the gradient of each pair's loss with respect to the position of each member, (pairs, 2)."""
    import torch

    from raydr.methods.fedne.field import Grid, interpolated
    from raydr.methods.fedne.loss import attraction, repulsion, squared_distance

    at = [torch.from_numpy(positions[member]).requires_grad_() for member in members]
    loss = attraction(squared_distance(at[0], at[1]))
    if len(at) == 3:
        third = np.arange(len(positions))[members[2]]
        other = torch.from_numpy((third != np.arange(len(third))).astype(np.float64))
        apart = repulsion(squared_distance(at[0], at[2]), request.softening)
        loss = loss + request.negatives * other * apart
    else:
        grid = Grid(request.reach, len(request.field))
        field = torch.from_numpy(request.field.astype(np.float64))
        # Twice, as in training: a pair of pooled rows repels at both ends.
        loss = loss + 2.0 * request.negatives * interpolated(grid, field, at[0])
    return [gradient.numpy() for gradient in torch.autograd.grad(loss.sum(), at)]


def _summed(
    inputs: list[Float64Array],
    layers: list[GridLayer],
    members: list[Member],
    errors: list[Float64Array],
    clip: float,
) -> Float64Array:
    """Return minus the sum of the pairs' gradients, each clipped.

    The gradient of one pair in a layer's weights is sum_s a_s e_s^T over its members s, with activation a and
    error e. Its squared norm is sum_st (a_s . a_t) (e_s . e_t), and for the offsets sum_st (e_s . e_t). That
    sum may cancel, so its rounding is bounded by its terms: a part of sum_s |a_s| |e_s|, squared, is added
    before the root.
    """
    at_layers: list[list[Float64Array]] = []
    squared, made_of = np.zeros(len(errors[0])), np.zeros(len(errors[0]))
    with np.errstate(all="ignore"):
        for index in range(len(inputs) - 1, -1, -1):
            at_layers.insert(0, errors)
            gathered = [inputs[index][member] for member in members]
            sizes = []
            for left, one in enumerate(gathered):
                own = row_products(errors[left], errors[left]) * (row_products(one, one) + 1.0)
                squared += own
                sizes.append(np.sqrt(own))
                for right in range(left):
                    alike = row_products(errors[left], errors[right])
                    squared += 2.0 * alike * (row_products(one, gathered[right]) + 1.0)
            made_of += sum(sizes) ** 2
            if index:
                back = layers[index].backward
                errors = [
                    back.product(error) * (active > 0.0)
                    for error, active in zip(errors, gathered, strict=True)
                ]
        # A pair whose gradient is not finite gets the factor 0.
        bound = np.sqrt(np.maximum(squared, 0.0) + made_of / _TIMES**2)
        factor = np.where(np.isfinite(bound), clip / np.maximum(bound, clip), 0.0)
    parts: list[Float64Array] = []
    for values, at_layer in zip(inputs, at_layers, strict=True):
        by_row = np.zeros((len(values), at_layer[0].shape[1]))
        for member, error in zip(members, at_layer, strict=True):
            counted = np.where(factor[:, None] > 0.0, factor[:, None] * error, 0.0)
            if isinstance(member, slice):
                by_row[member] += counted
            else:
                np.add.at(by_row, member, counted)
        parts += [_outer_sum(values, by_row).ravel(), _outer_sum(np.ones((len(values), 1)), by_row)[0]]
    return -np.concatenate(parts)


def _outer_sum(values: Float64Array, errors: Float64Array) -> Float64Array:
    """Return ``values.T @ errors``, a block of rows at a time; :func:`_rounding` bounds its rounding."""
    total = np.zeros((values.shape[1], errors.shape[1]))
    for start in range(0, len(values), _BLOCK_ROWS):
        total += values[start : start + _BLOCK_ROWS].T @ errors[start : start + _BLOCK_ROWS]
    return total


def _rounding(rows: int) -> float:
    """Return the largest rounding of the sum over the pairs of ``rows`` rows, in clips.

    For a pair, sum_s |a_s| |e_s| is at most ``_TIMES`` clips after clipping. The error of a sum of k products, in any
    order, is at most k 2^-53 of their sizes. For a sum of blocks, k is the rows of a block plus the number of blocks.
    """
    terms = min(rows, _BLOCK_ROWS) + rows / _BLOCK_ROWS + 8.0
    return 2.0**-53 * terms * rows * _TIMES
