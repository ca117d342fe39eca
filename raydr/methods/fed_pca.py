"""Federated PCA: the map of the pooled rows' first principal components, by exact sums.

1. Clients vote on ranges and sum their rows, which gives the mean m of all rows.
2. They sum products of the second moments with a few directions. They stop when the first principal axes A have
converged to those of the pooled rows, up to rounding (:mod:`raydr.statistics.converged_axes`). Under noise, or with
few features, one sum gives all second moments (:mod:`raydr.statistics.second_moments`).
3. They count their rows by the distance along and away from these axes (:mod:`raydr.methods.novelty_by_axes`), unless
there is noise or ``bounds``.
4. Each client projects its own rows, A^T (x - m), and sends the positions or keeps them (``publish``).

This is the frame of Fed-tSNE's default landmarks (:mod:`raydr.methods.landmarks.frames`), reduced to the
dimensions of a map. It is the simplest map by sums: linear, not random, and independent of the partition of
rows over clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from raydr.arrays import Float64Array, FloatArray, shaped
from raydr.federation import (
    Client,
    DeterminedRecords,
    Federation,
    Granularity,
    Range,
    RecordContent,
    Rehearsal,
    Reply,
    Request,
    answers,
)
from raydr.geometry.blocks import in_blocks
from raydr.journal import Journal
from raydr.methods.landmarks.frames import axes_request, known_spread
from raydr.methods.landmarks.settings import LandmarkSettings
from raydr.methods.method import MethodSettings, method
from raydr.methods.novelty import MOMENTS
from raydr.methods.novelty_by_axes import novelty_by_axes, novelty_model, rehearse_counts
from raydr.methods.outcome import Note, Outcome, Pooled
from raydr.privacy import Mechanism
from raydr.settings import require_in_order
from raydr.sparse_rows import SparseRows
from raydr.statistics.converged_axes import BLOCK, Converged, converged_axes, leading_axes
from raydr.statistics.moments import Spread
from raydr.statistics.principal_axes import CovarianceProduct, CovarianceRequest, PrincipalAxes
from raydr.statistics.second_moments import moment_axes, require_few_features
from raydr.threads import one_blas_thread

_REHEARSED_SUMS = 12
"""Products that a plan counts. *Measured*: 3 for breast cancer, 8 for digits, 11 for 2,000 rows of MNIST, 35
for noise."""


class FedPCA(MethodSettings):
    """Principal components of all rows, by exact sums: linear, not random, and equal to those of the pooled rows."""

    noise_on: ClassVar[frozenset[str]] = frozenset({"data", "moments"})
    kind: Literal["fed-pca"] = "fed-pca"
    dimensions: Literal[2, 3] = Field(2, description="dimensions of the map")
    publish: Literal["server", "local"] = Field(
        "server",
        description="who receives the positions of records. server: the server, which then has the whole map;"
        " local: no one; each client keeps its own, and only the simulation's evaluation sees all",
    )
    bounds: tuple[float, float] | None = Field(
        None,
        description="least and largest value of any feature, after scaling. Rows are then centred on"
        " the middle of the bounds, and one sum that noise can cover gives their moments;"
        " nothing is sent before it",
    )

    @model_validator(mode="after")
    def _bounds_in_order(self) -> FedPCA:
        require_in_order(self.bounds)
        return self

    @property
    def frame(self) -> LandmarkSettings:
        """Landmark settings of the principal axes."""
        return LandmarkSettings(landmarks_from="principal", landmarks=self.dimensions + 1, bounds=self.bounds)

    @property
    def rounds_asked(self) -> int:
        """Return 0: the sums come before the map."""
        return 0

    def releases(self, noise: Mechanism) -> int:
        """Return the releases of the frame."""
        return self.frame.releases(noise)

    def posts(self) -> str | None:
        """Return what is sent without noise: positions, unless clients keep them."""
        return None if self.keeps_places else "the position of every record along the principal axes"

    def why_no_key(self) -> str | None:
        """Return why rows may not be rotated: bounds limit the original features."""
        return self.frame.why_no_key()

    def why_dense(self, rows: int, features: int, *, pooled: bool) -> None:
        """Return None: sums over rows take one block of rows at a time."""

    def central(
        self, model: Mapping[str, FloatArray], rows: FloatArray, seed: int, journal: Journal
    ) -> Pooled:
        """Return the principal components of pooled rows (rows, features)."""
        with journal.stage("embedding"):
            mean = rows.mean(axis=0, dtype=np.float64)
            blocks: Callable[[], Iterable[Float64Array]]
            if isinstance(rows, SparseRows):
                table, middle = rows, mean
                blocks = lambda: (block - middle for block in table.blocks())  # noqa: E731
            else:
                seen = rows.astype(np.float64) - mean
                # A mean far from 0 has been rounded.
                mean, seen = mean + seen.mean(axis=0), seen - seen.mean(axis=0)
                blocks = lambda: [seen]  # noqa: E731

            def product(directions: Float64Array) -> Float64Array:
                with one_blas_thread():
                    return reduce(np.add, (part.T @ (part @ directions) for part in blocks())) / len(rows)

            found = leading_axes(product, rows.shape[1], self.dimensions)
            axes = padded(found.axes.directions, self.dimensions)
        return Pooled(projected(rows, mean, axes), place=lambda new: projected(new, mean, axes))

    def transform(self, model: Mapping[str, FloatArray], rows: FloatArray) -> FloatArray:
        """Return positions (rows, dimensions) of new rows (rows, features), along the run's axes."""
        mean, axes = (np.asarray(model[name], np.float64) for name in ("mean", "axes"))
        return in_blocks(lambda block: projected(block, mean, axes), rows)

    def novelty(self, model: Mapping[str, FloatArray], rows: FloatArray) -> Float64Array | None:
        """Return p-values (rows,) by distances along the axes, on the map, and away from them."""
        return novelty_by_axes(model, rows - np.asarray(model["mean"], np.float64))

    def rehearse(self, federation: Rehearsal) -> None:
        """Ask what :func:`serve` asks."""
        with federation.by_sample(), federation.stage("moments"):
            moments = known_spread(federation, self.frame)
        features, count = federation.features, min(self.dimensions, federation.features)
        with federation.stage("axes"):
            request = axes_request(federation, moments, count)
            if request is not None:
                require_few_features(features)
                federation.mean(request, weights="rows")
                federation.add_operations(
                    at_clients=2.0 * federation.rows * features**2, at_server=10.0 * features**3
                )
            else:
                directions = shaped((features, min(BLOCK, features)))
                for _ in range(_REHEARSED_SUMS):
                    federation.mean(
                        CovarianceRequest(directions, moments.reach, moments.mean), weights="rows"
                    )
                    federation.add_operations(at_clients=4.0 * federation.rows * directions.size)
                federation.guess(
                    f"{_REHEARSED_SUMS} sums were assumed for the axes to converge",
                    CovarianceRequest,
                    CovarianceProduct,
                )
            if self.bounds is None:
                rehearse_counts(federation, moments.mean, shaped((features, count)))
        with federation.stage("map"):
            _places(federation, self, moments.mean, shaped((features, self.dimensions)))
            federation.add_operations(at_clients=2.0 * federation.rows * features * self.dimensions)


