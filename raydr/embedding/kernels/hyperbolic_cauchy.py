r"""Objective of CO-SNE (P3 (16)) in the Poincaré ball, and its Euclidean gradient.

With :math:`u_{ij} = 2 |y_i - y_j|^2 / (a_i a_j)`, :math:`a_i = 1 - |y_i|^2`, the hyperbolic distance is
:math:`d_{ij} = \operatorname{arcosh}(1 + u_{ij})`. The map's similarities are Cauchy in it:
:math:`q_{ij} = w_{ij} / Z`, :math:`w_{ij} = 1 / (d_{ij}^2 + \gamma^2)`, :math:`Z = \sum_{i \ne j} w_{ij}` (the
numerator :math:`\gamma^2` cancels). For the objective

.. math::

    \lambda_1 \Big[ \underbrace{- \sum_{ij} p_{ij} \log w_{ij}}_{\text{attraction}}
    + \underbrace{\log Z}_{\text{repulsion}} + \sum_{ij} p_{ij} \log p_{ij} \Big]
    + \lambda_2 \underbrace{\sum_i (|x_i|^2 - |y_i|^2)^2}_{\text{depth}}

the derivative with respect to :math:`d_{ij}` is :math:`4 d_{ij} (p_{ij} - q_{ij}) w_{ij}` for both orders of
a pair, and :math:`\partial d / \partial y_i = (\partial u / \partial y_i) / \sinh d`, so

.. math::

    \nabla_i = 16 \lambda_1 \sum_j (p_{ij} - q_{ij}) \, w_{ij} \, \frac{d_{ij} / \sinh d_{ij}}{a_i a_j}
    \Big[ y_i - y_j + \frac{|y_i - y_j|^2}{a_i} y_i \Big] - 4 \lambda_2 (|x_i|^2 - |y_i|^2) y_i.

It is smooth where points meet, because :math:`d / \sinh d \to 1`. Layouts here are (components, rows), so
that sums over other rows run along memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, Int64Array, IntArray
from raydr.compiled import compiled
from raydr.geometry.points import row_blocks

STRIPS = 16
"""Parts of the sum over all pairs. The number is fixed, so the bits do not depend on the number of threads."""
_MANTISSA = 0x000FFFFFFFFFFFFF
_EXPONENT_OF_ONE = 0x3FF0000000000000


def divergence(layout: Float64Array, affinities: Any, gamma: float) -> float:
    """Return the Kullback-Leibler divergence of the map's similarities from ``affinities``, in row blocks.

    Parameters
    ----------
    layout : (components, rows)
        Points of the ball.
    affinities : scipy.sparse.csr_array of shape (rows, rows)
        p, symmetric, summing to 1, empty diagonal.
    gamma : float
        Scale of the Cauchy kernel, a hyperbolic distance.

    Returns
    -------
    float
    """
    p = affinities.tocoo()
    attraction = float(
        (p.data * np.log(p.data * _inverse_cauchy(layout[:, p.row], layout[:, p.col], gamma))).sum()
    )
    total = -layout.shape[1] / gamma**2  # a row is not a pair with itself; the kernel there is 1 / gamma^2
    for start, stop in row_blocks(layout.shape[1], 256):
        total += float((1.0 / _inverse_cauchy(layout[:, start:stop, None], layout[:, None, :], gamma)).sum())
    return attraction + math.log(total)


def depth(layout: Float64Array, norms: Float64Array) -> float:
    """Return the sum over rows of ``(|x|^2 - |y|^2)^2``; ``norms``: (rows,), the |x| of the data in their ball."""
    return float(np.square(norms**2 - np.square(layout).sum(axis=0)).sum())


def _inverse_cauchy(a: Float64Array, b: Float64Array, gamma: float) -> Float64Array:
    gap = np.square(a - b).sum(axis=0)
    u = 2.0 * gap / ((1.0 - np.square(a).sum(axis=0)) * (1.0 - np.square(b).sum(axis=0)))
    return np.asarray(np.log1p(u + np.sqrt(u * (u + 2.0))) ** 2 + gamma**2)


def _logarithms(values: Float64Array, mantissas: Float64Array) -> None:
    """Replace ``values``, 1 or more, by their logarithms; ``mantissas`` is working memory of the same shape.

    A value is 2^power * part, with part within sqrt(2) of 1; log(part) = 2 artanh(ratio) by its series, to
    1e-16.
    """
    value_bits, mantissa_bits = values.view(np.int64), mantissas.view(np.int64)
    for at in range(values.shape[0]):
        mantissa_bits[at] = (value_bits[at] & _MANTISSA) | _EXPONENT_OF_ONE
    for at in range(values.shape[0]):
        power = np.float64((value_bits[at] >> 52) - 1023)
        part = mantissas[at]
        high = part > 1.4142135623730951
        part = 0.5 * part if high else part
        power = power + 1.0 if high else power
        ratio = (part - 1.0) / (part + 1.0)
        square = ratio * ratio
        series = square / 19.0 + 1.0 / 17.0
        series = series * square + 1.0 / 15.0
        series = series * square + 1.0 / 13.0
        series = series * square + 1.0 / 11.0
        series = series * square + 1.0 / 9.0
        series = series * square + 1.0 / 7.0
        series = series * square + 1.0 / 5.0
        series = series * square + 1.0 / 3.0
        series = series * square + 1.0
        mantissas[at] = power * 0.6931471805599453 + 2.0 * ratio * series
    for at in range(values.shape[0]):
        values[at] = mantissas[at]


def _pairs(
    layout: Float64Array,
    inverse: Float64Array,
    row: int,
    others: Float64Array,
    inverse_others: Float64Array,
    squared_gamma: float,
    squared: Float64Array,
    cauchy: Float64Array,
    slope: Float64Array,
) -> None:
    """Fill the terms of ``row`` with ``others``, (components, m): |y - y'|^2, w, and d / sinh(d) / (a a').

    The loops are separate, and the logarithm is written out, so that the compiler vectorises them. A pair takes 6.4 ns,
    compared with 11.8 with the library's scalar logarithm and 21 with its log1p.
    """
    pairs = squared.shape[0]
    for other in range(pairs):
        squared[other] = 0.0
    for axis in range(layout.shape[0]):
        here = layout[axis, row]
        for other in range(pairs):
            squared[other] += (here - others[axis, other]) ** 2
    own = inverse[row]
    for other in range(pairs):
        u = 2.0 * squared[other] * own * inverse_others[other]
        cauchy[other] = 1.0 + u + math.sqrt(u * (u + 2.0))  # exp(d)
    _log(cauchy, slope)
    for other in range(pairs):
        product = own * inverse_others[other]
        u = 2.0 * squared[other] * product
        sinh = math.sqrt(u * (u + 2.0))
        distance = cauchy[other]
        share = distance / sinh if sinh > 1e-6 else 1.0
        cauchy[other] = 1.0 / (distance * distance + squared_gamma)
        slope[other] = share * product


def _attract(
    layout: Float64Array,
    inverse: Float64Array,
    starts: IntArray,
    neighbors: IntArray,
    weights: Float64Array,
    squared_gamma: float,
    forces: Float64Array,
) -> None:
    """Set ``forces``, (components, rows), to the sums over a row's neighbours of p w slope [...]."""
    components, rows = layout.shape
    longest = 0
    for row in range(rows):
        longest = max(longest, starts[row + 1] - starts[row])
    others, inverse_others = np.empty((components, longest)), np.empty(longest)
    squared, cauchy, slope = np.empty(longest), np.empty(longest), np.empty(longest)
    for row in range(rows):
        first, count = starts[row], starts[row + 1] - starts[row]
        for other in range(count):
            inverse_others[other] = inverse[neighbors[first + other]]
            for axis in range(components):
                others[axis, other] = layout[axis, neighbors[first + other]]
        _fill(
            layout,
            inverse,
            row,
            others,
            inverse_others,
            squared_gamma,
            squared[:count],
            cauchy[:count],
            slope[:count],
        )
        outward = 0.0
        for other in range(count):
            slope[other] *= weights[first + other] * cauchy[other]
            outward += slope[other] * squared[other]
        for axis in range(components):
            force = outward * inverse[row] * layout[axis, row]
            for other in range(count):
                force += slope[other] * (layout[axis, row] - others[axis, other])
            forces[axis, row] = force


