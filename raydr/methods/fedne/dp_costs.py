"""What FedNE's releases cost, where noise on updates claims something: each is charged, or not made.

In a round the update is the one that matters, and the field costs a tenth of it: a table over a plane, of which one
record or client moves no more than its own share. What rows are scaled by, and the axes that the first encoder begins
with, are learnt from one noisy sum. What has no bounded sensitivity is switched off: control variates, votes on the
map's reach, networks as surrogates, prototypes, the loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from raydr.arrays import Float64Array, shaped
from raydr.errors import ScenarioError
from raydr.federation import Client, Federation, Granularity, Range, Reply, Request, answers
from raydr.fixed_point import grid_bits, on_grid
from raydr.methods.fedne.pairs import pairs_moved
from raydr.methods.fedne.settings import AveragedEncoder
from raydr.privacy import Mechanism, Quantity
from raydr.privacy.mechanism import moved_mean
from raydr.privacy.shares import summed_deviation
from raydr.statistics.principal_axes import PrincipalAxes
from raydr.statistics.scaling import ScaleRows, Scaling
from raydr.statistics.second_moments import (
    SENSITIVITY,
    SecondMomentsRequest,
    axes_of,
    require_few_features,
    unpacked,
)
from raydr.threads import one_blas_thread

DENSITY_SHARE = 0.1
"""What a round's density spends, as a part of what its update does."""
AXES_PART, MEAN_PART = 0.25, 0.05
"""Of all that is spent: by the moments of principal axes, or by a mean and a scale alone."""


def noise_on_updates(federation: Federation) -> Mechanism | None:
    """Return what covers all that clients upload, None where nothing is to."""
    return federation.context.mechanism("update")


def by_record(noise: Mechanism | None) -> bool:
    """Whether clients tell gradients of pairs rather than where their own training ended."""
    return noise is not None and noise.protects == "record"


def weighting(noise: Mechanism | None) -> Literal["clients", "rows"]:
    """How clients count: by rows, unless a whole client is what noise hides: then the largest may not count more."""
    return "clients" if noise is not None and noise.protects == "client" else "rows"


def moments_part(settings: AveragedEncoder) -> float:
    """What of all that is spent the one release before the rounds spends."""
    return AXES_PART if settings.starts_at_axes else MEAN_PART


def update_sensitivity(federation: Federation, settings: AveragedEncoder, noise: Mechanism) -> float:
    """Bound how far one record, or client, moves what the noise on updates is added to.

    That is a client's mean, most of all at the client with the fewest rows; or, in shares, the sum over all rows.
    """
    clip = (2.0 if noise.relation == "replace-one" else 1.0) * (noise.cut or math.inf)
    if noise.protects == "client":
        return clip
    moved = pairs_moved(settings.has_field) * clip
    return moved if noise.shared else moved / min(rows for rows in federation.sizes if rows)


def density_noise(federation: Federation, settings: AveragedEncoder) -> Mechanism | None:
    """What covers a round's density: what covers all, spending its part; or noise on surrogates alone (P2 6)."""
    noise = noise_on_updates(federation)
    if noise is None:
        return federation.context.mechanism("surrogate")
    return noise.parted(DENSITY_SHARE, update_sensitivity(federation, settings, noise))


def moments_noise(federation: Federation, settings: AveragedEncoder) -> Mechanism | None:
    """What covers the one release before the rounds."""
    noise = noise_on_updates(federation)
    if noise is None:
        return None
    share = settings.releases(noise) * moments_part(settings)
    return noise.parted(share, update_sensitivity(federation, settings, noise))


@dataclass(frozen=True)
class MeanAndLength(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="the mean of a client's rows, and their mean squared distance from the centre",
    covers=("packed",),
):
    """``packed`` (features + 1,) float64: mean of x, then of |x|^2, in units of the longest that x may be."""

    packed: Float64Array

    @staticmethod
    def ranges(request: MeanRequest, rows: int) -> dict[str, Range]:
        """No entry exceeds 1; a billionth is for rounding."""
        return {"packed": Range((request.centre.size + 1,), 1.0 + 1e-9)}

    def quantities(self, on: str, request: object) -> dict[str, Quantity]:
        """All of it."""
        return {"packed": Quantity(self.packed)}


@dataclass(frozen=True)
class MeanRequest(Request[MeanAndLength], what="a common centre, and the clip norm of rows"):
    """Ask for the moments of rows seen from ``centre`` (features,), none of which counts as longer than ``clip``."""

    centre: Float64Array
    clip: float
    mechanism: Mechanism | None = None
    deviation: float = math.nan

    def sensitivity(self, rows: int) -> float:
        """Of the means over so many rows."""
        return moved_mean(self.mechanism, SENSITIVITY, rows)

    def replace_sensitivity(self, rows: int) -> float:
        """Bound a replacement: |x - y|^2 + (|x|^2 - |y|^2)^2 is 4 at most, where x = -y."""
        return moved_mean(self.mechanism, 2.0 * (1.0 + 1e-9), rows)