@dataclass(frozen=True)
class Components(
    Reply,
    granularity=Granularity.PER_RECORD,
    what="the position of every record along the first principal axes of all rows, which is its"
    " position on the map",
    tells=RecordContent.PROJECTIONS,
):
    """``places`` (rows, dimensions) float64."""

    places: Float64Array

    @staticmethod
    def ranges(request: ComponentRequest | ComponentsAtHomeRequest, rows: int) -> dict[str, Range]:
        """Return the range: one number for each row and axis."""
        return {"places": Range((rows, request.axes.shape[1]))}

    def fixed(self, request: ComponentRequest | ComponentsAtHomeRequest) -> DeterminedRecords:
        """Return one coordinate along each axis: the whole record if there are as many axes as features."""
        rows, (features, axes) = len(self.places), request.axes.shape
        span = int(np.linalg.matrix_rank(request.axes))
        return DeterminedRecords(
            records=rows,
            exact=rows if span == features else 0,
            dimensions=span,
            features=features,
            points=axes,
        )


@dataclass(frozen=True)
class ComponentRequest(Request[Components], what="the mean and the first principal axes of all rows"):
    """Request for ``(x - mean) @ axes``; ``mean`` (features,), ``axes`` (features, dimensions) float64."""

    mean: Float64Array
    axes: Float64Array


