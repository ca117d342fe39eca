"""K_xx of the objective (9) of P1: the mean similarity between a client's rows, which no landmark changes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array
from raydr.federation import Client, Granularity, Range, Reply, Request, answers
from raydr.methods.landmarks.kernel import row_term
from raydr.privacy import Mechanism

_OBJECTIVE_SAMPLE = 500  # rows per client; only the reported objective needs it


@dataclass(frozen=True)
class SelfSimilarity(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the average similarity between a client's rows (one number)",
):
    """K_xx of the objective (9), estimated on a sample."""

    similarity: float

    @staticmethod
    def ranges(request: SelfSimilarityRequest, rows: int) -> dict[str, Range]:
        """Return the range: a mean of kernels, each at most 1."""
        return {"similarity": Range((), 1.001)}


@dataclass(frozen=True)
class SelfSimilarityRequest(Request[SelfSimilarity], what="the kernel bandwidth"):
    """Request sent once, for the part of the objective that no landmark changes.

    ``axes`` (features, axes), if given, have orthonormal columns: the kernel is that of rows projected on
    them.
    """

    gamma: float
    axes: Float64Array | None = None
    mechanism: Mechanism | None = None
    deviation: float = math.nan


@answers(SelfSimilarityRequest)
def self_similarity(client: Client, request: SelfSimilarityRequest) -> SelfSimilarity:
    """Run the client part: mean kernel between distinct rows of a sample."""
    count = client.rows.shape[0]
    sample = client.stream("objective").permutation(count)[:_OBJECTIVE_SAMPLE]
    rows = client.rows[np.sort(sample)]
    if request.axes is not None:
        rows = (rows - rows.mean(axis=0, dtype=np.float64)) @ request.axes
    return SelfSimilarity(row_term(rows, request.gamma))
