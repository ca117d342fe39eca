"""The share of reliable places on a map."""

from __future__ import annotations

import numpy as np

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
    if examination.sample is not None:
        raise UnmeasurableError(
            f"places are judged on maps of up to {examination.exact_rows:,} rows, but there are"
            f" {examination.count:,}"
        )
    if examination.evidence.truth is not None:
        raise UnmeasurableError("places are judged by Euclidean distances between rows of a dense table")
    if examination.count < LEAST_ROWS:
        raise UnmeasurableError(
            f"judging places needs at least {LEAST_ROWS} rows, but there are {examination.count}"
        )
    if not np.ptp(examination.rows, axis=0).any():
        raise UnmeasurableError("all rows are equal")
    shown, nearest = examination.map_neighbors(NEIGHBORS), examination.true_neighbors(NEIGHBORS)
    return judged(
        examination.rows,
        shown.nearest(NEIGHBORS).indices,
        nearest.nearest(NEIGHBORS).indices,
        examination.evidence.sites,
        seed=examination.evidence.seed,
        threads=examination.threads,
    )
