"""Harmonization of sites by sums: every site removes its own effect from its rows and does not reveal it.

Least squares with a shift for each site and slopes for the covariates can be split. The slopes follow from products of
deviations from each site's own means. These are sums over sites, and so is the variance around them (Chen et al. 2022,
distributed ComBat; Silva et al. 2023, fedComBat). Shifts and scales of a site, and their priors, follow from these and
from its own rows (:mod:`raydr.statistics.site_effects`). They never leave the site.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from raydr.arrays import BoolArray, Float64Array, Int64Array
from raydr.errors import DataError
from raydr.federation import Cells, Client, Federation, Granularity, Range, Reply, Request, answers
from raydr.geometry.points import value_blocks
from raydr.statistics.moments import centre
from raydr.statistics.site_effects import (
    Common,
    Covariates,
    Harmonization,
    Kind,
    SiteEffect,
    adjusted_rows,
    own_moments,
    site_effect,
)

_LEAST_EIGENVALUE = (
    1e-10  # of the covariates' correlations within sites; below it, one follows from the others
)


@dataclass(frozen=True)
class Harmonizing:
    """Settings of the harmonization; ``names`` are the covariates' names in order, for messages."""

    kind: Kind
    covariates: Covariates = field(default_factory=Covariates)
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Products(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="means of the covariates, and of their products with each feature, as deviations from a client's own"
    " means",
):
    """``middle`` (covariates,), ``within`` (covariates, covariates) and ``across`` (covariates, features) float64."""

    middle: Float64Array
    within: Float64Array
    across: Float64Array

    @staticmethod
    def ranges(request: ProductsRequest, rows: int) -> dict[str, Range]:
        """Bound own variances by mean squares around the common centre, and products by both (Cauchy-Schwarz)."""
        kept, reach = request.kept_reach, request.reach
        return {
            "middle": Range(kept.shape, kept),
            "within": Range((kept.size, kept.size), kept[:, None] * kept),
            "across": Range((kept.size, reach.size), kept[:, None] * reach),
        }

    def cells(self, request: ProductsRequest, client: Client) -> tuple[Cells, ...]:
        """Return the number of records of each class, which the means of the classes tell."""
        return () if client.classes is None else (Cells(np.bincount(client.classes)),)


@dataclass(frozen=True)
class ProductsRequest(
    Request[Products], what="the covariates to keep, and the common mean and the range of each feature"
):
    """``centre`` and ``reach`` describe the features (features,), the others the covariates (covariates,)."""

    covariates: Covariates
    centre: Float64Array
    reach: Float64Array
    kept_centre: Float64Array
    kept_reach: Float64Array

    @property
    def reads_classes(self) -> bool:
        """Whether classes are covariates."""
        return self.covariates.indicators > 0


@answers(ProductsRequest)
def products(client: Client, request: ProductsRequest) -> Products:
    """Client part, in float64 and by blocks of rows."""
    kept = request.covariates.of(client.rows, client.classes) - request.kept_centre
    middle = kept.mean(axis=0)
    kept -= middle
    kept -= kept.mean(axis=0)  # remove the rounding error, which the features' own mean would multiply
    across = np.zeros((kept.shape[1], request.centre.size))
    for start, stop in value_blocks(*client.rows.shape):
        across += kept[start:stop].T @ (client.rows[start:stop] - request.centre)
    return Products(middle, kept.T @ kept / len(kept), across / len(kept))


@dataclass(frozen=True)
class Dispersion(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="for each feature, the mean squared deviation of a client's rows from its own mean, without the"
    " effect of the covariates",
):
    """``variance`` (features,) float64."""

    variance: Float64Array

    @staticmethod
    def ranges(request: DispersionRequest, rows: int) -> dict[str, Range]:
        """Bound variances by the largest squared deviation from the expected value, or from the own mean."""
        return {"variance": Range(request.reach.shape, request.reach**2)}


@dataclass(frozen=True)
class DispersionRequest(
    Request[Dispersion], what="the common mean, the slopes of the covariates, and the range of each feature"
):
    """``reach`` (features,) bounds the deviations."""

    common: Common
    reach: Float64Array

    @property
    def reads_classes(self) -> bool:
        """Whether classes are covariates."""
        return self.common.covariates.indicators > 0


@answers(DispersionRequest)
def dispersion(client: Client, request: DispersionRequest) -> Dispersion:
    """Client part, in float64."""
    return Dispersion(own_moments(client.rows, client.classes, request.common)[1])


@dataclass(frozen=True)
class Constant(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="for each feature, whether all rows of a client with several rows have the same value (0 or 1)",
    extreme=True,
):
    """Votes of one client; their sum is a number of clients."""

    votes: Int64Array

    @staticmethod
    def ranges(request: ConstantRequest, rows: int) -> dict[str, Range]:
        """Declare one vote for each feature."""
        return {"votes": Range((request.features,), 1.0, "int64")}


@dataclass(frozen=True)
class ConstantRequest(Request[Constant], what="a request for the features that have a single value"):
    """Request about all ``features``."""

    features: int


@answers(ConstantRequest)
def constant(client: Client, request: ConstantRequest) -> Constant:
    """Client part; a client with one row or none votes 0."""
    if len(client.rows) < 2:
        return Constant(np.zeros(request.features, np.int64))
    return Constant((client.rows.max(axis=0) == client.rows.min(axis=0)).astype(np.int64))


@dataclass(frozen=True)
class OwnEffect(
    Reply,
    granularity=Granularity.PER_CLIENT,
    what="the shift and factor that a client applied to each feature, which the client keeps",
    stays=True,
):
    """``shift`` and ``factor``: see :class:`raydr.statistics.site_effects.SiteEffect`."""

    shift: Float64Array
    factor: Float64Array

    @staticmethod
    def ranges(request: HarmonizeRows, rows: int) -> dict[str, Range]:
        """Declare one number of each kind for each feature."""
        shape = request.common.centre.shape
        return {"shift": Range(shape), "factor": Range(shape)}