@answers(ComponentRequest)
def post_components(client: Client, request: ComponentRequest) -> Components:
    """Run the client part of step 4."""
    return Components(projected(client.rows, request.mean, request.axes))


@dataclass(frozen=True)
class ComponentsAtHome(
    Components,
    granularity=Granularity.PER_RECORD,
    what="the position of every record along the first principal axes of all rows, which its client keeps",
    stays=True,
):
    """Positions that each client keeps."""


@dataclass(frozen=True)
class ComponentsAtHomeRequest(
    Request[ComponentsAtHome], what="the mean and the first principal axes of all rows"
):
    """As :class:`ComponentRequest`, but each client keeps the positions of its rows."""

    mean: Float64Array
    axes: Float64Array


@answers(ComponentsAtHomeRequest)
def keep_components(client: Client, request: ComponentsAtHomeRequest) -> ComponentsAtHome:
    """Run the client part of step 4 and keep the result."""
    return ComponentsAtHome(projected(client.rows, request.mean, request.axes))


def projected(rows: FloatArray, mean: Float64Array, axes: Float64Array) -> Float64Array:
    """Return positions (rows, dimensions) of rows (rows, features), in float64."""
    with one_blas_thread():
        if isinstance(rows, SparseRows):
            return np.concatenate([(block.astype(np.float64) - mean) @ axes for block in rows.blocks()])
        return np.asarray((rows.astype(np.float64) - mean) @ axes)


def padded(axes: Float64Array, dimensions: int) -> Float64Array:
    """Pad axes to (features, dimensions) with zeros if there are fewer features."""
    return np.pad(axes, ((0, 0), (0, dimensions - axes.shape[1])))


@method(FedPCA, "Fed-PCA")
def serve(federation: Federation, settings: FedPCA) -> Outcome:
    """Run the server part."""
    with federation.stage("moments"):
        moments = known_spread(federation, settings.frame)
    with federation.stage("axes"):
        found = _axes(federation, settings, moments)
        exact = found.axes if isinstance(found, Converged) else found
        axes, compared = padded(exact.directions, settings.dimensions), dict[str, FloatArray]()
        if settings.bounds is None:
            compared = novelty_model(federation, moments.mean, exact, float((moments.deviation**2).sum()))
        if compared:
            compared[MOMENTS] = np.stack([moments.mean, moments.deviation])
    with federation.stage("map"):
        places = _places(federation, settings, moments.mean, axes)
    model = {"mean": moments.mean, "axes": axes} | compared
    return Outcome(
        embedding=places,
        geometry=None,
        model=model,
        notes=(_note(found, settings),),
        published=not settings.keeps_places,
    )


def _axes(federation: Federation, settings: FedPCA, moments: Spread) -> PrincipalAxes | Converged:
    """Return the first principal axes of all rows, in one sum under noise or with few features, else in several."""
    count = min(settings.dimensions, federation.features)
    request = axes_request(federation, moments, count)
    if request is None:
        return converged_axes(federation, moments.reach, count, moments.mean)
    return moment_axes(federation, request, count)


def _places(federation: Federation, settings: FedPCA, mean: Float64Array, axes: Float64Array) -> Float64Array:
    """Return positions (rows, dimensions) of all records, which each client sends, or keeps for the evaluation."""
    if settings.keeps_places:
        kept = federation.ask(ComponentsAtHomeRequest(mean, axes))
        return np.concatenate([reply.places for reply in kept])
    return np.concatenate([reply.places for reply in federation.ask(ComponentRequest(mean, axes))])


def _note(found: PrincipalAxes | Converged, settings: FedPCA) -> Note:
    """Return a note on the axes and on who knows the positions."""
    deviations = (found.axes if isinstance(found, Converged) else found).deviations
    brought = (
        f"{found.sums} sums over all clients computed them, until the covariance of all rows turned none of them by"
        f" more than {found.turned:.0e} of the largest variance"
        if isinstance(found, Converged)
        else "One sum over all clients computed them"
    )
    known = (
        "known to their own client alone"
        if settings.keeps_places
        else "known to the server, in the units of the features"
    )
    return Note(
        "What the map shows",
        "The map shows the first principal components of all rows. Their standard deviations are"
        f" {' and '.join(f'{deviation:.4g}' for deviation in deviations)}. {brought}. The positions of"
        f" records are {known}.",
    )
