"""Harmonizing sites by sums: every site takes off its rows what is its own, and tells nobody what that is.

Least squares with a shift for each site and slopes for the covariates comes apart: the slopes follow from products of
deviations from each site's own means, which are sums over sites, and so does the variance around them (Chen et al.
2022, distributed ComBat; Silva et al. 2023, fedComBat). Shifts and scales of a site follow from these and from its own
rows, and so do their priors (:mod:`raydr.statistics.site_effects`): they never leave it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from raydr.arrays import BoolArray, Float64Array, Int64Array
from raydr.errors import DataError
from raydr.federation import Client, Federation, Granularity, Range, Reply, Request, answers
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
    1e-10  # of the correlations of covariates inside of sites; below it one follows from the others
)


@dataclass(frozen=True)
class Harmonizing:
    """How sites are to be harmonized; ``names`` are those of the covariates, in their order, for messages."""

    kind: Kind
    covariates: Covariates = field(default_factory=Covariates)
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Products(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="means of what is to be kept, and of its products with each feature, as deviations from a client's own means",
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


@dataclass(frozen=True)
class ProductsRequest(
    Request[Products], what="which columns are to be kept, the common mean and the range of each feature"
):
    """``centre`` and ``reach`` are of the features (features,), the others of what is kept (covariates,)."""

    covariates: Covariates
    centre: Float64Array
    reach: Float64Array
    kept_centre: Float64Array
    kept_reach: Float64Array

    @property
    def reads_classes(self) -> bool:
        """Where classes are kept."""
        return self.covariates.indicators > 0


@answers(ProductsRequest)
def products(client: Client, request: ProductsRequest) -> Products:
    """Client part, in double precision and some rows at a time."""
    kept = request.covariates.of(client.rows, client.classes) - request.kept_centre
    middle = kept.mean(axis=0)
    kept -= middle
    kept -= kept.mean(axis=0)  # what rounding left, which would count times the features' own mean
    across = np.zeros((kept.shape[1], request.centre.size))
    for start, stop in value_blocks(*client.rows.shape):
        across += kept[start:stop].T @ (client.rows[start:stop] - request.centre)
    return Products(middle, kept.T @ kept / len(kept), across / len(kept))


@dataclass(frozen=True)
class Dispersion(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="for each feature, mean squared deviation of a client's rows from its own mean and from what is kept",
):
    """``variance`` (features,) float64."""

    variance: Float64Array

    @staticmethod
    def ranges(request: DispersionRequest, rows: int) -> dict[str, Range]:
        """The largest deviation from what is expected, squared; from a client's own mean they are no larger."""
        return {"variance": Range(request.reach.shape, request.reach**2)}


@dataclass(frozen=True)
class DispersionRequest(
    Request[Dispersion], what="the common mean, what goes with what is kept, and the range of each feature"
):
    """``reach`` (features,) bounds the deviations."""

    common: Common
    reach: Float64Array

    @property
    def reads_classes(self) -> bool:
        """Where classes are kept."""
        return self.common.covariates.indicators > 0


@answers(DispersionRequest)
def dispersion(client: Client, request: DispersionRequest) -> Dispersion:
    """Client part, in double precision."""
    return Dispersion(own_moments(client.rows, client.classes, request.common)[1])


@dataclass(frozen=True)
class Constant(
    Reply,
    granularity=Granularity.AGGREGATE,
    what="for each feature, 0 or 1: whether all of a client's rows, of which it has several, have one value",
):
    """Votes of one client; their sum is a number of clients."""

    votes: Int64Array

    @staticmethod
    def ranges(request: ConstantRequest, rows: int) -> dict[str, Range]:
        """One vote for each feature."""
        return {"votes": Range((request.features,), 1.0, "int64")}


@dataclass(frozen=True)
class ConstantRequest(Request[Constant], what="the question which features have one value"):
    """Of all ``features``."""

    features: int


@answers(ConstantRequest)
def constant(client: Client, request: ConstantRequest) -> Constant:
    """Client part; a client of one row, or none, has no say."""
    if len(client.rows) < 2:
        return Constant(np.zeros(request.features, np.int64))
    return Constant((client.rows.max(axis=0) == client.rows.min(axis=0)).astype(np.int64))


@dataclass(frozen=True)
class OwnEffect(
    Reply,
    granularity=Granularity.PER_CLIENT,
    what="how far each feature of a client's rows was off, and how much wider, which its client keeps",
    stays=True,
):
    """``shift`` and ``factor``: see :class:`raydr.statistics.site_effects.SiteEffect`."""

    shift: Float64Array
    factor: Float64Array

    @staticmethod
    def ranges(request: HarmonizeRows, rows: int) -> dict[str, Range]:
        """One number of each for each feature."""
        shape = request.common.centre.shape
        return {"shift": Range(shape), "factor": Range(shape)}