@answers(MeanRequest)
def mean_and_length(client: Client, request: MeanRequest) -> MeanAndLength:
    """Client part, by exact sums."""
    rows = on_grid(client.rows - request.centre, request.clip, grid_bits(len(client.rows), degree=2))
    count = max(1, len(rows))
    return MeanAndLength(np.append(rows.sum(axis=0), (rows**2).sum()) / count)


@dataclass(frozen=True)
class Scaled:
    """What one sum said of all rows.

    Attributes
    ----------
    scaling : Scaling
        What clients have done to their rows.
    axes : PrincipalAxes or None
        Of the scaled rows, as many as stand out of the noise; None where none were asked for.
    """

    scaling: Scaling
    axes: PrincipalAxes | None


def moments_request(federation: Federation, settings: AveragedEncoder) -> MeanRequest | SecondMomentsRequest:
    """What to ask of rows that lie within ``method.bounds``: none is farther from their middle than the clip."""
    low, high = _bounds(settings)
    centre = np.full(federation.features, (low + high) / 2.0)
    clip, noise = (high - low) / 2.0 * math.sqrt(federation.features), moments_noise(federation, settings)
    if settings.starts_at_axes:
        require_few_features(federation.features)
        return SecondMomentsRequest(centre, clip, noise)
    return MeanRequest(centre, clip, noise)


def _bounds(settings: AveragedEncoder) -> tuple[float, float]:
    if settings.bounds is None:
        raise ScenarioError("moments within bounds need bounds: set method.bounds.")
    return settings.bounds


def scaled_within_bounds(federation: Federation, settings: AveragedEncoder, axes: int) -> Scaled:
    """Have clients shift and scale their rows by what one sum says, as :func:`standardised` does by several."""
    request = moments_request(federation, settings)
    packed, found = _mean_of(federation, request), None
    with one_blas_thread():
        mean, square = packed[:-1], float(packed[-1])
        if isinstance(request, SecondMomentsRequest):
            mean, products = unpacked(packed, federation.features)
            square = float(np.trace(products))
            found = axes_of(packed, federation.features, request.clip, axes)
    variance = (square - float(mean @ mean)) / federation.features
    low, high = _bounds(settings)
    # Noise may leave no variance at all: then as if values were anywhere within their bounds.
    scale = request.clip * math.sqrt(variance) if variance > 0.0 else (high - low) / math.sqrt(12.0)
    scaling = Scaling(request.centre + request.clip * mean, np.full(federation.features, 1.0 / scale), False)
    federation.ask(ScaleRows(scaling.shift, scaling.factor, scaling.unit))
    if found is not None:
        found = _above(found, request.clip * math.sqrt(_noise_edge(federation, request)), scale)
    return Scaled(scaling, found)


def _mean_of(federation: Federation, request: MeanRequest | SecondMomentsRequest) -> Float64Array:
    """What all clients say together."""
    weights = weighting(request.mechanism)
    if isinstance(request, MeanRequest):
        return federation.mean(request, weights=weights).packed
    return federation.mean(request, weights=weights).packed


def rehearse_scaled(federation: Federation, settings: AveragedEncoder) -> None:
    """Ask what :func:`scaled_within_bounds` asks."""
    _mean_of(federation, moments_request(federation, settings))
    features = shaped((federation.features,))
    federation.ask(ScaleRows(features, features, False))


def _noise_edge(federation: Federation, request: MeanRequest | SecondMomentsRequest) -> float:
    """Largest eigenvalue, about, of the noise in the mean of second moments: 2 sigma sqrt(features) (Wigner 1955)."""
    noise, clients = request.mechanism, sum(1 for rows in federation.sizes if rows)
    count = clients if weighting(noise) == "clients" else federation.rows
    if noise is None or (claim := noise.claim(request.claimed_sensitivity(1) / count)) is None:
        return 0.0
    summed = summed_deviation(noise.shared, clients, federation.context.budget.colluding)
    return 2.0 * claim.deviation * summed * math.sqrt(federation.features)


def _above(axes: PrincipalAxes, edge: float, scale: float) -> PrincipalAxes:
    """Axes along which rows vary by more than noise alone would say, at least one, in scaled units."""
    count = max(1, int((axes.deviations > edge).sum()))
    return PrincipalAxes(axes.directions[:, :count], axes.deviations[:count] / scale)
