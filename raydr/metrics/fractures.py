"""The share of rows near a fracture of the map."""

from __future__ import annotations

import numpy as np

from raydr.embedding import TSNE, UMAP
from raydr.errors import DataError, ScenarioError
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric
from raydr.metrics.singularity import NEAR, Fractures, singularities


@metric(
    "fracture",
    "Near a fracture",
    "share of rows whose loss is nearly flat around their place, so that other places are almost as good",
    needs={"rows"},
    higher_is_better=False,
    by_default=False,  # it takes time that grows with the square of the rows, and only t-SNE and UMAP have it
)
def near_fractures(examination: Examination) -> Fractures:
    """Return the share of rows near a fracture, from 0 to 1, and the singularity of each."""
    embedder = examination.evidence.drawn_by
    if not isinstance(embedder, TSNE | UMAP):
        raise UnmeasurableError("neither t-SNE nor UMAP drew the map from all rows")
    sample = examination.sample
    try:
        found = singularities(
            examination.truth,
            examination.embedding,
            embedder,
            None if sample is None else sample.rows,
            examination.threads,
        )
    except (DataError, ScenarioError) as reason:
        raise UnmeasurableError(str(reason)) from reason
    near = (found >= NEAR).astype(np.float64)
    value = float(near.mean()) if sample is None else sample.mean(near)
    return Fractures(value, near, singularities=found)
