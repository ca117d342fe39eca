"""The share of reliable places on a map."""

from __future__ import annotations

import numpy as np

from raydr.arrays import FloatArray
from raydr.metrics.evidence import Examination, UnmeasurableError
from raydr.metrics.metric import metric
from raydr.metrics.verdicts import LEAST_ROWS, NEIGHBORS, Reliability, judged


@metric(
    "reliable",
    "Reliable places",
    f"share of rows whose {NEIGHBORS} nearest in the map are nearer in the data than by chance",
    needs={"rows"},
    by_default=False,  # of weakly structured data it says more on the data than on the map
)
def reliable_places(examination: Examination) -> Reliability:
    """Return the share of reliable places, from 0 to 1, and the verdict on each: see :mod:`raydr.metrics.verdicts`."""
    if examination.evidence.truth is not None:
        raise UnmeasurableError("places are judged by Euclidean distances between rows of a dense table")
    if examination.count < LEAST_ROWS:
        raise UnmeasurableError(
            f"judging places needs at least {LEAST_ROWS} rows, but there are {examination.count}"
        )
    if not np.ptp(examination.evidence.rows, axis=0).any():
        raise UnmeasurableError("all rows are equal")
    if examination.sample is None:
        rows: FloatArray = examination.rows
        shown = examination.map_neighbors(NEIGHBORS).nearest(NEIGHBORS).indices
        nearest = examination.true_neighbors(NEIGHBORS).nearest(NEIGHBORS).indices
    else:
        rows = examination.evidence.rows
        shown = examination.sample_map_neighbors.indices[:, :NEIGHBORS]
        nearest = examination.sample_row_neighbors.indices[:, :NEIGHBORS]
    return judged(
        rows,
        shown,
        nearest,
        examination.evidence.sites,
        sample=examination.sample,
        seed=examination.evidence.seed,
        threads=examination.threads,
    )