def _repel_all(
    layout: Float64Array,
    inverse: Float64Array,
    first: int,
    squared_gamma: float,
    forces: Float64Array,
) -> float:
    """Add to ``forces`` w^2 slope [...] of the pairs of rows ``first, first + STRIPS, ...`` with every later row.

    Each pair acts on both its rows. Return the sum of w over these pairs, each counted twice.
    """
    components, rows = layout.shape
    squared, cauchy, slope = np.empty(rows), np.empty(rows), np.empty(rows)
    outward = np.zeros(rows)
    total = 0.0
    for row in range(first, rows, STRIPS):
        later, count = row + 1, rows - row - 1
        _fill(
            layout,
            inverse,
            row,
            layout[:, later:],
            inverse[later:],
            squared_gamma,
            squared[:count],
            cauchy[:count],
            slope[:count],
        )
        own = 0.0
        for other in range(count):
            total += cauchy[other]
            slope[other] *= cauchy[other] * cauchy[other]
            share = slope[other] * squared[other]
            own += share
            outward[later + other] += share
        outward[row] += own
        for axis in range(components):
            force = 0.0
            for other in range(count):
                pull = slope[other] * (layout[axis, row] - layout[axis, later + other])
                force += pull
                forces[axis, later + other] -= pull
            forces[axis, row] += force
    for axis in range(components):
        for row in range(rows):
            forces[axis, row] += outward[row] * inverse[row] * layout[axis, row]
    return 2.0 * total


