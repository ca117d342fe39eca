r"""How far a row's place on a map of t-SNE moves if the row is moved a little: LOO-map's perturbation score.

Row i is moved by a length :math:`\lambda` along the first principal axes of the data, in both directions. All other
places stay. Its place is then the minimum y of its loss with the affinities of the moved row (Liu, Ma and Zhong,
Nature Communications 2025):

.. math:: L(y) = 2 \sum_j p_{ij} \log(1 + |y - y_j|^2) + \log\left(Z_i + 2 \sum_j \frac{1}{1 + |y - y_j|^2}\right)

with :math:`Z_i` the sum over all pairs of other rows. The descent starts at the row's place and at those of the two
rows with the largest affinities, and the best minimum counts. As in LOO-map's second approximation, the bandwidths of
other rows stay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array, FloatArray, Int64Array
from raydr.device import ArrayDevice
from raydr.embedding.initialization import principal_components
from raydr.embedding.tsne import TSNE
from raydr.geometry.cells import find_neighbors
from raydr.geometry.equal_rows import equal_rows
from raydr.geometry.neighbors import NeighborGraph
from raydr.geometry.points import Points, distances_of_centred, map_threaded, row_blocks
from raydr.metrics.curvature import Pulls, Terms, tsne_loss, tsne_similarities
from raydr.threads import cores

JUMP = 0.25
"""Displacement, in radii of the map, from which a place jumps."""
NEIGHBORS = 10
"""Nearest rows whose median distance along an axis is the length of a move, as in ``npa_10``."""
AXES = 3
"""Principal axes along which rows are moved, as in LOO-map."""
STARTS = 3
"""Starts of a descent."""
_STEPS = 50
"""Largest number of steps of a descent."""
_LONGEST, _SHORTEST = 8.0, 1e-3
"""Longest step, and the step at which a descent ends, in units of the map."""
_MOST = 64
"""Largest number of rows of a block."""
_VALUES = 2**23
"""Distances of a block: 64 MB for each thread."""
_ROUNDING = 1e-5
"""Relative error of squared distances in single precision."""
_LARGEST = 500.0
"""Logarithm of the largest weight, of a row that moved next to another."""
_MEASURED = 5_000
"""Largest number of rows that decide how far rows are moved."""
_CPU = ArrayDevice()


@dataclass(frozen=True, eq=False)
class _Bandwidths:
    """The conditional affinities of all rows, without the matrix: each array is (rows,).

    A row at squared distance u from row j has the weight ``exp(-betas (u - nearest))`` for it, if u is at most
    ``reach``. The weights of its neighbours add up to ``totals``.
    """

    betas: Float64Array
    nearest: Float64Array
    reach: Float64Array
    totals: Float64Array

    @classmethod
    def of(cls, graph: NeighborGraph, perplexity: float) -> _Bandwidths:
        squared = graph.distances.astype(np.float64) ** 2
        found = _conditional(graph.distances, perplexity)
        # Between the nearest and the neighbour whose rank is the perplexity, no weight is too small.
        middle = min(int(perplexity), graph.k - 1)
        apart = squared[:, middle] - squared[:, 0]
        betas = np.log(found[:, 0] / found[:, middle]) / np.where(apart > 0.0, apart, np.inf)
        return cls(betas, squared[:, 0], squared[:, -1] * (1.0 + _ROUNDING), 1.0 / found[:, 0])

    def weights(self, rows: Int64Array, squared: FloatArray) -> Float64Array:
        """Return the weights (rows,) of a row at these squared distances from ``rows``, in those of their nearest."""
        return np.asarray(np.exp(np.minimum(-self.betas[rows] * (squared - self.nearest[rows]), _LARGEST)))


def _conditional(distances: FloatArray, perplexity: float) -> Float64Array:
    """Return the conditional affinities (rows, k) of neighbours, nearest first."""
    from raydr.embedding.kernels.affinities import conditional

    places = np.broadcast_to(np.arange(distances.shape[1]), distances.shape).copy()
    neighbors, found = np.empty(distances.shape, np.int32), np.empty(distances.shape, np.float32)
    conditional(distances.astype(np.float32), places, float(np.log(perplexity)), neighbors, found)
    return found.astype(np.float64)


def perturbations(
    points: Points,
    embedding: Float64Array,
    embedder: TSNE,
    own: Int64Array | None = None,
    *,
    length: float | None = None,
    threads: int | None = None,
) -> Float64Array:
    """Return perturbation scores (rows,) or (own,): the largest displacement of the place.

    It is in units of the map's radius, the root mean square distance of all places from their mean.

    Parameters
    ----------
    points : Points
        The rows.
    embedding : (rows, 2) or (rows, 3) float64
        The map.
    embedder : TSNE
        What drew it.
    own : (own,) int64, optional
        Rows of a sample. None for all.
    length : float, optional
        How far rows are moved. None for the median distance of the ten nearest along each axis.
    threads : int, optional
        Number of threads. The result does not depend on it.

    Raises
    ------
    DataError, ScenarioError
        If there are too few rows for the embedder.
    """
    from raydr.embedding.kernels.descent import repulsion

    radius = float(np.sqrt(((embedding - embedding.mean(axis=0)) ** 2).sum(axis=1).mean()))
    some = np.arange(points.rows) if own is None else own
    equal = equal_rows(points)
    if equal is not None:  # they count once in the layout
        points, embedding = points.take(equal.first), embedding[equal.first]
        some, place = np.unique(equal.group_of_row[some], return_inverse=True)
    rows = points.rows
    needed, perplexity = embedder.neighbors_needed(rows), embedder.effective_perplexity(rows)
    graph = find_neighbors(points, needed, recall=embedder.neighbor_recall, threads=threads).graph
    moves = principal_moves(points, graph.indices[:, :NEIGHBORS], length)
    bandwidths = _Bandwidths.of(graph, perplexity)
    total = repulsion(embedding, threads or cores(), np.empty_like(embedding))
    all_moved = _Moved(points, embedding, bandwidths, needed, perplexity, embedder.exaggeration, moves, total)

    def scored(block: tuple[int, int]) -> Float64Array:
        return all_moved.displacements(some[slice(*block)])

    size = max(1, _VALUES // (rows * len(moves)))
    scores = np.concatenate(list(map_threaded(scored, row_blocks(len(some), min(size, _MOST)), threads)))
    return (scores if equal is None else scores[place]) / radius


def principal_moves(points: Points, neighbors: Int64Array, length: float | None) -> Float64Array:
    """Return moves (2 axes, features) along the first principal axes, in both directions.

    Without a length, a row moves by the median distance of its ``neighbors`` (rows, k) along the axis.
    """
    features = points.coordinates.shape[1]
    scores = principal_components(points.coordinates, min(AXES, features))
    products = np.zeros((features, scores.shape[1]))
    for block in points.blocks():
        products += points.centred(block).T.astype(np.float64) @ scores[block]
    norms = np.sqrt((products**2).sum(axis=0))
    axes = (products / np.where(norms > 0.0, norms, 1.0)).T
    if length is None:
        some = slice(None, None, -(-points.rows // _MEASURED))
        lengths = [np.median(np.abs(score[neighbors[some]] - score[some, None])) for score in scores.T]
    else:
        lengths = [length] * len(axes)
    moves = np.asarray(lengths)[:, None] * axes
    return np.concatenate([moves, -moves])


@dataclass(frozen=True, eq=False)
class _Moved:
    """Everything that the displacement of a moved row depends on."""

    points: Points
    places: Float64Array
    bandwidths: _Bandwidths
    neighbors: int
    perplexity: float
    exaggeration: float
    moves: Float64Array
    total: float

    def displacements(self, own: Int64Array) -> Float64Array:
        """Return the largest displacement (own,) of each row's place."""
        moved = np.repeat(own, len(self.moves))
        affinities, starts = self._affinities(own)
        # Without the row's own pairs.
        before = tsne_similarities(self.places, own, self.places[own], 1).values
        others = np.repeat(self.total - 2.0 * before, len(self.moves))
        tasks = np.repeat(np.arange(len(moved)), STARTS)
        found, values = self._descended(
            moved[tasks], self.places[starts.ravel()], affinities, tasks, others[tasks]
        )
        best = np.arange(len(moved)) * STARTS + values.reshape(-1, STARTS).argmin(axis=1)
        apart = np.sqrt(((found[best] - self.places[moved]) ** 2).sum(axis=1))
        return np.asarray(apart.reshape(len(own), -1).max(axis=1))

    def _affinities(self, own: Int64Array) -> tuple[Pulls, Int64Array]:
        """Return the affinities of each moved row, and the rows (moved, `STARTS`) at whose places descents start."""
        points, known = self.points, self.bandwidths
        every, norms = points.centred(slice(None)), points.squared_norms
        before = distances_of_centred(every[own], norms[own], every, norms, _CPU)
        here = (every[own].astype(np.float64)[:, None] + self.moves).reshape(-1, every.shape[1])
        here = here.astype(every.dtype)
        after = distances_of_centred(here, np.einsum("ij,ij->i", here, here), every, norms, _CPU)
        tails, weights, starts = [], [], np.empty((len(here), STARTS), np.int64)
        for at, squared in enumerate(after):
            row = own[at // len(self.moves)]
            squared[row] = np.inf
            near = np.argpartition(squared, self.neighbors - 1)[: self.neighbors]
            near = near[np.lexsort((near, squared[near]))]
            joint = np.zeros(len(squared))
            joint[near] = _conditional(np.sqrt(squared[near])[None], self.perplexity)[0]
            was = before[at // len(self.moves)]
            reverse = np.flatnonzero(squared <= known.reach)
            weight = known.weights(reverse, squared[reverse])
            lost = np.where(was[reverse] <= known.reach[reverse], known.weights(reverse, was[reverse]), 0.0)
            joint[reverse] += weight / np.maximum(known.totals[reverse] - lost + weight, weight)
            found = np.flatnonzero(joint)
            largest = found[np.argsort(-joint[found], kind="stable")[: STARTS - 1]]
            starts[at] = [row, *largest]
            tails.append(found)
            weights.append(self.exaggeration * joint[found] / (2.0 * len(squared)))
        ends = np.concatenate([[0], np.cumsum([len(each) for each in tails])])
        return Pulls(ends, np.concatenate(tails), np.concatenate(weights)), starts

    def _descended(
        self, own: Int64Array, starts: Float64Array, affinities: Pulls, of: Int64Array, others: Float64Array
    ) -> tuple[Float64Array, Float64Array]:
        """Return the minima (tasks, dimensions) of losses and their values, by Newton's method in a region of trust.

        Directions of negative curvature are taken downhill.
        """

        def loss(tasks: Int64Array, at: Float64Array) -> Terms:
            similar = tsne_similarities(self.places, own[tasks], at, 1)
            pulls = Pulls.of(of[tasks], affinities.ends, affinities.tails, affinities.weights)
            return tsne_loss(self.places, at, pulls, similar, others[tasks] + 2.0 * similar.values)

        at, active = starts.copy(), np.arange(len(starts))
        terms, radii = loss(active, at), np.ones(len(starts))
        values = terms.values.copy()
        for _ in range(_STEPS):
            curvatures, axes = np.linalg.eigh(terms.hessians)
            slopes = np.einsum("iba,ib->ia", axes, terms.gradients)
            curvatures = np.maximum(np.abs(curvatures), 1e-300)
            steps = -np.einsum("iab,ib->ia", axes, slopes / curvatures)
            lengths = np.sqrt((steps**2).sum(axis=1))
            shorter = np.minimum(1.0, radii[active] / np.maximum(lengths, 1e-300))
            steps, lengths = steps * shorter[:, None], lengths * shorter
            found = loss(active, at[active] + steps)
            better = found.values < values[active]
            at[active[better]] += steps[better]
            values[active[better]] = found.values[better]
            radii[active] = np.where(better, np.minimum(2.0 * radii[active], _LONGEST), lengths / 4.0)
            going = np.where(better, lengths, radii[active]) > _SHORTEST
            terms = Terms(
                np.where(better, found.values, terms.values)[going],
                np.where(better[:, None], found.gradients, terms.gradients)[going],
                np.where(better[:, None, None], found.hessians, terms.hessians)[going],
            )
            active = active[going]
            if not len(active):
                break
        return at, values