@dataclass(frozen=True)
class HarmonizeRows(
    Request[OwnEffect],
    what="mean and deviation of each feature over all rows, which features to adjust, and the slopes of the"
    " covariates",
    sets_state=True,
):
    """Sent to every client once; its rows are then adjusted by its own site effect."""

    common: Common

    @property
    def reads_classes(self) -> bool:
        """Whether classes are covariates."""
        return self.common.covariates.indicators > 0


@answers(HarmonizeRows)
def harmonize_client(client: Client, request: HarmonizeRows) -> OwnEffect:
    """Client part: replace the partition with its adjusted form."""
    effect = site_effect(client.rows, client.classes, request.common)
    client.rows = adjusted_rows(client.rows, client.classes, request.common, effect)
    return OwnEffect(effect.shift, effect.factor)


def fit_harmonizing(federation: Federation, wanted: Harmonizing) -> Harmonization:
    """Learn by sums what all sites have in common, and let each site remove the rest from its rows.

    Public rows belong to no site and stay unchanged.

    Parameters
    ----------
    federation : Federation
        All clients, with their rows as read, without missing values.
    wanted : Harmonizing
        Settings.

    Returns
    -------
    harmonization : Harmonization
        The server learns the common part of it, and no site's own effect.

    Raises
    ------
    DataError
        If fewer than two sites have rows, the covariates cannot be separated from the sites, or no column varies within
        sites.
    """
    if sum(size > 0 for size in federation.sizes) < 2:
        raise DataError(
            "data.harmonize needs at least two sites with rows, but all rows belong to one client. Leave"
            " data.harmonize out, or set clients.partition.column to the column of sites."
        )
    mean, reach = centre(federation)
    common = _with_slopes(federation, wanted, mean, reach)
    if wanted.kind != "center":
        slopes = np.abs(common.slopes)
        kept_reach = _kept(wanted.covariates, mean, reach)[1]
        bound = reach + kept_reach @ slopes
        variance = federation.mean(DispersionRequest(common, bound), weights="rows").variance
        common = replace(common, deviation=np.sqrt(np.maximum(variance, 0.0)))
        if not common.deviation[common.adjusted].any():
            raise DataError(
                f"data.harmonize: {wanted.kind} needs rows that differ within a site. Within each site all rows are"
                " equal, apart from the effect of the covariates. Set it to center, or leave it out."
            )
    if wanted.kind == "combat":
        common = replace(common, adjusted=_varying(federation, common))
    replies = federation.ask(HarmonizeRows(common))
    return Harmonization(common, tuple(SiteEffect(reply.shift, reply.factor) for reply in replies))


def _kept(
    covariates: Covariates, mean: Float64Array, reach: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Return the covariates' origin and their largest distance from it; classes are zeros and ones."""
    columns, classes = list(covariates.columns), covariates.indicators
    return np.append(mean[columns], np.zeros(classes)), np.append(reach[columns], np.ones(classes))


def _with_slopes(
    federation: Federation, wanted: Harmonizing, mean: Float64Array, reach: Float64Array
) -> Common:
    """Return the common part without deviations: all features that are not covariates are adjusted."""
    covariates, features = wanted.covariates, federation.features
    adjusted: BoolArray = np.ones(features, np.bool_)
    adjusted[list(covariates.columns)] = False
    common = Common(
        kind=wanted.kind,
        covariates=covariates,
        centre=mean,
        deviation=np.zeros(features),
        adjusted=adjusted,
        middle=np.zeros(0),
        slopes=np.zeros((0, features)),
    )
    if not covariates.count:
        return common
    kept_centre, kept_reach = _kept(covariates, mean, reach)
    request = ProductsRequest(covariates, mean, reach, kept_centre, kept_reach)
    found = federation.mean(request, weights="rows")
    width = np.sqrt(np.maximum(np.diag(found.within), 0.0))
    still = width <= 1e-9 * kept_reach
    if still.any():
        raise DataError(
            f"data.harmonize.keep names {_named(wanted, int(np.argmax(still)))!r}, which has one value within each"
            " site, so its effect cannot be separated from that of the site. Leave it out of keep."
        )
    correlations = found.within / width / width[:, None]
    values, vectors = np.linalg.eigh(correlations)
    if values[0] < _LEAST_EIGENVALUE:
        first, second = np.argsort(-np.abs(vectors[:, 0]))[:2]
        raise DataError(
            f"data.harmonize.keep: within sites, {_named(wanted, int(first))!r} follows from the other covariates,"
            f" among them {_named(wanted, int(second))!r}. Leave one of them out of keep."
        )
    slopes = np.linalg.solve(correlations, found.across / width[:, None]) / width[:, None]
    return replace(common, middle=kept_centre + found.middle, slopes=np.asarray(slopes))


def _named(wanted: Harmonizing, covariate: int) -> str:
    return wanted.names[covariate] if covariate < len(wanted.names) else f"covariate {covariate}"


def _varying(federation: Federation, common: Common) -> BoolArray:
    """Return the features for empirical Bayes: as in sva, those that vary at every site."""
    still = federation.sum(ConstantRequest(federation.features)).votes > 0
    varying = np.asarray(common.adjusted & ~still & (common.deviation > 0))
    if varying.sum() < 2:
        raise DataError(
            "data.harmonize: combat needs at least two columns that vary at every site, and there"
            f" {'is one' if varying.any() else 'are none'}. Set it to scale, which adjusts each column by itself."
        )
    return varying
