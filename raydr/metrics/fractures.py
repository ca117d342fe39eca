"""LOO-map's two scores of a place: rows near a fracture of the map, and rows that would jump on it."""

from __future__ import annotations

import numpy as np

from raydr.arrays import BoolArray, Float64Array
from raydr.embedding import TSNE, UMAP
from raydr.errors import DataError, ScenarioError
from raydr.geometry.points import Points
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric
from raydr.metrics.perturbation import JUMP, perturbations
from raydr.metrics.sampling import ScoredRows
from raydr.metrics.singularity import NEAR, singularities


@metric(
    "fracture",
    "Near a fracture",
    "share of rows whose loss is nearly flat around their place, so that other places are almost as good",
    needs={"rows"},
    higher_is_better=False,
    by_default=False,  # it takes time that grows with the square of the rows, and only t-SNE and UMAP have it
)
def near_fractures(examination: Examination) -> ScoredRows:
    """Return the share of rows near a fracture, from 0 to 1, and the singularity of each."""
    embedder, sample = examination.evidence.drawn_by, examination.sample
    if not isinstance(embedder, TSNE | UMAP):
        raise UnmeasurableError("neither t-SNE nor UMAP drew the map from all rows")
    own = None if sample is None else sample.rows
    try:
        found = singularities(examination.truth, examination.embedding, embedder, own, examination.threads)
    except (DataError, ScenarioError) as reason:
        raise UnmeasurableError(str(reason)) from reason
    return _scored(examination, "singularity", found, found >= NEAR)


@metric(
    "perturbation",
    "Jumps",
    "share of rows whose place on a map of t-SNE would jump if they moved by the distance of near rows",
    needs={"rows"},
    higher_is_better=False,
    by_default=False,  # it takes much longer than `fracture`, and only t-SNE has it
)
def jumping_rows(examination: Examination) -> ScoredRows:
    """Return the share of rows that would jump, from 0 to 1, and the perturbation score of each."""
    embedder, sample = examination.evidence.drawn_by, examination.sample
    if not isinstance(embedder, TSNE):
        raise UnmeasurableError("t-SNE did not draw the map from all rows")
    if not isinstance(examination.truth, Points):
        raise UnmeasurableError("rows can only be moved in a dense table with Euclidean distances")
    own = None if sample is None else sample.rows
    try:
        found = perturbations(
            examination.truth, examination.embedding, embedder, own, threads=examination.threads
        )
    except (DataError, ScenarioError) as reason:
        raise UnmeasurableError(str(reason)) from reason
    return _scored(examination, "perturbation", found, found >= JUMP)


def _scored(examination: Examination, column: str, scores: Float64Array, high: BoolArray) -> ScoredRows:
    counted = high.astype(np.float64)
    value = float(counted.mean()) if examination.sample is None else examination.sample.mean(counted)
    return ScoredRows(value, counted, column=column, scores=scores)
