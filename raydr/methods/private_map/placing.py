"""Placement of a client's rows on a map of landmarks, by :mod:`raydr.embedding.placing` and its own rows.

With weight ``own``, a row i is also pulled by the client's other rows, by symmetric affinities s_ij among
them (perplexity 10), computed from the data without noise:

    F_i = (1 - own) sum_l p_{l|i} w_il (y_i - y_l) + own sum_j s_ij w_ij (y_i - y_j) - sum_l c_l w_il^2 (y_i - y_l) / Z.

Own rows do not repel each other, because their density is the client's, not that of all rows. With such repulsion,
clients of one class pushed their rows out of their class's part of the map. kNN accuracy was then 0.85 instead of 0.94
(MNIST, 60,000 rows, epsilon 1).

A row's affinities to landmarks are a mean of its own and those of its nearest own rows. These are neighbours in all
features and not only in the frame. Nothing of this leaves the client. *Measured*, MNIST, epsilon 1, IID, the rows of
three of ten clients, two seeds (kNN accuracy, trustworthiness on 4,000 rows). The start was chosen by trustworthiness,
and so was the part, among those with accuracy above 0.905:

    start      part of nearest own rows        seed 0            seed 1
    mean       0.5                         0.908, 0.969      0.907, 0.967
    landmark   0.5                         0.902, 0.976
    landmark   0.65                        0.912, 0.975      0.909, 0.974
    landmark   0.8                         0.912, 0.975      0.914, 0.974
    landmark   1.0                         0.909, 0.972
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from raydr.arrays import Float64Array, FloatArray
from raydr.embedding import placing, principal_components
from raydr.embedding.placing import conditional
from raydr.geometry.blocks import filled_up
from raydr.geometry.neighbors import nearest_neighbors
from raydr.geometry.points import Points, squared_distances
from raydr.wire_types import travels

OWN_PERPLEXITY = 10.0
SMOOTHED = 0.65
"""Part of a row's affinities to landmarks that comes from its nearest own rows."""
_SMOOTHED_OVER, _OWN_AXES = 5, 50
_ROWS_OF_A_NEIGHBOR, _ROWS_OF_PERPLEXITY = 100, 60
"""A client with fewer rows has more distant neighbours: it uses fewer of them, and with under 100 rows none."""
_ROWS_AMONG_DRAWN = 20
"""The same for both among drawn landmarks. *Measured*, epsilon 1, ten clients, means of three seeds, against both as
above: trustworthiness 0.03 higher for German credit and 0.02 for digits, kNN accuracy 0.07 for breast cancer."""


@travels
@dataclass(frozen=True)
class Landmarks:
    """Cells on the map, or rows drawn from their mixture.

    Attributes
    ----------
    centres : (landmarks, axes) float64
        Positions in the frame.
    counts : (landmarks,) float64
        Number of rows that each represents, positive.
    places : (landmarks, 2) float64
        Positions on the map.
    """

    centres: Float64Array
    counts: Float64Array
    places: Float64Array


@dataclass(frozen=True)
class OwnRows:
    """A client's knowledge of its own rows.

    Attributes
    ----------
    weight : float
        Weight of their attraction.
    nearest : (rows, few) int64
        Nearest own rows, over which affinities to landmarks are averaged.
    affinities : (rows, rows) scipy.sparse.csr_array
        s_ij, which sum to 1 per row on average.
    """

    weight: float
    nearest: Any
    affinities: Any


def own_rows(rows: FloatArray, weight: float, *, drawn: bool = False) -> OwnRows | None:
    """Return neighbours among a client's rows (rows, features), along their own principal axes; None for few rows.

    ``drawn`` says that landmarks are drawn, which leaves more to own neighbours.
    """
    from scipy.sparse import csr_array

    of_one, of_perplexity = (
        (_ROWS_AMONG_DRAWN, _ROWS_AMONG_DRAWN) if drawn else (_ROWS_OF_A_NEIGHBOR, _ROWS_OF_PERPLEXITY)
    )
    few = min(_SMOOTHED_OVER, len(rows) // of_one)
    if not few or not np.ptp(rows, axis=0).any():
        return None
    perplexity = min(OWN_PERPLEXITY, len(rows) / of_perplexity)
    space = principal_components(rows, _OWN_AXES) if rows.shape[1] > _OWN_AXES else rows
    graph = nearest_neighbors(Points(space), int(3 * perplexity), threads=1)
    weights = conditional(graph.distances.astype(np.float64), perplexity)
    starts = np.arange(len(rows) + 1) * graph.k
    directed = csr_array((weights.ravel(), graph.indices.ravel(), starts), shape=(len(rows), len(rows)))
    return OwnRows(weight, graph.indices[:, :few], csr_array((directed + directed.T) / 2.0))


def place(
    points: Float64Array, landmarks: Landmarks, own: OwnRows | None = None, *, iterations: int
) -> Float64Array:
    """Return positions (rows, 2) of rows with the frame coordinates ``points`` (rows, axes).

    Without ``own``, the position of a row does not depend on the other rows.
    """
    from scipy.sparse import csr_array

    def near(block: slice) -> FloatArray:
        return squared_distances(filled_up(points[block]), landmarks.centres)[: block.stop - block.start]

    pulls = placing.affinities(near, len(points), len(landmarks.centres))
    if own is None:
        return placing.place(pulls, landmarks.places, landmarks.counts, iterations=iterations)
    rows, few = own.nearest.shape
    share = np.full(rows * few, SMOOTHED / few)
    near = csr_array((share, own.nearest.ravel(), np.arange(rows + 1) * few), shape=(rows, rows))
    return placing.place(
        csr_array((1.0 - SMOOTHED) * pulls + near @ pulls),
        landmarks.places,
        landmarks.counts,
        iterations=iterations,
        own=own.affinities,
        weight=own.weight,
    )
