"""Mean and second moments of all clients' rows in one sum with bounded sensitivity.

A quantity that a mechanism protects must be requested once and be bounded. Here rows are taken relative to a public
centre and clipped to a public length C: x -> x min(1, C / |x|) / C. A client's reply is one vector: the means of these
x and of the upper triangle of x x^T. Neither part of one row's vector is longer than 1. So zeroing out a record moves
a sum over n rows by sqrt(2), and the mean with weights by rows by sqrt(2) / n. Replacing x by y moves it, squared, by
at most |x - y|^2 + |x x^T - y y^T|^2 = a^2 + b^2 + a^4 + b^4 - 2 a b c - 2 (a b c)^2, with a and b their lengths and c
the cosine between them. The maximum is 9/2, at unit vectors 120 degrees apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from raydr.arrays import Float64Array
from raydr.errors import ScenarioError
from raydr.federation import Client, Federation, Granularity, Range, Reply, Request, answers
from raydr.fixed_point import grid_bits, on_grid, shortened
from raydr.privacy import Mechanism, Quantity
from raydr.privacy.mechanism import moved_mean
from raydr.statistics.principal_axes import PrincipalAxes, signed
from raydr.threads import one_blas_thread

MOST_FEATURES = 4096
"""Largest number of features. More would need 67 MB for each reply and 134 MB for the matrix, and a minute of one core
for its axes.
"""

SENSITIVITY = math.sqrt(2.0) * (1.0 + 1e-9)
"""L2 distance by which zeroing out one record can move the sum of the vectors of all rows."""
REPLACE_SENSITIVITY = 3.0 / math.sqrt(2.0) * (1.0 + 1e-9)
"""L2 distance by which replacing one record can move that sum."""

_BLOCK_ROWS = 2048


@dataclass(frozen=True)
class SecondMoments(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="where a client's rows lie on average, and how each pair of features varies together",
    covers=("packed",),
):
    """``packed`` (features + features (features + 1) / 2,) float64: means of x, then of x x^T's upper triangle."""

    packed: Float64Array

    @staticmethod
    def ranges(request: SecondMomentsRequest, rows: int) -> dict[str, Range]:
        """Bound entries by 1, as for a vector of length 1 and its outer product, plus 1e-9 for rounding."""
        return {"packed": Range((packed_size(request.centre.size),), 1.0 + 1e-9)}

    def quantities(self, on: str, request: object) -> dict[str, Quantity]:
        """Return all of it; the noise is symmetric ("Analyze Gauss", Dwork et al. 2014), as only a triangle is sent."""
        return {"packed": Quantity(self.packed)}


@dataclass(frozen=True)
class SecondMomentsRequest(Request[SecondMoments], what="a common centre, and the length to shorten rows to"):
    """Request for the moments of rows relative to ``centre`` (features,), clipped to length ``clip``."""

    centre: Float64Array
    clip: float
    mechanism: Mechanism | None = None
    deviation: float = math.nan

    def sensitivity(self, rows: int) -> float:
        """Bound the means over ``rows`` rows."""
        return moved_mean(self.mechanism, SENSITIVITY, rows)

    def replace_sensitivity(self, rows: int) -> float:
        """Bound the means over ``rows`` rows."""
        return moved_mean(self.mechanism, REPLACE_SENSITIVITY, rows)


@answers(SecondMomentsRequest)
def second_moments(client: Client, request: SecondMomentsRequest) -> SecondMoments:
    """Client part, by blocks of rows; with exact sums if a mechanism covers it."""
    features, bits = request.centre.size, grid_bits(len(client.rows), degree=2)
    total, square = np.zeros(features), np.zeros((features, features))
    for start in range(0, len(client.rows), _BLOCK_ROWS):
        seen = client.rows[start : start + _BLOCK_ROWS] - request.centre
        covered = request.mechanism is not None
        rows = on_grid(seen, request.clip, bits) if covered else shortened(seen, request.clip)
        total += rows.sum(axis=0)
        square += rows.T @ rows
    count = max(1, len(client.rows))
    return SecondMoments(packed(total / count, square / count))


def packed_size(features: int) -> int:
    """Return the number of entries of a packed vector."""
    return features + features * (features + 1) // 2


def packed(mean: Float64Array, square: Float64Array) -> Float64Array:
    """Return a mean (features,) and the upper triangle of a symmetric matrix (features, features) as one vector."""
    return np.concatenate([mean, *(square[row, row:] for row in range(len(mean)))])


def unpacked(vector: Float64Array, features: int) -> tuple[Float64Array, Float64Array]:
    """Return the mean and the symmetric matrix that :func:`packed` joined."""
    square = np.empty((features, features))
    start = features
    for row in range(features):
        stop = start + features - row
        square[row, row:] = square[row:, row] = vector[start:stop]
        start = stop
    return vector[:features], square


def require_few_features(features: int) -> None:
    """Raise ScenarioError if there are too many features for second moments."""
    if features > MOST_FEATURES:
        raise ScenarioError(
            f"The data have {features} features, but moments of all feature pairs are released for at most"
            f" {MOST_FEATURES}. Set method.landmarks_from: random, which needs no moments, or name fewer"
            " data.features."
        )


def moment_axes(federation: Federation, request: SecondMomentsRequest, count: int) -> PrincipalAxes:
    """Return the first ``count`` principal axes of all rows, or as many as there are features, by one sum.

    Exact if no row is farther than the request's ``clip`` from its ``centre``, which need not be the mean of the rows.

    Raises
    ------
    ScenarioError
        If there are too many features.
    """
    require_few_features(federation.features)
    reply = federation.mean(request, weights="rows")
    with one_blas_thread():
        return axes_of(reply.packed, federation.features, request.clip, count)


def axes_of(vector: Float64Array, features: int, clip: float, count: int) -> PrincipalAxes:
    """Return principal axes of packed moments, in units of ``clip``; negative variances from noise count as 0."""
    mean, square = unpacked(vector, features)
    variances, axes = np.linalg.eigh(square - np.outer(mean, mean))
    first = slice(None, -min(count, features) - 1, -1)
    return PrincipalAxes(signed(axes[:, first]), clip * np.sqrt(np.maximum(variances[first], 0.0)))
