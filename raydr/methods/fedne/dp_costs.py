"""Privacy costs of FedNE's releases under noise on updates: each release is charged, or not made.

In a round the update costs most, and the field a tenth of it. The field is a table over a plane, and one
record or client changes it by no more than its own share. The scaling of rows and the axes of the first
encoder come from one noisy sum. Releases of unbounded sensitivity are switched off: control variates, votes on
the map's reach, surrogate networks, prototypes, the loss.
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
"""Budget of a round's density, relative to that of its update."""
AXES_PART, MEAN_PART = 0.25, 0.05
"""Share of the whole budget for the moments of principal axes, or for a mean and a scale alone."""


def noise_on_updates(federation: Federation) -> Mechanism | None:
    """Return the mechanism that covers all uploads of clients, or None."""
    return federation.context.mechanism("update")


def by_record(noise: Mechanism | None) -> bool:
    """Return whether clients send gradients of pairs instead of trained weights."""
    return noise is not None and noise.protects == "record"


def weighting(noise: Mechanism | None) -> Literal["clients", "rows"]:
    """Return how clients are weighted: by rows, or equally if noise protects whole clients.

    With equal weights, the largest client does not count more than others.
    """
    return "clients" if noise is not None and noise.protects == "client" else "rows"


def moments_part(settings: AveragedEncoder) -> float:
    """Return the share of the budget that the one release before the rounds costs."""
    return AXES_PART if settings.starts_at_axes else MEAN_PART


def update_sensitivity(federation: Federation, settings: AveragedEncoder, noise: Mechanism) -> float:
    """Return how far one record, or client, can move the quantity that noise on updates is added to.

    This is a client's mean, and the bound is that of the client with the fewest rows. With noise in shares, it is the
    sum over all rows.
    """
    clip = (2.0 if noise.relation == "replace-one" else 1.0) * (noise.cut or math.inf)
    if noise.protects == "client":
        return clip
    moved = pairs_moved(settings.has_field) * clip
    return moved if noise.shared else moved / min(rows for rows in federation.sizes if rows)


def density_noise(federation: Federation, settings: AveragedEncoder) -> Mechanism | None:
    """Return the mechanism for a round's density: a share of that for updates, or noise on surrogates (P2 6)."""
    noise = noise_on_updates(federation)
    if noise is None:
        return federation.context.mechanism("surrogate")
    return noise.parted(DENSITY_SHARE, update_sensitivity(federation, settings, noise))


def moments_noise(federation: Federation, settings: AveragedEncoder) -> Mechanism | None:
    """Return the mechanism for the one release before the rounds."""
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
    """``packed`` (features + 1,) float64: mean of x, then of |x|^2, in units of the longest allowed x."""

    packed: Float64Array

    @staticmethod
    def ranges(request: MeanRequest, rows: int) -> dict[str, Range]:
        """Return the range: no entry exceeds 1, plus a billionth for rounding."""
        return {"packed": Range((request.centre.size + 1,), 1.0 + 1e-9)}

    def quantities(self, on: str, request: object) -> dict[str, Quantity]:
        """Return the whole reply as one quantity."""
        return {"packed": Quantity(self.packed)}


@dataclass(frozen=True)
class MeanRequest(Request[MeanAndLength], what="a common centre, and the clip norm of rows"):
    """Request for the moments of rows relative to ``centre`` (features,), clipped to norm ``clip``."""

    centre: Float64Array
    clip: float
    mechanism: Mechanism | None = None
    deviation: float = math.nan

    def sensitivity(self, rows: int) -> float:
        """Return the sensitivity of the means over this many rows."""
        return moved_mean(self.mechanism, SENSITIVITY, rows)

    def replace_sensitivity(self, rows: int) -> float:
        """Return the sensitivity under replacement: |x - y|^2 + (|x|^2 - |y|^2)^2 is at most 4, where x = -y."""
        return moved_mean(self.mechanism, 2.0 * (1.0 + 1e-9), rows)


@answers(MeanRequest)
def mean_and_length(client: Client, request: MeanRequest) -> MeanAndLength:
    """Run the client part, with exact sums."""
    rows = on_grid(client.rows - request.centre, request.clip, grid_bits(len(client.rows), degree=2))
    count = max(1, len(rows))
    return MeanAndLength(np.append(rows.sum(axis=0), (rows**2).sum()) / count)


@dataclass(frozen=True)
class Scaled:
    """Scaling and axes that one sum gives.

    Attributes
    ----------
    scaling : Scaling
        How clients have scaled their rows.
    axes : PrincipalAxes or None
        Axes of the scaled rows that exceed the noise; None if none were requested.
    """

    scaling: Scaling
    axes: PrincipalAxes | None


def moments_request(federation: Federation, settings: AveragedEncoder) -> MeanRequest | SecondMomentsRequest:
    """Return the request for rows within ``method.bounds``: none is farther from their middle than the clip."""
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
    """Have clients shift and scale their rows by one sum; :func:`standardised` does it with several."""
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
    # Noise may leave no variance: then assume values anywhere within their bounds.
    scale = request.clip * math.sqrt(variance) if variance > 0.0 else (high - low) / math.sqrt(12.0)
    scaling = Scaling(request.centre + request.clip * mean, np.full(federation.features, 1.0 / scale))
    federation.ask(ScaleRows(scaling.shift, scaling.factor))
    if found is not None:
        found = _above(found, request.clip * math.sqrt(_noise_edge(federation, request)), scale)
    return Scaled(scaling, found)


def _mean_of(federation: Federation, request: MeanRequest | SecondMomentsRequest) -> Float64Array:
    """Return the mean over all clients."""
    weights = weighting(request.mechanism)
    if isinstance(request, MeanRequest):
        return federation.mean(request, weights=weights).packed
    return federation.mean(request, weights=weights).packed


def rehearse_scaled(federation: Federation, settings: AveragedEncoder) -> None:
    """Ask what :func:`scaled_within_bounds` asks."""
    _mean_of(federation, moments_request(federation, settings))
    features = shaped((federation.features,))
    federation.ask(ScaleRows(features, features))


def _noise_edge(federation: Federation, request: MeanRequest | SecondMomentsRequest) -> float:
    """Return about the largest eigenvalue of noise in second moments: 2 sigma sqrt(features) (Wigner 1955)."""
    noise, clients = request.mechanism, sum(1 for rows in federation.sizes if rows)
    count = clients if weighting(noise) == "clients" else federation.rows
    if noise is None or (claim := noise.claim(request.claimed_sensitivity(1) / count)) is None:
        return 0.0
    summed = summed_deviation(noise.shared, clients, federation.context.budget.colluding)
    return 2.0 * claim.deviation * summed * math.sqrt(federation.features)


def _above(axes: PrincipalAxes, edge: float, scale: float) -> PrincipalAxes:
    """Return the axes along which rows vary more than noise alone explains, at least one, in scaled units."""
    count = max(1, int((axes.deviations > edge).sum()))
    return PrincipalAxes(axes.directions[:, :count], axes.deviations[:count] / scale)