@dataclass(frozen=True)
class HarmonizeRows(
    Request[OwnEffect],
    what="mean and deviation of each feature over all rows, which are adjusted, and what goes with what is kept",
    sets_state=True,
):
    """Told to every client once; from then on its rows are adjusted by what they show to be its own."""

    common: Common

    @property
    def reads_classes(self) -> bool:
        """Where classes are kept."""
        return self.common.covariates.indicators > 0


@answers(HarmonizeRows)
def harmonize_client(client: Client, request: HarmonizeRows) -> OwnEffect:
    """Client part: replace the partition by its adjusted form."""
    effect = site_effect(client.rows, client.classes, request.common)
    client.rows = adjusted_rows(client.rows, client.classes, request.common, effect)
    return OwnEffect(effect.shift, effect.factor)


def fit_harmonizing(federation: Federation, wanted: Harmonizing) -> Harmonization:
    """Learn by sums what all sites have in common, and have each take off its rows what they have not.

    Public rows are no site's, and stay.

    Parameters
    ----------
    federation : Federation
        All clients, with their rows as read, none of which lacks a value.
    wanted : Harmonizing
        How.

    Returns
    -------
    harmonization : Harmonization
        Of which a server learns what is common, and no site's own.

    Raises
    ------
    DataError
        If there are no two sites with rows, what is to be kept cannot be told apart from the sites, or the rows of no
        column differ inside of sites.
    """
    if sum(size > 0 for size in federation.sizes) < 2:
        raise DataError(
            "data.harmonize adjusts sites to each other, and all rows are one client's: leave it out, or name the"
            " column of sites in clients.partition.column."
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
                f"data.harmonize: {wanted.kind} compares how far rows lie apart inside of sites, and inside of each"
                " site all rows are equal, but for what is kept: set it to center, or leave it out."
            )
    if wanted.kind == "combat":
        common = replace(common, adjusted=_varying(federation, common))
    replies = federation.ask(HarmonizeRows(common))
    return Harmonization(common, tuple(SiteEffect(reply.shift, reply.factor) for reply in replies))


def _kept(
    covariates: Covariates, mean: Float64Array, reach: Float64Array
) -> tuple[Float64Array, Float64Array]:
    """Where covariates are measured from, and how far from there they go; classes are zeros and ones."""
    columns, classes = list(covariates.columns), covariates.indicators
    return np.append(mean[columns], np.zeros(classes)), np.append(reach[columns], np.ones(classes))


def _with_slopes(
    federation: Federation, wanted: Harmonizing, mean: Float64Array, reach: Float64Array
) -> Common:
    """What is common but for the deviations: all features are adjusted that are not kept."""
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
            f"data.harmonize.keep names {_named(wanted, int(np.argmax(still)))!r}, which has one value inside of each"
            " site, so what is its own cannot be told apart from what is the site's: leave it out of keep."
        )
    correlations = found.within / width / width[:, None]
    values, vectors = np.linalg.eigh(correlations)
    if values[0] < _LEAST_EIGENVALUE:
        first, second = np.argsort(-np.abs(vectors[:, 0]))[:2]
        raise DataError(
            f"data.harmonize.keep: inside of sites {_named(wanted, int(first))!r} follows from the others that are"
            f" named, {_named(wanted, int(second))!r} among them: leave one of them out of keep."
        )
    slopes = np.linalg.solve(correlations, found.across / width[:, None]) / width[:, None]
    return replace(common, middle=kept_centre + found.middle, slopes=np.asarray(slopes))


def _named(wanted: Harmonizing, covariate: int) -> str:
    return wanted.names[covariate] if covariate < len(wanted.names) else f"covariate {covariate}"


def _varying(federation: Federation, common: Common) -> BoolArray:
    """Features from which empirical Bayes learns, and that it adjusts: as in sva, those that vary at every site."""
    still = federation.sum(ConstantRequest(federation.features)).votes > 0
    varying = np.asarray(common.adjusted & ~still & (common.deviation > 0))
    if varying.sum() < 2:
        raise DataError(
            "data.harmonize: combat learns from many columns how far a site's are off, and adjusts those that vary at"
            f" every site, of which there {'is one' if varying.any() else 'are none'}: set it to scale, which takes"
            " each column by itself."
        )
    return varying
