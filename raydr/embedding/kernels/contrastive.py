r"""Objective and gradient of Neg-t-SNE (Damrich et al., 2023): edges against random pairs, at a fixed normalisation.

Each edge (i, j) of the neighbour graph is discriminated from m pairs (i, l), where l is any other row. With
the Cauchy kernel :math:`\phi_{ij} = 1 / (1 + |y_i - y_j|^2)` and the noise level
:math:`\nu = m \bar Z / n^2`, a pair is classified as an edge with probability :math:`\phi / (\phi + \nu)`.
The layout minimises the cross entropy

.. math::

    \sum_{(i, j)} \underbrace{-\log \frac{\phi_{ij}}{\phi_{ij} + \nu}}_{\text{attraction}}
    + \sum_{(i, l)} \underbrace{-\log \frac{\nu}{\phi_{il} + \nu}}_{\text{repulsion}}.

With :math:`c = 1 + |y_i - y_j|^2` the two terms are :math:`\log(1 + \nu c)` and :math:`\log(1 + 1 / (\nu c))`.
Their gradients with respect to :math:`y_i` are :math:`2 \nu / (1 + \nu c) \cdot (y_i - y_j)` and
:math:`-2 / (c (1 + \nu c)) \cdot (y_i - y_l)`, with the opposite sign for the other end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from raydr.arrays import Float64Array, Int64Array, IntArray
from raydr.compiled import compiled


def attraction(layout: Float64Array, heads: IntArray, tails: IntArray, nu: float) -> float:
    """Return the sum of the attractive terms of the edges ``heads[e], tails[e]``; ``layout``: (rows, components).

    >>> round(attraction(np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([0]), np.array([1]), 0.5), 6)  # log 2
    0.693147
    """
    squared = np.square(layout[heads] - layout[tails]).sum(axis=-1)
    return float(np.log1p(nu * (1.0 + squared)).sum())


def repulsion(layout: Float64Array, heads: IntArray, negatives: IntArray, nu: float) -> float:
    """Return the sum of the repulsive terms of the pairs ``heads[e], negatives[e, sample]``.

    >>> round(repulsion(np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([0]), np.array([[1]]), 0.5), 6)  # log 2
    0.693147
    """
    squared = np.square(layout[heads][:, None] - layout[negatives]).sum(axis=-1)
    return float(np.log1p(1.0 / (nu * (1.0 + squared))).sum())


def _add_attraction(
    layout: Float64Array, heads: IntArray, tails: IntArray, nu: float, gradient: Float64Array
) -> None:
    """Add the gradient of :func:`attraction` to ``gradient``, (rows, components)."""
    for edge in range(heads.shape[0]):
        head, tail = heads[edge], tails[edge]
        cauchy = 1.0
        for axis in range(layout.shape[1]):
            cauchy += (layout[head, axis] - layout[tail, axis]) ** 2
        weight = 2.0 * nu / (1.0 + nu * cauchy)
        for axis in range(layout.shape[1]):
            force = weight * (layout[head, axis] - layout[tail, axis])
            gradient[head, axis] += force
            gradient[tail, axis] -= force


def _add_repulsion(
    layout: Float64Array, heads: IntArray, negatives: IntArray, nu: float, gradient: Float64Array
) -> None:
    """Add the gradient of :func:`repulsion` to ``gradient``, (rows, components)."""
    for edge in range(heads.shape[0]):
        head = heads[edge]
        for sample in range(negatives.shape[1]):
            other = negatives[edge, sample]
            cauchy = 1.0
            for axis in range(layout.shape[1]):
                cauchy += (layout[head, axis] - layout[other, axis]) ** 2
            weight = 2.0 / (cauchy * (1.0 + nu * cauchy))
            for axis in range(layout.shape[1]):
                force = weight * (layout[head, axis] - layout[other, axis])
                gradient[head, axis] -= force
                gradient[other, axis] += force


def _step(
    layout: Float64Array, gradient: Float64Array, row: int, learning_rate: float, largest: float
) -> None:
    """Move one row against its clipped gradient and clear the gradient, so that a row named twice moves once."""
    for axis in range(layout.shape[1]):
        slope = min(max(gradient[row, axis], -largest), largest)
        layout[row, axis] -= learning_rate * slope
        gradient[row, axis] = 0.0


def _descend(
    layout: Float64Array,
    heads: IntArray,
    tails: IntArray,
    negatives: IntArray,
    nu: float,
    learning_rate: float,
    batch: int,
    largest: float,
    gradient: Float64Array,
) -> None:
    """Process all edges once, ``batch`` at a time; each batch takes its gradient at one fixed layout.

    ``heads`` and ``tails``: (edges,), ``negatives``: (edges, samples); ``layout`` is changed in place.
    ``gradient`` is working memory of the layout's shape, zero before and after. Only rows that a batch names
    are touched, so the cost of a batch does not depend on the number of rows.
    """
    for start in range(0, heads.shape[0], batch):
        stop = min(start + batch, heads.shape[0])
        add_attraction(layout, heads[start:stop], tails[start:stop], nu, gradient)
        add_repulsion(layout, heads[start:stop], negatives[start:stop], nu, gradient)
        for edge in range(start, stop):
            _moved(layout, gradient, heads[edge], learning_rate, largest)
            _moved(layout, gradient, tails[edge], learning_rate, largest)
            for sample in range(negatives.shape[1]):
                _moved(layout, gradient, negatives[edge, sample], learning_rate, largest)


_compiled = compiled()
add_attraction: Callable[..., None] = _compiled(_add_attraction)
add_repulsion: Callable[..., None] = _compiled(_add_repulsion)
_moved: Callable[..., None] = _compiled(_step)
descend: Callable[..., None] = _compiled(_descend)


def symmetric_edges(indices: Int64Array) -> tuple[IntArray, IntArray]:
    """Return the edges of the symmetric neighbour graph: i to j and j to i, once each, if either has the other.

    Parameters
    ----------
    indices : (rows, k)
        Neighbours of each row, without the row itself.

    Returns
    -------
    heads, tails : (edges,) int32
        Sorted by heads, then tails.

    Examples
    --------
    >>> heads, tails = symmetric_edges(np.array([[1], [0], [1]]))
    >>> heads.tolist(), tails.tolist()
    ([0, 1, 1, 2], [1, 0, 2, 1])
    """
    rows, k = indices.shape
    own, neighbors = np.repeat(np.arange(rows), k), indices.ravel()
    pairs = np.unique(np.concatenate((own * rows + neighbors, neighbors * rows + own)))
    return (pairs // rows).astype(np.int32), (pairs % rows).astype(np.int32)


def draw_negatives(generator: np.random.Generator, heads: IntArray, rows: int, samples: int) -> IntArray:
    """Draw ``samples`` other rows for each of ``heads``, uniformly: (heads, samples) int32."""
    negatives = generator.integers(0, rows - 1, (heads.size, samples), np.int32)
    negatives += negatives >= heads[:, None]  # a draw at or above the head moves up by one
    return negatives