def _repel_some(
    layout: Float64Array,
    inverse: Float64Array,
    negatives: Int64Array,
    squared_gamma: float,
    forces: Float64Array,
) -> float:
    """Set ``forces`` to those sums over the rows ``negatives``, (rows, samples); return the sum of w over them."""
    components, rows = layout.shape
    samples = negatives.shape[1]
    others, inverse_others = np.empty((components, samples)), np.empty(samples)
    squared, cauchy, slope = np.empty(samples), np.empty(samples), np.empty(samples)
    total = 0.0
    for row in range(rows):
        for other in range(samples):
            inverse_others[other] = inverse[negatives[row, other]]
            for axis in range(components):
                others[axis, other] = layout[axis, negatives[row, other]]
        _fill(layout, inverse, row, others, inverse_others, squared_gamma, squared, cauchy, slope)
        outward = 0.0
        for other in range(samples):
            total += cauchy[other]
            slope[other] *= cauchy[other] * cauchy[other]
            outward += slope[other] * squared[other]
        for axis in range(components):
            force = outward * inverse[row] * layout[axis, row]
            for other in range(samples):
                force += slope[other] * (layout[axis, row] - others[axis, other])
            forces[axis, row] = force
    return total


# No fastmath: if sums may be reordered, the bits depend on whether numba compiled these functions together or
# found some of them in its cache. The result of a division by zero is never kept (see `share`).
_compiled = compiled(error_model="numpy")
_log: Callable[..., None] = _compiled(_logarithms)
_fill: Callable[..., None] = _compiled(_pairs)
attract: Callable[..., None] = _compiled(_attract)
repel_all: Callable[..., float] = _compiled(_repel_all)
repel_some: Callable[..., float] = _compiled(_repel_some)
