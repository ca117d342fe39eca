"""How near the geometry that the server recovered is to the true one (P3, 4.1)."""

from __future__ import annotations

from math import fsum, sqrt

import numpy as np

from raydr.geometry import Geometry, Points, map_threaded, row_blocks
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.neighborhood import shared_neighbors
from raydr.neighbors import nearest_neighbors

COMPARED_ROWS = 20_000
"""Past this many rows, the distance error compares a sample of rows with all rows."""
SAMPLED_ROWS = 2_048
"""Rows in that sample, in blocks of `SAMPLE_BLOCK_ROWS` neighbouring rows, the blocks drawn uniformly by the seed."""
SAMPLE_BLOCK_ROWS = 64
BLOCK_ROWS = 256
F_SCORE_NEIGHBORS = 10


def distance_error(examination: Examination) -> float:
    r"""Relative error of the recovered distances, :math:`\|\hat D - D\|_F / \|D\|_F`; 0 and up.

    D are Euclidean distances (not squared); the diagonal counts as 0 in both. Past `COMPARED_ROWS` rows the sums
    run over a seeded sample of `SAMPLED_ROWS` rows against all rows.
    """
    recovered = _recovered(examination)
    blocks = row_blocks(examination.count, BLOCK_ROWS)
    if examination.count > COMPARED_ROWS:
        random = np.random.default_rng(examination.evidence.seed)
        pieces = row_blocks(examination.count, SAMPLE_BLOCK_ROWS)
        chosen = np.sort(random.choice(len(pieces), SAMPLED_ROWS // SAMPLE_BLOCK_ROWS, replace=False))
        blocks = [pieces[at] for at in chosen]
    true = Points(examination.rows)

    def squared_sums(block: tuple[int, int]) -> tuple[float, float]:
        start, stop = block
        distances = np.sqrt(true.squared_distance_block(start, stop))
        estimates = np.sqrt(np.maximum(recovered.squared_distance_block(start, stop), 0.0))
        estimates[np.arange(stop - start), np.arange(start, stop)] = 0.0
        return float(np.sum((estimates - distances) ** 2)), float(np.sum(distances**2))

    errors, totals = zip(*map_threaded(squared_sums, blocks, examination.threads), strict=True)
    if fsum(totals) == 0.0:
        raise UnmeasurableError("all rows are equal, so every true distance is 0")
    return sqrt(fsum(errors) / fsum(totals))


def f_score(examination: Examination) -> float:
    """F-score 2tp / (2tp + fp + fn) of the recovered 10 nearest neighbours against the true ones; 0 to 1.

    Both tables hold 10 neighbours of each row, so fp = fn, and the score is the share of neighbours recovered.
    """
    recovered = _recovered(examination)
    true = examination.neighbors_in_data(F_SCORE_NEIGHBORS).indices
    graph = examination.evidence.recovered_neighbors
    if graph is None or graph.k < F_SCORE_NEIGHBORS:
        graph = nearest_neighbors(recovered, F_SCORE_NEIGHBORS, threads=examination.threads)
    found = graph.nearest(F_SCORE_NEIGHBORS).indices
    true_positive = shared_neighbors(true, found)
    false_positive = found.size - true_positive
    false_negative = true.size - true_positive
    return 2 * true_positive / (2 * true_positive + false_positive + false_negative)


def _recovered(examination: Examination) -> Geometry:
    if examination.evidence.recovered is None:
        raise UnmeasurableError("the method recovers no geometry of the rows")
    return examination.evidence.recovered
